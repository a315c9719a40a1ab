//! What Kusion has on record of a project in a workspace, read from where it keeps its releases.
//!
//! Start at [`read`]. The files are `.metadata.yml`, which says which release is the latest, and `<revision>.yaml`; what is
//! in them is in [`release`]. They are Kusion's, and are never written. A state of Kusion has all values in clear: they are
//! dropped while it is read, and no message quotes any.

mod release;

use stoa_engine::import::ForeignRecord;
use stoa_storage::documents::{DocumentError, DocumentStore};
use stoa_types::{delivery::KusionRelease, reason};

use super::{StepError, documents};

/// The largest file that is read, in bytes.
const LARGEST: u64 = 32 << 20;

/// A release of Kusion, as far as it matters here.
#[derive(Debug)]
pub(super) struct Found {
    file: String,
    phase: String,
    pub(super) records: Vec<ForeignRecord>,
}

impl Found {
    /// What was found, for the log of the run.
    pub(super) fn told(&self) -> String {
        let Self { file, phase, records } = self;
        format!("{file}: a release of Kusion that {phase}, with {} resources on record", records.len())
    }
}

/// Reads the release that is asked for from a Backend; `ours` are our names of the project and the workspace.
///
/// # Errors
///
/// Failed with the file, the resource, and what to do, when it is not there or cannot be taken over; Retry when the
/// Backend is out of reach.
pub(super) async fn read(
    store: &dyn DocumentStore,
    ours: [String; 2],
    asked: &KusionRelease,
) -> Result<Found, StepError> {
    let [project, workspace] = ours;
    let project = asked.project.clone().unwrap_or(project);
    let workspace = asked.workspace.clone().unwrap_or(workspace);
    let folder = asked.path.clone().unwrap_or_else(|| format!("releases/{project}/{workspace}"));
    // In a folder that is named, they may be called otherwise.
    let named = |name: &Option<String>, default| if asked.path.is_some() { name.clone() } else { Some(default) };
    let expected = release::Expected {
        project: named(&asked.project, project),
        workspace: named(&asked.workspace, workspace),
        revision: match asked.revision {
            Some(revision) => revision.unsigned_abs(),
            None => latest(store, &folder).await?,
        },
    };
    let file = format!("{folder}/{}.yaml", expected.revision);
    let Some(bytes) = file_of(store, &file).await? else {
        let message = format!("{file} is not in the Backend; name a revision that is, or the path of its folder");
        return Err(StepError::failed(reason::IMPORT_FAILED, message));
    };
    // Some tens of megabytes take a while to parse.
    let parsed = tokio::task::spawn_blocking(move || release::parse(&bytes, &expected)).await;
    let parsed = parsed.map_err(|_| StepError::failed(reason::IMPORT_FAILED, format!("{file} cannot be read")))?;
    match parsed {
        Ok(release::Release { phase, records }) => Ok(Found { file, phase, records }),
        Err(why) => Err(StepError::failed(reason::IMPORT_FAILED, format!("{file}: {why}. Nothing was recorded"))),
    }
}

async fn latest(store: &dyn DocumentStore, folder: &str) -> Result<u64, StepError> {
    let file = format!("{folder}/.metadata.yml");
    let failed = |why: String| StepError::failed(reason::IMPORT_FAILED, format!("{file}{why}"));
    match file_of(store, &file).await? {
        Some(bytes) => release::latest(&bytes).map_err(|why| failed(format!(": {why}; name the revision"))),
        None => Err(failed(" is not in the Backend; name the revision, or the path of its folder".to_owned())),
    }
}

pub(super) async fn file_of(store: &dyn DocumentStore, path: &str) -> Result<Option<bytes::Bytes>, StepError> {
    store.file(path, LARGEST).await.map_err(|error| match error {
        DocumentError::TooLarge { .. } | DocumentError::Scope(_) => {
            StepError::failed(reason::IMPORT_FAILED, error.to_string())
        }
        error => documents::halt(&error, "the backend cannot be read"),
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use stoa_storage::documents::LocalDocuments;
    use tempfile::TempDir;

    use super::*;

    fn release(project: &str, workspace: &str, revision: u64, name: &str) -> String {
        format!(
            "project: {project}
workspace: {workspace}
revision: {revision}
stack: dev
state:
    resources:
        - id: v1:Namespace:{name}
          type: Kubernetes
          attributes: {{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}
phase: succeeded
createTime: 2025-03-01T10:00:00Z
modifiedTime: 2025-03-01T10:00:05Z
"
        )
    }

    fn write(root: &Path, path: &str, text: &str) {
        let file = root.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    /// What is found by what is asked for: the id of its only resource, or what is wrong.
    async fn found(root: &Path, asked: KusionRelease) -> Result<String, String> {
        let store = LocalDocuments::open(root).unwrap();
        match read(&store, ["web".to_owned(), "dev".to_owned()], &asked).await {
            Ok(found) => Ok(found.records[0].id.0.clone()),
            Err(StepError::Failed { reason: reason::IMPORT_FAILED, message }) => Err(message),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_release_is_found_where_kusion_keeps_it() {
        let folder = TempDir::new().unwrap();
        let root = folder.path();
        write(root, "releases/web/dev/.metadata.yml", "latestRevision: 2\nreleaseMetaDatas: []\n");
        for (revision, name) in [(1, "first"), (2, "second")] {
            write(root, &format!("releases/web/dev/{revision}.yaml"), &release("web", "dev", revision, name));
        }
        write(root, "releases/server/main/apps/web/prod/4.yaml", &release("shop-web", "prod", 4, "server"));
        let none = KusionRelease::default;
        assert_eq!(found(root, none()).await, Ok("v1:Namespace:second".to_owned()));
        let first = KusionRelease { revision: Some(1), ..none() };
        assert_eq!(found(root, first).await, Ok("v1:Namespace:first".to_owned()));
        let path = Some("releases/server/main/apps/web/prod".to_owned());
        let server = KusionRelease { path, revision: Some(4), ..none() };
        assert_eq!(found(root, server.clone()).await, Ok("v1:Namespace:server".to_owned()));
        let of_another = KusionRelease { project: Some("web".to_owned()), ..server.clone() };
        assert!(found(root, of_another).await.unwrap_err().contains("4.yaml: it is of another project"));
        let why = found(root, KusionRelease { revision: None, ..server }).await.unwrap_err();
        assert!(why.contains("apps/web/prod/.metadata.yml is not in the Backend; name the revision"), "{why}");
        let why = found(root, KusionRelease { revision: Some(3), ..none() }).await.unwrap_err();
        assert!(why.starts_with("releases/web/dev/3.yaml is not in the Backend"), "{why}");
        write(root, "releases/web/dev/.metadata.yml", "latestRevision: 3\n");
        assert!(found(root, none()).await.unwrap_err().starts_with("releases/web/dev/3.yaml is not"));
        write(root, "releases/web/dev/.metadata.yml", "latestRevision");
        assert!(
            found(root, none()).await.unwrap_err().starts_with("releases/web/dev/.metadata.yml: the file is not a map")
        );
    }

    #[tokio::test]
    async fn file_above_the_limit_is_refused() {
        let folder = TempDir::new().unwrap();
        write(folder.path(), "releases/web/dev/1.yaml", "");
        let file = fs::File::options().write(true).open(folder.path().join("releases/web/dev/1.yaml")).unwrap();
        file.set_len(LARGEST + 1).unwrap();
        let why = found(folder.path(), KusionRelease { revision: Some(1), ..KusionRelease::default() }).await;
        assert_eq!(why.unwrap_err(), "releases/web/dev/1.yaml has more than 33554432 bytes");
    }
}
