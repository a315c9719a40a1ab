//! What a namespace that is being deleted says about what is left in it, in the words of the namespace controller of a
//! cluster (`pkg/controller/namespace/deletion/status_condition_utils.go`).

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{NamespaceCondition, NamespaceStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};

/// What was found in a namespace when its content was last deleted.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// How many objects are left, by resource, such as `stacks.config.stoa.dev`.
    pub(super) remaining: BTreeMap<String, usize>,
    /// How many of them wait for a finalizer, by its name.
    pub(super) finalizers: BTreeMap<String, usize>,
    /// Why objects could not be deleted.
    pub(super) failures: Vec<String>,
}

impl Findings {
    pub(super) fn is_empty(&self) -> bool {
        self.remaining.is_empty() && self.failures.is_empty()
    }

    /// Tells a namespace's status what was found at `now`.
    pub(super) fn tell(&self, status: &mut NamespaceStatus, now: Timestamp) {
        status.phase = Some("Terminating".to_owned());
        let listed = |counts: &BTreeMap<String, usize>, of: &str| {
            counts.iter().map(|(what, count)| format!("{what}{of}{count} resource instances")).collect::<Vec<_>>()
        };
        let told = [
            (
                "NamespaceDeletionContentFailure",
                "ContentDeletionFailed",
                format!(
                    "Failed to delete all resource types, {} remaining: {}",
                    self.failures.len(),
                    named(&self.failures)
                ),
                !self.failures.is_empty(),
                ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
            ),
            (
                "NamespaceContentRemaining",
                "SomeResourcesRemain",
                format!("Some resources are remaining: {}", listed(&self.remaining, " has ").join(", ")),
                !self.remaining.is_empty(),
                ("ContentRemoved", "All content successfully removed"),
            ),
            (
                "NamespaceFinalizersRemaining",
                "SomeFinalizersRemain",
                format!(
                    "Some content in the namespace has finalizers remaining: {}",
                    listed(&self.finalizers, " in ").join(", ")
                ),
                !self.finalizers.is_empty(),
                ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
            ),
        ];
        let conditions = status.conditions.get_or_insert_default();
        for (type_, reason, message, holds, (done, all_done)) in told {
            let (reason, message) = if holds { (reason, message) } else { (done, all_done.to_owned()) };
            let holds = if holds { "True" } else { "False" };
            let before = conditions.iter().position(|condition| condition.type_ == type_);
            let before = before.map(|at| conditions.remove(at));
            let since = before.filter(|before| before.status == holds).and_then(|before| before.last_transition_time);
            conditions.push(NamespaceCondition {
                type_: type_.to_owned(),
                status: holds.to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message),
                last_transition_time: since.or(Some(Time(now))),
            });
        }
    }
}

/// How many failures are told.
const NAMED: usize = 10;

/// The first failures, and how many others there are.
fn named(failures: &[String]) -> String {
    let (told, others) = failures.split_at(failures.len().min(NAMED));
    match others.len() {
        0 => told.join(", "),
        more => format!("{} and {more} more", told.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: &NamespaceStatus) -> Vec<[&str; 4]> {
        let conditions = status.conditions.iter().flatten();
        conditions
            .map(|c| [&*c.type_, &c.status, c.reason.as_deref().unwrap(), c.message.as_deref().unwrap()])
            .collect()
    }

    #[test]
    fn what_is_left_is_told_and_since_when() {
        let mut status = NamespaceStatus::default();
        let left = Findings {
            remaining: [("projects.config.stoa.dev".to_owned(), 2), ("stacks.config.stoa.dev".to_owned(), 1)].into(),
            finalizers: [("stoa.dev/infrastructure".to_owned(), 1)].into(),
            failures: vec!["stacks web-dev is forbidden".to_owned()],
        };
        let (then, now) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(60).unwrap());
        left.tell(&mut status, then);
        assert_eq!(
            told(&status),
            [
                [
                    "NamespaceDeletionContentFailure",
                    "True",
                    "ContentDeletionFailed",
                    "Failed to delete all resource types, 1 remaining: stacks web-dev is forbidden"
                ],
                [
                    "NamespaceContentRemaining",
                    "True",
                    "SomeResourcesRemain",
                    "Some resources are remaining: projects.config.stoa.dev has 2 resource instances, \
                     stacks.config.stoa.dev has 1 resource instances"
                ],
                [
                    "NamespaceFinalizersRemaining",
                    "True",
                    "SomeFinalizersRemain",
                    "Some content in the namespace has finalizers remaining: stoa.dev/infrastructure in 1 resource \
                     instances"
                ],
            ]
        );
        let less = Findings { failures: Vec::new(), finalizers: BTreeMap::new(), ..left };
        less.tell(&mut status, now);
        let since: Vec<_> =
            status.conditions.iter().flatten().map(|c| c.last_transition_time.as_ref().map(|time| time.0)).collect();
        assert_eq!(since, [Some(now), Some(then), Some(now)], "only what became another is new");
        assert_eq!(told(&status)[0][2], "ContentDeleted");
        assert!(!less.is_empty() && Findings::default().is_empty());
    }

    #[test]
    fn of_many_failures_the_first_are_told() {
        let failures = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>();
        assert_eq!(named(&failures(2)), "0, 1");
        assert_eq!(named(&failures(NAMED)), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9");
        assert_eq!(named(&failures(NAMED + 2)), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more");
    }
}
