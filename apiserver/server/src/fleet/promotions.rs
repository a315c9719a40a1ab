//! The commit of a base repository: which one an environment has, and what another one would break.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::Value;
use stoa_machinery::ApiError;
use stoa_proto::{GitPerson, PackageFile, ProposeFilesRequest};
use stoa_types::{reason, scheduler::BaseRepo};
use stoa_yaml_edit::{changed, parse};

use super::{
    At, FleetService, Known,
    edits::with_document,
    proposals::AUTHOR,
    reading::{ENVIRONMENT, SourceKey, path_of},
    repositories::{self, Refusal},
};

impl FleetService {
    /// The commit of a base repository in an environment; empty for the head of its branch.
    ///
    /// # Errors
    ///
    /// 404 where the environment has no such BaseRepo, 503 where a repository is out of reach.
    pub(crate) async fn base_commit(&self, namespace: &str, base: &str) -> Result<String, ApiError> {
        let known = self.of(namespace, At::default()).await?;
        commit_of(&known, namespace, base)
    }

    /// The same as the repositories have it now.
    ///
    /// # Errors
    ///
    /// As [`base_commit`](Self::base_commit).
    pub(crate) async fn current_base_commit(&self, namespace: &str, base: &str) -> Result<String, ApiError> {
        self.looks.expire();
        let known = self.read(namespace).await?;
        match known.reading.failed.values().next() {
            Some(failed) => Err(ApiError::service_unavailable(failed.message.clone())),
            None => commit_of(&known, namespace, base),
        }
    }

    /// The assignments that another commit of a base repository would break, each with its problems.
    ///
    /// # Errors
    ///
    /// 503 where a repository or the function-runners are out of reach.
    pub(crate) async fn broken_by(&self, namespace: &str, base: &str, commit: &str) -> Result<Vec<String>, ApiError> {
        let now = self.of(namespace, At::default()).await?;
        let tree = self.tree(namespace, &now).await?;
        let before: BTreeSet<&String> = tree.broken.keys().collect();
        let at = At { revision: None, base: Some((base, commit)) };
        let then = self.of(namespace, at).await?;
        let tree = self.tree(namespace, &then).await?;
        let broken = tree.broken.iter().filter(|(folder, _)| !before.contains(folder));
        Ok(broken.map(|(_, broken)| format!("{}: {}", broken.assignment, broken.problems.join("; "))).collect())
    }

    /// Gives a base repository another commit: in the file of the environment's branch that has it, by a commit there, or in the
    /// stored object.
    ///
    /// # Errors
    ///
    /// A reason and a message. A second call changes nothing.
    pub(crate) async fn set_base_commit(
        &self,
        namespace: &str,
        base: &str,
        commit: &str,
        promotion: &str,
    ) -> Result<(), Refusal> {
        let unavailable = |error: ApiError| (reason::SOURCE_UNREACHABLE, error.message().to_owned());
        self.looks.expire();
        let known = self.read(namespace).await.map_err(unavailable)?;
        let reading = &known.reading;
        if let Some(failed) = reading.failed.values().next() {
            return Err((failed.reason, failed.message.clone()));
        }
        let found = reading.plane.base_repos.get(base).ok_or_else(|| unavailable(missing(namespace, base)))?;
        if found.spec.commit == commit {
            return Ok(());
        }
        let origin = &found.origin;
        if origin.source != format!("{ENVIRONMENT} {namespace}") {
            if origin.source.starts_with("BaseRepo ") {
                let why = format!(
                    "BaseRepo {base} of environment {namespace} is in {origin}; move it to the environment's branch"
                );
                return Err((reason::INVALID_FILES, why));
            }
            let objects = self.services.lookup.api::<BaseRepo>().map_err(unavailable)?;
            let set = |object: &mut BaseRepo| commit.clone_into(&mut object.spec.commit);
            return objects.update_with(namespace, base, set).await.map(drop).map_err(unavailable);
        }
        let folder = reading.folders.get(&SourceKey::Environment).cloned();
        let (Some(folder), Some(environment)) = (folder, reading.environment.as_ref()) else {
            return Err((reason::SOURCE_UNREACHABLE, format!("environment {namespace} is not read yet")));
        };
        let file = reading.sources.branch.get(&origin.file).cloned().unwrap_or_default();
        let text = String::from_utf8_lossy(&file);
        let edited = edited(&text, base, commit)
            .ok_or_else(|| (reason::INVALID_FILES, format!("{origin} cannot be edited; set spec.commit by hand")))?;
        let path = path_of(&folder, origin);
        let remote =
            SourceKey::Environment.remote(self, (namespace, Some(environment)), &folder.of.repo, false).await?;
        let (name, email) = AUTHOR;
        let seconds = self.services.now().as_second();
        let request = ProposeFilesRequest {
            source: Some(remote.source),
            base: folder.of.branch.clone(),
            head: folder.of.branch.clone(),
            files: vec![PackageFile { path, content: Bytes::from(edited), ..PackageFile::default() }],
            owner: promotion.to_owned(),
            message: format!("Promote {commit} of BaseRepo {base}"),
            author: Some(GitPerson { name: name.to_owned(), email: email.to_owned(), seconds }),
            keeps_others: true,
            expected_base: folder.commit,
            ..ProposeFilesRequest::default()
        };
        let answer =
            self.services.runner.propose_files(request).await.map_err(|status| repositories::refusal(&status))?;
        self.looks.expire();
        match answer.rejected.is_empty() {
            true => Ok(()),
            false => Err((reason::PR_FAILED, format!("{}: {}", folder.of.repo, answer.rejected))),
        }
    }
}

fn commit_of(known: &Known, namespace: &str, base: &str) -> Result<String, ApiError> {
    let found = known.reading.plane.base_repos.get(base);
    found.map(|found| found.spec.commit.clone()).ok_or_else(|| missing(namespace, base))
}

fn missing(namespace: &str, base: &str) -> ApiError {
    ApiError::new(404, "NotFound", format!("environment {namespace} has no BaseRepo {base}; add it to its branch"))
}

/// A file in which a BaseRepo has another commit; comments and other documents stay.
fn edited(text: &str, base: &str, commit: &str) -> Option<String> {
    with_document(text, ("BaseRepo", base), |document, before| {
        let mut after = before.clone();
        after["spec"]["commit"] = Value::from(commit);
        changed(document, |text| parse(text.as_bytes()), before, &after).map(Some)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_changes_and_comments_stay() {
        let text = "# The fleet\nkind: BaseRepo\nmetadata:\n  name: other\nspec:\n  commit: a\n---\nkind: BaseRepo\nmetadata:\n  \
                    name: main\nspec:\n  branch: main # of all\n  commit: abc\n";
        let expected = text.replace("commit: abc", "commit: def");
        assert_eq!(edited(text, "main", "def").unwrap(), expected);
        assert_eq!(edited(text, "none", "def"), None);
    }
}
