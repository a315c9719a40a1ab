//! Rules of webhooks and policies (`RuleWithOperations`), matched with a write.
//!
//! Follows `pkg/admission/plugin/webhook/predicates/rules`. Webhooks and policies share this.

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use stoa_registry::admission::Attributes;

/// Whether a rule names the write: its operation, group, version, resource and scope.
pub(super) fn matches(rule: &RuleWithOperations, attributes: &Attributes<'_>) -> bool {
    let definition = attributes.definition;
    in_scope(rule.scope.as_deref(), attributes)
        && listed(rule.operations.as_deref(), attributes.operation.as_str())
        && listed(rule.api_groups.as_deref(), &definition.group)
        && listed(rule.api_versions.as_deref(), &definition.version)
        && rule.resources.iter().flatten().any(|resource| is_resource(resource, attributes))
}

fn listed(items: Option<&[String]>, wanted: &str) -> bool {
    items.into_iter().flatten().any(|item| item == "*" || item == wanted)
}

fn in_scope(scope: Option<&str>, attributes: &Attributes<'_>) -> bool {
    let of_cluster = attributes.namespace.is_empty() || is_namespaces(attributes);
    match scope {
        None | Some("*") => true,
        Some("Namespaced") => !of_cluster,
        Some("Cluster") => of_cluster,
        Some(_) => false,
    }
}

/// Whether the write is to a namespace itself.
pub(super) fn is_namespaces(attributes: &Attributes<'_>) -> bool {
    attributes.definition.group.is_empty() && attributes.definition.plural == "namespaces"
}

/// Whether `pods`, `pods/status`, `*`, `*/*`, `pods/*` or `*/scale` is what is written.
fn is_resource(pattern: &str, attributes: &Attributes<'_>) -> bool {
    let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
    (resource == "*" || resource == attributes.definition.plural)
        && (subresource == "*" || subresource == attributes.subresource)
}
