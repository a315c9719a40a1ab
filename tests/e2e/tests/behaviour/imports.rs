//! Objects that were there before are recorded as they are, and brought to what the source says by the next apply.

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, Repository, condition};
use stoa_e2e::{Cluster, Server, Standalone, eventually, git};

use crate::PATIENCE;

/// What the source says: a Deployment that wants nothing to run, and two ConfigMaps.
fn wanted(namespace: &str, value: &str) -> String {
    format!(
        "resources:
- id: apps/v1:Deployment:{namespace}:web
  type: Kubernetes
  dependsOn: [\"v1:ConfigMap:{namespace}:settings\"]
  attributes:
    apiVersion: apps/v1
    kind: Deployment
    metadata: {{name: web, namespace: {namespace}}}
    spec:
      replicas: 0
      selector: {{matchLabels: {{app: web}}}}
      template:
        metadata: {{labels: {{app: web}}}}
        spec: {{containers: [{{name: web, image: \"pause:3.10\"}}]}}
- id: v1:ConfigMap:{namespace}:settings
  type: Kubernetes
  attributes:
    apiVersion: v1
    kind: ConfigMap
    metadata: {{name: settings, namespace: {namespace}}}
    data: {{value: {value}}}
- id: v1:ConfigMap:{namespace}:new
  type: Kubernetes
  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: new, namespace: {namespace}}}}}
"
    )
}

/// The same by hand, but for what is new.
fn by_hand(namespace: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: {namespace}}}
spec:
  replicas: 0
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: web, image: \"pause:3.10\"}}]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: settings, namespace: {namespace}}}
data: {{value: by-hand}}
"
    )
}

struct World {
    cluster: Cluster,
    organization: Organization,
}

impl World {
    fn new() -> Self {
        let cluster = Cluster::shared();
        let organization = Organization::create(&cluster);
        organization.stack("web", &wanted(&organization.name, "wanted"));
        let world = Self { cluster, organization };
        // The namespace of an organization is ready to use.
        world.cluster.kubectl().apply(&by_hand(&world.organization.name));
        world
    }

    /// An object whole, its bookkeeping included.
    fn live(&self, what: &str) -> Value {
        let get = ["get", what, "--namespace", &self.organization.name, "--show-managed-fields", "--output=json"];
        serde_json::from_str(&self.cluster.kubectl().run(&get)).unwrap()
    }

    /// The same once its controller is done with it.
    fn settled(&self, what: &str) -> Value {
        self.cluster.kubectl().run(&["rollout", "status", what, "--namespace", &self.organization.name]);
        eventually("its controller is done", PATIENCE, || {
            let seen = self.live(what);
            thread::sleep(Duration::from_millis(500));
            (self.live(what) == seen).then_some(seen)
        })
    }

    fn log(&self, run: &Value) -> String {
        let name = run["metadata"]["name"].as_str().unwrap();
        let namespace = &self.organization.name;
        let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{namespace}/runs/{name}/log");
        self.cluster.kubectl().raw(&path)
    }

    fn resources(&self, phase: &str) -> Vec<String> {
        let of_phase = |resource: &&Value| resource["status"]["phase"] == phase;
        let resources = self.organization.of_stack("resources", "web");
        let mut ids: Vec<String> =
            resources.iter().filter(of_phase).map(|it| it["spec"]["id"].as_str().unwrap().to_owned()).collect();
        ids.sort();
        ids
    }
}

