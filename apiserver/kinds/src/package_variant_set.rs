//! PackageVariantSet: one PackageVariant for each of many targets.
//!
//! As in Porch, an invalid spec is stored, and the condition Stalled names the errors. Elsewhere: the controller
//! `package_variant_sets` writes the PackageVariants.

use std::sync::Arc;

use async_trait::async_trait;
use kube::ResourceExt as _;
use serde_json::Value;
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column},
    object::Object,
    strategy::{Admission, Strategy},
};
use stoa_types::{
    porch::PackageRevision,
    porchconfig::{
        FunctionTemplate, MapExpr, PackageVariant, PackageVariantSet, PackageVariantSetSpec, PackageVariantTemplate,
        Target,
    },
};

use crate::{
    cluster::Cluster,
    kind::{Kind, Surroundings},
    lookup::{Lookup, require},
    package_access::{self, RepositoryVerb},
    package_objects::require_kind,
    package_variant::{incomplete_kind, require_kinds},
    ready,
    rights::{DEVELOPED, MEMBERS, OBJECTS, OWNED, READ, READERS, right},
};

/// The label of PackageVariants with the uid of their set, as Porch has it.
pub const OWNER_LABEL: &str = "config.porch.kpt.dev/packagevariantset";

/// The kind PackageVariantSet.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, cluster, .. }| {
        builder.register(definition, PackageVariantSetStrategy { lookup, cluster })
    },
    rights: &[right(READERS, OBJECTS, READ), right(MEMBERS, &["status"], READ), DEVELOPED, OWNED],
    ..Kind::of::<PackageVariantSet>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<PackageVariantSet>().columns(&[
        Column::new("Upstream", Cell::Compute(upstream), "The package that is copied."),
        ready::status("Whether each target has its PackageVariant."),
        Column::age(),
        ready::reason(),
        ready::message(),
    ])
}

fn upstream(object: &Object) -> Value {
    let text = |field| object.get_path(&["spec", "upstream", field]).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}", text("repo"), text("package")).into()
}

/// The errors of a spec, as Porch reports them.
pub fn problems(spec: &PackageVariantSetSpec) -> Vec<String> {
    let mut found = Vec::new();
    match &spec.upstream {
        None => found.push("spec.upstream is a required field".to_owned()),
        Some(upstream) => {
            if upstream.package.is_empty() {
                found.push("spec.upstream.package is a required field".to_owned());
            }
            if upstream.repo.is_empty() {
                found.push("spec.upstream.repo is a required field".to_owned());
            }
            if upstream.revision == 0 && upstream.workspace_name.is_empty() {
                found.push("either spec.upstream.revision or spec.upstream.workspaceName must be specified".to_owned());
            }
        }
    }
    if spec.targets.is_empty() {
        found.push("must specify at least one item in spec.targets".to_owned());
    }
    for (at, target) in spec.targets.iter().enumerate() {
        self::target(&format!("spec.targets[{at}]"), target, &mut found);
    }
    found
}

fn target(path: &str, target: &Target, found: &mut Vec<String>) {
    let Target { repositories, repository_selector, object_selector, template } = target;
    let count = [repositories.is_some(), repository_selector.is_some(), object_selector.is_some()];
    if count.into_iter().filter(|is_set| *is_set).count() != 1 {
        found.push(format!("{path} must specify one of `repositories`, `repositorySelector`, or `objectSelector`"));
    }
    if let Some(repositories) = repositories {
        if repositories.is_empty() {
            found.push(format!("{path}.repositories must not be an empty list if specified"));
        }
        for (at, repository) in repositories.iter().enumerate() {
            if repository.name.is_empty() {
                found.push(format!("{path}.repositories[{at}].name cannot be empty"));
            }
            for at_name in
                repository.package_names.iter().enumerate().filter(|(_, name)| name.is_empty()).map(|it| it.0)
            {
                found.push(format!("{path}.repositories[{at}].packageNames[{at_name}] cannot be empty"));
            }
        }
    }
    if let Some(selector) = object_selector {
        if selector.api_version.is_empty() {
            found.push(format!("{path}.objectSelector.apiVersion cannot be empty"));
        }
        if selector.kind.is_empty() {
            found.push(format!("{path}.objectSelector.kind cannot be empty"));
        }
    }
    if let Some(template) = template {
        self::template(&format!("{path}.template"), template, found);
    }
}

fn template(path: &str, template: &PackageVariantTemplate, found: &mut Vec<String>) {
    if let Some(downstream) = &template.downstream {
        if downstream.repo.is_some() && downstream.repo_expr.is_some() {
            found.push(format!("{path} may specify only one of `downstream.repo` and `downstream.repoExpr`"));
        }
        if downstream.package.is_some() && downstream.package_expr.is_some() {
            found.push(format!("{path} may specify only one of `downstream.package` and `downstream.packageExpr`"));
        }
    }
    entries(&format!("{path}.labelExprs"), &template.label_exprs, found);
    entries(&format!("{path}.annotationExprs"), &template.annotation_exprs, found);
    if let Some(context) = &template.package_context {
        entries(&format!("{path}.packageContext.dataExprs"), &context.data_exprs, found);
    }
    for (at, injector) in template.injectors.iter().enumerate() {
        match (&injector.name, &injector.name_expr) {
            (Some(_), Some(_)) => {
                found.push(format!("{path}.injectors[{at}] may specify only one of `name` and `nameExpr`"));
            }
            (None, None) => found.push(format!("{path}.injectors[{at}] must specify either `name` or `nameExpr`")),
            _ => {}
        }
        found.extend(incomplete_kind(&format!("{path}.injectors[{at}]"), &injector.point));
    }
    if let Some(pipeline) = &template.pipeline {
        functions(&format!("{path}.pipeline.validators"), &pipeline.validators, found);
        functions(&format!("{path}.pipeline.mutators"), &pipeline.mutators, found);
    }
}

