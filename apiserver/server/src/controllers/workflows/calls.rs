//! Calls the hooks that the status of a workflow says are called.
//!
//! Each has a task of its own, which tries until it is decided. What came of it is in memory until a look has noted it; whoever goes on after a crash finds in the status that it is called, and calls it again under
//! the same id.
//!
//! A call may take minutes and costs next to nothing meanwhile, so that there are many turns. What is waited for one counts for
//! no limit of the hook: its time begins with the first try. After a restart that is when it was noted that it is to be called, if
//! any try was noted, too, since nothing tells how much of the time it waited; it is tried once more in any case.

use std::{collections::HashMap, sync::Arc, time::Duration};

use http::{StatusCode, header, response::Parts};
use kube::ResourceExt as _;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use stoa_controller::{
    object::ObjectKey,
    probes::{MANY_AT_ONCE, NamespaceSlots, ProbeCache, ProbeSlots, Requeue},
    queue,
};
use stoa_kinds::{
    text::cut,
    workflow::{hook, stack_of},
};
use stoa_machinery::{
    RequestContext,
    backoff::{Jitter, Policy},
    outbound,
};
use stoa_notifications::{
    delivery::{Endpoint, Keys, LONGEST_WAIT, told},
    events::{Event, id, source_of},
};
use stoa_runs::Services;
use stoa_types::{
    DurationString, Workflow,
    delivery::{Hook, HookPhase, HookStatus, Step, StepPhase, StepStatus, WorkflowStatus},
};
use tokio::time::Instant;

use super::{
    context,
    machine::{Called, Which, has_failed, run_name},
    versions,
};

/// The type of the events that hooks get.
const TYPE: &str = "dev.stoa.workflow.hook";
/// So many characters of what is answered are kept.
const LONGEST: usize = 200;
/// So many runs are named to a hook.
const MOST_NAMED: usize = 1_000;

type Of = (String, Which);

/// The hooks that are called, and those that were and of which that is not noted yet.
#[derive(Debug)]
pub(super) struct Calls {
    asks: ProbeCache<Of, Called>,
    turns: ProbeSlots,
}

impl Default for Calls {
    fn default() -> Self {
        Self { asks: ProbeCache::default(), turns: ProbeSlots::new(MANY_AT_ONCE) }
    }
}

impl Calls {
    /// What came of the hooks that a workflow's status says are called, and begins to call those that are not yet. Others of the
    /// workflow are called no longer. `age` says how long ago a hook was to be called first.
    pub(super) fn look(
        &self,
        services: &Services,
        workflow: &Workflow,
        state: &WorkflowStatus,
        waves: &HashMap<String, Vec<Vec<String>>>,
        age: impl Fn(&HookStatus, &Which) -> Duration,
        requeue: &Requeue,
    ) -> HashMap<Which, Called> {
        let uid = workflow.uid().unwrap_or_default();
        let mut called = HashMap::new();
        let whole = hook::whole(&workflow.spec);
        // All that a hook after the steps is told of it is whether there is one.
        let failure = if has_failed(state, whole.as_ref()) { "it failed" } else { "" }.to_owned();
        let of_whole = StepStatus { hooks: state.hooks.clone(), failure, ..StepStatus::default() };
        let running = state.steps.iter().filter(|of| of.phase == StepPhase::Running).chain([&of_whole]);
        for of_step in running {
            let step = whole.iter().chain(&workflow.spec.steps).find(|step| step.name == of_step.name);
            let Some(step) = step else { continue };
            for status in of_step.hooks.iter().filter(|status| status.phase == HookPhase::Running) {
                let Some((hook, is_pre)) = hook::find(step, &status.name) else { continue };
                let which = (step.name.clone(), hook.name.clone(), status.wave);
                let first = || Called { attempts: status.attempts, ..Called::default() };
                let is_undecided = |called: &Called| called.phase == HookPhase::Running;
                let noted = self.asks.probe((uid.clone(), which.clone()), first, is_undecided, |noted| {
                    let place = HookContext { step, of_step, hook, status, is_pre };
                    let waves = waves.get(&step.name).map_or(&[][..], Vec::as_slice);
                    let key = queue::key_of(workflow);
                    let was_tried = noted.lock().attempts > 0;
                    let call = Call {
                        services: services.clone(),
                        context: context(services, state),
                        turns: self.turns.of(&key.0),
                        key,
                        hook: hook.clone(),
                        event: event(workflow, state, &place, waves),
                        age: if was_tried { age(status, &which) } else { Duration::ZERO },
                        called: noted,
                        requeue: requeue.clone(),
                    };
                    call.run()
                });
                let noted = noted.lock().clone();
                called.insert(which, noted);
            }
        }
        self.asks.retain(|(of, which)| *of != uid || called.contains_key(which));
        called
    }

