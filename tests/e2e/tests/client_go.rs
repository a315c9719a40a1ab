//! client-go's informers, pager, retries and discovery, against both forms of the server, and a manager on
//! controller-runtime. What they check is in `tests/client-go` and `tests/controller-runtime`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use stoa_e2e::{Cluster, Server, Standalone, run};

/// Runs the tests of a Go module: the program that the environment names, built before by hack/test; by hand, go
/// builds it.
fn check(server: &dyn Server, module: &str, program: &str) {
    let mut command = match env::var_os(program).map(PathBuf::from) {
        Some(program) => Command::new(program),
        None => {
            let mut go = Command::new("go");
            go.args(["test", "-count=1", "."]);
            go
        }
    };
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(module);
    let kubeconfig = server.kubectl().kubeconfig;
    run(command.current_dir(module).env("STOA_TEST_KUBECONFIG", kubeconfig));
}

#[test]
fn client_go_works_with_stoa_on_its_own() {
    check(&Standalone::start(), "client-go", "STOA_TEST_CLIENT_GO");
}

#[test]
fn client_go_works_with_stoa_behind_kube_apiserver() {
    check(&Cluster::shared(), "client-go", "STOA_TEST_CLIENT_GO");
}

#[test]
fn manager_on_controller_runtime_works_with_stoa() {
    check(&Cluster::shared(), "controller-runtime", "STOA_TEST_CONTROLLER_RUNTIME");
}
