//! A client of Terraform's provider plugin protocol, versions 5 and 6.
//!
//! Start at [`pool::Pool`], which has warm providers, then at [`change::plan`] and [`change::apply`]. The page
//! `docs/design/terraform-providers.md` says how the parts work together.
//!
//! * [`package`] finds, verifies and installs providers; [`process`] starts them; [`pool`] shares them.
//! * [`protocol`] has the calls, [`schema`] the types of their values, [`value`] and [`msgpack`] the values themselves.
//! * [`proposed`] and [`checks`] are the parts of planning that the protocol leaves to clients; [`change`] connects them.
#![forbid(unsafe_code)]

pub mod change;
pub mod checks;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod generated;
pub mod msgpack;
pub mod package;
pub mod pool;
pub mod process;
pub mod proposed;
pub mod protocol;
pub mod schema;
#[cfg(feature = "testing")]
pub mod testing;
pub mod value;
