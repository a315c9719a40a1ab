//! Tests of objects without a namespace, whose default namespace may change.

use super::*;

/// A widget that names no namespace.
pub(super) fn unplaced(name: &str) -> Resource {
    let mut resource = in_cluster("", name, "a", false);
    resource.id = format!("example.com/v1:Widget:{name}").as_str().into();
    resource.attributes["metadata"].as_object_mut().unwrap().remove("namespace");
    resource
}

impl Deployment {
    /// The namespaces that an object is in.
    fn namespaces_of(&self, name: &str) -> Vec<&'static str> {
        ["before", "after"].into_iter().filter(|namespace| self.main.object(namespace, name).is_some()).collect()
    }

    /// With an object that names no namespace, and another default than when it was applied.
    async fn with_another_default() -> Self {
        let deployment = Self::new();
        deployment.main.default_to("before");
        deployment.brings(&spec(vec![unplaced("web")])).await;
        assert_eq!(deployment.namespaces_of("web"), ["before"]);
        deployment.main.default_to("after");
        deployment
    }
}

#[tokio::test(start_paused = true)]
async fn object_moves_to_changed_default_namespace() {
    let deployment = Deployment::with_another_default().await;
    let wanted = spec(vec![unplaced("web")]);
    let planned = deployment.plan(&wanted).await.unwrap();
    let action = &planned.plan.actions[0];
    let moved = (action.changes[0].path.as_str(), &action.changes[0].before, &action.changes[0].after);
    assert_eq!(action.action, Action::Replace);
    assert_eq!(moved, ("metadata.namespace", &Some(json!("before")), &Some(json!("after"))));
    assert!(deployment.carry_out(&wanted, &planned).await.0.succeeded);
    assert_eq!(deployment.namespaces_of("web"), ["after"]);
    assert!(deployment.plan(&wanted).await.unwrap().plan.is_unchanged());
}

#[tokio::test(start_paused = true)]
async fn object_is_deleted_from_its_namespace() {
    let deployment = Deployment::with_another_default().await;
    let actions = deployment.brings(&spec(Vec::new())).await;
    assert_eq!(actions, [("example.com/v1:Widget:web".to_owned(), Action::Delete)]);
    assert!(deployment.namespaces_of("web").is_empty() && deployment.state().resources.is_empty());
}

#[tokio::test(start_paused = true)]
async fn missing_namespace_is_reported_with_cluster() {
    let deployment = Deployment::new();
    deployment.east.lack("shop");
    let wanted = spec(vec![in_cluster("", "web", "a", false), in_cluster("east", "db", "a", false)]);
    let planned = deployment.plan(&wanted).await.unwrap();
    let [told] = &planned.notes[..] else { panic!("{:?}", planned.notes) };
    assert!(
        told.starts_with("namespace shop does not exist in cluster east, and the Spec does not create it; "),
        "{told}"
    );
    assert!(told.contains(":db") && !told.contains(":web"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn explicit_namespace_keeps_object() {
    let deployment = Deployment::with_another_default().await;
    let uid = deployment.main.object("before", "web").unwrap()["metadata"]["uid"].clone();
    let mut named = widget("before", "web");
    named.attributes.insert("spec".to_owned(), json!({"value": "a"}));
    let actions: Vec<Action> =
        deployment.brings(&spec(vec![named])).await.into_iter().map(|(_, action)| action).collect();
    assert_eq!(actions, [Action::Unchanged, Action::Forget]);
    assert_eq!(deployment.main.object("before", "web").unwrap()["metadata"]["uid"], uid);
}

#[tokio::test(start_paused = true)]
async fn lost_call_in_former_namespace_is_found() {
    for is_wanted in [true, false] {
        let deployment = Deployment::with_another_default().await;
        let wanted = spec(vec![unplaced("web")]);
        deployment.crash(&wanted).await;
        assert_eq!((deployment.namespaces_of("web"), deployment.state().open.len()), (vec!["after"], 1));
        let uid = deployment.main.object("after", "web").unwrap()["metadata"]["uid"].clone();
        deployment.brings(&if is_wanted { wanted } else { spec(Vec::new()) }).await;
        if is_wanted {
            assert_eq!(deployment.main.object("after", "web").unwrap()["metadata"]["uid"], uid, "it is not made twice");
            assert_eq!(deployment.state().resources[0].uid(), uid.as_str());
        } else {
            assert!(deployment.namespaces_of("web").is_empty(), "it is left behind");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lost_call_is_found_despite_default_in_id() {
    for is_wanted in [true, false] {
        let deployment = Deployment::new();
        deployment.main.default_to("before");
        let wanted = spec(vec![Resource { id: "example.com/v1:Widget:default:web".into(), ..unplaced("web") }]);
        deployment.crash(&wanted).await;
        let uid = deployment.main.object("before", "web").unwrap()["metadata"]["uid"].clone();
        deployment.brings(&if is_wanted { wanted } else { spec(Vec::new()) }).await;
        let there = deployment.main.object("before", "web").map(|object| object["metadata"]["uid"].clone());
        assert_eq!(there, is_wanted.then_some(uid));
        assert_eq!(deployment.state().resources.len(), usize::from(is_wanted));
    }
}

#[tokio::test(start_paused = true)]
async fn lost_call_is_distinguished_from_other_id() {
    let shop = || in_cluster("", "web", "a", false);
    let lost = || widget("default", "web");
    for is_wanted in [true, false] {
        let deployment = Deployment::new();
        deployment.main.default_to("shop");
        deployment.brings(&spec(vec![shop()])).await;
        let kept = deployment.state().resources[0].clone();
        deployment.crash(&spec(vec![shop(), lost()])).await;
        assert!(deployment.main.object("default", "web").is_some());
        let uid = deployment.uid("web");
        deployment.brings(&spec(if is_wanted { vec![shop()] } else { Vec::new() })).await;
        assert_eq!(deployment.main.object("default", "web"), None, "it is not left behind");
        let there = deployment.main.object("shop", "web").map(|object| object["metadata"]["uid"].clone());
        assert_eq!(there, is_wanted.then_some(uid));
        if is_wanted {
            assert_eq!(deployment.state().resources, [kept], "nothing is cut from it");
        }
    }
    // The call was never made.
    let deployment = Deployment::new();
    deployment.main.default_to("shop");
    deployment.brings(&spec(vec![shop()])).await;
    let kept = deployment.state().resources[0].clone();
    deployment.crash(&spec(vec![shop(), lost()])).await;
    deployment.main.remove("default", "web");
    assert_eq!(deployment.planned(&spec(vec![shop()])).await[0].1, Action::Forget);
    deployment.brings(&spec(vec![shop()])).await;
    assert_eq!(deployment.state().resources, [kept]);
}

#[tokio::test(start_paused = true)]
async fn object_with_and_without_namespace_is_duplicate() {
    let deployment = Deployment::new();
    deployment.main.default_to("shop");
    let both = spec(vec![unplaced("web"), in_cluster("", "web", "b", false)]);
    let Err(PlanError::Problems(problems)) = deployment.plan(&both).await else { panic!("one object twice") };
    let told: Vec<String> = problems.iter().map(|problem| format!("{} {problem}", problem.reason)).collect();
    assert_eq!(
        told,
        ["DuplicateResource example.com/v1:Widget:shop:web: attributes.metadata.namespace: this is the same \
             object as example.com/v1:Widget:web: an object without a namespace goes to shop in cluster main"]
    );
    deployment.main.default_to("elsewhere");
    assert!(deployment.plan(&both).await.is_ok());
}
