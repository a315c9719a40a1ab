//! Tests of ids that exchange their objects.

use tokio::time::timeout;

use super::default_namespaces::unplaced;
use super::*;

/// An object that moves from `main` to `east`, and the id that wants it in `main`.
fn both() -> Spec {
    spec(vec![in_cluster("east", "web", "b", false), in_cluster("main", "web", "a", true)])
}

impl Deployment {
    /// Brings `web` to the default namespace, which is another from then on.
    async fn applies_after_default_namespace_changes(&self) {
        self.main.default_to("before");
        self.brings(&spec(vec![unplaced("web")])).await;
        self.main.default_to("after");
    }

    /// The uid of `web` in a namespace of the first cluster.
    fn main_uid(&self, namespace: &str) -> Option<Value> {
        self.main.object(namespace, "web").map(|object| object["metadata"]["uid"].clone())
    }

    async fn with_web() -> Self {
        let deployment = Self::new();
        deployment.brings(&spec(vec![in_cluster("main", "web", "a", false)])).await;
        deployment
    }

    /// A deployment whose default namespace is `shop`.
    fn in_shop() -> Self {
        let deployment = Self::new();
        [&deployment.main, &deployment.east].iter().for_each(|server| server.default_to("shop"));
        deployment
    }

    /// The uids of the widgets in `main` and `east`.
    fn uids(&self) -> [Value; 2] {
        [&self.main, &self.east].map(|server| server.object("shop", "web").unwrap()["metadata"]["uid"].clone())
    }

    /// The uid on record under an id.
    fn recorded(&self, id: &ResourceId) -> Value {
        json!(self.state().get(id).unwrap().uid())
    }

    /// Records an object under another id, too, as a run does that ends before it is through.
    fn record_as(&self, id: &str, twin: &str) {
        let mut records = self.observer.records.lock().unwrap();
        let record = StateResource { id: twin.into(), ..records[id].clone() };
        records.insert(record.id.clone(), record);
    }
}

