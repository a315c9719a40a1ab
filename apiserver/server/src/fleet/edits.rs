//! Writes of clients to objects that Git owns: each is proposed to the file of the object by a pull request.
//!
//! An object has one branch, `edit/<environment>/<kind>/<name>`, and one pull request, which a later write updates. Commits and pull
//! requests of people stay as they are.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use stoa_kinds::scheduler::fleets::Edit;
use stoa_proto::{GitPerson, PackageFile, ProposeFilesRequest};
use stoa_pulls::{Text, marked, quoted};
use stoa_types::labels::{FILE_IN_GIT, OWNER_IN_GIT};
use stoa_yaml_edit::{changed, documents, parse, rewritten};
use tokio::time::Instant;

use super::{
    At, FleetService,
    proposals::{self, AUTHOR, Settled, Wanted},
    reading::Written,
    repositories,
};

/// The timeout of one proposal, for which the client waits.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the same write has the pull request of before, without another call: controllers repeat their writes.
const AGAIN: Duration = Duration::from_secs(60);
/// The most writes that are remembered.
const REMEMBERED: usize = 1000;
/// The note that kubectl leaves, which is of no file.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A write with the pull request that proposes it.
#[derive(Clone, Debug)]
struct Proposed {
    at: Instant,
    digest: u64,
    pull: String,
}

/// The last writes, by branch. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Edits(Arc<Mutex<HashMap<String, Proposed>>>);

impl Edits {
    fn of(&self, branch: &str, digest: u64) -> Option<String> {
        let mut known = self.0.lock();
        known.retain(|_, proposed| proposed.at.elapsed() < AGAIN);
        known.get(branch).filter(|proposed| proposed.digest == digest).map(|proposed| proposed.pull.clone())
    }

    fn keep(&self, branch: String, digest: u64, pull: &str) {
        let mut known = self.0.lock();
        if known.len() < REMEMBERED {
            known.insert(branch, Proposed { at: Instant::now(), digest, pull: pull.to_owned() });
        }
    }
}

impl FleetService {
    /// Proposes a write to the repository that owns its object; the pull request in words.
    ///
    /// # Errors
    ///
    /// The reason why there is no pull request. A second call with the same write opens no second one.
    pub(super) async fn propose_edit(&self, edit: &Edit) -> Result<String, String> {
        let branch = format!("edit/{}/{}/{}", edit.namespace, edit.kind.to_lowercase(), edit.name);
        let digest = digest(edit);
        if let Some(pull) = self.edits.of(&branch, digest) {
            return Ok(pull);
        }
        let proposed = tokio::time::timeout(PATIENCE, Box::pin(self.propose_edit_anew(edit, &branch))).await;
        let pull = proposed.map_err(|_| format!("the repository did not answer within {PATIENCE:?}"))??;
        self.edits.keep(branch, digest, &pull);
        Ok(pull)
    }

    async fn propose_edit_anew(&self, edit: &Edit, head: &str) -> Result<String, String> {
        let Edit { namespace, kind, name, after, user, .. } = edit;
        let known = self.of(namespace, At::default()).await.map_err(|error| error.message().to_owned())?;
        let reading = &known.reading;
        let gone = || "no repository of the environment has the object any more".to_owned();
        let origin = reading.plane.origin(kind, name).ok_or_else(gone)?;
        let Written { key, folder, path } = reading.written(origin).ok_or_else(gone)?;
        let file = reading.files(&key).and_then(|files| files.get(&origin.file)).ok_or_else(gone)?;
        let text = String::from_utf8_lossy(file);
        let content = edited(&text, edit).ok_or_else(|| format!("{origin} cannot be edited; change it by hand"))?;
        if content == text {
            return Err("the file has none of the changed fields".to_owned());
        }
        let (of, is_owned) = (&folder.of, reading.is_owned_by_git(&key, namespace));
        let remote = key.remote(self, (namespace.as_str(), reading.environment.as_ref()), &of.repo, is_owned).await;
        let remote = remote.map_err(|(_, why)| why)?;
        let verb = if after.is_some() { "Change" } else { "Delete" };
        let title = format!("{verb} {kind} {name}");
        let owner = format!("{namespace}/{kind}/{name}");
        let (author, email) = AUTHOR;
        let seconds = self.services.now().as_second();
        let request = ProposeFilesRequest {
            source: Some(remote.source),
            base: of.branch.clone(),
            head: head.to_owned(),
            files: vec![PackageFile { path, content: Bytes::from(content), ..PackageFile::default() }],
            owner: owner.clone(),
            message: title.clone(),
            author: Some(GitPerson { name: author.to_owned(), email: email.to_owned(), seconds }),
            keeps_others: true,
            // The file is that of this commit.
            expected_base: folder.commit.clone(),
            ..ProposeFilesRequest::default()
        };
        let answer = self.services.runner.propose_files(request).await;
        let answer = answer.map_err(|status| repositories::refusal(&status).1)?;
        if !answer.rejected.is_empty() {
            self.looks.expire();
            return Err(format!("{} does not accept branch {head}: {}", of.repo, answer.rejected));
        }
        if !answer.foreign.is_empty() {
            return Err(format!("branch {head} has commits of others: {}; merge or delete it", answer.foreign));
        }
        if answer.changes.is_empty() {
            return Err("the branch has the change already".to_owned());
        }
        let pulls = proposals::server(&self.pauses, &of.repo, &remote.keys).map_err(|(_, why)| why)?;
        let marker = format!("stoa:edit:{owner}");
        let (user, object) = (quoted(user), quoted(&format!("{kind} {name}")));
        let body = format!("{user} wrote {object} of environment {} through the API.", quoted(namespace));
        let body = format!("{body} Git owns the object, so this proposes the change to its file.");
        let text = Text { title, body: marked(&body, &marker) };
        let (base, commit) = (of.branch.as_str(), answer.head_commit.as_str());
        let wanted = Wanted { head, base, commit, marker: &marker, text: &text, may_update: true };
        match proposals::settle(&pulls, &wanted).await.map_err(|error| error.to_string())? {
            Settled::Open(pull) if pull.url.is_empty() => Ok(format!("pull request {}", pull.number)),
            Settled::Open(pull) => Ok(format!("pull request {} ({})", pull.number, pull.url)),
            Settled::Closed(number) => {
                let why = "people closed pull request";
                Err(format!("{why} {number} with this change; delete branch {head} to propose it again"))
            }
        }
    }
}

