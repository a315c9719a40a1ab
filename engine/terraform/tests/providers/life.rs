//! Resources from their creation to their end.

use serde_json::json;
use stoa_engine::Action;

use crate::support::{Deployment, action, id, object, of, resource, spec};

#[tokio::test]
async fn mixed_spec_lives_its_whole_life() {
    let Some(deployment) = Deployment::with(&["random", "tls"]) else { return };
    let password = id("random_password", "db");
    let wanted = |length: u32| {
        spec(vec![
            resource("random_password", "db", json!({"length": length})),
            resource("tls_private_key", "web", json!({"algorithm": "ED25519"})),
            object("ConfigMap", "names", json!({"data": {"prefix": "shop"}})),
            resource("random_pet", "name", json!({"prefix": "$kusion_path.v1:ConfigMap:shop:names.data.prefix"})),
            object(
                "Secret",
                "db",
                json!({"stringData": {
                    "password": of("random_password", "db", "result"),
                    "key": of("tls_private_key", "web", "private_key_pem"),
                    "pet": of("random_pet", "name", "id"),
                }}),
            ),
        ])
    };
    let created = deployment.plan(&wanted(16)).await;
    assert_eq!((created.summary.create, created.plan.actions.len()), (5, 5));
    assert!(created.table.contains("+ result: (known after apply)"), "{}", created.table);
    assert!(created.table.contains("+ prefix: \"shop\""), "{}", created.table);
    deployment.apply(&wanted(16)).await;

    let secret = deployment.provider_state(&password)["attributes"]["result"].as_str().unwrap().to_owned();
    assert_eq!(secret.len(), 16);
    let live = deployment.cloud.live("v1:Secret:shop:db").unwrap();
    assert_eq!(live["stringData"]["password"], secret.as_str(), "{live:?}");
    assert!(live["stringData"]["key"].as_str().unwrap().contains("PRIVATE KEY"));
    assert!(live["stringData"]["pet"].as_str().unwrap().starts_with("shop-"));
    let shown = deployment.recorder.shown();
    assert!(!shown.contains(&secret) && !shown.contains("PRIVATE KEY"), "{shown}");

    let again = deployment.plan(&wanted(16)).await;
    assert!(again.plan.is_unchanged(), "{}", again.table);

    let longer = deployment.plan(&wanted(20)).await;
    let planned = action(&longer, &password);
    assert_eq!(planned.action, Action::Replace, "{}", longer.table);
    assert!(longer.table.contains("length: 16 → 20  # forces replacement"), "{}", longer.table);
    assert!(!longer.table.contains(&secret), "{}", longer.table);
    assert_eq!(action(&longer, "v1:Secret:shop:db").action, Action::Update, "{}", longer.table);
    deployment.apply(&wanted(20)).await;
    let other = deployment.provider_state(&password)["attributes"]["result"].as_str().unwrap().to_owned();
    assert_eq!(other.len(), 20);
    assert_eq!(deployment.cloud.live("v1:Secret:shop:db").unwrap()["stringData"]["password"], other.as_str());

    let destroyed = deployment.destroy().await;
    assert_eq!(destroyed.summary.delete, 5);
    assert!(deployment.cloud.ids().is_empty() && deployment.recorder.state().resources.is_empty());
}

#[tokio::test]
async fn chain_of_resources_plans_known_values() {
    let Some(deployment) = Deployment::with(&["random"]) else { return };
    let wanted = |keeper: &str| {
        spec(vec![
            resource("random_id", "a", json!({"byte_length": 4, "keepers": {"k": keeper}})),
            resource("random_pet", "b", json!({"prefix": of("random_id", "a", "hex"), "length": 1})),
            resource("random_string", "c", json!({"length": 4, "keepers": {"pet": of("random_pet", "b", "id")}})),
        ])
    };
    deployment.apply(&wanted("1")).await;
    assert!(deployment.plan(&wanted("1")).await.plan.is_unchanged());
    let changed = deployment.plan(&wanted("2")).await;
    assert_eq!(changed.summary.replace, 3, "{}", changed.table);
    assert!(changed.table.contains("prefix: "), "{}", changed.table);
    deployment.apply(&wanted("2")).await;
    assert!(deployment.plan(&wanted("2")).await.plan.is_unchanged());
}

#[tokio::test]
async fn drift_is_shown_and_repaired() {
    let Some(deployment) = Deployment::with(&["local"]) else { return };
    let file = deployment.folder.path().join("motd");
    let wanted = spec(vec![resource("local_file", "motd", json!({"filename": file, "content": "hello"}))]);
    deployment.apply(&wanted).await;
    assert!(deployment.refresh(&wanted).await.plan.is_unchanged());
    std::fs::remove_file(&file).unwrap();
    let drifted = deployment.refresh(&wanted).await;
    let planned = action(&drifted, &id("local_file", "motd"));
    assert!(planned.drift && planned.action == Action::Create, "{}", drifted.table);
    deployment.apply(&wanted).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "hello");
}

