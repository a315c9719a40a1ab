//! `changedBy` of Stacks, Projects and Sources: the users whose changes decide about Runs that a trigger
//! starts.
//!
//! A Run counts as requested by all users who changed something since the Run before it. `OTHERS` stands for
//! the users beyond the longest list. Anybody may be one of them, so approving such a Run takes the permission
//! to approve one's own.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use stoa_machinery::RequestContext;
use stoa_types::common::ChangedBy;

use crate::validation;

/// How many people are kept.
pub const MOST: usize = 16;
/// Who stands for those that are not kept.
pub(crate) const OTHERS: &str = "system:stoa:others";

/// Keeps who changed something, as the last one who did and among all.
pub fn note(context: &RequestContext, set_by: &mut String, changed_by: &mut Vec<ChangedBy>) {
    let Some(name) = validation::who(context) else { return };
    set_by.clone_from(name);
    // Clocks of servers differ, and those who come later are told by that.
    let now = Timestamp::now();
    let time = latest(changed_by).map_or(now, |MicroTime(last)| now.max(last + SignedDuration::from_micros(1)));
    changed_by.retain(|change| change.name != *name);
    changed_by.push(ChangedBy { name: name.clone(), time: MicroTime(time) });
    if changed_by.len() > MOST {
        let left_out = changed_by.drain(..=changed_by.len() - MOST).next_back().expect("there are two at least");
        changed_by.insert(0, ChangedBy { name: OTHERS.to_owned(), ..left_out });
    }
}

/// When somebody last changed something, as far as that is kept.
pub fn latest(changed_by: &[ChangedBy]) -> Option<MicroTime> {
    changed_by.last().map(|change| change.time.clone())
}

/// Who changed something after a time, the last one first.
pub fn after(changed_by: &[ChangedBy], seen: Option<&MicroTime>) -> impl Iterator<Item = String> {
    let is_new = move |change: &&ChangedBy| seen.is_none_or(|seen| change.time > *seen);
    changed_by.iter().rev().filter(is_new).map(|change| change.name.clone())
}

/// The first of these people, each once. Where there are more than are kept, the last of them is `OTHERS`.
pub fn kept(people: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for name in people {
        if !name.is_empty() && !kept.contains(&name) {
            kept.push(name);
        }
    }
    if kept.len() > MOST {
        kept.truncate(MOST - 1);
        kept.push(OTHERS.to_owned());
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stoa_machinery::{auth::AllowAll, request::UserInfo};

    use super::*;

    fn by(name: &str) -> RequestContext {
        let user = UserInfo { name: name.to_owned(), ..UserInfo::default() };
        RequestContext::new(user, Arc::new(AllowAll))
    }

    #[derive(Default)]
    struct Object {
        set_by: String,
        changed_by: Vec<ChangedBy>,
    }

    impl Object {
        fn change(&mut self, name: &str) {
            note(&by(name), &mut self.set_by, &mut self.changed_by);
        }

        fn after(&self, seen: Option<&MicroTime>) -> Vec<String> {
            after(&self.changed_by, seen).collect()
        }
    }

    #[test]
    fn everybody_who_changed_something_since_is_told_once() {
        let mut object = Object::default();
        assert_eq!((latest(&object.changed_by), object.after(None)), (None, vec![]));
        object.change("eve");
        let seen = latest(&object.changed_by);
        assert_eq!(object.after(seen.as_ref()), [""; 0]);
        for name in ["ann", "bob", "ann"] {
            object.change(name);
        }
        assert_eq!((object.set_by.as_str(), object.after(seen.as_ref())), ("ann", vec!["ann".into(), "bob".into()]));
        assert_eq!(object.after(None), ["ann", "bob", "eve"]);
        note(&RequestContext::internal("stacks"), &mut object.set_by, &mut object.changed_by);
        assert_eq!(object.after(None), ["ann", "bob", "eve"], "what Stoa does by itself is nobody's change");
    }

    #[test]
    fn change_time_exceeds_previous_despite_clock() {
        let ahead = MicroTime(Timestamp::now() + SignedDuration::from_hours(1));
        let mut object = Object::default();
        object.changed_by.push(ChangedBy { name: "eve".to_owned(), time: ahead.clone() });
        object.change("ann");
        assert_eq!(object.after(Some(&ahead)), ["ann"]);
    }

    #[test]
    fn overflowing_changers_count_among_others() {
        let mut object = Object::default();
        for number in 0..MOST {
            object.change(&format!("p{number}"));
        }
        assert!(object.changed_by.iter().all(|change| change.name != OTHERS));
        let (second, third) = (object.changed_by[1].time.clone(), object.changed_by[2].time.clone());
        object.change("one-more");
        let names: Vec<&str> = object.changed_by.iter().map(|change| change.name.as_str()).collect();
        assert_eq!((names.len(), &names[..2], names[MOST - 1]), (MOST, &[OTHERS, "p2"][..], "one-more"));
        assert!(!object.after(Some(&second)).contains(&OTHERS.to_owned()), "that was before");
        object.change("another");
        assert_eq!((object.changed_by.len(), &object.changed_by[0].name), (MOST, &OTHERS.to_owned()));
        assert!(object.after(Some(&second)).contains(&OTHERS.to_owned()), "p2 is one of them by now");
        assert!(!object.after(Some(&third)).contains(&OTHERS.to_owned()));
    }

    #[test]
    fn more_people_than_are_kept_end_in_others() {
        let people = |count: usize| (0..count).map(|number| format!("p{number}"));
        assert_eq!(kept(["ann", "", "bob", "ann"].map(str::to_owned)), ["ann", "bob"]);
        assert_eq!(kept(people(MOST)), people(MOST).collect::<Vec<_>>());
        let most = kept(people(MOST + 1));
        assert_eq!((most.len(), most[MOST - 1].as_str()), (MOST, OTHERS));
    }
}
