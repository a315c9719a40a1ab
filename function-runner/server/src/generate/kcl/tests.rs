use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::{Value, json};
use stoa_engine::Spec;
use tempfile::TempDir;

use super::*;
use crate::failure::sentence as shown;
use crate::generate::Values;
use crate::generate::placeholders::Placeholders;

/// The library is for one thread at a time.
fn library() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    static OBJECT: OnceLock<Option<(TempDir, std::path::PathBuf)>> = OnceLock::new();
    let prepared = OBJECT.get_or_init(|| {
        let Some(file) = std::env::var_os("STOA_TEST_KCL") else {
            eprintln!("skipped: STOA_TEST_KCL is not set; see CONTRIBUTING.md");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let object = library::prepare(Path::new(&file), None, folder.path()).unwrap();
        Some((folder, object))
    });
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    use_library(Compiler::load(&prepared.as_ref()?.1).unwrap());
    Some(turn)
}

fn tree(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

fn values(parameters: &[(&str, &str)]) -> Values {
    let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Values {
        project: "shop".to_owned(),
        stack: "prod".to_owned(),
        workspace: "eu".to_owned(),
        parameters: parameters.collect(),
        platform: vec![stoa_proto::Value { name: "cell".to_owned(), json: "\"c1\"".to_owned(), ..Default::default() }],
        ..Values::default()
    }
}

fn render(files: &[(&str, &str)], path: &str, parameters: &[(&str, &str)]) -> Result<Generated, Vec<String>> {
    let root = tree(files);
    let values = values(parameters);
    generate(root.path(), path, &values).map_err(|failure| failure.problems().iter().map(shown).collect())
}

fn generate(root: &Path, path: &str, values: &Values) -> Result<Generated, Failure> {
    let placeholders = Placeholders::of(values);
    let files = Files::Tree { root, path };
    Kcl.generate(&Input { files, overlay: &[], values, placeholders: &placeholders, values_read: false, at: &|_| {} })
}

fn wrong(files: &[(&str, &str)], path: &str) -> Vec<String> {
    render(files, path, &[]).unwrap_err()
}

fn ids(spec: &Spec) -> Vec<&str> {
    spec.resources.iter().map(|resource| resource.id.0.as_str()).collect()
}

fn attributes(spec: &Spec, id: &str) -> Value {
    let found = spec.resources.iter().find(|resource| resource.id.0 == id);
    Value::Object(found.unwrap_or_else(|| panic!("{id} is not in {:?}", ids(spec))).attributes.clone())
}

const MODEL: &str = "schema AppConfiguration:\n    workload: any\n    accessories?: {str:any}\n    labels?: {str:str}\n    annotations?: {str:str}\n";
const SERVICE: &str = "import container as c\nschema Service:\n    containers: {str:c.Container}\n    replicas?: int\n    ports?: [any]\n    type: str = \"Deployment\"\n";
const JOB: &str = "import container as c\nschema Job:\n    containers: {str:c.Container}\n    schedule?: str\n";
const CONTAINER: &str = "schema Container:\n    image: str\n    command?: [str]\n    args?: [str]\n    env?: {str:str}\n    workingDir?: str\n    \
                         resources?: {str:str}\n    files?: {str:any}\n    dirs?: {str:str}\n    readinessProbe?: any\n    livenessProbe?: any\n    \
                         lifecycle?: any\nschema Http:\n    url: str\n    headers?: {str:str}\nschema Exec:\n    command: [str]\nschema Tcp:\n    url: str\n\
                         schema Probe:\n    probeHandler: any\n    initialDelaySeconds?: int\n";
const NETWORK: &str = "schema Network:\n    ports: [any]\n";
const MODULE: &str = "[package]\nname = \"prod\"\n\n[dependencies]\nkam = { path = \"../../models/kam\" }\nservice = { path = \"../../models/service\" }\n\
                      job = { path = \"../../models/job\" }\nnetwork = { path = \"../../models/network\" }\n\
                      container = { path = \"../../models/container\" }\n\n[profile]\nentries = [\"../base/base.k\", \"main.k\"]\n";
const BASE: &str = "import kam as ac\nimport service\nimport container as c\nweb: ac.AppConfiguration {\n    workload: service.Service {\n        \
                    containers: {web: c.Container {image: \"<no value>\", env: {Z: \"1\", A: \"secret://keys/a\"}, \
                    resources: {cpu: \"250m-500m\", memory: \"64Mi\"}}}\n        replicas: 1\n        \
                    ports: [{port = 80, targetPort = 8080}, {port = 443, public = True}]\n    }\n}\n";
const MAIN: &str = "import kam as ac\nimport service\nimport container as c\nweb: ac.AppConfiguration {\n    workload: service.Service {\n        \
                    replicas = 3\n        containers: {web: c.Container {image = \"shop/web:1\"}}\n    }\n}\n";

/// A project in the layout of Konfig, with other files in the positions of some.
fn konfig<'a>(others: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let usual = [
        ("shop/project.yaml", "name: shop\n"),
        ("shop/base/base.k", BASE),
        ("shop/prod/stack.yaml", "name: prod\n"),
        ("shop/prod/kcl.mod", MODULE),
        ("shop/prod/main.k", MAIN),
        ("models/kam/kam.k", MODEL),
        ("models/service/service.k", SERVICE),
        ("models/job/job.k", JOB),
        ("models/container/container.k", CONTAINER),
        ("models/network/network.k", NETWORK),
    ];
    let is_other = |path: &str| others.iter().any(|(other, _)| *other == path);
    usual.into_iter().filter(|(path, _)| !is_other(path)).chain(others.iter().copied()).collect()
}

