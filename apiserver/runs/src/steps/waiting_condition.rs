//! The condition `Waiting` of a Run that changes resources.
//!
//! Calls that the function-runner waits for come before resources that are not healthy yet.

use std::{collections::BTreeMap, time::Duration};

use kube::ResourceExt as _;
use stoa_engine::{Health, ResourceId};
use stoa_kinds::text::{self, cut};
use stoa_types::{Condition, common::condition, reason};
use tokio::time::Instant;

use crate::{
    StepError,
    execution::{Execution, complaint},
    status::{MESSAGE, StatusUpdate},
};

/// The time between two reports of unhealthy resources, also after a failed one.
const EVERY: Duration = Duration::from_secs(3);
/// So many are named.
const NAMED: usize = 3;
/// What a run waits for that is to end.
const STOPPING: &str = "the run stops once the calls in progress are answered";

/// What is waited for, as far as the function-runner has said.
#[derive(Debug, Default)]
pub(super) struct WaitingCondition {
    /// What it waits for itself, in a sentence.
    awaited: Option<String>,
    /// The journal has that.
    is_noted: bool,
    /// Nothing is waited for but the answers to calls.
    is_stopping: bool,
    /// What it said of each resource that is not healthy, by id.
    unhealthy: BTreeMap<String, String>,
    /// Since when anything is heard of health.
    since: Option<Instant>,
    /// When something else that is not healthy may be told.
    next: Option<Instant>,
    /// The last try to tell something failed.
    has_failed: bool,
    /// Something was told: what the run says else is of before the conversation.
    has_told: bool,
}