fn entries(path: &str, entries: &[MapExpr], found: &mut Vec<String>) {
    for (at, entry) in entries.iter().enumerate() {
        if entry.key.is_some() && entry.key_expr.is_some() {
            found.push(format!("{path}[{at}] may specify only one of `key` and `keyExpr`"));
        }
        if entry.value.is_some() && entry.value_expr.is_some() {
            found.push(format!("{path}[{at}] may specify only one of `value` and `valueExpr`"));
        }
    }
}

fn functions(path: &str, functions: &[FunctionTemplate], found: &mut Vec<String>) {
    for (at, function) in functions.iter().enumerate() {
        if function.image.is_empty() {
            found.push(format!("{path}[{at}].image must not be empty"));
        }
        if function.name.contains('.') {
            found.push(format!("{path}[{at}].name must not contain '.'"));
        }
        entries(&format!("{path}[{at}].configMapExprs"), &function.config_map_exprs, found);
    }
}

#[derive(Debug)]
struct PackageVariantSetStrategy {
    lookup: Lookup,
    cluster: Arc<dyn Cluster>,
}

/// Requires the rights to write what the server writes for a set.
///
/// # Errors
///
/// 403 that names the verb and the object.
async fn require_of(
    context: &RequestContext,
    of: (&Lookup, &dyn Cluster),
    set: &PackageVariantSet,
) -> Result<(), ApiError> {
    let namespace = set.namespace().unwrap_or_default();
    require::<PackageVariant>(context, "create", "", &namespace, "").await?;
    require::<PackageRevision>(context, "create", "", &namespace, "").await?;
    if let Some(upstream) = &set.spec.upstream {
        package_access::require(context, RepositoryVerb::Clone, (&namespace, &upstream.repo)).await?;
    }
    // Targets may be of any repository.
    package_access::require(context, RepositoryVerb::Edit, (&namespace, "")).await?;
    for Target { object_selector, template, .. } in &set.spec.targets {
        // An invalid selector reads nothing.
        if let Some(selected) = object_selector.as_ref().filter(|it| !it.api_version.is_empty() && !it.kind.is_empty())
        {
            require_kind(context, of, &namespace, (&selected.api_version, &selected.kind)).await?;
        }
        let injectors = template.iter().flat_map(|template| &template.injectors);
        let points: Vec<_> = injectors.map(|injector| &injector.point).collect();
        require_kinds(context, of, &namespace, &points).await?;
    }
    Ok(())
}

#[async_trait]
impl Strategy for PackageVariantSetStrategy {
    type Object = PackageVariantSet;

    async fn admit(&self, context: &RequestContext, change: Admission<'_, PackageVariantSet>) -> Result<(), ApiError> {
        if context.is_internal() {
            return Ok(());
        }
        match change {
            Admission::Create(set) => require_of(context, (&self.lookup, &*self.cluster), set).await,
            Admission::Update { new, old, subresource: "" } if new.spec != old.spec => {
                require_of(context, (&self.lookup, &*self.cluster), new).await
            }
            Admission::Update { .. } | Admission::Delete(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(targets: Value) -> Vec<String> {
        let upstream = json!({"repo": "blueprints", "package": "basens", "revision": 1});
        problems(&serde_json::from_value(json!({"upstream": upstream, "targets": targets})).unwrap())
    }

    #[test]
    fn target_is_of_one_kind() {
        assert_eq!(of(json!([{"repositories": [{"name": "a"}]}])), [""; 0]);
        assert_eq!(of(json!([{"repositorySelector": {}}])), [""; 0]);
        for wrong in [
            json!([]),
            json!([{}]),
            json!([{"repositories": []}]),
            json!([{"repositories": [{"name": "a"}], "repositorySelector": {}}]),
            json!([{"repositories": [{"name": ""}]}]),
            json!([{"objectSelector": {"apiVersion": "v1"}}]),
        ] {
            assert_eq!(of(wrong.clone()).len(), 1, "{wrong}");
        }
    }

    #[test]
    fn template_has_values_or_expressions() {
        let template = json!({
            "downstream": {"repo": "a", "repoExpr": "'a'"},
            "labelExprs": [{"key": "a", "keyExpr": "'a'"}],
            "injectors": [{}],
            "pipeline": {"mutators": [{"name": "a.b"}]},
        });
        let found = of(json!([{"repositories": [{"name": "a"}], "template": template}]));
        assert_eq!(found.len(), 5, "{found:?}");
    }

    #[test]
    fn upstream_has_a_revision() {
        let spec = json!({"upstream": {"repo": "a", "package": "b"}, "targets": [{"repositorySelector": {}}]});
        let found = problems(&serde_json::from_value(spec).unwrap());
        assert_eq!(found, ["either spec.upstream.revision or spec.upstream.workspaceName must be specified"]);
    }
}
