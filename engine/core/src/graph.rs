//! The dependency graph of resources.
//!
//! Start at [`Graph::new`]. An edge leads from a resource to one that must come before it. Ids decide where the graph
//! leaves a choice, so that equal input gives equal order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, VecDeque, hash_map::Entry};
use std::fmt;

use petgraph::Direction;
use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::spec::ResourceId;

/// Ids, and the ids that come before each.
pub type Before = BTreeMap<ResourceId, BTreeSet<ResourceId>>;

/// Resources and what must come before each.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Nodes in the order of their ids, so that indices compare as ids do.
    graph: DiGraph<ResourceId, ()>,
    index: HashMap<ResourceId, NodeIndex>,
}

/// Resources that depend on each other in a circle: `a → b → a`, where → means "depends on".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Cycle {
    /// The ids along it, each once, beginning with the smallest.
    pub path: Vec<ResourceId>,
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for id in &self.path {
            write!(f, "{id} → ")?;
        }
        match self.path.first() {
            Some(first) => write!(f, "{first}"),
            None => Ok(()),
        }
    }
}

impl Graph {
    /// Makes a graph of every resource and what must come before it. Ids that are no key of the
    /// map are left out.
    pub fn new(before: &BTreeMap<ResourceId, BTreeSet<ResourceId>>) -> Self {
        let mut graph = DiGraph::with_capacity(before.len(), before.len());
        let index: HashMap<ResourceId, NodeIndex> =
            before.keys().map(|id| (id.clone(), graph.add_node(id.clone()))).collect();
        for (id, dependencies) in before {
            for dependency in dependencies {
                if let Some(to) = index.get(dependency) {
                    graph.add_edge(index[id], *to, ());
                }
            }
        }
        Self { graph, index }
    }

    /// The direct predecessors of a resource, by id.
    pub fn before(&self, id: &ResourceId) -> Vec<ResourceId> {
        let Some(index) = self.index.get(id) else { return Vec::new() };
        let found: BTreeSet<_> = self.graph.neighbors(*index).collect();
        found.into_iter().map(|index| self.graph[index].clone()).collect()
    }

    /// Every resource after all that must come before it; by id where that leaves a choice.
    pub fn order(&self) -> Result<Vec<ResourceId>, Vec<Cycle>> {
        self.order_of_indices()
            .map(|order| order.into_iter().map(|index| self.graph[index].clone()).collect())
            .ok_or_else(|| self.cycles())
    }

    fn order_of_indices(&self) -> Option<Vec<NodeIndex>> {
        let mut waiting: Vec<usize> =
            self.graph.node_indices().map(|node| self.graph.neighbors(node).count()).collect();
        let mut ready: BinaryHeap<_> =
            self.graph.node_indices().filter(|node| waiting[node.index()] == 0).map(Reverse).collect();
        let mut order = Vec::with_capacity(self.graph.node_count());
        while let Some(Reverse(node)) = ready.pop() {
            order.push(node);
            for dependent in self.graph.neighbors_directed(node, Direction::Incoming) {
                waiting[dependent.index()] -= 1;
                if waiting[dependent.index()] == 0 {
                    ready.push(Reverse(dependent));
                }
            }
        }
        (order.len() == self.graph.node_count()).then_some(order)
    }

    /// The same order with the fewest edges: an edge is dropped when a longer path implies it.
    pub fn reduced(&self) -> Result<Self, Vec<Cycle>> {
        let order = self.order_of_indices().ok_or_else(|| self.cycles())?;
        let mut position = vec![0; order.len()];
        for (at, node) in order.iter().enumerate() {
            position[node.index()] = at;
        }
        // For each node, the positions of its predecessors, last first, so that predecessors are visited before it.
        let before: Vec<Vec<usize>> = order
            .iter()
            .map(|node| {
                let mut before: Vec<_> = self.graph.neighbors(*node).map(|to| position[to.index()]).collect();
                before.sort_unstable_by(|a, b| b.cmp(a));
                before.dedup();
                before
            })
            .collect();
        let mut graph = self.graph.clone();
        graph.clear_edges();
        for (from, to) in necessary_edges(&before) {
            graph.add_edge(order[from], order[to], ());
        }
        Ok(Self { graph, index: self.index.clone() })
    }

    /// One cycle, as short as can be, for every group of resources that depend on each other.
    pub fn cycles(&self) -> Vec<Cycle> {
        let mut cycles: Vec<_> = self
            .groups()
            .into_iter()
            .filter_map(|group| {
                let first = *group.iter().min()?;
                (group.len() > 1 || self.graph.contains_edge(first, first)).then(|| self.cycle_through(first, &group))
            })
            .collect();
        cycles.sort_by(|a, b| a.path.cmp(&b.path));
        cycles
    }