#[tokio::test(start_paused = true)]
async fn object_of_moving_id_stays_for_other_id() {
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
async fn object_stays_although_its_new_id_depends_on_old() {
    let deployment = Deployment::with_web().await;
    let uid = deployment.uid("web");
    let mut wanted = both();
    let goes = wanted.resources[0].id.clone();
    wanted.resources[1].depends_on.push(goes);
    deployment.brings(&wanted).await;
    assert_eq!((deployment.uid("web"), deployment.values("web")), (uid, [Some(json!("a")), Some(json!("b"))]));
    assert!(deployment.plan(&wanted).await.unwrap().plan.is_unchanged());
}

/// The object of an id that goes elsewhere, and of the id that wants it where it is, depending on the first and on `z`.
fn in_a_cycle() -> Spec {
    let mut wanted = both();
    let z = in_cluster("main", "z", "a", false);
    let ids = [wanted.resources[0].id.clone(), z.id.clone()];
    wanted.resources[1].depends_on.extend(ids);
    wanted.resources.push(z);
    wanted
}

#[tokio::test(start_paused = true)]
async fn new_record_is_written_before_its_turn() {
    const Z: &str = "APPLY /apis/example.com/v1/namespaces/shop/widgets/z";
    let wanted = in_a_cycle();
    let [goes, stays] = [0, 1].map(|position| wanted.resources[position].id.clone());
    // What comes first is never done.
    let deployment = Deployment::with_web().await;
    let uid = deployment.uid("web");
    deployment.main.refuse(Z, 403);
    let (outcome, results) = deployment.apply(&wanted).await;
    assert!(!outcome.succeeded, "{outcome:?}");
    assert_eq!(results[0], ("web/main".to_owned(), Action::Unchanged, ResourceOutcome::Done), "{results:?}");
    assert_eq!((deployment.recorded(&stays), deployment.state().get(&goes).unwrap().cluster.as_str()), (uid, "east"));
    deployment.main.refuse_nothing();
    deployment.brings(&spec(vec![wanted.resources[0].clone()])).await;
    assert_eq!(deployment.values("web"), [None, Some(json!("b"))], "it is not left behind");

    // It is still being done when the run is interrupted.
    let deployment = Deployment::with_web().await;
    let uid = deployment.uid("web");
    let planned = deployment.plan(&wanted).await.unwrap();
    deployment.observer.done.lock().unwrap().clear();
    deployment.main.hold(Some("widgets/z"));
    timeout(Duration::from_secs(10), deployment.execute(&wanted, &planned)).await.unwrap_err();
    deployment.main.hold(None);
    let done = deployment.observer.done.lock().unwrap().clone();
    assert!(done.contains(&goes) && !done.contains(&stays), "{done:?}");
    let outcome = deployment.resume(&wanted, &planned, &done).await.unwrap();
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!((deployment.uid("web"), deployment.recorded(&stays)), (uid.clone(), uid));
    assert_eq!(deployment.state().get(&stays).unwrap().depends_on.len(), 2, "it is as it is wanted");
    assert!(deployment.plan(&wanted).await.unwrap().plan.is_unchanged());
    deployment.brings(&spec(Vec::new())).await;
    assert_eq!((deployment.values("web"), deployment.values("z")), ([None, None], [None, None]));
}

#[tokio::test(start_paused = true)]
async fn lost_call_elsewhere_is_found_beside_record() {
    let deployment = Deployment::with_web().await;
    let [goes, stays] = [0, 1].map(|position| both().resources[position].id.0.clone());
    let made = async || {
        deployment.record_as(&goes, &stays);
        deployment.crash(&both()).await;
        assert_eq!(deployment.open(), ["east"]);
        deployment.observer.records.lock().unwrap().remove(stays.as_str());
    };
    made().await;
    // As long as nobody can look there it may be there.
    deployment.east.be_away(true);
    let Err(PlanError::Runtime(error)) = deployment.plan(&spec(Vec::new())).await else { panic!("it may be there") };
    assert!(error.is_retryable(), "{error}");
    deployment.east.be_away(false);
    // What is where it is on record stays under its id.
    let actions = deployment.brings(&spec(vec![in_cluster("main", "web", "a", false)])).await;
    assert!(actions.contains(&("web/east".to_owned(), Action::Delete)), "{actions:?}");
    assert!(actions.contains(&("web".to_owned(), Action::Unchanged)), "{actions:?}");
    assert_eq!(deployment.values("web"), [Some(json!("a")), None]);
    made().await;
    deployment.brings(&spec(Vec::new())).await;
    assert_eq!(deployment.values("web"), [None, None]);
}

/// A widget that names no namespace, and one of its name that does, in these clusters; the one at a position may depend on `z`.
fn two(of_bare: &str, of_full: &str, waits: Option<usize>) -> Spec {
    let value = |cluster: &str| if cluster == "main" { "a" } else { "b" };
    let mut bare = unplaced("web");
    bare.attributes.insert("spec".to_owned(), json!({"value": value(of_bare)}));
    bare.extensions.insert("cluster".to_owned(), of_bare.into());
    let mut wanted = spec(vec![bare, in_cluster(of_full, "web", value(of_full), false)]);
    if let Some(position) = waits {
        let z = in_cluster("main", "z", "a", false);
        wanted.resources[position].depends_on.push(z.id.clone());
        wanted.resources.push(z);
    }
    wanted
}

#[tokio::test(start_paused = true)]
async fn ids_exchange_although_dependency_fails() {
    for position in [0, 1] {
        let deployment = Deployment::in_shop();
        deployment.brings(&two("main", "east", None)).await;
        let [of_main, of_east] = deployment.uids();
        let swapped = two("east", "main", Some(position));
        deployment.main.refuse("APPLY /apis/example.com/v1/namespaces/shop/widgets/z", 403);
        assert!(!deployment.apply(&swapped).await.0.succeeded);
        let recorded = || [0, 1].map(|position| deployment.recorded(&swapped.resources[position].id));
        assert_eq!(recorded(), [of_east.clone(), of_main.clone()]);
        deployment.main.refuse_nothing();
        deployment.brings(&swapped).await;
        assert_eq!(recorded(), [of_east, of_main]);
        assert!(deployment.plan(&swapped).await.unwrap().plan.is_unchanged());
        deployment.brings(&spec(Vec::new())).await;
        assert_eq!(deployment.values("web"), [None, None]);
    }
}

#[tokio::test(start_paused = true)]
async fn ids_exchange_although_record_is_lost() {
    let deployment = Deployment::in_shop();
    deployment.brings(&two("main", "east", None)).await;
    let [of_main, of_east] = deployment.uids();
    let swapped = two("east", "main", None);
    let planned = deployment.plan(&swapped).await.unwrap();
    // By then both are of one object, and both objects are put aside.
    *deployment.observer.left.lock().unwrap() = Some(3);
    assert_eq!(deployment.execute(&swapped, &planned).await, Err(Abandoned.into()));
    *deployment.observer.left.lock().unwrap() = None;
    let recorded = || [0, 1].map(|position| deployment.recorded(&swapped.resources[position].id));
    assert_eq!(recorded()[0], recorded()[1]);
    let outcome = deployment.resume(&swapped, &planned, &[]).await.unwrap();
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!((recorded(), deployment.uids()), ([of_east.clone(), of_main.clone()], [of_main, of_east]));
    assert!(deployment.plan(&swapped).await.unwrap().plan.is_unchanged());
}

/// Two ids that exchange their objects in a run of which this many results are recorded.
async fn swapped_until(results: usize) -> (Deployment, [Value; 2]) {
    let deployment = Deployment::in_shop();
    deployment.brings(&two("main", "east", None)).await;
    let uids = deployment.uids();
    let swapped = two("east", "main", None);
    let planned = deployment.plan(&swapped).await.unwrap();
    *deployment.observer.left.lock().unwrap() = Some(results);
    // The last of them are of a run that gets to its end.
    let _ = deployment.execute(&swapped, &planned).await;
    *deployment.observer.left.lock().unwrap() = None;
    // Whenever it is, each object is on record.
    let state = deployment.state();
    let recorded: Vec<Option<&str>> = state.resources.iter().map(StateResource::uid).collect();
    assert!(uids.iter().all(|uid| recorded.contains(&uid.as_str())), "after {results}: {state:?}");
    (deployment, uids)
}

#[tokio::test(start_paused = true)]
async fn half_exchanged_unwanted_objects_are_deleted() {
    for results in 0..=8 {
        let (deployment, _) = swapped_until(results).await;
        deployment.brings(&spec(Vec::new())).await;
        assert_eq!(deployment.values("web"), [None, None], "after {results} results");
        assert_eq!(deployment.state(), State::default());
    }
}

#[tokio::test(start_paused = true)]
async fn half_exchanged_wanted_objects_stay() {
    for results in 0..=8 {
        for wanted in [two("main", "east", None), two("east", "main", None)] {
            let (deployment, uids) = swapped_until(results).await;
            deployment.brings(&wanted).await;
            assert_eq!(deployment.uids(), uids, "after {results} results");
            assert_eq!(deployment.state().resources.len(), 2, "nothing is left aside");
            assert!(deployment.plan(&wanted).await.unwrap().plan.is_unchanged());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn half_exchanged_unwanted_object_is_deleted() {
    for results in 0..=8 {
        for position in [0, 1] {
            let (deployment, [of_main, of_east]) = swapped_until(results).await;
            let wanted = spec(vec![two("east", "main", None).resources.swap_remove(position)]);
            deployment.brings(&wanted).await;
            let uid = |server: &Server| server.object("shop", "web").map(|object| object["metadata"]["uid"].clone());
            let left = [uid(&deployment.main), uid(&deployment.east)];
            let expected = if position == 0 { [None, Some(of_east)] } else { [Some(of_main), None] };
            assert_eq!(left, expected, "after {results} results");
            assert_eq!(deployment.state().resources.len(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_ids_may_exchange_objects() {
    let deployment = Deployment::in_shop();
    deployment.brings(&two("main", "east", None)).await;
    let before = deployment.uids();
    let swapped = two("east", "main", None);
    let actions = deployment.brings(&swapped).await;
    assert!(actions.iter().all(|(_, action)| matches!(action, Action::Unchanged | Action::Update)), "{actions:?}");
    assert_eq!(deployment.uids(), before);
    assert!(deployment.plan(&swapped).await.unwrap().plan.is_unchanged());
    let of_bare = deployment.state().get(&unplaced("web").id).unwrap().clone();
    assert_eq!((of_bare.cluster.as_str(), of_bare.uid()), ("east", before[1].as_str()));
    deployment.brings(&spec(Vec::new())).await;
    assert_eq!(deployment.values("web"), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn explicit_former_default_namespace_keeps_object() {
    let deployment = Deployment::new();
    deployment.applies_after_default_namespace_changes().await;
    let place = |namespace: &str| deployment.main_uid(namespace);
    let uid = place("before");
    let mut named = widget("before", "web");
    named.attributes.insert("spec".to_owned(), json!({"value": "a"}));
    let wanted = spec(vec![unplaced("web"), named]);
    let actions: Vec<Action> = deployment.brings(&wanted).await.into_iter().map(|(_, action)| action).collect();
    // It is on record under its new id first, and then as it is wanted.
    assert_eq!(actions, [Action::Unchanged, Action::Unchanged, Action::Create]);
    assert_eq!((place("before"), place("after").is_some()), (uid, true));
    assert!(deployment.plan(&wanted).await.unwrap().plan.is_unchanged());
}

#[tokio::test(start_paused = true)]
async fn lost_call_elsewhere_is_found_despite_exchange() {
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
async fn object_wanted_under_alias_is_not_deleted() {
    let deployment = Deployment::to_one_server();
    deployment.applies_after_default_namespace_changes().await;
    let place = |namespace: &str| deployment.main_uid(namespace);
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
