//! The objects that are read and written: Stacks of Stoa, the same as a custom resource of kube-apiserver, and flunders
//! of Go's sample-apiserver.
//!
//! Start at [`Scene::build`]. All sides' objects have, padded, the same length: one side records more about its objects
//! than the other, and lists are to be compared byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use http::StatusCode;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition,
};
use kube_core::CustomResourceExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::bed::Bed;
use crate::client::Call;
use crate::floor::Floor;
use crate::measure::{MeasuredCollection, Side};
use crate::size::Size;

/// The group of the copies; Stoa's own are taken by its APIServices.
const REFERENCE_GROUP: &str = "bench.stoa.dev";
/// The group of flunders, which the test bed's APIService leads to Go's sample-apiserver.
const SAMPLE_GROUP: &str = "wardle.example.com";
const REFERENCE_KIND: &str = "StackBench";
const REFERENCE_PLURAL: &str = "stackbenches";
const VERSION: &str = "v1alpha1";

/// Every object has one of so many values of [`SHARD`].
pub(crate) const SHARDS: usize = 100;
/// The label that selects one object in a hundred.
pub(crate) const SHARD: &str = "bench.stoa.dev/shard";
/// The label with what created an object.
pub(crate) const TURN: &str = "bench.stoa.dev/turn";

/// The least length of an object, in bytes: that of a custom resource which somebody uses.
const OBJECT_BYTES: usize = 1200;
const PADDING: &str = "bench.stoa.dev/padding";

const PATIENCE: Duration = Duration::from_secs(60);

/// Everything that the measurements need, and nothing of it is anybody else's.
#[derive(Debug)]
pub(crate) struct Scene {
    /// The organization, its project, workspace and backend.
    pub(crate) name: String,
    pub(crate) stoa: MeasuredCollection,
    pub(crate) aggregated: MeasuredCollection,
    /// Where the test bed has Go's sample-apiserver.
    pub(crate) sample: Option<MeasuredCollection>,
    pub(crate) reference: MeasuredCollection,
    /// What stoa-apiserver answered, repeated.
    pub(crate) floor: MeasuredCollection,
    /// Where kpt works.
    pub(crate) kpt: MeasuredCollection,
    /// Where terraform works: on files alone.
    pub(crate) terraform: MeasuredCollection,
    /// The Git repository of the stacks that are only read and written.
    pub(crate) repository: TempDir,
    /// The Git repository of the stacks that are deployed. A commit changes the status of every stack of its Source, so
    /// that these have a Source of their own.
    pub(crate) deployed: TempDir,
    /// By side; those that have none have the objects of another.
    padding: BTreeMap<Side, String>,
}

/// The part of a spec with the text that patches change. Of flunders it is what they refer to.
pub(crate) fn describe(target: &MeasuredCollection, text: &str) -> Value {
    if target.side == Side::Sample { json!({"reference": text}) } else { json!({"description": text}) }
}

/// What [`describe`] wrote.
pub(crate) fn description(object: &Value) -> &Value {
    let spec = &object["spec"];
    spec.get("description").unwrap_or(&spec["reference"])
}

/// The name of an object by its number.
pub(crate) fn name(number: usize) -> String {
    format!("stack-{number:06}")
}

