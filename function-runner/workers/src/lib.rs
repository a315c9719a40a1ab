//! A pool of processes that do work on behalf of others, one job at a time each, and can harm nobody by it.
//!
//! Start at [`Pool`], which the program has that wants work done, and at [`worker::serve`], which its worker processes
//! run. A job and its answer are bytes; what they mean is up to both ends, which are the same binary. `queue` says whose turn
//! it is, `process` is one worker as the pool sees it, `sandbox` what a worker gives up before it reads its first job.
//!
//! What needs servers gets a process of its own ([`Errands`]), which has one folder to write to and is gone when whoever began
//! it wants no more, or at its [`Fence`].
//!
//! **Invariant:** a job that takes too much, never ends or brings its worker down fails alone; the next one finds another
//! worker.
//!
//! **Invariant:** a worker of a pool opens no file, talks to nobody but its pool and starts no thread. None starts a program or
//! outlives the process that started it.

mod errands;
mod fence;
mod frame;
mod metrics;
mod pool;
mod process;
mod queue;
pub mod sandbox;
pub mod worker;

pub use errands::{Errand, ErrandConfig, Errands};
pub use fence::Fence;
pub use metrics::PoolMetrics;
pub use pool::{Pending, Pool, PoolConfig, Running};
pub use process::{Failed, Fault, Limits, More, StartError, Tell};