    pub(super) fn forget(&self, uid: &str) {
        self.asks.retain(|(of, _)| of != uid);
    }
}

/// A hook, and where it is called.
struct HookContext<'a> {
    step: &'a Step,
    of_step: &'a StepStatus,
    hook: &'a Hook,
    status: &'a HookStatus,
    is_pre: bool,
}

/// What a hook gets: the same id on every try. It has names and numbers, and nothing that infrastructure said.
fn event(workflow: &Workflow, state: &WorkflowStatus, place: &HookContext<'_>, waves: &[Vec<String>]) -> Event {
    let HookContext { step, of_step, hook, status, is_pre } = place;
    let (namespace, name) = queue::key_of(workflow);
    let uid = workflow.uid().unwrap_or_default();
    let wave = status.wave.map(|wave| wave.to_string()).unwrap_or_default();
    let selected = status.wave.and_then(|wave| usize::try_from(wave - 1).ok());
    let workspaces: Vec<&String> = match selected {
        Some(wave) => waves.get(wave).into_iter().flatten().collect(),
        None => waves.iter().flatten().collect(),
    };
    let run = |workspace: &&String| {
        let name = run_name(&name, &uid, &step.name, workspace);
        let phase = of_step.runs.iter().find(|run| run.name == name).map(|run| run.phase);
        without_nothing(json!({ "name": name, "workspace": workspace, "phase": phase }))
    };
    let runs: Vec<Value> = workspaces.iter().take(MOST_NAMED).map(run).collect();
    let has_failed = !of_step.failure.is_empty();
    let outcome = (!is_pre).then_some(if has_failed { "Failed" } else { "Succeeded" });
    let of_run = step.run.as_ref();
    Event {
        specversion: "1.0".to_owned(),
        id: id(&[&uid, TYPE, &step.name, &hook.name, &wave]),
        source: source_of(&namespace),
        event_type: TYPE.to_owned(),
        subject: format!("workflows/{name}"),
        time: status.start_time.as_ref().map_or(jiff::Timestamp::UNIX_EPOCH, |time| time.0),
        datacontenttype: "application/json".to_owned(),
        data: without_nothing(json!({
            "kind": "Workflow",
            "name": name,
            "namespace": namespace,
            "organization": namespace,
            "uid": uid,
            "link": format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{namespace}/workflows/{name}"),
            "requester": state.requester.username,
            "step": of_run.map(|_| &step.name),
            "hook": hook.name,
            "phase": if *is_pre { "Pre" } else { "Post" },
            "outcome": outcome,
            "wave": status.wave,
            "waves": of_run.map(|_| waves.len()),
            "operation": of_run.map(|run| run.operation),
            "stack": of_run.map(|run| stack_of(&workflow.spec, run)),
            "commit": of_run.and_then(|run| versions::of_step(workflow, &state.versions, run)),
            "counts": of_step.counts.filter(|_| !is_pre),
            "workspaces": of_run.map(|_| workspaces.iter().take(MOST_NAMED).collect::<Vec<_>>()),
            "runs": of_run.map(|_| runs),
            "steps": of_run.is_none().then(|| steps_of(state)),
            "omitted": Some(workspaces.len().saturating_sub(MOST_NAMED)).filter(|more| *more > 0),
        })),
    }
}

fn steps_of(state: &WorkflowStatus) -> Vec<Value> {
    let told =
        |step: &StepStatus| without_nothing(json!({ "name": step.name, "phase": step.phase, "counts": step.counts }));
    state.steps.iter().map(told).collect()
}

