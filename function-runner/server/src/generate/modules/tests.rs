use serde_json::{Value, json};
use stoa_engine::Spec;
use stoa_kusion_module::proto::{GeneratorRequest, GeneratorResponse};

use super::*;
use crate::failure::sentence;
use crate::generate::{Generated, Values};

const DEPLOYMENT: &str = "apps/v1:Deployment:shop:shop-prod-web";

fn spec() -> Value {
    json!({"resources": [
        {"id": "v1:Namespace:shop", "type": "Kubernetes", "attributes": {
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}},
        {"id": DEPLOYMENT, "type": "Kubernetes", "attributes": {
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "shop-prod-web", "namespace": "shop", "labels": {"app": "web"}},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [
                    {"name": "a", "image": "a:1", "env": [{"name": "FIRST", "value": "1"}]},
                    {"name": "b", "image": "b:1"},
                ]},
            }},
        }},
    ]})
}

fn call(module: &str) -> Call {
    Call {
        module: module.to_owned(),
        version: "0.2.0".to_owned(),
        field: format!("web.accessories.{module}"),
        workload: DEPLOYMENT.to_owned(),
        request: Some(GeneratorRequest {
            project: "shop".to_owned(),
            stack: "prod".to_owned(),
            app: "web".to_owned(),
            ..GeneratorRequest::default()
        }),
        file: "shop/prod/main.k".to_owned(),
        line: 5,
        ..Call::default()
    }
}

fn response(resources: &[Value], patcher: Value) -> GeneratorResponse {
    GeneratorResponse {
        resources: resources.iter().map(|resource| resource.to_string().into()).collect(),
        patcher: if patcher.is_null() { Default::default() } else { patcher.to_string().into() },
    }
}

fn config_map(name: &str) -> Value {
    json!({"id": format!("v1:ConfigMap:shop:{name}"), "type": "Kubernetes", "dependsOn": ["v1:Namespace:shop"], "attributes": {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}}})
}

fn merged(answers: &[(Call, GeneratorResponse)]) -> Result<Generated, Vec<String>> {
    let (calls, responses): (Vec<_>, Vec<_>) = answers.iter().cloned().unzip();
    merge(spec().to_string().as_bytes(), &calls, &responses)
        .map_err(|failure| failure.problems().iter().map(sentence).collect())
}

fn wrong(answers: &[(Call, GeneratorResponse)]) -> Vec<String> {
    merged(answers).unwrap_err()
}

fn attributes(spec: &Spec, id: &str) -> Value {
    let found = spec.resources.iter().find(|it| it.id.0 == id).unwrap();
    Value::Object(found.attributes.clone())
}

#[test]
fn resources_of_modules_join_the_spec() {
    let mut of_database = call("database");
    of_database.imported.insert("v1:ConfigMap:shop:db".to_owned(), "shop/db".to_owned());
    let answers = [
        (call("network"), response(&[config_map("net")], Value::Null)),
        (of_database, response(&[config_map("db")], Value::Null)),
        (call("quiet"), response(&[], Value::Null)),
    ];
    let Generated { spec, warnings, .. } = merged(&answers).unwrap();
    let ids: Vec<&str> = spec.resources.iter().map(|it| it.id.0.as_str()).collect();
    assert_eq!(ids, ["v1:Namespace:shop", DEPLOYMENT, "v1:ConfigMap:shop:net", "v1:ConfigMap:shop:db"]);
    let (net, db) = (&spec.resources[2], &spec.resources[3]);
    assert_eq!(net.depends_on.iter().map(|id| id.0.as_str()).collect::<Vec<_>>(), ["v1:Namespace:shop"]);
    assert_eq!(net.extensions.get("kusionstack.io/import-id"), None);
    assert_eq!(db.extensions["kusionstack.io/import-id"], "shop/db");
    assert_eq!(
        (&db.extensions[stoa_engine::spec::FILE], &db.extensions[stoa_engine::spec::LINE]),
        (&json!("shop/prod/main.k"), &json!(5))
    );
    // No order of kinds is added.
    assert!(spec.resources[1].depends_on.is_empty());
    let warning = "module quiet 0.2.0 for stack prod of project shop returns nothing for web.accessories.quiet; a module whose code \
                   panics does that, too";
    assert_eq!(warnings, [warning]);
}

