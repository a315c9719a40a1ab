//! Tests of objects that others deleted and created again.

use stoa_engine::owner::LeftAlone;
use stoa_runtime::{ApplyRequest, Deleted, RuntimeError};

use super::*;

impl Deployment {
    /// Somebody removes an object, and makes another of its name.
    fn recreate(&self, name: &str) {
        self.main.remove("shop", name);
        self.main.make("shop", name, json!({"labels": {"made-by": "somebody"}}));
    }
}

#[tokio::test(start_paused = true)]
async fn recreated_object_is_taken_over_as_planned() {
    let deployment = Deployment::new();
    let wanted = spec(vec![in_cluster("", "web", "a", false)]);
    deployment.brings(&wanted).await;
    deployment.recreate("web");
    let theirs = deployment.uid("web");
    let planned = deployment.plan(&wanted).await.unwrap();
    assert!(planned.plan.actions[0].recreated, "{}", planned.table);
    assert_eq!(deployment.brings(&wanted).await, [("web".to_owned(), Action::Adopt)]);
    assert_eq!((deployment.uid("web"), deployment.state().resources[0].uid()), (theirs.clone(), theirs.as_str()));
    assert_eq!(deployment.planned(&wanted).await, [("web".to_owned(), Action::Unchanged, None)]);
}

#[tokio::test(start_paused = true)]
async fn recreated_object_is_not_deleted() {
    let deployment = Deployment::new();
    deployment.brings(&spec(vec![in_cluster("", "web", "a", false)])).await;
    let record = deployment.state().resources.remove(0);
    let ours = deployment.main.object("shop", "web").unwrap()["metadata"]["annotations"].clone();
    deployment.recreate("web");
    let theirs = deployment.uid("web");
    assert_eq!(deployment.runtime().delete(&record).await.unwrap(), Deleted::Left(LeftAlone::Recreated));
    let nothing = spec(Vec::new());
    assert_eq!(deployment.brings(&nothing).await, [("web".to_owned(), Action::Forget)]);
    assert_eq!((deployment.uid("web"), deployment.state().resources), (theirs, Vec::new()));

    // What bears our mark may be what a later call of ours made, which this record is not of.
    deployment.main.remove("shop", "web");
    deployment.main.make("shop", "web", json!({ "annotations": ours }));
    let refused = deployment.runtime().delete(&record).await.unwrap_err();
    assert!(refused.to_string().contains("this deployment owns it; delete it by hand, or remove its annotation"));
}

#[tokio::test(start_paused = true)]
async fn object_recreated_after_plan_is_not_changed() {
    let deployment = Deployment::new();
    let web = in_cluster("", "web", "a", false);
    deployment.brings(&spec(vec![web.clone()])).await;
    let record = deployment.state().resources.remove(0);
    let (changed, runtime) = (in_cluster("", "web", "b", false), deployment.runtime());
    let planned = deployment.plan(&spec(vec![changed.clone()])).await.unwrap();
    assert_eq!(planned.plan.actions[0].action, Action::Update);
    deployment.recreate("web");
    let theirs = deployment.main.object("shop", "web");
    let refused = runtime.apply(&ApplyRequest::new(&changed, Some(&record))).await.unwrap_err();
    assert!(matches!(&refused, RuntimeError::Conflict(text) if text.contains("plan again")), "{refused:?}");
    assert_eq!(deployment.main.object("shop", "web"), theirs);
    runtime.apply(&ApplyRequest::adopting(&changed)).await.unwrap();
    assert_eq!(deployment.values("web"), [Some(json!("b")), None]);
}

#[tokio::test(start_paused = true)]
async fn recreated_object_stays_when_id_moves() {
    let deployment = Deployment::new();
    deployment.brings(&spec(vec![in_cluster("", "web", "a", false)])).await;
    deployment.recreate("web");
    let theirs = deployment.main.object("shop", "web");
    let moved = spec(vec![in_cluster("east", "web", "a", false)]);
    assert_eq!(deployment.brings(&moved).await, [("web".to_owned(), Action::Replace)]);
    assert_eq!(
        (deployment.main.object("shop", "web"), deployment.values("web")[1].clone()),
        (theirs, Some(json!("a")))
    );
    assert_eq!(deployment.planned(&moved).await, [("web".to_owned(), Action::Unchanged, None)]);
}
