//! What the API server does with a runner: keeps the state, and acks what it has kept.

use std::collections::BTreeMap;
use std::time::Duration;

use stoa_engine::Spec;
use stoa_proto::apply_event::Event;
use stoa_proto::{
    Ack, ApplyEvent, ApplyRequest, ApplyStart, Cancel, FinishedEvent, GenerateRequest, Intent, PlanRequest,
    PlanResponse, ResultEvent, Source, StateEntry, Target, Workspace, apply_request,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::bed::Client;

pub(crate) struct Caller {
    pub(crate) client: Client,
    pub(crate) target: Target,
    pub(crate) state: BTreeMap<String, StateEntry>,
    /// How long each ack lets calls be under way.
    pub(crate) lease: Duration,
}

/// What the caller does when an event arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// Keeps it, and acks it where it wants that.
    Keep,
    /// Cancels, then keeps and acks it.
    CancelAndKeep,
    /// Drops the stream, as when it dies.
    HangUp,
    /// Does nothing, as when it is cut off.
    Ignore,
}

/// How an apply went.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The process that did it.
    pub(crate) instance: String,
    pub(crate) results: Vec<ResultEvent>,
    pub(crate) finished: Option<FinishedEvent>,
    pub(crate) error: Option<Status>,
}

impl Applied {
    pub(crate) fn outcomes(&self) -> Vec<(&str, &str, &str)> {
        self.results.iter().map(|r| (r.id.as_str(), r.action.as_str(), r.outcome.as_str())).collect()
    }

    pub(crate) fn finished(&self) -> &FinishedEvent {
        self.finished.as_ref().unwrap_or_else(|| panic!("{self:?}"))
    }
}

impl Caller {
    pub(crate) fn new(client: Client, workspace_spec: &serde_json::Value) -> Self {
        let workspace = Workspace {
            name: "dev".to_owned(),
            spec: workspace_spec.to_string().into_bytes().into(),
            ..Workspace::default()
        };
        let target = Target {
            organization: "shop".to_owned(),
            project: "web".to_owned(),
            stack: "web-dev".to_owned(),
            stack_uid: "5f0c7f44-0000-4000-8000-000000000001".to_owned(),
            workspace: Some(workspace),
            run_uid: "5f0c7f44-0000-4000-8000-000000000002".to_owned(),
            run_name: "web-dev-1".to_owned(),
            requester: "ann".to_owned(),
            commit: "1".repeat(40),
            spec_digest: String::new(),
            pull_request: 0,
            digest_keys: vec![vec![7; 32].into()],
            ..Target::default()
        };
        Self { client, target, state: BTreeMap::new(), lease: Duration::from_secs(6) }
    }

    /// Another run of the same stack.
    pub(crate) fn next_run(&mut self, name: &str) {
        name.clone_into(&mut self.target.run_name);
        self.target.run_uid = format!("uid-of-{name}");
    }

    pub(crate) async fn generate(&mut self, remote: &str, commit: &str, path: &str) -> Result<Spec, Status> {
        let request = GenerateRequest {
            source: Some(git(remote)),
            commit: commit.to_owned(),
            path: path.to_owned(),
            workspace: self.target.workspace.clone(),
            ..GenerateRequest::default()
        };
        let answer = self.client.generate(request).await?;
        let told = answer.metadata().get("stoa-spec-bytes").map(|bytes| bytes.to_str().unwrap().to_owned());
        let response = answer.into_inner();
        assert_eq!(told, Some(response.spec.len().to_string()), "it is said before how large it is");
        let spec: Spec = serde_json::from_slice(&response.spec).unwrap();
        Ok(spec)
    }

    fn target_of(&self, spec: &Spec) -> Target {
        Target { spec_digest: spec.digest(), ..self.target.clone() }
    }

    pub(crate) async fn plan(&mut self, spec: &Spec, destroy: bool) -> Result<PlanResponse, Status> {
        let request = PlanRequest {
            target: Some(self.target_of(spec)),
            spec: bytes_of(spec),
            state: self.state.values().cloned().collect(),
            destroy,
            ..PlanRequest::default()
        };
        Ok(self.client.plan(request).await?.into_inner())
    }

