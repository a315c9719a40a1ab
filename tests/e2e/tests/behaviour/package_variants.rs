//! PackageVariants and their sets: downstream packages that follow an upstream.

use serde_json::{Value, json};
use stoa_e2e::fixture::condition;

use crate::PATIENCE;
use crate::package_lifecycle::{Packages, init, reference, wait_for};

const SETTINGS: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  size: small\n  color: red\n";

/// Publishes a package with settings; the name of its first revision.
pub(crate) fn blueprint(packages: &Packages, package: &str) -> String {
    let first = packages.create(package, "v1", &init());
    packages.write(&first, "settings.yaml", SETTINGS);
    packages.publish(&first);
    first
}

/// Publishes the next revision of a package, with other settings; its name.
pub(crate) fn next(packages: &Packages, before: &str, workspace: &str, settings: &str) -> String {
    let package = packages.revision(before)["spec"]["packageName"].as_str().unwrap().to_owned();
    let edit = json!({"type": "edit", "edit": {"sourceRef": reference(before)}});
    let name = packages.create(&package, workspace, &edit);
    packages.write(&name, "settings.yaml", settings);
    packages.publish(&name);
    name
}

fn apply(packages: &Packages, kind: &str, name: &str, spec: &Value) {
    let version = if kind == "PackageVariantSet" { "v1alpha2" } else { "v1alpha1" };
    let object = json!({
        "apiVersion": format!("config.porch.kpt.dev/{version}"), "kind": kind,
        "metadata": {"name": name, "namespace": packages.namespace}, "spec": spec,
    });
    packages.kubectl.apply(&object.to_string());
}

/// The first target of a variant, once it fits.
fn target(packages: &Packages, variant: &str, fits: impl Fn(&str) -> bool) -> String {
    let object = format!("packagevariants.config.porch.kpt.dev/{variant}");
    packages.kubectl.watch(&packages.namespace, &object, PATIENCE, |variant| {
        let name = variant["status"]["downstreamTargets"][0]["name"].as_str()?;
        (condition(variant, "Ready")["status"] == "True" && fits(name)).then(|| name.to_owned())
    })
}

#[test]
fn variant_follows_its_upstream() {
    let packages = Packages::new();
    let first = blueprint(&packages, "blueprint");
    let spec = |revision: i64| {
        json!({
            "upstream": {"repo": "blueprints", "package": "blueprint", "revision": revision},
            "downstream": {"repo": "blueprints", "package": "shop"},
            "labels": {"team": "web"},
            "packageContext": {"data": {"region": "eu"}},
            "pipeline": {"mutators": [{"name": "ns", "image": "gcr.io/kpt-fn/set-namespace:v0.4.1", "configMap": {"namespace": "shop"}}]},
        })
    };
    apply(&packages, "PackageVariant", "web", &spec(1));
    let draft = target(&packages, "web", |_| true);
    assert_eq!(draft, "blueprints.shop.packagevariant-1");
    let files = packages.files(&draft);
    assert!(files["settings.yaml"].as_str().unwrap().contains("namespace: shop"), "{files:#}");
    assert!(files["package-context.yaml"].as_str().unwrap().contains("region: eu"), "{files:#}");
    assert!(files["Kptfile"].as_str().unwrap().contains("PackageVariant.web.ns.0"), "{files:#}");
    assert_eq!(packages.revision(&draft)["metadata"]["labels"]["team"], "web");
    // A change of the team in the draft stays.
    let own = files["settings.yaml"].as_str().unwrap().replace("small", "large");
    packages.write(&draft, "settings.yaml", &own);
    packages.publish(&draft);

    let second = next(&packages, &first, "v2", &SETTINGS.replace("red", "blue"));
    apply(&packages, "PackageVariant", "web", &spec(2));
    let upgraded = target(&packages, "web", |name| name.ends_with("packagevariant-2"));
    let settings = || packages.files(&upgraded)["settings.yaml"].as_str().unwrap().to_owned();
    assert!(settings().contains("size: large") && settings().contains("color: blue"), "{}", settings());
    // Another revision changes the draft that is there.
    let uid = packages.revision(&upgraded)["metadata"]["uid"].clone();
    next(&packages, &second, "v3", &SETTINGS.replace("red", "green"));
    apply(&packages, "PackageVariant", "web", &spec(3));
    wait_for("the draft has the third revision", || settings().contains("color: green"));
    assert!(settings().contains("size: large"), "{}", settings());
    assert_eq!(packages.revision(&upgraded)["metadata"]["uid"], uid);
    assert_eq!(packages.revision(&upgraded)["status"]["upstreamLock"]["git"]["ref"], "blueprint/v3");

    let namespace = packages.namespace.as_str();
    wait_for("the draft is in Git", || {
        packages.git(&["show", "drafts/shop/packagevariant-2:shop/settings.yaml"]).contains("color: green")
    });
    packages.kubectl.run(&["delete", "packagevariants.config.porch.kpt.dev", "web", "--namespace", namespace]);
    wait_for("the draft is deleted", || !packages.names().contains(&upgraded));
    assert_eq!(packages.revision(&draft)["spec"]["lifecycle"], "DeletionProposed");
}

