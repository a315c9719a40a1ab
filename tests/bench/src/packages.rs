//! Package revisions beside custom resources of the same size, and registrations beside `git clone --mirror`.
//!
//! Start at [`measure`]. Each step of a package's life is an experiment of its own; the reference writes an object once.

use std::{
    fmt::Write as _,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use http::StatusCode;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt as _;
use serde_json::{Value, json};
use stoa_types::porch::PackageRevision;
use tempfile::TempDir;

use crate::client::{Answer, Call, Client};
use crate::gets::somewhere;
use crate::measure::{Bench, Experiment, MeasuredCollection, Side, Turn};
use crate::report::{Better, Numbers};
use crate::scene::Scene;

/// The package revisions that are read.
const REVISIONS: usize = 500;
/// The revisions of each package.
const OF_PACKAGE: usize = 5;
/// The group and the plural noun of the copies.
const COPIES: (&str, &str) = ("packages.bench.stoa.dev", "packagerevisioncopies");
const PATIENCE: Duration = Duration::from_secs(120);

/// Measures lists, gets and the steps of a package's life, and the registration of a repository.
///
/// # Errors
///
/// When a request fails or an answer is wrong.
pub(crate) async fn measure(bench: &mut Bench, scene: &Scene) -> Result<()> {
    let folder = TempDir::new()?;
    let remote = repository(&folder)?;
    let packages = Packages::new(bench, scene);
    packages.build().await?;
    bench.settle().await?;
    registration(bench, &packages, &remote, &folder).await.context("registration")?;
    let names = packages.copy().await.context("copies")?;
    let targets = packages.targets();
    let lists = bench.size.lists;
    bench.report.section(format!("list and get {REVISIONS} package revisions"));
    let summaries = bench.compare(&targets, &Lists { lists, objects: names.len() }).await.context("list")?;
    bench.report.operation("list", &summaries);
    bench.report.size("list", &summaries);
    let summaries = bench.compare(&targets, &Gets { gets: lists * 20, names: &names }).await.context("get")?;
    bench.report.operation("get", &summaries);
    bench.report.section(format!("write beside {REVISIONS} package revisions"));
    // A turn of the small size has three.
    let writes = (bench.size.writes_alone / 10).clamp(3, 20);
    for (step, title) in [
        (Step::Create, "create a draft"),
        (Step::Save, "save, with a built-in function"),
        (Step::Propose, "propose"),
        (Step::Approve, "approve"),
    ] {
        let summaries = bench.compare(&targets, &Steps { step, writes, packages: &packages }).await.context(title)?;
        bench.report.operation(title, &summaries);
    }
    packages.remove().await
}

/// A bare repository with published revisions: a commit and a tag for each.
fn repository(folder: &TempDir) -> Result<PathBuf> {
    let remote = folder.path().join("packages.git");
    let init =
        Command::new("git").args(["init", "--quiet", "--bare", "--initial-branch=main"]).arg(&remote).status()?;
    ensure!(init.success(), "git init failed");
    let mut stream = String::new();
    for number in 0..REVISIONS {
        let (package, revision) = (number / OF_PACKAGE, number % OF_PACKAGE + 1);
        let path = format!("package-{package:04}");
        let kptfile = format!("apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: {path}\n");
        let settings = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  revision: \"{revision}\"\n  text: {}\n",
            "some text that a package has ".repeat(20)
        );
        let message = format!("Approve {path}/v{revision}\n");
        writeln!(stream, "commit refs/heads/main\ncommitter Bench <bench@localhost> 1700000000 +0000")?;
        writeln!(stream, "data {}\n{message}", message.len())?;
        for (name, text) in [("Kptfile", kptfile), ("settings.yaml", settings)] {
            writeln!(stream, "M 100644 inline {path}/{name}\ndata {}\n{text}", text.len())?;
        }
        writeln!(stream, "reset refs/tags/{path}/v{revision}\nfrom refs/heads/main\n")?;
    }
    let mut import = Command::new("git");
    import.arg("-C").arg(&remote).args(["fast-import", "--quiet"]).stdin(Stdio::piped());
    let mut import = import.spawn().context("running git")?;
    import.stdin.take().context("git has a standard input")?.write_all(stream.as_bytes())?;
    ensure!(import.wait()?.success(), "git fast-import failed");
    Ok(remote)
}

/// The collections of package revisions, and of their copies.
#[derive(Debug)]
struct Packages {
    namespace: String,
    stoa: MeasuredCollection,
    aggregated: MeasuredCollection,
    reference: MeasuredCollection,
}

