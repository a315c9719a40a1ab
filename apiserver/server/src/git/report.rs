//! Tells people about pushed files that are not what is served: in the condition `Synced`, and in
//! an Event.
//!
//! The condition is on the object that the file stands for, or else on the organization in whose
//! folder the file lies. Its message has a line for each file that is refused, so that it alone
//! says what is left to be put right, also after a restart.

use std::sync::Arc;

use serde_json::Value;
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

use super::{
    ingest::{find, place_of},
    place::{Authored, Identity, Place},
};

/// How long what is told about one file may be, in characters.
const LINE: usize = 1024;
/// How long a condition's message may be, in bytes: the limit of `metav1.Condition`.
const MESSAGE: usize = 32 << 10;
/// How what is told about a file begins when the file is valid and the server refused what it asks for. It is part of
/// the message, so that a condition of several lines still knows of each which it is.
pub(super) const REFUSED: &str = "refused: ";
/// What the condition says when all is well.
const IN_SYNC: &str = "the file in the control repository is what is served";

/// Writes the conditions and the Events.
#[derive(Debug)]
pub(super) struct Reports {
    stores: Vec<(Authored, Arc<Store>)>,
    recorder: Recorder,
    context: RequestContext,
}

impl Reports {
    /// Writes under the fence: whoever leads no more knows nothing that is worth telling.
    pub(super) fn new(stores: Vec<(Authored, Arc<Store>)>, recorder: Recorder, fence: Option<Fence>) -> Self {
        let mut context = RequestContext::internal("git");
        context.fence = fence;
        Self { stores, recorder, context }
    }

    fn store(&self, kind: Authored) -> &Arc<Store> {
        let found = self.stores.iter().find(|(served, _)| *served == kind);
        &found.expect("every authored kind is served").1
    }

    /// Tells that the file of a place was refused.
    ///
    /// # Errors
    ///
    /// When it could not be told now.
    pub(super) async fn invalid(&self, place: &Place, why: &str, commit: &str) -> Result<(), ApiError> {
        let path = place.path();
        let short = &commit[..commit.len().min(8)];
        let why: String = why.chars().take(LINE).collect();
        let line = format!("{path}: {why} (commit {short})");
        let Some(carrier) = self.carrier(place).await? else {
            tracing::warn!(path, why, commit, "a pushed file is invalid and no object can say so");
            let reason = reason_of(std::slice::from_ref(&line));
            self.recorder.record_about(involved(&place.identity, ""), Kind::Warning, reason, line);
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

    /// Takes back what was told about the file of a place.
    ///
    /// # Errors
    ///
    /// When it could not be taken back now.
    pub(super) async fn valid_again(&self, place: &Place) -> Result<(), ApiError> {
        let path = place.path();
        // Whoever was told of the file may not be who would be told now.
        for identity in [Some(place.identity.clone()), organization(place)].into_iter().flatten() {
            self.change(&identity, |message| message.map(|_| without(message, &path))).await?;
        }
        Ok(())
    }

    /// Who has to say what is wrong with a file.
    async fn carrier(&self, place: &Place) -> Result<Option<(Identity, Arc<Stored>)>, ApiError> {
        // What does not decode can say nothing.
        let readable = async |identity: &Identity| match find(self.store(identity.kind), identity).await {
            Err(error) if is_undecodable(&error) => Ok(None),
            found => found,
        };
        let own = readable(&place.identity).await?;
        if let Some(stored) = own.filter(|stored| place_of(stored).as_ref() == Some(place)) {
            return Ok(Some((place.identity.clone(), stored)));
        }
        let Some(identity) = organization(place) else { return Ok(None) };
        Ok(readable(&identity).await?.map(|stored| (identity, stored)))
    }

    /// Changes the lines of an object's condition. The change gets the message as long as something
    /// is wrong, and returns nothing when there is nothing to say.
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
                // It would be refused again and again, and holding up everything else helps nobody.
                tracing::error!(%error, kind = identity.kind.kind(), object = %identity, "a condition is not written");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

fn organization(place: &Place) -> Option<Identity> {
    let name = place.organization().filter(|_| place.identity.kind != Authored::Organization)?;
    Some(Identity { kind: Authored::Organization, namespace: String::new(), name: name.to_owned() })
}

fn involved(identity: &Identity, uid: &str) -> Involved {
    Involved {
        api_version: identity.kind.api_version(),
        kind: identity.kind.kind().to_owned(),
        namespace: identity.namespace.clone(),
        name: identity.name.clone(),
        uid: uid.to_owned(),
    }
}

/// What lines about files have in common: that all of them were refused, or that some file is invalid.
fn reason_of(lines: &[String]) -> &'static str {
    let is_refusal = |line: &String| line.split_once(": ").is_some_and(|(_, why)| why.starts_with(REFUSED));
    if lines.iter().all(is_refusal) { reason::PUSH_REFUSED } else { reason::INVALID_FILE }
}

/// The lines of a message about other files.
fn without(message: Option<&str>, path: &str) -> Vec<String> {
    let is_other = |line: &&str| !line.strip_prefix(path).is_some_and(|rest| rest.starts_with(": "));
    message.into_iter().flat_map(str::lines).filter(is_other).map(str::to_owned).collect()
}

/// As many of the lines as a condition may hold, the newest first to be kept.
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
