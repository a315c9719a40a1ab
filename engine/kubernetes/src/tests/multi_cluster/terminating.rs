//! Tests of terminating objects.

use stoa_engine::problem::reason;
use stoa_runtime::conformance::delete;
use stoa_runtime::{ApplyRequest, Deleted, RuntimeError, TERMINATING};

use super::*;

/// The message about writes to namespace `shop` of cluster `main`.
const REFUSED: &str = "namespace shop in cluster main is being deleted, and the Spec does not create it again; plan again after it is \
     deleted";

#[tokio::test(start_paused = true)]
async fn terminating_object_is_recreated_afterwards() {
    let wanted = spec(vec![in_cluster("", "web", "a", false)]);
    let deployment = Deployment::new();
    deployment.brings(&wanted).await;
    let before = deployment.uid("web");
    deployment.main.begin_to_remove("shop", "web");
    assert_eq!(deployment.planned(&wanted).await, [("web".to_owned(), Action::Create, Some(TERMINATING.to_owned()))]);
    let held = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(deployment.uid("web"), before);
        deployment.main.remove("shop", "web");
    };
    let (actions, ()) = tokio::join!(deployment.brings(&wanted), held);
    assert_eq!(actions, [("web".to_owned(), Action::Create)]);
    assert_eq!(deployment.values("web"), [Some(json!("a")), None]);
    assert_ne!(deployment.uid("web"), before);
    assert_eq!(deployment.planned(&wanted).await, [("web".to_owned(), Action::Unchanged, None)]);

    // What holds it for longer is no success.
    deployment.main.make("shop", "web", json!({"finalizers": ["example.com/a"]}));
    deployment.main.begin_to_remove("shop", "web");
    let (outcome, results) = deployment.apply(&wanted).await;
    let [problem] = &outcome.problems[..] else { panic!("{outcome:?}") };
    let told = "cluster main: Widget shop/web is being deleted and waits for finalizer example.com/a";
    assert!(!outcome.succeeded && problem.message.ends_with(told), "{problem:?}");
    assert_eq!(results, [("web".to_owned(), Action::Create, ResourceOutcome::Unknown)]);
}