#[test]
fn application_becomes_a_deployment_and_services() {
    let Some(_turn) = library() else { return };
    let generated = render(&konfig(&[]), "shop/prod", &[]).unwrap();
    let spec = &generated.spec;
    let expected = [
        "v1:Namespace:shop",
        "apps/v1:Deployment:shop:shop-prod-web",
        "v1:Service:shop:shop-prod-web-private",
        "v1:Service:shop:shop-prod-web-public",
    ];
    assert_eq!(ids(spec), expected);
    let deployment = attributes(spec, "apps/v1:Deployment:shop:shop-prod-web");
    let labels = json!({"app.kubernetes.io/name": "web", "app.kubernetes.io/part-of": "shop"});
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(
        deployment["spec"]["template"],
        json!({
            "metadata": {"labels": labels},
            "spec": {"containers": [{
                "name": "web",
                "image": "shop/web:1",
                "env": [
                    {"name": "Z", "value": "1"},
                    {"name": "A", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}},
                ],
                "resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "500m", "memory": "64Mi"}},
            }]},
        })
    );
    let service = attributes(spec, "v1:Service:shop:shop-prod-web-private");
    let port = json!({"name": "shop-prod-web-private-80-tcp", "port": 80, "targetPort": 8080, "protocol": "TCP"});
    assert_eq!(service["spec"], json!({"type": "ClusterIP", "selector": labels, "ports": [port]}));
    assert_eq!(attributes(spec, "v1:Service:shop:shop-prod-web-public")["spec"]["type"], "LoadBalancer");
    assert_eq!((generated.warnings, generated.provenance.version.as_str()), (Vec::new(), "kcl_lib 0.13.2"));
    let files: Vec<_> = generated.provenance.files.iter().map(String::as_str).collect();
    let expected = [
        "models/container/container.k",
        "models/kam/kam.k",
        "models/service/service.k",
        "shop/base/base.k",
        "shop/prod/kcl.mod",
        "shop/prod/main.k",
        "shop/prod/stack.yaml",
        "shop/project.yaml",
    ];
    assert_eq!(files, expected);
    let place = &spec.resources[1].extensions;
    assert_eq!(
        (&place[stoa_engine::spec::FILE], &place[stoa_engine::spec::LINE]),
        (&json!("shop/prod/main.k"), &json!(4))
    );
}

