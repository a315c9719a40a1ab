//! Fleets: the permissions of users who write their objects.

use stoa_types::{
    delivery::{Promotion, PromotionApproval},
    scheduler::GitOpsRepo,
};

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

#[tokio::test]
async fn server_alone_writes_the_status_of_promotions() {
    let world = World::new().await;
    let spec = json!({"commit": "0123456789012345678901234567890123456789", "environments": [{"environment": "dev"}]});
    let promotion = json!({"metadata": {"name": "release", "namespace": "shop"}, "spec": spec});
    let promotion: Promotion = serde_json::from_value(promotion).unwrap();
    let promotions = world.registry.api::<Promotion>();
    promotions.create(&promotion).await.unwrap();
    let approve = |promotion: &mut Promotion| {
        let approval = PromotionApproval {
            environment: "dev".to_owned(),
            approver: "bob".to_owned(),
            ..PromotionApproval::default()
        };
        promotion.status.get_or_insert_default().approvals.push(approval);
    };
    let of_ann = promotions.with_context(by("ann", &[]));
    assert_eq!(of_ann.update_status_with("shop", "release", approve).await.unwrap_err().code(), 403);

    let spec = json!({"repo": "https://git.example.com/gitops", "branch": "dev", "path": "."});
    let repo = json!({"metadata": {"name": "dev", "namespace": "shop"}, "spec": spec});
    let repo: GitOpsRepo = serde_json::from_value(repo).unwrap();
    let repos = world.registry.api::<GitOpsRepo>();
    repos.create(&repo).await.unwrap();
    let promoted = |repo: &mut GitOpsRepo| repo.status.get_or_insert_default().promoted_commit = "a".repeat(40);
    let of_ann = repos.with_context(by("ann", &[]));
    assert_eq!(of_ann.update_status_with("shop", "dev", promoted).await.unwrap_err().code(), 403);
}

#[tokio::test]
async fn reports_of_a_promotion_need_the_reconcilers() {
    let world = World::new().await;
    let make = |name: &'static str, environment: Value, allowed: &'static [&'static str]| {
        let spec = json!({"commit": "0123456789012345678901234567890123456789", "environments": [environment]});
        let world = &world;
        async move {
            let context = by("ann", allowed);
            let object = json!({"metadata": {"name": name}, "spec": spec});
            let made = world.make_as(&context, "delivery.stoa.dev/v1alpha1", "Promotion", "shop", object).await;
            made.map(drop).map_err(|error| error.code())
        }
    };
    let (plain, gated) = (json!({"environment": "dev"}), json!({"environment": "dev", "reports": {}}));
    let promote = &["promote environments dev"];
    assert_eq!(make("one", gated.clone(), promote).await, Err(403), "the status has the messages of clusters");
    assert_eq!(make("two", plain, promote).await, Ok(()));
    // The permission is for all Reconcilers of the namespace.
    assert_eq!(make("three", gated, &["promote environments dev", "list reconcilers "]).await, Ok(()));
}
