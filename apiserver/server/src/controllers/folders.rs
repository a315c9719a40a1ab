//! Whether a Source has the folder that a Project or Stack names. It is asked before any run needs the folder.
//!
//! Each question has a task of its own ([`stoa_controller::probes`]), which makes the object due once there is an answer. A folder that was
//! found is not asked about again. One that is missing is looked for again at the next commit of the Source.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use stoa_controller::{
    object::ObjectKey,
    probes::{Questions, Requeue},
};
use stoa_runs::{Services, StepError, contents::Folder};
use stoa_types::common::MissingFolder;

/// How long to wait where a source could not be asked.
pub(super) const LATER: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// There is no answer yet. The object is due again once there is.
    Unknown,
    /// The source cannot be asked for now.
    Failed,
    Found,
    Missing(MissingFolder),
}

impl Seen {
    /// Puts the answer into a status, if there is one.
    pub(super) fn note(&self, missing: &mut Option<MissingFolder>) {
        match self {
            Self::Unknown | Self::Failed => {}
            Self::Found => *missing = None,
            Self::Missing(folder) => *missing = Some(folder.clone()),
        }
    }

    /// When to look at the object again for it.
    pub(super) fn again(&self) -> Option<Duration> {
        (*self == Self::Failed).then_some(LATER)
    }
}

/// What is known of the folders of one kind of object, and the questions that are under way.
#[derive(Debug)]
pub(super) struct Folders {
    questions: Questions<(String, Folder), bool, StepError>,
    /// The source and path of each object whose folder was found.
    found: Mutex<HashMap<ObjectKey, (String, String)>>,
}

impl Folders {
    /// Makes an object due by `requeue` once there is an answer about its folder.
    pub(super) fn new(requeue: Requeue) -> Arc<Self> {
        Arc::new(Self { questions: Questions::new(requeue), found: Mutex::default() })
    }

    /// Forgets an object, and asks no longer about its folder.
    pub(super) fn forget(&self, of: &ObjectKey) {
        self.found.lock().remove(of);
        self.questions.forget(of);
    }

