//! The events that a sink selects.

use kube::{
    ResourceExt as _,
    core::{Selector, SelectorExt as _},
};
use stoa_kinds::{event_types, lookup::Lookup};
use stoa_types::{Organization, platform::NotificationSinkSpec};

use super::events::{Happened, Scope};

/// What a sink asks for.
#[derive(Debug)]
pub(super) struct Selection {
    events: Vec<String>,
    organizations: Vec<String>,
    labels: Option<Selector>,
    projects: Vec<String>,
    stacks: Vec<String>,
    workspaces: Vec<String>,
    lookup: Lookup,
}

impl Selection {
    /// What a spec asks for; its strategy has seen to it that the selector can be read.
    pub(super) fn new(spec: &NotificationSinkSpec, lookup: Lookup) -> Self {
        let labels = spec.organization_selector.clone();
        Self {
            events: spec.events.clone(),
            organizations: spec.organizations.clone(),
            labels: labels.map(|selector| Selector::try_from(selector).unwrap_or_default()),
            projects: spec.projects.clone(),
            stacks: spec.stacks.clone(),
            workspaces: spec.workspaces.clone(),
            lookup,
        }
    }

    /// Whether an event is among them.
    pub(super) fn takes(&self, happened: &Happened) -> bool {
        let event_type = &happened.event.event_type;
        let is_asked_for =
            self.events.is_empty() || self.events.iter().any(|pattern| event_types::matches(pattern, event_type));
        is_asked_for && self.contains(&happened.scope)
    }

    fn contains(&self, scope: &Scope) -> bool {
        let Scope { organization, project, stack, workspaces } = scope;
        let among = |names: &[String], name: &String| names.is_empty() || names.contains(name);
        among(&self.organizations, organization)
            && among(&self.projects, project)
            && among(&self.stacks, stack)
            && (self.workspaces.is_empty() || workspaces.iter().any(|workspace| self.workspaces.contains(workspace)))
            && self.labels.as_ref().is_none_or(|selector| self.is_labeled(selector, organization))
    }

    fn is_labeled(&self, selector: &Selector, organization: &str) -> bool {
        let found = self.lookup.cached::<Organization>("", organization);
        found.is_some_and(|organization| selector.matches(organization.labels()))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use jiff::Timestamp;
    use serde_json::{Value, json};
    use stoa_kinds::testing::TestRegistry;
    use stoa_machinery::log::MemoryLog;

    use super::*;
    use crate::events::of_key;

    fn happened(kind: &str, object: &Value) -> Happened {
        let kind = of_key(&format!("/registry/{kind}/x")).unwrap();
        let state = kind.read(object.to_string().as_bytes(), "").unwrap();
        state.events(&Default::default(), Timestamp::UNIX_EPOCH, "").remove(0)
    }

    #[tokio::test]
    async fn what_is_not_asked_for_is_left_out() {
        let world = TestRegistry::over(Arc::new(MemoryLog::new()), stoa_kinds::core_v1::register).await;
        create_labeled(&world, "shop", &[("tier", "gold")]).await;
        let metadata = json!({"name": "web-1", "namespace": "shop", "uid": "u", "labels": {"stoa.dev/project": "web"}});
        let run = happened(
            "delivery.stoa.dev/runs",
            &json!({"metadata": metadata, "spec": {"stack": "web-dev", "workspace": "dev", "operation": "Apply"},
                "status": {"phase": "Generating", "startTime": "2026-01-01T00:00:00Z"}}),
        );
        let ready = json!({"type": "Ready", "status": "False", "reason": "", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let workspace = happened(
            "platform.stoa.dev/workspaces",
            &json!({"metadata": {"name": "dev", "uid": "w"}, "spec": {"backend": {"name": "b"}}, "status": {"conditions": [ready]}}),
        );
        let lookup = world.lookup.clone();
        let takes = |mut spec: Value| {
            spec["url"] = json!("https://x");
            spec["secretRef"] = json!({"namespace": "a", "name": "b", "key": "c"});
            let spec: NotificationSinkSpec = serde_json::from_value(spec).unwrap();
            let selection = Selection::new(&spec, lookup.clone());
            (selection.takes(&run), selection.takes(&workspace))
        };
        let labeled = |tier: &str| json!({"organizationSelector": {"matchLabels": {"tier": tier}}});
        let expression = json!({"key": "tier", "operator": "In", "values": ["gold", "silver"]});
        for (spec, expected) in [
            (json!({}), (true, true)),
            (json!({"events": ["dev.stoa.run.started"]}), (true, false)),
            (json!({"events": ["dev.stoa.run.failed", "dev.stoa.workspace.*"]}), (false, true)),
            // A workspace is no organization's.
            (json!({"organizations": ["bank", "shop"]}), (true, false)),
            (json!({"organizations": ["bank"]}), (false, false)),
            (json!({"projects": ["web"]}), (true, false)),
            (json!({"stacks": ["web"]}), (false, false)),
            (json!({"stacks": ["web-dev"], "workspaces": ["dev"]}), (true, false)),
            (json!({"workspaces": ["dev"]}), (true, true)),
            (json!({"workspaces": ["prod"]}), (false, false)),
            (labeled("gold"), (true, false)),
            (labeled("silver"), (false, false)),
            (json!({"organizationSelector": {"matchExpressions": [expression]}}), (true, false)),
            (json!({"organizationSelector": {}}), (true, false)),
        ] {
            assert_eq!(takes(spec.clone()), expected, "{spec}");
        }
    }

    /// An organization with labels.
    async fn create_labeled(world: &TestRegistry, name: &str, labels: &[(&str, &str)]) {
        let store = world.registry.stores().find(|store| store.definition().kind == "Organization").unwrap();
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        let Value::Object(object) = json!({"metadata": {"name": name, "labels": labels}, "spec": {}}) else {
            unreachable!("a map")
        };
        let context = stoa_machinery::RequestContext::internal("test");
        store.create(&context, "", stoa_machinery::Object(object)).await.unwrap();
    }
}
