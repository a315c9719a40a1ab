//! External schedulers: one conversation for each policy that names one, and their answers in the statuses of the policies.
//!
//! A key is a namespace. The decisions are in the log, so that every replica and every restart has the last ones. A scheduler that is
//! away changes only conditions.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use kube::ResourceExt as _;
use parking_lot::Mutex;
use stoa_controller::{blocking::on_own_thread, conditions::set_condition, object::ObjectKey, probes::Requeue, queue};
use stoa_kinds::scheduler::schedules::scheduled_inputs;
use stoa_machinery::ApiError;
use stoa_runs::Services;
use stoa_types::{
    common::Condition,
    reason,
    scheduler::{ClusterType, DeploymentTarget, SchedulingPolicy},
};
use tokio_util::sync::CancellationToken;

use super::{GATHER, of_namespace, status};
use crate::fleet::{Answer, Conversation, Question, Schedulers};

/// How many namespaces are brought about at once.
const AT_ONCE: usize = 8;
/// The most policies of a namespace with an external scheduler: each has a call.
const MOST: usize = 200;
/// The most bytes of the questions of a namespace. Each conversation has its own.
const BYTES: usize = 128 << 20;

/// The conversations of a namespace, by policy.
type Conversations = BTreeMap<String, Conversation>;

#[derive(Clone, Debug)]
struct Memory {
    services: Services,
    schedulers: Schedulers,
    conversations: Arc<Mutex<HashMap<String, Conversations>>>,
    requeue: Requeue,
}

pub(crate) async fn run((services, schedulers): (Services, Schedulers), end: CancellationToken) {
    let Ok(registry) = services.lookup.registry() else { return };
    let (requeue, answered) = Requeue::triggering();
    let triggers = vec![
        of_namespace::<SchedulingPolicy>(&registry),
        of_namespace::<ClusterType>(&registry),
        of_namespace::<DeploymentTarget>(&registry),
        answered.within(GATHER),
    ];
    let queues = services.queues.of("schedulers");
    let memory = Memory { services, schedulers: schedulers.clone(), conversations: Arc::default(), requeue };
    let reconcile = |(namespace, _): ObjectKey| reconcile(memory.clone(), namespace);
    queue::drive_some(queues, AT_ONCE, triggers, end, reconcile).await;
    schedulers.forget_all();
}

async fn reconcile(memory: Memory, namespace: String) -> Result<Option<Duration>, ApiError> {
    let policies = memory.services.lookup.api::<SchedulingPolicy>()?.list(Some(&namespace), "").await?;
    let has_scheduler = |policy: &SchedulingPolicy| policy.spec.scheduler.is_some();
    let (external, others): (Vec<_>, Vec<_>) = policies.into_iter().partition(has_scheduler);
    for policy in others.iter().filter(|policy| has_answer(policy)) {
        status::write(&memory.services, (&namespace, &policy.name_any()), clear).await?;
    }
    if external.is_empty() {
        if memory.conversations.lock().remove(&namespace).is_some() {
            memory.schedulers.forget(&namespace);
        }
        return Ok(None);
    }
    let inputs = scheduled_inputs(&memory.services.lookup, &namespace).await?;
    let questions = on_own_thread(move || {
        let of = |policy: &Arc<stoa_fleet::objects::SchedulingPolicy>| {
            Some((policy.name.clone(), Question::of(&inputs, policy)?))
        };
        within(inputs.policies.values().filter_map(of), BYTES)
    });
    let answers = memory.converse(&namespace, questions.await);
    for policy in &external {
        let name = policy.name_any();
        let answer = answers.get(&name).cloned().unwrap_or_else(|| Answer::rejected(MOST, BYTES));
        status::write(&memory.services, (&namespace, &name), |policy: &mut SchedulingPolicy| set(policy, &answer))
            .await?;
    }
    Ok(None)
}

/// The first questions, by policy, that have room together.
fn within(questions: impl Iterator<Item = (String, Question)>, mut bytes: usize) -> BTreeMap<String, Question> {
    let mut found = BTreeMap::new();
    for (policy, question) in questions {
        if found.len() == MOST {
            break;
        }
        if let Some(left) = bytes.checked_sub(question.size()) {
            bytes = left;
            found.insert(policy, question);
        }
    }
    found
}

impl Memory {
    /// Begins, keeps and ends the conversations of a namespace; their answers, by policy.
    fn converse(&self, namespace: &str, questions: BTreeMap<String, Question>) -> BTreeMap<String, Answer> {
        let mut all = self.conversations.lock();
        let conversations = all.entry(namespace.to_owned()).or_default();
        conversations.retain(|policy, conversation| questions.get(policy) == Some(conversation.question()));
        for (policy, question) in questions {
            conversations.entry(policy).or_insert_with(|| {
                let (requeue, namespace) = (self.requeue.clone(), namespace.to_owned());
                let has_changed = move || requeue.add((namespace.clone(), namespace.clone()));
                self.schedulers.converse(question, has_changed)
            });
        }
        conversations.iter().map(|(policy, conversation)| (policy.clone(), conversation.answer())).collect()
    }
}

/// Whether the status of a policy has an answer of a scheduler.
fn has_answer(policy: &SchedulingPolicy) -> bool {
    let status = policy.status.as_ref();
    status.is_some_and(|status| status.decisions.is_some() || status.conditions.iter().any(is_of_scheduler))
}

fn is_of_scheduler(condition: &Condition) -> bool {
    [reason::DECIDED, reason::DECISIONS_VALID].contains(&condition.type_.as_str())
}

/// Removes the answer from a policy that has no scheduler any more.
fn clear(policy: &mut SchedulingPolicy) {
    let status = policy.status.get_or_insert_default();
    status.decisions = None;
    status.conditions.retain(|condition| !is_of_scheduler(condition));
}

/// Writes an answer into a policy. Without new decisions, the last ones stay.
fn set(policy: &mut SchedulingPolicy, answer: &Answer) {
    let generation = policy.metadata.generation;
    let status = policy.status.get_or_insert_default();
    if let Some(decided) = &answer.decided {
        status.decisions = Some(decided.decisions.clone());
        let (are_valid, why, message) = match &decided.unknown {
            None => (true, reason::AVAILABLE, "the policy selects all objects that the scheduler names".to_owned()),
            Some(message) => (false, reason::UNKNOWN_OBJECTS, status::short(message.clone())),
        };
        set_condition(&mut status.conditions, reason::DECISIONS_VALID, are_valid, why, message, generation);
    }
    let (is_decided, why, message) = match (&answer.failed, &answer.decided) {
        (Some(failed), _) => {
            let rest = match status.decisions {
                Some(_) => "the last decisions stay",
                None => "no file is deleted before its first decision",
            };
            (false, failed.reason, status::short(format!("{}; {rest}", failed.message)))
        }
        (None, Some(_)) => (true, reason::DECIDED, "the decisions are those of the external scheduler".to_owned()),
        (None, None) => return,
    };
    set_condition(&mut status.conditions, reason::DECIDED, is_decided, why, message, generation);
}

#[cfg(test)]
mod tests;