#[test]
fn import_adopts_objects_unchanged_then_manages_them() {
    let world = World::new();
    let World { organization, cluster } = &world;
    let name = &organization.name;
    let (web, settings) = (format!("apps/v1:Deployment:{name}:web"), format!("v1:ConfigMap:{name}:settings"));
    let before = (world.settled("deployment/web"), world.live("configmap/settings"));

    // All of it or nothing.
    let missing =
        format!("import: {{resources: [{{id: \"{settings}\"}}, {{id: \"v1:ConfigMap:{name}:new\"}}, {{id: x}}]}}");
    let why = organization.fail("web", "Import", &missing);
    assert!(why.contains("x: the Spec of the stack has no resource with this id"), "{why}");
    let missing = format!("import: {{resources: [{{id: \"{settings}\"}}, {{id: \"v1:ConfigMap:{name}:new\"}}]}}");
    let why = organization.fail("web", "Import", &missing);
    assert!(why.contains(&format!("v1:ConfigMap:{name}:new")) && why.contains("the object does not exist"), "{why}");
    let wrong = format!("import: {{resources: [{{id: \"{settings}\", infrastructureId: other/settings}}]}}");
    assert!(
        organization.fail("web", "Import", &wrong).contains("`other/settings` does not match the id of the ConfigMap")
    );
    assert!(world.resources("Imported").is_empty());

    let selected = format!("import: {{resources: [{{id: \"{settings}\"}}]}}");
    let preview = organization.succeed("web", "Preview", &format!("of: Import, {selected}"));
    assert_eq!(preview["status"]["plan"]["summary"]["import"], 1);
    assert!(world.resources("Imported").is_empty());
    let plan = preview["metadata"]["name"].as_str().unwrap();
    let other = format!("import: {{resources: [{{id: \"{web}\"}}]}}, plan: {plan}");
    let why = organization.refused("web", "Import", &other);
    assert!(why.contains("spec.import") && why.contains(plan), "{why}");
    // What the Preview was told counts, and need not be said again.
    let imported = organization.succeed("web", "Import", &format!("plan: {plan}"));
    assert_eq!(imported["status"]["plan"]["digest"], preview["status"]["plan"]["digest"]);
    assert_eq!(imported["status"]["release"], 1, "{imported:#}");
    assert_eq!(imported["status"]["plan"]["summary"]["import"], 1);

    // Somebody else may have to approve it, and until then nothing is on record.
    let run = organization.start("web", "Import", "requireApproval: true");
    let waits = |run: &Value| (run["status"]["phase"] == "AwaitingApproval").then_some(());
    cluster.kubectl().watch(name, &format!("run/{run}"), PATIENCE, waits);
    assert_eq!(world.resources("Imported"), [settings.as_str()]);
    let cancel = r#"{"spec":{"cancel":true}}"#;
    cluster.kubectl().run(&["patch", "run", &run, "--namespace", name, "--type=merge", "--patch", cancel]);
    assert_eq!(organization.ended(&run, PATIENCE)["status"]["phase"], "Canceled");

    let everything = organization.succeed("web", "Import", "");
    assert_eq!(
        (&everything["status"]["release"], world.resources("Imported")),
        (&json!(2), vec![web, settings.clone()])
    );
    assert_eq!((world.live("deployment/web"), world.live("configmap/settings")), before, "not even a mark");
    let again = organization.succeed("web", "Import", "");
    assert_eq!(condition(&again, "Complete")["message"], "nothing was left to import");

    // What is on record here is nobody else's to import, though it bears no mark yet.
    organization.stack("other", &wanted(name, "other"));
    let why = organization.fail("other", "Import", &format!("import: {{resources: [{{id: \"{settings}\"}}]}}"));
    assert!(why.contains(&format!("{settings} is on record for {name}/web/{name}")), "{why}");

    // There is nothing to go back to, and nothing that moved away.
    let why = organization.refused("web", "Rollback", "release: 2");
    assert!(why.contains("records an import"), "{why}");
    let refresh = organization.succeed("web", "Refresh", "");
    assert_eq!(condition(&refresh, "Complete")["message"], "nothing moved away from release 2");

    let preview = organization.succeed("web", "Preview", "");
    let summary = &preview["status"]["plan"]["summary"];
    assert_eq!(
        (&summary["create"], &summary["update"], &summary["adopt"]),
        (&json!(1), &json!(2), &json!(0)),
        "{summary}"
    );
    let plan = world.log(&preview);
    let told = ["it was imported; this is its first apply", "data.value: \"by-hand\" → \"wanted\""];
    assert!(told.iter().all(|told| plan.contains(told)), "{plan}");
    assert_eq!((world.live("deployment/web"), world.live("configmap/settings")), before);

    organization.succeed("web", "Apply", "");
    let live = world.live("configmap/settings");
    assert_eq!(live["data"]["value"], "wanted");
    assert!(live["metadata"]["annotations"]["stoa.dev/owner"].as_str().unwrap().starts_with(&format!("{name}/web/")));
    assert_eq!(live["metadata"]["uid"], before.1["metadata"]["uid"], "it is the same object");
    assert_eq!(world.resources("Applied").len(), 3);
    organization.succeed("web", "Destroy", "");
    let left = ["get", "configmap/settings", "deployment/web", "--namespace", name, "--ignore-not-found"];
    assert_eq!(cluster.kubectl().run(&left), "");
}

