//! `matchConstraints` of policies and `matchResources` of bindings: the choice of writes.

use k8s_openapi::api::admissionregistration::v1::{MatchResources, NamedRuleWithOperations, RuleWithOperations};
use stoa_meta::{object::Object, selector::LabelSelector, status::ApiError};
use stoa_registry::admission::Attributes;

use crate::{cluster::Namespaces, rules, selector, webhook::in_selected_namespace};

/// Which writes a policy or binding is about.
#[derive(Debug)]
pub(super) struct Constraints {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    namespaces: Result<LabelSelector, String>,
    objects: Result<LabelSelector, String>,
}

#[derive(Debug)]
struct Rule {
    rule: RuleWithOperations,
    /// The only objects it is about, if any are named.
    names: Vec<String>,
}

impl Rule {
    fn all(rules: Option<&[NamedRuleWithOperations]>) -> Vec<Self> {
        let read = |named: &NamedRuleWithOperations| Self {
            rule: RuleWithOperations {
                api_groups: named.api_groups.clone(),
                api_versions: named.api_versions.clone(),
                operations: named.operations.clone(),
                resources: named.resources.clone(),
                scope: named.scope.clone(),
            },
            names: named.resource_names.clone().unwrap_or_default(),
        };
        rules.into_iter().flatten().map(read).collect()
    }

    fn matches(&self, attributes: &Attributes<'_>) -> bool {
        let named = self.names.is_empty() || self.names.iter().any(|name| name == attributes.name);
        named && rules::matches(&self.rule, attributes)
    }
}

impl Constraints {
    /// Reads constraints; none are about everything.
    pub(super) fn new(resources: Option<&MatchResources>) -> Self {
        Self {
            rules: Rule::all(resources.and_then(|r| r.resource_rules.as_deref())),
            excluded: Rule::all(resources.and_then(|r| r.exclude_resource_rules.as_deref())),
            namespaces: selector::parse(resources.and_then(|r| r.namespace_selector.as_ref())),
            objects: selector::parse(resources.and_then(|r| r.object_selector.as_ref())),
        }
    }

    /// Whether a rule, if there are any, is about such writes.
    pub(super) fn has_rule_for(&self, attributes: &Attributes<'_>) -> bool {
        self.rules.is_empty() || self.rules.iter().any(|rule| rules::matches(&rule.rule, attributes))
    }

    /// Whether the write is one that they are about.
    /// Fails when that cannot be told, for a selector that is none or a namespace that is missing.
    pub(super) async fn select(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        namespaces: &dyn Namespaces,
    ) -> Result<bool, ApiError> {
        let objects = self.objects.as_ref().map_err(ApiError::internal)?;
        if !selector::matches_either(objects, object, attributes.old_object) {
            return Ok(false);
        }
        if self.excluded.iter().any(|rule| rule.matches(attributes)) {
            return Ok(false);
        }
        if !self.rules.is_empty() && !self.rules.iter().any(|rule| rule.matches(attributes)) {
            return Ok(false);
        }
        let selector = self.namespaces.as_ref().map_err(ApiError::internal)?;
        in_selected_namespace(selector, attributes, object, namespaces).await
    }
}
