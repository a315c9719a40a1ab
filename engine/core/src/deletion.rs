//! Mass deletion: a plan that deletes so much that a mistake is likely, such as after a moved folder or an emptied
//! file.
//!
//! Argo CD refuses to prune everything unless `allowEmpty` is set, and kapp refuses an empty list of resources without
//! a flag. Neither limits partial deletions.

use std::fmt;

use crate::plan::{Action, Plan};

/// So many resources may always go, however few there are.
const ALWAYS: usize = 10;

/// The counts of a plan that deletes too much to go unconfirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MassDeletion {
    /// Deleted resources.
    pub deleted: usize,
    /// Replaced resources.
    pub replaced: usize,
    /// Recorded resources.
    pub owned: usize,
    /// Whether the plan deletes everything.
    pub everything: bool,
}

impl Plan {
    /// The counts of a plan that deletes too much to go unconfirmed; `owned` is the number of recorded resources.
    ///
    /// That is a plan that deletes everything, or more than 10 resources and more than half of them.
    pub fn mass_deletion(&self, owned: usize) -> Option<MassDeletion> {
        let count = |action| self.actions.iter().filter(|planned| planned.action == action).count();
        let (deleted, replaced) = (count(Action::Delete), count(Action::Replace));
        let everything = deleted > 0 && !self.actions.iter().any(|planned| planned.action.keeps());
        let much = deleted + replaced > ALWAYS.max(owned / 2);
        (everything || much).then_some(MassDeletion { deleted, replaced, owned, everything })
    }
}

/// `deletes 14 and replaces 2 of 20 resources`
impl fmt::Display for MassDeletion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { deleted, replaced, owned, everything } = self;
        match (deleted, replaced) {
            (_, 0) => write!(f, "deletes {deleted}")?,
            (0, _) => write!(f, "replaces {replaced}")?,
            (_, _) => write!(f, "deletes {deleted} and replaces {replaced}")?,
        }
        write!(f, " of {owned} resources{}", if *everything { " and keeps none" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PlannedAction;
    use crate::spec::ResourceType;

    fn check(of: &[(Action, usize)], owned: usize, expected: Option<&str>) {
        let actions = of.iter().flat_map(|(action, count)| {
            (0..*count).map(move |n| {
                PlannedAction::new(format!("{action}-{n}").as_str().into(), ResourceType::Kubernetes, *action)
            })
        });
        let plan = Plan { actions: actions.collect(), ..Plan::of("") };
        assert_eq!(plan.mass_deletion(owned).map(|found| found.to_string()).as_deref(), expected, "{of:?} of {owned}");
    }

    #[test]
    fn deletion_of_all_is_mass_deletion() {
        check(&[(Action::Delete, 1)], 1, Some("deletes 1 of 1 resources and keeps none"));
        check(&[(Action::Delete, 3), (Action::Forget, 1)], 4, Some("deletes 3 of 4 resources and keeps none"));
        check(&[(Action::Delete, 3), (Action::Create, 1)], 3, None);
        check(&[(Action::Forget, 3)], 3, None);
        check(&[], 0, None);
    }

    #[test]
    fn mass_deletion_is_over_ten_and_half() {
        check(&[(Action::Delete, 10), (Action::Unchanged, 1)], 11, None);
        check(&[(Action::Delete, 11), (Action::Unchanged, 1)], 12, Some("deletes 11 of 12 resources"));
        check(&[(Action::Delete, 50), (Action::Unchanged, 50)], 100, None);
        check(&[(Action::Delete, 51), (Action::Unchanged, 49)], 100, Some("deletes 51 of 100 resources"));
        let both = [(Action::Delete, 9), (Action::Replace, 3), (Action::Create, 30)];
        check(&both, 12, Some("deletes 9 and replaces 3 of 12 resources"));
        check(&[(Action::Replace, 12)], 12, Some("replaces 12 of 12 resources"));
    }
}