#[test]
fn release_of_kusion_is_taken_over_and_never_written() {
    let world = World::new();
    let World { organization, cluster } = &world;
    let name = &organization.name;
    cluster.kubectl().apply(&format!(
        "{{apiVersion: v1, kind: Secret, metadata: {{name: old, namespace: {name}}}, stringData: {{password: hunter2}}}}"
    ));
    let tree = cluster.data().join("documents").join(name).join("releases").join("shop").join("prod");
    fs::create_dir_all(&tree).unwrap();
    let resource = |id: &str, kind: &str, object: &str, attributes: &str| {
        format!(
            "    - id: {id}
      type: Kubernetes
      attributes:
        apiVersion: v1
        {attributes}
        kind: {kind}
        metadata: {{creationTimestamp: null, name: {object}, namespace: {name}}}
      extensions: {{GVK: \"/v1, Kind={kind}\"}}
"
        )
    };
    let release = |revision: u64, phase: &str| {
        format!(
            "project: shop\nworkspace: prod\nrevision: {revision}\nstack: prod\nstate:\n    resources:\n{}{}{}phase: \
             {phase}\ncreateTime: 2025-03-01T10:00:00.5+01:00\nmodifiedTime: 2025-03-01T10:00:05.5+01:00\n",
            resource(&format!("v1:ConfigMap:{name}:settings"), "ConfigMap", "settings", "data: {value: by-hand}"),
            resource(&format!("v1:Secret:{name}:old"), "Secret", "old", "data: {password: aHVudGVyMg==}"),
            resource(&format!("v1:ConfigMap:{name}:gone"), "ConfigMap", "gone", "data: {a: b}"),
        )
    };
    let files = [
        (
            ".metadata.yml",
            "latestRevision: 4\nreleaseMetaDatas:\n- revision: 3\n  stack: prod\n- revision: 4\n  stack: prod\n"
                .to_owned(),
        ),
        ("3.yaml", release(3, "succeeded")),
        ("4.yaml", release(4, "applying")),
    ];
    for (file, text) in &files {
        fs::write(tree.join(file), text).unwrap();
    }
    let before = (world.live("secret/old"), world.live("configmap/settings"));

    let why = organization.fail("web", "Import", "import: {kusion: {project: shop, workspace: prod}}");
    assert!(
        why.starts_with("releases/shop/prod/4.yaml: it is applying: ") && why.contains("Nothing was recorded"),
        "{why}"
    );
    let why = organization.fail("web", "Import", "import: {kusion: {}}");
    assert!(why.contains(&format!("releases/{name}/{name}/.metadata.yml is not in the Backend")), "{why}");
    let why = organization.refused("web", "Import", "import: {kusion: {path: ../../other}}");
    assert!(why.contains("spec.import.kusion.path"), "{why}");

    let import = organization.succeed("web", "Import", "import: {kusion: {path: releases/shop/prod, revision: 3}}");
    let log = world.log(&import);
    assert!(log.contains("releases/shop/prod/3.yaml: a release of Kusion that succeeded, with 3 resources"), "{log}");
    assert!(log.contains(&format!("v1:ConfigMap:{name}:gone no longer exists")), "{log}");
    assert_eq!((world.live("secret/old"), world.live("configmap/settings")), before);
    let state = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{name}/releases/web.{name}.1/state");
    let state = cluster.kubectl().raw(&state);
    for kept in [log, state, import.to_string(), json!(organization.of_stack("resources", "web")).to_string()] {
        assert!(!kept.contains("hunter2") && !kept.contains("aHVudGVyMg"), "{kept}");
    }

    // What the source does not have any more goes with the next apply, and only then.
    let preview = organization.succeed("web", "Preview", "");
    assert!(world.log(&preview).contains(&format!("- delete   v1:Secret:{name}:old")), "{}", world.log(&preview));
    organization.succeed("web", "Apply", "");
    let left = ["get", "secret/old", "--namespace", name, "--ignore-not-found"];
    assert_eq!(cluster.kubectl().run(&left), "");
    for (file, text) in &files {
        assert_eq!(fs::read_to_string(tree.join(file)).unwrap(), *text, "{file} is Kusion's");
    }
}

/// As Kusion has it: such an object is applied, and never deleted.
#[test]
fn object_with_import_extension_outlives_stack() {
    let world = World::new();
    let World { organization, cluster } = &world;
    let name = &organization.name;
    let spec = |value: &str| {
        format!(
            "resources:
- id: v1:ConfigMap:{name}:settings
  type: Kubernetes
  extensions: {{kusionstack.io/import-id: {name}/settings}}
  attributes:
    apiVersion: v1
    kind: ConfigMap
    metadata: {{name: settings, namespace: {name}}}
    data: {{value: {value}}}
- id: v1:ConfigMap:{name}:new
  type: Kubernetes
  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: new, namespace: {name}}}}}
"
        )
    };
    let before = world.live("configmap/settings");
    organization.stack("web", &spec("by-hand"));
    organization.succeed("web", "Apply", "");
    organization.stack("web", &spec("wanted"));
    organization.succeed("web", "Apply", "");
    organization.succeed("web", "Destroy", "");
    let after = world.live("configmap/settings");
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["data"]["value"], "wanted");
    assert!(!cluster.kubectl().succeeds(&["get", "configmap/new", "--namespace", name]));
    assert_eq!(world.resources("Forgotten"), [format!("v1:ConfigMap:{name}:settings")]);
}

