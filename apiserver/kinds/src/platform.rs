//! `platform.stoa.dev`: the kinds that the platform team writes.

use stoa_types::platform::Greeting;

use crate::{
    backend,
    kind::{Group, InGit, Kind},
    notification_sink,
    rights::{PUSHED, Role},
    workspace,
};

static GREETING: Kind =
    Kind { in_git: Some(InGit::at("platform/greetings/{name}.yaml")), rights: &[PUSHED], ..Kind::of::<Greeting>() };

pub(crate) static GROUP: Group = Group {
    priority: 890,
    owner: Some(Role::PlatformEngineer),
    kinds: &[&workspace::KIND, &backend::KIND, &notification_sink::KIND, &GREETING],
};

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use stoa_machinery::log::MemoryLog;

    use super::*;
    use crate::{GIT_PATHS, testing::TestRegistry};

    #[tokio::test]
    async fn greeting_is_served_and_has_a_file() {
        let world = TestRegistry::over(Arc::new(MemoryLog::new()), |builder| builder).await;
        world.create("Greeting", "hello", json!({"text": "Hello"})).await;
        let stored = world.registry.api::<Greeting>().store().get("", "hello", None).await.unwrap();
        let path = GIT_PATHS.of_object(&stored.key, &serde_json::from_slice(&stored.json()).unwrap()).expect("in Git");
        assert_eq!(path.path(), "platform/greetings/hello.yaml");
        let kind = path.identity.kind;
        let file = (kind.document)(kind, &stored.json()).unwrap().yaml().unwrap();
        insta::assert_snapshot!(file, @r"
        apiVersion: platform.stoa.dev/v1alpha1
        kind: Greeting
        metadata:
          name: hello
        spec:
          text: Hello
        ");
    }
}
