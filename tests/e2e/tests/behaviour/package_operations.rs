//! Changes of many packages: an upgrade of all downstreams, a rollback, and a new guardrail.

use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use stoa_e2e::fixture::condition;
use stoa_e2e::{Kubectl, Server, Standalone, eventually, unique};

use crate::PATIENCE;
use crate::package_lifecycle::{Packages, init, wait_for};
use crate::package_variants::{blueprint, next};

const SETTINGS: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  size: small\n  color: red\n";

/// Creates an operation; its name.
fn start(packages: &Packages, spec: &Value) -> String {
    let name = unique("op");
    let object = json!({
        "apiVersion": "delivery.stoa.dev/v1alpha1", "kind": "PackageOperation",
        "metadata": {"name": name, "namespace": packages.namespace}, "spec": spec,
    });
    packages.kubectl.apply(&object.to_string());
    name
}

fn in_phase(packages: &Packages, name: &str, phases: &[&str]) -> Value {
    packages.kubectl.watch(&packages.namespace, &format!("packageoperation/{name}"), PATIENCE, |operation| {
        let phase = operation["status"]["phase"].as_str().unwrap_or_default();
        phases.contains(&phase).then(|| operation.clone())
    })
}

fn ended(packages: &Packages, name: &str) -> Value {
    in_phase(packages, name, &["Succeeded", "Failed", "Canceled"])
}

fn approve(packages: &Packages, operation: &Value) {
    let (name, digest) = (operation["metadata"]["name"].as_str().unwrap(), &operation["status"]["planDigest"]);
    let approval = json!({"status": {"approval": {"decision": "Approved", "planDigest": digest, "message": "go"}}});
    let patch = format!("--patch={approval}");
    let args = ["patch", "packageoperation", name, "--subresource=approval", "--type=merge", &patch];
    packages.kubectl.run(&[&args[..], &["--namespace", &packages.namespace]].concat());
}

/// The log of an operation.
fn log(packages: &Packages, name: &str, query: &str) -> String {
    let operations = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{}/packageoperations", packages.namespace);
    packages.kubectl.raw(&format!("{operations}/{name}/log{query}"))
}

/// The entry of a package.
fn entry<'o>(operation: &'o Value, package: &str) -> &'o Value {
    let packages = operation["status"]["packages"].as_array().unwrap();
    packages.iter().find(|entry| entry["package"] == package).unwrap()
}

/// Proposes and publishes revisions, several in one call of kubectl.
fn publish_all(packages: &Packages, names: &[String]) {
    let mut file = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    let item = |name: &String| {
        json!({"apiVersion": "porch.kpt.dev/v1alpha1", "kind": "PackageRevision",
            "metadata": {"name": name, "namespace": packages.namespace}})
    };
    let list = json!({"apiVersion": "v1", "kind": "List", "items": names.iter().map(item).collect::<Vec<_>>()});
    file.write_all(list.to_string().as_bytes()).unwrap();
    let patch = |lifecycle: &str, subresource: &[&str]| {
        let patch = format!("--patch={}", json!({"spec": {"lifecycle": lifecycle}}));
        let file = format!("--filename={}", file.path().display());
        let args = ["patch", "--type=merge", &patch, &file];
        packages.kubectl.try_to_run(&[&args[..], subresource].concat())
    };
    let are = |lifecycle: &str| {
        let selector = format!("--field-selector=spec.lifecycle={lifecycle}");
        let args = ["packagerevisions.porch.kpt.dev", "--namespace", &packages.namespace, &selector];
        let list = packages.kubectl.get(&args);
        let found: Vec<String> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        names.iter().all(|name| found.contains(name))
    };
    eventually("all are proposed", PATIENCE, || {
        patch("Proposed", &[]);
        are("Proposed").then_some(())
    });
    // A push of a draft in between is a conflict, after which the next try publishes the rest.
    eventually("all are published", PATIENCE, || {
        patch("Published", &["--subresource=approval"]);
        are("Published").then_some(())
    });
}

/// Publishes so many packages `shop-00` and so on of a blueprint; the first revision of the blueprint.
fn publish_downstreams(packages: &Packages, count: usize) -> String {
    let first = blueprint(packages, "blueprint");
    let names: Vec<String> = (0..count).map(|number| format!("shop-{number:02}")).collect();
    let set = json!({
        "apiVersion": "config.porch.kpt.dev/v1alpha2", "kind": "PackageVariantSet",
        "metadata": {"name": "shops", "namespace": packages.namespace},
        "spec": {
            "upstream": {"repo": "blueprints", "package": "blueprint", "revision": 1},
            "targets": [{"repositories": [{"name": "blueprints", "packageNames": names}]}],
        },
    });
    packages.kubectl.apply(&set.to_string());
    let drafts: Vec<String> = names.iter().map(|package| format!("blueprints.{package}.packagevariant-1")).collect();
    wait_for("all downstreams have drafts", || {
        let found = packages.names();
        drafts.iter().all(|draft| found.contains(draft))
    });
    publish_all(packages, &drafts);
    first
}

