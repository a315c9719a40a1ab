//! The service `Packages`: answers are streams of messages that a client can decode one by one.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use stoa_fairness::{FairSemaphore, MaxShare};
use stoa_proto::packages_server::Packages;
use stoa_proto::{
    DiscoverRequest, DiscoverResponse, FilesRequest, FilesResponse, FunctionsRequest, FunctionsResponse,
    PushArtifactRequest, PushArtifactResponse, PushRequest, PushResponse, RemoveArtifactRequest,
    RemoveArtifactResponse,
};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tracing::Instrument as _;

use crate::functions::Functions;
use crate::packages::{DiscoverJob, PackageFiles};
use crate::source::Sources;

use super::calls::{Call, Calls};
use super::required;

/// About how many bytes a message has.
const MESSAGE: usize = 1 << 20;

/// The number of messages that wait for a client.
const AHEAD: usize = 2;

/// How long an answer waits for a client that reads nothing.
const SILENCE: Duration = Duration::from_secs(60);

/// The number of answers in memory at once. Each may have 64 MiB.
const ANSWERS: usize = 8;

/// Answers the calls. It keeps nothing but caches.
#[derive(Debug)]
pub(crate) struct PackageService {
    calls: Arc<Calls>,
    sources: Sources,
    /// A slot for each answer in memory, which organizations share.
    answers: FairSemaphore,
    functions: Functions,
}

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl PackageService {
    pub(crate) fn new(calls: Arc<Calls>, sources: Sources, functions: Functions) -> Self {
        Self { calls, sources, answers: FairSemaphore::new(ANSWERS, MaxShare::ThreeQuarters), functions }
    }
}

/// Sends a message; false if the client is gone.
async fn send<T>(out: &mpsc::Sender<Result<T, Status>>, message: T) -> bool {
    out.send_timeout(Ok(message), SILENCE).await.is_ok()
}

/// Items in groups of about [`MESSAGE`] bytes.
fn in_messages<T: Message>(items: Vec<T>) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    let mut bytes = MESSAGE;
    for item in items {
        let size = item.encoded_len();
        if bytes + size > MESSAGE {
            groups.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        groups.last_mut().expect("one was added").push(item);
    }
    groups
}

#[tonic::async_trait]
impl Packages for PackageService {
    type DiscoverStream = Messages<DiscoverResponse>;

    async fn discover(&self, request: Request<DiscoverRequest>) -> Result<Response<Self::DiscoverStream>, Status> {
        let mut request = request.into_inner();
        let span = tracing::info_span!("Discover", branch = request.branch, known = request.known.len());
        let call = Call::of_source("Discover", request.source.as_ref(), span);
        let (sources, answers) = (self.sources.clone(), self.answers.clone());
        let work = |slot| async move {
            let source = required(request.source.take(), "source")?;
            let answer = answers.acquire(&source.organization, 1).await;
            let mut job = DiscoverJob::first(request);
            let mut page = sources.discover(&source, job.clone()).await?;
            let (out, messages) = mpsc::channel(AHEAD);
            let refs = page.refs.take().unwrap_or_default();
            let first = refs.clone();
            let sends = async move {
                let _held = (slot, answer);
                let head = DiscoverResponse { refs: Some(refs), revisions: Vec::new() };
                let mut is_there = send(&out, head).await;
                loop {
                    let next = job.after(&page, &first);
                    for revisions in in_messages(std::mem::take(&mut page.revisions)) {
                        is_there = is_there && send(&out, DiscoverResponse { refs: None, revisions }).await;
                    }
                    let Some(next) = next.filter(|_| is_there) else { break };
                    job = next;
                    match sources.discover(&source, job.clone()).await {
                        Ok(found) => page = found,
                        Err(failure) => {
                            // The client hears that the list is not complete.
                            let _ = out.send_timeout(Err(failure.into()), SILENCE).await;
                            break;
                        }
                    }
                }
            };
            tokio::spawn(sends.in_current_span());
            Ok(Box::pin(ReceiverStream::new(messages)) as Self::DiscoverStream)
        };
        Box::pin(self.calls.call_with_slot(call, work)).await
    }

    type FilesStream = Messages<FilesResponse>;

