//! External schedulers: programs that decide about the SchedulingPolicies that name them.
//!
//! Start at [`Schedulers::converse`]. A [`Conversation`] keeps a call to one scheduler about one policy open, and has its last
//! [`Answer`]. Addresses are those of the server's flags, so that no tenant can have the server call another one.
//!
//! Elsewhere: `controllers::fleets::schedulers` holds the conversations and writes the answers into the policies.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use http::Uri;
use parking_lot::Mutex;
use stoa_controller::blocking::on_own_thread;
use stoa_fleet::{
    Inputs,
    objects::{Labels, SchedulingPolicy},
};
use stoa_machinery::backoff::{Jitter, Policy};
use stoa_proto::scheduler::{Candidate, DecideRequest, Decision, Decisions, scheduler_client::SchedulerClient};
use stoa_runs::runner::RunnerCertificates;
use stoa_types::{reason, scheduler::SchedulingDecision};
use tokio_util::task::AbortOnDropHandle;
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

use super::Failed;

/// The largest request, in bytes.
const LARGEST_REQUEST: usize = 32 << 20;
/// The largest answer, in bytes. The status of the policy has it.
const LARGEST_ANSWER: usize = 256 << 10;
/// The most decisions of an answer: each takes a bit for every cluster type and target.
const MOST_DECISIONS: usize = 1000;
/// The memory of a candidate without its texts, about, in bytes.
const CANDIDATE: usize = 256;
/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the first answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often an idle connection is tried, and how long the reply may take.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// The wait before a scheduler is asked again that ended its answers.
const AGAIN: Duration = Duration::from_secs(30);
/// The waits after failures.
const RETRY: Policy = Policy::new(Duration::from_secs(1), Duration::from_secs(60)).with_jitter(Jitter::FIFTH);
/// How many unknown objects a message names, and the most characters of a scheduler's text in one.
const NAMED: usize = 5;
const TEXT: usize = 300;

/// The external schedulers that the server knows. Clones share their connections.
#[derive(Clone, Debug)]
pub(crate) struct Schedulers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    addresses: BTreeMap<String, Uri>,
    certificates: RunnerCertificates,
    /// The connections, by scheduler and environment: no environment takes the streams of another.
    channels: Mutex<HashMap<(String, String), Channel>>,
}

/// A policy that an external scheduler decides about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    /// The name of the scheduler.
    pub(crate) scheduler: String,
    pub(crate) request: DecideRequest,
}

impl Question {
    /// The question of a policy; `None` for one without a scheduler.
    pub(crate) fn of(inputs: &Inputs, policy: &SchedulingPolicy) -> Option<Self> {
        let scheduler = policy.spec.scheduler.clone()?;
        let candidate = |name: &String, labels: &Labels| Candidate {
            name: name.clone(),
            labels: labels.clone().into_iter().collect(),
        };
        let cluster_types = inputs.cluster_types.values().filter(|it| policy.selects_cluster_type(it));
        let targets = inputs.targets.values().filter(|it| policy.selects_target(it));
        let request = DecideRequest {
            environment: inputs.environment.clone(),
            policy: policy.name.clone(),
            parameters: scheduler.parameters.into_iter().collect(),
            cluster_types: cluster_types.map(|it| candidate(&it.name, &it.labels)).collect(),
            deployment_targets: targets.map(|it| candidate(&it.name, &it.labels)).collect(),
        };
        Some(Self { scheduler: scheduler.name, request })
    }

    /// The memory that it takes, about, in bytes.
    pub(crate) fn size(&self) -> usize {
        let of_labels = |(key, value): (&String, &String)| key.len() + value.len();
        let of = |it: &Candidate| CANDIDATE + it.name.len() + it.labels.iter().map(of_labels).sum::<usize>();
        self.request.cluster_types.iter().chain(&self.request.deployment_targets).map(of).sum()
    }

    /// The key of its connection.
    fn connection(&self) -> (String, String) {
        (self.scheduler.clone(), self.request.environment.clone())
    }

