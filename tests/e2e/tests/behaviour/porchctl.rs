//! Porch's own command line plays the life of a package: porchctl 1.5.3, built from its Go module.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use stoa_e2e::{Cluster, Standalone, eventually, fixture::condition, run, skipped};

use crate::{
    PATIENCE,
    package_lifecycle::{NAMESPACE, Packages, wait_for},
};

/// porchctl in the namespace of some packages.
struct Porchctl<'p> {
    program: PathBuf,
    packages: &'p Packages,
}

impl<'p> Porchctl<'p> {
    /// The program, if tests are to run with it.
    fn new(packages: &'p Packages) -> Option<Self> {
        let program = std::env::var_os("STOA_TEST_PORCHCTL").map(PathBuf::from);
        if program.is_none() {
            skipped("porchctl, since STOA_TEST_PORCHCTL names no program");
        }
        Some(Self { program: program?, packages })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.env("KUBECONFIG", &self.packages.kubectl.kubeconfig).args(args);
        command.args(["--namespace", &self.packages.namespace]);
        command
    }

    /// Runs it; returns its output.
    fn run(&self, args: &[&str]) -> String {
        run(&mut self.command(args))
    }

    /// Runs it and expects it to fail; returns its errors.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert!(!output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }

    fn publish(&self, name: &str) {
        assert!(self.run(&["rpkg", "propose", name]).contains("proposed"));
        assert!(self.run(&["rpkg", "approve", name]).contains("approved"));
        let found = self.packages.revision(name);
        assert_eq!(found["spec"]["lifecycle"], "Published", "{found:#}");
    }

    /// Changes a file of a draft: pull, write, push.
    fn change(&self, name: &str, file: &str, text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("package");
        self.pull(name, &package);
        fs::write(package.join(file), text).unwrap();
        self.run(&["rpkg", "push", name, package.to_str().unwrap()])
    }

    fn pull(&self, name: &str, folder: &Path) {
        self.run(&["rpkg", "pull", name, folder.to_str().unwrap()]);
    }
}

const SETTINGS: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  size: small\n  color: red\n";

fn play(packages: &Packages) {
    let Some(porchctl) = Porchctl::new(packages) else { return };
    let url = format!("file://{}", packages.remote.display());
    porchctl.run(&["repo", "reg", &url, "--name=blueprints", "--create-branch", "--description=Blueprints"]);
    packages.kubectl.watch(&packages.namespace, "repositories.config.porch.kpt.dev/blueprints", PATIENCE, |found| {
        (condition(found, "Ready")["status"] == "True").then_some(())
    });
    let listed = porchctl.run(&["repo", "get", "blueprints"]);
    assert!(listed.contains("blueprints") && listed.contains("True") && listed.contains(&url), "{listed}");

    // A package from scratch.
    let init = ["rpkg", "init", "basens", "--repository=blueprints", "--workspace=v1", "--description=A namespace"];
    assert!(porchctl.run(&init).contains("blueprints.basens.v1 created"));
    let again = porchctl.refused(&init);
    assert!(again.contains("already exists"), "{again}");
    let name = "blueprints.basens.v1";
    let listed = porchctl.run(&["rpkg", "get", "--name=basens"]);
    assert!(listed.contains(name) && listed.contains("Draft"), "{listed}");
    pushes_are_rendered(&porchctl, name);

    // Proposed, rejected, proposed and published.
    porchctl.run(&["rpkg", "propose", name]);
    let rejected = porchctl.run(&["rpkg", "reject", name]);
    assert!(rejected.contains("no longer proposed for approval"), "{rejected}");
    assert_eq!(packages.revision(name)["spec"]["lifecycle"], "Draft");
    porchctl.publish(name);
    let one = porchctl.run(&["rpkg", "get", name, "--output=json"]);
    assert!(one.contains("\"publishedBy\""), "{one}");

    // A downstream, the next revision of its upstream, and the upgrade.
    let clone = ["rpkg", "clone", name, "shop", "--repository=blueprints", "--workspace=v1"];
    assert!(porchctl.run(&clone).contains("blueprints.shop.v1 created"));
    let large = SETTINGS.replace("small", "large");
    porchctl.change("blueprints.shop.v1", "settings.yaml", &large);
    porchctl.publish("blueprints.shop.v1");
    let copy = ["rpkg", "copy", name, "--workspace=v2"];
    assert!(porchctl.run(&copy).contains("blueprints.basens.v2 created"));
    porchctl.change("blueprints.basens.v2", "settings.yaml", &SETTINGS.replace("red", "blue"));
    porchctl.publish("blueprints.basens.v2");
    assert_eq!(packages.revision("blueprints.basens.v2")["spec"]["revision"], 2);
    let discovered = porchctl.run(&["rpkg", "upgrade", "--discover=upstream"]);
    assert!(discovered.contains("blueprints.shop.v1"), "{discovered}");
    let upgrade = ["rpkg", "upgrade", "blueprints.shop.v1", "--revision=2", "--workspace=v2"];
    assert!(porchctl.run(&upgrade).contains("upgraded to blueprints.shop.v2"));
    let merged = packages.files("blueprints.shop.v2")["settings.yaml"].as_str().unwrap().to_owned();
    assert!(merged.contains("size: large") && merged.contains("color: blue"), "{merged}");

    deletions_are_proposed(&porchctl);
    porchctl.run(&["repo", "unreg", "blueprints"]);
    wait_for("the revisions are removed", || packages.names().is_empty());
}