#[test]
fn jobs_files_probes_and_hooks_become_kubernetes_fields() {
    let Some(_turn) = library() else { return };
    let main = "import kam as ac\nimport job\nimport container as c\nnight: ac.AppConfiguration {\n    workload: job.Job {\n        schedule: \"0 3 * * *\"\n        \
                containers: {main: c.Container {\n            image: \"x\"\n            files: {\"/etc/app/a.conf\" = {content = \"k=v\", mode = \"0644\"}, \
                \"/keys/b\" = {contentFrom = \"secret://s/key\"}}\n            dirs: {\"/certs\" = \"secret://tls\"}\n            \
                readinessProbe: c.Probe {probeHandler: c.Http {url: \"http://localhost:8080/ready\"}, initialDelaySeconds: 5}\n            \
                livenessProbe: c.Probe {probeHandler: c.Tcp {url: \"db:5432\"}}\n            \
                lifecycle: {preStop = c.Exec {command: [\"stop\"]}}\n        }}\n    }\n    labels: {team: \"night\"}\n}\n";
    let module = MODULE.replace("\"../base/base.k\", ", "");
    let project = "name: shop\nextensions:\n- kind: kubernetesNamespace\n  kubernetesNamespace: {namespace: apps}\n\
                   - kind: kubernetesMetadata\n  kubernetesMetadata: {annotations: {owner: team}}\n";
    let others = [("shop/prod/main.k", main), ("shop/prod/kcl.mod", module.as_str()), ("shop/project.yaml", project)];
    let mut files = konfig(&others);
    files.retain(|(path, _)| *path != "shop/base/base.k");
    let generated = render(&files, "shop/prod", &[]).unwrap();
    let expected =
        ["v1:Namespace:apps", "v1:ConfigMap:apps:shop-prod-night-main-0", "batch/v1:CronJob:apps:shop-prod-night"];
    assert_eq!(ids(&generated.spec), expected);
    let config_map = attributes(&generated.spec, expected[1]);
    assert_eq!(
        (&config_map["data"], &config_map["metadata"]["labels"]["team"]),
        (&json!({"a.conf": "k=v"}), &json!("night"))
    );
    let job = attributes(&generated.spec, expected[2]);
    assert_eq!(
        (&job["spec"]["schedule"], &job["metadata"]["annotations"]["owner"]),
        (&json!("0 3 * * *"), &json!("team"))
    );
    let pod = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    assert_eq!(pod["restartPolicy"], "Never");
    let expected = json!([
        {"name": "shop-prod-night-main-0", "configMap": {"name": "shop-prod-night-main-0", "defaultMode": 420}},
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "tls", "secret": {"secretName": "tls"}},
    ]);
    assert_eq!(pod["volumes"], expected);
    let container = &pod["containers"][0];
    let expected = json!([
        {"name": "shop-prod-night-main-0", "mountPath": "/etc/app"},
        {"name": "s", "mountPath": "/keys/b", "subPath": "key"},
        {"name": "tls", "mountPath": "/certs"},
    ]);
    assert_eq!(container["volumeMounts"], expected);
    let expected = json!({"httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"}, "initialDelaySeconds": 5});
    assert_eq!(container["readinessProbe"], expected);
    assert_eq!(container["livenessProbe"], json!({"tcpSocket": {"host": "db", "port": 5432}}));
    assert_eq!(container["lifecycle"], json!({"preStop": {"exec": {"command": ["stop"]}}}));
}

#[test]
fn server_of_the_library_becomes_objects() {
    let Some(_turn) = library() else { return };
    let server = include_str!("../../../../modules/server/server.k");
    let program = |more: &str| {
        format!(
            "import server\nweb = server.objects(server.Server {{name = \"web\", namespace = \"shop\", image = \"shop/web:1\"{more}}})\n"
        )
    };
    let module = "[package]\nname = \"prod\"\n\n[dependencies]\nserver = { path = \"../modules/server\" }\n";
    let found = |more: &str| {
        let main = program(more);
        let library =
            [("modules/server/kcl.mod", "[package]\nname = \"server\"\n"), ("modules/server/server.k", server)];
        render(&[library.as_slice(), &[("s/kcl.mod", module), ("s/main.k", &main)]].concat(), "s", &[])
    };
    assert_eq!(ids(&found("").unwrap().spec), ["apps/v1:Deployment:shop:web"]);
    let all = ", port = 8080, env = {B = \"1\", A = \"2\"}, files = {\"a.conf\" = \"x\"}, host = \"web.example.com\", metricsPath = \"/metrics\"";
    let spec = found(all).unwrap().spec;
    let expected = [
        "apps/v1:Deployment:shop:web",
        "v1:ConfigMap:shop:web",
        "v1:Service:shop:web",
        "networking.k8s.io/v1:Ingress:shop:web",
        "monitoring.coreos.com/v1:ServiceMonitor:shop:web",
    ];
    assert_eq!(ids(&spec), expected);
    let pod = attributes(&spec, expected[0])["spec"]["template"]["spec"].clone();
    assert_eq!(pod["containers"][0]["env"], json!([{"name": "B", "value": "1"}, {"name": "A", "value": "2"}]));
    assert_eq!(pod["volumes"], json!([{"name": "files", "configMap": {"name": "web"}}]));
    let backend = &attributes(&spec, expected[3])["spec"]["rules"][0]["http"]["paths"][0]["backend"];
    assert_eq!(*backend, json!({"service": {"name": "web", "port": {"name": "http"}}}));
    let wrong = found(", host = \"web.example.com\"").unwrap_err();
    assert!(wrong[0].contains("host needs port"), "{wrong:?}");
}