    pub(crate) async fn apply(&mut self, spec: &Spec, plan: &PlanResponse) -> Applied {
        self.apply_with(spec, plan, &[], |_| Reaction::Keep).await
    }

    pub(crate) async fn apply_with(
        &mut self,
        spec: &Spec,
        plan: &PlanResponse,
        done: &[String],
        mut react: impl FnMut(&ApplyEvent) -> Reaction,
    ) -> Applied {
        let (requests, stream) = mpsc::channel(16);
        let start = ApplyStart {
            target: Some(self.target_of(spec)),
            spec: bytes_of(spec),
            plan: plan.plan.clone(),
            state: self.state.values().cloned().collect(),
            done: done.to_vec(),
            parallelism: 0,
            owed: Vec::new(),
            ..ApplyStart::default()
        };
        requests.send(message(apply_request::Message::Start(start))).await.unwrap();
        let mut applied = Applied::default();
        let mut events = match self.client.apply(ReceiverStream::new(stream)).await {
            Ok(response) => response.into_inner(),
            Err(status) => return Applied { error: Some(status), ..applied },
        };
        let mut sequence = 0;
        loop {
            let event = match events.message().await {
                Ok(Some(event)) => event,
                Ok(None) => return applied,
                Err(status) => return Applied { error: Some(status), ..applied },
            };
            sequence += 1;
            assert_eq!(event.sequence, sequence, "events are numbered without a gap");
            assert!(applied.finished.is_none(), "nothing comes after the last event");
            let reaction = react(&event);
            match reaction {
                Reaction::HangUp => return applied,
                Reaction::Ignore => continue,
                Reaction::Keep | Reaction::CancelAndKeep => {}
            }
            if reaction == Reaction::CancelAndKeep {
                requests.send(message(apply_request::Message::Cancel(Cancel {}))).await.unwrap();
            }
            let wants_ack = self.keep(event.event.unwrap(), &mut applied);
            if wants_ack {
                let lease_millis = self.lease.as_millis().try_into().unwrap();
                requests.send(message(apply_request::Message::Ack(Ack { sequence, lease_millis }))).await.unwrap();
            }
        }
    }

    /// Keeps an event; says whether it wants an ack.
    fn keep(&mut self, event: Event, applied: &mut Applied) -> bool {
        match event {
            Event::Intent(intent) => {
                assert_eq!(intent.places.len(), intent.ids.len());
                for (id, place) in intent.ids.into_iter().zip(intent.places) {
                    let entry = self.state.entry(id.clone()).or_default();
                    entry.id = id;
                    entry.intent = Some(Intent {
                        action: intent.action.clone(),
                        run: self.target.run_uid.clone(),
                        place: Some(place),
                        retry: false,
                    });
                }
                true
            }
            Event::Result(result) => {
                if result.outcome == "Done" {
                    if result.resource.is_empty() {
                        self.state.remove(&result.id);
                    } else {
                        let resource = result.resource.clone();
                        self.state.insert(
                            result.id.clone(),
                            StateEntry { id: result.id.clone(), resource, ..StateEntry::default() },
                        );
                    }
                } else if let Some(entry) = self.state.get_mut(&result.id).filter(|_| result.outcome != "Unknown") {
                    entry.intent = None;
                }
                applied.results.push(result);
                true
            }
            Event::Health(_) => false,
            Event::Heartbeat(heartbeat) => {
                applied.instance = heartbeat.instance;
                true
            }
            Event::Finished(finished) => {
                applied.finished = Some(finished);
                false
            }
        }
    }
}

pub(crate) fn git(remote: &str) -> Source {
    Source { provider: "Git".to_owned(), remote: remote.to_owned(), ..Source::default() }
}

fn bytes_of(spec: &Spec) -> prost::bytes::Bytes {
    stoa_engine::digest::canonical_json(spec).into()
}

fn message(message: apply_request::Message) -> ApplyRequest {
    ApplyRequest { message: Some(message) }
}
