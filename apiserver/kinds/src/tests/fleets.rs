//! Fleets: the permissions of users who write their objects.

use super::*;

const SCHEDULER: &str = "scheduler.kalypso.io/v1alpha1";

#[tokio::test]
async fn author_of_a_repository_needs_its_secret() {
    let world = World::new().await;
    let make = |name: &'static str, allowed: &'static [&'static str]| {
        let workload = json!({"repo": "https://git.example.com/app", "branch": "main", "path": "."});
        let registration =
            json!({"metadata": {"name": name}, "spec": {"workload": workload, "workspace": "kaizen-app-team"}});
        let world = &world;
        async move {
            let context = by("ann", allowed);
            let made = world.make_as(&context, SCHEDULER, "WorkloadRegistration", "shop", registration).await;
            made.map(drop).map_err(|error| error.code())
        }
    };
    // The Secret does not exist yet. The repository would get one that an administrator creates later.
    assert_eq!(make("one", &[]).await, Err(403));
    assert_eq!(make("two", &["use secrets gh-repo-secret"]).await, Ok(()));
}
