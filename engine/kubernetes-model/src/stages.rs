//! Stages of kinds: the order of kinds without dependencies.
//!
//! An admission configuration follows every other object, and custom resources are deleted before other objects.

use serde_json::{Map, Value};
use stoa_engine::object::split_api_version;
use stoa_engine::{Action, Stage};

use crate::kinds::is_built_in;

/// The API group whose kinds all configure admission, by webhooks or policies.
pub(crate) const ADMISSION: &str = "admissionregistration.k8s.io";

/// The stage of an action about an object with these attributes.
pub(crate) fn of(action: Action, attributes: &Map<String, Value>) -> Stage {
    match attributes.get("apiVersion").and_then(Value::as_str) {
        Some(api_version) => of_group(action, split_api_version(api_version).0),
        None => Stage::of(action),
    }
}

fn of_group(action: Action, group: &str) -> Stage {
    match (Stage::of(action), group) {
        (Stage::Changes, ADMISSION) if action.is_call() => Stage::Admission,
        (Stage::Deletions, ADMISSION) => Stage::AdmissionDeletions,
        (Stage::Deletions, group) if !is_built_in(group) => Stage::CustomResourceDeletions,
        (stage, _) => stage,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use stoa_engine::plan::PlannedAction;
    use stoa_engine::{ResourceId, ResourceType, stage::assign};

    use super::*;

    /// The stages of actions by their ids, which are `Kind.group:name`, each with the ids that come before it.
    fn check(actions: &[(&str, Action, &[&str])]) -> Vec<String> {
        let mut planned: Vec<PlannedAction> = actions
            .iter()
            .map(|(id, action, after)| PlannedAction {
                after: after.iter().map(|id| ResourceId::from(*id)).collect(),
                ..PlannedAction::new((*id).into(), ResourceType::Kubernetes, *action)
            })
            .collect();
        let groups: HashMap<ResourceId, &str> = actions
            .iter()
            .map(|(id, ..)| {
                ((*id).into(), id.split_once(':').unwrap().0.split_once('.').map_or("", |(_, group)| group))
            })
            .collect();
        assign(&mut planned, |it| of_group(it.action, groups[&it.id]));
        planned.iter().map(|it| format!("{} {:?}", it.id, it.stage())).collect()
    }

    const WEBHOOK: &str = "ValidatingWebhookConfiguration.admissionregistration.k8s.io:w";
    const WIDGET: &str = "Widget.example.com:x";

    #[test]
    fn kinds_have_apply_and_delete_stages() {
        assert_eq!(
            check(&[
                ("ConfigMap:c", Action::Create, &[]),
                (WEBHOOK, Action::Create, &[]),
                (WIDGET, Action::Update, &[]),
                ("Secret:s", Action::Delete, &[]),
            ]),
            [
                "ConfigMap:c Changes",
                &format!("{WEBHOOK} Admission"),
                &format!("{WIDGET} Changes"),
                "Secret:s Deletions"
            ]
        );
        assert_eq!(
            check(&[
                ("Deployment.apps:d", Action::Delete, &[]),
                (WEBHOOK, Action::Delete, &[]),
                (WIDGET, Action::Delete, &[]),
            ]),
            [
                "Deployment.apps:d Deletions",
                &format!("{WEBHOOK} AdmissionDeletions"),
                &format!("{WIDGET} CustomResourceDeletions")
            ]
        );
    }

    #[test]
    fn dependency_wins_over_kind_order() {
        let after_webhook =
            [(WEBHOOK, Action::Create, &[] as &[&str]), ("ConfigMap:c", Action::Create, &[WEBHOOK] as &[&str])];
        assert_eq!(check(&after_webhook)[1], "ConfigMap:c Admission");
        let after_unchanged =
            [(WEBHOOK, Action::Unchanged, &[] as &[&str]), ("ConfigMap:c", Action::Create, &[WEBHOOK] as &[&str])];
        assert_eq!(check(&after_unchanged)[1], "ConfigMap:c Changes");
        // What the deletion of a custom resource waits for goes with it.
        let first =
            [("Deployment.apps:d", Action::Delete, &[] as &[&str]), (WIDGET, Action::Delete, &["Deployment.apps:d"])];
        assert_eq!(check(&first)[0], "Deployment.apps:d CustomResourceDeletions");
        // So does the deletion that a creation waits for, by way of a record that is dropped, too.
        let freed = [
            ("Service:old", Action::Delete, &[] as &[&str]),
            ("ConfigMap:gone", Action::Forget, &["Service:old"]),
            ("Service:new", Action::Create, &["ConfigMap:gone"]),
            ("Deployment.apps:d", Action::Update, &[]),
            ("ConfigMap:c", Action::Create, &["Service:new"]),
        ];
        let stages = check(&freed);
        assert_eq!((&*stages[0], &*stages[2]), ("Service:old Exchanges", "Service:new Exchanges"));
        assert_eq!(stages[3..], ["Deployment.apps:d Changes", "ConfigMap:c Exchanges"]);
    }

    #[test]
    fn no_action_waits_for_later_stage() {
        let all = [
            ("ConfigMap:a", Action::Update, &[] as &[&str]),
            (WEBHOOK, Action::Update, &[]),
            ("Service:old", Action::Delete, &[WEBHOOK]),
            ("Service:new", Action::Create, &["Service:old"]),
        ];
        let stages = check(&all);
        assert_eq!(stages[2..], ["Service:old Admission", "Service:new Admission"]);
    }
}
