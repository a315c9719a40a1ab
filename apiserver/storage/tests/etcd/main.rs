//! The log on etcd, against real etcd: the contract, what etcd alone has, and faults.
//!
//! `STOA_TEST_ETCD` names the program; `hack/test` sets it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod behaviour;
mod faults;
mod full;
mod late;
mod server;

use std::sync::Arc;

use stoa_machinery::log::Log;

use server::Etcd;

/// An etcd of its own for every test, since whoever compacts one does it for all.
async fn fresh() -> (Arc<dyn Log>, Etcd) {
    let etcd = Etcd::start();
    (etcd.open().await, etcd)
}

stoa_machinery::log_conformance_tests!(fresh);