/// Pulls a draft, and pushes files whose functions run. A stale push is a conflict.
fn pushes_are_rendered(porchctl: &Porchctl<'_>, name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (first, stale) = (folder.path().join("first"), folder.path().join("stale"));
    porchctl.pull(name, &first);
    porchctl.pull(name, &stale);
    let kptfile = fs::read_to_string(first.join("Kptfile")).unwrap();
    let pipeline = "pipeline:\n  mutators:\n  - image: gcr.io/kpt-fn/set-namespace:v0.4.1\n    configMap:\n      \
                    namespace: shop\n";
    fs::write(first.join("Kptfile"), format!("{kptfile}{pipeline}")).unwrap();
    fs::write(first.join("settings.yaml"), SETTINGS).unwrap();
    let pushed = porchctl.run(&["rpkg", "push", name, first.to_str().unwrap()]);
    assert!(pushed.contains(&format!("{name} pushed")), "{pushed}");
    assert!(porchctl.packages.files(name)["settings.yaml"].as_str().unwrap().contains("namespace: shop"));
    fs::write(stale.join("namespace.yaml"), NAMESPACE).unwrap();
    let refused = porchctl.refused(&["rpkg", "push", name, stale.to_str().unwrap()]);
    assert!(refused.contains("modified"), "{refused}");
    assert!(porchctl.packages.files(name)["namespace.yaml"].is_null());
    let printed = porchctl.run(&["rpkg", "pull", name]);
    assert!(printed.contains("kind: ResourceList") && printed.contains("name: settings"), "{printed}");
}

/// Proposes the deletion of a revision, withdraws it, proposes it again and deletes.
fn deletions_are_proposed(porchctl: &Porchctl<'_>) {
    let name = "blueprints.basens.v2";
    // A draft that has it as upstream is in the way.
    porchctl.run(&["rpkg", "del", "blueprints.shop.v2"]);
    let refused = porchctl.refused(&["rpkg", "del", name]);
    assert!(refused.contains("DeletionProposed"), "{refused}");
    let proposed = porchctl.run(&["rpkg", "propose-delete", name]);
    assert!(proposed.contains("proposed for deletion"), "{proposed}");
    let rejected = porchctl.run(&["rpkg", "reject", name]);
    assert!(rejected.contains("no longer proposed for deletion"), "{rejected}");
    porchctl.run(&["rpkg", "propose-delete", name]);
    porchctl.run(&["rpkg", "del", name]);
    eventually("the revision is deleted", PATIENCE, || {
        (!porchctl.packages.names().contains(&name.to_owned())).then_some(())
    });
}

#[test]
fn porchctl_plays_the_life_of_a_package() {
    play(&Packages::unregistered(Standalone::shared()));
}

#[test]
fn porchctl_plays_the_life_of_a_package_behind_an_aggregator() {
    play(&Packages::unregistered(Arc::new(Cluster::shared())));
}
