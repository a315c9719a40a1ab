//! The crates of the workspace, and those that a change concerns.
//!
//! Start at [`Packages::leave_changed`]. A change concerns the crates with changed files, the crates that depend on them, and
//! the crates whose tests depend on any of these. A change of what all crates share concerns all of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::Targets;
use crate::paths;
use crate::prose::git;

/// The files that all crates share.
const SHARED: [&str; 2] = ["Cargo.toml", "Cargo.lock"];
/// The crates whose integration tests share the test bed, where some of them switch APIs off and on.
const ON_THE_TEST_BED: [&str; 2] = ["stoa-e2e", "stoa-runtime-kubernetes"];
/// Those of their programs that change clusters of their own alone, and run beside the test bed.
const OWN_CLUSTERS: [&str; 9] =
    ["boundaries", "crash", "history", "operation", "remote", "replicas", "runners", "suspended", "undecodable"];
/// The crate whose tests need servers of the test bed, or clusters of their own.
const END_TO_END: &str = "stoa-e2e";

/// A crate of the workspace.
#[derive(Debug, Default, PartialEq, Eq)]
struct Package {
    name: String,
    /// Its folder, from the root of the repository.
    folder: String,
    /// The names of packages that it needs to be built.
    dependencies: BTreeSet<String>,
    /// The names of packages that its tests need.
    of_tests: BTreeSet<String>,
    /// The names of its programs of integration tests.
    tests: Vec<String>,
}

/// Crates of the workspace.
#[derive(Debug)]
pub(super) struct Packages {
    all: Vec<Package>,
    /// Whether these are those of a change alone.
    are_changed: bool,
}

impl Packages {
    /// All of them, as cargo lists them.
    pub(super) fn of_workspace() -> Result<Self> {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(paths::repository()).args(["metadata", "--no-deps", "--format-version=1"]);
        let output = cargo.output().context("running cargo")?;
        ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
        let all = packages.iter().map(|package| Package::read(package, &paths::repository()));
        Ok(Self { all: all.collect::<Result<_>>()?, are_changed: false })
    }

    /// Leaves the crates that the change since `base` concerns; without a base, since the branch left main.
    pub(super) fn leave_changed(&mut self, base: &str) -> Result<()> {
        let root = paths::repository();
        let base = match base {
            "" => ["origin/main", "main"].into_iter().find(|it| git(&root, &["rev-parse", "--verify", it]).is_ok()),
            base => Some(base),
        };
        let base = base.context("there is neither origin/main nor main: name a base")?;
        let base = git(&root, &["merge-base", base, "HEAD"])?;
        let changed = git(&root, &["diff", "--name-only", base.trim()])?;
        let untracked = git(&root, &["ls-files", "--others", "--exclude-standard"])?;
        let concerned = concerned(&self.all, &changed.lines().chain(untracked.lines()).collect::<Vec<_>>());
        self.all.retain(|package| concerned.contains(&package.name));
        self.are_changed = true;
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Their names, with spaces in between.
    pub(super) fn names(&self) -> String {
        self.all.iter().map(|package| &*package.name).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn report(&self) {
        eprintln!("crates that changed, and those that depend on them: {}", self.names());
    }

    /// Their programs of integration tests. Of a change's, those with clusters of their own count as on the test bed.
    pub(super) fn targets(&self) -> Result<Targets> {
        let mut targets = Targets::default();
        for package in &self.all {
            let is_on_bed = ON_THE_TEST_BED.contains(&&*package.name);
            for name in &package.tests {
                let into = match is_on_bed {
                    false => &mut targets.others,
                    true if !self.are_changed && OWN_CLUSTERS.contains(&&**name) => &mut targets.own_clusters,
                    true => &mut targets.on_bed,
                };
                into.push(name.clone());
            }
        }
        let Targets { on_bed, own_clusters, others } = &targets;
        if let Some(twice) = on_bed.iter().chain(own_clusters).find(|name| others.contains(name)) {
            bail!("a test on the test bed has the name of another: {twice:?}");
        }
        Ok(targets)
    }
}

impl Package {
    fn read(package: &Value, root: &Path) -> Result<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned).context("cargo metadata names no package");
        let manifest = text(&package["manifest_path"])?;
        let folder = Path::new(&manifest).parent().and_then(|folder| folder.strip_prefix(root).ok());
        let folder = folder.and_then(Path::to_str).with_context(|| format!("{manifest} is not in the repository"))?;
        let mut read = Self { name: text(&package["name"])?, folder: folder.to_owned(), ..Self::default() };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let is_of_tests = dependency["kind"] == "dev";
            let into = if is_of_tests { &mut read.of_tests } else { &mut read.dependencies };
            into.insert(text(&dependency["name"])?);
        }
        for target in package["targets"].as_array().into_iter().flatten().filter(|target| target["kind"][0] == "test") {
            read.tests.push(text(&target["name"])?);
        }
        Ok(read)
    }
}