fn without_nothing(mut value: Value) -> Value {
    if let Value::Object(fields) = &mut value {
        fields.retain(|_, value| !value.is_null());
    }
    value
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Passed(String),
    Failed(String),
    /// It may pass another time, at the earliest after this.
    Later(String, Option<Duration>),
}

struct Call {
    services: Services,
    /// Of whoever asked for the workflow.
    context: RequestContext,
    key: ObjectKey,
    turns: NamespaceSlots,
    hook: Hook,
    event: Event,
    /// How long ago it was tried first, before this server did.
    age: Duration,
    called: Arc<Mutex<Called>>,
    requeue: Requeue,
}

impl Call {
    /// Calls until it is decided, and says so each time.
    async fn run(self) {
        let (begin, mut waited) = (Instant::now(), Duration::ZERO);
        // Its strategy has seen to it that they can be read.
        let read = |text: &DurationString| text.parse().unwrap_or_default();
        let bundle = self.hook.ca_bundle.as_ref().map_or(&[][..], |bundle| &bundle.0);
        let tls = outbound::tls(bundle).or_else(|_| outbound::tls(&[])).expect("what the system trusts is no bundle");
        let endpoint = Endpoint {
            client: outbound::client(tls),
            uri: self.hook.url.parse().unwrap_or_default(),
            timeout: read(&self.hook.timeout),
        };
        let retry = &self.hook.retry;
        let (most_age, backoff) =
            (read(&retry.max_age), Policy::new(read(&retry.min_backoff), read(&retry.max_backoff)));
        loop {
            let due = Instant::now();
            let turn = self.turns.take().await;
            waited += due.elapsed();
            let answer = self.attempt(&endpoint).await;
            drop(turn);
            let attempts = self.called.lock().attempts + 1;
            let (phase, message, wait) = match answer {
                Answer::Passed(message) => (HookPhase::Succeeded, message, None),
                Answer::Failed(why) => (HookPhase::Failed, why, None),
                Answer::Later(why, retry_after) => {
                    let wait = backoff.with_jitter(Jitter::HALF).after(u32::try_from(attempts).unwrap_or(u32::MAX));
                    let wait = wait.max(retry_after.unwrap_or_default());
                    let is_late = self.age + begin.elapsed().saturating_sub(waited) + wait > most_age;
                    match is_late || retry.max_attempts.is_some_and(|most| attempts >= most) {
                        true => (HookPhase::Failed, why, None),
                        false => (HookPhase::Running, why, Some(wait)),
                    }
                }
            };
            *self.called.lock() = Called { attempts, message, phase };
            self.requeue.add(self.key.clone());
            let Some(wait) = wait else { return };
            tokio::time::sleep(wait).await;
        }
    }

    /// One try, for whoever asked for the workflow and as far as they may.
    async fn attempt(&self, endpoint: &Endpoint) -> Answer {
        let namespace = &self.key.0;
        match hook::require(&self.context, namespace, &self.hook).await {
            Ok(()) => {}
            Err(error) if error.code() == 403 => return Answer::Failed(clean(error.message())),
            Err(error) => return Answer::Later(clean(error.message()), None),
        }
        let secret = match self.secret().await {
            Ok(secret) => secret,
            Err(why) => return Answer::Later(why, None),
        };
        let keys = match Keys::parse(&secret) {
            Ok(keys) => keys,
            Err(error) => return Answer::Later(format!("{}: {error}", self.place()), None),
        };
        let now = self.services.now();
        match endpoint.ask(&self.event, &keys, now).await {
            Ok((answer, body)) => {
                let message = message(&answer, body.as_deref(), &secret);
                decide(answer.status, message, outbound::retry_after(&answer.headers, now, LONGEST_WAIT))
            }
            Err(why) => Answer::Later(clean(&why), None),
        }
    }

    fn place(&self) -> String {
        let secret = &self.hook.secret_ref;
        format!("key {:?} of Secret {}", secret.key, secret.name)
    }

    async fn secret(&self) -> Result<Vec<u8>, String> {
        let secret = &self.hook.secret_ref;
        let found = self.services.cluster.secret(&self.key.0, &secret.name).await;
        let found = found.map_err(|error| {
            tracing::warn!(namespace = self.key.0, workflow = self.key.1, %error, "a Secret cannot be read");
            format!("{} cannot be read", self.place())
        })?;
        let mut keys = found.ok_or_else(|| format!("Secret {} does not exist", secret.name))?;
        keys.remove(&secret.key).ok_or_else(|| format!("Secret {} has no key {:?}", secret.name, secret.key))
    }
}

