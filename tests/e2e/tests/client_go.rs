//! client-go's informers, pager, retries and discovery, against both forms of the server, and a manager on
//! controller-runtime. What they check is in `tests/client-go` and `tests/controller-runtime`.

use stoa_e2e::{Cluster, SHORT_HISTORY, Standalone, go_tests, go_tests_of_short_history};

#[test]
fn client_go_works_with_stoa_on_its_own() {
    go_tests(&Standalone::start(), "client-go");
}

#[test]
fn client_go_works_with_stoa_behind_kube_apiserver() {
    go_tests(&Cluster::shared(), "client-go");
}

/// A server that keeps a few changes for a second.
#[test]
fn client_go_misses_no_compacted_history() {
    let server = Standalone::start_with(&SHORT_HISTORY.map(str::to_owned));
    go_tests_of_short_history(&server);
}

#[test]
fn manager_on_controller_runtime_works_with_stoa() {
    go_tests(&Cluster::shared(), "controller-runtime");
}