#[test]
fn upgrade_reaches_fifty_downstreams() {
    const COUNT: usize = 50;
    let packages = Packages::new();
    let first = publish_downstreams(&packages, COUNT);
    next(&packages, &first, "v2", &SETTINGS.replace("red", "blue"));
    let outdated = || {
        let selector = "--field-selector=status.upstream.outdated=true,status.upstream.package=blueprint";
        let args = ["packagerevisions.porch.kpt.dev", "--namespace", &packages.namespace, selector];
        let list = packages.kubectl.get(&args);
        list["items"].as_array().unwrap().iter().filter(|item| item["spec"]["revision"] == 1).count()
    };
    wait_for("all downstreams have a newer upstream", || outdated() == COUNT);

    let upgrade = start(
        &packages,
        &json!({
            "operation": "Upgrade", "lifecycle": "Published",
            "selector": {"upstream": {"repo": "blueprints", "package": "blueprint"}},
        }),
    );
    let planned = in_phase(&packages, &upgrade, &["AwaitingApproval", "Failed"]);
    assert_eq!(planned["status"]["progress"]["total"], COUNT, "{planned:#}");
    let change = entry(&planned, "shop-07")["change"].as_str().unwrap();
    assert_eq!(change, "changes its Kptfile, 1 object", "{planned:#}");
    let path = format!(
        "/apis/delivery.stoa.dev/v1alpha1/namespaces/{}/packageoperations/{upgrade}/plan?format=text&package=blueprints/shop-07",
        packages.namespace
    );
    let plan = packages.kubectl.raw(&path);
    assert!(plan.contains("~ data.color: \"red\" -> \"blue\""), "{plan}");
    assert!(!packages.names().iter().any(|name| name.ends_with(&upgrade)), "nothing begins before the approval");
    approve(&packages, &planned);
    let done = ended(&packages, &upgrade);
    assert_eq!(done["status"]["phase"], "Succeeded", "{:#}", done["status"]["conditions"]);
    assert_eq!(done["status"]["progress"]["succeeded"], COUNT);
    let revision = packages.revision(&format!("blueprints.shop-07.{upgrade}"));
    assert_eq!(
        (&revision["spec"]["lifecycle"], &revision["spec"]["revision"]),
        (&"Published".into(), &2.into()),
        "{revision:#}"
    );
    assert!(packages.git(&["show", "main:shop-07/settings.yaml"]).contains("color: blue"));
    let tags =
        packages.refs().iter().filter(|name| name.starts_with("refs/tags/shop-") && name.ends_with("/v2")).count();
    assert_eq!(tags, COUNT);
    wait_for("no downstream has a newer upstream", || outdated() == 0);

    // A second upgrade has nothing to do.
    let again = start(&packages, &json!({"operation": "Upgrade", "selector": {"packages": ["shop-07"]}}));
    let again = ended(&packages, &again);
    assert_eq!(entry(&again, "shop-07")["phase"], "Skipped", "{again:#}");
}

/// A server that a test ends and starts again.
struct Crashing(Mutex<Standalone>);

impl Crashing {
    fn crash(&self) {
        let mut server = self.0.lock().unwrap();
        server.kill();
        server.restart();
    }
}

impl Server for Crashing {
    fn kubectl(&self) -> Kubectl {
        self.0.lock().unwrap().kubectl()
    }

    fn target(&self, repository: &Path) -> String {
        self.0.lock().unwrap().target(repository)
    }
}

#[test]
fn operation_continues_after_a_crash() {
    const COUNT: usize = 6;
    let server = Arc::new(Crashing(Mutex::new(Standalone::start())));
    let packages = Packages::unregistered(server.clone());
    packages.register();
    let first = publish_downstreams(&packages, COUNT);
    next(&packages, &first, "v2", &SETTINGS.replace("red", "blue"));
    let upgrade = start(
        &packages,
        &json!({
            "operation": "Upgrade", "lifecycle": "Published", "requireApproval": false, "maxParallel": 1,
            "selector": {"upstream": {"repo": "blueprints", "package": "blueprint"}},
        }),
    );
    packages.kubectl.watch(&packages.namespace, &format!("packageoperation/{upgrade}"), PATIENCE, |operation| {
        (operation["status"]["progress"]["succeeded"].as_i64()? > 0).then_some(())
    });
    server.crash();
    let done = ended(&packages, &upgrade);
    assert_eq!(done["status"]["phase"], "Succeeded", "{:#}", done["status"]);
    assert_eq!(done["status"]["progress"]["succeeded"], COUNT);
    for number in 0..COUNT {
        let tags = packages.git(&["tag", "--list", &format!("shop-{number:02}/*")]);
        assert_eq!(tags.lines().count(), 2, "nothing is published twice: {tags}");
    }
    let before = log(&packages, &upgrade, "");
    let count = |outcome: &str| {
        before.lines().filter(|line| line.contains(" Running Upgrade ") && line.contains(outcome)).count()
    };
    assert_eq!((count(" began"), count(" Succeeded: ")), (COUNT, COUNT), "{before}");
    server.crash();
    assert_eq!(log(&packages, &upgrade, ""), before, "a restart loses no line");
}

