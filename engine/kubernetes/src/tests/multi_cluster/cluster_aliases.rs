//! Tests of two cluster names that lead to one server.

use super::default_namespaces::unplaced;
use super::*;

#[tokio::test(start_paused = true)]
async fn server_aliases_delete_no_wanted_object() {
    remove_nothing_that_is_wanted(&Deployment::to_one_server()).await;
}

#[tokio::test(start_paused = true)]
async fn address_aliases_delete_no_wanted_object() {
    let deployment = Deployment::to_one_server();
    deployment.main.be_at("here");
    // Nobody has to look to see that it is one object.
    let both = spec(vec![in_cluster("main", "web", "a", true), in_cluster("east", "web", "b", true)]);
    let Err(PlanError::Problems(problems)) = deployment.plan(&both).await else { panic!("one object twice") };
    assert!(problems[0].message.contains("clusters main and east are the same server"), "{problems:?}");
    remove_nothing_that_is_wanted(&deployment).await;
}

async fn remove_nothing_that_is_wanted(deployment: &Deployment) {
    let one = |cluster: &str, is_twin| spec(vec![in_cluster(cluster, "web", "a", is_twin)]);
    deployment.brings(&one("", false)).await;
    let uid = deployment.uid("web");
    // By another id, by none but the other name, and back.
    for (wanted, id, cluster) in [
        (one("east", true), "web/east", "east"),
        (one("", false), "web", "main"),
        (one("east", false), "web", "east"),
        (one("main", true), "web/main", "main"),
    ] {
        let actions = deployment.brings(&wanted).await;
        assert!(actions.iter().all(|(_, action)| matches!(action, Action::Unchanged | Action::Forget)), "{actions:?}");
        assert_eq!(deployment.uid("web"), uid, "it is the same object");
        let [record] = &deployment.state().resources[..] else { panic!("{:?}", deployment.state()) };
        assert_eq!((record.id.0.rsplit(':').next().unwrap(), &*record.cluster), (id, cluster));
    }
    // Both records may be there, from a run that did not get to its end.
    let mut twin = deployment.state().resources[0].clone().in_cluster("east".to_owned());
    twin.id = in_cluster("east", "web", "a", true).id;
    deployment.observer.records.lock().unwrap().insert(twin.id.clone(), twin);
    assert_eq!(deployment.brings(&one("main", true)).await, [("web/east".to_owned(), Action::Forget)]);
    assert_eq!(deployment.uid("web"), uid);
    // Nobody can want it twice.
    let both = spec(vec![in_cluster("main", "web", "a", true), in_cluster("east", "web", "b", true)]);
    let Err(PlanError::Problems(problems)) = deployment.plan(&both).await else { panic!("one object twice") };
    assert!(problems[0].message.contains("clusters main and east are the same server"), "{problems:?}");
    // What nobody wants goes.
    assert_eq!(deployment.brings(&spec(Vec::new())).await, [("web/main".to_owned(), Action::Delete)]);
    assert_eq!(deployment.values("web"), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn unanswered_alias_deletes_no_wanted_object() {
    let deployment = Deployment::to_one_server();
    deployment.brings(&spec(vec![in_cluster("", "web", "a", false)])).await;
    let uid = deployment.uid("web");
    let wanted = spec(vec![in_cluster("east", "web", "a", true)]);
    deployment.main.be_away_as(Some("east"));
    let planned = deployment.plan(&wanted).await.unwrap();
    let order: Vec<_> = planned.plan.actions.iter().map(|it| it.action).collect();
    assert_eq!(order, [Action::Create, Action::Delete]);
    // As long as it does not, nothing is removed.
    let (outcome, results) = deployment.carry_out(&wanted, &planned).await;
    assert!(!outcome.succeeded);
    assert!(results.contains(&("web".to_owned(), Action::Delete, ResourceOutcome::Skipped)), "{results:?}");
    deployment.main.be_away_as(None);
    let (outcome, results) = deployment.carry_out(&wanted, &planned).await;
    assert!(outcome.succeeded, "{outcome:?}");
    assert!(results.contains(&("web".to_owned(), Action::Delete, ResourceOutcome::Done)), "{results:?}");
    assert_eq!(deployment.uid("web"), uid, "it is left alone");
    assert_eq!(deployment.planned(&wanted).await, [("web/east".to_owned(), Action::Unchanged, None)]);

    // What is known to be another object waits for nothing but the end of all changes.
    let deployment = Deployment::new();
    let twins = || vec![in_cluster("", "web", "a", false), in_cluster("east", "web", "a", true)];
    deployment.brings(&spec(twins())).await;
    deployment.east.be_away(true);
    let wanted = spec(twins()[1..].to_vec());
    let planned = deployment.plan(&wanted).await.unwrap();
    let deletion = planned.plan.actions.iter().find(|it| it.action == Action::Delete).unwrap();
    assert_eq!(deletion.after, []);
    let (_, results) = deployment.carry_out(&wanted, &planned).await;
    assert!(results.contains(&("web".to_owned(), Action::Delete, ResourceOutcome::Skipped)), "{results:?}");
    deployment.east.be_away(false);
    let (_, results) = deployment.carry_out(&wanted, &planned).await;
    assert!(results.contains(&("web".to_owned(), Action::Delete, ResourceOutcome::Done)), "{results:?}");
}

#[tokio::test(start_paused = true)]
async fn object_wanted_under_alias_is_not_deleted() {
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
