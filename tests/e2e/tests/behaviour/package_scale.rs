//! A repository of a thousand packages, synchronized in bounded memory.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::json;
use stoa_e2e::{Standalone, run};

use crate::package_lifecycle::{Packages, init, wait_for};
use crate::package_repositories::patch;

const PACKAGES: usize = 1000;
/// The most bytes that a package with one revision may take in the server, with its share of caches and indexes.
const BYTES_OF_PACKAGE: u64 = 256 << 10;

/// Pushes packages with one published revision each: a commit and a tag.
fn import(remote: &Path) {
    let mut stream = String::new();
    for number in 0..PACKAGES {
        let path = format!("package-{number:04}");
        let kptfile = format!("apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: {path}\n");
        let parent = if number == 0 { "from refs/heads/main^0\n" } else { "" };
        let commit = "commit refs/heads/main\ncommitter Test <test@localhost> 1700000000 +0000\ndata 7\nApprove";
        let file = format!("M 100644 inline {path}/Kptfile\ndata {}\n{kptfile}", kptfile.len());
        write!(stream, "{commit}\n{parent}{file}\nreset refs/tags/{path}/v1\nfrom refs/heads/main\n\n").unwrap();
    }
    let mut import = Command::new("git");
    let import = import.arg("-C").arg(remote).args(["fast-import", "--quiet"]).stdin(Stdio::piped());
    let mut import = import.spawn().unwrap();
    import.stdin.take().unwrap().write_all(stream.as_bytes()).unwrap();
    assert!(import.wait().unwrap().success(), "git fast-import failed");
}

#[test]
fn thousand_packages_are_synchronized_in_bounded_memory() {
    let server = Arc::new(Standalone::start());
    let packages = Packages::unregistered(server.clone());
    packages.register();
    let memory = server.memory();
    import(&packages.remote);
    let now = run(Command::new("date").args(["--utc", "+%Y-%m-%dT%H:%M:%SZ"]));
    patch(&packages, "blueprints", &json!({"sync": {"runOnceAt": now.trim()}}));
    let count = |resource: &str| {
        let list = packages.kubectl.get(&[resource, "--namespace", &packages.namespace]);
        list["items"].as_array().unwrap().len()
    };
    // Each has a tag, and a folder on the branch.
    wait_for("all revisions are listed", || count("packagerevisions.porch.kpt.dev") >= 2 * PACKAGES);
    wait_for("all packages are listed", || count("packages.porch.kpt.dev") >= PACKAGES);
    let grown = server.memory().saturating_sub(memory);
    let most = BYTES_OF_PACKAGE * PACKAGES as u64;
    assert!(grown < most, "{PACKAGES} packages take {grown} bytes of memory");
    // The thousand packages do not delay a publication.
    let revision = packages.create("new", "v1", &init());
    packages.set_lifecycle(&revision, "Proposed");
    packages.decide(&revision, "Published");
    assert_eq!(packages.revision(&revision)["spec"]["revision"], 1);
}