#[test]
fn rollback_restores_earlier_revisions() {
    let packages = Packages::new();
    for package in ["web", "api"] {
        let first = blueprint(&packages, package);
        next(&packages, &first, "v2", &SETTINGS.replace("red", "broken"));
    }
    let rollback = start(
        &packages,
        &json!({
            "operation": "Rollback", "lifecycle": "Published", "requireApproval": false, "workspaceName": "back",
            "selector": {"repositories": ["blueprints"]},
        }),
    );
    let followed = log(&packages, &rollback, "?follow=true");
    let done = ended(&packages, &rollback);
    assert_eq!(done["status"]["phase"], "Succeeded", "{done:#}");
    let whole = log(&packages, &rollback, "");
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&followed), sorted(&whole), "the follower has read all lines");
    assert!(whole.lines().last().unwrap().contains(" Succeeded: 2 of 2 packages succeeded"), "{whole}");
    for package in ["web", "api"] {
        assert_eq!(entry(&done, package)["to"], format!("blueprints.{package}.v1"));
        let line =
            format!(" Running Rollback blueprints/{package} Succeeded: blueprints.{package}.back is Published\n");
        assert!(whole.contains(&line), "{whole}");
        let restored = packages.revision(&format!("blueprints.{package}.back"));
        assert_eq!(restored["spec"]["revision"], 3, "{restored:#}");
        assert!(packages.git(&["show", &format!("{package}/v3:{package}/settings.yaml")]).contains("color: red"));
    }
    let path = format!(
        "/apis/porch.kpt.dev/v1alpha1/namespaces/{}/packagerevisions/blueprints.web.back/diff?format=text",
        packages.namespace
    );
    let diff = packages.kubectl.raw(&path);
    assert!(diff.starts_with("blueprints.web.v2 -> blueprints.web.back\n"), "{diff}");
    assert!(diff.contains("\"broken\" -> \"red\""), "{diff}");
    let equal = packages.kubectl.raw(&format!("{path}&with=blueprints.web.v1"));
    assert_eq!(equal.lines().count(), 1, "{equal}");
}

#[test]
fn guardrail_names_the_packages_that_violate_it() {
    let packages = Packages::new();
    blueprint(&packages, "good");
    let bad = packages.create("bad", "v1", &init());
    packages.write(&bad, "settings.yaml", &SETTINGS.replace("color: red", "color: plain # kpt-set: ${size}-${color}"));
    packages.publish(&bad);
    // The function fails where a setter has no value, and the field tells none.
    let validator =
        json!({"name": "setters", "image": "gcr.io/kpt-fn/apply-setters:v0.2.0", "configMap": {"size": "small"}});
    let guardrail = |more: Value| {
        let mut spec = json!({
            "operation": "AddFunction", "lifecycle": "Published", "requireApproval": false,
            "addFunction": {"validator": validator},
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ended(&packages, &start(&packages, &spec))
    };
    let done = guardrail(json!({"workspaceName": "guard", "maxFailures": 1}));
    assert_eq!(done["status"]["phase"], "Succeeded", "one failure is tolerated: {done:#}");
    let (good, bad) = (entry(&done, "good"), entry(&done, "bad"));
    assert_eq!((&good["phase"], &good["lifecycle"]), (&"Succeeded".into(), &"Published".into()), "{done:#}");
    assert_eq!((&bad["phase"], &bad["lifecycle"]), (&"Failed".into(), &"Draft".into()), "{done:#}");
    assert!(bad["change"].as_str().unwrap().contains("its functions fail"), "the plan says so: {done:#}");
    assert!(bad["message"].as_str().unwrap().contains("values for setters [${color}] must be provided"), "{done:#}");
    assert!(packages.git(&["show", "main:good/Kptfile"]).contains("apply-setters"));
    // The draft is there to be mended, and further packages are not touched after too many failures.
    assert_eq!(condition(&packages.revision("blueprints.bad.guard"), "Rendered")["status"], "False");
    let strict = guardrail(json!({"workspaceName": "again"}));
    assert_eq!(strict["status"]["phase"], "Failed", "{strict:#}");
    assert_eq!(entry(&strict, "good")["phase"], "Skipped", "it has the function");

    let validate = start(&packages, &json!({"operation": "Validate", "maxFailures": 5}));
    let valid = ended(&packages, &validate);
    assert_eq!(entry(&valid, "good")["phase"], "Succeeded", "{valid:#}");
}
