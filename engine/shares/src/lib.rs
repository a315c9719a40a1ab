//! How tenants share what there is so much of: places, turns, room in memory.
//!
//! Start at [`Shares`], which counts what is taken and is the rule; which part of it one tenant alone may have is told by
//! [`Most`]. [`Room`] adds a line of those that wait, for whoever needs no line of their own.
//!
//! A tenant is a name, such as that of an organization or namespace. Nothing here knows what is shared, or for how long it is
//! held: whoever makes a [`Shares`] does, and chooses.

mod room;
mod shares;

pub use room::{Room, Taken, Waiting};
pub use shares::{Most, Shares};