#[test]
fn cloud_services_of_the_library_become_resources_of_terraform() {
    let Some(_turn) = library() else { return };
    let library = [
        ("modules/cloud/kcl.mod", include_str!("../../../../modules/cloud/kcl.mod")),
        ("modules/cloud/resource.k", include_str!("../../../../modules/cloud/resource.k")),
        ("modules/cloud/database.k", include_str!("../../../../modules/cloud/database.k")),
        ("modules/cloud/cluster.k", include_str!("../../../../modules/cloud/cluster.k")),
        ("modules/cloud/load_balancer.k", include_str!("../../../../modules/cloud/load_balancer.k")),
    ];
    let module = "[package]\nname = \"prod\"\n\n[dependencies]\ncloud = { path = \"../modules/cloud\" }\n";
    let found = |program: &str| {
        let main = format!("import cloud\nresources = {program}\n");
        render(&[library.as_slice(), &[("s/kcl.mod", module), ("s/main.k", &main)]].concat(), "s", &[])
    };
    let kinds = |program: &str| {
        let spec = found(program).unwrap().spec;
        let ids = ids(&spec);
        ids.iter().map(|id| id.rsplit(':').nth(1).unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    // References to resources that a Spec lacks would fail.
    for (program, expected) in [
        (
            "cloud.database(cloud.Database {name = \"orders\", provider = \"aws\", namespace = \"shop\", subnets = [\"a\", \"b\"]})",
            "random_password aws_db_subnet_group aws_db_instance shop",
        ),
        (
            "cloud.database(cloud.Database {name = \"orders\", provider = \"alicloud\", namespace = \"shop\", engine = \"mysql\", subnets = [\"a\"]})",
            "random_password alicloud_db_instance alicloud_db_database alicloud_rds_account shop",
        ),
        (
            "cloud.cluster(cloud.Cluster {name = \"main\", provider = \"aws\", subnets = [\"a\", \"b\"]})",
            "aws_iam_role aws_iam_role_policy_attachment aws_iam_role aws_iam_role_policy_attachment \
             aws_iam_role_policy_attachment aws_iam_role_policy_attachment aws_eks_cluster aws_eks_node_group",
        ),
        (
            "cloud.cluster(cloud.Cluster {name = \"main\", provider = \"alicloud\", subnets = [\"a\"]})",
            "alicloud_cs_managed_kubernetes alicloud_cs_kubernetes_node_pool",
        ),
        (
            "cloud.loadBalancer(cloud.LoadBalancer {name = \"web\", provider = \"aws\", subnets = [\"a\"], vpc = \"v\", port = 443, servers = [\"i\"]})",
            "aws_lb aws_lb_target_group aws_lb_listener aws_lb_target_group_attachment",
        ),
        (
            "cloud.loadBalancer(cloud.LoadBalancer {name = \"web\", provider = \"alicloud\", subnets = [\"a\"], port = 443, servers = [\"i\"]})",
            "alicloud_slb_load_balancer alicloud_slb_listener alicloud_slb_backend_server",
        ),
    ] {
        assert_eq!(kinds(program), expected, "{program}");
    }
    let program = "cloud.database(cloud.Database {name = \"orders\", provider = \"aws\", namespace = \"shop\", subnets = [\"a\", \"b\"]})";
    let spec = found(program).unwrap().spec;
    let secret = attributes(&spec, "v1:Secret:shop:orders");
    assert_eq!(secret["stringData"]["host"], "$kusion_path.hashicorp:aws:aws_db_instance:orders.address");
    let wrong = found(
        "cloud.loadBalancer(cloud.LoadBalancer {name = \"web\", provider = \"aws\", subnets = [\"a\"], port = 443})",
    );
    assert!(wrong.unwrap_err()[0].contains("vpc must be set at AWS"));
}

#[test]
fn accessories_and_workloads_are_calls_of_modules() {
    let Some(_turn) = library() else { return };
    let accessory = MAIN
        .replace("    workload:", "    accessories: {\"network\" = n.Network {ports: [{port = 80}]}}\n    workload:");
    let accessory = format!("import network as n\n{accessory}");
    let files = konfig(&[("shop/prod/main.k", &accessory)]);
    let calls = |modules: Value| {
        let root = tree(&files);
        let modules = crate::generate::modules::Settings::of_spec(json!({"modules": modules}).to_string().as_bytes());
        let values = Values { modules, ..values(&[]) };
        generate(root.path(), "shop/prod", &values)
            .map_err(|failure| failure.problems().iter().map(shown).collect::<Vec<_>>())
    };
    let module = json!({"path": "oci://ghcr.io/kusionstack/network", "version": "0.2.0"});
    let generated = calls(json!({"network": module})).unwrap();
    assert_eq!(ids(&generated.spec)[..2], ["v1:Namespace:shop", "apps/v1:Deployment:shop:shop-prod-web"]);
    let [network] = generated.calls.as_slice() else { panic!("{:?}", generated.calls) };
    let request = network.request().unwrap();
    assert_eq!((request.project.as_str(), request.stack.as_str(), request.app.as_str()), ("shop", "prod", "web"));
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert_eq!(text(&request.dev_config), "{\"ports\":[{\"port\":80}],\"_type\":\"network.Network\"}");
    // The order of the program stays.
    assert!(
        text(&request.workload).contains("\"env\":{\"Z\":\"1\",\"A\":\"secret://keys/a\"}"),
        "{}",
        text(&request.workload)
    );
    assert!(text(&request.workload).ends_with("\"_type\":\"service.Service\"}"), "{}", text(&request.workload));

    let generated = calls(json!({"network": module, "service": module})).unwrap();
    assert_eq!(ids(&generated.spec), ["v1:Namespace:shop"]);
    let [workload, _] = generated.calls.as_slice() else { panic!("{:?}", generated.calls) };
    assert_eq!(workload.request().unwrap().dev_config, workload.request().unwrap().workload);

    let labelled = accessory.replace("    workload:", "    labels: {a: \"b\"}\n    workload:");
    let files = konfig(&[("shop/prod/main.k", &labelled)]);
    let root = tree(&files);
    let modules =
        crate::generate::modules::Settings::of_spec(json!({"modules": {"service": module}}).to_string().as_bytes());
    let values = Values { modules, ..values(&[]) };
    let failure = generate(root.path(), "shop/prod", &values).unwrap_err();
    let expected = "web.labels: is not for a workload of a Kusion module; set it in the workload";
    assert!(shown(&failure.problems()[0]).ends_with(expected), "{:?}", failure.problems());
}

#[test]
fn parts_that_are_not_deployed_are_errors() {
    let Some(_turn) = library() else { return };
    let with = |field: &str| MAIN.replace("        replicas = 3\n", &format!("        replicas = 3\n{field}"));
    let accessory =
        MAIN.replace("    workload:", "    accessories: {\"network\" = n.Network {ports: []}}\n    workload:");
    let accessory = format!("import network as n\n{accessory}");
    let no_base = MODULE.replace("\"../base/base.k\", ", "");
    for (path, text, expected) in [
        (
            "shop/prod/main.k",
            accessory.as_str(),
            "shop/prod/main.k:5: web.accessories.network: is of the Kusion module network (network.Network), which spec.modules of workspace eu \
             does not have; add its path and version there",
        ),
        (
            "shop/prod/kcl.mod",
            no_base.as_str(),
            "shop/prod: the stack leaves out shop/base; add [profile] entries = [\"../base/base.k\", \"main.k\"] to its kcl.mod, with the base first",
        ),
        (
            "shop/prod/main.k",
            &format!("{MAIN}other = 1\n"),
            "shop/prod/main.k:10: other: is no AppConfiguration, and the stack has 1; begin its name with _",
        ),
        (
            "shop/prod/main.k",
            &MAIN.replace("        containers: {web: c.Container {image = \"shop/web:1\"}}\n", ""),
            "shop/base/base.k:6: web.workload.containers.web.image is \"<no value>\", a placeholder; set a value in the stack",
        ),
        (
            "shop/prod/main.k",
            &with("        ports = [{port = 70000}]\n"),
            "shop/prod/main.k:4: web.workload.ports[0].port: must be from 1 to 65535",
        ),
        (
            "shop/prod/main.k",
            &with("        ports = [{port = 80, type = \"aws\"}]\n"),
            "shop/prod/main.k:4: web.workload.ports[0].type: is not supported; the fields are port, targetPort, protocol, public",
        ),
    ] {
        assert_eq!(wrong(&konfig(&[(path, text)]), "shop/prod"), [expected], "{text}");
    }
}

#[test]
fn plain_programs_export_objects() {
    let Some(_turn) = library() else { return };
    let main = "_name = option(\"name\") or \"web\"\n_count: int = option(\"count\") or 1\nschema ConfigMap:\n    apiVersion: str = \"v1\"\n    \
                kind: str = \"ConfigMap\"\n    metadata: {str:str}\n    data?: {str:str}\n\nsettings = ConfigMap {metadata: {name = _name}, data: {count = str(_count), cell = option(\"cell\")}}\n\
                more = [ConfigMap {metadata: {name = \"b\"}}, None]\n";
    let files = [("app/main.k", main), ("app/main_test.k", "x = y\n")];
    let generated = render(&files, "app", &[("count", "3"), ("other", "x")]).unwrap();
    assert_eq!(ids(&generated.spec), ["v1:ConfigMap:web", "v1:ConfigMap:b"]);
    let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"count": "3", "cell": "c1"}});
    assert_eq!(attributes(&generated.spec, "v1:ConfigMap:web"), expected);
    assert_eq!(generated.warnings, [r#"the program has no option "other", so the parameter has no effect"#]);
    let stream = "import manifests\nmanifests.yaml_stream([{apiVersion = \"v1\", kind = \"ConfigMap\", metadata.name = n} for n in [\"a\", \"b\"]])\n";
    let generated = render(&[("main.k", stream)], "", &[]).unwrap();
    assert_eq!(ids(&generated.spec), ["v1:ConfigMap:a", "v1:ConfigMap:b"]);
    let spec = "resources = [{id = \"v1:ConfigMap:a\", type = \"Kubernetes\", attributes = {apiVersion = \"v1\", kind = \"ConfigMap\", metadata.name = \"a\"}}]\n";
    let generated = render(&[("a/b/main.k", spec)], "a/b", &[]).unwrap();
    assert_eq!(ids(&generated.spec), ["v1:ConfigMap:a"]);
}

#[test]
fn parameters_change_parts_of_options() {
    let Some(_turn) = library() else { return };
    let main = "_image = option(\"image\")\n_hosts = option(\"hosts\")\nsettings = {apiVersion = \"v1\", kind = \"ConfigMap\", metadata.name = \"x\", \
                data = {tag = str(_image.tag + 1), registry = _image.registry, hosts = \"-\".join(_hosts)}}\n";
    let settings = "kcl_cli_configs:\n  file: [main.k]\nkcl_options:\n- {key: hosts, value: [a, b]}\n";
    let root = tree(&[("app/main.k", main), ("app/kcl.yaml", settings)]);
    let mut values = values(&[("image.tag", "16"), ("hosts[1]", "c"), ("other.part", "x")]);
    let image = json!({"tag": 1, "registry": "r"}).to_string();
    values.platform = vec![stoa_proto::Value { name: "image".to_owned(), json: image, ..Default::default() }];
    let generated = generate(root.path(), "app", &values).unwrap();
    let expected = json!({"tag": "17", "registry": "r", "hosts": "a-c"});
    assert_eq!(attributes(&generated.spec, "v1:ConfigMap:x")["data"], expected);
    assert_eq!(generated.warnings, [r#"the program has no option "other.part", so the parameter has no effect"#]);
}

#[test]
fn wrong_programs_name_file_and_line() {
    let Some(_turn) = library() else { return };
    for (files, expected) in [
        (
            &[("app/main.k", "a = 1\n")][..],
            "app/main.k:1: a: is no Kubernetes object; add apiVersion and kind, or begin its name with _",
        ),
        (&[("app/main.k", "b = 1\na = x\n")], "app/main.k:2: name 'x' is not defined (E2L23)"),
        (&[("app/README.md", "")], "app: the folder has no KCL files; add main.k, or [profile] entries to kcl.mod"),
        (
            &[("app/main.k", "a = 1\n"), ("app/kcl.mod", "[dependencies]\nkam = { git = \"x\", tag = \"0.1.0\" }\n")],
            "app/kcl.mod:2: dependency kam is of Git, and Stoa downloads no packages; copy it to app/vendor/kam_0.1.0, as `kcl mod vendor` does, use a path, or register it as a Module",
        ),
        (
            &[("app/main.k", "a = 1\n"), ("app/kcl.mod", "[dependencies]\nkam = { path = \"../../kam\" }\n")],
            "app/kcl.mod:2: dependency kam leads out of the repository",
        ),
        (
            &[("app/main.k", "a = 1\n"), ("app/kcl.mod", "[dependencies]\nkam = { path = \"../kam\" }\n")],
            "app/kcl.mod:2: dependency kam has no folder kam",
        ),
        (
            &[("app/main.k", "a = 1\n"), ("app/kcl.mod", "[profile]\nentries = [\"../gone.k\", \"main.k\"]\n")],
            "app: entry \"../gone.k\" does not exist",
        ),
        (
            &[("app/main.k", "schema AppConfiguration:\n    workload: int\na = AppConfiguration {workload: 1}\n")],
            "app/main.k:3: a: is an AppConfiguration, for which the folder needs a stack.yaml with the name of the stack",
        ),
    ] {
        assert_eq!(wrong(files, "app"), [expected]);
    }
}

#[test]
fn vendored_and_transitive_packages_are_found() {
    let Some(_turn) = library() else { return };
    let object = "import outer-most as o\n";
    let files = [
        ("app/kcl.mod", "[dependencies]\nouter-most = { oci = \"oci://x/outer\", tag = \"1.0\" }\n"),
        ("app/main.k", &object.replace("outer-most as o", "outer_most as o\na = o.named(\"x\")")),
        ("app/vendor/outer-most_1.0/kcl.mod", "[dependencies]\ninner = { path = \"../inner\" }\n"),
        ("app/vendor/outer-most_1.0/o.k", "import inner\nnamed = lambda name {\n    inner.object(name)\n}\n"),
        ("app/vendor/inner/kcl.mod", "[package]\nname = \"inner\"\n"),
        (
            "app/vendor/inner/i.k",
            "object = lambda name {\n    {apiVersion = \"v1\", kind = \"ConfigMap\", metadata.name = name}\n}\n",
        ),
    ];
    let generated = render(&files, "app", &[]).unwrap();
    assert_eq!(ids(&generated.spec), ["v1:ConfigMap:x"]);
}

#[test]
fn older_trees_list_their_files_in_kcl_yaml() {
    let Some(_turn) = library() else { return };
    let settings = "kcl_cli_configs:\n  file:\n  - ${KCL_MOD}/base/base.k\n  - main.k\n  disable_none: true\nkcl_options:\n- {key: image, value: a}\n";
    let files = [
        ("kcl.mod", ""),
        (
            "base/base.k",
            "schema Settings:\n    apiVersion: str = \"v1\"\n    kind: str = \"ConfigMap\"\n    metadata: {str:str}\n    data?: {str:str}\n\
             settings: Settings {metadata: {name: \"x\"}}\n",
        ),
        ("shop/prod/kcl.yaml", settings),
        ("shop/prod/ci-test/settings.yaml", "kcl_options:\n- {key: image, value: b}\n"),
        ("shop/prod/main.k", "settings: Settings {data: {image: option(\"image\")}}\n"),
    ];
    let generated = render(&files, "shop/prod", &[]).unwrap();
    assert_eq!(attributes(&generated.spec, "v1:ConfigMap:x")["data"], json!({"image": "b"}));
    let generated = render(&files, "shop/prod", &[("image", "c")]).unwrap();
    assert_eq!(attributes(&generated.spec, "v1:ConfigMap:x")["data"], json!({"image": "c"}));
}

#[test]
fn ended_library_names_the_end_of_its_standard_error() {
    let failed = |fault, stderr: &str| Failed { stderr: stderr.to_owned(), ..Failed::from(fault) };
    let shown = |failed: &Failed| shown(&died(failed, "app").unwrap().problems()[0]);
    let overflow = failed(Fault::Died("signal: 6".to_owned()), "\nthread 'main' has overflowed its stack\n");
    let message = "app: the program ends KCL's library, as endless recursion does (signal: 6)";
    assert_eq!(shown(&overflow), format!("{message}: thread 'main' has overflowed its stack"));
    assert_eq!(shown(&failed(Fault::Died("signal: 6".to_owned()), "")), message);
    assert!(died(&failed(Fault::Time, ""), "app").is_none());
}
