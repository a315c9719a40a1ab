//! The digests of folders of Sources. One call of a runner answers all questions about a commit that wait for it.
//!
//! A commit of a Source with 1,000 Stacks makes each of them due at once, and people create Stacks by the hundred. A call costs
//! the runner some 10 ms whatever it asks. So questions are gathered for a while before each call.

use std::{
    collections::{
        HashMap,
        hash_map::Entry::{Occupied, Vacant},
    },
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use stoa_controller::probes::{NamespaceSlots, RepositoryTimeout};
use stoa_proto::{ContentRequest, ContentsRequest, ValuesFiles};
use stoa_types::reason;
use tokio::sync::oneshot;
use tonic::Code;

use super::{Services, StepError, runner, target};

/// How long questions about a commit are gathered before a call.
const GATHER: Duration = Duration::from_millis(100);

/// The number of paths in one call.
const MOST_PATHS: usize = 1_000;

/// A folder, or the file in its place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Folder {
    /// The Source, in the namespace of the object that names the folder.
    pub source: String,
    /// The commit of the Source, 40 hexadecimal digits.
    pub commit: String,
    /// From the root of the Source.
    pub path: String,
    /// The values files of a chart, from the folder. Those outside of it decide the digest too.
    pub values_files: Vec<String>,
}

