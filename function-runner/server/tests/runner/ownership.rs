//! Two stacks that name one object: whose it is comes from the target of the request.

use stoa_engine::Spec;
use stoa_proto::{Problem, Summary};
use tonic::Code;

use crate::bed::problem;
use crate::caller::Caller;
use crate::delivery::Scene;

const CONFIG_MAP: &str = "v1:ConfigMap:shop:web";

/// The stack's ConfigMap, with these annotations.
async fn spec(scene: &mut Scene, annotations: &str) -> Spec {
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: web, namespace: shop, annotations: {annotations}}}\ndata: {{a: b}}\n"
    );
    let commit = scene.origin.commit(&[("s/map.yaml", &text)]);
    scene.caller.generate(&scene.origin.remote(), &commit, "s").await.unwrap()
}

/// Another stack, or the same in another workspace, with a state of its own.
fn beside(scene: &Scene, change: impl Fn(&mut stoa_proto::Target)) -> Caller {
    let mut target = scene.caller.target.clone();
    target.run_uid = "run-of-the-other".to_owned();
    change(&mut target);
    let (client, state, lease) = (scene.caller.client.clone(), scene.caller.state.clone(), scene.caller.lease);
    Caller { client, target, state, lease }
}

fn mark(scene: &Scene) -> String {
    let files = scene.delivered();
    let line = files.iter().flat_map(|text| text.lines()).find(|line| line.contains("stoa.dev/owner")).unwrap();
    line.trim().to_owned()
}

#[tokio::test]
async fn object_changes_owner_only_by_take_over() {
    let mut scene = Scene::new().await;
    let plain = spec(&mut scene, "{}").await;
    let plan = scene.caller.plan(&plain, false).await.unwrap();
    assert!(scene.caller.apply(&plain, &plan).await.finished().succeeded);
    assert_eq!(mark(&scene), "stoa.dev/owner: shop/web-dev/dev/5f0c7f44-0000-4000-8000-000000000001");

    for mut other in [
        beside(&scene, |target| (target.stack, target.stack_uid) = ("api-dev".into(), "u".into())),
        beside(&scene, |target| target.workspace.as_mut().unwrap().name = "prod".into()),
    ] {
        other.state.clear();
        let (code, Problem { reason, resource_id, message, .. }) =
            problem(&other.plan(&plain, false).await.unwrap_err());
        assert_eq!(
            (code, reason.as_str(), resource_id.as_str()),
            (Code::InvalidArgument, "OwnedByAnother", CONFIG_MAP)
        );
        assert!(message.starts_with("ConfigMap web in namespace shop is owned by shop/web-dev/dev"), "{message}");
    }

    // A stack created anew by the same name has another state, and takes over what the first left behind.
    let mut anew = beside(&scene, |target| target.stack_uid = "u".into());
    anew.state.clear();
    let plan = anew.plan(&plain, false).await.unwrap();
    assert_eq!(plan.summary, Some(Summary { adopt: 1, ..Summary::default() }), "{}", plan.table);
    assert!(plan.table.contains("(taken over from shop/web-dev/dev/5f0c7f44"), "{}", plan.table);

    // What it once had in its state, and is another's now, it drops and does not touch.
    let mut second = beside(&scene, |target| (target.stack, target.stack_uid) = ("api-dev".into(), "u".into()));
    let plan = second.plan(&Spec::default(), true).await.unwrap();
    assert_eq!(plan.summary, Some(Summary { forget: 1, ..Summary::default() }), "{}", plan.table);
    let applied = second.apply(&Spec::default(), &plan).await;
    assert!(applied.finished().succeeded && second.state.is_empty(), "{applied:?}");
    assert_eq!(applied.results[0].message, "shop/web-dev/dev owns it now, so it is not deleted");
    assert_eq!(scene.commits().len(), 1, "the file is as it was");

    let taking = spec(&mut scene, "{stoa.dev/take-over-from: shop/web-dev/dev}").await;
    let plan = second.plan(&taking, false).await.unwrap();
    assert!(plan.table.contains("(taken over from shop/web-dev/dev)"), "{}", plan.table);
    assert!(second.apply(&taking, &plan).await.finished().succeeded);
    assert_eq!(mark(&scene), "stoa.dev/owner: shop/api-dev/dev/u");

    scene.caller.next_run("web-dev-2");
    scene.caller.plan(&plain, false).await.unwrap_err();
    let plan = scene.caller.plan(&Spec::default(), true).await.unwrap();
    assert!(scene.caller.apply(&Spec::default(), &plan).await.finished().succeeded);
    assert_eq!(mark(&scene), "stoa.dev/owner: shop/api-dev/dev/u", "its destroy leaves it to the other");
    assert_eq!(scene.commits().len(), 2);
}
