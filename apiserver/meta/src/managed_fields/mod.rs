//! Server-side apply and `metadata.managedFields`: the field managers of an object, and the fields that each owns.
//!
//! Start at [`FieldManager`]. It tracks what every write sets, and merges applied configurations. The behaviour is
//! that of `k8s.io/apimachinery/pkg/util/managedfields` over `sigs.k8s.io/structured-merge-diff/v6`, for a typed server.
//!
//! Elsewhere: `schema` is what is known of a kind, `set` and `path` are what is owned, `typed` walks objects,
//! `updater` decides, `entries` is how it is written, `conflict` what a client hears.

mod conflict;
mod entries;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod last_applied;
mod manager;
#[cfg(test)]
mod oracle_tests;
mod path;
mod scale;
mod schema;
mod set;
mod typed;
mod updater;
mod value;

pub(crate) use self::value::{Plain, type_name};
pub use self::{
    entries::same_but_for_times,
    manager::{ApplyOptions, FieldManager, FieldManagers, check},
    scale::Replicas,
};
