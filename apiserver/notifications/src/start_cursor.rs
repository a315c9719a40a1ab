//! The position at which delivery to a sink starts: its last recorded position, or its creation.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_machinery::{
    Version,
    log::{Log, LogError},
};
use stoa_types::NotificationSink;

use super::{
    records::{Cursor, Records},
    worker::Stopped,
};

/// How far a sink was told. One that was never seen before begins here: it is told of what happens after it was made.
pub(super) async fn cursor(log: &dyn Log, records: &Records, sink: &NotificationSink) -> Result<Cursor, Stopped> {
    if let Some(cursor) = records.cursor().await? {
        return Ok(cursor);
    }
    let time = sink.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |Time(at)| *at);
    let cursor = Cursor::at(made_at(log, sink).await?, time);
    records.write_cursor(&cursor).await?;
    Ok(cursor)
}

/// The version by which a sink was made. It may have been changed since, before anybody looked. Where history does not
/// reach back so far it is the first of all: what is told then of objects as they are is as old as the sink at most.
async fn made_at(log: &dyn Log, sink: &NotificationSink) -> Result<Version, LogError> {
    let key = format!("/registry/platform.stoa.dev/notificationsinks/{}", sink.name_any());
    let seen: u64 = sink.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default();
    // It is there at the second, and not yet, or nobody knows, at the first.
    let (mut before, mut there) = (0_u64, seen);
    let mut at = seen.saturating_sub(1);
    while there - before > 1 {
        match log.scan(&key, Some(Version(at))).await {
            Ok(snapshot) => {
                // Others' names may begin with this one, and others may have had it.
                let found = snapshot.entries.iter().find(|entry| entry.key.as_str() == key);
                let uid = found.and_then(|entry| {
                    let object: serde_json::Value = serde_json::from_slice(&entry.value).ok()?;
                    object["metadata"]["uid"].as_str().map(str::to_owned)
                });
                if uid == sink.uid() { there = at } else { before = at }
            }
            Err(LogError::Expired { oldest, .. }) => before = (oldest.0.saturating_sub(1)).clamp(at, there - 1),
            Err(error) => return Err(error),
        }
        at = before + (there.saturating_sub(before)) / 2;
    }
    let is_known = before == 0 || log.scan(&key, Some(Version(before))).await.is_ok();
    Ok(Version(if is_known { there } else { 1 }))
}