    /// The decisions that count, or why the answer cannot be used.
    fn read(&self, answer: Decisions) -> Result<Decided, Failed> {
        if !answer.undecided.is_empty() {
            let message = format!("scheduler {} has not decided: {}", self.scheduler, shown(&answer.undecided));
            return Err(Failed { reason: reason::UNDECIDED, message });
        }
        let count = answer.decisions.len();
        if count > MOST_DECISIONS {
            return Err(self.failed(format!("its answer has {count} decisions, and {MOST_DECISIONS} are allowed")));
        }
        let names = |candidates: &[Candidate]| candidates.iter().map(|it| it.name.clone()).collect::<BTreeSet<_>>();
        let cluster_types = names(&self.request.cluster_types);
        let targets = names(&self.request.deployment_targets);
        let mut unknown = BTreeSet::new();
        let mut decisions = BTreeSet::new();
        for Decision { cluster_types: on, deployment_targets: of } in answer.decisions {
            let names_targets = !of.is_empty();
            let on = known("ClusterType", on, &cluster_types, &mut unknown);
            let of = known("DeploymentTarget", of, &targets, &mut unknown);
            // Without a known target, the decision is about none, and not about all.
            if !on.is_empty() && (!names_targets || !of.is_empty()) {
                decisions.insert((on, names_targets.then_some(of)));
            }
        }
        let complaint = self.complaint(&unknown);
        if let Some(message) = complaint.clone().filter(|_| decisions.is_empty()) {
            // It is about other objects. Taken as an empty decision, it would delete all files of the policy.
            return Err(Failed { reason: reason::UNKNOWN_OBJECTS, message });
        }
        let decision = |(cluster_types, deployment_targets): (BTreeSet<String>, Option<BTreeSet<String>>)| {
            let deployment_targets = deployment_targets.map(|names| names.into_iter().collect());
            SchedulingDecision { cluster_types: cluster_types.into_iter().collect(), deployment_targets }
        };
        Ok(Decided { decisions: decisions.into_iter().map(decision).collect(), unknown: complaint })
    }

    /// The message about objects that the policy does not select.
    fn complaint(&self, unknown: &BTreeSet<(&'static str, String)>) -> Option<String> {
        let named: Vec<String> =
            unknown.iter().take(NAMED).map(|(kind, name)| format!("{kind} {:?}", shown(name))).collect();
        let more = match unknown.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!unknown.is_empty()).then(|| {
            let (scheduler, named) = (&self.scheduler, named.join(", "));
            format!(
                "scheduler {scheduler} names objects that the policy does not select, without effect: {named}{more}"
            )
        })
    }

    fn failed(&self, why: impl std::fmt::Display) -> Failed {
        let message = format!("scheduler {}: {why}", self.scheduler);
        Failed { reason: reason::SCHEDULER_UNAVAILABLE, message }
    }

    fn refused(&self, status: &Status) -> Failed {
        self.failed(format_args!("{:?}: {}", status.code(), shown(status.message())))
    }
}

fn is_secured(uri: &Uri) -> bool {
    uri.scheme_str() == Some("https")
}

/// The names that are known. Others are noted.
fn known(
    kind: &'static str,
    names: Vec<String>,
    known: &BTreeSet<String>,
    unknown: &mut BTreeSet<(&'static str, String)>,
) -> BTreeSet<String> {
    let (found, others): (BTreeSet<String>, BTreeSet<String>) = names.into_iter().partition(|it| known.contains(it));
    unknown.extend(others.into_iter().map(|name| (kind, name)));
    found
}

/// A text of a scheduler, for people.
fn shown(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).take(TEXT).collect()
}

/// The decisions of a scheduler about a policy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decided {
    pub(crate) decisions: Vec<SchedulingDecision>,
    /// The message about objects that the policy does not select.
    pub(crate) unknown: Option<String>,
}

/// The state of a conversation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// The last decisions; `None` before the first.
    pub(crate) decided: Option<Decided>,
    /// Why there are no newer ones.
    pub(crate) failed: Option<Failed>,
}

impl Answer {
    /// The answer for a policy beyond the limits of its namespace: the number of policies, or the size of their questions.
    pub(crate) fn rejected(most: usize, bytes: usize) -> Self {
        let message = format!(
            "the namespace has more than {most} policies with an external scheduler, they select more than {} MiB of objects, or \
             the policy is invalid; remove policies, or select less",
            bytes >> 20
        );
        Self { decided: None, failed: Some(Failed { reason: reason::SCHEDULER_UNAVAILABLE, message }) }
    }
}

/// A call to a scheduler about a policy. It ends with the value.
#[derive(Debug)]
pub(crate) struct Conversation {
    question: Arc<Question>,
    answer: Arc<Mutex<Answer>>,
    _task: AbortOnDropHandle<()>,
}

impl Conversation {
    pub(crate) fn question(&self) -> &Question {
        &self.question
    }

    pub(crate) fn answer(&self) -> Answer {
        self.answer.lock().clone()
    }
}