impl Scene {
    /// The plan of it; nothing is made yet, but a repository with the folders of the objects.
    ///
    /// # Errors
    ///
    /// When there is no folder for a repository, or no git.
    pub(crate) fn new(bed: &Bed, floor: &Floor, size: &Size) -> Result<Self> {
        let name = format!("bench-{}", std::process::id());
        let stacks = format!("/apis/config.stoa.dev/{VERSION}/namespaces/{name}/stacks");
        let copies = format!("/apis/{REFERENCE_GROUP}/{VERSION}/namespaces/{name}-reference/{REFERENCE_PLURAL}");
        let flunders = format!("/apis/{SAMPLE_GROUP}/{VERSION}/namespaces/{name}-reference/flunders");
        Ok(Self {
            stoa: MeasuredCollection::new(Side::Stoa, bed.stoa.clone(), stacks.clone()),
            aggregated: MeasuredCollection::new(Side::Aggregated, bed.kubernetes.clone(), stacks.clone()),
            sample: bed.sample.clone().map(|endpoint| MeasuredCollection::new(Side::Sample, endpoint, flunders)),
            reference: MeasuredCollection::new(Side::Reference, bed.kubernetes.clone(), copies.clone()),
            floor: MeasuredCollection::new(Side::Floor, floor.endpoint.clone(), stacks),
            kpt: MeasuredCollection::new(Side::Kpt, bed.kubernetes.clone(), copies.clone()),
            terraform: MeasuredCollection::new(Side::Terraform, bed.kubernetes.clone(), copies.clone()),
            repository: repository(size.objects.max(size.writes_together))?,
            deployed: repository(1)?,
            padding: BTreeMap::new(),
            name,
        })
    }

    /// All that can be read and written, in the order of their turns.
    pub(crate) fn all(&self) -> Vec<&MeasuredCollection> {
        [&self.stoa, &self.aggregated].into_iter().chain(&self.sample).chain([&self.reference]).collect()
    }

    /// Each collection once, and not through the aggregation layer.
    pub(crate) fn own(&self) -> Vec<&MeasuredCollection> {
        self.all().into_iter().filter(|target| target.side != Side::Aggregated).collect()
    }

    /// All that can be read, and what reading costs at least.
    pub(crate) fn readable(&self) -> Vec<&MeasuredCollection> {
        self.all().into_iter().chain([&self.floor]).collect()
    }

    /// Makes organization, project and what they need on one side, a CRD and a namespace on the other.
    ///
    /// # Errors
    ///
    /// When a server refuses or does not get ready.
    pub(crate) async fn build(&mut self) -> Result<()> {
        self.build_stoa().await.context("preparing Stoa")?;
        self.build_reference().await.context("preparing the reference")?;
        self.pad().await.context("comparing an object of each side")
    }

    /// Asks kube-apiserver.
    pub(crate) async fn kubernetes(&self, call: &Call) -> Result<Value> {
        let mut client = self.reference.endpoint.connect().await?;
        client.succeed(call).await?.json()
    }

    async fn build_stoa(&self) -> Result<()> {
        let name = &self.name;
        let namespace = Some(name.as_str());
        let backend = json!({"type": "Local", "local": {"directory": name}});
        self.create("platform.stoa.dev", "Backend", None, backend).await?;
        self.create_workspace(name, json!({})).await?;
        self.create("config.stoa.dev", "Organization", None, json!({"deletionPolicy": "Orphan"})).await?;
        self.wait_until_ready("config.stoa.dev", "Organization", None).await?;
        let deployed = self.deployed_project();
        for (name, repository) in [(name, &self.repository), (&deployed, &self.deployed)] {
            let remote = format!("file://{}", repository.path().display());
            let source = json!({"remote": remote, "ref": "main", "pollInterval": "1h"});
            let project = json!({"source": {"name": name}, "path": "apps", "deletionPolicy": "Orphan"});
            self.create_named(name, "config.stoa.dev", "Source", namespace, source).await?;
            self.create_named(name, "config.stoa.dev", "Project", namespace, project).await?;
        }
        // Objects that are there before their source was read are written again by then.
        for project in [name, &deployed] {
            self.wait_for(&format!("{}/{project}", collection("config.stoa.dev", "Project", namespace))).await?;
        }
        Ok(())
    }

    /// The project of the stacks that are deployed, and its Source.
    pub(crate) fn deployed_project(&self) -> String {
        format!("{}-deployed", self.name)
    }

