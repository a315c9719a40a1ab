//! An application with a database password, a certificate and a Deployment, from its first Preview to its end.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::time::Duration;
use stoa_e2e::fixture::condition;
use stoa_e2e::{Cluster, Kubectl, Server as _, unique};

use crate::harness::{Bed, STACK, id, of, resource};

fn application(namespace: &str, length: u32) -> Value {
    let object = |id: String, attributes: Value| json!({"id": id, "type": "Kubernetes", "attributes": attributes});
    let metadata = |name: &str| json!({"name": name, "namespace": namespace});
    json!([
        object(
            format!("v1:Namespace:{namespace}"),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        ),
        resource("random_password", "db", &json!({"length": length, "special": false})),
        resource("tls_private_key", "web", &json!({"algorithm": "ED25519"})),
        resource(
            "tls_self_signed_cert",
            "web",
            &json!({
                "private_key_pem": of("tls_private_key", "web", "private_key_pem"),
                "validity_period_hours": 24,
                "allowed_uses": ["server_auth"],
                "subject": [{"common_name": "shop.example.com"}],
            })
        ),
        object(
            format!("v1:Secret:{namespace}:db"),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("db"), "stringData": {
                "password": of("random_password", "db", "result"),
                "tls.key": of("tls_private_key", "web", "private_key_pem"),
                "tls.crt": of("tls_self_signed_cert", "web", "cert_pem"),
            }}),
        ),
        object(
            format!("apps/v1:Deployment:{namespace}:web"),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("web"), "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {
                        "labels": {"app": "web"},
                        "annotations": {"certificate": of("tls_self_signed_cert", "web", "id")},
                    },
                    "spec": {"containers": [{"name": "web", "image": "example.com/web:1", "envFrom": [
                        {"secretRef": {"name": "db"}},
                    ]}]},
                },
            }}),
        ),
    ])
}

fn password(kubectl: &Kubectl, namespace: &str) -> String {
    let secret = kubectl.get(&["secret", "db", "--namespace", namespace]);
    let text = secret["data"]["password"].as_str().unwrap();
    String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
}

#[test]
fn mixed_application_lives_its_whole_life() {
    let cluster = Cluster::shared();
    let providers = [("random", "3.6.0"), ("tls", "4.0.5")];
    let bed = Bed::new(&cluster, &providers);
    let (organization, kubectl) = (&bed.organization, cluster.kubectl());
    let namespace = unique("shop");

    bed.commit(&application(&namespace, 16));
    let preview = organization.succeed(STACK, "Preview", "");
    assert_eq!(Bed::summary(&preview), "create 6", "{preview:#}");
    let plan = bed.document(&preview, "plan");
    assert!(plan.contains("(known after apply)"), "{plan}");
    let name = preview["metadata"]["name"].as_str().unwrap();
    organization.succeed(STACK, "Apply", &format!("plan: {name}"));

    let first = password(&kubectl, &namespace);
    assert_eq!(first.len(), 16);
    let record = bed.resource(&id("random_password", "db"));
    assert_eq!(record["spec"]["type"], "Terraform", "{record:#}");
    assert_eq!(record["spec"]["cloud"]["resourceType"], "random_password", "{record:#}");
    let certificate = bed.resource(&id("tls_self_signed_cert", "web"));
    let cloud = certificate["spec"]["cloud"]["id"].as_str().unwrap();
    let selector = format!("--field-selector=spec.cloud.id={cloud}");
    let found = kubectl.get(&["resources", "--namespace", &organization.name, &selector]);
    assert_eq!(found["items"].as_array().unwrap().len(), 1, "{found:#}");
    organization.nothing_is_left(STACK, "Preview");
    organization.nothing_is_left(STACK, "Refresh");

    // It drifts, and an Apply repairs it.
    let patch = "--patch={\"stringData\":{\"password\":\"changed\"}}";
    kubectl.run(&["patch", "secret", "db", "--namespace", &namespace, "--type=merge", patch]);
    let refreshed = organization.succeed(STACK, "Refresh", "");
    assert_eq!(Bed::summary(&refreshed), "update 1", "{refreshed:#}");
    organization.succeed(STACK, "Apply", "");
    assert_eq!(password(&kubectl, &namespace), first);

    // A longer password is another one, and waits for an approval.
    bed.commit(&application(&namespace, 20));
    let longer = organization.succeed(STACK, "Preview", "");
    assert!(bed.document(&longer, "plan?format=table").contains("# forces replacement"));
    assert_eq!(Bed::summary(&longer), "replace 1, update 1", "{longer:#}");
    let name = longer["metadata"]["name"].as_str().unwrap();
    organization.succeed(STACK, "Apply", &format!("plan: {name}"));
    let second = password(&kubectl, &namespace);
    assert_eq!(second.len(), 20);

    // The earlier release has the shorter one, which is made anew: nobody has the old one any more.
    let revisions = organization.revisions(STACK);
    let rolled_back = organization.succeed(STACK, "Rollback", &format!("release: {}", revisions[0]));
    assert_eq!(Bed::summary(&rolled_back), "replace 1, update 1", "{rolled_back:#}");
    let third = password(&kubectl, &namespace);
    assert!(third.len() == 16 && third != first);

    // Nothing that people read has any of them.
    let all = bed.everything_shown();
    for secret in [&first, &second, &third] {
        assert!(!all.contains(secret.as_str()));
    }
    assert!(!all.contains("PRIVATE KEY") && !all.contains("providerState"));

    let destroyed = organization.succeed(STACK, "Destroy", "");
    assert_eq!(Bed::summary(&destroyed), "delete 6", "{destroyed:#}");
    assert!(kubectl.try_get(&["namespace", &namespace]).is_none());
    assert_eq!(bed.resource(&id("random_password", "db"))["status"]["phase"], "Destroyed");
}

