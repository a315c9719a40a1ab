//! Reports pushed files that differ from the served objects: in the condition `Synced`, and in an Event.
//!
//! The condition is on the object of the file, or else on the organization in whose folder the file is. Its message has
//! a line for each rejected file. So the condition alone lists the files to correct, also after a restart.

use std::sync::Arc;

use serde_json::Value;
use stoa_control_repo::{GitPath, Identity, ObjectPath};
use stoa_controller::{
    conditions::set_condition,
    events::{Involved, Kind, Recorder},
};
use stoa_machinery::{
    ApiError, Object, RequestContext,
    log::Fence,
    registry::{Store, Stored, Target, UpdateSource, is_undecodable},
};
use stoa_types::{Condition, reason};

use super::ingest::{find, path_of};

/// The longest line about one file, in characters.
const LINE: usize = 1024;
/// The longest message of a condition, in bytes: the limit of `metav1.Condition`.
const MESSAGE: usize = 32 << 10;
/// The prefix of a line about a valid file that the server rejected. It is part of the message, so a condition of several
/// lines says it for each file.
pub(super) const REFUSED: &str = "refused: ";
/// The message without problems.
const IN_SYNC: &str = "the file in the control repository is what is served";

/// Writes the conditions and the Events.
#[derive(Debug)]
pub(super) struct Reports {
    stores: Vec<(&'static GitPath, Arc<Store>)>,
    recorder: Recorder,
    context: RequestContext,
}

impl Reports {
    /// Writes under the fence: a process that lost its lease has outdated reports.
    pub(super) fn new(stores: Vec<(&'static GitPath, Arc<Store>)>, recorder: Recorder, fence: Option<Fence>) -> Self {
        let mut context = RequestContext::internal("git");
        context.fence = fence;
        Self { stores, recorder, context }
    }

    fn store(&self, kind: &'static GitPath) -> &Arc<Store> {
        let found = self.stores.iter().find(|(served, _)| *served == kind);
        &found.expect("every authored kind is served").1
    }

    /// Reports that a file was rejected.
    ///
    /// # Errors
    ///
    /// When it could not be reported now.
    pub(super) async fn invalid(&self, file: &ObjectPath, why: &str, commit: &str) -> Result<(), ApiError> {
        let path = file.path();
        let short = &commit[..commit.len().min(8)];
        let why: String = why.chars().take(LINE).collect();
        let line = format!("{path}: {why} (commit {short})");
        let Some(carrier) = self.carrier(file).await? else {
            tracing::warn!(path, why, commit, "a pushed file is invalid and no object can say so");
            let reason = reason_of(std::slice::from_ref(&line));
            self.recorder.record_about(involved(&file.identity, ""), Kind::Warning, reason, line);
            return Ok(());
        };
        let (identity, stored) = carrier;
        self.change(&identity, |message| {
            let mut lines = without(message, &path);
            lines.push(line.clone());
            Some(lines)
        })
        .await?;
        let reason = reason_of(std::slice::from_ref(&line));
        self.recorder.record_about(involved(&identity, stored.uid()), Kind::Warning, reason, line);
        Ok(())
    }

    /// Clears the report about a file.
    ///
    /// # Errors
    ///
    /// When it could not be cleared now.
    pub(super) async fn valid_again(&self, file: &ObjectPath) -> Result<(), ApiError> {
        let path = file.path();
        // The object with the report may differ from the one that would get it now.
        for identity in [Some(file.identity.clone()), organization(file)].into_iter().flatten() {
            self.change(&identity, |message| message.map(|_| without(message, &path))).await?;
        }
        Ok(())
    }

    /// The object that reports the problem of a file.
    async fn carrier(&self, file: &ObjectPath) -> Result<Option<(Identity, Arc<Stored>)>, ApiError> {
        // An undecodable object cannot have a condition.
        let readable = async |identity: &Identity| match find(self.store(identity.kind), identity).await {
            Err(error) if is_undecodable(&error) => Ok(None),
            found => found,
        };
        let own = readable(&file.identity).await?;
        if let Some(stored) = own.filter(|stored| path_of(stored).as_ref() == Some(file)) {
            return Ok(Some((file.identity.clone(), stored)));
        }
        let Some(identity) = organization(file) else { return Ok(None) };
        Ok(readable(&identity).await?.map(|stored| (identity, stored)))
    }

    /// Changes the lines of an object's condition. `lines` gets the message while there is a problem, and returns `None` for
    /// no change.
    async fn change(
        &self,
        identity: &Identity,
        lines: impl Fn(Option<&str>) -> Option<Vec<String>> + Send + Sync,
    ) -> Result<(), ApiError> {
        let transform = |current: &Object| {
            let mut object = current.clone();
            let mut conditions: Vec<Condition> = object
                .get_path(&["status", "conditions"])
                .and_then(|conditions| serde_json::from_value(conditions.clone()).ok())
                .unwrap_or_default();
            let told = conditions.iter().find(|c| c.type_ == reason::SYNCED && c.status == "False");
            let Some(lines) = lines(told.map(|c| c.message.as_str())) else { return Ok(object) };
            let generation = object.metadata().and_then(|m| m.get("generation")).and_then(Value::as_i64);
            let (synced, why, message) = match lines.as_slice() {
                [] => (true, reason::AVAILABLE, IN_SYNC.to_owned()),
                lines => (false, reason_of(lines), bounded(lines)),
            };
            set_condition(&mut conditions, reason::SYNCED, synced, why, message, generation);
            let conditions = serde_json::to_value(conditions)
                .map_err(|error| ApiError::internal(format_args!("conditions do not encode: {error}")))?;
            let status = object.0.entry("status").or_insert_with(|| Value::Object(serde_json::Map::new()));
            if let Value::Object(status) = status {
                status.insert("conditions".to_owned(), conditions);
            }
            Ok(object)
        };
        let store = self.store(identity.kind);
        let source = UpdateSource::transform(transform);
        match store.update(&self.context, &identity.namespace, &identity.name, Target::Status, source).await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == 404 || is_undecodable(&error) => Ok(()),
            Err(error) if error.code() < 500 => {
                // A retry would be rejected, too, and would block all other files.
                tracing::error!(%error, kind = identity.kind.kind, object = %identity, "a condition is not written");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// The organization in whose folder the file is, unless the file is its own.
fn organization(file: &ObjectPath) -> Option<Identity> {
    let path = file.path();
    let (name, _) = path.strip_prefix("organizations/")?.split_once('/')?;
    let identity = super::organization(name);
    (identity != file.identity).then_some(identity)
}

fn involved(identity: &Identity, uid: &str) -> Involved {
    Involved {
        api_version: identity.kind.api_version(),
        kind: identity.kind.kind.to_owned(),
        namespace: identity.namespace.clone(),
        name: identity.name.clone(),
        uid: uid.to_owned(),
    }
}

/// The common reason of lines about files: all were rejected, or some file is invalid.
fn reason_of(lines: &[String]) -> &'static str {
    let is_refusal = |line: &String| line.split_once(": ").is_some_and(|(_, why)| why.starts_with(REFUSED));
    if lines.iter().all(is_refusal) { reason::PUSH_REFUSED } else { reason::INVALID_FILE }
}

/// The lines of a message about other files.
fn without(message: Option<&str>, path: &str) -> Vec<String> {
    let is_other = |line: &&str| !line.strip_prefix(path).is_some_and(|rest| rest.starts_with(": "));
    message.into_iter().flat_map(str::lines).filter(is_other).map(str::to_owned).collect()
}

/// The newest lines that fit into a condition.
fn bounded(lines: &[String]) -> String {
    let mut size = 0;
    let fits = |line: &&String| {
        size += line.len() + 1;
        size <= MESSAGE
    };
    let mut kept: Vec<&str> = lines.iter().rev().take_while(fits).map(String::as_str).collect();
    kept.reverse();
    kept.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart_by_their_file() {
        let message = "a.yaml: line 1: x (commit 1)\na.yaml.yaml: y\nb.yaml: z";
        assert_eq!(without(Some(message), "a.yaml"), ["a.yaml.yaml: y", "b.yaml: z"]);
        assert_eq!(without(None, "a.yaml"), Vec::<String>::new());
    }

    #[test]
    fn a_refusal_is_no_invalid_file() {
        let (refused, invalid) = ("a.yaml: refused: not now".to_owned(), "b.yaml: refused is no field".to_owned());
        assert_eq!(reason_of(std::slice::from_ref(&refused)), reason::PUSH_REFUSED);
        assert_eq!(reason_of(&[refused, invalid]), reason::INVALID_FILE);
    }

    #[test]
    fn message_keeps_to_its_limit() {
        let lines: Vec<String> = (0..100).map(|n| format!("{n}: {}", "x".repeat(1000))).collect();
        let message = bounded(&lines);
        assert!(message.len() <= MESSAGE && message.lines().count() == 32, "{}", message.len());
        assert!(message.lines().last().is_some_and(|line| line.starts_with("99: ")));
    }
}
