//! Shipped templates for restricted workloads, for secrets, and for clusters of clusters.

use std::{collections::BTreeMap, path::Path};

use bytes::Bytes;
use serde_json::{Value, json};
use stoa_fleet::{
    Sources,
    render::{Tree, render},
    results::InvalidResults,
};

use crate::{documents, files, fleet, renderer::Process};

/// A target on all cluster types.
const WEB: &str = "apiVersion: scheduler.kalypso.io/v1alpha1
kind: DeploymentTarget
metadata: {name: web, labels: {workload: web, workspace: shop}}
spec: {environment: dev, manifests: {repo: \"https://example.com/web\", branch: main, path: ./web}}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: all}
spec: {deploymentTargetSelector: {labelSelector: {}}, clusterTypeSelector: {labelSelector: {}}}
";

/// A cluster type of the region east with its templates.
fn cluster_type(name: &str, [reconciler, namespace, config]: [&str; 3]) -> String {
    format!(
        "---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {{name: {name}, labels: {{region: east}}}}
spec: {{reconciler: {reconciler}, namespaceService: {namespace}, configType: {config}}}
"
    )
}

/// Configuration for the assignments with a label; `data` is lines of YAML.
fn config_map(name: &str, label: &str, data: &str) -> String {
    format!(
        "---
apiVersion: v1
kind: ConfigMap
metadata: {{name: {name}, labels: {{platform-config: \"true\", {label}}}}}
data:
{data}"
    )
}

/// The files of objects with the shipped templates; `None` without a renderer.
fn rendered(objects: &str) -> Option<Tree> {
    let renderer = Process::start()?;
    let sources = Sources {
        environment: "dev".to_owned(),
        branch: [("objects.yaml".to_owned(), Bytes::from(format!("{WEB}{objects}")))].into(),
        stored: files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/fleet")),
        ..Sources::default()
    };
    Some(render(&fleet(&sources), &renderer).unwrap())
}

/// The objects of a file.
fn objects(tree: &Tree, path: &str) -> Vec<Value> {
    documents(path, &tree.files[path].content)
}

fn kinds(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|object| object["kind"].as_str().unwrap()).collect()
}

#[test]
fn cluster_of_clusters_is_one_target() {
    let rancher = ["rancher-fleet-clusters", "rancher-fleet-clusters-namespace", "rancher-fleet-clusters-config"];
    let ocm = ["ocm-clusters", "ocm-clusters-namespace", "ocm-clusters-config"];
    let all = [
        cluster_type("rancher", rancher),
        cluster_type("ocm", ocm),
        config_map("common", "region: east", "  DATABASE: \"mysql://east\"\n"),
        config_map("members", "cluster-type: rancher", "  MEMBERS: \"{matchLabels: {tier: edge}}\"\n"),
    ];
    let Some(tree) = rendered(&all.concat()) else { return };
    assert_eq!(tree.broken, BTreeMap::new());
    assert_eq!(InvalidResults::of(&tree.files), InvalidResults::default(), "Rancher Fleet would reject a result");
    for folder in ["rancher/web/", "ocm/web/"] {
        assert_eq!(tree.files.keys().filter(|path| path.starts_with(folder)).count(), 3, "{folder}");
    }

    // Rancher Fleet copies the workload, its namespace and its configuration to the members.
    for (file, kind, namespace) in [
        ("reconciler.yaml", "GitRepo", "targetNamespace"),
        ("namespace.yaml", "Bundle", "namespace"),
        ("platform-config.yaml", "Bundle", "namespace"),
    ] {
        let found = objects(&tree, &format!("rancher/web/{file}"));
        assert_eq!(kinds(&found), [kind], "{file}");
        let spec = &found[0]["spec"];
        assert_eq!(spec["targets"][0]["clusterSelector"], json!({"matchLabels": {"tier": "edge"}}), "{file}");
        assert_eq!(spec[namespace], "dev-rancher-web", "{file}");
    }
    let bundle = &objects(&tree, "rancher/web/platform-config.yaml")[0];
    let content = bundle["spec"]["resources"][0]["content"].as_str().unwrap();
    assert_eq!(documents("platform-config.yaml", content)[0]["data"], json!({"DATABASE": "mysql://east"}));

    // Open Cluster Management does so for the clusters of a Placement.
    for (file, expected) in [
        ("reconciler.yaml", vec!["GitRepository", "Kustomization"]),
        ("namespace.yaml", vec!["Namespace", "NetworkPolicy"]),
        ("platform-config.yaml", vec!["ConfigMap"]),
    ] {
        let found = objects(&tree, &format!("ocm/web/{file}"));
        assert_eq!(kinds(&found), ["ManifestWorkReplicaSet"], "{file}");
        assert_eq!(found[0]["metadata"]["namespace"], "dev", "{file}");
        let spec = &found[0]["spec"];
        assert_eq!(spec["placementRefs"], json!([{"name": "ocm"}]), "{file}");
        let manifests = spec["manifestWorkTemplate"]["workload"]["manifests"].as_array().unwrap();
        assert_eq!(kinds(manifests), expected, "{file}");
        assert!(file != "platform-config.yaml" || manifests[0]["data"] == json!({"DATABASE": "mysql://east"}));
    }
}

#[test]
fn values_and_secrets_of_cluster_types_are_consolidated() {
    let [token, license] = ["A", "B"].map(|letter| letter.repeat(300));
    let sops = "  SOPS_SECRETS: |
    certificates:
      apiVersion: v1
      kind: Secret
      metadata: {name: certificates}
      stringData: {tls.key: \"ENC[AES256_GCM,data:q83v,iv:AAA=,tag:BBB=,type:str]\"}
      sops: {mac: \"ENC[AES256_GCM,data:zzz=,type:str]\", version: 3.9.0}
";
    let of_region = format!(
        "  DATABASE: db-east
  EXTERNAL_SECRETS: |
    DB_PASSWORD: {{key: east/db, property: password}}
  SEALED_SECRETS: |
    TOKEN: {token}
"
    );
    let of_drone = format!(
        "  SECRET_STORE: vault
  EXTERNAL_SECRETS: |
    API_KEY: {{key: drone/api}}
  SEALED_SECRETS: |
    LICENSE: {license}
{sops}"
    );
    let templates = ["flux", "restricted-namespace", "config-and-secrets"];
    let all = [
        cluster_type("drone", templates),
        cluster_type("large", templates),
        config_map("a-region", "region: east", &of_region),
        config_map("b-drone", "cluster-type: drone", &of_drone),
        config_map("b-large", "cluster-type: large", "  EXTERNAL_SECRETS: \"{OTHER: {key: large/other}}\"\n"),
    ];
    let Some(tree) = rendered(&all.concat()) else { return };
    assert_eq!(tree.broken, BTreeMap::new());

    let drone = objects(&tree, "drone/web/platform-config.yaml");
    assert_eq!(kinds(&drone), ["ConfigMap", "ExternalSecret", "SealedSecret", "Secret"]);
    let [map, external, sealed, encrypted] = &drone[..] else { panic!("{drone:#?}") };
    assert_eq!(map["data"], json!({"DATABASE": "db-east"}));
    assert_eq!(external["spec"]["secretStoreRef"]["name"], "vault");
    let password = json!({"secretKey": "DB_PASSWORD", "remoteRef": {"key": "east/db", "property": "password"}});
    let api_key = json!({"secretKey": "API_KEY", "remoteRef": {"key": "drone/api"}});
    assert_eq!(external["spec"]["data"], json!([api_key, password]));
    assert_eq!(sealed["spec"]["encryptedData"], json!({"LICENSE": license, "TOKEN": token}));
    assert_eq!(encrypted["metadata"], json!({"name": "certificates", "namespace": "dev-drone-web"}));
    let ciphertext = "ENC[AES256_GCM,data:q83v,iv:AAA=,tag:BBB=,type:str]";
    assert_eq!(encrypted["stringData"], json!({"tls.key": ciphertext}));
    assert_eq!(encrypted["sops"]["version"], "3.9.0");
    for object in &drone {
        assert_eq!(object["metadata"]["namespace"], "dev-drone-web", "{object:#}");
    }
    let provenance = &tree.files["drone/web/platform-config.yaml"].provenance;
    assert_eq!(provenance.config_maps, ["a-region", "b-drone"]);

    let large = objects(&tree, "large/web/platform-config.yaml");
    assert_eq!(kinds(&large), ["ConfigMap", "ExternalSecret", "SealedSecret"]);
    assert_eq!(large[1]["spec"]["secretStoreRef"]["name"], "platform");
    let other = json!({"secretKey": "OTHER", "remoteRef": {"key": "large/other"}});
    assert_eq!(large[1]["spec"]["data"], json!([password, other]));
    assert_eq!(large[2]["spec"]["encryptedData"], json!({"TOKEN": token}));
}

#[test]
fn plain_text_of_a_secret_breaks_the_assignment() {
    for (data, expected) in [
        ("SEALED_SECRETS: \"{TOKEN: hunter2}\"", "SEALED_SECRETS.TOKEN is no ciphertext"),
        ("SEALED_SECRETS: hunter2", "SEALED_SECRETS is no map"),
        ("EXTERNAL_SECRETS: \"{TOKEN: hunter2}\"", "EXTERNAL_SECRETS.TOKEN is no reference"),
        ("EXTERNAL_SECRETS: \"[hunter2]\"", "EXTERNAL_SECRETS is no map"),
        (
            "SOPS_SECRETS: \"{a: {metadata: {name: a}, stringData: {TOKEN: hunter2}}}\"",
            "SOPS_SECRETS.a is not encrypted",
        ),
        (
            "SOPS_SECRETS: \"{a: {metadata: {name: a}, stringData: {TOKEN: hunter2}, sops: {version: 3.9.0}}}\"",
            "SOPS_SECRETS.a has plain text in stringData.TOKEN",
        ),
        ("SOPS_SECRETS: \"{a: hunter2}\"", "SOPS_SECRETS.a is no Secret"),
        ("SOPS_SECRETS: hunter2", "SOPS_SECRETS is no map"),
    ] {
        let drone = cluster_type("drone", ["flux", "restricted-namespace", "config-and-secrets"]);
        let map = config_map("secrets", "cluster-type: drone", &format!("  {data}\n"));
        let Some(tree) = rendered(&(drone + &map)) else { return };
        let problems = &tree.broken["drone/web"].problems;
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(expected) && !problems[0].contains("hunter2"), "{}", problems[0]);
        assert!(!tree.files.keys().any(|path| path.starts_with("drone/web/")), "{data}");
    }
}

#[test]
fn folder_has_policies_that_restrict_its_workload() {
    let monitor = "---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: DeploymentTarget
metadata: {name: monitor, labels: {workload: monitor, workspace: platform-team}}
spec: {environment: dev, manifests: {repo: \"https://example.com/monitor\", branch: main, path: ./main}}
";
    let all = [
        cluster_type("flux", ["flux-restricted", "restricted-namespace", "config-map"]),
        cluster_type("argo", ["argocd-restricted", "restricted-namespace", "config-map"]),
        config_map("a-region", "region: east", "  QUOTA: |\n    requests.cpu: \"4\"\n"),
        config_map("b-flux", "cluster-type: flux", "  QUOTA: |\n    pods: 20\n"),
        config_map("services", "workspace: platform-team", "  PRIVILEGED: \"true\"\n"),
        monitor.to_owned(),
    ];
    let Some(tree) = rendered(&all.concat()) else { return };
    assert_eq!(tree.broken, BTreeMap::new());
    assert_eq!(InvalidResults::of(&tree.files), InvalidResults::default(), "a project would reject a result");

    for (folder, quota) in
        [("flux/web", json!({"pods": 20, "requests.cpu": "4"})), ("argo/web", json!({"requests.cpu": "4"}))]
    {
        let namespace = objects(&tree, &format!("{folder}/namespace.yaml"));
        assert_eq!(kinds(&namespace), ["Namespace", "NetworkPolicy", "ResourceQuota"], "{folder}");
        assert_eq!(namespace[2]["spec"]["hard"], quota, "{folder}");
    }
    let flux = objects(&tree, "flux/web/reconciler.yaml");
    assert_eq!(kinds(&flux), ["GitRepository", "ServiceAccount", "Role", "RoleBinding", "Kustomization"]);
    let account = &flux[1]["metadata"];
    assert_eq!(account, &json!({"name": "dev-flux-web", "namespace": "flux-system"}));
    assert_eq!(flux[3]["metadata"]["namespace"], "dev-flux-web");
    assert_eq!(flux[3]["subjects"][0]["name"], account["name"]);
    assert_eq!(flux[4]["spec"]["serviceAccountName"], account["name"]);
    let argo = objects(&tree, "argo/web/reconciler.yaml");
    assert_eq!(kinds(&argo), ["AppProject", "Application"]);
    assert_eq!(argo[0]["spec"]["destinations"][0]["namespace"], "dev-argo-web");
    assert_eq!(argo[0]["spec"]["clusterResourceWhitelist"], Value::Null, "nothing of the whole cluster");
    assert_eq!(argo[1]["spec"]["project"], argo[0]["metadata"]["name"]);

    // A service of the platform may do more.
    let flux = objects(&tree, "flux/monitor/reconciler.yaml");
    assert_eq!(kinds(&flux), ["GitRepository", "Kustomization"]);
    assert_eq!(flux[1]["spec"]["serviceAccountName"], Value::Null);
    let argo = objects(&tree, "argo/monitor/reconciler.yaml");
    assert_eq!((kinds(&argo), &argo[0]["spec"]["project"]), (vec!["Application"], &json!("default")));
}
