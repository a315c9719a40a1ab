//! Tests of whole Runs against fake API servers.

mod multi_cluster;
