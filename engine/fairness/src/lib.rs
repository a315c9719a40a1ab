//! Shares limited resources among tenants: slots, requests, memory.
//!
//! Start at [`FairSemaphore`]. A tenant is a name, such as that of an organization or a namespace. One rule holds for every
//! resource ([`MaxShare::ThreeQuarters`]): a tenant that holds permits takes more only while it leaves as many permits free as it
//! holds, up to a quarter of all. So one tenant alone gets three quarters, the next half of the rest, and so on, and a tenant that holds
//! nothing gets any permit that is free. Permits that return go to the tenant that holds least, so that tenants that always want
//! more come to hold the same.
//!
//! [`FairQueue`] is the order of turns alone, for callers that hand out something other than permits.
//!
//! This crate knows neither the resources nor how long anyone holds a permit.

mod queue;
mod semaphore;
mod share;

pub use queue::FairQueue;
pub use semaphore::{Acquire, FairSemaphore, Permit, Throttle};
pub use share::MaxShare;