/// Server-side apply alone would keep a field for ever that somebody else once wrote, too.
#[test]
fn apply_removes_dropped_fields_and_spares_foreign_ones() {
    let world = World::new();
    let World { organization, cluster } = &world;
    let name = &organization.name;
    let id = format!("v1:ConfigMap:{name}:settings");
    let spec = |data: &str| {
        format!(
            "resources:
- id: {id}
  type: Kubernetes
  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: settings, namespace: {name}}}, data: {{{data}}}}}
"
        )
    };
    let by_hand = |data: Value| {
        let patch = json!({ "data": data }).to_string();
        let args = ["patch", "configmap/settings", "--namespace", name, "--type=merge", "--patch", &patch];
        cluster.kubectl().run(&args);
    };
    // It was there before, with a field that nobody wants of it.
    by_hand(json!({"extra": "kept"}));
    organization.stack("web", &spec("value: by-hand"));
    organization.succeed("web", "Import", &format!("import: {{resources: [{{id: \"{id}\"}}]}}"));
    organization.succeed("web", "Apply", "");
    // What helped by hand comes into the source later, and goes again.
    by_hand(json!({"hot": "1", "changed": "1"}));
    organization.stack("web", &spec("value: by-hand, hot: \"1\", changed: \"1\""));
    organization.succeed("web", "Apply", "");
    by_hand(json!({"changed": "2"}));
    organization.stack("web", &spec("own: z"));
    let preview = organization.succeed("web", "Preview", "");
    let log = world.log(&preview);
    for field in ["data.hot", "data.value"] {
        assert!(log.contains(field), "{field} is not told in {log}");
    }
    let plan = preview["metadata"]["name"].as_str().unwrap();
    organization.succeed("web", "Apply", &format!("plan: {plan}"));
    let live = world.live("configmap/settings");
    assert_eq!(live["data"], json!({"changed": "2", "extra": "kept", "own": "z"}), "{live:#}");
    let again = organization.succeed("web", "Apply", "");
    assert_eq!(again["status"]["plan"]["summary"]["unchanged"], 1, "{again:#}");
}

