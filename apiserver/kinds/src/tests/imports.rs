//! What a Run may be asked to import, and by whom.

use super::*;

const MAY: [&str; 3] = ["create stacks/import web-dev", "use workspaces dev", "use backends default"];

async fn asked(world: &World, allowed: &[&'static str], operation: &str, import: Value) -> Result<Object, ApiError> {
    let mut spec = json!({ "stack": "web-dev", "operation": operation });
    if !import.is_null() {
        spec["import"] = import;
    }
    world.run(allowed, spec).await
}

#[tokio::test]
async fn to_import_takes_permissions_of_its_own() {
    let world = World::with_stack().await;
    let others = ["create stacks/apply web-dev", MAY[1], MAY[2]];
    let error = asked(&world, &others, "Import", Value::Null).await.unwrap_err();
    assert!(error.code() == 403 && error.message().contains("\"stacks/import\""), "{error}");
    for missing in 1..MAY.len() {
        assert_eq!(asked(&world, &MAY[..missing], "Import", Value::Null).await.unwrap_err().code(), 403);
    }
    for import in [
        Value::Null,
        json!({}),
        json!({"resources": [{"id": "v1:Secret:shop:a"}, {"id": "b", "infrastructureId": "i-1"}]}),
        json!({"kusion": {}}),
        json!({"kusion": {"project": "web", "workspace": "a b@c", "revision": 3}}),
        json!({"kusion": {"path": "old/releases/server/main/apps/web/dev"}}),
    ] {
        asked(&world, &MAY, "Import", import).await.unwrap();
    }
}

#[tokio::test]
async fn what_cannot_be_imported_is_told_field_by_field() {
    let world = World::with_stack().await;
    let mut told = Vec::new();
    for (operation, import) in [
        ("Apply", json!({})),
        ("Import", json!({"resources": [{"id": "a"}, {"id": " "}, {"id": "b", "infrastructureId": "x".repeat(2000)}]})),
        ("Import", json!({"resources": [{"id": "a"}], "kusion": {"revision": 0}})),
        ("Import", json!({"kusion": {"project": "../a", "workspace": "", "path": "releases/../../a"}})),
        ("Import", json!({"kusion": {"project": "a/b", "workspace": ".git", "path": "/etc"}})),
    ] {
        let error = asked(&world, &MAY, operation, import).await.unwrap_err();
        assert_eq!(error.code(), 422, "{error}");
        told.extend(
            causes(&error).into_iter().map(|cause| cause.chars().take(100).collect::<String>().trim_end().to_owned()),
        );
    }
    insta::assert_snapshot!(told.join("\n"), @r#"
    spec.import: Forbidden: may only be set for an Import
    spec.import.resources[1].id: Required value
    spec.import.resources[2].infrastructureId: Invalid value: "<value omitted>": may not be longer than
    spec.import.kusion: Forbidden: may not be set together with resources; a release is imported as a wh
    spec.import.kusion.revision: Invalid value: 0: must be at least 1
    spec.import.kusion.project: Invalid value: "../a": must be letters, digits, '-', '_', '.', '+', '@',
    spec.import.kusion.workspace: Invalid value: "": must be letters, digits, '-', '_', '.', '+', '@', '
    spec.import.kusion.path: Invalid value: "releases/../../a": must be a relative path whose parts are
    spec.import.kusion.project: Invalid value: "a/b": must be letters, digits, '-', '_', '.', '+', '@',
    spec.import.kusion.workspace: Invalid value: ".git": must be letters, digits, '-', '_', '.', '+', '@
    spec.import.kusion.path: Invalid value: "/etc": must be a relative path whose parts are letters, dig
    "#);
}

#[tokio::test]
async fn planned_import_matches_its_preview() {
    let world = World::with_stack().await;
    let allowed = [MAY[0], "create stacks/preview web-dev", MAY[1], MAY[2]];
    let told = |import: Value| json!({"stack": "web-dev", "operation": "Preview", "of": "Import", "import": import});
    let [some, everything] = [json!({"resources": [{"id": "a"}, {"id": "b"}]}), json!({})];
    let previews = [
        world.run(&allowed, told(some.clone())).await.unwrap(),
        world.run(&allowed, told(everything.clone())).await.unwrap(),
        world.run(&allowed, json!({"stack": "web-dev", "operation": "Preview", "of": "Import"})).await.unwrap(),
    ];
    let [some_told, everything_told, nothing_told] = previews.each_ref().map(|preview| preview.name());
    let turned = json!({"resources": [{"id": "b"}, {"id": "a"}]});
    for (plan, import, is_it) in [
        (some_told, Value::Null, true),
        (some_told, some.clone(), true),
        (some_told, turned, true),
        (some_told, json!({"resources": [{"id": "a"}]}), false),
        (some_told, json!({"resources": [{"id": "a"}, {"id": "b", "infrastructureId": "i-1"}]}), false),
        (some_told, everything.clone(), false),
        (everything_told, Value::Null, true),
        (everything_told, json!({"kusion": {}}), false),
        (nothing_told, everything, true),
        (nothing_told, some, false),
    ] {
        let mut spec = json!({"stack": "web-dev", "operation": "Import", "plan": plan});
        if !import.is_null() {
            spec["import"] = import.clone();
        }
        match (world.run(&allowed, spec).await, is_it) {
            (Ok(_), true) => {}
            (Err(error), false) => {
                assert_eq!(error.code(), 422, "{error}");
                let why = format!("differs from the import of {plan}; omit the field to carry out the plan of {plan}");
                assert_eq!(causes(&error), [format!("spec.import: Forbidden: {why}")]);
            }
            (other, _) => panic!("{plan} with {import}: {other:?}"),
        }
    }
}