    async fn files(&self, request: Request<FilesRequest>) -> Result<Response<Self::FilesStream>, Status> {
        let mut request = request.into_inner();
        let span = tracing::info_span!("Files", commit = request.commit, path = request.path);
        let call = Call::of_source("Files", request.source.as_ref(), span);
        let (sources, answers) = (self.sources.clone(), self.answers.clone());
        let work = |slot| async move {
            let source = required(request.source.take(), "source")?;
            let answer = answers.acquire(&source.organization, 1).await;
            let PackageFiles { tree, files } = sources.package_files(&source, request).await?;
            let (out, messages) = mpsc::channel(AHEAD);
            let sends = async move {
                let _held = (slot, answer);
                let mut is_there = send(&out, FilesResponse { tree, files: Vec::new() }).await;
                for files in in_messages(files) {
                    is_there = is_there && send(&out, FilesResponse { tree: None, files }).await;
                }
            };
            tokio::spawn(sends.in_current_span());
            Ok(Box::pin(ReceiverStream::new(messages)) as Self::FilesStream)
        };
        Box::pin(self.calls.call_with_slot(call, work)).await
    }

    async fn push(&self, request: Request<PushRequest>) -> Result<Response<PushResponse>, Status> {
        let mut request = request.into_inner();
        let (commits, updates) = (request.commits.len(), request.updates.len());
        let span = tracing::info_span!("Push", commits, updates);
        let call = Call::of_source("Push", request.source.as_ref(), span);
        let pushed = self.calls.call(call, async {
            let source = required(request.source.take(), "source")?;
            let _memory = self.calls.memory(&source.organization, request.encoded_len()).await?;
            self.sources.push(&source, request).await
        });
        Box::pin(pushed).await
    }

    async fn push_artifact(
        &self,
        request: Request<PushArtifactRequest>,
    ) -> Result<Response<PushArtifactResponse>, Status> {
        let mut request = request.into_inner();
        let span = tracing::info_span!("PushArtifact", revision = request.revision, workspace = request.workspace);
        let call = Call::of_source("PushArtifact", request.source.as_ref(), span);
        let pushed = self.calls.call(call, async {
            let source = required(request.source.take(), "source")?;
            let _memory = self.calls.memory(&source.organization, request.encoded_len()).await?;
            self.sources.push_artifact(&source, request).await
        });
        Box::pin(pushed).await
    }

    async fn remove_artifact(
        &self,
        request: Request<RemoveArtifactRequest>,
    ) -> Result<Response<RemoveArtifactResponse>, Status> {
        let mut request = request.into_inner();
        let span = tracing::info_span!("RemoveArtifact", tag = request.tag);
        let call = Call::of_source("RemoveArtifact", request.source.as_ref(), span);
        let removed = self.calls.call(call, async {
            let source = required(request.source.take(), "source")?;
            self.sources.remove_artifact(&source, &request).await
        });
        Box::pin(removed).await
    }

    async fn functions(&self, request: Request<FunctionsRequest>) -> Result<Response<FunctionsResponse>, Status> {
        let mut request = request.into_inner();
        let span = tracing::info_span!("Functions", branch = request.branch, directory = request.directory);
        let call = Call::of_source("Functions", request.source.as_ref(), span);
        let listed = self.calls.call(call, async {
            match request.source.take() {
                Some(source) => self.sources.functions(&source, request).await,
                None => Ok(FunctionsResponse { functions: self.functions.offered(), ..FunctionsResponse::default() }),
            }
        });
        Box::pin(listed).await
    }
}

#[cfg(test)]
mod tests {
    use stoa_proto::PackageFile;

    use super::*;

    #[test]
    fn messages_are_small_unless_a_file_is_large() {
        let file = |bytes: usize| PackageFile { content: vec![b'a'; bytes].into(), ..PackageFile::default() };
        let sizes = |files: Vec<PackageFile>| -> Vec<usize> { in_messages(files).iter().map(Vec::len).collect() };
        assert_eq!(sizes(Vec::new()), [] as [usize; 0]);
        assert_eq!(sizes(vec![file(10); 3]), [3]);
        assert_eq!(
            sizes(vec![file(MESSAGE / 2), file(MESSAGE / 4), file(MESSAGE / 2), file(3 * MESSAGE), file(1)]),
            [2, 1, 1, 1]
        );
    }
}
