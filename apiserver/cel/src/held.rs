//! How many values there may be at once in what an expression makes.
//!
//! Steps do not bound that: to join lists costs a tenth of a step for each value in them, since `map` does it for each
//! item. Nor would a largest list, of which there may be many.

use std::{cell::Cell, ops::Deref};

use super::eval::Error;

/// How many values may be in lists, maps and objects; they take some 32 MiB.
const MOST_VALUES: usize = 1 << 20;

thread_local! {
    /// How many there are. An evaluation stays on its thread, and its values end with it.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// Values in something that an expression made, which count as long as it is there.
#[derive(Debug)]
pub(super) struct Retained<T> {
    values: T,
    count: usize,
}

impl<T> Retained<T> {
    pub(super) fn new(count: usize, values: T) -> Self {
        HELD.set(HELD.get() + count);
        Self { values, count }
    }
}

impl<T> Deref for Retained<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.values
    }
}

impl<T> Drop for Retained<T> {
    fn drop(&mut self) {
        HELD.set(HELD.get() - self.count);
    }
}

/// Refuses so many values besides those that there are.
pub(super) fn room(more: usize) -> Result<(), Error> {
    let all = HELD.get().saturating_add(more);
    if all > MOST_VALUES { Err(Error::new("there are too many values in lists and maps")) } else { Ok(()) }
}
