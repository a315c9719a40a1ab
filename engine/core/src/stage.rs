//! Stages of a walk: the order of kinds without dependencies.
//!
//! Start at `assign`. An action of one stage starts when all actions of earlier stages have succeeded. A stage stands
//! for many edges of a graph: an admission configuration follows every other object, and a deletion every change.
//!
//! Elsewhere: `dependencies` has the edges between objects that need each other, such as a namespace and its objects,
//! and `planner::order` reverses them for deletions.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::kinds::is_built_in;
use crate::plan::{Action, PlannedAction};
use crate::spec::ResourceId;

/// A part of a walk, in the order of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stage {
    /// Creations and changes.
    Changes,
    /// Deletions that a creation or change waits for, and these changes: one Service releases a port, another claims it.
    Exchanges,
    /// Creations and changes of admission configurations, and of resources that depend on one.
    Admission,
    /// Deletions of admission configurations: a webhook whose server is deleted rejects every request.
    AdmissionDeletions,
    /// Deletions of custom resources, which their controller has to clean up.
    CustomResourceDeletions,
    /// All other deletions.
    Deletions,
}

impl Stage {
    /// The stage of an action where its kind does not matter.
    pub fn of(action: Action) -> Self {
        match action {
            Action::Create
            | Action::Update
            | Action::Replace
            | Action::Adopt
            | Action::Import
            | Action::Read
            | Action::Unchanged => Self::Changes,
            Action::Delete | Action::Forget => Self::Deletions,
        }
    }

    /// The stage of an action about an object of an API group.
    fn of_group(action: Action, group: Option<&str>) -> Self {
        match (Self::of(action), group) {
            (Self::Changes, Some(ADMISSION)) if action.is_call() => Self::Admission,
            (Self::Deletions, Some(ADMISSION)) => Self::AdmissionDeletions,
            (Self::Deletions, Some(group)) if !is_built_in(group) => Self::CustomResourceDeletions,
            (stage, _) => stage,
        }
    }
}

/// The API group whose kinds all configure admission, by webhooks or policies.
pub(crate) const ADMISSION: &str = "admissionregistration.k8s.io";

/// Sets the stage of every action. `actions` are ordered; `group` returns the API group of a resource that is an object.
///
/// A dependency wins over the order of kinds. A resource that depends on an admission configuration is applied after it, in
/// its stage. A deletion that another action waits for is made in the stage of that, after all other changes: while one of
/// these may fail, the object has to stay.
pub(crate) fn assign<'o>(actions: &mut [PlannedAction], group: impl Fn(&ResourceId) -> Option<&'o str>) {
    let own: Vec<Stage> = actions.iter().map(|it| Stage::of_group(it.action, group(&it.id))).collect();
    let position: HashMap<&ResourceId, usize> = actions.iter().enumerate().map(|(at, it)| (&it.id, at)).collect();
    let before: Vec<Vec<usize>> =
        actions.iter().map(|it| it.after.iter().filter_map(|id| position.get(id).copied()).collect()).collect();
    // Whether it is a deletion, or the removal of a record that comes after one.
    let mut deletes = vec![false; actions.len()];
    for at in 0..actions.len() {
        let action = actions[at].action;
        deletes[at] = !action.keeps() && (action == Action::Delete || before[at].iter().any(|first| deletes[*first]));
    }
    // The latest stage of a change that comes before, whatever is in between.
    let mut latest = vec![Stage::Changes; actions.len()];
    for at in 0..actions.len() {
        let of_before = before[at].iter().map(|first| latest[*first]).max();
        let of_own = match actions[at].action.keeps() {
            true if before[at].iter().any(|first| deletes[*first]) => own[at].max(Stage::Exchanges),
            true => own[at],
            false => Stage::Changes,
        };
        latest[at] = of_before.map_or(of_own, |stage| stage.max(of_own));
    }
    let mut stages: Vec<Stage> =
        (0..actions.len()).map(|at| if actions[at].action.keeps() { latest[at] } else { own[at] }).collect();
    for at in (0..actions.len()).rev() {
        for first in &before[at] {
            if !actions[*first].action.keeps() {
                stages[*first] = stages[*first].min(stages[at]);
            }
        }
    }
    for (action, stage) in actions.iter_mut().zip(stages) {
        action.stage = Some(stage).filter(|stage| *stage != Stage::of(action.action));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ResourceType;

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
        assign(&mut planned, |id| groups.get(id).copied());
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