    /// The answer about the folder of an object. Asks for it where there is none.
    pub(super) fn look(&self, services: &Services, of: &ObjectKey, folder: Folder) -> Seen {
        let place = (folder.source.clone(), folder.path.clone());
        if self.found.lock().get(of) == Some(&place) {
            return Seen::Found;
        }
        let question = (of.0.clone(), folder.clone());
        self.questions.set(of, [question.clone()].into());
        let answer = self.questions.answer(of, &question, &of.0, |turns| {
            let (services, (namespace, folder)) = (services.clone(), question.clone());
            async move {
                let digest = services.contents.digest(&services, &turns, &namespace, folder).await?;
                Ok(digest.is_some())
            }
        });
        match answer {
            None => Seen::Unknown,
            Some(Err(_)) => Seen::Failed,
            Some(Ok(false)) => Seen::Missing(MissingFolder { path: folder.path, commit: folder.commit }),
            Some(Ok(true)) => {
                self.questions.forget(of);
                self.found.lock().insert(of.clone(), place);
                Seen::Found
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::StreamExt as _;
    use serde_json::json;
    use stoa_controller::conditions::set_condition;
    use stoa_proto::{ContentsRequest, ContentsResponse};
    use stoa_runs::testing::{Answer, FakeRunner, runner_at};
    use stoa_types::{
        Project, Source, Stack,
        common::{Condition, condition},
        reason,
    };
    use tokio_util::sync::CancellationToken;
    use tonic::{Request, Response};

    use super::*;
    use crate::{
        controllers::{projects, stacks},
        testing::TestServer,
    };

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A source whose commits that begin with `b` have all folders, and others none.
    #[derive(Clone, Debug, Default)]
    struct Growing(Arc<AtomicUsize>);

    #[tonic::async_trait]
    impl FakeRunner for Growing {
        async fn contents(&self, request: Request<ContentsRequest>) -> Answer<ContentsResponse> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let ContentsRequest { commit, mut paths, .. } = request.into_inner();
            paths.retain(|_| commit.starts_with('b'));
            let digests = paths.into_iter().map(|path| (path, "d".to_owned())).collect();
            Ok(Response::new(ContentsResponse { digests }))
        }
    }

    async fn observe(world: &TestServer, commit: &str) {
        let observe = |source: &mut Source| {
            let status = source.status.get_or_insert_default();
            status.observed_commit = Some(commit.repeat(40));
            set_condition(&mut status.conditions, reason::READY, true, reason::AVAILABLE, "", None);
        };
        world.registry.api::<Source>().update_status_with("shop", "config", observe).await.unwrap();
    }

    fn ready(conditions: &[Condition]) -> Option<(String, String)> {
        condition(conditions, reason::READY).map(|ready| (ready.reason.clone(), ready.message.clone()))
    }

    /// Waits until `Ready` of the project and of the stack have these reasons; their messages.
    async fn until(world: &TestServer, project: &str, stack: &str) -> [String; 2] {
        let (projects, stacks) = (world.registry.api::<Project>(), world.registry.api::<Stack>());
        let mut changes =
            futures_util::stream::select(projects.subscribe(None).map(drop), stacks.subscribe(None).map(drop));
        let so = async {
            loop {
                let of_project = projects.get("shop", "web").await.unwrap().status.unwrap_or_default();
                let of_stack = stacks.get("shop", "web").await.unwrap().status.unwrap_or_default();
                let missing = [of_project.missing_folder.is_some(), of_stack.missing_folder.is_some()];
                if let (Some(of_project), Some(of_stack)) = (ready(&of_project.conditions), ready(&of_stack.conditions))
                    && (of_project.0.as_str(), of_stack.0.as_str()) == (project, stack)
                    && missing == [project, stack].map(|why| why == reason::PATH_NOT_FOUND)
                {
                    return [of_project.1, of_stack.1];
                }
                changes.next().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, so).await.expect("they get there")
    }

    #[tokio::test]
    async fn missing_folder_is_reported_before_any_run() {
        let growing = Growing::default();
        let world = TestServer::with_runner(runner_at(growing.clone().serve())).await;
        let path = |project: &mut Project| project.spec.path = "apps".to_owned();
        world.registry.api::<Project>().update_with("shop", "web", path).await.unwrap();
        let end = CancellationToken::new();
        tokio::spawn(projects::run(world.services.clone(), end.clone()));
        tokio::spawn(stacks::run(world.services.clone(), end.clone()));
        let _end = end.drop_guard();
        observe(&world, "a").await;
        let messages = until(&world, reason::PATH_NOT_FOUND, reason::PATH_NOT_FOUND).await;
        let expected = ["apps", "apps/web"]
            .map(|path| format!("source \"config\" has no folder or file {path:?} at commit aaaaaaaa"));
        assert_eq!(messages, expected);

        // The next commit has it.
        observe(&world, "b").await;
        until(&world, reason::AVAILABLE, reason::NOT_DEPLOYED).await;
        let asked = growing.0.load(Ordering::Relaxed);
        observe(&world, "c").await;
        let describe = |stack: &mut Stack| stack.spec.description = Some("Web".to_owned());
        world.registry.api::<Stack>().update_with("shop", "web", describe).await.unwrap();
        until(&world, reason::AVAILABLE, reason::NOT_DEPLOYED).await;
        assert_eq!(growing.0.load(Ordering::Relaxed), asked, "what was found is not asked about again");
        let stacks = world.registry.api::<Stack>();
        let mut changes = stacks.subscribe(None);
        world.create("Stack", "api", json!({"project": "web", "path": "elsewhere"})).await;
        let missing = async {
            loop {
                let status = stacks.get("shop", "api").await.unwrap().status.unwrap_or_default();
                if ready(&status.conditions).is_some_and(|(why, _)| why == reason::PATH_NOT_FOUND) {
                    return;
                }
                changes.next().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, missing).await.expect("it is reported");
    }
}