#[tokio::test(start_paused = true)]
async fn finalizers_of_terminating_object_are_reported() {
    let deployment = Deployment::new();
    deployment.brings(&spec(vec![in_cluster("", "web", "a", false)])).await;
    deployment.main.make("shop", "web", json!({"finalizers": ["example.com/a"]}));
    deployment.main.begin_to_remove("shop", "web");
    let (runtime, state) = (deployment.runtime(), deployment.state());
    let prior = &state.resources[0];
    assert!(matches!(runtime.delete(prior).await, Ok(Deleted::Terminating(_))), "the call waits for nothing");
    let told = async {
        tokio::time::sleep(Duration::from_secs(8)).await;
        assert!(runtime.awaited().is_empty(), "it may take a while");
        tokio::time::sleep(Duration::from_secs(4)).await;
        let said = "cluster main: Widget shop/web is being deleted and waits for finalizer example.com/a";
        assert_eq!(runtime.awaited(), [said]);
        deployment.main.make("shop", "web", json!({"finalizers": ["example.com/b", "example.com/c"]}));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let said =
            "cluster main: Widget shop/web is being deleted and waits for finalizers example.com/b, example.com/c";
        assert_eq!(runtime.awaited(), [said]);
        deployment.main.remove("shop", "web");
    };
    let (deleted, ()) = tokio::join!(delete(&*runtime, prior), told);
    assert_eq!((deleted.unwrap(), runtime.awaited()), (Deleted::Gone, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn object_deleted_with_its_kind_counts_as_deleted() {
    let wanted = spec(vec![in_cluster("", "web", "a", false)]);
    let deployment = Deployment::new();
    deployment.brings(&wanted).await;
    deployment.main.begin_to_remove("shop", "web");
    let planned = deployment.plan(&spec(Vec::new())).await.unwrap();
    let began = tokio::time::Instant::now();
    let gone = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        deployment.main.refuse("widgets", 404);
        deployment.main.end_watches();
        // Until then the cluster says that it serves the kind, and so might in another version.
        tokio::time::sleep(Duration::from_secs(20)).await;
        deployment.main.serve_nothing();
    };
    let nothing = spec(Vec::new());
    let ((outcome, _), ()) = tokio::join!(deployment.carry_out(&nothing, &planned), gone);
    assert!(outcome.succeeded, "{outcome:?}");
    assert!(began.elapsed() >= Duration::from_secs(25), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn unmarked_object_is_not_deleted() {
    let deployment = Deployment::new();
    let web = in_cluster("", "web", "a", false);
    let record = StateResource::named_by(&web.id).unwrap();
    // Somebody else made it, and only the name is known of what was applied.
    deployment.main.set("shop", "web", json!({}));
    let runtime = deployment.runtime();
    let refused = runtime.delete(&record).await.unwrap_err();
    assert!(matches!(&refused, RuntimeError::Conflict(text) if text.contains("no owner annotation")), "{refused:?}");
    let uid = deployment.uid("web");
    assert_eq!(runtime.delete(&record.clone().with_uid(uid.as_str().unwrap())).await.unwrap(), Deleted::Gone);
    // What bears our mark is ours.
    deployment.brings(&spec(vec![web])).await;
    assert_eq!(runtime.delete(&record).await.unwrap(), Deleted::Gone);
    assert_eq!(deployment.values("web"), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn creation_in_terminating_namespace_is_not_planned() {
    let wanted = spec(vec![in_cluster("", "web", "a", false)]);
    let deployment = Deployment::new();
    let planned = deployment.plan(&wanted).await.unwrap();
    deployment.main.terminate("shop");
    let Err(PlanError::Problems(problems)) = deployment.plan(&wanted).await else { panic!("there is a plan") };
    let told: Vec<_> = problems.iter().map(|it| (it.reason.as_str(), it.message.as_str())).collect();
    assert_eq!(told, [(reason::REJECTED, REFUSED)]);
    // Nor is it where a plan comes before that.
    let (outcome, results) = deployment.carry_out(&wanted, &planned).await;
    assert_eq!(results, [("web".to_owned(), Action::Create, ResourceOutcome::Failed)]);
    let [problem] = &outcome.problems[..] else { panic!("{outcome:?}") };
    assert_eq!(problem.reason, reason::REJECTED);
    assert!(problem.message.starts_with("cluster main: "), "{problem:?}");
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_is_asked_once() {
    let deployment = Deployment::new();
    deployment.brings(&spec(vec![in_cluster("", "web", "a", false)])).await;
    deployment.main.terminate("shop");
    let runtime = deployment.runtime();
    deployment.main.asked();
    for name in ["api", "db"] {
        let wanted = in_cluster("", name, "a", false);
        let refused = runtime.preview(&ApplyRequest::new(&wanted, None), None).await.unwrap_err();
        assert!(matches!(&refused, RuntimeError::Terminating(namespace) if namespace.name == "shop"), "{refused:?}");
    }
    // The first is asked about, though perhaps twice, and the other is not any more.
    let asked = deployment.main.asked();
    assert!(!asked.is_empty() && asked.iter().all(|asked| asked == "PREVIEW shop/widgets/api"), "{asked:?}");
    // Nor is what is there, which would go with it.
    let (wanted, live) = (in_cluster("", "web", "b", false), deployment.main.object("shop", "web").unwrap());
    let refused = runtime.preview(&ApplyRequest::new(&wanted, None), live.as_object()).await.unwrap_err();
    assert!(matches!(&refused, RuntimeError::Terminating(namespace) if namespace.name == "shop"), "{refused:?}");
    assert!(deployment.main.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn change_in_terminating_namespace_is_not_planned() {
    let both = |value: &str| spec(["web", "api"].map(|name| in_cluster("", name, value, false)).into());
    let deployment = Deployment::new();
    deployment.brings(&both("a")).await;
    deployment.main.terminate("shop");
    // What stays as it is is not written.
    assert!(deployment.plan(&both("a")).await.unwrap().plan.is_unchanged());
    deployment.main.asked();
    let Err(PlanError::Problems(problems)) = deployment.plan(&both("b")).await else { panic!("there is a plan") };
    let told: Vec<_> = problems.iter().map(|it| (it.reason.as_str(), it.message.as_str())).collect();
    assert_eq!(told, [(reason::REJECTED, REFUSED); 2]);
    let asked = deployment.main.asked();
    assert_eq!(asked.iter().filter(|asked| *asked == "GET namespace shop").count(), 1, "{asked:?}");
    assert!(!asked.iter().any(|asked| asked.starts_with("PREVIEW")), "{asked:?}");
    // What nobody lets us look at is as before.
    deployment.main.refuse("GET namespace shop", 403);
    assert!(deployment.plan(&both("b")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn failed_namespace_read_is_repeated() {
    let deployment = Deployment::new();
    deployment.brings(&spec(vec![in_cluster("", "web", "a", false)])).await;
    deployment.main.terminate("shop");
    let runtime = deployment.runtime();
    let (wanted, live) = (in_cluster("", "web", "b", false), deployment.main.object("shop", "web").unwrap());
    let preview = async || runtime.preview(&ApplyRequest::new(&wanted, None), live.as_object()).await.unwrap_err();
    for code in [429, 500, 503] {
        deployment.main.refuse_nothing();
        deployment.main.refuse("GET namespace shop", code);
        let failed = preview().await;
        assert!(failed.is_retryable(), "{failed:?}");
    }
    deployment.main.refuse_nothing();
    let refused = preview().await;
    assert!(matches!(&refused, RuntimeError::Terminating(namespace) if namespace.name == "shop"), "{refused:?}");
}
