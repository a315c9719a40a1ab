//! The records of destroyed deployments in the control repository.

use stoa_kinds::{destroyed, testing::destroyed as record_of};

use super::*;

const RECORD: &str = "organizations/shop/destroyed/web/dev.yaml";

#[tokio::test]
async fn destroyed_deployment_is_a_commit_that_outlives_its_organization() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    let log = fixture.registry.log().clone();
    destroyed::record(&*log, "shop", &record_of("down", &["v1:ConfigMap:shop:a", "v1:Namespace:shop"]), None)
        .await
        .unwrap();
    fixture.delete("ann", "config.stoa.dev", "organizations", "", "shop").await;
    fixture.gone::<Organization>("", "shop").await;
    fixture.projected().await;
    assert_eq!(fixture.files(), [RECORD]);
    let subject = "destroy stack shop/web in workspace dev: release 3, 2 resources";
    assert!(fixture.log("%s").contains(&subject.to_owned()), "{:?}", fixture.log("%s"));
    let lines = fixture.log("%b");
    for line in ["Stack: shop/web", "Workspace: dev", "Release: 3", "Run: down", "Caused-By: ann"] {
        assert!(lines.contains(&line.to_owned()), "{line:?} is not in {lines:?}");
    }
    insta::assert_snapshot!(fixture.show(RECORD), @r#"
    stack: web
    stackUID: u1
    project: web
    workspace: dev
    release: 3
    run: down
    runUID: uid of down
    requestedBy: system:stoa:stacks
    causedBy:
    - ann
    time: "1970-01-01T00:00:00Z"
    resources:
    - v1:ConfigMap:shop:a
    - v1:Namespace:shop
    "#);
}

#[tokio::test]
async fn server_ignores_push_to_destroyed_deployment_record() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    let log = fixture.registry.log().clone();
    destroyed::record(&*log, "shop", &record_of("down", &["v1:Namespace:shop"]), None).await.unwrap();
    fixture.projected().await;
    let clone = fixture.clone_control().await;
    clone.write(RECORD, "not: [what it was");
    clone.write(WORKSPACE, &yaml(&workspace("dev")));
    fixture.push(&clone, "edit a record").await;
    assert!(fixture.status.borrow().invalid.is_empty(), "{:?}", fixture.status.borrow().invalid);
    assert!(fixture.registry.api::<Workspace>().get_opt("", "dev").await.unwrap().is_some(), "the rest is applied");
    destroyed::record(&*log, "shop", &record_of("again", &["v1:Namespace:shop"]), None).await.unwrap();
    fixture.projected().await;
    assert!(fixture.show(RECORD).contains("run: again"), "{}", fixture.show(RECORD));
}