    /// Makes a workspace whose cluster is the one around Stoa, with further fields.
    ///
    /// # Errors
    ///
    /// When the server refuses it.
    pub(crate) async fn create_workspace(&self, name: &str, mut spec: Value) -> Result<()> {
        spec["backend"] = json!({"name": self.name});
        spec["kubernetes"] = json!({"clusters": [{"name": "main", "inCluster": true}]});
        self.create_named(name, "platform.stoa.dev", "Workspace", None, spec).await
    }

    /// Makes an object of Stoa, which has the name of everything.
    async fn create(&self, group: &str, kind: &str, namespace: Option<&str>, spec: Value) -> Result<()> {
        self.create_named(&self.name, group, kind, namespace, spec).await
    }

    async fn create_named(
        &self,
        name: &str,
        group: &str,
        kind: &str,
        namespace: Option<&str>,
        spec: Value,
    ) -> Result<()> {
        let object = json!({
            "apiVersion": format!("{group}/{VERSION}"),
            "kind": kind,
            "metadata": {"name": name},
            "spec": spec,
        });
        let mut client = self.stoa.endpoint.connect().await?;
        client.succeed(&Call::post(collection(group, kind, namespace), &object)).await.map(drop)
    }

    /// Waits until what rollouts need is there.
    ///
    /// # Errors
    ///
    /// When it does not get ready.
    pub(crate) async fn ready_for_rollouts(&self) -> Result<()> {
        self.wait_until_ready("platform.stoa.dev", "Workspace", None).await?;
        let sources = collection("config.stoa.dev", "Source", Some(&self.name));
        self.wait_for(&format!("{sources}/{}", self.deployed_project())).await
    }

    /// Waits until an organization of any name has its namespace.
    ///
    /// # Errors
    ///
    /// When it does not get ready.
    pub(crate) async fn wait_for_organization(&self, name: &str) -> Result<()> {
        self.wait_for(&format!("{}/{name}", collection("config.stoa.dev", "Organization", None))).await
    }

    async fn wait_until_ready(&self, group: &str, kind: &str, namespace: Option<&str>) -> Result<()> {
        self.wait_for(&format!("{}/{}", collection(group, kind, namespace), self.name)).await
    }

