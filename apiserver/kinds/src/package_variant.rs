//! PackageVariant: a package that follows another one.
//!
//! As in Porch, an invalid spec is stored, and the condition Stalled names the errors. Elsewhere: the controller
//! `package_variants` writes the revisions of the downstream package.

use std::sync::Arc;

use async_trait::async_trait;
use kube::ResourceExt as _;
use serde_json::Value;
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column, SelectableField},
    object::Object,
    strategy::{Admission, Strategy},
};
use stoa_types::{
    porch::PackageRevision,
    porchconfig::{DownstreamDeletion, InjectionPoint, PackageVariant, PackageVariantSpec},
    reason,
};

use crate::{
    cluster::Cluster,
    kind::{Kind, Surroundings},
    lookup::{Lookup, require},
    package_access::{self, RepositoryVerb},
    package_objects::{kind_of_injector, require_kind},
    ready,
    rights::{DEVELOPED, MEMBERS, OBJECTS, OWNED, READ, READERS, right},
};

/// The finalizer of Porch: the policy for owned revisions is carried out before the object is removed.
pub const FINALIZER: &str = "config.porch.kpt.dev/packagevariants";

/// The label of revisions with the uid of the variant that owns them.
pub const OWNER_LABEL: &str = "config.porch.kpt.dev/packagevariant";

/// The keys of package-context.yaml that the server sets.
const OWN_KEYS: [&str; 2] = ["name", "package-path"];

/// The kind PackageVariant.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, cluster, .. }| {
        builder.register(definition, PackageVariantStrategy { lookup, cluster })
    },
    rights: &[right(READERS, OBJECTS, READ), right(MEMBERS, &["status"], READ), DEVELOPED, OWNED],
    ..Kind::of::<PackageVariant>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<PackageVariant>()
        .columns(&[
            Column::new("Upstream", Cell::Compute(upstream), "The package that is copied."),
            Column::new("Downstream", Cell::Compute(downstream), "The package that is written."),
            Column::new("Target", Cell::Compute(target), "The draft, or the newest revision."),
            ready::status("Whether the downstream package is as the spec wants it."),
            Column::age(),
            Column::new("Adoption", Cell::Path(&["spec", "adoptionPolicy"]), "The policy for other revisions.").wide(),
            Column::new("Deletion", Cell::Path(&["spec", "deletionPolicy"]), "The policy for owned revisions.").wide(),
            ready::reason(),
            ready::message(),
        ])
        .selectable(&[
            SelectableField { name: "spec.upstream.repo", path: &["spec", "upstream", "repo"] },
            SelectableField { name: "spec.upstream.package", path: &["spec", "upstream", "package"] },
            SelectableField { name: "spec.downstream.repo", path: &["spec", "downstream", "repo"] },
            SelectableField { name: "spec.downstream.package", path: &["spec", "downstream", "package"] },
        ])
}

fn text<'o>(object: &'o Object, path: &[&str]) -> &'o str {
    object.get_path(path).and_then(Value::as_str).unwrap_or_default()
}

fn package(object: &Object, side: &str) -> String {
    format!("{}/{}", text(object, &["spec", side, "repo"]), text(object, &["spec", side, "package"]))
}

fn upstream(object: &Object) -> Value {
    let workspace = text(object, &["spec", "upstream", "workspaceName"]);
    let number = object.get_path(&["spec", "upstream", "revision"]).and_then(Value::as_i64).unwrap_or_default();
    let package = package(object, "upstream");
    match (workspace, number) {
        ("", number) if number > 0 => format!("{package}@v{number}").into(),
        ("", _) => package.into(),
        (workspace, _) => format!("{package}@{workspace}").into(),
    }
}

fn downstream(object: &Object) -> Value {
    package(object, "downstream").into()
}

fn target(object: &Object) -> Value {
    let targets = object.get_path(&["status", "downstreamTargets"]).and_then(Value::as_array);
    targets.and_then(|targets| targets.first()?.get("name").cloned()).unwrap_or_default()
}

/// The errors of a spec, as Porch reports them.
pub fn problems(spec: &PackageVariantSpec) -> Vec<String> {
    let mut found = Vec::new();
    let mut required = |field: &str, value: Option<&str>| {
        if value.is_none_or(str::is_empty) {
            found.push(format!("missing required field {field}"));
        }
    };
    match &spec.upstream {
        None => required("spec.upstream", None),
        Some(upstream) => {
            required("spec.upstream.repo", Some(&upstream.repo));
            required("spec.upstream.package", Some(&upstream.package));
        }
    }
    match &spec.downstream {
        None => required("spec.downstream", None),
        Some(downstream) => {
            required("spec.downstream.repo", Some(&downstream.repo));
            required("spec.downstream.package", Some(&downstream.package));
        }
    }
    if let Some(context) = &spec.package_context {
        for key in OWN_KEYS {
            if context.data.contains_key(key) {
                found.push(format!("spec.packageContext.data must not contain the key {key:?}"));
            }
            if context.remove_keys.iter().any(|removed| removed == key) {
                found.push(format!("spec.packageContext.removeKeys must not contain the key {key:?}"));
            }
        }
    }
    for (at, injector) in spec.injectors.iter().enumerate() {
        if injector.name.is_empty() {
            found.push(format!("spec.injectors[{at}].name must not be empty"));
        }
        found.extend(incomplete_kind(&format!("spec.injectors[{at}]"), &injector.point));
    }
    for (field, functions) in
        spec.pipeline.iter().flat_map(|it| [("mutators", &it.mutators), ("validators", &it.validators)])
    {
        for (at, function) in functions.iter().enumerate() {
            let path = format!("spec.pipeline.{field}[{at}]");
            if function.image.is_empty() == function.exec.is_empty() {
                found.push(format!("{path} must have exactly one of image and exec"));
            }
            if function.name.contains('.') {
                found.push(format!("{path}.name must not contain '.'"));
            }
        }
    }
    found
}

