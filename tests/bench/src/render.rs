//! Kustomizations, charts and programs in KCL: a function-runner against the commands, and against the libraries.
//!
//! Start at [`measure`]. The runner is one of this program alone, and renders a folder once for each Stack that asks, since
//! the name of the Stack is part of what it caches by. `inputs` has the files, `runner` the process.

mod inputs;
mod library;
mod runner;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use self::inputs::Inputs;
use self::runner::Runner;
use crate::measure::{Bench, Side};
use crate::process::{descendants, resident};
use crate::report::{Better, Numbers};

/// After so long without a request, a process has given back its memory, or has ended.
const SETTLED: Duration = Duration::from_secs(5);
/// Repetitions of one request, which the runner answers from its cache.
const HITS: usize = 200;
/// Clients of the many generations.
const CLIENTS: usize = 2;

/// One tool, and the folder that it renders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Kustomize,
    Helm,
    Kcl,
}

impl Tool {
    const ALL: [Self; 3] = [Self::Kustomize, Self::Helm, Self::Kcl];

    fn title(self) -> &'static str {
        match self {
            Self::Kustomize => "kustomization of 100",
            Self::Helm => "chart of 50 templates",
            Self::Kcl => "KCL of 100 objects",
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Self::Kustomize => "kustomization",
            Self::Helm => "chart",
            Self::Kcl => "kcl",
        }
    }

    fn resources(self) -> usize {
        match self {
            Self::Kustomize | Self::Kcl => 100,
            Self::Helm => 50,
        }
    }

    /// The command's module, for `go tool`.
    fn module(self) -> Option<&'static str> {
        match self {
            Self::Kustomize => Some("sigs.k8s.io/kustomize/kustomize/v5"),
            Self::Helm => Some("helm.sh/helm/v4/cmd/helm"),
            Self::Kcl => None,
        }
    }
}

/// The Go module of the renderer.
fn module() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../function-runner/renderer")
}

/// The command of a tool, which Go builds from the modules of the renderer unless it is there.
fn command(tool: Tool) -> Result<Option<PathBuf>> {
    let Some(module) = tool.module() else { return Ok(None) };
    let built = Command::new("go").args(["tool", "-n", module]).current_dir(self::module()).output();
    let built = built.context("running go")?;
    ensure!(built.status.success(), "go tool {module}: {}", String::from_utf8_lossy(&built.stderr).trim());
    Ok(Some(PathBuf::from(String::from_utf8_lossy(&built.stdout).trim())))
}

/// How long the command takes.
fn run(command: &Path, tool: Tool, inputs: &Inputs) -> Result<Duration> {
    let folder = inputs.path().join(tool.folder());
    let mut command = Command::new(command);
    match tool {
        Tool::Kustomize => command.arg("build").arg(folder),
        Tool::Helm | Tool::Kcl => command.args(["template", "shop"]).arg(folder),
    };
    let started = Instant::now();
    let output = command.env("HOME", inputs.path()).stdin(Stdio::null()).output().context("running the command")?;
    let elapsed = started.elapsed();
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "the command failed: {}", String::from_utf8_lossy(&output.stderr));
    let found = printed.matches("kind: ConfigMap").count();
    ensure!(found == tool.resources(), "the command printed {found} objects, not {}", tool.resources());
    Ok(elapsed)
}

/// The median, in ms.
fn median(mut times: Vec<Duration>) -> Option<f64> {
    times.sort_unstable();
    times.get(times.len() / 2).map(|time| time.as_secs_f64() * 1e3)
}

/// Measures renderings that are new, cached, and many, and the memory of the processes after them.
///
/// # Errors
///
/// When a rendering fails, or has another result than it should.
pub(crate) async fn measure(bench: &mut Bench) -> Result<()> {
    let file = |name: &str| env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let (Some(renderer), kcl) = (file("STOA_TEST_RENDERER"), file("STOA_TEST_KCL")) else {
        bench.report.note("STOA_TEST_RENDERER is not set, so that no rendering is measured");
        return Ok(());
    };
    let inputs = Inputs::new()?;
    let runner = Arc::new(Runner::start(bench.bed.servers.runner, &renderer, kcl.as_deref(), &inputs).await?);
    bench.report.section("render, warm");
    bench.report.note(
        "render: a call of a function-runner whose process and tree are there, for a Stack of its own each time; commands \
         and libraries are of the renderer's Go modules; KCL's library is in this process",
    );
    let tools: Vec<Tool> = Tool::ALL.into_iter().filter(|tool| *tool != Tool::Kcl || kcl.is_some()).collect();
    for tool in &tools {
        let numbers = tokio::task::block_in_place(|| library::one(*tool, &inputs, kcl.as_deref()))?;
        compare(bench, &runner, *tool, &inputs, numbers).await.context(tool.title())?;
    }
    let hit = hits(&runner, tools[0]).await?;
    bench.report.row("cache hit", "p50 ms", Better::Less, [(Side::Stoa, hit)].into_iter().collect());
    let number = bench.size.generations_together;
    let seconds = together(&runner, &tools, number).await.context("many generations")?;
    let title = format!("{number} generations");
    bench.report.row(&title, "s", Better::Less, [(Side::Stoa, seconds)].into_iter().collect());
    bench.report.row("", "per second", Better::More, [(Side::Stoa, number as f64 / seconds)].into_iter().collect());
    tokio::time::sleep(SETTLED).await;
    let idle = descendants(runner.pid())?.into_iter().filter_map(|pid| resident(pid).ok());
    let largest = idle.max().unwrap_or_default() as f64 / 1e6;
    bench.report.row("largest idle process", "MB", Better::Less, [(Side::Stoa, largest)].into_iter().collect());
    Ok(())
}

/// The runner and the command in turn, beside the library.
async fn compare(bench: &mut Bench, runner: &Runner, tool: Tool, inputs: &Inputs, library: f64) -> Result<()> {
    let command = tokio::task::block_in_place(|| command(tool))?;
    // The first one starts a process, and writes the tree.
    runner.generate(tool, "warm").await?;
    let (mut stoa, mut commands) = (Vec::new(), Vec::new());
    for round in 0..bench.size.generations {
        stoa.push(runner.generate(tool, &format!("round-{round}")).await?);
        if let Some(command) = &command {
            commands.push(tokio::task::block_in_place(|| run(command, tool, inputs))?);
        }
    }
    let sides = [(Side::Stoa, median(stoa)), (Side::Command, median(commands)), (Side::Library, Some(library))];
    let numbers: Numbers = sides.into_iter().filter_map(|(side, number)| Some((side, number?))).collect();
    bench.report.row(tool.title(), "p50 ms", Better::Less, numbers);
    Ok(())
}

/// One request again and again, in ms.
async fn hits(runner: &Runner, tool: Tool) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..HITS {
        times.push(runner.generate(tool, "warm").await?);
    }
    median(times).context("there are no times")
}

/// Generations of all tools in turn, in seconds.
async fn together(runner: &Arc<Runner>, tools: &[Tool], number: usize) -> Result<f64> {
    let next = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let (runner, tools, next) = (Arc::clone(runner), tools.to_vec(), Arc::clone(&next));
        clients.spawn(async move {
            loop {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                if turn >= number {
                    return anyhow::Ok(());
                }
                runner.generate(tools[turn % tools.len()], &format!("stack-{turn}")).await?;
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.context("a client panicked")??;
    }
    Ok(started.elapsed().as_secs_f64())
}
