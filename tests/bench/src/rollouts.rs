//! Rollouts of ConfigMaps: a Run of Stoa against kubectl and `kpt live` with the same objects.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::client::{Call, Client};
use crate::measure::{Experiment, MeasuredCollection, Side, Turn, Window};
use crate::scene::{Scene, git};
use crate::size::Size;

const PATIENCE: Duration = Duration::from_secs(300);

/// What is to be rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Everything is new, the namespace too.
    Everything,
    /// What was rolled out is rolled out again.
    Nothing,
    /// One object of all differs.
    One,
    /// It is asked what would change, and nothing would.
    Preview,
}

/// A rollout of a namespace and ConfigMaps in it. Each round has its namespaces, in which the changes follow each other
/// in the order of [`Change`].
#[derive(Debug)]
pub(crate) struct Rollout<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) kubeconfig: &'a Path,
    pub(crate) config_maps: usize,
    pub(crate) change: Change,
}

/// The resourceVersion of every ConfigMap, by name.
type Versions = BTreeMap<String, String>;

/// Who does it.
#[derive(Debug)]
pub(crate) enum Actor {
    /// Creates a Run, and watches it.
    Stoa(Client),
    /// Runs kubectl on this file.
    Kubectl(PathBuf),
    /// Runs kpt on the package in this folder.
    Kpt(PathBuf),
}

/// Whether kpt can be run.
pub(crate) fn has_kpt() -> bool {
    Command::new("kpt").arg("version").stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
}

/// Creates a Run in a collection and waits until it has ended. Returns it as it is then.
pub(crate) async fn run_to_end(client: &mut Client, runs: &str, name: &str, spec: Value) -> Result<Value> {
    let metadata = json!({ "name": name });
    let run = json!({"apiVersion": "delivery.stoa.dev/v1alpha1", "kind": "Run", "metadata": metadata, "spec": spec});
    let created = client.succeed(&Call::post(runs, &run)).await?.json()?;
    let version = created["metadata"]["resourceVersion"].as_str().context("the run has no resourceVersion")?;
    let path = format!("{runs}?watch=true&fieldSelector=metadata.name%3D{name}&resourceVersion={version}");
    let mut lines = client.stream(&Call::get(path)).await?;
    let mut ended = None;
    while ended.is_none() {
        let goes_on = lines.next(|line| {
            let event: Value = serde_json::from_slice(line)?;
            let phase = event["object"]["status"]["phase"].as_str().unwrap_or_default();
            if matches!(phase, "Succeeded" | "Failed" | "Canceled") {
                ended = Some(event["object"].clone());
            }
            Ok(())
        });
        let goes_on = goes_on.await?;
        ensure!(goes_on || ended.is_some(), "the watch of run {name} ended before the run");
    }
    ended.context("the run has not ended")
}

/// Runs a program that has to succeed.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