/// The questions that wait, by the commit that they are about. An entry has a task that answers it.
#[derive(Clone, Debug, Default)]
pub struct Contents(Arc<Mutex<HashMap<Commit, Vec<Question>>>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Commit {
    namespace: String,
    source: String,
    id: String,
}

#[derive(Debug)]
struct Question {
    path: String,
    values_files: Vec<String>,
    answer: oneshot::Sender<Answer>,
}

/// The digest of a folder; nothing where it does not exist.
type Answer = Result<Option<String>, StepError>;

impl Contents {
    /// The digest of a folder, which changes with its content; nothing where it does not exist. A call waits for one of the slots.
    ///
    /// # Errors
    ///
    /// When the Source does not exist, or cannot be read now.
    pub async fn digest(&self, services: &Services, slots: &NamespaceSlots, namespace: &str, folder: Folder) -> Answer {
        let Folder { source, commit: id, path, values_files } = folder;
        let commit = Commit { namespace: namespace.to_owned(), source, id };
        let (answer, answered) = oneshot::channel();
        let question = Question { path, values_files, answer };
        let is_first = match self.0.lock().entry(commit.clone()) {
            Occupied(mut waiting) => {
                waiting.get_mut().push(question);
                false
            }
            Vacant(entry) => {
                entry.insert(vec![question]);
                true
            }
        };
        if is_first {
            // A task of its own, since the asker may go while others wait.
            tokio::spawn(self.clone().answer_all(services.clone(), slots.clone(), commit));
        }
        // A call that took too long has dropped its questions.
        answered.await.unwrap_or_else(|_| Err(RepositoryTimeout.into()))
    }

    async fn answer_all(self, services: Services, slots: NamespaceSlots, commit: Commit) {
        loop {
            tokio::time::sleep(GATHER).await;
            if !slots.ask_repository(self.answer_some(&services, &commit)).await.unwrap_or(true) {
                return;
            }
        }
    }

    /// Answers the questions that wait. Returns whether there were any.
    async fn answer_some(&self, services: &Services, commit: &Commit) -> bool {
        let Some(questions) = self.take(commit) else { return false };
        let paths = questions.iter().map(|question| question.path.clone()).collect();
        let with_files = questions.iter().filter(|question| !question.values_files.is_empty());
        let values_files =
            with_files.map(|it| (it.path.clone(), ValuesFiles { values_files: it.values_files.clone() })).collect();
        let answer = Box::pin(ask(services, commit, paths, values_files)).await;
        for Question { path, answer: asker, .. } in questions {
            // An asker that is gone needs no answer.
            let _ = asker.send(answer.as_ref().map(|digests| digests.get(&path).cloned()).map_err(Clone::clone));
        }
        true
    }

    /// The questions of the next call. A path has the same values files in all of them. The entry goes where there are none.
    fn take(&self, commit: &Commit) -> Option<Vec<Question>> {
        let mut all = self.0.lock();
        let waiting = all.get_mut(commit)?;
        waiting.retain(|question| !question.answer.is_closed());
        if waiting.is_empty() {
            all.remove(commit);
            return None;
        }
        let mut by_path: HashMap<String, Vec<String>> = HashMap::new();
        let mut count = 0;
        let is_next = |question: &mut Question| {
            let files = by_path.entry(question.path.clone()).or_insert_with(|| question.values_files.clone());
            let is_next = count < MOST_PATHS && *files == question.values_files;
            count += usize::from(is_next);
            is_next
        };
        Some(waiting.extract_if(.., is_next).collect())
    }
}

/// The digests of the paths that exist.
async fn ask(
    services: &Services,
    of: &Commit,
    paths: Vec<String>,
    values_files: HashMap<String, ValuesFiles>,
) -> Result<HashMap<String, String>, StepError> {
    let source = Some(target::source_at(services, &of.namespace, &of.source).await?);
    let request = ContentsRequest { source, commit: of.id.clone(), paths, values_files };
    match services.runner.contents(request.clone()).await {
        Ok(response) => Ok(response.into_inner().digests),
        Err(status) if status.code() == Code::Unimplemented => one_by_one(services, request).await,
        Err(status) => Err(runner::halt(&status, reason::SOURCE_UNREACHABLE)),
    }
}

/// Asks a runner of an earlier version.
async fn one_by_one(services: &Services, request: ContentsRequest) -> Result<HashMap<String, String>, StepError> {
    let ContentsRequest { source, commit, paths, .. } = request;
    let mut digests = HashMap::new();
    for path in paths {
        // Such a runner knows no values files.
        let (source, commit) = (source.clone(), commit.clone());
        let request = ContentRequest { path: path.clone(), source, commit, ..ContentRequest::default() };
        match services.runner.content(request).await {
            Ok(response) => drop(digests.insert(path, response.into_inner().digest)),
            Err(status) if runner::lacks_path(&status) => {}
            Err(status) => return Err(runner::halt(&status, reason::SOURCE_UNREACHABLE)),
        }
    }
    Ok(digests)
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use prost::Message as _;
    use stoa_controller::probes::ProbeSlots;
    use stoa_machinery::log::MemoryLog;
    use stoa_proto::{ContentResponse, ContentsResponse, Problem};
    use tokio::sync::Semaphore;
    use tonic::{Request, Response, Status};

    use super::*;
    use crate::{
        runner::Runner,
        testing::{self, FakeRunner, TestServices, runner_at},
    };

    /// The digest of each path is its name in capitals; `none` does not exist.
    fn digest(path: &str) -> Option<String> {
        (path != "none").then(|| path.to_uppercase())
    }

    /// A runner that notes how many paths each call has, and answers where it may.
    #[derive(Clone, Debug)]
    struct Batches(Arc<(Mutex<Vec<usize>>, Semaphore)>);

    #[tonic::async_trait]
    impl FakeRunner for Batches {
        async fn contents(&self, request: Request<ContentsRequest>) -> testing::Answer<ContentsResponse> {
            let ContentsRequest { commit, paths, source, values_files } = request.into_inner();
            self.0.0.lock().push(paths.len());
            self.0.1.acquire().await.unwrap().forget();
            assert!(source.is_some());
            if commit != "a".repeat(40) {
                return Err(Status::invalid_argument("no such commit"));
            }
            let of = |path: &str| {
                let files = values_files.get(path).map(|of| of.values_files.concat()).unwrap_or_default();
                Some(digest(path)? + &files)
            };
            let digests = paths.into_iter().filter_map(|path| Some((path.clone(), of(&path)?))).collect();
            Ok(Response::new(ContentsResponse { digests }))
        }
    }

    /// A runner of an earlier version.
    #[derive(Clone, Debug)]
    struct Earlier;

    #[tonic::async_trait]
    impl FakeRunner for Earlier {
        async fn content(&self, request: Request<ContentRequest>) -> testing::Answer<ContentResponse> {
            let reason = reason::PATH_NOT_FOUND.to_owned();
            let missing = Problem { reason, message: "does not exist".to_owned(), ..Problem::default() };
            let missing = || Status::with_details(Code::NotFound, "none", missing.encode_to_vec().into());
            let digest = digest(&request.into_inner().path).ok_or_else(missing)?;
            Ok(Response::new(ContentResponse { digest }))
        }
    }

    async fn world(runner: Runner) -> TestServices {
        TestServices::over(Arc::new(MemoryLog::new()), runner, |builder| builder, |_| |_, definition| definition).await
    }

    async fn ask_for(services: &Services, paths: &[&str], commit: &str) -> Vec<Answer> {
        let slots = ProbeSlots::default().of("shop");
        join_all(paths.iter().map(|path| {
            // `x=a` is the path x with the values file a.
            let (path, file) = path.split_once('=').map_or((*path, None), |(path, file)| (path, Some(file.to_owned())));
            let folder = Folder {
                source: "config".to_owned(),
                commit: commit.repeat(40),
                path: path.to_owned(),
                values_files: file.into_iter().collect(),
            };
            services.contents.digest(services, &slots, "shop", folder)
        }))
        .await
    }

    fn found(path: &str) -> Answer {
        Ok(digest(path))
    }

    #[tokio::test]
    async fn one_call_answers_all_that_wait() {
        let batches = Batches(Arc::new((Mutex::default(), Semaphore::new(0))));
        let world = world(runner_at(batches.clone().serve())).await;
        let services = world.services.clone();
        let first = tokio::spawn(async move { ask_for(&services, &["x"], "a").await });
        while batches.0.0.lock().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let paths = ["y", "none", "y", "z"];
        let (answers, ()) = tokio::join!(ask_for(&world.services, &paths, "a"), async { batches.0.1.add_permits(9) });
        assert_eq!(answers, paths.map(found));
        assert_eq!(first.await.unwrap(), [found("x")]);
        assert_eq!(*batches.0.0.lock(), [1, 4]);
        let refused = ask_for(&world.services, &["x", "y"], "b").await;
        assert!(refused.iter().all(|answer| matches!(answer, Err(StepError::Failed { .. }))), "{refused:?}");
    }

    #[tokio::test]
    async fn questions_are_gathered_before_a_call() {
        let batches = Batches(Arc::new((Mutex::default(), Semaphore::new(9))));
        let world = world(runner_at(batches.clone().serve())).await;
        let mut calls = Vec::new();
        // A machine with much to do may take longer than that between the two.
        while calls.len() < 30 && !calls.contains(&vec![2]) {
            let services = world.services.clone();
            let first = tokio::spawn(async move { ask_for(&services, &["x"], "a").await });
            tokio::time::sleep(GATHER / 10).await;
            assert_eq!(ask_for(&world.services, &["y"], "a").await, [found("y")]);
            assert_eq!(first.await.unwrap(), [found("x")]);
            calls.push(std::mem::take(&mut *batches.0.0.lock()));
            // No call follows.
            tokio::time::sleep(GATHER * 2).await;
        }
        assert!(calls.contains(&vec![2]), "{calls:?}");
    }

    #[tokio::test]
    async fn values_files_of_a_path_are_asked_apart() {
        let batches = Batches(Arc::new((Mutex::default(), Semaphore::new(9))));
        let world = world(runner_at(batches.clone().serve())).await;
        let answers = ask_for(&world.services, &["x", "x=a", "y=b", "x=a"], "a").await;
        assert_eq!(answers, ["X", "Xa", "Yb", "Xa"].map(|digest| Ok(Some(digest.to_owned()))));
        assert_eq!(batches.0.0.lock().iter().sum::<usize>(), 4);
    }

    #[tokio::test]
    async fn runner_of_an_earlier_version_is_asked_one_by_one() {
        let world = world(runner_at(Earlier.serve())).await;
        assert_eq!(ask_for(&world.services, &["x", "none"], "a").await, ["x", "none"].map(found));
    }
}