#[tokio::test]
async fn import_id_adopts_existing_object() {
    let Some(deployment) = Deployment::with(&["random"]) else { return };
    let mut password = resource("random_password", "db", json!({"length": 7}));
    password["extensions"]["kusionstack.io/import-id"] = "secret1".into();
    let planned = deployment.apply(&spec(vec![password.clone()])).await;
    assert_eq!(planned.plan.actions[0].action, Action::Adopt, "{}", planned.table);
    assert!(!planned.table.contains("secret1"), "{}", planned.table);
    let state = deployment.provider_state(&id("random_password", "db"));
    assert_eq!(state["attributes"]["result"], "secret1");
    assert!(deployment.plan(&spec(vec![password])).await.plan.is_unchanged());
}

#[tokio::test]
async fn numbers_beyond_floats_keep_their_digits() {
    let Some(deployment) = Deployment::with(&["frame", "random"]) else { return };
    let digits = "123456789012345678901234567890.000000000000000000000000000001";
    let wanted = spec(vec![
        resource("frame_thing", "a", json!({"name": "a", "size": digits})),
        resource("frame_thing", "b", json!({"name": "b", "size": of("frame_thing", "a", "size")})),
        object("ConfigMap", "c", json!({"data": {"size": of("frame_thing", "b", "size")}})),
    ]);
    let planned = deployment.apply(&wanted).await;
    assert!(planned.table.contains(digits), "{}", planned.table);
    for name in ["a", "b"] {
        let state = deployment.recorder.record(&id("frame_thing", name)).provider_state.unwrap();
        assert!(state.open().unwrap().contains(&format!("\"size\":{digits}")), "{:?}", state.open());
    }
    assert_eq!(deployment.cloud.live("v1:ConfigMap:shop:c").unwrap()["data"]["size"], digits);
    let again = deployment.plan(&wanted).await;
    assert!(again.plan.is_unchanged(), "{}", again.table);
    assert!(deployment.refresh(&wanted).await.plan.is_unchanged());
    let mut other = wanted.clone();
    other.resources[0].attributes["size"] = format!("{digits}2").into();
    let changed = deployment.plan(&other).await;
    assert_eq!(changed.summary.update, 3, "{}", changed.table);
}

#[tokio::test]
async fn moved_resource_keeps_its_object() {
    let Some(deployment) = Deployment::with(&["random"]) else { return };
    let password = |name: &str| resource("random_password", name, json!({"length": 12}));
    let secret = |name: &str, key: &str| {
        object("Secret", "db", json!({"stringData": {key: of("random_password", name, "result")}}))
    };
    deployment.apply(&spec(vec![password("old"), secret("old", "a")])).await;
    let state = |name: &str| deployment.provider_state(&id("random_password", name))["attributes"]["result"].clone();
    let before = state("old");
    let mut moved = password("new");
    moved["extensions"]["stoa.dev/moved-from"] = id("random_password", "old").into();
    let wanted = spec(vec![moved, secret("new", "b")]);
    let planned = deployment.apply(&wanted).await;
    assert_eq!(planned.summary.create + planned.summary.delete + planned.summary.replace, 0, "{}", planned.table);
    assert_eq!(state("new"), before);
    assert_eq!(deployment.cloud.live("v1:Secret:shop:db").unwrap()["stringData"]["b"], before);
    let ids: Vec<String> = deployment.recorder.state().resources.into_iter().map(|it| it.id.0).collect();
    assert_eq!(ids, [id("random_password", "new"), "v1:Secret:shop:db".to_owned()]);
    // The extension may stay.
    let again = deployment.plan(&wanted).await;
    assert!(again.plan.is_unchanged(), "{}", again.table);
}

#[tokio::test]
async fn object_moves_to_another_type() {
    let Some(deployment) = Deployment::without_folder(&["frame"]) else { return };
    deployment.apply(&spec(vec![resource("frame_named", "a", json!({"name": "n"}))])).await;
    let mut thing = resource("frame_thing", "b", json!({"name": "n"}));
    thing["extensions"]["stoa.dev/moved-from"] = id("frame_named", "a").into();
    let wanted = spec(vec![thing]);
    let planned = deployment.apply(&wanted).await;
    assert_eq!(planned.summary.create + planned.summary.delete + planned.summary.replace, 0, "{}", planned.table);
    assert_eq!(deployment.attributes(&id("frame_thing", "b")).unwrap()["id"], "id-n");
    let again = deployment.plan(&wanted).await;
    assert!(again.plan.is_unchanged(), "{}", again.table);
    deployment.destroy().await;
    assert!(deployment.recorder.state().resources.is_empty());
}