impl Schedulers {
    /// The schedulers at these addresses. They see the server's certificate for function-runners.
    ///
    /// # Errors
    ///
    /// When the certificates cannot be used.
    pub(crate) fn new(addresses: BTreeMap<String, Uri>, certificates: RunnerCertificates) -> anyhow::Result<Self> {
        if addresses.values().any(is_secured) {
            certificates.tls()?;
        }
        Ok(Self(Arc::new(Shared { addresses, certificates, channels: Mutex::default() })))
    }

    /// Begins a conversation. `has_changed` is called after each change of its answer.
    pub(crate) fn converse(&self, question: Question, has_changed: impl Fn() + Send + Sync + 'static) -> Conversation {
        let (question, answer) = (Arc::new(question), Arc::<Mutex<Answer>>::default());
        let (of, into, schedulers) = (question.clone(), answer.clone(), self.clone());
        let task = tokio::spawn(async move {
            let note = |heard: Result<Decided, Failed>| {
                {
                    let mut answer = into.lock();
                    match heard {
                        Ok(decided) => *answer = Answer { decided: Some(decided), failed: None },
                        Err(failed) => answer.failed = Some(failed),
                    }
                }
                has_changed();
            };
            let mut failures = 0_u32;
            loop {
                let mut has_answered = false;
                let ended = schedulers.ask(&of, |heard| {
                    has_answered = true;
                    note(heard);
                });
                let ended = ended.await;
                if has_answered {
                    failures = 0;
                }
                let wait = match ended {
                    Ok(()) => AGAIN,
                    Err(failed) => {
                        failures = failures.saturating_add(1);
                        tracing::debug!(scheduler = of.scheduler, why = failed.message, "a scheduler does not answer");
                        schedulers.0.channels.lock().remove(&of.connection());
                        note(Err(failed));
                        RETRY.after(failures)
                    }
                };
                tokio::time::sleep(wait).await;
            }
        });
        Conversation { question, answer, _task: AbortOnDropHandle::new(task) }
    }

    /// Closes the idle connections of an environment.
    pub(crate) fn forget(&self, environment: &str) {
        self.0.channels.lock().retain(|(_, of), _| of != environment);
    }

    /// Closes all idle connections.
    pub(crate) fn forget_all(&self) {
        self.0.channels.lock().clear();
    }

    /// Asks a question, and passes the answers on until the scheduler ends them.
    async fn ask(
        &self,
        question: &Question,
        mut heard: impl FnMut(Result<Decided, Failed>) + Send,
    ) -> Result<(), Failed> {
        let late = |_| question.failed(format_args!("no answer within {} s", PATIENCE.as_secs()));
        let channel = self.channel(question).await?;
        let mut client = SchedulerClient::new(channel)
            .max_encoding_message_size(LARGEST_REQUEST)
            .max_decoding_message_size(LARGEST_ANSWER);
        // The futures of the client are large.
        let call = Box::pin(client.decide(question.request.clone()));
        let opened = tokio::time::timeout(PATIENCE, call).await;
        let mut answers = opened.map_err(late)?.map_err(|status| question.refused(&status))?.into_inner();
        let first = tokio::time::timeout(PATIENCE, answers.message()).await.map_err(late)?;
        let mut next = first.map_err(|status| question.refused(&status))?;
        if next.is_none() {
            return Err(question.failed("it ended the call without an answer"));
        }
        while let Some(answer) = next {
            heard(question.read(answer));
            next = answers.message().await.map_err(|status| question.refused(&status))?;
        }
        Ok(())
    }

    /// The connection to a scheduler. After a failure it is made anew, with the certificates that are in their files then.
    async fn channel(&self, question: &Question) -> Result<Channel, Failed> {
        let name = &question.scheduler;
        let Some(uri) = self.0.addresses.get(name) else {
            let message = format!("the server has no scheduler {name}; start it with --scheduler={name}=URL");
            return Err(Failed { reason: reason::SCHEDULER_NOT_FOUND, message });
        };
        let connection = question.connection();
        if let Some(channel) = self.0.channels.lock().get(&connection) {
            return Ok(channel.clone());
        }
        let mut endpoint = Endpoint::from(uri.clone())
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        if is_secured(uri) {
            let certificates = self.0.certificates.clone();
            let tls = on_own_thread(move || certificates.tls()).await.map_err(|error| question.failed(error))?;
            endpoint = endpoint.tls_config(tls).map_err(|error| question.failed(error))?;
        }
        let channel = endpoint.connect_lazy();
        self.0.channels.lock().insert(connection, channel.clone());
        Ok(channel)
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