    /// Strongly connected groups. The chains of a Spec may be long, so that the search is iterative, unlike the usual form
    /// of Tarjan's algorithm.
    fn groups(&self) -> Vec<Vec<NodeIndex>> {
        kosaraju_scc(&self.graph)
    }

    /// The shortest way from `start` back to itself within its group.
    fn cycle_through(&self, start: NodeIndex, group: &[NodeIndex]) -> Cycle {
        let group: BTreeSet<_> = group.iter().copied().collect();
        let mut came_from: HashMap<NodeIndex, NodeIndex> = HashMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            let next: BTreeSet<_> = self.graph.neighbors(node).filter(|next| group.contains(next)).collect();
            for next in next {
                if next == start {
                    let mut path = vec![self.graph[node].clone()];
                    let mut at = node;
                    while let Some(previous) = came_from.get(&at) {
                        path.push(self.graph[*previous].clone());
                        at = *previous;
                    }
                    path.reverse();
                    return Cycle { path };
                }
                if let Entry::Vacant(first) = came_from.entry(next) {
                    first.insert(node);
                    queue.push_back(next);
                }
            }
        }
        unreachable!("in a strongly connected group every node reaches itself")
    }

    /// The edges of `removable` whose removal leaves the others without a cycle through them.
    ///
    /// An edge stays if it closes a cycle only together with other removable edges, which are added first, by target id. No
    /// edge is removed needlessly.
    ///
    /// Removable edges usually lead to few resources, such as the namespace of many objects. Each target is searched once
    /// for all of its edges.
    pub fn contradicting(&self, removable: &BTreeSet<(ResourceId, ResourceId)>) -> Vec<(ResourceId, ResourceId)> {
        let removable: HashSet<(NodeIndex, NodeIndex)> =
            removable.iter().filter_map(|(from, to)| Some((*self.index.get(from)?, *self.index.get(to)?))).collect();
        if removable.is_empty() {
            return Vec::new();
        }
        let mut group = vec![0; self.graph.node_count()];
        for (number, nodes) in self.groups().iter().enumerate() {
            nodes.iter().for_each(|node| group[node.index()] = number);
        }
        // No cycle leads out of a group.
        let mut before: Vec<Vec<NodeIndex>> = vec![Vec::new(); self.graph.node_count()];
        let mut leading_to: BTreeMap<NodeIndex, BTreeSet<NodeIndex>> = BTreeMap::new();
        for edge in self.graph.raw_edges() {
            let (from, to) = (edge.source(), edge.target());
            if group[from.index()] != group[to.index()] {
                continue;
            }
            if removable.contains(&(from, to)) {
                leading_to.entry(to).or_default().insert(from);
            } else {
                before[from.index()].push(to);
            }
        }
        let mut contradicting = Vec::new();
        let mut reached_for = vec![None; self.graph.node_count()];
        for (to, sources) in leading_to {
            let mut waiting = vec![to];
            reached_for[to.index()] = Some(to);
            while let Some(node) = waiting.pop() {
                for next in &before[node.index()] {
                    if reached_for[next.index()] != Some(to) {
                        reached_for[next.index()] = Some(to);
                        waiting.push(*next);
                    }
                }
            }
            for from in sources {
                // A node that `to` does not reach is not reached through the remaining edges either.
                match reached_for[from.index()] == Some(to) {
                    true => contradicting.push((self.graph[from].clone(), self.graph[to].clone())),
                    false => before[from.index()].push(to),
                }
            }
        }
        contradicting
    }
}

/// Columns of reachability that are worked on at once: bounds the memory to 1 KiB per node.
const BLOCK: usize = 8192;

