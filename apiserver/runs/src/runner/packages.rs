//! Calls about packages in Git and registries: the service `Packages` of the proto.

use std::sync::Arc;

use bytes::Bytes;
use stoa_proto::{
    DiscoverRequest, DiscoveredRefs, DiscoveredRevision, FilesRequest, FunctionsRequest, FunctionsResponse,
    PackageFile, PackageTree, PushArtifactRequest, PushArtifactResponse, PushRequest, PushResponse,
    RemoveArtifactRequest, RemoveArtifactResponse,
    evaluator::{
        EvaluateFunctionRequest, EvaluateFunctionResponse, function_evaluator_client::FunctionEvaluatorClient,
    },
    packages_client::PackagesClient,
};
use tonic::{Request, Response, Status, metadata::MetadataValue, transport::Channel};

use super::{
    Runner,
    pool::{Lent, MAX_MESSAGE},
};

/// The revisions of a repository, or those that changed.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// The refs, and the changes since the earlier refs.
    pub refs: DiscoveredRefs,
    /// New and changed revisions.
    pub revisions: Vec<DiscoveredRevision>,
}

/// Metadata of a request: this caller reads [`EXIT_CODE`].
const READS_EXIT_CODE: &str = "stoa-reads-exit-code";
/// Metadata of a request: the organization that pays for the call.
const ORGANIZATION: &str = "stoa-organization";
/// Metadata of an answer: the exit code of a function that failed.
const EXIT_CODE: &str = "stoa-exit-code";

/// The outcome of a function that ran to its end.
#[derive(Clone, Debug, Default)]
pub struct Evaluated {
    /// Its standard output.
    pub resource_list: Bytes,
    /// Its standard error.
    pub log: Bytes,
    /// Only 0 is a success.
    pub exit_code: i32,
}

/// The files of a package.
#[derive(Clone, Debug, Default)]
pub struct PackageFiles {
    /// The folder of the package.
    pub tree: PackageTree,
    /// The files, sorted by path.
    pub files: Vec<PackageFile>,
}

fn packages(lent: &Lent) -> PackagesClient<Channel> {
    PackagesClient::new(lent.channel()).max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE)
}

impl Runner {
    /// Lists the package revisions of a repository, or those that changed.
    ///
    /// # Errors
    ///
    /// The error of the last function-runner that was asked.
    pub async fn discover(&self, request: DiscoverRequest) -> Result<Discovery, Status> {
        let call = |lent: &Lent, request: DiscoverRequest| {
            let mut client = packages(lent);
            async move {
                let mut messages = client.discover(request).await?.into_inner();
                let mut found = Discovery::default();
                while let Some(message) = messages.message().await? {
                    found.refs = message.refs.unwrap_or(found.refs);
                    found.revisions.extend(message.revisions);
                }
                Ok(Response::new(found))
            }
        };
        Ok(Self::ask(self.search("Discover", None), request, call).await?.into_inner())
    }

    /// Reads the files of a package at a commit.
    ///
    /// # Errors
    ///
    /// As [`discover`](Self::discover).
    pub async fn package_files(&self, request: FilesRequest) -> Result<PackageFiles, Status> {
        let call = |lent: &Lent, request: FilesRequest| {
            let mut client = packages(lent);
            async move {
                let mut messages = client.files(request).await?.into_inner();
                let mut found = PackageFiles::default();
                while let Some(message) = messages.message().await? {
                    found.tree = message.tree.unwrap_or(found.tree);
                    found.files.extend(message.files);
                }
                Ok(Response::new(found))
            }
        };
        Ok(Self::ask(self.search("Files", None), request, call).await?.into_inner())
    }

    /// Makes commits and moves refs. A repeated request has the same result, so that it may reach several runners.
    ///
    /// # Errors
    ///
    /// As [`discover`](Self::discover).
    pub async fn push(&self, request: PushRequest) -> Result<PushResponse, Status> {
        let request = Arc::new(request);
        let call = |lent: &Lent, request: Arc<PushRequest>| {
            let mut client = packages(lent);
            async move { client.push(PushRequest::clone(&request)).await }
        };
        Ok(Self::ask(self.search("Push", None), request, call).await?.into_inner())
    }

    /// Pushes a published revision to a registry. A repeated request has the same result, so that it may reach several runners.
    ///
    /// # Errors
    ///
    /// As [`discover`](Self::discover).
    pub async fn push_artifact(&self, request: PushArtifactRequest) -> Result<PushArtifactResponse, Status> {
        let request = Arc::new(request);
        let call = |lent: &Lent, request: Arc<PushArtifactRequest>| {
            let mut client = packages(lent);
            async move { client.push_artifact(PushArtifactRequest::clone(&request)).await }
        };
        Ok(Self::ask(self.search("PushArtifact", None), request, call).await?.into_inner())
    }

    /// Removes a published revision from a registry, as safe to repeat.
    ///
    /// # Errors
    ///
    /// As [`discover`](Self::discover).
    pub async fn remove_artifact(&self, request: RemoveArtifactRequest) -> Result<RemoveArtifactResponse, Status> {
        let call = |lent: &Lent, request: RemoveArtifactRequest| {
            let mut client = packages(lent);
            async move { client.remove_artifact(request).await }
        };
        Ok(Self::ask(self.search("RemoveArtifact", None), request, call).await?.into_inner())
    }

    /// Lists the functions of a repository, or those of a function-runner.
    ///
    /// # Errors
    ///
    /// As [`discover`](Self::discover).
    pub async fn functions(&self, request: FunctionsRequest) -> Result<FunctionsResponse, Status> {
        let call = |lent: &Lent, request: FunctionsRequest| {
            let mut client = packages(lent);
            async move { client.functions(request).await }
        };
        Ok(Self::ask(self.search("Functions", None), request, call).await?.into_inner())
    }

    /// Runs a function on a ResourceList. The organization pays for the call.
    ///
    /// # Errors
    ///
    /// As [`discover`](Self::discover); NOT_FOUND where no runner has the image. A function that failed is an `Evaluated` with its
    /// results, or FAILED_PRECONDITION from a function runner of Porch.
    pub async fn evaluate_function(
        &self,
        organization: &str,
        request: EvaluateFunctionRequest,
    ) -> Result<Evaluated, Status> {
        let call = |lent: &Lent, request: EvaluateFunctionRequest| {
            let client = FunctionEvaluatorClient::new(lent.channel());
            let mut client = client.max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE);
            let mut request = Request::new(request);
            let metadata = request.metadata_mut();
            metadata.insert(READS_EXIT_CODE, MetadataValue::from_static("true"));
            if let Ok(organization) = organization.parse() {
                metadata.insert(ORGANIZATION, organization);
            }
            async move { client.evaluate_function(request).await }
        };
        let answer = Self::ask(self.search("EvaluateFunction", None), request, call).await?;
        let exit_code = answer.metadata().get(EXIT_CODE).and_then(|code| code.to_str().ok()?.parse().ok());
        let EvaluateFunctionResponse { resource_list, log } = answer.into_inner();
        Ok(Evaluated { resource_list, log, exit_code: exit_code.unwrap_or(0) })
    }
}
