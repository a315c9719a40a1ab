//! Tests of paths and contents of files.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn resource(attributes: Value) -> Resource {
    serde_json::from_value(json!({"id": "x", "type": "Kubernetes", "attributes": attributes})).unwrap()
}

fn of(resource: &Resource) -> Result<Manifest, RuntimeError> {
    let owner = Owner {
        organization: "shop".to_owned(),
        stack: "web".to_owned(),
        workspace: "dev".to_owned(),
        stack_uid: "u".to_owned(),
    };
    Manifest::of(resource, &owner)
}

fn check_path(api_version: &str, kind: &str, namespace: &str, name: &str, expected: &str) {
    let mut attributes = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if !namespace.is_empty() {
        attributes["metadata"]["namespace"] = json!(namespace);
    }
    let manifest = of(&resource(attributes)).unwrap();
    assert_eq!(path("dev", &manifest.reference), expected);
}

#[test]
fn files_have_readable_paths() {
    check_path("v1", "ConfigMap", "shop", "web", "dev/shop/configmap-web.yaml");
    check_path("apps/v1", "Deployment", "shop", "web", "dev/shop/deployment-web.yaml");
    check_path("v1", "Namespace", "", "shop", "dev/_cluster/namespace-shop.yaml");
    check_path("v1", "ConfigMap", "", "web", "dev/_default/configmap-web.yaml");
    check_path("cert-manager.io/v1", "ClusterIssuer", "", "a", "dev/_cluster/clusterissuer_cert-manager.io_a.yaml");
    check_path("cert-manager.io/v1", "Certificate", "shop", "web", "dev/shop/certificate_cert-manager.io_web.yaml");
    check_path("rbac.authorization.k8s.io/v1", "Role", "shop", "system:A", "dev/shop/role-system%3A%41.yaml");
}

#[test]
fn object_is_read_from_its_name() {
    let object = json!({
        "spec": {"b": [{"z": 1, "a": "yes"}], "a": "1"}, "kind": "Deployment",
        "metadata": {"labels": {"app": "web"}, "namespace": "shop", "name": "web", "uid": "u"},
        "apiVersion": "apps/v1", "status": {"replicas": 1}, "data": {"text": "one\ntwo\n"},
    });
    let manifest = of(&resource(object)).unwrap();
    let text = String::from_utf8(render(&manifest.object).unwrap()).unwrap();
    assert_eq!(
        text,
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  namespace: shop\n  annotations:\n    stoa.dev/owner: shop/web/dev/u\n\
         \x20 labels:\n    app: web\n\
         data:\n  text: |\n    one\n    two\nspec:\n  a: \"1\"\n  b:\n  - a: \"yes\"\n    z: 1\n"
    );
}

#[test]
fn plain_secret_is_rejected_and_encrypted_accepted() {
    let secret = |field: &str, value: Value| {
        resource(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, field: value,
            "sops": {"mac": "ENC[AES256_GCM,data:x]", "version": "3.9.0"}}))
    };
    let encrypted = "ENC[AES256_GCM,data:qX0=,iv:aa=,tag:bb=,type:str]";
    for (field, value, refused) in [
        ("data", json!({"a": "Yg=="}), "data.a"),
        ("stringData", json!({"a": "b"}), "stringData.a"),
        ("stringData", json!({"a": encrypted, "b": "ENC[b]"}), "stringData.b"),
        ("data", json!("x"), "data"),
    ] {
        let RuntimeError::Invalid { field, message } = of(&secret(field, value)).unwrap_err() else {
            panic!("a Secret is invalid here")
        };
        assert_eq!(field, Some(format!("attributes.{refused}")));
        for way in ["SealedSecret", "ExternalSecret", "SOPS"] {
            assert!(message.contains(way), "{message}");
        }
    }
    of(&secret("stringData", json!({"a": encrypted}))).unwrap();
    of(&secret("data", json!({}))).unwrap();
    of(&secret("type", json!("Opaque"))).unwrap();
}

#[test]
fn names_outside_of_folder_are_rejected() {
    for (namespace, name) in
        [("..", "a"), ("a/b", "a"), ("shop", "../a"), ("_cluster", "a"), (".git", "a"), ("shop", "")]
    {
        let attributes =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}});
        assert!(matches!(of(&resource(attributes)), Err(RuntimeError::Invalid { .. })), "{namespace} {name}");
    }
}

#[test]
fn unparsable_file_is_named() {
    let err = parse("dev/shop/a.yaml", b"a: [").unwrap_err();
    assert!(err.to_string().starts_with("dev/shop/a.yaml is not an object: "), "{err}");
}

fn json_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        any::<String>(),
        prop_oneof![
            Just("yes"),
            Just("null"),
            Just("~"),
            Just("1"),
            Just("0x1f"),
            Just("1e3"),
            Just(".inf"),
            Just("- a"),
            Just("a: b"),
            Just("# a"),
            Just("a #b"),
            Just("'"),
            Just("\""),
            Just(" lead"),
            Just("trail "),
            Just("\n"),
            Just("a\n\n"),
            Just("a\n b\n"),
            Just("  a\nb"),
            Just("%YAML"),
            Just("---"),
            Just("{a"),
            Just("&a"),
            Just("*a"),
            Just("2001-01-01"),
            Just("on"),
            Just("<<"),
            Just("="),
            Just("\t"),
            Just("a\tb"),
            Just("0o7"),
            Just("1_000"),
        ]
        .prop_map(str::to_owned),
    ];
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1.0e6..1.0e6_f64).prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(text.clone(), inner, 0..4).prop_map(Value::from_iter),
        ]
    })
}

proptest! {
    #[test]
    fn written_manifest_is_read_back(value in json_value()) {
        let object = Map::from_iter([("data".to_owned(), value)]);
        let text = render(&object).unwrap();
        let read = parse("a.yaml", &text);
        prop_assert_eq!(read.unwrap(), object, "{}", String::from_utf8_lossy(&text));
    }
}
