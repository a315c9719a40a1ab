//! Which of several Stoas leads.

use std::time::Duration;

use kube::Client;

/// Which replica says that it leads; nothing while none does.
pub async fn leader(clients: &[Client]) -> Option<usize> {
    for (number, client) in clients.iter().enumerate() {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let asked = tokio::time::timeout(Duration::from_secs(5), client.request_text(request)).await;
        let Ok(Ok(metrics)) = asked else { continue };
        if metrics.contains("leader_election_master_status{name=\"controllers\"} 1") {
            return Some(number);
        }
    }
    None
}

/// Waits until one leads.
///
/// # Panics
///
/// When none does within `patience`.
pub async fn new_leader(clients: &[Client], patience: Duration) -> usize {
    let found = tokio::time::timeout(patience, async {
        loop {
            if let Some(leader) = leader(clients).await {
                return leader;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    found.await.expect("somebody leads")
}