impl Packages {
    fn new(bench: &Bench, scene: &Scene) -> Self {
        let namespace = scene.name.clone();
        let own = format!("/apis/porch.kpt.dev/v1alpha1/namespaces/{namespace}/packagerevisions");
        let (group, plural) = COPIES;
        let copies = format!("/apis/{group}/v1alpha1/namespaces/{namespace}/{plural}");
        Self {
            stoa: MeasuredCollection::new(Side::Stoa, bench.bed.stoa.clone(), own.clone()),
            aggregated: MeasuredCollection::new(Side::Aggregated, bench.bed.kubernetes.clone(), own),
            reference: MeasuredCollection::new(Side::Reference, bench.bed.kubernetes.clone(), copies),
            namespace,
        }
    }

    fn targets(&self) -> [&MeasuredCollection; 3] {
        [&self.stoa, &self.aggregated, &self.reference]
    }

    fn repositories(&self) -> String {
        format!("/apis/config.porch.kpt.dev/v1alpha1/namespaces/{}/repositories", self.namespace)
    }

    fn files(&self, name: &str) -> String {
        format!("/apis/porch.kpt.dev/v1alpha1/namespaces/{}/packagerevisionresources/{name}", self.namespace)
    }

    /// Serves the custom resource of the copies.
    async fn build(&self) -> Result<()> {
        let mut client = self.reference.endpoint.connect().await?;
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let created = client.call(&Call::post(crds, &serde_json::to_value(reference_crd())?)).await?;
        ensure!(
            created.status.is_success() || created.status == StatusCode::CONFLICT,
            "the CRD of the copies is refused: {}",
            created.status
        );
        let deadline = Instant::now() + PATIENCE;
        while !client.call(&Call::get(self.reference.collection.clone())).await?.status.is_success() {
            ensure!(Instant::now() < deadline, "the custom resource is not served");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Registers a repository, and waits until all its revisions are there; how long that took.
    async fn register(&self, name: &str, remote: &Path) -> Result<Duration> {
        let git = json!({"repo": format!("file://{}", remote.display()), "branch": "main"});
        let repository = json!({
            "apiVersion": "config.porch.kpt.dev/v1alpha1", "kind": "Repository",
            "metadata": {"name": name}, "spec": {"git": git},
        });
        let started = Instant::now();
        self.stoa.ask(&Call::post(self.repositories(), &repository)).await?;
        let path = format!("{}/{name}", self.repositories());
        let is_read =
            |found: &Value| found["status"]["packageCount"].as_u64().is_some_and(|count| count >= REVISIONS as u64);
        self.wait(&path, is_read).await?;
        Ok(started.elapsed())
    }

    async fn unregister(&self, name: &str) -> Result<()> {
        self.stoa.ask(&Call::delete(format!("{}/{name}", self.repositories()))).await?;
        self.wait(&self.stoa.collection, |list| list["items"].as_array().is_some_and(Vec::is_empty)).await
    }

    async fn wait(&self, path: &str, is_good: impl Fn(&Value) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let object = self.stoa.ask(&Call::get(path)).await?;
            if is_good(&object) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("{path} does not get ready: {}", object["status"]);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Copies all revisions as custom resources; their names.
    async fn copy(&self) -> Result<Vec<String>> {
        let list = self.stoa.ask(&Call::get(self.stoa.collection.clone())).await?;
        let items = list["items"].as_array().context("a list has items")?;
        let mut names = Vec::new();
        for item in items {
            self.reference.ask(&Call::post(self.reference.collection.clone(), &copy(item))).await?;
            names.push(item["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        }
        ensure!(names.len() >= REVISIONS, "there are {} package revisions", names.len());
        Ok(names)
    }

    async fn remove(&self) -> Result<()> {
        self.stoa.ask(&Call::delete(format!("{}/packages", self.repositories()))).await?;
        let (group, plural) = COPIES;
        let crd = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.{group}");
        self.reference.endpoint.connect().await?.succeed(&Call::delete(crd)).await.map(drop)
    }
}

/// A revision as a custom resource.
fn copy(item: &Value) -> Value {
    let mut copy = item.clone();
    copy["apiVersion"] = format!("{}/v1alpha1", COPIES.0).into();
    copy["kind"] = "PackageRevisionCopy".into();
    if let Some(metadata) = copy["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"] {
            metadata.remove(field);
        }
    }
    copy
}

/// The CRD of PackageRevisions under another name. The status is a part of the object, so that copies have one.
fn reference_crd() -> CustomResourceDefinition {
    let mut crd = PackageRevision::crd();
    let (group, plural) = COPIES;
    crd.metadata.name = Some(format!("{plural}.{group}"));
    group.clone_into(&mut crd.spec.group);
    let names = &mut crd.spec.names;
    "PackageRevisionCopy".clone_into(&mut names.kind);
    names.list_kind = Some("PackageRevisionCopyList".to_owned());
    plural.clone_into(&mut names.plural);
    names.singular = Some("packagerevisioncopy".to_owned());
    for version in &mut crd.spec.versions {
        version.subresources = None;
    }
    crd
}

async fn registration(bench: &mut Bench, packages: &Packages, remote: &Path, folder: &TempDir) -> Result<()> {
    bench.report.section(format!("register a repository with {REVISIONS} package revisions"));
    let mut registered = Vec::new();
    let mut cloned = Vec::new();
    for round in 0..bench.size.rounds {
        let started = Instant::now();
        let copy = folder.path().join(format!("mirror-{round}.git"));
        let url = format!("file://{}", remote.display());
        let clone = Command::new("git").args(["clone", "--quiet", "--mirror", &url]).arg(copy).status()?;
        ensure!(clone.success(), "git clone failed");
        cloned.push(started.elapsed());
        registered.push(packages.register("packages", remote).await?);
        if round + 1 < bench.size.rounds {
            packages.unregister("packages").await?;
        }
    }
    let median = |mut times: Vec<Duration>| {
        times.sort();
        times[times.len() / 2].as_secs_f64() * 1e3
    };
    let numbers: Numbers = [(Side::Stoa, median(registered)), (Side::Command, median(cloned))].into_iter().collect();
    bench.report.row("register; git clone --mirror", "ms", Better::Less, numbers);
    Ok(())
}

/// One client that lists everything.
#[derive(Debug)]
struct Lists {
    lists: usize,
    objects: usize,
}

impl Experiment for Lists {
    type Ready = Vec<Client>;
    type Output = Vec<Answer>;

    async fn prepare(&self, target: &MeasuredCollection, _: usize) -> Result<Vec<Client>> {
        target.clients(1).await
    }

    async fn work(&self, target: &MeasuredCollection, _: usize, clients: Vec<Client>) -> Result<Turn<Vec<Answer>>> {
        let calls = (0..self.lists).map(|_| Call::get(target.collection.clone())).collect();
        one_after_the_other(target, clients, calls).await
    }

    async fn check(&self, target: &MeasuredCollection, _: usize, output: Vec<Answer>) -> Result<usize> {
        let bytes = output.first().map_or(0, Answer::wire_bytes);
        for answer in output {
            let count = answer.json()?["items"].as_array().map_or(0, Vec::len);
            ensure!(count >= self.objects, "{:?} has {count} package revisions", target.side);
        }
        Ok(bytes)
    }
}

/// One client that gets one revision after the other.
#[derive(Debug)]
struct Gets<'n> {
    gets: usize,
    names: &'n [String],
}

impl Experiment for Gets<'_> {
    type Ready = Vec<Client>;
    type Output = Vec<Answer>;

    async fn prepare(&self, target: &MeasuredCollection, _: usize) -> Result<Vec<Client>> {
        target.clients(1).await
    }

    async fn work(&self, target: &MeasuredCollection, _: usize, clients: Vec<Client>) -> Result<Turn<Vec<Answer>>> {
        let name = |count| &self.names[somewhere(0, count, self.names.len())];
        let calls = (0..self.gets).map(|count| Call::get(target.object(name(count)))).collect();
        one_after_the_other(target, clients, calls).await
    }

    async fn check(&self, _: &MeasuredCollection, _: usize, output: Vec<Answer>) -> Result<usize> {
        let bytes = output.first().map_or(0, Answer::wire_bytes);
        for (count, answer) in output.into_iter().enumerate() {
            let expected = &self.names[somewhere(0, count, self.names.len())];
            ensure!(answer.json()?["metadata"]["name"] == expected.as_str(), "asked for {expected}");
        }
        Ok(bytes)
    }
}

/// A step of a package's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Create,
    Save,
    Propose,
    Approve,
}

/// One client that takes a step with one package after the other. Earlier steps are made before.
#[derive(Debug)]
struct Steps<'p> {
    step: Step,
    writes: usize,
    packages: &'p Packages,
}

impl Steps<'_> {
    /// The path of a package of its own.
    fn package(&self, target: &MeasuredCollection, round: usize, number: usize) -> String {
        format!("new-{:?}-{:?}-{round}-{number}", self.step, target.side).to_lowercase()
    }

