//! Ended runs whose time to be kept is over.

use std::time::Duration;

use stoa_types::Run;
use tokio::time::Instant;

use super::{Scheduler, queue};
use crate::controllers::needed;

/// How long after its time a Preview is kept on, and looked at again, whose plan another run is to carry out.
const NEEDED: Duration = Duration::from_secs(10);

impl Scheduler {
    /// Removes ended runs as they were read, but those whose plans others are to carry out, or may be.
    pub(super) async fn remove(&mut self, over: Vec<Run>) {
        let Ok(runs) = self.services.lookup.api::<Run>() else { return };
        for batch in over.chunks(needed::BATCH) {
            let asked: Vec<&Run> = batch.iter().collect();
            let needed = needed::to_be_carried_out(&self.services.lookup, &asked).await.ok();
            for run in batch {
                let key = queue::key_of(run);
                if needed.as_ref().is_none_or(|needed| needed.contains(&key)) {
                    self.later.insert(key, Instant::now() + NEEDED);
                } else if let Err(error) = runs.delete(&key.0, &key.1, &queue::as_read(run)).await {
                    self.complain::<()>(run, Err(error));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::ResourceExt as _;
    use serde_json::json;
    use stoa_types::delivery::RunPhase;

    use super::*;
    use crate::{
        controllers::runs::tests::World,
        runs::{journal::tests::Narrow, runner},
    };

    const RUNS: usize = 40;

    #[tokio::test]
    async fn runs_are_listed_once_in_a_sweep_however_many_previews_have_had_their_time() {
        let log = Narrow::new(0);
        let world = World::over(log.clone(), runner::unreachable(), |builder| builder).await;
        let apply = json!({"stack": "web", "workspace": "dev", "operation": "Apply", "plan": "preview-7"});
        let runs = world.registry.api::<Run>();
        let mut reads = Vec::new();
        for operation in ["Refresh", "Preview"] {
            let mut scheduler = Scheduler::new(world.services.clone(), tokio_util::sync::CancellationToken::new());
            let spec =
                json!({"stack": "web", "workspace": "dev", "operation": operation, "ttlSecondsAfterFinished": 0});
            for number in 0..RUNS {
                let name = format!("{}-{number}", operation.to_lowercase());
                world.create("Run", &name, spec.clone()).await;
                let now = world.services.now();
                let end = |run: &mut Run| {
                    let status = run.status.get_or_insert_default();
                    (status.phase, status.completion_time) = (RunPhase::Succeeded, Some(Time(now)));
                };
                scheduler.see(runs.update_status_with("shop", &name, end).await.unwrap()).await;
            }
            if operation == "Preview" {
                world.create("Run", "apply", apply.clone()).await;
            }
            let before = log.heads();
            scheduler.sweep().await;
            reads.push(log.heads() - before);
        }
        let [of_others, of_previews] = reads[..] else { panic!("{reads:?}") };
        // Others may ask where the log ends meanwhile.
        assert!(of_previews < of_others + RUNS / 2, "{reads:?}");
        let left = runs.list(Some("shop"), "").await.unwrap();
        let is_left = |run: &&Run| run.metadata.deletion_timestamp.is_none();
        let left: Vec<String> = left.iter().filter(is_left).map(|run| run.name_any()).collect();
        assert_eq!(left, ["apply", "preview-7"]);
    }
}