type Said = Option<(&'static str, String)>;

impl WaitingCondition {
    /// Takes in how a resource fares. `is_over`: it is waited for no more.
    pub(super) fn hear(&mut self, id: &ResourceId, health: Health, is_over: bool, message: &str) {
        self.since.get_or_insert_with(Instant::now);
        if is_over || health.is_settled() {
            self.unhealthy.remove(&id.0);
            return;
        }
        // It is the text of a live object, of any length.
        let message = if message.is_empty() { health.to_string() } else { cut(message, MESSAGE) };
        self.unhealthy.insert(id.0.clone(), message);
    }

    /// Takes in what the runner waits for itself.
    pub(super) fn hear_awaited(&mut self, awaited: &[String], is_stopping: bool) {
        let awaited = (!awaited.is_empty()).then(|| complaint(awaited));
        self.is_noted &= awaited == self.awaited;
        (self.awaited, self.is_stopping) = (awaited, is_stopping);
    }

    /// Whether it is a while ago that anything was heard of health.
    pub(super) fn is_long(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= EVERY)
    }

    /// Has the run say what is waited for, if it is time for that. That it cannot be told now ends no conversation.
    ///
    /// # Errors
    ///
    /// Abandoned when the run is another's by now.
    pub(super) async fn tell(&mut self, execution: &mut Execution) -> Result<(), StepError> {
        let said = self.said();
        let conditions = execution.run.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
        let told = condition(conditions, reason::WAITING);
        if !self.is_to_tell(told, said.as_ref()) {
            return Ok(());
        }
        self.next = Some(Instant::now() + EVERY);
        if let Some(awaited) = self.awaited.as_ref().filter(|_| !self.is_noted) {
            execution.note_waiting(awaited).await;
            self.is_noted = true;
        }
        let outcome = match &said {
            Some((why, message)) => execution.write(StatusUpdate::Waiting(why, message.clone())).await,
            None => execution.goes_on().await,
        };
        (self.has_told, self.has_failed) = (true, outcome.is_err());
        match outcome {
            Err(halt @ StepError::Abandoned(_)) => Err(halt),
            Err(halt) => {
                tracing::warn!(
                    run = execution.run.name_any(),
                    ?halt,
                    "the run's status does not show what it waits for"
                );
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Whether it is time to say this instead of what is told.
    fn is_to_tell(&self, told: Option<&Condition>, said: Option<&(&'static str, String)>) -> bool {
        let told = told.map(|told| (told.reason.as_str(), told.message.as_str()));
        let said = said.map(|(why, message)| (*why, message.as_str()));
        let is_trouble = |it: Option<(&str, &str)>| it.is_some_and(|(why, _)| why == reason::WAITING);
        let is_of_here = is_trouble(told) || told.is_some_and(|(why, _)| why == reason::VERIFYING);
        let is_left = said.is_none() && !(is_of_here && self.has_told);
        if told == said || is_left {
            return false;
        }
        // What is not healthy changes all the time.
        let is_pressing = !self.has_failed && (is_trouble(told) || is_trouble(said));
        is_pressing || self.next.is_none_or(|next| next <= Instant::now())
    }

    fn said(&self) -> Said {
        let why = reason::WAITING;
        if let Some(awaited) = &self.awaited {
            return Some((why, awaited.clone()));
        }
        if self.is_stopping {
            return Some((why, STOPPING.to_owned()));
        }
        self.is_long().then(|| Some((reason::VERIFYING, self.unhealthy()?))).flatten()
    }

    /// What is not healthy, in a sentence.
    fn unhealthy(&self) -> Option<String> {
        let told: Vec<String> = self.unhealthy.iter().map(|(id, message)| format!("{id}: {message}")).collect();
        (!told.is_empty()).then(|| format!("not healthy yet: {}", text::first(&told, NAMED, "; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> ResourceId {
        ResourceId(format!("v1:Pod:shop:{name}"))
    }

    fn told(said: &Said) -> Option<Condition> {
        let mut conditions = Vec::new();
        if let Some((why, message)) = said {
            stoa_controller::conditions::set_condition(&mut conditions, reason::WAITING, true, why, message, None);
        }
        conditions.pop()
    }

    #[tokio::test(start_paused = true)]
    async fn unhealthy_resources_are_named_within_the_limit() {
        let mut waits = WaitingCondition::default();
        assert_eq!(waits.unhealthy(), None);
        waits.hear(&id("a"), Health::InProgress, false, "it is being pulled");
        waits.hear(&id("b"), Health::InProgress, false, "");
        assert_eq!(waits.said(), None, "much is healthy before");
        tokio::time::advance(EVERY).await;
        let expected = "not healthy yet: v1:Pod:shop:a: it is being pulled; v1:Pod:shop:b: InProgress";
        assert_eq!(waits.said(), Some((reason::VERIFYING, expected.to_owned())));
        for name in ["c", "d", "e"] {
            waits.hear(&id(name), Health::InProgress, false, "");
        }
        assert!(waits.unhealthy().unwrap().ends_with("v1:Pod:shop:c: InProgress; and 2 more"));
        waits.hear(&id("a"), Health::InProgress, true, "it is not healthy in time");
        assert!(!waits.unhealthy().unwrap().contains("v1:Pod:shop:a"), "nobody waits for it any more");
        for name in ["b", "c", "d", "e"] {
            waits.hear(&id(name), Health::Current, false, "");
        }
        assert_eq!(waits.said(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn messages_of_objects_are_bounded() {
        let mut waits = WaitingCondition::default();
        for name in ["a", "b", "c", "d"] {
            waits.hear(&id(name), Health::InProgress, false, &"ü".repeat(1 << 20));
        }
        let message = waits.unhealthy().unwrap();
        assert!(message.chars().count() < NAMED * (MESSAGE + 30) + 50, "{}", message.len());
        waits.hear_awaited(&["ü".repeat(2_000), "a cluster".to_owned()], false);
        assert!(waits.said().unwrap().1.chars().count() <= 1_025);
    }

    #[tokio::test(start_paused = true)]
    async fn unhealthy_resources_replace_the_wait_of_a_runner() {
        let mut waits = WaitingCondition::default();
        waits.hear(&id("a"), Health::InProgress, false, "");
        tokio::time::advance(EVERY).await;
        waits.hear_awaited(&["a cluster".to_owned()], false);
        let awaited = waits.said();
        assert_eq!(awaited, Some((reason::WAITING, "a cluster".to_owned())));
        waits.next = Some(Instant::now() + EVERY);
        assert!(waits.is_to_tell(None, awaited.as_ref()), "it does not wait until that is over");
        waits.hear_awaited(&[], false);
        let unhealthy = waits.said();
        assert_eq!(unhealthy.as_ref().map(|(why, _)| *why), Some(reason::VERIFYING));
        assert!(waits.is_to_tell(told(&awaited).as_ref(), unhealthy.as_ref()));
        waits.hear(&id("b"), Health::InProgress, false, "");
        assert!(!waits.is_to_tell(told(&unhealthy).as_ref(), waits.said().as_ref()), "it was told just now");
        tokio::time::advance(EVERY).await;
        assert!(waits.is_to_tell(told(&unhealthy).as_ref(), waits.said().as_ref()));
        waits.hear_awaited(&[], true);
        assert_eq!(waits.said(), Some((reason::WAITING, STOPPING.to_owned())));
        // What cannot be told is not tried at every moment.
        (waits.next, waits.has_failed) = (Some(Instant::now() + EVERY), true);
        assert!(!waits.is_to_tell(None, waits.said().as_ref()));
        tokio::time::advance(EVERY).await;
        assert!(waits.is_to_tell(None, waits.said().as_ref()));
    }

    #[tokio::test(start_paused = true)]
    async fn earlier_condition_survives_a_conversation() {
        let mut waits = WaitingCondition::default();
        let complaint = told(&Some((reason::WAITING, "the runner went away".to_owned())));
        assert!(!waits.is_to_tell(complaint.as_ref(), None));
        waits.has_told = true;
        assert!(waits.is_to_tell(complaint.as_ref(), None));
        let merge = told(&Some((reason::AWAITING_MERGE, "somebody is to merge it".to_owned())));
        assert!(!waits.is_to_tell(merge.as_ref(), None), "others say so");
    }
}
