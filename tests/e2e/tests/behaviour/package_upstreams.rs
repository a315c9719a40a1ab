//! Upstreams of packages: they are found, and drafts move to others.

use std::process::Command;

use serde_json::{Value, json};
use stoa_e2e::run;

use crate::package_lifecycle::{Packages, init, reference, wait_for};
use crate::package_repositories::register;
use crate::package_variants::{blueprint, next};

const SETTINGS: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  size: small\n  color: red\n";

/// The names of the newest revisions that a field selector selects.
fn newest(packages: &Packages, fields: &str) -> Vec<String> {
    let fields = format!("--field-selector={fields}");
    let args = ["packagerevisions.porch.kpt.dev", "--selector=kpt.dev/latest-revision=true", &fields];
    let list = packages.kubectl.get(&[&args[..], &["--namespace", &packages.namespace]].concat());
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Creates a revision of the package `shop` in the repository `deployments`; its name.
fn create_deployment(packages: &Packages, workspace: &str, task: &Value) -> String {
    let revision = json!({
        "apiVersion": "porch.kpt.dev/v1alpha1", "kind": "PackageRevision",
        "metadata": {"namespace": packages.namespace},
        "spec": {"packageName": "shop", "repository": "deployments", "workspaceName": workspace, "tasks": [task]},
    });
    let path = format!("/apis/porch.kpt.dev/v1alpha1/namespaces/{}/packagerevisions", packages.namespace);
    let created = packages.send("create", &path, &revision).unwrap();
    created["metadata"]["name"].as_str().unwrap().to_owned()
}

fn clone(upstream: &str) -> Value {
    json!({"type": "clone", "clone": {"upstreamRef": {"upstreamRef": reference(upstream)}}})
}

fn upgrade([old, new, local]: [&str; 3]) -> Value {
    json!({"type": "upgrade", "upgrade": {
        "oldUpstreamRef": reference(old), "newUpstreamRef": reference(new),
        "localPackageRevisionRef": reference(local), "strategy": "resource-merge",
    }})
}

/// The values of a table by the heads of its columns, of the row that begins with a name.
fn row(table: &str, name: &str, columns: &[&str]) -> Vec<String> {
    let head = table.lines().next().unwrap();
    let row = table.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap();
    let value = |column: &&str| {
        let at = head.find(column).unwrap();
        row[at..].split_whitespace().next().unwrap_or_default().to_owned()
    };
    columns.iter().map(value).collect()
}

#[test]
fn upstreams_and_deployable_packages_are_selected() {
    const UPSTREAMS: &str = "status.deployment!=true";
    const DEPLOYABLE: &str = "status.deployment=true";
    const OUTDATED: &str = "status.deployment=true,status.upstream.outdated=true";
    let packages = Packages::new();
    let folder = tempfile::tempdir().unwrap();
    let remote = folder.path().join("deployments.git");
    run(Command::new("git").args(["init", "--quiet", "--bare", "--initial-branch=main"]).arg(&remote));
    let git = json!({"repo": format!("file://{}", remote.display()), "branch": "main", "createBranch": true});
    register(&packages, "deployments", &json!({"git": git, "deployment": true}));

    let first = blueprint(&packages, "basens");
    packages.create("unfinished", "v1", &init());
    let shop = create_deployment(&packages, "v1", &clone(&first));
    assert_eq!(newest(&packages, DEPLOYABLE), [""; 0], "a draft is not deployed");
    packages.publish(&shop);
    assert_eq!(newest(&packages, UPSTREAMS), [first.as_str()]);
    assert_eq!(newest(&packages, DEPLOYABLE), [shop.as_str()]);
    wait_for("the upstream is shown", || !packages.revision(&shop)["status"]["upstream"].is_null());
    assert_eq!(newest(&packages, OUTDATED), [""; 0]);

    let second = next(&packages, &first, "v2", &SETTINGS.replace("red", "blue"));
    wait_for("the newer upstream is found", || newest(&packages, OUTDATED) == [shop.as_str()]);
    assert_eq!(newest(&packages, UPSTREAMS), [second.as_str()]);
    let wide = ["get", "packagerevisions.porch.kpt.dev", "--output=wide", "--namespace", &packages.namespace];
    let table = packages.kubectl.run(&wide);
    assert_eq!(
        row(&table, &shop, &["LATEST", "UPSTREAM", "NEWEST", "DEPLOYABLE"]),
        ["true", "blueprints/basens@v1", "2", "true"],
        "{table}"
    );

    let upgraded = create_deployment(&packages, "v2", &upgrade([&first, &second, &shop]));
    packages.publish(&upgraded);
    wait_for("the new version is found", || newest(&packages, DEPLOYABLE) == [upgraded.as_str()]);
    wait_for("no package has a newer upstream", || newest(&packages, OUTDATED).is_empty());
}

#[test]
fn draft_is_rebased_onto_another_upstream_or_a_newer_revision() {
    let packages = Packages::new();
    let small = blueprint(&packages, "small");
    let other = packages.create("other", "v1", &init());
    packages.write(&other, "settings.yaml", &SETTINGS.replace("color: red", "color: blue\n  zone: a"));
    packages.publish(&other);
    let settings = |name: &str| packages.files(name)["settings.yaml"].as_str().unwrap().to_owned();
    let upstream = |name: &str| packages.revision(name)["status"]["upstreamLock"]["git"]["directory"].clone();

    let draft = packages.create("shop", "draft", &clone(&small));
    packages.write(&draft, "settings.yaml", &settings(&draft).replace("small", "large"));
    let rebased = packages.create("shop", "rebased", &upgrade([&small, &other, &draft]));
    let merged = settings(&rebased);
    for line in ["size: large", "color: blue", "zone: a"] {
        assert!(merged.contains(line), "{line}: {merged}");
    }
    assert_eq!((upstream(&draft), upstream(&rebased)), ("/small".into(), "/other".into()));

    // Of two drafts of one revision, the second continues from the publication of the first.
    packages.publish(&rebased);
    let edit = json!({"type": "edit", "edit": {"sourceRef": reference(&rebased)}});
    let [one, two] = ["one", "two"].map(|workspace| packages.create("shop", workspace, &edit));
    packages.write(&one, "settings.yaml", &merged.replace("zone: a", "zone: b"));
    packages.write(&two, "settings.yaml", &merged.replace("color: blue", "color: green"));
    packages.publish(&one);
    let continued = packages.create("shop", "three", &upgrade([&rebased, &one, &two]));
    let merged = settings(&continued);
    for line in ["size: large", "color: green", "zone: b"] {
        assert!(merged.contains(line), "{line}: {merged}");
    }
    assert_eq!(upstream(&continued), "/other", "no package is its own upstream");
    assert_eq!(packages.publish(&continued)["spec"]["revision"], 3);
}