impl Rollout<'_> {
    /// The objects with the values that they have after the change.
    fn objects(&self, namespace: &str) -> Vec<Value> {
        let namespace_object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let config_map = |number: usize| {
            let value = if number == 0 && self.change == Change::One { "another" } else { "a value" };
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": format!("c{number:04}"), "namespace": namespace},
                "data": {"value": value, "number": number.to_string()},
            })
        };
        [namespace_object].into_iter().chain((0..self.config_maps).map(config_map)).collect()
    }

    fn spec(&self, namespace: &str) -> Value {
        let namespace_id = format!("v1:Namespace:{namespace}");
        let resource = |object: Value| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let (id, depends_on) = match object["kind"].as_str() {
                Some("Namespace") => (namespace_id.clone(), json!([])),
                _ => (format!("v1:ConfigMap:{namespace}:{name}"), json!([namespace_id])),
            };
            json!({"id": id, "type": "Kubernetes", "dependsOn": depends_on, "attributes": object})
        };
        json!({"resources": self.objects(namespace).into_iter().map(resource).collect::<Vec<_>>()})
    }

    fn stack(round: usize) -> String {
        format!("rollout-{round}")
    }

    fn run_name(&self, round: usize) -> String {
        format!("rollout-{round}-{:?}", self.change).to_lowercase()
    }

    fn runs(&self) -> String {
        format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{}/runs", self.scene.name)
    }

    async fn versions(&self, namespace: &str) -> Result<Versions> {
        let list = self.scene.kubernetes(&Call::get(format!("/api/v1/namespaces/{namespace}/configmaps"))).await?;
        let items = list["items"].as_array().context("the answer is no list")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pairs =
            items.iter().map(|item| (text(&item["metadata"]["name"]), text(&item["metadata"]["resourceVersion"])));
        // Kubernetes itself puts one into every namespace.
        Ok(pairs.filter(|(name, _)| name != "kube-root-ca.crt").collect())
    }

    async fn prepare_stoa(&self, target: &MeasuredCollection, round: usize, namespace: &str) -> Result<()> {
        if matches!(self.change, Change::Everything | Change::One) {
            let stack = Self::stack(round);
            let folder = self.scene.deployed.path().join("apps").join(&stack);
            fs::create_dir_all(&folder)?;
            // JSON is YAML.
            fs::write(folder.join("spec.yaml"), format!("{:#}\n", self.spec(namespace)))?;
            git(&self.scene.deployed, &["add", "--all"])?;
            git(&self.scene.deployed, &["commit", "--quiet", "--message", &format!("{:?} of {stack}", self.change)])?;
        }
        if self.change == Change::Everything {
            let stack = json!({
                "apiVersion": "config.stoa.dev/v1alpha1",
                "kind": "Stack",
                "metadata": {"name": Self::stack(round)},
                "spec": {"project": self.scene.deployed_project(), "workspaces": [self.scene.name], "deletionPolicy": "Orphan"},
            });
            target.ask(&Call::post(target.collection.clone(), &stack)).await?;
        }
        Ok(())
    }

    /// Creates the Run and waits until it has ended; returns it as it is then.
    async fn run(&self, client: &mut Client, round: usize) -> Result<Value> {
        let operation = if self.change == Change::Preview { "Preview" } else { "Apply" };
        let spec = json!({"stack": Self::stack(round), "operation": operation});
        run_to_end(client, &self.runs(), &self.run_name(round), spec).await
    }

    fn kubectl(&self, file: &Path) -> Result<()> {
        let verb: &[&str] = match self.change {
            Change::Preview => &["diff", "--server-side"],
            Change::Everything | Change::Nothing | Change::One => &["apply", "--server-side", "--validate=false"],
        };
        succeed(Command::new("kubectl").arg("--kubeconfig").arg(self.kubeconfig).args(verb).arg("--filename").arg(file))
    }

    fn kpt(&self, package: &Path) -> Result<()> {
        succeed(Command::new("kpt").args(["live", "apply", "--kubeconfig"]).arg(self.kubeconfig).arg(package))
    }

    /// The objects as a file of YAML documents.
    fn write_objects(&self, namespace: &str, file: &Path) -> Result<()> {
        let documents: Vec<String> = self.objects(namespace).iter().map(|object| format!("---\n{object}\n")).collect();
        Ok(fs::write(file, documents.concat())?)
    }

    /// Makes sure that a Run did what it was to do, and nothing else.
    fn check_run(&self, run: &Value) -> Result<()> {
        ensure!(run["status"]["phase"] == "Succeeded", "the run failed: {}", run["status"]);
        let changes = match self.change {
            Change::Everything => json!(self.config_maps + 1),
            Change::One => json!(1),
            Change::Nothing | Change::Preview => json!(0),
        };
        let summary = &run["status"]["plan"]["summary"];
        let planned: u64 = ["create", "update", "delete", "replace", "adopt", "forget"]
            .iter()
            .map(|action| summary[action].as_u64().unwrap_or_default())
            .sum();
        ensure!(changes == planned, "the run was to change {changes}, and planned {summary}");
        Ok(())
    }
}

