//! client-go's informers, pager, retries and discovery, against both forms of the server. What they check is in
//! `tests/client-go`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use stoa_e2e::{Cluster, Server, Standalone, run};

fn check(server: &dyn Server) {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../client-go");
    // Built before by hack/test; by hand, go builds it.
    let mut command = match env::var_os("STOA_TEST_CLIENT_GO").map(PathBuf::from) {
        Some(program) => Command::new(program),
        None => {
            let mut go = Command::new("go");
            go.args(["test", "-count=1", "."]);
            go
        }
    };
    let kubeconfig = server.kubectl().kubeconfig;
    run(command.current_dir(module).env("STOA_TEST_KUBECONFIG", kubeconfig));
}

#[test]
fn client_go_works_with_stoa_on_its_own() {
    check(&Standalone::start());
}

#[test]
fn client_go_works_with_stoa_behind_kube_apiserver() {
    check(&Cluster::shared());
}
