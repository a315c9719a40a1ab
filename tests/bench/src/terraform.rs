//! Resources of a Terraform provider: Runs of Stoa against `terraform` with the same configuration.
//!
//! Start at [`measure`]. The provider makes its resources in memory, so that both sides measure themselves: Stoa
//! records every result before the next call that needs it, and terraform writes its state to a file.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use stoa_terraform_provider::package::{Hash, Platform};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::client::{Call, Client};
use crate::measure::{Bench, Experiment, MeasuredCollection, Side, Turn, Window};
use crate::process::memory_with_descendants;
use crate::report::{Better, Numbers};
use crate::rollouts::{run_to_end, succeed};
use crate::scene::{Scene, git};
use crate::size::Size;

const PATIENCE: Duration = Duration::from_secs(600);
/// How often the memory of a side is read.
const SAMPLING: Duration = Duration::from_millis(10);
/// How many calls of one warm provider its memory is compared over.
const CALLS: usize = 10_000;
/// The calls of a preview for a resource without a change: its state is converted and read, its configuration validated
/// and planned.
const CALLS_OF_A_PREVIEW: usize = 4;
/// The version that the mirror says the provider has.
const VERSION: &str = "3.6.0";

const FIRST_CALLS: &str = "memory, first 1,000 of 10,000 calls";
const LAST_CALLS: &str = "memory, last 1,000 of them";

/// A step in the life of the resources. Each round has its resources, which take the steps in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    /// It is asked what would change, and nothing would.
    Preview,
    Destroy,
}

/// A filesystem mirror with the provider `random`, which both sides install from.
#[derive(Debug)]
struct Mirror {
    folder: TempDir,
}

impl Mirror {
    fn of(executable: &Path) -> Result<Self> {
        let mirror = Self { folder: tempfile::tempdir()? };
        fs::create_dir_all(mirror.package())?;
        let name = format!("terraform-provider-random_v{VERSION}");
        fs::copy(executable, mirror.package().join(name)).context("copying the provider")?;
        Ok(mirror)
    }

    fn package(&self) -> PathBuf {
        let platform = Platform::current().0;
        self.folder.path().join(format!("registry.terraform.io/hashicorp/random/{VERSION}/{platform}"))
    }

    fn lock(&self) -> Result<String> {
        let hash = Hash::of_folder(&self.package())?;
        let provider = "provider \"registry.terraform.io/hashicorp/random\"";
        Ok(format!("{provider} {{\n  version = \"{VERSION}\"\n  hashes = [\"{hash}\"]\n}}\n"))
    }
}

/// One step of so many resources.
#[derive(Debug)]
struct Deployment<'a> {
    scene: &'a Scene,
    mirror: &'a Mirror,
    runner: u32,
    resources: usize,
    step: Step,
    /// The most memory that each side had, in bytes.
    peaks: &'a Peaks,
}

#[derive(Debug, Default)]
struct Peaks {
    stoa: AtomicU64,
    terraform: AtomicU64,
}

impl Peaks {
    fn of(&self, side: Side) -> &AtomicU64 {
        if side == Side::Stoa { &self.stoa } else { &self.terraform }
    }

    fn megabytes(&self) -> Numbers {
        let sides = [Side::Stoa, Side::Terraform];
        sides.into_iter().map(|side| (side, self.of(side).load(Ordering::Relaxed) as f64 / 1e6)).collect()
    }
}

/// Reads the memory of a process and all that it started until it is stopped.
#[derive(Debug)]
struct Sampler {
    end: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Sampler {
    fn start(pid: u32) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let ended = end.clone();
        let thread = std::thread::spawn(move || {
            let mut most = 0;
            while !ended.load(Ordering::Relaxed) {
                most = most.max(memory_with_descendants(pid));
                std::thread::sleep(SAMPLING);
            }
            most
        });
        Self { end, thread }
    }

    fn stop(self) -> Result<u64> {
        self.end.store(true, Ordering::Relaxed);
        self.thread.join().ok().context("the memory could not be read")
    }
}

