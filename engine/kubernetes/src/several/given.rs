//! Ids that go elsewhere while others want the objects on record under them where these are.

use super::namespaces::unplaced;
use super::*;

/// An object that goes from `main` to `east`, and the id that wants it in `main`.
fn both() -> Spec {
    spec(vec![in_cluster("east", "web", "b", false), in_cluster("main", "web", "a", true)])
}

impl Deployment {
    async fn with_web() -> Self {
        let deployment = Self::new();
        deployment.brings(&spec(vec![in_cluster("main", "web", "a", false)])).await;
        deployment
    }

    /// Records an object under another id, too, as a run does that ends before it is through.
    fn record_as(&self, id: &str, twin: &str) {
        let mut records = self.keeper.records.lock().unwrap();
        let record = StateResource { id: twin.into(), ..records[id].clone() };
        records.insert(record.id.clone(), record);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_stays_that_another_id_wants_where_it_is() {
    let deployment = Deployment::with_web().await;
    let uid = deployment.uid("web");
    let planned = deployment.plan(&both()).await.unwrap();
    let [first, second] = &planned.plan.actions[..] else { panic!("{}", planned.table) };
    assert_eq!((first.action, first.recorded_as.as_ref()), (Action::Unchanged, Some(&second.id)));
    assert_eq!((second.action, second.kept_as.as_ref()), (Action::Create, Some(&first.id)));
    assert_eq!(second.after, std::slice::from_ref(&first.id), "its record is not lost before");
    let actions = deployment.brings(&both()).await;
    assert_eq!(actions, [("web".to_owned(), Action::Create), ("web/main".to_owned(), Action::Unchanged)]);
    assert_eq!((deployment.uid("web"), deployment.values("web")), (uid, [Some(json!("a")), Some(json!("b"))]));
    let state = deployment.state();
    let clusters: Vec<&str> = state.resources.iter().map(|record| record.cluster.as_str()).collect();
    assert_eq!(clusters, ["east", "main"]);
    assert!(deployment.plan(&both()).await.unwrap().plan.is_unchanged());
    deployment.brings(&spec(Vec::new())).await;
    assert_eq!(deployment.values("web"), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn an_object_stays_though_what_wants_it_depends_on_the_id_that_goes() {
    let deployment = Deployment::with_web().await;
    let uid = deployment.uid("web");
    let mut wanted = both();
    let goes = wanted.resources[0].id.clone();
    wanted.resources[1].depends_on.push(goes);
    deployment.brings(&wanted).await;
    assert_eq!((deployment.uid("web"), deployment.values("web")), (uid, [Some(json!("a")), Some(json!("b"))]));
    assert!(deployment.plan(&wanted).await.unwrap().plan.is_unchanged());
}

#[tokio::test(start_paused = true)]
async fn two_ids_may_change_places() {
    let deployment = Deployment::new();
    [&deployment.main, &deployment.east].iter().for_each(|server| server.default_to("shop"));
    let wanted = |of_bare: &str, of_full: &str| {
        let value = |cluster: &str| if cluster == "main" { "a" } else { "b" };
        let mut bare = unplaced("web");
        bare.attributes.insert("spec".to_owned(), json!({"value": value(of_bare)}));
        bare.extensions.insert("cluster".to_owned(), of_bare.into());
        spec(vec![bare, in_cluster(of_full, "web", value(of_full), false)])
    };
    deployment.brings(&wanted("main", "east")).await;
    let uids = || {
        [&deployment.main, &deployment.east]
            .map(|server| server.object("shop", "web").unwrap()["metadata"]["uid"].clone())
    };
    let before = uids();
    let swapped = wanted("east", "main");
    let actions = deployment.brings(&swapped).await;
    assert!(actions.iter().all(|(_, action)| matches!(action, Action::Unchanged | Action::Update)), "{actions:?}");
    assert_eq!(uids(), before);
    assert!(deployment.plan(&swapped).await.unwrap().plan.is_unchanged());
    let of_bare = deployment.state().get(&unplaced("web").id).unwrap().clone();
    assert_eq!((of_bare.cluster.as_str(), of_bare.uid()), ("east", before[1].as_str()));
    deployment.brings(&spec(Vec::new())).await;
    assert_eq!(deployment.values("web"), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn an_object_stays_in_a_namespace_that_is_the_default_no_more_where_that_is_named() {
    let deployment = Deployment::new();
    deployment.main.default_to("before");
    deployment.brings(&spec(vec![unplaced("web")])).await;
    deployment.main.default_to("after");
    let place =
        |namespace: &str| deployment.main.object(namespace, "web").map(|object| object["metadata"]["uid"].clone());
    let uid = place("before");
    let mut named = widget("before", "web");
    named.attributes.insert("spec".to_owned(), json!({"value": "a"}));
    let wanted = spec(vec![unplaced("web"), named]);
    let actions: Vec<Action> = deployment.brings(&wanted).await.into_iter().map(|(_, action)| action).collect();
    assert_eq!(actions, [Action::Unchanged, Action::Create]);
    assert_eq!((place("before"), place("after").is_some()), (uid, true));
    assert!(deployment.plan(&wanted).await.unwrap().plan.is_unchanged());
}

#[tokio::test(start_paused = true)]
async fn what_was_made_elsewhere_without_an_answer_is_found_though_another_id_has_what_was_on_record() {
    let deployment = Deployment::with_web().await;
    let [goes, stays] = [0, 1].map(|position| both().resources[position].id.0.clone());
    deployment.record_as(&goes, &stays);
    deployment.crash(&both()).await;
    assert_eq!(
        (deployment.values("web"), deployment.open()),
        ([Some(json!("a")), Some(json!("b"))], vec!["east".into()])
    );
    deployment.brings(&spec(both().resources.split_off(1))).await;
    assert_eq!(deployment.values("web"), [Some(json!("a")), None]);
}

#[tokio::test(start_paused = true)]
async fn what_turns_out_to_be_wanted_under_another_name_of_its_cluster_is_not_removed_to_be_made_elsewhere() {
    let deployment = Deployment::to_one_server();
    deployment.main.default_to("before");
    deployment.brings(&spec(vec![unplaced("web")])).await;
    deployment.main.default_to("after");
    let place =
        |namespace: &str| deployment.main.object(namespace, "web").map(|object| object["metadata"]["uid"].clone());
    let uid = place("before");
    let mut twin = widget("before", "web");
    twin.id.0.push_str("/east");
    twin.attributes.insert("spec".to_owned(), json!({"value": "a"}));
    twin.extensions.insert("cluster".to_owned(), "east".into());
    let wanted = spec(vec![unplaced("web"), twin]);
    // Nobody can see for the plan that it is one object.
    deployment.main.be_away_as(Some("east"));
    let planned = deployment.plan(&wanted).await.unwrap();
    let [first, second] = &planned.plan.actions[..] else { panic!("{}", planned.table) };
    assert_eq!(
        (first.action, second.action, &second.after[..]),
        (Action::Create, Action::Replace, &[first.id.clone()][..])
    );
    deployment.main.be_away_as(None);
    let (outcome, _) = deployment.carry_out(&wanted, &planned).await;
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!((place("before"), place("after").is_some()), (uid, true));
}