fn decide(status: StatusCode, message: Option<String>, retry_after: Option<Duration>) -> Answer {
    if status.is_success() {
        return Answer::Passed(message.unwrap_or_default());
    }
    let why = match message {
        Some(message) => clean(&format!("{}: {message}", told(status))),
        None => told(status),
    };
    match status {
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            Answer::Later(why, retry_after)
        }
        _ if status.is_client_error() || status.is_redirection() => Answer::Failed(why),
        _ => Answer::Later(why, retry_after),
    }
}

#[derive(Deserialize)]
struct Said {
    message: String,
}

/// What an answer says to people, if it says so in JSON.
fn message(answer: &Parts, body: Option<&[u8]>, secret: &[u8]) -> Option<String> {
    let kind = answer.headers.get(header::CONTENT_TYPE)?.to_str().ok()?.split(';').next()?.trim().to_ascii_lowercase();
    if kind != "application/json" && !kind.ends_with("+json") {
        return None;
    }
    let said: Said = serde_json::from_slice(body?).ok()?;
    // Before it is cut: the beginning of a key tells much of it.
    Some(said.message).filter(|said| !has_key(said, secret)).map(|said| clean(&said)).filter(|said| !said.is_empty())
}

/// The beginning of a text from anywhere, in one line and without characters that are not seen but change what is.
fn clean(text: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let seen: String = text.chars().map(|c| if is_hidden(c) { ' ' } else { c }).take(4 * LONGEST).collect();
    let words = seen.split_whitespace().collect::<Vec<_>>().join(" ");
    cut(&words, LONGEST)
}