impl Deployment<'_> {
    fn workspace(scene: &Scene) -> String {
        format!("{}-terraform", scene.name)
    }

    /// The stack, or the folder of terraform's configuration.
    fn name(&self, round: usize) -> String {
        format!("terraform-{}-{round}", self.resources)
    }

    fn spec(&self) -> Value {
        let resource = |number: usize| {
            json!({
                "id": format!("hashicorp:random:random_pet:p{number}"),
                "type": "Terraform",
                "attributes": {"prefix": format!("p{number}")},
                "extensions": {"provider": "hashicorp/random", "resourceType": "random_pet"},
            })
        };
        json!({"resources": (0..self.resources).map(resource).collect::<Vec<_>>()})
    }

    fn configuration(&self) -> Value {
        let pets = (0..self.resources).map(|number| (format!("p{number}"), json!({"prefix": format!("p{number}")})));
        let provider = json!({"source": "hashicorp/random", "version": VERSION});
        json!({
            "terraform": {"required_providers": {"random": provider}},
            "resource": {"random_pet": pets.collect::<serde_json::Map<_, _>>()},
        })
    }

    fn terraform(folder: &Path) -> Command {
        let mut command = Command::new("terraform");
        command.current_dir(folder).stdin(Stdio::null()).env("CHECKPOINT_DISABLE", "1");
        command
    }

    fn prepare_terraform(&self, folder: &Path) -> Result<()> {
        if self.step != Step::Create {
            return Ok(());
        }
        fs::create_dir_all(folder)?;
        fs::write(folder.join("main.tf.json"), self.configuration().to_string())?;
        let mut init = Self::terraform(folder);
        init.args(["init", "-input=false", "-no-color"]);
        init.arg(format!("-plugin-dir={}", self.mirror.folder.path().display()));
        succeed(&mut init)
    }

    async fn prepare_stoa(&self, target: &MeasuredCollection, round: usize) -> Result<()> {
        if self.step != Step::Create {
            return Ok(());
        }
        let stack = self.name(round);
        let folder = self.scene.deployed.path().join("apps").join(&stack);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("spec.yaml"), format!("{:#}\n", self.spec()))?;
        git(&self.scene.deployed, &["add", "--all"])?;
        git(&self.scene.deployed, &["commit", "--quiet", "--message", &stack])?;
        let stack = json!({
            "apiVersion": "config.stoa.dev/v1alpha1",
            "kind": "Stack",
            "metadata": {"name": stack},
            "spec": {"project": self.scene.deployed_project(), "workspaces": [Self::workspace(self.scene)], "deletionPolicy": "Orphan"},
        });
        target.ask(&Call::post(target.collection.clone(), &stack)).await.map(drop)
    }

    async fn run(&self, client: &mut Client, round: usize, suffix: &str) -> Result<Value> {
        let operation = match self.step {
            Step::Create => "Apply",
            Step::Preview => "Preview",
            Step::Destroy => "Destroy",
        };
        let stack = self.name(round);
        let runs = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{}/runs", self.scene.name);
        let name = format!("{stack}-{operation}{suffix}").to_lowercase();
        run_to_end(client, &runs, &name, json!({"stack": stack, "operation": operation})).await
    }

    /// Runs terraform, and returns the most memory that it and its providers had, in bytes.
    fn run_terraform(&self, folder: &Path) -> Result<u64> {
        let mut command = Self::terraform(folder);
        match self.step {
            Step::Create => command.args(["apply", "-auto-approve"]),
            Step::Preview => command.args(["plan", "-detailed-exitcode"]),
            Step::Destroy => command.args(["destroy", "-auto-approve"]),
        };
        command.args(["-input=false", "-no-color"]).stdout(Stdio::null());
        let mut child = command.spawn().context("running terraform")?;
        let memory = Sampler::start(child.id());
        let status = child.wait()?;
        ensure!(status.success(), "terraform failed at {:?}: {status}", self.step);
        memory.stop()
    }

    /// The most memory of the function-runner with its providers, in bytes, during the first tenth of many calls and
    /// during the last one.
    async fn first_and_last_calls(&self, round: usize) -> Result<[u64; 2]> {
        let mut client = self.scene.stoa.clients(1).await?.pop().context("there is no client")?;
        let runs = CALLS.div_ceil(CALLS_OF_A_PREVIEW * self.resources).max(2);
        let tenth = (runs / 10).max(1);
        let mut most = [0; 2];
        for run in 0..runs {
            let memory = Sampler::start(self.runner);
            let preview = self.run(&mut client, round, &format!("-{run}")).await?;
            let used = memory.stop()?;
            self.check_run(&preview)?;
            if run < tenth {
                most[0] = used.max(most[0]);
            } else if run >= runs - tenth {
                most[1] = used.max(most[1]);
            }
        }
        self.scene.stoa.put_back(vec![client]);
        Ok(most)
    }

    fn check_run(&self, run: &Value) -> Result<()> {
        ensure!(run["status"]["phase"] == "Succeeded", "the run failed: {}", run["status"]);
        let action = match self.step {
            Step::Create => "create",
            Step::Preview => "unchanged",
            Step::Destroy => "delete",
        };
        let summary = &run["status"]["plan"]["summary"];
        ensure!(summary[action] == self.resources, "the run planned {summary}, not {} of {action}", self.resources);
        Ok(())
    }

    fn check_terraform(&self, folder: &Path) -> Result<()> {
        let state: Value = serde_json::from_slice(&fs::read(folder.join("terraform.tfstate"))?)?;
        let found = state["resources"].as_array().map_or(0, Vec::len);
        let expected = if self.step == Step::Destroy { 0 } else { self.resources };
        ensure!(found == expected, "terraform's state has {found} resources, not {expected}");
        Ok(())
    }
}

