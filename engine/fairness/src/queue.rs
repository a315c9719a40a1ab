//! Queues of tenants that are served in turn.

use std::collections::VecDeque;
use std::sync::Arc;

/// Items that wait, one queue for each tenant.
///
/// Tenants have their turns one after the other, however many items each has. So have the lanes of a tenant, such as its runs.
/// The items of one lane keep their order.
#[derive(Debug)]
pub struct FairQueue<T> {
    /// In the order of their turns; none is empty.
    tenants: VecDeque<(Arc<str>, Lanes<T>)>,
}

/// In the order of their turns; none is empty.
type Lanes<T> = VecDeque<(Arc<str>, VecDeque<T>)>;

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { tenants: VecDeque::new() }
    }
}

impl<T> FairQueue<T> {
    /// Puts an item at the end of a lane of its tenant.
    pub fn push(&mut self, tenant: &Arc<str>, lane: &Arc<str>, item: T) {
        let lanes = entry(&mut self.tenants, tenant);
        entry(lanes, lane).push_back(item);
    }

    /// Takes the item whose turn it is, and its tenant.
    pub fn pop(&mut self) -> Option<(Arc<str>, T)> {
        self.pop_at(0)
    }

    /// Takes the next item of one tenant, by its position in the order of turns. Its turn comes again after all others.
    pub(crate) fn pop_at(&mut self, position: usize) -> Option<(Arc<str>, T)> {
        let (tenant, mut lanes) = self.tenants.remove(position)?;
        let (lane, mut items) = lanes.pop_front()?;
        let item = items.pop_front()?;
        if !items.is_empty() {
            lanes.push_back((lane, items));
        }
        if !lanes.is_empty() {
            self.tenants.push_back((Arc::clone(&tenant), lanes));
        }
        Some((tenant, item))
    }

    /// The tenants in the order of their turns, each with its next item.
    pub(crate) fn heads(&self) -> impl Iterator<Item = (&Arc<str>, &T)> {
        self.tenants.iter().filter_map(|(tenant, lanes)| Some((tenant, lanes.front()?.1.front()?)))
    }

    /// How many items of a tenant wait.
    pub fn len_of(&self, tenant: &str) -> usize {
        let lanes = self.tenants.iter().find(|(name, _)| **name == *tenant);
        lanes.map_or(0, |(_, lanes)| lanes.iter().map(|(_, items)| items.len()).sum())
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// Drops the items that are not wanted.
    pub fn retain(&mut self, is_wanted: impl Fn(&T) -> bool) {
        self.tenants.retain_mut(|(_, lanes)| {
            lanes.retain_mut(|(_, items)| {
                items.retain(&is_wanted);
                !items.is_empty()
            });
            !lanes.is_empty()
        });
    }

    /// Drops the items of one lane that are not wanted.
    pub(crate) fn retain_in(&mut self, tenant: &str, lane: &str, is_wanted: impl Fn(&T) -> bool) {
        let Some(at) = self.tenants.iter().position(|(name, _)| **name == *tenant) else { return };
        let lanes = &mut self.tenants[at].1;
        let Some(at_lane) = lanes.iter().position(|(name, _)| **name == *lane) else { return };
        lanes[at_lane].1.retain(is_wanted);
        if lanes[at_lane].1.is_empty() {
            lanes.remove(at_lane);
        }
        if lanes.is_empty() {
            self.tenants.remove(at);
        }
    }

    /// All items, in no particular order.
    pub fn into_items(self) -> impl Iterator<Item = T> {
        self.tenants.into_iter().flat_map(|(_, lanes)| lanes).flat_map(|(_, items)| items)
    }
}

/// The entry of this name, at the end of the order where it is new.
fn entry<'q, V: Default>(queue: &'q mut VecDeque<(Arc<str>, V)>, name: &Arc<str>) -> &'q mut V {
    let at = queue.iter().position(|(other, _)| other == name).unwrap_or_else(|| {
        queue.push_back((Arc::clone(name), V::default()));
        queue.len() - 1
    });
    &mut queue[at].1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(items: &[(&str, &str, u8)]) -> FairQueue<u8> {
        let mut queue = FairQueue::default();
        for (tenant, lane, item) in items {
            queue.push(&(*tenant).into(), &(*lane).into(), *item);
        }
        queue
    }

    fn pop_all(mut queue: FairQueue<u8>) -> Vec<u8> {
        std::iter::from_fn(|| queue.pop()).map(|(_, item)| item).collect()
    }

    #[test]
    fn tenants_take_turns_and_so_do_their_lanes() {
        let of_tenants = queue(&[("many", "", 1), ("many", "", 2), ("many", "", 3), ("few", "", 4), ("few", "", 5)]);
        assert_eq!(pop_all(of_tenants), [1, 4, 2, 5, 3]);
        let of_lanes = queue(&[("a", "x", 1), ("a", "x", 2), ("a", "y", 3), ("b", "x", 4), ("a", "z", 5)]);
        assert_eq!(pop_all(of_lanes), [1, 4, 3, 5, 2]);
    }

    #[test]
    fn unwanted_items_leave_no_turn_behind() {
        let mut queue = queue(&[("a", "x", 1), ("a", "y", 2), ("b", "x", 3), ("c", "x", 4)]);
        queue.retain(|item| *item != 3);
        queue.retain_in("a", "x", |_| false);
        queue.retain_in("c", "x", |_| false);
        queue.retain_in("c", "x", |_| false);
        assert_eq!((queue.len_of("a"), queue.len_of("b"), queue.is_empty()), (1, 0, false));
        assert_eq!(queue.heads().map(|(tenant, _)| &**tenant).collect::<Vec<_>>(), ["a"]);
        assert_eq!(pop_all(queue), [2]);
    }
}
