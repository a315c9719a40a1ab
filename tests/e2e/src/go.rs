//! Runs the tests of Go modules against a server.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::run;
use crate::server::Server;

/// What tells a stoa-apiserver to let go of changes within seconds, so that a test sees it happen.
pub const SHORT_HISTORY: [&str; 2] = ["--history-records=100", "--history-seconds=1"];

/// Runs the tests of `tests/<module>`: the program that the environment names, built before by hack/test; by hand, go builds
/// it.
///
/// # Panics
///
/// When one fails, with what the program said.
pub fn go_tests(server: &dyn Server, module: &str) {
    run_tests(server, module, None);
}

/// Runs those tests of client-go that need a server with a [`SHORT_HISTORY`].
///
/// # Panics
///
/// When one fails.
pub fn go_tests_of_short_history(server: &dyn Server) {
    run_tests(server, "client-go", Some("IsGone$"));
}

fn run_tests(server: &dyn Server, module: &str, only: Option<&str>) {
    let program = format!("STOA_TEST_{}", module.to_uppercase().replace('-', "_"));
    let mut command = match env::var_os(program).map(PathBuf::from) {
        Some(program) => {
            let mut command = Command::new(program);
            command.args(only.map(|only| format!("-test.run={only}")));
            command
        }
        None => {
            let mut go = Command::new("go");
            go.args(["test", "-count=1"]).args(only.map(|only| format!("-run={only}"))).arg(".");
            go
        }
    };
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(module));
    command.envs(only.map(|_| ("STOA_TEST_SHORT_HISTORY", "1")));
    run(command.env("STOA_TEST_KUBECONFIG", server.kubectl().kubeconfig));
}