/// The names of the packages that a change of these files concerns.
fn concerned(packages: &[Package], files: &[&str]) -> BTreeSet<String> {
    let all = || packages.iter().map(|package| package.name.clone()).collect();
    if files.iter().any(|file| SHARED.contains(file)) {
        return all();
    }
    let owner = |file: &&str| {
        let holds = |package: &&Package| Path::new(file).starts_with(&package.folder);
        packages.iter().filter(holds).max_by_key(|package| package.folder.len()).map(|package| package.name.clone())
    };
    let mut found: BTreeSet<String> = files.iter().filter_map(owner).collect();
    loop {
        let depends = |package: &&Package| !package.dependencies.is_disjoint(&found) && !found.contains(&package.name);
        let more: Vec<String> = packages.iter().filter(depends).map(|package| package.name.clone()).collect();
        if more.is_empty() {
            break;
        }
        found.extend(more);
    }
    // The programs that end-to-end tests start are no dependencies.
    let tested =
        packages.iter().filter(|it| it.name == END_TO_END && !found.is_empty() || !it.of_tests.is_disjoint(&found));
    let tested: Vec<String> = tested.map(|package| package.name.clone()).collect();
    found.extend(tested);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[&str], of_tests: &[&str]) -> Package {
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let (dependencies, of_tests) = (set(dependencies), set(of_tests));
        Package { name: name.to_owned(), folder: format!("crates/{name}"), dependencies, of_tests, tests: Vec::new() }
    }

    #[test]
    fn change_concerns_dependents_and_those_that_test_with_them() {
        let packages = [
            package("core", &["serde"], &[]),
            package("apply", &["core"], &[]),
            package("server", &["apply"], &[]),
            package("other", &[], &["apply"]),
            package("far", &["other"], &[]),
            package("stoa-e2e", &[], &[]),
        ];
        let check = |files: &[&str], expected: &str| {
            assert_eq!(concerned(&packages, files).into_iter().collect::<Vec<_>>().join(" "), expected, "{files:?}");
        };
        check(&["README.md", "crates/README.md"], "");
        check(&["crates/server/src/main.rs"], "server stoa-e2e");
        check(&["crates/apply/src/lib.rs"], "apply other server stoa-e2e");
        check(&["crates/core/Cargo.toml", "docs/a.md"], "apply core other server stoa-e2e");
        check(&["Cargo.lock"], "apply core far other server stoa-e2e");
        check(&["crates/apply-more/src/lib.rs"], "");
    }

    #[test]
    fn package_is_read_with_its_tests_and_dependencies() {
        let metadata = serde_json::json!({"name": "stoa-x", "manifest_path": "/r/engine/x/Cargo.toml",
            "dependencies": [{"name": "a", "kind": null}, {"name": "b", "kind": "dev"}, {"name": "c", "kind": "build"}],
            "targets": [{"kind": ["lib"], "name": "stoa_x"}, {"kind": ["test"], "name": "walk"}]});
        let read = Package::read(&metadata, Path::new("/r")).unwrap();
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
        assert_eq!((&*read.name, &*read.folder), ("stoa-x", "engine/x"));
        assert_eq!((read.dependencies, read.of_tests), (set(&["a", "c"]), set(&["b"])));
        assert_eq!(read.tests, ["walk"]);
    }

    #[test]
    fn change_assigns_all_cluster_tests_to_bed() {
        let mut package = package("stoa-e2e", &[], &[]);
        package.tests = vec!["behaviour".to_owned(), "history".to_owned()];
        let mut packages = Packages { all: vec![package], are_changed: false };
        let targets = packages.targets().unwrap();
        assert_eq!((targets.on_bed, targets.own_clusters), (vec!["behaviour".to_owned()], vec!["history".to_owned()]));
        packages.are_changed = true;
        assert_eq!(packages.targets().unwrap().own_clusters, Vec::<String>::new());
    }
}