/// The edges that no longer path implies. `before` holds smaller positions, largest first.
fn necessary_edges(before: &[Vec<usize>]) -> Vec<(usize, usize)> {
    let mut edges = Vec::new();
    for low in (0..before.len()).step_by(BLOCK) {
        let high = (low + BLOCK).min(before.len());
        let words = (high - low).div_ceil(64);
        // Which positions of the block each node reaches; nodes below the block reach none.
        let mut reach = vec![0_u64; (before.len() - low) * words];
        for (from, nearer) in before.iter().enumerate().skip(low) {
            let (done, rest) = reach.split_at_mut((from - low) * words);
            let own = &mut rest[..words];
            for &to in nearer {
                if to < low {
                    break;
                }
                if to < high {
                    let (word, bit) = ((to - low) / 64, 1 << ((to - low) % 64));
                    if own[word] & bit != 0 {
                        continue;
                    }
                    own[word] |= bit;
                    edges.push((from, to));
                }
                let theirs = &done[(to - low) * words..][..words];
                own.iter_mut().zip(theirs).for_each(|(own, theirs)| *own |= theirs);
            }
        }
    }
    edges
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    fn graph(edges: &[(&str, &[&str])]) -> Graph {
        let ids = |ids: &[&str]| ids.iter().map(|id| ResourceId::from(*id)).collect();
        Graph::new(&edges.iter().map(|(id, before)| (ResourceId::from(*id), ids(before))).collect())
    }

    fn numbered(edges: &[(usize, usize)], count: usize) -> Graph {
        let id = |n: usize| ResourceId(format!("{n:05}"));
        let mut before: BTreeMap<_, BTreeSet<_>> = (0..count).map(|n| (id(n), BTreeSet::new())).collect();
        for (from, to) in edges {
            before.get_mut(&id(*from)).unwrap().insert(id(*to));
        }
        Graph::new(&before)
    }

    /// Whether `to` must come before `from`, directly or not.
    fn reaches(graph: &Graph, from: &ResourceId, to: &ResourceId) -> bool {
        petgraph::algo::has_path_connecting(&graph.graph, graph.index[from], graph.index[to], None)
    }

    fn joined(ids: &[ResourceId]) -> String {
        ids.iter().map(|id| id.0.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn order_respects_edges_then_ids() {
        let graph = graph(&[("a", &["c"]), ("b", &[]), ("c", &["d"]), ("d", &[]), ("e", &["b", "d"])]);
        assert_eq!(joined(&graph.order().unwrap()), "b d c a e");
    }

    #[test]
    fn cycle_is_reported_with_path() {
        let graph =
            graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["a", "d"]), ("d", &[]), ("x", &["x"]), ("y", &["a"])]);
        let cycles = graph.order().unwrap_err();
        let told: Vec<_> = cycles.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["a → b → c → a", "x → x"]);
    }

    #[test]
    fn redundant_edge_is_removed() {
        let reduced = graph(&[("a", &["b", "c", "d"]), ("b", &["c"]), ("c", &["d"]), ("d", &[])]).reduced().unwrap();
        let before = ["a", "b", "c", "d"].map(|id| joined(&reduced.before(&id.into())));
        assert_eq!(before, ["b", "c", "d", ""]);
    }

    /// Shows the edges that have to go, of those that may.
    fn check_contradicting(edges: &[(&str, &[&str])], removable: &[(&str, &str)], expected: &str) {
        let removable = removable.iter().map(|(from, to)| ((*from).into(), (*to).into())).collect();
        let gone = graph(edges).contradicting(&removable);
        assert_eq!(gone.iter().map(|(from, to)| format!("{from}→{to}")).collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn optional_edges_that_close_cycles_are_removed() {
        let namespace: &[(&str, &[&str])] =
            &[("a", &["ns"]), ("b", &["ns"]), ("c", &["ns"]), ("ns", &["a", "b"]), ("x", &["x"])];
        check_contradicting(namespace, &[("a", "ns"), ("b", "ns"), ("c", "ns")], "a→ns b→ns");
        check_contradicting(namespace, &[("a", "ns")], "a→ns");
        check_contradicting(namespace, &[("c", "ns"), ("c", "other")], "");
        check_contradicting(namespace, &[("x", "x")], "x→x");
        // Of edges that contradict each other those stay that lead to what comes first.
        let two: &[(&str, &[&str])] =
            &[("a1", &["m"]), ("a2", &["m"]), ("b1", &["n"]), ("m", &["b1"]), ("n", &["a1", "a2"])];
        check_contradicting(two, &[("a1", "m"), ("a2", "m"), ("b1", "n")], "b1→n");
    }

    #[test]
    fn long_chain_needs_no_stack() {
        const LENGTH: usize = 200_000;
        let mut edges: Vec<_> = (1..LENGTH).map(|n| (n - 1, n)).collect();
        let chain = numbered(&edges, LENGTH);
        // Threads of a runner have 2 MiB, and these have less.
        let check = || {
            assert_eq!(chain.order().unwrap().len(), LENGTH);
            let (first, second) = (ResourceId::from("00000"), ResourceId::from("00001"));
            assert_eq!(chain.contradicting(&[(first.clone(), second)].into()), []);
            assert!(reaches(&chain, &first, &ResourceId(format!("{}", LENGTH - 1))));
            edges.push((LENGTH - 1, 0));
            let cycles = numbered(&edges, LENGTH).order().unwrap_err();
            assert_eq!(cycles.iter().map(|cycle| cycle.path.len()).collect::<Vec<_>>(), [LENGTH]);
        };
        std::thread::scope(|scope| {
            let small = std::thread::Builder::new().stack_size(512 << 10);
            small.spawn_scoped(scope, check).expect("there is room for it").join().expect("it has stack enough");
        });
    }

    #[test]
    fn ten_thousand_resources_are_ordered_quickly() {
        let edges: Vec<_> = (1..10_000)
            .flat_map(|n| [1, 2, 3, 7, 100, 5_000].map(|back| (n, n - n.min(back))))
            .filter(|(a, b)| a != b)
            .collect();
        let graph = numbered(&edges, 10_000);
        let start = Instant::now();
        let reduced = graph.reduced().unwrap();
        assert_eq!(reduced.order().unwrap().len(), 10_000);
        assert_eq!(reduced.graph.edge_count(), 9_999, "a chain is left");
        // Unoptimised and on a busy machine; optimised it takes a hundredth.
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    }

    proptest! {
        #[test]
        fn removal_of_contradictions_leaves_no_cycle(
            fixed in prop::collection::vec((0..12_usize, 0..12_usize), 0..20),
            removable in prop::collection::vec((0..12_usize, 0..12_usize), 0..30),
        ) {
            let fixed: Vec<_> = fixed.into_iter().filter(|(from, to)| from > to).collect();
            let removable: Vec<_> = removable.into_iter().filter(|edge| !fixed.contains(edge)).collect();
            let edges = [fixed, removable.clone()].concat();
            let number = |id: &ResourceId| id.0.parse::<usize>().unwrap();
            let id = |n: usize| ResourceId(format!("{n:05}"));
            let may_go: BTreeSet<_> = removable.iter().map(|(from, to)| (id(*from), id(*to))).collect();
            let gone: Vec<_> = numbered(&edges, 12).contradicting(&may_go);
            let gone: Vec<_> = gone.iter().map(|(from, to)| (number(from), number(to))).collect();
            prop_assert!(gone.iter().all(|edge| removable.contains(edge)));
            let kept: Vec<_> = edges.into_iter().filter(|edge| !gone.contains(edge)).collect();
            let left = numbered(&kept, 12);
            prop_assert!(left.order().is_ok());
            for (from, to) in gone {
                prop_assert!(from == to || reaches(&left, &id(to), &id(from)), "{} {}", from, to);
            }
        }

        #[test]
        fn reduction_keeps_reachability_with_fewest_edges(
            edges in prop::collection::vec((0..24_usize, 0..24_usize), 0..120),
        ) {
            let edges: Vec<_> = edges.into_iter().filter(|(from, to)| from > to).collect();
            let graph = numbered(&edges, 24);
            let reduced = graph.reduced().unwrap();
            let ids = graph.order().unwrap();
            for from in &ids {
                for to in &ids {
                    prop_assert_eq!(reaches(&graph, from, to), reaches(&reduced, from, to));
                }
                for to in reduced.before(from) {
                    let others = reduced.before(from);
                    prop_assert!(!others.iter().any(|other| *other != to && reaches(&reduced, other, &to)));
                }
            }
        }

        #[test]
        fn order_respects_edges_or_cycle_exists(
            edges in prop::collection::vec((0..12_usize, 0..12_usize), 0..30),
        ) {
            let graph = numbered(&edges, 12);
            match graph.order() {
                Ok(order) => for (from, to) in edges {
                    let at = |n: usize| order.iter().position(|id| *id == ResourceId(format!("{n:05}"))).unwrap();
                    prop_assert!(at(to) < at(from));
                },
                Err(cycles) => for cycle in cycles {
                    let mut next = cycle.path.iter().cycle().skip(1);
                    for id in &cycle.path {
                        let next = next.next().unwrap();
                        prop_assert!(graph.before(id).contains(next));
                    }
                },
            }
        }
    }
    #[test]
    fn reduction_works_across_blocks() {
        let count = BLOCK + 100;
        let edges: Vec<_> = (1..count).flat_map(|n| [(n, n - 1), (n, 0), (n, n / 2)]).filter(|(a, b)| a != b).collect();
        assert_eq!(numbered(&edges, count).reduced().unwrap().graph.edge_count(), count - 1);
    }
}
