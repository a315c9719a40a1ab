//! Graphs as Graphviz and Mermaid take them.
//!
//! Nodes are numbered in their order, so that no name has to be an identifier, and grouped by project, stack and
//! workspace, as far as these are below what the graph is of. An arrow leads from what depends to what it depends on.

use std::{collections::BTreeMap, fmt::Write as _};

use stoa_types::delivery::ResourcePhase;

use super::{Graph, Node, Scope};

/// What groups are of, from the outside.
const LEVELS: [&str; 3] = ["project", "stack", "workspace"];

/// How something is drawn that is not as it should be: a name, and a colour that both languages know.
const FAILED: (&str, &str) = ("failed", "red");
const PROGRESSING: (&str, &str) = ("progressing", "orange");
const UNKNOWN: (&str, &str) = ("unknown", "gray");

/// A piece of a drawing, in the order in which it is written.
enum Part<'a> {
    /// A group begins: its number, what it is of, and what that is called.
    Open(usize, &'static str, &'a str),
    /// A node with its number.
    Node(usize, &'a Node),
    /// The last group that began ends.
    Close,
}

/// The graph in the DOT language.
pub(super) fn dot(graph: &Graph) -> String {
    let title = dot_text(&title(graph));
    let mut out = format!("digraph {title} {{\n  label={title};\n  rankdir=LR;\n  node [shape=box];\n");
    for (indent, part) in indented(graph) {
        let _ = match part {
            Part::Open(number, level, name) => {
                let label = dot_text(&format!("{level} {name}"));
                writeln!(out, "{indent}subgraph cluster_{number} {{\n{indent}  label={label};")
            }
            Part::Node(number, node) => {
                let label = joined(node, dot_escaped, "\\n");
                let colour = look(node).map(|(_, colour)| format!(", color={colour}")).unwrap_or_default();
                let id = dot_text(&node.id);
                writeln!(out, "{indent}n{number} [label=\"{label}\", tooltip={id}{colour}];")
            }
            Part::Close => writeln!(out, "{indent}}}"),
        };
    }
    for (from, to) in arrows(graph) {
        let _ = writeln!(out, "  n{from} -> n{to};");
    }
    out.push_str("}\n");
    out
}

/// The graph as a flowchart of Mermaid.
pub(super) fn mermaid(graph: &Graph) -> String {
    let mut out = format!("flowchart LR\n  accTitle: {}\n", mermaid_escaped(&title(graph)));
    for (name, colour) in [FAILED, PROGRESSING, UNKNOWN] {
        let _ = writeln!(out, "  classDef {name} stroke:{colour}");
    }
    for (indent, part) in indented(graph) {
        let _ = match part {
            Part::Open(number, level, name) => {
                let label = mermaid_escaped(&format!("{level} {name}"));
                writeln!(out, "{indent}subgraph g{number}[\"{label}\"]")
            }
            Part::Node(number, node) => {
                let label = joined(node, mermaid_escaped, "<br/>");
                let class = look(node).map(|(name, _)| format!(":::{name}")).unwrap_or_default();
                writeln!(out, "{indent}n{number}[\"{label}\"]{class}")
            }
            Part::Close => writeln!(out, "{indent}end"),
        };
    }
    for (from, to) in arrows(graph) {
        let _ = writeln!(out, "  n{from} --> n{to}");
    }
    out
}

fn title(graph: &Graph) -> String {
    format!("{:?} {}", graph.scope, graph.name)
}

/// The nodes, and the groups around them.
fn parts(graph: &Graph) -> Vec<Part<'_>> {
    let skipped = match graph.scope {
        Scope::Organization => 0,
        Scope::Project => 1,
        Scope::Stack => 2,
    };
    let mut parts = Vec::new();
    let mut groups = 0;
    let mut within: &[&str] = &[];
    let paths: Vec<[&str; 3]> = graph.nodes.iter().map(|n| [&*n.project, &*n.stack, &*n.workspace]).collect();
    for (number, (node, path)) in graph.nodes.iter().zip(&paths).enumerate() {
        let path = &path[skipped..];
        let shared = within.iter().zip(path).take_while(|(a, b)| a == b).count();
        parts.extend(within[shared..].iter().map(|_| Part::Close));
        for (level, name) in LEVELS[skipped..].iter().zip(path).skip(shared) {
            parts.push(Part::Open(groups, level, name));
            groups += 1;
        }
        parts.push(Part::Node(number, node));
        within = path;
    }
    parts.extend(within.iter().map(|_| Part::Close));
    parts
}

/// The same, each with what its lines begin with.
fn indented(graph: &Graph) -> impl Iterator<Item = (String, Part<'_>)> {
    let mut depth = 1;
    parts(graph).into_iter().map(move |part| {
        if matches!(part, Part::Close) {
            depth -= 1;
        }
        let indent = "  ".repeat(depth);
        if matches!(part, Part::Open(..)) {
            depth += 1;
        }
        (indent, part)
    })
}

/// The edges by the numbers of their nodes.
fn arrows(graph: &Graph) -> impl Iterator<Item = (usize, usize)> {
    let numbers: BTreeMap<&str, usize> =
        graph.nodes.iter().enumerate().map(|(number, node)| (node.name.as_str(), number)).collect();
    graph.edges.iter().map(move |edge| (numbers[edge.from.as_str()], numbers[edge.to.as_str()]))
}

/// What stands in a node: its kind, what it is called, and how it fares if that is not well.
fn lines(node: &Node) -> Vec<String> {
    let mut lines = match (&node.kubernetes, &node.cloud) {
        (Some(object), _) if object.namespace.is_empty() => vec![object.kind.clone(), object.name.clone()],
        (Some(object), _) => vec![object.kind.clone(), format!("{}/{}", object.namespace, object.name)],
        (None, Some(cloud)) => vec![cloud.resource_type.clone(), cloud.id.clone()],
        (None, None) => vec![node.id.clone()],
    };
    if look(node).is_some() {
        let phase = format!("{:?}", node.phase);
        lines.push(if matches!(node.phase, ResourcePhase::Applied | ResourcePhase::Imported) {
            node.health.clone()
        } else {
            phase
        });
    }
    lines
}

fn joined(node: &Node, escape: fn(&str) -> String, separator: &str) -> String {
    lines(node).iter().map(|line| escape(line)).collect::<Vec<_>>().join(separator)
}

/// How a node is drawn, unless it is well.
fn look(node: &Node) -> Option<(&'static str, &'static str)> {
    match (node.phase, node.health.as_str()) {
        (ResourcePhase::Failed, _) | (_, "Failed") => Some(FAILED),
        (ResourcePhase::Unknown, _) => Some(UNKNOWN),
        (_, "InProgress" | "Terminating") => Some(PROGRESSING),
        (ResourcePhase::Applied | ResourcePhase::Imported | ResourcePhase::Destroyed | ResourcePhase::Forgotten, _) => {
            None
        }
    }
}

/// A quoted string of DOT.
fn dot_text(text: &str) -> String {
    format!("\"{}\"", dot_escaped(text))
}

/// What stands between the quotes of DOT. In labels Graphviz reads escape sequences, and entities as in HTML.
fn dot_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

/// What stands between the quotes of Mermaid, which has no escape sequences, but numeric entities. Whatever could mean
/// something is one.
fn mermaid_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' ' | '-' | '_' | '.' | '/' => out.push(c),
            c if c.is_alphanumeric() => out.push(c),
            c if c.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            c => drop(write!(out, "#{};", u32::from(c))),
        }
    }
    out
}