/// Whether a text has in it what is signed with.
fn has_key(text: &str, secret: &[u8]) -> bool {
    let keys = secret.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let keys = keys.map(|key| key.strip_prefix(b"whsec_").unwrap_or(key)).filter(|key| !key.is_empty());
    keys.into_iter().any(|key| text.as_bytes().windows(key.len()).any(|part| part == key))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use http::{HeaderMap, Response};
    use stoa_machinery::Object;

    use super::*;
    use crate::testing::TestServer;

    const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    /// A call that has two minutes and whose key is missing.
    fn call(services: &Services, turns: &NamespaceSlots, age: Duration) -> Call {
        let hook = json!({"name": "ask", "url": "https://hooks.example.com", "timeout": "10s",
            "secretRef": {"name": "hooks", "key": "key"},
            "retry": {"maxAge": "2m", "minBackoff": "1s", "maxBackoff": "10s"}});
        let event = Event {
            specversion: "1.0".to_owned(),
            id: "1".to_owned(),
            source: String::new(),
            event_type: TYPE.to_owned(),
            subject: String::new(),
            time: jiff::Timestamp::UNIX_EPOCH,
            datacontenttype: "application/json".to_owned(),
            data: Value::Null,
        };
        Call {
            services: services.clone(),
            context: RequestContext::internal("test"),
            key: ("shop".to_owned(), "w".to_owned()),
            turns: turns.clone(),
            hook: serde_json::from_value(hook).unwrap(),
            event,
            age,
            called: Arc::default(),
            requeue: Requeue::default(),
        }
    }

    #[tokio::test]
    async fn hook_timeout_starts_at_first_attempt() {
        let world = TestServer::with_secrets().await;
        tokio::time::pause();
        let turns = ProbeSlots::default().of("shop");
        let held: Vec<_> = std::iter::from_fn(|| turns.take().now_or_never()).collect();
        let call = call(&world.services, &turns, Duration::ZERO);
        let called = call.called.clone();
        let calling = tokio::spawn(call.run());
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(*called.lock(), Called::default(), "it waits");
        drop(held);
        let begin = Instant::now();
        calling.await.unwrap();
        assert_eq!(called.lock().phase, HookPhase::Failed);
        let took = begin.elapsed();
        assert!((Duration::from_mins(1)..=Duration::from_mins(2)).contains(&took), "{took:?}");
    }

    #[tokio::test]
    async fn expired_hook_gets_one_attempt_after_restart() {
        let world = TestServer::with_secrets().await;
        let turns = ProbeSlots::default().of("shop");
        let call = call(&world.services, &turns, Duration::from_mins(3));
        let called = call.called.clone();
        call.run().await;
        let Called { attempts, phase, message } = called.lock().clone();
        let why = "Secret hooks does not exist";
        assert_eq!((attempts, phase, message.as_str()), (1, HookPhase::Failed, why));
    }

    #[tokio::test]
    async fn error_distinguishes_missing_secret_from_missing_key() {
        let world = TestServer::with_secrets().await;
        let call = call(&world.services, &ProbeSlots::default().of("shop"), Duration::ZERO);
        assert_eq!(call.secret().await.unwrap_err(), "Secret hooks does not exist");
        let secret = json!({"metadata": {"name": "hooks"}, "stringData": {"other": KEY}});
        let Value::Object(secret) = secret else { unreachable!("a map") };
        let store = world.registry.store("", "v1", "secrets").unwrap();
        store.create(&RequestContext::internal("test"), "shop", Object(secret)).await.unwrap();
        assert_eq!(call.secret().await.unwrap_err(), "Secret hooks has no key \"key\"");
    }

    #[test]
    fn answers_say_whether_a_hook_passed() {
        let answer = |status: u16| decide(StatusCode::from_u16(status).unwrap(), Some("so".to_owned()), None);
        for status in [200, 201, 202, 204] {
            assert_eq!(answer(status), Answer::Passed("so".to_owned()), "{status}");
        }
        for status in [301, 302, 307, 400, 401, 403, 404, 409, 410, 422] {
            assert!(matches!(answer(status), Answer::Failed(_)), "{status}");
        }
        for status in [408, 425, 429, 500, 502, 503, 504, 599] {
            assert!(matches!(answer(status), Answer::Later(..)), "{status}");
        }
        assert_eq!(answer(403), Answer::Failed("the endpoint answered 403 Forbidden: so".to_owned()));
        let wait = Some(Duration::from_secs(7));
        let busy = decide(StatusCode::SERVICE_UNAVAILABLE, None, wait);
        assert_eq!(busy, Answer::Later("the endpoint answered 503 Service Unavailable".to_owned(), wait));
    }

    #[test]
    fn hook_reports_only_short_clean_json_message() {
        let said = |kind: &str, body: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            let (mut parts, ()) = Response::new(()).into_parts();
            parts.headers = headers;
            message(&parts, Some(body.as_bytes()), KEY.as_bytes())
        };
        let json = "application/json; charset=utf-8";
        assert_eq!(said(json, r#"{"message": "go", "x": 1}"#).as_deref(), Some("go"));
        assert_eq!(said("application/problem+json", r#"{"message": "go"}"#).as_deref(), Some("go"));
        for (kind, body) in [
            ("text/plain", "go"),
            ("text/html", r#"{"message": "go"}"#),
            (json, ""),
            (json, "[]"),
            (json, r#"{"message": 1}"#),
            (json, r#"{"message": " \n "}"#),
        ] {
            assert_eq!(said(kind, body), None, "{body}");
        }
        let hidden = "{\"message\": \"a\\u001b[31m\\r\\nb\\u202ec\\u200bd\"}";
        assert_eq!(said(json, hidden).as_deref(), Some("a [31m b c d"));
        let echoed = format!("{{\"message\": \"signed with {}{KEY}\"}}", "x".repeat(LONGEST - 20));
        assert_eq!(said(json, &echoed), None, "not even its beginning");
        let long = said(json, &format!("{{\"message\": \"{}\"}}", "ä".repeat(9_000))).unwrap();
        assert_eq!((long.chars().count(), long.ends_with("ä…")), (LONGEST + 1, true));
    }

    #[test]
    fn an_answer_with_the_key_in_it_is_known() {
        let secret = b"\nwhsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\nplain plain plain plain plain\n";
        for (text, is_known) in [
            ("signed with MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", true),
            ("plain plain plain plain plain!", true),
            ("plain", false),
            ("", false),
        ] {
            assert_eq!(has_key(text, secret), is_known, "{text}");
        }
    }
}