/// Manifests of a GitOps repository, as people write them.
const BY_HAND: &str = "# the settings of the shop
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings   # read by web
  namespace: shop
  creationTimestamp: null
data:
  value: \"1\"
---
# no stack deploys this one
apiVersion: v1
kind: ConfigMap
metadata: {name: other, namespace: shop}
";

/// The same encrypted by SOPS.
const ENCRYPTED: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: hidden, namespace: shop}
data: {value: \"ENC[AES256_GCM,data:qX0=,iv:aa=,tag:bb=,type:str]\"}
sops: {mac: \"ENC[AES256_GCM,data:x]\", version: 3.9.0}
";

#[test]
fn import_adopts_objects_of_gitops_folder() {
    let server = Standalone::shared();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    let clone = Repository::clone_of(&organization.deploy);
    clone.commit("apps/all.yml", BY_HAND);
    clone.commit("apps/hidden.yaml", ENCRYPTED);
    clone.commit("apps/broken.yaml", "a: [\n");
    clone.git(&["push", "--quiet", "origin", "HEAD:main"]);
    let file = || git(&organization.deploy, &["show", "main:apps/all.yml"]);
    let spec = |maps: &[(&str, &str)]| {
        let map = |(name, value): &(&str, &str)| {
            format!(
                "- id: v1:ConfigMap:shop:{name}\n  type: Kubernetes\n  attributes: {{apiVersion: v1, kind: ConfigMap, \
                 metadata: {{name: {name}, namespace: shop}}, data: {{value: \"{value}\"}}}}\n"
            )
        };
        format!("resources:\n{}", maps.iter().map(map).collect::<String>())
    };
    let import = |map: &str| format!("import: {{resources: [{{id: \"v1:ConfigMap:shop:{map}\"}}]}}");

    organization.stack("web", &spec(&[("settings", "1"), ("new", "1"), ("hidden", "1")]));
    let why = organization.fail("web", "Import", &import("new"));
    assert!(
        why.contains("no file in the folder of the Workspace has this object") && why.contains("apps/broken.yaml"),
        "{why}"
    );
    let why = organization.fail("web", "Import", &import("hidden"));
    assert!(why.contains("encrypted by SOPS"), "{why}");

    organization.stack("web", &spec(&[("settings", "1")]));
    let preview = organization.succeed("web", "Preview", "of: Import");
    assert_eq!(preview["status"]["plan"]["summary"]["import"], 1, "{preview:#}");
    let imported = organization.succeed("web", "Import", "");
    assert_eq!((&imported["status"]["release"], file().as_str()), (&json!(1), BY_HAND), "{imported:#}");
    organization.nothing_is_left("web", "Preview");
    organization.nothing_is_left("web", "Refresh");
    // A stack beside it may not record the same file.
    organization.stack("beside", &spec(&[("settings", "1")]));
    let why = organization.fail("beside", "Import", &import("settings"));
    assert!(why.contains(&format!("is on record for {name}/web/{name}")), "{why}");

    organization.stack("web", &spec(&[("settings", "2")]));
    let applied = organization.succeed("web", "Apply", "");
    assert_eq!(applied["status"]["plan"]["summary"]["update"], 1, "{applied:#}");
    let text = file();
    for kept in [
        "# the settings of the shop",
        "  name: settings   # read by web",
        "value: \"2\"",
        "# no stack deploys this one",
    ] {
        assert!(text.contains(kept), "{kept}: {text}");
    }
    let files = git(&organization.deploy, &["ls-tree", "-r", "--name-only", "main"]);
    assert_eq!(files.lines().collect::<Vec<_>>(), ["apps/all.yml", "apps/broken.yaml", "apps/hidden.yaml"]);
    organization.succeed("web", "Destroy", "");
    assert!(!file().contains("name: settings") && file().contains("name: other"), "{}", file());
}
