//! What the plan of a Run says of another generator than that of the deployed release.

use stoa_types::delivery::UsedGenerator;

use super::drift::{Deployed, plan};
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn plan_warns_of_another_generator_version() {
    let deployed = Deployed::new().await;
    let generator = |version: &str| Some(UsedGenerator { name: "Spec".to_owned(), version: version.to_owned() });
    let release = deployed.world.registry.api::<stoa_types::Release>().get("shop", "web.dev.1").await.unwrap();
    assert_eq!(release.spec.generator, generator("tool v1.0"));
    let preview = async |name: &str| {
        deployed.start(name, "Preview", plan(Some(json!({"action": "Update"})))).await;
        deployed.world.ended(name).await
    };
    let same = preview("same").await;
    assert_eq!(condition(&same.conditions, reason::PLANNED_WITH_WARNINGS), None, "{same:?}");
    "tool v1.1".clone_into(&mut deployed.generator_version.lock().unwrap());
    let upgraded = preview("upgraded").await;
    assert_eq!(upgraded.source.clone().unwrap().generator, generator("tool v1.1"));
    let warned = condition(&upgraded.conditions, reason::PLANNED_WITH_WARNINGS).unwrap();
    assert_eq!(warned.message, "generator Spec: tool v1.0 → v1.1");
    // The document has the warning, and its digest is that of the same plan.
    assert_eq!(upgraded.plan.clone().unwrap().digest, same.plan.clone().unwrap().digest);
    let run = deployed.world.registry.api::<Run>().get("shop", "upgraded").await.unwrap();
    let text = crate::subresources::plan_text(&deployed.world.services, &run, str::to_owned).await.unwrap();
    assert!(text.contains("warning: generator Spec: tool v1.0 → v1.1\n"), "{text}");
    // An Apply of that plan records the generator that rendered it.
    let spec = json!({"stack": "web", "workspace": "dev", "operation": "Apply", "plan": "upgraded"});
    deployed.world.create("Run", "applied", spec).await;
    let carries_out = deployed.world.registry.api::<Run>().get("shop", "applied").await.unwrap();
    let previewed = carries_out.status.unwrap().previewed.unwrap();
    assert_eq!(previewed.generator, generator("tool v1.1"));
}