impl Experiment for Deployment<'_> {
    const WINDOW: Window = Window::Quiet;
    type Ready = Option<Client>;
    type Output = Option<Value>;

    fn rounds(&self, size: &Size) -> usize {
        if self.resources < 1_000 { size.rounds } else { 1 }
    }

    async fn prepare(&self, target: &MeasuredCollection, round: usize) -> Result<Option<Client>> {
        if target.side == Side::Terraform {
            let folder = self.mirror.folder.path().join(self.name(round));
            tokio::task::block_in_place(|| self.prepare_terraform(&folder))?;
            return Ok(None);
        }
        self.prepare_stoa(target, round).await?;
        Ok(target.clients(1).await?.pop())
    }

    async fn work(
        &self,
        target: &MeasuredCollection,
        round: usize,
        client: Option<Client>,
    ) -> Result<Turn<Option<Value>>> {
        let started = Instant::now();
        let (run, elapsed, most) = match client {
            Some(mut client) => {
                let memory = Sampler::start(self.runner);
                let run =
                    timeout(PATIENCE, self.run(&mut client, round, "")).await.context("the run does not end")??;
                let elapsed = started.elapsed();
                target.put_back(vec![client]);
                (Some(run), elapsed, memory.stop()?)
            }
            None => {
                let folder = self.mirror.folder.path().join(self.name(round));
                let most = tokio::task::block_in_place(|| self.run_terraform(&folder))?;
                (None, started.elapsed(), most)
            }
        };
        self.peaks.of(target.side).fetch_max(most, Ordering::Relaxed);
        Ok(Turn { latencies: vec![elapsed], elapsed, units: 1, output: run })
    }

    async fn check(&self, _: &MeasuredCollection, round: usize, run: Option<Value>) -> Result<usize> {
        match run {
            Some(run) => self.check_run(&run)?,
            None => self.check_terraform(&self.mirror.folder.path().join(self.name(round)))?,
        }
        Ok(0)
    }
}

/// The executable of the provider `random`, if `STOA_TEST_TERRAFORM_PROVIDERS` names one.
fn provider() -> Option<PathBuf> {
    let all = env::var_os("STOA_TEST_TERRAFORM_PROVIDERS")?;
    let is_it = |path: &PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("terraform-provider-random-"))
    };
    env::split_paths(&all).find(is_it)
}

fn has_terraform() -> bool {
    Command::new("terraform").arg("version").stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
}

/// Measures the life of resources in several numbers, and the memory that it takes.
///
/// # Errors
///
/// When a step fails, or changes anything else than it should.
pub(crate) async fn measure(bench: &mut Bench, scene: &Scene) -> Result<()> {
    let Some(provider) = provider().filter(|_| has_terraform()) else {
        bench.report.note(
            "terraform is not installed, or STOA_TEST_TERRAFORM_PROVIDERS names no terraform-provider-random, so that \
             no Terraform resources are measured",
        );
        return Ok(());
    };
    let mirror = Mirror::of(&provider)?;
    scene.ready_for_rollouts().await?;
    let terraform = json!({"mirror": {"directory": mirror.folder.path()}, "lock": mirror.lock()?});
    scene.create_workspace(&Deployment::workspace(scene), json!({ "terraform": terraform })).await?;
    bench.report.note(
        "Terraform: memory is that of function-runner, or of terraform, each with its providers, sampled every 10 ms, \
         where pages that processes share count once; a run a resource is what terraform takes for one, times their number",
    );
    let mut alone: Vec<(Step, f64)> = Vec::new();
    for resources in [1].into_iter().chain(bench.size.terraform_resources.iter().copied()) {
        let (peaks, runner) = (Peaks::default(), bench.bed.servers.runner);
        bench.report.section(format!("{resources} Terraform resources"));
        for (step, title) in
            [(Step::Create, "create"), (Step::Preview, "preview, no change"), (Step::Destroy, "destroy")]
        {
            let deployment = Deployment { scene, mirror: &mirror, runner, resources, step, peaks: &peaks };
            let summaries = bench.compare(&[&scene.stoa, &scene.terraform], &deployment).await.context(title)?;
            bench.report.operation(title, &summaries);
            if step == Step::Preview && bench.size.terraform_resources.first() == Some(&resources) {
                let [first, last] = deployment.first_and_last_calls(0).await.context("many calls")?;
                for (title, bytes) in [(FIRST_CALLS, first), (LAST_CALLS, last)] {
                    let numbers = [(Side::Stoa, bytes as f64 / 1e6)].into_iter().collect();
                    bench.report.row(title, "MB", Better::Less, numbers);
                }
            }
            let cpu = Numbers::of(&summaries, |side| side.cpu_ms());
            match alone.iter().find(|(of, _)| *of == step) {
                Some((_, one)) => {
                    let each = cpu.with(Side::Terraform, *one * resources as f64);
                    bench.report.row(&format!("{title}, a run a resource"), "CPU ms", Better::Less, each);
                }
                None => alone.push((step, cpu.get(Side::Terraform).unwrap_or(f64::NAN))),
            }
        }
        bench.report.row("memory, at most", "MB", Better::Less, peaks.megabytes());
    }
    Ok(())
}