#[test]
fn variant_without_upstream_is_stalled() {
    let packages = Packages::new();
    let spec = json!({
        "upstream": {"repo": "blueprints", "package": "gone", "revision": 1},
        "downstream": {"repo": "blueprints", "package": "shop"},
    });
    apply(&packages, "PackageVariant", "web", &spec);
    let object = "packagevariants.config.porch.kpt.dev/web";
    let stalled = packages.kubectl.watch(&packages.namespace, object, PATIENCE, |variant| {
        let stalled = condition(variant, "Stalled");
        (stalled["status"] == "True").then_some(stalled)
    });
    assert!(stalled["message"].as_str().unwrap().contains("could not find upstream package"), "{stalled:#}");
    // It appears later.
    blueprint(&packages, "gone");
    target(&packages, "web", |_| true);
}

#[test]
fn set_keeps_one_variant_for_each_target() {
    let packages = Packages::new();
    blueprint(&packages, "blueprint");
    let spec = |names: &[&str], tier: &str| {
        json!({
            "upstream": {"repo": "blueprints", "package": "blueprint", "revision": 1},
            "targets": [{
                "repositories": [{"name": "blueprints", "packageNames": names}],
                "template": {
                    "labels": {"tier": tier},
                    "downstream": {"packageExpr": "'shops/' + target.package"},
                    "annotationExprs": [{"key": "of", "valueExpr": "upstream.name + ' in ' + repository.name"}],
                },
            }],
        })
    };
    apply(&packages, "PackageVariantSet", "shops", &spec(&["eu", "us"], "gold"));
    let revision = |package: &str| format!("blueprints.shops.{package}.packagevariant-1");
    wait_for("both packages have drafts", || {
        let names = packages.names();
        ["eu", "us"].iter().all(|package| names.contains(&revision(package)))
    });
    let variants = || {
        let list = packages.kubectl.get(&["packagevariants.config.porch.kpt.dev", "--namespace", &packages.namespace]);
        list["items"].as_array().unwrap().clone()
    };
    assert_eq!(variants().len(), 2);
    assert_eq!(
        packages.revision(&revision("eu"))["metadata"]["annotations"]["of"],
        "blueprints.blueprint.v1 in blueprints"
    );
    let uids = || variants().iter().map(|variant| variant["metadata"]["uid"].clone()).collect::<Vec<_>>();
    let before = uids();
    // What changed only is changed.
    apply(&packages, "PackageVariantSet", "shops", &spec(&["eu", "us"], "silver"));
    wait_for("the label changes", || packages.revision(&revision("us"))["metadata"]["labels"]["tier"] == "silver");
    assert_eq!(uids(), before);
    apply(&packages, "PackageVariantSet", "shops", &spec(&["eu"], "silver"));
    wait_for("the other variant is deleted with its draft", || {
        variants().len() == 1 && !packages.names().contains(&revision("us"))
    });
    let set =
        packages.kubectl.get(&["packagevariantsets.config.porch.kpt.dev", "shops", "--namespace", &packages.namespace]);
    assert_eq!(condition(&set, "Ready")["reason"], "Reconciled", "{set:#}");
}
