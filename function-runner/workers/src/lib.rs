//! A pool of processes that do untrusted work, one job at a time each.
//!
//! Start at [`Pool`], which the program uses that wants work done, and at [`worker::serve`], which its worker processes
//! run. A job and its answer are bytes; their meaning is up to both ends, which are the same binary. `queue` decides whose turn
//! it is, `process` is one worker as the pool sees it, `sandbox` restricts a worker before it reads its first job.
//!
//! Work that reaches servers gets a process of its own ([`SubprocessStarter`]), which has one folder to write to. It ends when its
//! caller has no more jobs for it, or at its [`KillDeadline`].
//!
//! Another program, such as a provider of Terraform or the renderer, runs in a process that becomes it ([`program::run`]).
//!
//! **Invariant:** a job that takes too much, never ends or brings its worker down fails alone; the next job finds another
//! worker.
//!
//! **Invariant:** a worker of a pool opens no file but those of its tree, reaches nobody but its pool and starts no thread. No worker and
//! no program starts another process, or outlives the process that started it.

mod frame;
mod kill_deadline;
mod metrics;
mod pool;
mod process;
pub mod program;
mod queue;
pub mod sandbox;
mod subprocess;
pub mod worker;

pub use kill_deadline::KillDeadline;
pub use metrics::PoolMetrics;
pub use pool::{Pending, Pool, PoolConfig, Running};
pub use process::{Failed, Fault, Limits, More, StartError, Tell, resident};
pub use subprocess::{Subprocess, SubprocessConfig, SubprocessStarter};