fn digest(edit: &Edit) -> u64 {
    let mut hasher = DefaultHasher::new();
    let after = edit.after.as_ref().map(|after| authored(after).to_string());
    (authored(&edit.before).to_string(), after).hash(&mut hasher);
    hasher.finish()
}

/// The parts of an object that a file decides about.
fn authored(object: &Value) -> Value {
    let mut authored = json!({ "metadata": {} });
    if let Some(spec) = object.get("spec") {
        authored["spec"] = spec.clone();
    }
    for field in ["labels", "annotations"] {
        let mut texts = object["metadata"][field].as_object().cloned().unwrap_or_default();
        for own in [FILE_IN_GIT, OWNER_IN_GIT, LAST_APPLIED] {
            texts.remove(own);
        }
        if !texts.is_empty() {
            authored["metadata"][field] = texts.into();
        }
    }
    authored
}

/// The text of a file after a write to one of its objects; `None` where the file does not have the object as it was.
fn edited(text: &str, edit: &Edit) -> Option<String> {
    with_document(text, (&edit.kind, &edit.name), |document, _| {
        let Some(after) = &edit.after else { return Some(None) };
        changed(document, |text| parse(text.as_bytes()), &authored(&edit.before), &authored(after)).map(Some)
    })
}

/// The text of a file with the document of an object replaced, or removed where `change` has no other; comments and other
/// documents stay. `None` where the file has no such document, or it cannot be changed.
pub(super) fn with_document(
    text: &str,
    (kind, name): (&str, &str),
    change: impl FnOnce(&str, &Value) -> Option<Option<String>>,
) -> Option<String> {
    let (range, value) = documents(text).into_iter().find_map(|range| {
        let value = parse(text[range.clone()].as_bytes())?;
        (value["kind"] == kind && value["metadata"]["name"] == name).then_some((range, value))
    })?;
    let new = change(&text[range.clone()], &value)?;
    Some(rewritten(text, &BTreeMap::from([(range.start, new)])))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# The drones\nkind: ClusterType\nmetadata:\n  name: drone\n  labels:\n    region: east # for now\nspec:\n  \
                        reconciler: flux\n---\nkind: ClusterType\nmetadata:\n  name: large\nspec:\n  reconciler: flux\n";

    fn edit(name: &str, before: Value, after: Option<Value>) -> Edit {
        let text = |text: &str| text.to_owned();
        Edit { namespace: text("dev"), kind: text("ClusterType"), name: text(name), before, after, user: text("ann") }
    }

    /// An object as it is served, with marks and defaults.
    fn drone(region: &str, reconciler: &str) -> Value {
        json!({
            "metadata": {
                "name": "drone",
                "labels": {"region": region},
                "annotations": {(FILE_IN_GIT): "a.yaml", (OWNER_IN_GIT): "environment dev", (LAST_APPLIED): region},
            },
            "spec": {"reconciler": reconciler, "namespaceService": ""},
        })
    }

    #[test]
    fn edit_changes_only_its_fields() {
        let change = edit("drone", drone("east", "flux"), Some(drone("west", "argocd")));
        let expected = FILE.replace("region: east", "region: west").replacen("flux", "argocd", 1);
        assert_eq!(edited(FILE, &change).unwrap(), expected);
        let marks = edit("drone", drone("east", "flux"), Some(drone("east", "flux")));
        assert_eq!(edited(FILE, &marks).unwrap(), FILE);
        assert_ne!(digest(&change), digest(&marks));
        assert_eq!(edited(FILE, &edit("none", drone("east", "flux"), None)), None);
    }

    #[test]
    fn deletion_removes_the_document() {
        let large = edit("large", json!({}), None);
        assert_eq!(edited(FILE, &large).unwrap(), FILE.split("---").next().unwrap());
        let only = "kind: ClusterType\nmetadata:\n  name: large\n";
        assert_eq!(edited(only, &large).unwrap(), "");
    }

    #[test]
    fn same_write_has_its_pull_request() {
        let edits = Edits::default();
        edits.keep("edit/dev/clustertype/drone".to_owned(), 1, "pull request 7");
        assert_eq!(edits.of("edit/dev/clustertype/drone", 1).as_deref(), Some("pull request 7"));
        assert_eq!(edits.of("edit/dev/clustertype/drone", 2), None);
        assert_eq!(edits.of("edit/dev/clustertype/large", 1), None);
    }
}
