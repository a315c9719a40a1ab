//! The annotation that orders plain manifests, as kpt and cli-utils read it.
//!
//! Its value is a list with commas in between. A namespaced object is `group/namespaces/namespace/kind/name`, a cluster-scoped
//! object is `group/kind/name`, and the core group is empty: `/namespaces/shop/ConfigMap/settings`.
//!
//! Source: sigs.k8s.io/cli-utils/pkg/object/dependson, pkg/object/graph.

use std::collections::HashMap;

use serde_json::Value;
use stoa_engine::{Resource, ResourceId, Spec, object::split_api_version, problem::reason::CYCLIC_DEPENDENCY};
use stoa_proto::Problem;

use super::manifests::Manifest;
use crate::failure::reason;

/// The annotation.
const DEPENDS_ON: &str = "config.kubernetes.io/depends-on";

/// The field of its problems.
const FIELD: &str = "metadata.annotations[\"config.kubernetes.io/depends-on\"]";

/// An object that an annotation names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Target<'a> {
    group: &'a str,
    namespace: Option<&'a str>,
    kind: &'a str,
    name: &'a str,
}

impl<'a> Target<'a> {
    /// Parses one entry of the list.
    fn parse(text: &'a str) -> Option<Self> {
        let fields: Vec<&str> = text.split('/').collect();
        let (group, namespace, kind, name) = match fields.as_slice() {
            [group, kind, name] => (*group, None, *kind, *name),
            [group, "namespaces", namespace, kind, name] => (*group, Some(*namespace), *kind, *name),
            _ => return None,
        };
        let is_complete = ![kind, name].contains(&"") && namespace != Some("");
        is_complete.then_some(Self { group, namespace, kind, name })
    }

    fn of(manifest: &'a Manifest) -> Self {
        let Manifest { api_version, kind, namespace, name, .. } = manifest;
        Self { group: split_api_version(api_version).0, namespace: namespace.as_deref(), kind, name }
    }
}

/// The ids that each manifest depends on by its annotation, in the order of the manifests, and problems of annotations.
pub(super) fn read(manifests: &[Manifest]) -> (Vec<Vec<ResourceId>>, Vec<Problem>) {
    let known: HashMap<Target<'_>, ResourceId> = manifests.iter().map(|it| (Target::of(it), it.id())).collect();
    let mut problems = Vec::new();
    let all = manifests.iter().map(|manifest| match list(manifest) {
        Ok(list) => before(manifest, list, &known, &mut problems),
        Err(problem) => {
            problems.push(*problem);
            Vec::new()
        }
    });
    (all.collect(), problems)
}

fn wrong(manifest: &Manifest, message: impl Into<String>) -> Problem {
    Problem { field: FIELD.to_owned(), ..manifest.wrong(reason::INVALID_MANIFEST, message) }
}

/// The value of the annotation; empty where there is none.
fn list(manifest: &Manifest) -> Result<&str, Box<Problem>> {
    let annotations = manifest.object.get("metadata").and_then(|metadata| metadata.get("annotations"));
    match annotations.and_then(|annotations| annotations.get(DEPENDS_ON)) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(list)) => Ok(list),
        Some(_) => Err(Box::new(wrong(manifest, "must be a string; put it in quotes"))),
    }
}

/// The ids of the objects in a list.
fn before(
    manifest: &Manifest,
    list: &str,
    known: &HashMap<Target<'_>, ResourceId>,
    problems: &mut Vec<Problem>,
) -> Vec<ResourceId> {
    let mut before: Vec<ResourceId> = Vec::new();
    for text in list.split(',').map(str::trim).filter(|_| !list.is_empty()) {
        let message = match Target::parse(text).map(|target| known.get(&target)) {
            None => format!(
                "\"{text}\" is not an object reference; write group/kind/name or group/namespaces/namespace/kind/name, with an empty \
                 group for the core kinds"
            ),
            Some(None) => format!("\"{text}\" is not in this source folder; add it there, or remove it from the list"),
            Some(Some(id)) if *id == manifest.id() => format!("\"{text}\" is the object itself"),
            Some(Some(id)) if before.contains(id) => format!("\"{text}\" is a duplicate in the list"),
            Some(Some(id)) => {
                before.push(id.clone());
                continue;
            }
        };
        problems.push(wrong(manifest, message));
    }
    before
}