#[test]
fn providers_get_exact_numbers() {
    let text = |kind: &str, more: &str| {
        format!(
            "{{\"id\": \"a\", \"type\": \"{kind}\", \"attributes\": {{\"number\": 12345678901234567890123{more}}}}}"
        )
    };
    let terraform = text("Terraform", "").replace(
        "\"id\": \"a\"",
        "\"id\": \"hashicorp:random:random_pet:a\", \"extensions\": {\"provider\": \"registry.terraform.io/hashicorp/random/3.6.0\", \"resourceType\": \"random_pet\"}",
    );
    let object = ", \"apiVersion\": \"example.com/v1\", \"kind\": \"Widget\", \"metadata\": {\"name\": \"a\", \"namespace\": \"shop\"}";
    let kubernetes = text("Kubernetes", object).replace("\"id\": \"a\"", "\"id\": \"example.com/v1:Widget:shop:a\"");
    let resources = vec![terraform.into(), kubernetes.into()];
    let spec = merged(&[(call("db"), GeneratorResponse { resources, ..GeneratorResponse::default() })]).unwrap().spec;
    assert_eq!(attributes(&spec, "hashicorp:random:random_pet:a")["number"], "12345678901234567890123");
    assert!(attributes(&spec, "example.com/v1:Widget:shop:a")["number"].is_number());
}