impl Experiment for Rollout<'_> {
    const WINDOW: Window = Window::Quiet;
    type Ready = (Actor, Versions);
    type Output = (Option<Value>, Versions);

    /// Others take minutes for a turn.
    fn rounds(&self, size: &Size) -> usize {
        if self.config_maps < 1_000 { size.rounds } else { 1 }
    }

    async fn prepare(&self, target: &MeasuredCollection, round: usize) -> Result<(Actor, Versions)> {
        let namespace = self.scene.rollout_namespace(target.side, round);
        // Beside the work tree's files, where git does not look.
        let aside = self.scene.deployed.path().join(".git");
        let actor = match target.side {
            Side::Reference => {
                let file = aside.join(format!("{}.yaml", self.run_name(round)));
                self.write_objects(&namespace, &file)?;
                Actor::Kubectl(file)
            }
            Side::Kpt => {
                let package = aside.join(Self::stack(round));
                fs::create_dir_all(&package)?;
                if self.change == Change::Everything {
                    // What kpt keeps its record in.
                    let mut command = Command::new("kpt");
                    command.args(["live", "install-resource-group", "--kubeconfig"]).arg(self.kubeconfig);
                    tokio::task::block_in_place(|| succeed(&mut command))?;
                }
                self.write_objects(&namespace, &package.join("objects.yaml"))?;
                let inventory = json!({"namespace": namespace, "name": "rollout", "inventoryID": namespace});
                let kptfile = json!({
                    "apiVersion": "kpt.dev/v1",
                    "kind": "Kptfile",
                    "metadata": {"name": "rollout"},
                    "inventory": inventory,
                });
                fs::write(package.join("Kptfile"), format!("{kptfile:#}\n"))?;
                Actor::Kpt(package)
            }
            _ => {
                self.prepare_stoa(target, round, &namespace).await?;
                Actor::Stoa(target.clients(1).await?.pop().context("there is no client")?)
            }
        };
        Ok((actor, self.versions(&namespace).await?))
    }

    async fn work(
        &self,
        target: &MeasuredCollection,
        round: usize,
        (actor, before): (Actor, Versions),
    ) -> Result<Turn<(Option<Value>, Versions)>> {
        let started = Instant::now();
        let (elapsed, run) = match actor {
            Actor::Stoa(mut client) => {
                let run = timeout(PATIENCE, self.run(&mut client, round)).await.context("the run does not end")??;
                let elapsed = started.elapsed();
                target.put_back(vec![client]);
                (elapsed, Some(run))
            }
            Actor::Kubectl(file) => {
                tokio::task::block_in_place(|| self.kubectl(&file))?;
                let elapsed = started.elapsed();
                fs::remove_file(file)?;
                (elapsed, None)
            }
            Actor::Kpt(package) => {
                tokio::task::block_in_place(|| self.kpt(&package))?;
                (started.elapsed(), None)
            }
        };
        Ok(Turn { latencies: vec![elapsed], elapsed, units: 1, output: (run, before) })
    }

    async fn check(
        &self,
        target: &MeasuredCollection,
        round: usize,
        (run, before): (Option<Value>, Versions),
    ) -> Result<usize> {
        if let Some(run) = run {
            self.check_run(&run)?;
        }
        let namespace = self.scene.rollout_namespace(target.side, round);
        let after = self.versions(&namespace).await?;
        ensure!(after.len() == self.config_maps, "{} of {} ConfigMaps are there", after.len(), self.config_maps);
        let changed = after.iter().filter(|(name, version)| before.get(*name) != Some(*version)).count();
        let expected = match self.change {
            Change::Everything => self.config_maps,
            Change::One => 1,
            Change::Nothing | Change::Preview => 0,
        };
        ensure!(changed == expected, "{changed} ConfigMaps changed, not {expected}");
        let first = Call::get(format!("/api/v1/namespaces/{namespace}/configmaps/c0000"));
        let first = self.scene.kubernetes(&first).await?;
        let value = &self.objects(&namespace)[1]["data"];
        ensure!(&first["data"] == value, "the first ConfigMap says {}, not {value}", first["data"]);
        Ok(0)
    }
}