    fn name(&self, target: &MeasuredCollection, round: usize, number: usize) -> String {
        format!("packages.{}.v1", self.package(target, round, number))
    }

    fn call(&self, step: Step, target: &MeasuredCollection, (round, number): (usize, usize)) -> Call {
        let (package, name) = (self.package(target, round, number), self.name(target, round, number));
        let lifecycle = |lifecycle: &str| json!({"spec": {"lifecycle": lifecycle}});
        if target.side == Side::Reference {
            return match step {
                Step::Create => Call::post(target.collection.clone(), &copy(&draft(&package, &name))),
                Step::Save => Call::merge(target.object(&name), &json!({"spec": {"parent": {"name": "other"}}})),
                Step::Propose => Call::merge(target.object(&name), &lifecycle("Proposed")),
                Step::Approve => Call::merge(target.object(&name), &lifecycle("Published")),
            };
        }
        match step {
            Step::Create => Call::post(target.collection.clone(), &draft(&package, &name)),
            Step::Save => Call::merge(self.packages.files(&name), &files(&package)),
            Step::Propose => Call::merge(target.object(&name), &lifecycle("Proposed")),
            Step::Approve => Call::merge(format!("{}/approval", target.object(&name)), &lifecycle("Published")),
        }
    }
}

fn draft(package: &str, name: &str) -> Value {
    json!({
        "apiVersion": "porch.kpt.dev/v1alpha1", "kind": "PackageRevision", "metadata": {"name": name},
        "spec": {
            "packageName": package, "repository": "packages", "workspaceName": "v1", "lifecycle": "Draft",
            "tasks": [{"type": "init", "init": {"description": "A package of the benchmark"}}],
        },
    })
}

