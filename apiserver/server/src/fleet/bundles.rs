//! The folder of a cluster type at the head of a GitOps branch, packed for clusters without a network.

use bytes::Bytes;
use jiff::Timestamp;
use stoa_controller::blocking::on_own_thread;
use stoa_fleet::bundle::{BundleFile, BundleOf, pack};
use stoa_machinery::ApiError;
use stoa_proto::FilesRequest;
use stoa_runs::{StepError, runner};
use stoa_types::{reason, scheduler::GitOpsRepo};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    FleetService,
    repositories::{self, LARGEST, PATIENCE, Refusal},
};

/// How many bundles are in memory at once. Each has at most 64 MiB of files, by the limit of `Files`; others wait.
pub(super) const BUNDLES: usize = 2;

impl FleetService {
    /// An archive with an OCI image layout of the folder of a cluster type.
    ///
    /// # Errors
    ///
    /// 404 for a cluster type without a folder, 409 for a branch that does not exist, 422 for a folder that no bundle can have, and
    /// 503 where the repository or the function-runners are out of reach.
    pub(crate) async fn bundle(
        &self,
        namespace: &str,
        repo: &GitOpsRepo,
        cluster_type: &str,
    ) -> Result<Bytes, ApiError> {
        let missing = |detail: &str| {
            let message = format!(
                "branch {} of {} has no folder {cluster_type:?}{detail}; name a cluster type with merged files",
                repo.spec.branch, repo.spec.repo
            );
            ApiError::new(404, "NotFound", message)
        };
        if !is_folder(cluster_type) {
            return Err(missing(""));
        }
        let permit = tokio::time::timeout(PATIENCE, self.bundles.clone().acquire_owned()).await;
        let busy = |_| unavailable(format!("{BUNDLES} other bundles are made or read; retry later"));
        let permit = permit.map_err(busy)?.map_err(|error| ApiError::internal(error.to_string()))?;
        let environment = self.environment(namespace).await?;
        let is_owned = repositories::is_owned_by_git(repo);
        let url = &repo.spec.repo;
        let remote = repositories::remote(&self.services, namespace, environment.as_ref(), url, is_owned);
        let source = remote.await.map_err(refused)?.source;
        let looked = repositories::look(&self.services, &self.looks, &source, &repo.spec.branch);
        let commit = looked.await.map_err(refused)?;
        let request = FilesRequest {
            source: Some(source),
            commit: commit.clone(),
            path: cluster_type.to_owned(),
            max_file_bytes: LARGEST,
            with_binary: true,
        };
        let read = tokio::time::timeout(PATIENCE, self.services.runner.package_files(request)).await;
        let read = read.map_err(|_| unavailable(format!("{url} did not answer within {PATIENCE:?}")))?;
        let read = read.map_err(|status| match runner::halt(&status, reason::SOURCE_UNREACHABLE) {
            StepError::Failed { reason: reason::SOURCE_NOT_FOUND, .. } => missing(&format!(" at commit {commit}")),
            halt if halt.is_final() => unfit(halt.into_reason(reason::SOURCE_UNREACHABLE).1),
            halt => unavailable(halt.into_reason(reason::SOURCE_UNREACHABLE).1),
        })?;
        let seconds = read.tree.committed;
        let mut files = Vec::with_capacity(read.files.len());
        for file in read.files {
            if !file.kept.is_empty() {
                let why = match file.kept.as_str() {
                    "TooLarge" => format!("has {} bytes, and a bundle takes files of {LARGEST}", file.bytes),
                    kept => format!("is a {}, and a bundle takes files alone", kept.to_lowercase()),
                };
                return Err(unfit(format!("{cluster_type}/{} at commit {commit} {why}; replace it", file.path)));
            }
            files.push(BundleFile { path: file.path, content: file.content, is_executable: file.is_executable });
        }
        let algorithm = if commit.len() == 64 { "sha256" } else { "sha1" };
        let revision = format!("{}@{algorithm}:{commit}", repo.spec.branch);
        let (title, source) = (format!("{cluster_type}.tar.gz"), url.clone());
        let packed = on_own_thread(move || {
            let created = Timestamp::from_second(seconds).unwrap_or_default().to_string();
            let tags = ["latest", commit.as_str()];
            let of = BundleOf { title: &title, source: &source, revision: &revision, created: &created, tags: &tags };
            pack(&of, &files)
        });
        let packed = packed.await.map_err(|error| unfit(format!("the files of {cluster_type}: {error}")))?;
        Ok(Archive::with(packed, permit))
    }
}

/// An archive in memory, which has a permit until its client has read it.
struct Archive {
    bytes: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl Archive {
    fn with(bytes: Vec<u8>, permit: OwnedSemaphorePermit) -> Bytes {
        Bytes::from_owner(Self { bytes, _permit: permit })
    }
}

impl AsRef<[u8]> for Archive {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Whether a name may be a folder at the root of a branch that a fleet renders.
fn is_folder(name: &str) -> bool {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    is_plain && !name.is_empty() && !name.starts_with('.')
}

fn refused((reason, message): Refusal) -> ApiError {
    match reason {
        reason::REF_NOT_FOUND => ApiError::new(409, "Conflict", message),
        _ => unavailable(message),
    }
}

fn unfit(message: String) -> ApiError {
    ApiError::new(422, "Invalid", message)
}

fn unavailable(message: String) -> ApiError {
    ApiError::service_unavailable(message).with_retry_after(1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    #[test]
    fn slow_reader_keeps_the_permit_of_its_bundle() {
        let permits = Arc::new(Semaphore::new(1));
        let permit = permits.clone().try_acquire_owned().unwrap();
        let archive = Archive::with(b"archive".to_vec(), permit);
        let unread = archive.slice(3..);
        drop(archive);
        assert_eq!((&*unread, permits.available_permits()), (&b"hive"[..], 0));
        drop(unread);
        assert_eq!(permits.available_permits(), 1);
    }

    #[test]
    fn folder_is_one_name_that_a_fleet_renders() {
        for (name, expected) in
            [("drone", true), ("east-us.2", true), ("", false), (".github", false), ("..", false), ("a/b", false)]
        {
            assert_eq!(is_folder(name), expected, "{name:?}");
        }
    }

    #[test]
    fn branch_without_commits_is_a_conflict() {
        let code = |reason| refused((reason, "why".to_owned())).code();
        assert_eq!((code(reason::REF_NOT_FOUND), code(reason::SOURCE_UNREACHABLE)), (409, 503));
    }
}