#[test]
fn patchers_change_the_workload_and_others() {
    let patcher = json!({
        "environments": [{"name": "HOST", "value": "db"}, {"name": "FIRST", "value": "1"}],
        "labels": {"tier": "front"}, "podLabels": {"tier": "front"},
        "annotations": {"note": "a"}, "podAnnotations": {"note": "b"},
        "jsonPatcher": {
            "v1:Namespace:shop": {"type": "MergePatch", "payload": r#"{"metadata":{"labels":{"a":"b"}}}"#},
            "v1:ConfigMap:shop:net": {"type": "JSONPatch", "payload": r#"[{"op":"add","path":"/data","value":{"k":"v"}}]"#},
        },
    });
    let spec = merged(&[(call("network"), response(&[config_map("net")], patcher))]).unwrap().spec;
    let deployment = attributes(&spec, DEPLOYMENT);
    assert_eq!(deployment["metadata"]["labels"], json!({"app": "web", "tier": "front"}));
    assert_eq!(deployment["metadata"]["annotations"], json!({"note": "a"}));
    let template = &deployment["spec"]["template"];
    assert_eq!(template["metadata"], json!({"labels": {"app": "web", "tier": "front"}, "annotations": {"note": "b"}}));
    let host = json!({"name": "HOST", "value": "db"});
    let first = json!({"name": "FIRST", "value": "1"});
    let containers = &template["spec"]["containers"];
    assert_eq!(containers[0]["env"], json!([first, host]));
    assert_eq!(containers[1]["env"], json!([host, first]));
    assert_eq!(attributes(&spec, "v1:Namespace:shop")["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(attributes(&spec, "v1:ConfigMap:shop:net")["data"], json!({"k": "v"}));
}

#[test]
fn ties_of_patchers_name_both_modules() {
    let labels = |value: &str| response(&[], json!({"labels": {"tier": value}}));
    merged(&[(call("a"), labels("x")), (call("b"), labels("x"))]).unwrap();
    let found = wrong(&[(call("a"), labels("x")), (call("b"), labels("y"))]);
    let expected = "shop/prod/main.k:5: web.accessories.b: module b 0.2.0 for stack prod of project shop: patches \
                    apps/v1:Deployment:shop:shop-prod-web: metadata.labels[\"tier\"] has another value by module a 0.2.0 for stack prod of \
                    project shop; remove one of them";
    assert_eq!(found, [expected]);
    for patcher in [json!({"labels": {"app": "x"}}), json!({"environments": [{"name": "FIRST", "value": "2"}]})] {
        let found = wrong(&[(call("a"), response(&[], patcher))]);
        assert!(found[0].contains(" has another value by the application; remove one of them"), "{found:?}");
    }
}

#[test]
fn wrong_answers_name_module_and_stack() {
    let mut alone = call("alone");
    alone.workload = String::new();
    let patch = |id: &str, payload: &str| json!({"jsonPatcher": {id: {"type": "JSONPatch", "payload": payload}}});
    let wrong_id = {
        let mut resource = config_map("a");
        resource["id"] = json!("v1:ConfigMap:shop:b");
        resource
    };
    let text =
        |text: &str| GeneratorResponse { resources: vec![text.to_owned().into()], ..GeneratorResponse::default() };
    let cases = [
        (call("a"), text("id: ["), "resource 1 of its answer is invalid: "),
        (call("a"), text("a: 1\n---\nb: 1\n"), "resource 1 of its answer must be one document of YAML"),
        (call("a"), text("id: a\n"), "resource 1 of its answer is no resource of a Spec: missing field"),
        (call("a"), response(&[], json!({"labels": []})), "the patcher of its answer is invalid: "),
        (call("a"), response(&[wrong_id], Value::Null), "v1:ConfigMap:shop:b"),
        (
            call("a"),
            response(&[config_map("a"), config_map("a")], Value::Null),
            "returns v1:ConfigMap:shop:a, and so does module a 0.2.0",
        ),
        (
            call("a"),
            response(&[spec()["resources"][0].clone()], Value::Null),
            "returns v1:Namespace:shop, and so does the program",
        ),
        (
            call("a"),
            response(&[], patch("v1:Secret:shop:a", "[]")),
            "patches v1:Secret:shop:a, which is not in the Spec",
        ),
        (
            call("a"),
            response(&[], patch("v1:Namespace:shop", r#"[{"op":"remove","path":"/x"}]"#)),
            "patches v1:Namespace:shop: ",
        ),
        (
            call("a"),
            response(&[], patch("v1:Namespace:shop", r#"[{"op":"replace","path":"/metadata/name","value":"x"}]"#)),
            "v1:Namespace:shop",
        ),
        (
            alone,
            response(&[], json!({"labels": {"a": "b"}})),
            "patches the workload of the application, which has none",
        ),
    ];
    for (call, response, says) in cases {
        let found = wrong(&[(call, response)]);
        assert!(found[0].starts_with("shop/prod/main.k:5: ") || says == "v1:Namespace:shop", "{found:?}");
        assert!(found[0].contains(says), "{says}: {found:?}");
        assert!(
            found[0].contains(" 0.2.0 for stack prod of project shop: ") || says == "v1:Namespace:shop",
            "{found:?}"
        );
    }
}

#[test]
fn workload_of_a_module_is_patched() {
    let of_module = |module: &str, is_workload| Call { workload: String::new(), is_workload, ..call(module) };
    let mut deployment = spec()["resources"][1].clone();
    deployment["id"] = json!("apps/v1:Deployment:shop:own");
    deployment["attributes"]["metadata"]["name"] = json!("own");
    let answers = [
        (of_module("service", true), response(&[deployment, config_map("a")], Value::Null)),
        (of_module("network", false), response(&[], json!({"labels": {"tier": "front"}}))),
    ];
    let spec = merged(&answers).unwrap().spec;
    assert_eq!(attributes(&spec, "apps/v1:Deployment:shop:own")["metadata"]["labels"]["tier"], "front");
    assert_eq!(attributes(&spec, "v1:ConfigMap:shop:a")["metadata"].get("labels"), None);
}

#[test]
fn configurations_of_the_workspace_reach_the_call() {
    let spec = json!({
        "backend": {"name": "default"},
        "modules": {
            "my-net": {"path": "oci://ghcr.io/kusionstack/network", "version": "0.2.0", "configs": {
                "default": {"type": "ClusterIP"},
                "public": {"type": "LoadBalancer", "projectSelector": ["shop"]},
            }},
            "tied": {"path": "a", "version": "1", "configs": {
                "one": {"x": 1, "projectSelector": ["shop"]}, "two": {"x": 2, "projectSelector": ["shop"]},
            }},
            "wrong": {"path": "a"},
        },
        "context": {"region": "eu"},
    });
    let modules = Settings::of_spec(spec.to_string().as_bytes());
    let platform = Platform::of(&Values { workspace: "eu".to_owned(), modules, ..Values::default() }).unwrap();
    let application =
        Application { project: "shop", stack: "prod", name: "web", workload: "{}", workload_id: DEPLOYMENT };
    let call = |schema: &'static str| {
        let (field, json) = ("web.accessories.x".to_owned(), "{\"z\":1,\"a\":2}".to_owned());
        platform.call(&application, Part { field, schema, json, is_workload: false })
    };
    let found = call("my_net.Network").unwrap();
    assert_eq!(
        (found.versioned().as_str(), found.path.as_str()),
        ("my-net 0.2.0", "oci://ghcr.io/kusionstack/network")
    );
    let request = found.request.unwrap();
    assert_eq!(request.dev_config, "{\"z\":1,\"a\":2}");
    assert_eq!(
        (request.platform_config, request.context),
        ("{\"type\":\"LoadBalancer\"}".into(), "{\"region\":\"eu\"}".into())
    );
    assert!(request.secret_store.is_empty());
    let none = "is of the Kusion module mysql (mysql.MySQL), which spec.modules of workspace eu does not have; add its path and version there";
    assert_eq!(call("mysql.MySQL").unwrap_err(), none);
    let tie = "spec.modules.tied of workspace eu is invalid: version 1 for stack prod of project shop: patchers one and two both select the \
               project, and set x to different values; remove one of them";
    assert_eq!(call("tied.Tied").unwrap_err(), tie);
    assert_eq!(
        call("wrong.Wrong").unwrap_err(),
        "spec.modules.wrong of workspace eu is invalid: missing field `version`"
    );
    assert_eq!(Settings::of_spec(b"{\"context\":{\"a\":1}}"), "");
}

#[test]
fn programs_of_one_version_differ_by_their_digests() {
    let in_folder = call("network");
    let registered = Call { artifact: "sha256:aa".to_owned(), ..in_folder.clone() };
    let other = Call { program: "sha256:bb".to_owned(), ..registered.clone() };
    assert_ne!(in_folder.program_key(), registered.program_key());
    assert_ne!(registered.program_key(), other.program_key());
    assert_eq!(in_folder.program_key(), Call { field: "api".to_owned(), ..in_folder.clone() }.program_key());
}