    async fn wait_for(&self, path: &str) -> Result<()> {
        let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        self.wait(&self.stoa, path, |object| {
            object["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(is_ready))
        })
        .await
    }

    async fn build_reference(&self) -> Result<()> {
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let crd_path = format!("{crds}/{REFERENCE_PLURAL}.{REFERENCE_GROUP}");
        // One is left where an earlier measurement was interrupted.
        let mut client = self.reference.endpoint.connect().await?;
        let found = client.call(&Call::get(crd_path.clone())).await?;
        if found.status.is_success() {
            client.succeed(&Call::delete(crd_path.clone())).await?;
            let gone = Instant::now() + PATIENCE;
            while client.call(&Call::get(crd_path.clone())).await?.status.is_success() {
                ensure!(Instant::now() < gone, "the CRD of an earlier measurement does not go");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        client.succeed(&Call::post(crds, &serde_json::to_value(reference_crd()?)?)).await?;
        let namespace = format!("{}-reference", self.name);
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        client.succeed(&Call::post("/api/v1/namespaces", &namespace)).await?;
        let deadline = Instant::now() + PATIENCE;
        while !client.call(&Call::get(self.reference.collection.clone())).await?.status.is_success() {
            ensure!(Instant::now() < deadline, "the custom resource is not served");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Makes one object on each side, and from then on all are as long as the longer one.
    async fn pad(&mut self) -> Result<()> {
        let probe = name(0);
        let mut lengths = BTreeMap::new();
        for target in self.own() {
            target.ask(&Call::post(target.collection.clone(), &self.object(target, 0, ""))).await?;
            let path = target.object(&probe);
            if target.side == Side::Stoa {
                // Its controller writes the status.
                self.wait(target, &path, |object| object["status"]["conditions"].is_array()).await?;
            }
            lengths.insert(target.side, target.ask(&Call::get(path.clone())).await?.to_string().len());
            target.ask(&Call::delete(path.clone())).await?;
            let mut client = target.endpoint.connect().await?;
            let deadline = Instant::now() + PATIENCE;
            while client.call(&Call::get(path.clone())).await?.status.is_success() {
                ensure!(Instant::now() < deadline, "{path} does not go");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        let longest = lengths.values().copied().fold(OBJECT_BYTES, usize::max);
        self.padding = lengths.into_iter().map(|(side, length)| (side, padding(longest - length))).collect();
        Ok(())
    }

    /// Object number `number` for one of the sides; `turn` says what creates it, or is empty for what is read.
    pub(crate) fn object(&self, target: &MeasuredCollection, number: usize, turn: &str) -> Value {
        let name = if turn.is_empty() { name(number) } else { format!("new-{turn}-{number}") };
        let (group, kind, padded) = match target.side {
            Side::Stoa | Side::Aggregated | Side::Floor => ("config.stoa.dev", "Stack", Side::Stoa),
            Side::Sample => (SAMPLE_GROUP, "Flunder", Side::Sample),
            Side::Reference | Side::Kpt | Side::Terraform | Side::Command | Side::Library => {
                (REFERENCE_GROUP, REFERENCE_KIND, Side::Reference)
            }
        };
        let padding = self.padding.get(&padded).map_or("", String::as_str);
        let description = "The checkout of the web shop, as customers see it";
        let spec = if target.side == Side::Sample {
            describe(target, description)
        } else {
            json!({
                "project": self.name,
                "description": description,
                "path": folder(number),
                "workspaces": [self.name],
                "generator": {"parameters": {"cell": format!("c{}", number % 16), "aig": format!("a{}", number % 3)}},
                // What is deployed stays when the measurements are over.
                "deletionPolicy": "Orphan",
            })
        };
        json!({
            "apiVersion": format!("{group}/{VERSION}"),
            "kind": kind,
            "metadata": {
                "name": name,
                "labels": {
                    "app.kubernetes.io/name": "checkout",
                    SHARD: (number % SHARDS).to_string(),
                    TURN: turn,
                },
                "annotations": {PADDING: padding},
            },
            "spec": spec,
        })
    }

    /// The namespace that one side rolls out into in a round.
    pub(crate) fn rollout_namespace(&self, side: Side, round: usize) -> String {
        format!("{}-{side:?}-{round}", self.name).to_lowercase()
    }

    /// Waits until an object is as it should be.
    async fn wait(&self, target: &MeasuredCollection, path: &str, is_good: impl Fn(&Value) -> bool) -> Result<()> {
        let mut client = target.endpoint.connect().await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let object = client.succeed(&Call::get(path)).await?.json()?;
            if is_good(&object) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("{path} does not get ready: {}", object["status"]);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Removes everything again, with what was rolled out in so many rounds. What takes its time is left to the servers.
    ///
    /// # Errors
    ///
    /// The first thing that cannot be removed; the others are by then.
    pub(crate) async fn remove(&self, rounds: usize) -> Result<()> {
        let crd =
            format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{REFERENCE_PLURAL}.{REFERENCE_GROUP}");
        let mut paths = vec![crd, format!("/api/v1/namespaces/{}-reference", self.name)];
        let terraform = format!("{}-terraform", self.name);
        // A backend goes after the workspaces that refer to it.
        for (group, kind, name) in [
            ("config.stoa.dev", "Organization", &self.name),
            ("platform.stoa.dev", "Workspace", &self.name),
            ("platform.stoa.dev", "Workspace", &terraform),
            ("platform.stoa.dev", "Backend", &self.name),
        ] {
            paths.push(format!("{}/{name}", collection(group, kind, None)));
        }
        for round in 0..rounds {
            let namespace = |side| format!("/api/v1/namespaces/{}", self.rollout_namespace(side, round));
            paths.extend([Side::Stoa, Side::Reference, Side::Kpt].map(namespace));
        }
        let mut client = self.aggregated.endpoint.connect().await?;
        let mut results = Vec::new();
        for path in paths {
            let answer = client.call(&Call::delete(path.clone())).await?;
            // What was not measured was not made.
            let good = answer.status.is_success() || answer.status == StatusCode::NOT_FOUND;
            results.push(if good { Ok(()) } else { Err(anyhow!("DELETE {path}: {}", answer.status)) });
        }
        results.into_iter().collect()
    }
}

/// The path of the objects of a kind of Stoa.
fn collection(group: &str, kind: &str, namespace: Option<&str>) -> String {
    let namespace = namespace.map_or_else(String::new, |namespace| format!("/namespaces/{namespace}"));
    format!("/apis/{group}/{VERSION}{namespace}/{}s", kind.to_lowercase())
}

/// Text that compresses about as well as what a server records about an object.
fn padding(length: usize) -> String {
    let text = "f:metadata f:labels f:annotations f:spec f:description f:generator f:parameters f:workspaces ";
    text.chars().cycle().take(length).collect()
}

/// The folder of an object in the repository, by its number.
fn folder(number: usize) -> String {
    format!("apps/checkout/{}", name(number))
}

/// A Git repository with a work tree, which has the folders of so many objects.
fn repository(objects: usize) -> Result<TempDir> {
    let repository = tempfile::tempdir().context("making a folder")?;
    git(&repository, &["init", "--quiet", "--initial-branch=main"])?;
    for number in 0..objects {
        let folder = repository.path().join(folder(number));
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        fs::write(folder.join("spec.yaml"), "resources: []\n")?;
    }
    git(&repository, &["add", "--all"])?;
    git(&repository, &["commit", "--quiet", "--message=Begin"])?;
    Ok(repository)
}

/// Runs git in a repository.
///
/// # Errors
///
/// When it fails, with what it said.
pub(crate) fn git(repository: &TempDir, args: &[&str]) -> Result<()> {
    let identity = ["-c", "user.name=Bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgsign=false"];
    let output = Command::new("git").arg("-C").arg(repository.path()).args(identity).args(args).output();
    let output = output.context("running git")?;
    ensure!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// The CRD of Stacks under another name, with columns like Stoa's.
fn reference_crd() -> Result<CustomResourceDefinition> {
    let mut crd = stoa_types::Stack::crd();
    crd.metadata.name = Some(format!("{REFERENCE_PLURAL}.{REFERENCE_GROUP}"));
    crd.spec.group = REFERENCE_GROUP.to_owned();
    let names = &mut crd.spec.names;
    names.kind = REFERENCE_KIND.to_owned();
    names.list_kind = Some(format!("{REFERENCE_KIND}List"));
    names.plural = REFERENCE_PLURAL.to_owned();
    names.singular = Some("stackbench".to_owned());
    names.short_names = None;
    names.categories = None;
    for version in &mut crd.spec.versions {
        let columns = [
            ("Project", ".spec.project"),
            ("Desired", ".spec.desiredVersion"),
            ("Workspaces", ".spec.workspaces"),
            ("Release", ".status.deployments[0].release"),
            ("Ready", ".status.conditions[?(@.type==\"Ready\")].status"),
        ];
        let column = |(name, path): (&str, &str)| CustomResourceColumnDefinition {
            name: name.to_owned(),
            json_path: path.to_owned(),
            type_: "string".to_owned(),
            ..Default::default()
        };
        let age = CustomResourceColumnDefinition {
            name: "Age".to_owned(),
            json_path: ".metadata.creationTimestamp".to_owned(),
            type_: "date".to_owned(),
            ..Default::default()
        };
        version.additional_printer_columns = Some(columns.into_iter().map(column).chain([age]).collect());
    }
    Ok(crd)
}
