//! Tests of lost calls to several clusters.

use stoa_engine::record::CallTarget;

use super::*;

#[tokio::test(start_paused = true)]
async fn lost_creation_in_other_cluster_is_found() {
    let made = spec(vec![in_cluster("east", "web", "a", false)]);
    let there = [None, Some(json!("a"))];
    // Its resource left the Spec.
    let deployment = Deployment::new();
    deployment.crash(&made).await;
    assert_eq!((deployment.values("web"), deployment.state().resources.len()), (there.clone(), 0));
    assert_eq!(deployment.open(), ["east"]);
    assert_eq!(deployment.brings(&spec(Vec::new())).await, [("web".to_owned(), Action::Delete)]);
    assert_eq!(deployment.values("web"), [None, None]);

    // It is still wanted.
    let deployment = Deployment::new();
    deployment.crash(&made).await;
    assert_eq!(deployment.brings(&made).await, [("web".to_owned(), Action::Unchanged)]);
    assert_eq!((deployment.values("web"), &*deployment.state().resources[0].cluster), (there, "east"));

    // It is wanted elsewhere, and that is not answered either.
    let moved = spec(vec![in_cluster("", "web", "a", false)]);
    for is_lost in [false, true] {
        let deployment = Deployment::new();
        deployment.crash(&made).await;
        if is_lost {
            deployment.crash(&moved).await;
            assert_eq!(deployment.open(), ["east", "main"]);
        }
        let action = if is_lost { Action::Unchanged } else { Action::Replace };
        assert_eq!(deployment.brings(&moved).await, [("web".to_owned(), action)]);
        assert_eq!(deployment.values("web"), [Some(json!("a")), None]);
    }

    // The call that was to remove it there was never made: it is not forgotten that it may be there.
    let deployment = Deployment::new();
    deployment.crash(&made).await;
    let planned = deployment.plan(&moved).await.unwrap();
    deployment.east.refuse("DELETE /apis", 503);
    assert!(!deployment.carry_out(&moved, &planned).await.0.succeeded);
    deployment.east.refuse_nothing();
    assert_eq!(deployment.open(), ["east", "main"]);
    deployment.brings(&spec(Vec::new())).await;
    assert_eq!(deployment.values("web"), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn lost_move_is_found_at_either_end() {
    let (here, there) = (vec![in_cluster("", "web", "a", false)], vec![in_cluster("east", "web", "a", false)]);
    let deployment = Deployment::new();
    deployment.brings(&spec(here.clone())).await;
    deployment.crash(&spec(there)).await;
    assert_eq!(
        (deployment.values("web"), deployment.open()),
        ([None, Some(json!("a"))], vec!["main".into(), "east".into()])
    );
    assert_eq!(deployment.state().resources[0].cluster, "main");
    assert_eq!(deployment.brings(&spec(Vec::new())).await, [("web".to_owned(), Action::Delete)]);
    assert_eq!(deployment.values("web"), [None, None]);
    // As long as it is where it was, nobody has to know of the other cluster.
    deployment.brings(&spec(here.clone())).await;
    let open = OpenCall {
        id: here[0].id.clone(),
        action: Action::Replace,
        run: "r".to_owned(),
        place: CallTarget { clusters: vec!["main".to_owned(), "gone".to_owned()], ..CallTarget::default() },
        retry: false,
    };
    deployment.observer.open.lock().unwrap().insert(open.id.clone(), open);
    deployment.east.be_away(true);
    assert_eq!(deployment.brings(&spec(here)).await, [("web".to_owned(), Action::Unchanged)]);
}

#[tokio::test(start_paused = true)]
async fn lost_answer_keeps_unmoved_object() {
    for cluster in ["", "east"] {
        let deployment = Deployment::new();
        let mut web = in_cluster(cluster, "web", "a", false);
        web.extensions.insert("kusionstack.io/import-id".to_owned(), json!("shop/web"));
        deployment.crash(&spec(vec![web])).await;
        let made = deployment.values("web");
        assert_eq!(deployment.state().open[0].place.import_id, "shop/web");
        assert_eq!(deployment.brings(&spec(Vec::new())).await, [("web".to_owned(), Action::Forget)]);
        assert_eq!(deployment.values("web"), made);
    }
}

#[tokio::test(start_paused = true)]
async fn lost_creation_beside_imported_object_is_recorded() {
    let imported = |cluster: &str| {
        let mut resource = in_cluster(cluster, "web", "a", false);
        resource.extensions.insert("kusionstack.io/import-id".to_owned(), json!("shop/web"));
        spec(vec![resource])
    };
    let moved = || spec(vec![in_cluster("east", "web", "b", false)]);
    let crashed = async || {
        let deployment = Deployment::new();
        deployment.brings(&imported("")).await;
        assert_eq!(deployment.planned(&moved()).await[0].1, Action::Create);
        deployment.crash(&moved()).await;
        assert_eq!(deployment.values("web"), [Some(json!("a")), Some(json!("b"))]);
        deployment
    };
    // Its resource left the Spec.
    let deployment = crashed().await;
    deployment.brings(&spec(Vec::new())).await;
    assert_eq!(deployment.values("web"), [Some(json!("a")), None]);
    assert_eq!(deployment.state().resources, []);

    // It is still wanted, or wanted where the imported object is.
    for (wanted, left) in [(moved(), [Some(json!("a")), Some(json!("b"))]), (imported(""), [Some(json!("a")), None])] {
        let deployment = crashed().await;
        deployment.brings(&wanted).await;
        assert_eq!(deployment.values("web"), left);
        assert!(deployment.plan(&wanted).await.unwrap().plan.is_unchanged());
        assert_eq!(deployment.state().resources.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_cluster_leaves_call_undecided() {
    let (made, nothing) = (spec(vec![in_cluster("east", "web", "a", false)]), spec(Vec::new()));
    let deployment = Deployment::new();
    deployment.crash(&made).await;
    deployment.east.be_away(true);
    let Err(PlanError::Runtime(error)) = deployment.plan(&nothing).await else { panic!("it may be there") };
    assert!(error.is_retryable(), "{error}");
    deployment.east.be_away(false);

    let said = |clusters: &[&str], retry: bool| {
        for call in deployment.observer.open.lock().unwrap().values_mut() {
            let clusters = clusters.iter().map(|cluster| (*cluster).to_owned()).collect();
            (call.place, call.retry) = (CallTarget { clusters, ..CallTarget::default() }, retry);
        }
    };
    // The workspace has it no more.
    said(&["before"], false);
    let Err(PlanError::Problems(problems)) = deployment.plan(&nothing).await else { panic!("it may be there") };
    assert!(problems[0].message.contains("in cluster before, which the workspace does not have"), "{problems:?}");
    // Somebody looked there, and says that it is not.
    said(&["before"], true);
    assert_eq!(deployment.planned(&nothing).await, [("web".to_owned(), Action::Forget, None)]);
    // It got another name, by which its resource goes to it.
    said(&["before"], false);
    assert_eq!(deployment.planned(&made).await, [("web".to_owned(), Action::Unchanged, None)]);
    // An intent of before there were places is looked for where its resource goes.
    said(&[], false);
    assert_eq!(deployment.planned(&made).await, [("web".to_owned(), Action::Unchanged, None)]);
    assert_eq!(deployment.planned(&nothing).await, [("web".to_owned(), Action::Forget, None)]);
    // Where somebody looked, nobody looks for the next call.
    said(&["before"], true);
    deployment.crash(&spec(vec![in_cluster("", "web", "a", false)])).await;
    assert_eq!(deployment.open(), ["main"]);
}

#[tokio::test(start_paused = true)]
async fn empty_cluster_is_not_target_of_next_call() {
    let [there, here] = ["east", ""].map(|cluster| spec(vec![in_cluster(cluster, "web", "a", false)]));
    // It was never made in the first cluster, nor in the second.
    let deployment = Deployment::new();
    deployment.crash(&there).await;
    deployment.east.remove("shop", "web");
    deployment.crash(&here).await;
    deployment.main.remove("shop", "web");
    assert_eq!(deployment.open(), ["main"]);
    // So that the first may leave the workspace.
    for call in deployment.observer.open.lock().unwrap().values_mut() {
        call.place.clusters.iter_mut().filter(|cluster| *cluster == "east").for_each(|it| *it = "gone".to_owned());
    }
    assert_eq!(deployment.brings(&here).await, [("web".to_owned(), Action::Create)]);

    // It has left the one that it is on record in, and is to go back there.
    deployment.crash(&there).await;
    assert_eq!(deployment.open(), ["main", "east"]);
    deployment.crash(&here).await;
    assert_eq!(
        (deployment.values("web"), deployment.open()),
        ([Some(json!("a")), None], vec!["east".into(), "main".into()])
    );
    deployment.brings(&spec(Vec::new())).await;
    assert_eq!(deployment.values("web"), [None, None]);

    // What is nowhere and not wanted either is looked for where it was.
    deployment.crash(&there).await;
    deployment.east.remove("shop", "web");
    deployment.crash(&spec(Vec::new())).await;
    assert_eq!(deployment.open(), ["east"]);
}