/// A problem of the engine with a Spec, at the annotation where that makes resources depend on each other.
pub(super) fn located(spec: &Spec, problem: Problem) -> Problem {
    let depends = |resource: &&Resource| resource.id.0 == problem.resource_id && !resource.depends_on.is_empty();
    let is_of_annotation = problem.reason == CYCLIC_DEPENDENCY && spec.resources.iter().any(|it| depends(&it));
    if is_of_annotation { Problem { field: FIELD.to_owned(), ..problem } } else { problem }
}

#[cfg(test)]
mod tests {
    use crate::generate::tests::{folder, generate, refused};

    fn map(name: &str, depends_on: &str) -> String {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: shop\n  annotations:\n    \
             config.kubernetes.io/depends-on: {depends_on}\n"
        )
    }

    const OTHERS: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\napiVersion: apps/v1\nkind: Deployment\n\
        metadata: {name: web, namespace: shop}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: key, namespace: shop}\n";

    #[test]
    fn annotations_name_the_objects_that_come_first() {
        let list = "/Namespace/shop, apps/namespaces/shop/Deployment/web,/namespaces/shop/Secret/key";
        let generated = generate("Manifests", &folder(&[("a.yaml", &map("a", list)), ("b.yaml", OTHERS)])).unwrap();
        let depends_on: Vec<&str> = generated.spec.resources[0].depends_on.iter().map(|id| id.0.as_str()).collect();
        assert_eq!(depends_on, ["v1:Namespace:shop", "apps/v1:Deployment:shop:web", "v1:Secret:shop:key"]);
        assert!(generated.spec.resources[1..].iter().all(|resource| resource.depends_on.is_empty()));
    }

    #[test]
    fn wrong_annotation_is_reported_with_its_line() {
        for (list, says) in [
            ("Deployment/web", "\"Deployment/web\" is not an object reference; write group/kind/name or "),
            ("apps/namespace/shop/Deployment/web", "is not an object reference"),
            ("apps/namespaces//Deployment/web", "is not an object reference"),
            ("/Secret/", "is not an object reference"),
            ("'/Namespace/shop,'", "\"\" is not an object reference"),
            ("/namespaces/shop/Secret/keys", "\"/namespaces/shop/Secret/keys\" is not in this source folder"),
            ("/Deployment/web", "is not in this source folder"),
            ("/namespaces/shop/ConfigMap/a", "is the object itself"),
            ("/Namespace/shop,/Namespace/shop", "is a duplicate in the list"),
            ("1", "must be a string"),
        ] {
            let problem = refused("Manifests", &[("a.yaml", &map("a", list)), ("b.yaml", OTHERS)]);
            assert!(problem.message.contains(says), "{list}: {}", problem.message);
            let field = "metadata.annotations[\"config.kubernetes.io/depends-on\"]";
            assert_eq!((problem.file.as_str(), problem.line, problem.field.as_str()), ("s/a.yaml", 7, field));
            assert_eq!(problem.resource_id, "v1:ConfigMap:shop:a");
        }
    }

    #[test]
    fn cycle_is_reported_at_one_of_its_annotations() {
        let (a, b) = (map("a", "/namespaces/shop/ConfigMap/b"), map("b", "/namespaces/shop/ConfigMap/a"));
        let problem = refused("Manifests", &[("a.yaml", &a), ("b.yaml", &b)]);
        assert_eq!((problem.reason.as_str(), problem.file.as_str(), problem.line), ("CyclicDependency", "s/a.yaml", 7));
        let way = "v1:ConfigMap:shop:a → v1:ConfigMap:shop:b → v1:ConfigMap:shop:a";
        assert_eq!(problem.message, format!("resources depend on each other: {way}"));
    }
}
