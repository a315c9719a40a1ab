//! What whoever deletes something is told of its dependents.

use stoa_machinery::{
    RequestContext,
    registry::{DeleteOptions, Target, UpdateSource},
};

use super::World;

#[tokio::test]
async fn who_orphans_what_is_destroyed_is_warned() {
    let world = World::with_stack().await;
    for (plural, name) in [("stacks", "web-dev"), ("projects", "web")] {
        let store = world.registry.store("config.stoa.dev", "v1alpha1", plural).unwrap();
        for (policy, propagation, warnings) in
            [("Destroy", "Orphan", 1), ("Destroy", "Background", 0), ("Orphan", "Orphan", 0), ("Refuse", "Orphan", 0)]
        {
            let context = RequestContext::internal("tests");
            let change = UpdateSource::transform(|current| {
                let mut new = current.clone();
                new.0["spec"]["deletionPolicy"] = policy.into();
                Ok(new)
            });
            store.update(&context, "shop", name, Target::Main, change).await.unwrap();
            context.take_warnings();
            let options = DeleteOptions {
                dry_run: Some(vec!["All".to_owned()]),
                propagation_policy: Some(propagation.to_owned()),
                ..DeleteOptions::default()
            };
            store.delete(&context, "shop", name, &options).await.unwrap();
            let told = context.take_warnings();
            assert_eq!(told.len(), warnings, "{plural} {policy} {propagation}: {told:?}");
            assert!(told.iter().all(|warning| warning.starts_with("deletionPolicy Destroy destroys ")), "{told:?}");
        }
    }
}