/// Files with a function that is built in.
fn files(package: &str) -> Value {
    let kptfile = format!(
        "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: {package}\npipeline:\n  mutators:\n  - image: \
         gcr.io/kpt-fn/set-namespace:v0.4.1\n    configMap:\n      namespace: shop\n"
    );
    let settings = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  size: small\n";
    json!({"spec": {"resources": {"Kptfile": kptfile, "settings.yaml": settings}}})
}

impl Experiment for Steps<'_> {
    type Ready = Vec<Client>;
    type Output = Vec<Answer>;

    async fn prepare(&self, target: &MeasuredCollection, round: usize) -> Result<Vec<Client>> {
        // The save is no step on the way to an approval.
        let earlier = [Step::Create, Step::Propose].into_iter().filter(|step| *step < self.step);
        let earlier = earlier.filter(|step| *step == Step::Create || self.step == Step::Approve);
        for step in earlier {
            for number in 0..self.writes {
                target.ask(&self.call(step, target, (round, number))).await?;
            }
        }
        if target.side != Side::Reference && self.step > Step::Create {
            let lifecycle = if self.step == Step::Approve { "Proposed" } else { "Draft" };
            for number in 0..self.writes {
                let path = target.object(&self.name(target, round, number));
                self.packages.wait(&path, |found| found["status"]["git"]["lifecycle"] == lifecycle).await?;
            }
        }
        target.clients(1).await
    }

    async fn work(&self, target: &MeasuredCollection, round: usize, clients: Vec<Client>) -> Result<Turn<Vec<Answer>>> {
        let calls = (0..self.writes).map(|number| self.call(self.step, target, (round, number))).collect();
        one_after_the_other(target, clients, calls).await
    }

    async fn check(&self, target: &MeasuredCollection, _: usize, output: Vec<Answer>) -> Result<usize> {
        let bytes = output.first().map_or(0, Answer::wire_bytes);
        for answer in output {
            let object = answer.json()?;
            let is_right = match self.step {
                Step::Save if target.side != Side::Reference => {
                    let settings = object["spec"]["resources"]["settings.yaml"].as_str();
                    settings.is_some_and(|text| text.contains("namespace: shop"))
                }
                Step::Create | Step::Save => object["spec"]["lifecycle"] == "Draft",
                Step::Propose => object["spec"]["lifecycle"] == "Proposed",
                Step::Approve => object["spec"]["lifecycle"] == "Published",
            };
            ensure!(is_right, "{:?} of {:?} answered {object}", self.step, target.side);
        }
        Ok(bytes)
    }
}

/// Makes calls that have to succeed with the first client.
async fn one_after_the_other(
    target: &MeasuredCollection,
    mut clients: Vec<Client>,
    calls: Vec<Call>,
) -> Result<Turn<Vec<Answer>>> {
    let client = clients.first_mut().context("there is a client")?;
    let (mut latencies, mut output) = (Vec::new(), Vec::new());
    let started = Instant::now();
    for call in &calls {
        let began = Instant::now();
        output.push(client.succeed(call).await?);
        latencies.push(began.elapsed());
    }
    let elapsed = started.elapsed();
    target.put_back(clients);
    Ok(Turn { latencies, elapsed, units: calls.len(), output })
}
