//! The keys of a deployment's records in the log, and the one question about them that admission asks.
//!
//! Elsewhere: the execution of Runs writes and reads the records themselves.

use futures_util::future::try_join_all;
use stoa_engine::{document, record::Record};
use stoa_machinery::{
    Key,
    log::{Entry, Log, LogError},
};

/// Where in a deployment's records those of its resources are.
pub const RESOURCES: &str = "resources/";

/// Where the records of a stack in a workspace are.
pub fn prefix(stack_uid: &str, workspace: &str) -> String {
    format!("/stoa/state/{stack_uid}/{workspace}/")
}

/// The key of the record of one resource.
pub fn entry_key(prefix: &str, id: &str) -> Key {
    Key::new(format!("{prefix}{RESOURCES}{id}"))
}

/// The key of the record of the whole deployment.
pub fn head_key(prefix: &str) -> Key {
    Key::new(format!("{prefix}head"))
}

/// The position and the id of the first of some resources of which no call is open: nobody has to decide what became of one. What
/// cannot be understood is not known to have none.
///
/// # Errors
///
/// When the log cannot be read.
pub(crate) async fn first_settled<'a>(
    log: &dyn Log,
    stack_uid: &str,
    workspace: &str,
    ids: &'a [String],
) -> Result<Option<(usize, &'a str)>, LogError> {
    let prefix = prefix(stack_uid, workspace);
    let keys: Vec<Key> = ids.iter().map(|id| entry_key(&prefix, id)).collect();
    let entries = try_join_all(keys.iter().map(|key| log.read(key))).await?;
    let is_settled = |entry: &Option<Entry>| {
        let record = entry.as_ref().map(|entry| document::decode::<Record>(&entry.value));
        record.is_none_or(|record| record.is_ok_and(|record| record.intent.is_none()))
    };
    let position = entries.iter().position(is_settled);
    Ok(position.map(|position| (position, ids[position].as_str())))
}
