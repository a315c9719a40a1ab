//! Costs beside a thousand packages: the same as beside a few.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stoa_e2e::{Standalone, run};

use crate::package_lifecycle::{Packages, init, wait_for};
use crate::package_repositories::patch;

const PACKAGES: usize = 1000;
/// The most bytes that a package with one revision may take in the server, with its share of caches and indexes.
const BYTES_OF_PACKAGE: u64 = 256 << 10;
/// The longest save with a function, which a person waits for.
const SAVE: Duration = Duration::from_secs(2);

const PIPELINE: &str =
    "pipeline:\n  mutators:\n  - image: set-namespace:v0.4.1\n    configMap:\n      namespace: shop\n";
const SETTINGS: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n";

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

/// The shortest of some times, which other tests disturb least.
#[derive(Debug)]
struct Costs {
    save: Duration,
    approval: Duration,
    list: Duration,
}

impl Costs {
    /// Publishes packages of a name and a number, and lists the revisions of each.
    fn measure(packages: &Packages, name: &str) -> Self {
        let mut shortest = Self { save: Duration::MAX, approval: Duration::MAX, list: Duration::MAX };
        for number in 0..5 {
            let package = format!("{name}-{number}");
            let revision = packages.create(&package, "v1", &init());
            let kptfile = format!("{}{PIPELINE}", packages.files(&revision)["Kptfile"].as_str().unwrap());
            let files = json!({"spec": {"resources": {"Kptfile": kptfile, "settings.yaml": SETTINGS}}}).to_string();
            let args =
                ["patch", "packagerevisionresources.porch.kpt.dev", &revision, "--namespace", &packages.namespace];
            let save = [&args[..], &["--type=merge", "--patch", &files]].concat();
            shortest.save = shortest.save.min(time(|| packages.kubectl.run(&save)));
            assert!(packages.files(&revision)["settings.yaml"].as_str().unwrap().contains("namespace: shop"));
            packages.set_lifecycle(&revision, "Proposed");
            wait_for("the proposal is in Git", || {
                packages.revision(&revision)["status"]["git"]["lifecycle"] == "Proposed"
            });
            shortest.approval = shortest.approval.min(time(|| packages.decide(&revision, "Published")));
            let list = format!(
                "/apis/porch.kpt.dev/v1alpha1/namespaces/{}/packagerevisions?fieldSelector=spec.packageName={package}",
                packages.namespace
            );
            let mut listed = String::new();
            shortest.list = shortest.list.min(time(|| listed = packages.kubectl.raw(&list)));
            let listed: Value = serde_json::from_str(&listed).unwrap();
            let names: Vec<&Value> =
                listed["items"].as_array().unwrap().iter().map(|item| &item["spec"]["packageName"]).collect();
            assert!(!names.is_empty() && names.iter().all(|name| **name == *package), "{names:?}");
        }
        shortest
    }
}

fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

#[test]
fn costs_do_not_grow_with_the_repository() {
    let server = Arc::new(Standalone::start());
    let packages = Packages::unregistered(server.clone());
    packages.register();
    let few = Costs::measure(&packages, "few");
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
    let many = Costs::measure(&packages, "many");
    // Linear costs would be two hundred times as high.
    let bound = |few: Duration| few * 5 + Duration::from_millis(500);
    assert!(many.save < bound(few.save) && many.save < SAVE, "{few:?} {many:?}");
    assert!(many.approval < bound(few.approval), "{few:?} {many:?}");
    assert!(many.list < bound(few.list), "{few:?} {many:?}");
}
