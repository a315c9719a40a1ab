//! The history of deployments: waiting transitions move to the archive, small segments are merged, and old ones are removed.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::hub::HubService;

/// How often the archive is tended.
const EVERY: Duration = Duration::from_secs(30);
/// The time between two rounds that Reconcilers with many transitions ask for.
const GAP: Duration = Duration::from_secs(1);

pub(crate) async fn run(hub: HubService, end: CancellationToken) {
    loop {
        let due = async {
            tokio::time::sleep(GAP).await;
            // The end of the wait is enough: who asked or whether the time is up makes no difference.
            let _ = tokio::time::timeout(EVERY, hub.memory().archive_is_due()).await;
        };
        if end.run_until_cancelled(due).await.is_none() {
            return;
        }
        if let Err(error) = hub.tend().await {
            tracing::warn!(%error, "the history of deployments is not archived; it is tried again");
        }
    }
}