/// The error of an injector that names a kind in part.
pub(crate) fn incomplete_kind(path: &str, point: &InjectionPoint) -> Option<String> {
    let problem = || format!("{path} must specify group, version and kind for objects other than ConfigMaps");
    kind_of_injector(point).is_none().then(problem)
}

#[derive(Debug)]
struct PackageVariantStrategy {
    lookup: Lookup,
    cluster: Arc<dyn Cluster>,
}

/// Requires the permission to read the kinds of all injectors.
///
/// # Errors
///
/// As [`require_kind`].
pub(crate) async fn require_kinds(
    context: &RequestContext,
    of: (&Lookup, &dyn Cluster),
    namespace: &str,
    points: &[&InjectionPoint],
) -> Result<(), ApiError> {
    // The controller reads no objects for an injector with a part of a kind.
    for (api_version, kind) in points.iter().copied().filter_map(kind_of_injector) {
        require_kind(context, of, namespace, (&api_version, &kind)).await?;
    }
    Ok(())
}

/// Requires the rights to write what the server writes for a variant.
///
/// # Errors
///
/// 403 that names the verb and the object.
async fn require_of(
    context: &RequestContext,
    of: (&Lookup, &dyn Cluster),
    variant: &PackageVariant,
) -> Result<(), ApiError> {
    let namespace = variant.namespace().unwrap_or_default();
    require::<PackageRevision>(context, "create", "", &namespace, "").await?;
    if let Some(upstream) = &variant.spec.upstream {
        package_access::require(context, RepositoryVerb::Clone, (&namespace, &upstream.repo)).await?;
    }
    if let Some(downstream) = &variant.spec.downstream {
        package_access::require(context, RepositoryVerb::Edit, (&namespace, &downstream.repo)).await?;
    }
    let points: Vec<_> = variant.spec.injectors.iter().map(|injector| &injector.point).collect();
    require_kinds(context, of, &namespace, &points).await
}

/// Requires leave to give up the revisions of a downstream package that is no longer wanted.
///
/// # Errors
///
/// 403 that names the verb and the repository.
async fn require_release(context: &RequestContext, new: &PackageVariant, old: &PackageVariant) -> Result<(), ApiError> {
    match &old.spec.downstream {
        Some(before)
            if new.spec.deletion_policy == DownstreamDeletion::Delete && new.spec.downstream != old.spec.downstream =>
        {
            let namespace = old.namespace().unwrap_or_default();
            package_access::require(context, RepositoryVerb::Edit, (&namespace, &before.repo)).await
        }
        _ => Ok(()),
    }
}

#[async_trait]
impl Strategy for PackageVariantStrategy {
    type Object = PackageVariant;

    async fn admit(&self, context: &RequestContext, change: Admission<'_, PackageVariant>) -> Result<(), ApiError> {
        if context.is_internal() {
            return Ok(());
        }
        match change {
            Admission::Create(variant) => require_of(context, (&self.lookup, &*self.cluster), variant).await,
            Admission::Update { new, old, subresource: "" } if new.spec != old.spec => {
                require_release(context, new, old).await?;
                require_of(context, (&self.lookup, &*self.cluster), new).await
            }
            Admission::Update { .. } | Admission::Delete(_) => Ok(()),
        }
    }
}

/// The message of the conditions for an invalid spec.
pub const INVALID: &str = "invalid packagevariant object";

/// The reasons of the conditions, which are those of Porch.
pub mod reasons {
    /// The spec is invalid, or upstream does not exist.
    pub const VALIDATION_ERROR: &str = "ValidationError";
    /// The spec is valid.
    pub const VALID: &str = "Valid";
    /// The downstream package is as it should be.
    pub const NO_ERRORS: &str = "NoErrors";
    /// A write failed.
    pub const ERROR: &str = "Error";
}

/// The condition of variants and their sets that cannot make progress.
pub const STALLED: &str = "Stalled";

/// The condition of variants and their sets that are as the spec wants them.
pub const READY: &str = reason::READY;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(spec: Value) -> Vec<String> {
        problems(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn complete_spec_has_no_problems() {
        let spec = json!({
            "upstream": {"repo": "blueprints", "package": "basens", "revision": 2},
            "downstream": {"repo": "deployments", "package": "web"},
            "packageContext": {"data": {"region": "eu"}, "removeKeys": ["old"]},
            "pipeline": {"mutators": [{"name": "ns", "image": "set-namespace:v0.4.1"}]},
            "injectors": [{"name": "prod"}, {"group": "example.com", "version": "v1", "kind": "Network", "name": "prod"}],
        });
        assert_eq!(of(spec), [""; 0]);
    }

    #[test]
    fn problems_name_their_fields() {
        let missing = ["missing required field spec.upstream", "missing required field spec.downstream"];
        assert_eq!(of(json!({})), missing);
        let both = json!({"repo": "a", "package": "b"});
        let wrong = json!({
            "upstream": both, "downstream": both, "packageContext": {"data": {"name": "x"}, "removeKeys": ["package-path"]},
            "pipeline": {"validators": [{"name": "a.b"}]}, "injectors": [{"name": ""}, {"kind": "Network", "name": "prod"}],
        });
        let found = of(wrong);
        assert_eq!(found.len(), 6, "{found:?}");
        let expected = "spec.injectors[1] must specify group, version and kind for objects other than ConfigMaps";
        assert!(found.iter().any(|problem| problem == expected), "{found:?}");
    }
}