#[test]
fn provider_upgrade_shows_in_the_plan() {
    let cluster = Cluster::shared();
    let versions = [("random", "3.6.0"), ("random", "3.7.0")];
    let bed = Bed::new(&cluster, &versions[..1]);
    let mirror = crate::harness::Mirror::of(&versions);
    let organization = &bed.organization;
    let password = |version: &str| {
        let mut password = resource("random_password", "db", &json!({"length": 8}));
        password["extensions"]["provider"] = format!("hashicorp/random/{version}").into();
        json!([password])
    };
    bed.commit(&password("3.6.0"));
    organization.succeed(STACK, "Apply", "");
    // The Spec names a version that the lock does not have.
    bed.commit(&password("3.7.0"));
    let told = organization.fail(STACK, "Preview", "");
    assert!(told.contains("3.7.0") && told.contains("3.6.0"), "{told}");
    bed.use_mirror(&mirror, &mirror.lock(&versions[1..]));
    organization.nothing_is_left(STACK, "Preview");
    let plan = || {
        let preview = organization.succeed(STACK, "Preview", "");
        bed.document(&preview, "plan?format=table")
    };
    let upgrade = "provider hashicorp/random changes from 3.6.0 to 3.7.0 for 1 resource, by spec.terraform.lock of";
    assert!(plan().contains(upgrade), "{}", plan());
    organization.succeed(STACK, "Apply", "");
    assert!(!plan().contains("changes from"), "{}", plan());
    organization.succeed(STACK, "Destroy", "");
}

#[test]
fn plan_waits_for_an_approval() {
    let cluster = Cluster::shared();
    let bed = Bed::new(&cluster, &[("random", "3.6.0")]);
    let (organization, kubectl) = (&bed.organization, cluster.kubectl());
    let patch = "--patch={\"spec\":{\"requireApproval\":true}}";
    kubectl.run(&["patch", "workspace", &organization.name, "--type=merge", patch]);
    bed.commit(&json!([resource("random_pet", "name", &json!({}))]));
    let run = organization.start(STACK, "Apply", "");
    let digest = kubectl.watch(&organization.name, &format!("run/{run}"), Duration::from_secs(60), |run| {
        let is_waiting = condition(run, "Waiting")["reason"] == "AwaitingApproval";
        is_waiting.then(|| run["status"]["plan"]["digest"].as_str().unwrap().to_owned())
    });
    let approver = unique("approver");
    kubectl.run(&["create", "clusterrolebinding", &approver, "--clusterrole=cluster-admin", "--user", &approver]);
    let approval =
        format!("--patch={}", json!({"status": {"approval": {"decision": "Approved", "planDigest": digest}}}));
    let by = kubectl.impersonate(&approver);
    let namespace = &organization.name;
    by.run(&["patch", "run", &run, "--subresource=approval", "--type=merge", &approval, "--namespace", namespace]);
    assert_eq!(organization.ended(&run, Duration::from_secs(60))["status"]["phase"], "Succeeded");
    kubectl.run(&["delete", "clusterrolebinding", &approver]);
}
