//! Drives real processes from outside, as people and their programs do.
//!
//! Start at [`Server`]: Stoa on its own, started by the test, or the test bed's cluster with Stoa behind it. `hack/test`
//! describes the test bed in the environment; CONTRIBUTING.md says how to do that by hand. Without it these tests fail.
//!
//! Elsewhere: [`remote`] is a Git server for the control repository, [`transcript`] compares what commands print, [`guide`] plays pages of the guide, [`Caller`] sends what kubectl would not, [`Etcd`] is read and written past Stoa, [`fixture`] makes
//! what stacks are rendered from, [`webhook`] answers admission reviews, [`Door`] is asked in HTTP by hand, [`Child`] is a server that is seen to end, [`endpoint`] is told of events, [`repeat`] says how often faults are tried, [`crashes`] ends processes at boundaries, [`Proxy`] stands between two processes, [`Disk`] and [`Clock`] are a machine's that fails them.
#![expect(clippy::unwrap_used, reason = "a test's harness fails its test")]

mod caller;
mod child;
mod command;
pub mod crashes;
mod direct;
pub mod endpoint;
mod etcd;
pub mod fixture;
mod flunders;
mod follower;
mod go;
pub mod guide;
mod handshake;
pub mod kinds;
mod kubectl;
mod leader;
mod machine;
mod proxy;
mod raw;
pub mod remote;
pub mod repeat;
mod runner;
mod server;
pub mod transcript;
pub mod webhook;

pub use caller::{Answer, Caller};
pub use child::Child;
pub use command::{eventually, eventually_or, git, kubectl_versions, kubectls, kubectls_of_interest, run, unique};
pub use etcd::Etcd;
pub use flunders::Flunders;
pub use follower::{Follower, FollowerReport, Versions};
pub use go::{SHORT_HISTORY, go_tests, go_tests_of_short_history};
pub use handshake::is_let_in;
pub use kubectl::Kubectl;
pub use leader::{leader, new_leader};
pub use machine::{Clock, Disk};
pub use proxy::Proxy;
pub use raw::{Connection, Door, Reply};
pub use runner::{Agent, OcmScheduler, Runner};
pub use server::{Cluster, Server, Standalone, free_port};
pub use stoa_git::testing::skipped;
