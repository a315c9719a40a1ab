//! Tests of forgotten clusters.

use stoa_engine::record::CallTarget;

use super::*;

impl Deployment {
    /// Moves the records in `main` to a cluster that the workspace does not have.
    fn lose(&self, name: &str) {
        for record in self.observer.records.lock().unwrap().values_mut().filter(|record| record.cluster == "main") {
            record.cluster = name.to_owned();
        }
    }

    fn forgetting(self, names: &[&str]) -> Self {
        Self { forget: names.iter().map(|name| (*name).to_owned()).collect(), ..self }
    }

    async fn refused(&self, spec: &Spec) -> Vec<String> {
        let Err(PlanError::Problems(problems)) = self.plan(spec).await else { panic!("it is refused") };
        problems.iter().map(ToString::to_string).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn run_forgets_records_of_named_cluster() {
    let deployment = Deployment::new();
    let web = |cluster: &str| in_cluster(cluster, "web", "a", false);
    let (old, there) = (in_cluster("", "old", "a", false), in_cluster("east", "there", "a", false));
    deployment.brings(&spec(vec![web(""), old, there.clone()])).await;
    deployment.lose("gone");
    // One resource goes elsewhere, one left the Spec, and one was never there.
    let wanted = spec(vec![web("east"), there]);
    let told = deployment.refused(&wanted).await;
    assert!(told[0].contains("\"gone\"") && told[0].contains("spec.forgetClusters of a Run"), "{told:?}");
    let deployment = deployment.forgetting(&["gone"]);
    let unmoved = deployment.refused(&spec(vec![web("gone")])).await;
    let advice = "the workspace has no cluster \"gone\", it has main, east; name one of these in the Spec, or none \
                  for the first; spec.forgetClusters of a Run forgets records there without moving anything";
    assert!(unmoved.len() == 1 && unmoved[0].ends_with(advice), "{unmoved:?}");
    let planned = deployment.plan(&wanted).await.unwrap();
    assert_eq!(
        planned.table,
        ". forget   example.com/v1:Widget:shop:old  (forgotten in cluster gone, where the object stays as it is)\n+ \
         create   example.com/v1:Widget:shop:web  (forgotten in cluster gone, where the object stays as it is)\n    \
         + spec: {\"value\":\"a\"}\n\nPlan: 1 to create, 1 to forget; 1 unchanged.\n"
    );
    let before = [deployment.values("old"), deployment.values("web")];
    assert_eq!(before, [[Some(json!("a")), None], [Some(json!("a")), None]]);
    let (outcome, results) = deployment.carry_out(&wanted, &planned).await;
    assert!(outcome.succeeded && results.len() == 2, "{outcome:?} {results:?}");
    let after = [deployment.values("old"), deployment.values("web")];
    assert_eq!(after, [[Some(json!("a")), None], [Some(json!("a")), Some(json!("a"))]], "nothing there is touched");
    let mut records: Vec<_> =
        deployment.state().resources.into_iter().map(|record| (record.id.0, record.cluster)).collect();
    records.sort();
    let id = |name: &str| format!("example.com/v1:Widget:shop:{name}");
    assert_eq!(records, [(id("there"), "east".to_owned()), (id("web"), "east".to_owned())]);

    // Nothing is left to say it of, and never of a cluster that is there.
    let told = deployment.refused(&wanted).await;
    assert_eq!(told, ["spec.forgetClusters: no resource is recorded in cluster gone"]);
    let told = deployment.forgetting(&["east"]).refused(&wanted).await;
    assert!(told[0].starts_with("spec.forgetClusters: the workspace still has cluster east"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn missing_cluster_blocks_no_destroy_or_resumed_run() {
    let deployment = Deployment::new();
    deployment.brings(&spec(vec![in_cluster("", "web", "a", false)])).await;
    deployment.lose("gone");
    let deployment = deployment.forgetting(&["gone"]);
    let moved = spec(vec![in_cluster("east", "web", "b", false)]);
    let planned = deployment.plan(&moved).await.unwrap();
    deployment.observer.is_gone.store(true, std::sync::atomic::Ordering::SeqCst);
    deployment.execute(&moved, &planned).await.unwrap_err();
    deployment.observer.is_gone.store(false, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(deployment.open(), ["east"], "the call did not go where nothing is touched");
    // The same plan, once more.
    let (outcome, results) = deployment.carry_out(&moved, &planned).await;
    assert!(outcome.succeeded && results.len() == 1, "{outcome:?} {results:?}");
    assert_eq!(deployment.values("web")[1], Some(json!("b")));
    assert_eq!((deployment.state().open, &*deployment.state().resources[0].cluster), (Vec::new(), "east"));
}

#[tokio::test(start_paused = true)]
async fn calls_to_forgotten_cluster_are_forgotten() {
    let made = spec(vec![in_cluster("east", "web", "a", false)]);
    let deployment = Deployment::new();
    deployment.crash(&made).await;
    for call in deployment.observer.open.lock().unwrap().values_mut() {
        call.place = CallTarget { clusters: vec!["gone".to_owned()], ..CallTarget::default() };
    }
    deployment.east.be_away(true);
    let nothing = spec(Vec::new());
    let told = deployment.refused(&nothing).await;
    assert!(told[0].contains("spec.forgetClusters"), "{told:?}");
    let deployment = deployment.forgetting(&["gone"]);
    assert_eq!(deployment.brings(&nothing).await, [("web".to_owned(), Action::Forget)]);
    assert_eq!(deployment.values("web"), [None, Some(json!("a"))]);
}
