//! `hack/test`: the checks of a change, one after the other, timed.
//!
//! Start at [`run`]. A check that fails does not stop the others. The tests come last, so that the output ends with
//! what cargo says about them.
//!
//! Elsewhere: `changed` chooses the crates of `--changed`, `prerequisites` installs what the checks need.

mod changed;
mod prerequisites;

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::binaries::{self, Profile};
use crate::cluster::{self, WardleLog};
use crate::conformance;
use crate::coverage;
use crate::function_worker;
use crate::kcl;
use crate::kubectl;
use crate::paths;
use crate::prose;
use crate::renderer;
use crate::run_test;
use crate::walls;
use changed::Packages;
pub(crate) use prerequisites::prerequisites;

/// Which checks to run.
#[derive(Debug, Args)]
pub(crate) struct Checks {
    /// Also build each crate alone, measure, and run every slow test in full: nightly, and before a release
    #[arg(long)]
    all: bool,
    /// Only the tests of crates that differ from this commit, and of crates that depend on them. Without a value: from where the
    /// branch left origin/main, or main
    #[arg(long, value_name = "BASE", num_args = 0..=1, default_missing_value = "", conflicts_with = "all")]
    changed: Option<String>,
    /// With --changed, also the tests that need the test bed
    #[arg(long, requires = "changed")]
    bed: bool,
    /// The folder for the test bed, which the caller ends and removes
    #[arg(long)]
    work: PathBuf,
}

/// Tells tests to run in full what they otherwise run a part of.
const ALL: &str = "STOA_TEST_ALL";

/// Runs the checks.
///
/// # Errors
///
/// When any of them failed; by then each has said why.
pub(crate) fn run(args: &Checks) -> Result<()> {
    prerequisites()?;
    let mut packages = Packages::of_workspace()?;
    if let Some(base) = &args.changed {
        packages.leave_changed(base)?;
        if packages.is_empty() {
            eprintln!("no crate has changed");
            return Ok(());
        }
        packages.report();
    }
    let targets = packages.targets()?;
    let with_bed = args.changed.is_none() || args.bed && !targets.on_bed.is_empty();
    let work = paths::make_folder(&args.work)?;
    let xtask = keep_this_program(&work)?;
    let bed = work.join("cluster");
    let mut phases = Phases::default();
    if args.changed.is_none() {
        phases.run("format", format);
        phases.run("coverage table", coverage::check);
        phases.run("prose", prose::check);
        phases.run("walls", walls::check);
        phases.run("dependencies", dependencies);
    }
    phases.run("Go programs", || go_programs(&work));
    if args.all {
        phases.run("each crate alone", each_crate_alone);
        phases.run("function worker", || function_worker::binary().and_then(|_| function_worker::test()));
    }
    // Each set of packages has other features and so would be compiled anew: what is tested is built once, with all.
    phases.run("build", || cargo(&["build", "--workspace", "--all-targets", REAL]));
    // Cargo builds one thing at a time; meanwhile the test bed needs no build.
    let lints = args.changed.is_none().then(|| Lints::start(&work)).transpose()?;
    if with_bed {
        let options = cluster::Options {
            stoa: Some(Profile::Debug),
            built: Some(built()),
            wardle: Some(WardleLog::Local),
            ..cluster::Options::default()
        };
        phases.run("test bed", || cluster::up(&bed, options).map(drop));
    }
    if args.changed.is_none() {
        compare_with_go(&bed, &work, args.all, &mut phases);
    }
    if let Some(lints) = lints {
        lints.finish(&mut phases)?;
    }
    phases.report();

    heading("tests");
    let only = args.changed.is_some().then(|| packages.names());
    let setting = Setting { work: &work, bed: &bed, xtask: &xtask, all: args.all, with_bed, only };
    let tests = tests(&setting, &targets);
    match (phases.failed.is_empty(), tests) {
        (true, tests) => tests,
        (false, Ok(())) => bail!("failed: {}", phases.failed.join(", ")),
        (false, Err(error)) => Err(error.context(format!("failed: {}, tests", phases.failed.join(", ")))),
    }
}

/// Asks Go's servers and ours the same; of the log on etcd, and of the speed, a part unless `all`.
fn compare_with_go(bed: &Path, work: &Path, all: bool, phases: &mut Phases) {
    phases.run("conformance", || conformance::compare(bed, Some(&built()), &[]));
    phases.run("conformance on etcd", || {
        let wardle = Some(WardleLog::Etcd);
        cluster::up(bed, cluster::Options { wardle, built: Some(built()), ..cluster::Options::default() })?;
        let asked = if all { &conformance::STORED[..] } else { &conformance::STORED_IN_PART };
        conformance::compare(bed, Some(&built()), asked)
    });
    phases.run("benchmark, small", || benchmark(bed, work, all));
}

#[derive(Default)]
struct Phases {
    times: Vec<(&'static str, Duration)>,
    failed: Vec<&'static str>,
}

impl Phases {
    fn run(&mut self, name: &'static str, check: impl FnOnce() -> Result<()>) {
        heading(name);
        let started = Instant::now();
        if let Err(error) = check() {
            eprintln!("{name} FAILED: {error:#}");
            self.failed.push(name);
        }
        self.times.push((name, started.elapsed()));
    }

    /// Notes a check that ran beside others.
    fn add(&mut self, name: &'static str, time: Duration, succeeded: bool) {
        if !succeeded {
            eprintln!("{name} FAILED");
            self.failed.push(name);
        }
        self.times.push((name, time));
    }

    fn report(&self) {
        heading("times so far");
        for (name, time) in &self.times {
            let result = if self.failed.contains(name) { "FAILED" } else { "ok" };
            eprintln!("{name:<20} {:>6.0} s  {result}", time.as_secs_f64());
        }
    }
}

fn heading(name: &str) {
    eprintln!("\n==> {name}");
}

/// The name of a check, its duration, and whether it succeeded.
type CheckResult = (&'static str, Duration, bool);

/// Clippy and the documentation, which run beside the test bed; their output is shown at the end.
struct Lints {
    log: PathBuf,
    thread: JoinHandle<io::Result<Vec<CheckResult>>>,
}

impl Lints {
    fn start(work: &Path) -> Result<Self> {
        let log = work.join("lints.log");
        let out = File::create(&log).context("making the log of lints")?;
        let clippy = command(&["cargo", "clippy", "--workspace", "--all-targets", "--", "--deny=warnings"], &[]);
        let rustdoc = [("RUSTDOCFLAGS", "--deny=warnings")];
        let documentation = command(&["cargo", "doc", "--workspace", "--no-deps", "--quiet"], &rustdoc);
        let thread = thread::spawn(move || {
            let mut results = Vec::new();
            for (name, mut command) in [("clippy", clippy), ("documentation", documentation)] {
                let started = Instant::now();
                let status = command.stdout(out.try_clone()?).stderr(out.try_clone()?).status()?;
                results.push((name, started.elapsed(), status.success()));
            }
            Ok(results)
        });
        Ok(Self { log, thread })
    }

    fn finish(self, phases: &mut Phases) -> Result<()> {
        heading("clippy and documentation");
        let Ok(results) = self.thread.join() else { bail!("running clippy panicked") };
        io::copy(&mut File::open(&self.log)?, &mut io::stderr()).context("showing the log of lints")?;
        for (name, time, succeeded) in results.context("running cargo")? {
            phases.add(name, time, succeeded);
        }
        Ok(())
    }
}

fn format() -> Result<()> {
    cargo(&["fmt", "--all", "--", "--check"])?;
    for module in [
        "tests/cluster",
        "tests/client-go",
        "tests/controller-runtime",
        "tests/conformance",
        "tests/kubectl",
        SAMPLE_MODULE.0,
        "tests/oracle",
        PACKAGES_ORACLE,
        "tests/terraform/framework",
        "tests/terraform/sdk",
        renderer::MODULE,
    ] {
        let output =
            Command::new("gofmt").arg("-l").arg(paths::repository().join(module)).output().context("running gofmt")?;
        ensure!(
            output.status.success() && output.stdout.is_empty(),
            "gofmt wants to change:\n{}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
    Ok(())
}

/// The modules whose tests become one program each, for the end-to-end tests to run, and the setting that names it.
const GO_TESTS: [(&str, &str); 2] =
    [("client-go", "STOA_TEST_CLIENT_GO"), ("controller-runtime", "STOA_TEST_CONTROLLER_RUNTIME")];

fn go_tests_program(work: &Path, module: &str) -> PathBuf {
    work.join(module).with_extension("test")
}

/// What tells of Kubernetes' own libraries, for tests to compare with.
fn oracle_program(work: &Path) -> PathBuf {
    work.join("oracle")
}

/// The module of the program that updates packages by kpt's library, for tests to compare with.
const PACKAGES_ORACLE: &str = "engine/packages/oracle";

fn packages_oracle_program(work: &Path) -> PathBuf {
    work.join("packages-oracle")
}

/// The program that plays a renderer that goes wrong.
fn standin_renderer(work: &Path) -> PathBuf {
    // Its folder is its package, which it reads.
    work.join("standin/stoa-renderer")
}

/// Our own providers of Terraform, with the current library and with the older one: their modules and programs.
const OWN_PROVIDERS: [(&str, &str); 2] = [
    ("tests/terraform/framework", "terraform-provider-frame-own"),
    ("tests/terraform/sdk", "terraform-provider-legacy-own"),
];

/// The module of Kusion that tests run: its Go module and its program.
const SAMPLE_MODULE: (&str, &str) = ("tests/modules", "kusion-module-sample");

/// The providers of Terraform that tests run.
fn terraform_providers(work: &Path) -> Result<OsString> {
    joined_providers(OWN_PROVIDERS.map(|(_, program)| work.join(program)).to_vec())
}

/// Prints the paths of HashiCorp's providers, as a benchmark takes them.
pub(crate) fn print_terraform_providers() -> Result<()> {
    println!("{}", joined_providers(Vec::new())?.display());
    Ok(())
}

/// Prints the variables by which a benchmark finds Gitea.
pub(crate) fn print_gitea() -> Result<()> {
    println!("STOA_TEST_GITEA={}", binaries::GITEA.binary()?.display());
    println!("STOA_TEST_GITEA_FILES={}", binaries::GITEA.source()?.display());
    Ok(())
}

fn joined_providers(mut programs: Vec<PathBuf>) -> Result<OsString> {
    for command in binaries::TERRAFORM_PROVIDERS {
        programs.push(command.binary()?);
    }
    env::join_paths(programs).context("a path with a colon")
}

fn go_programs(work: &Path) -> Result<()> {
    let go = |module: &str, args: &[&str]| -> Result<()> {
        let module = paths::repository().join(module);
        let status = Command::new("go").current_dir(module).args(args).stdin(Stdio::null()).status();
        ensure!(status.context("running go")?.success(), "go {} failed", args.join(" "));
        Ok(())
    };
    let text = |program: PathBuf| program.into_os_string().into_string().ok().context("the work folder is not UTF-8");
    go("tests/conformance", &["vet", "./..."])?;
    for (name, _) in GO_TESTS {
        let module = format!("tests/{name}");
        go(&module, &["vet", "./..."])?;
        go(&module, &["test", "-c", "-o", &text(go_tests_program(work, name))?, "."])?;
    }
    for (module, provider) in OWN_PROVIDERS {
        go(module, &["vet", "./..."])?;
        let program = text(work.join(provider))?;
        go(module, &["build", "-trimpath", "-ldflags=-s -w", "-o", &program, "."])?;
    }
    let (module, program) = SAMPLE_MODULE;
    go(module, &["vet", "./..."])?;
    go(module, &["build", "-trimpath", "-ldflags=-s -w", "-o", &text(work.join(program))?, "."])?;
    go(renderer::MODULE, &["vet", "./..."])?;
    go(renderer::MODULE, &["test", "./..."])?;
    go(renderer::MODULE, &["build", "-o", &text(standin_renderer(work))?, "./standin"])?;
    renderer::binary()?;
    kcl::wheel()?;
    go("tests/oracle", &["vet", "./..."])?;
    go("tests/oracle", &["build", "-o", &text(oracle_program(work))?, "."])?;
    go(PACKAGES_ORACLE, &["build", "-o", &text(packages_oracle_program(work))?, "."])
}

/// Copies the running program to where no build replaces it: the tests call it while cargo builds xtask anew.
pub(crate) fn keep_this_program(work: &Path) -> Result<PathBuf> {
    let kept = work.join("xtask");
    fs::copy(env::current_exe().context("finding xtask")?, &kept).context("copying xtask")?;
    Ok(kept)
}

/// What needs tools that not every machine has.
fn dependencies() -> Result<()> {
    for (tool, args) in [("deny", &["deny", "check", "bans", "licenses", "sources"][..]), ("machete", &["machete"][..])]
    {
        if succeeds("cargo", &[tool, "--version"]) {
            cargo(args)?;
        } else {
            eprintln!("skipped: cargo-{tool} is not installed");
        }
    }
    Ok(())
}

fn each_crate_alone() -> Result<()> {
    for name in Packages::of_workspace()?.names().split(' ') {
        eprintln!("{name}");
        cargo(&["check", "--quiet", "--package", name])?;
    }
    Ok(())
}

/// The folder where cargo leaves what it has built.
fn built() -> PathBuf {
    paths::cargo_target().join("debug")
}

fn benchmark(bed: &Path, work: &Path, all: bool) -> Result<()> {
    let program = built().join("stoa-bench");
    let text = |path: &Path| path.to_str().context("a path is not UTF-8").map(str::to_owned);
    let part: &[&str] = if all { &[] } else { &["--only=get", "--only=rollout"] };
    let providers = terraform_providers(work)?.into_string().ok().context("a path is not UTF-8")?;
    let (program, bed) = (text(&program)?, text(bed)?);
    let arguments = [&[&*program, "--small", "--dir", &bed], part].concat();
    let renderer = text(&renderer::binary()?)?;
    let (gitea, files) = (text(&binaries::GITEA.binary()?)?, text(&binaries::GITEA.source()?)?);
    let kcl = kcl::wheel()?.map(|wheel| text(&wheel)).transpose()?.unwrap_or_default();
    let environment = [
        ("STOA_TEST_TERRAFORM_PROVIDERS", providers.as_str()),
        ("STOA_TEST_RENDERER", renderer.as_str()),
        ("STOA_TEST_GITEA", gitea.as_str()),
        ("STOA_TEST_GITEA_FILES", files.as_str()),
        ("STOA_TEST_KCL", kcl.as_str()),
    ];
    execute(&arguments, &environment[..if kcl.is_empty() { 4 } else { 5 }])
}

/// The features with the tests that need the test bed.
pub(crate) const REAL: &str =
    "--features=stoa-runtime-kubernetes/cluster-tests,stoa-storage/etcd-tests,stoa-storage/s3-tests";

/// How tests are run.
struct Setting<'a> {
    work: &'a Path,
    bed: &'a Path,
    xtask: &'a Path,
    /// Whether slow tests run in full.
    all: bool,
    with_bed: bool,
    /// The names of the packages whose tests run, with spaces in between; all if absent.
    only: Option<String>,
}

/// Runs the tests. Some wait for processes where others compute, so that three runs of cargo's share the machine. The tests
/// on the test bed are shown as they go, those of the other two runs afterwards.
fn tests(setting: &Setting<'_>, targets: &Targets) -> Result<()> {
    let mut environment = environment(setting.work, setting.bed, setting.xtask)?;
    if setting.all {
        environment.push((ALL, "1".to_owned()));
    }
    if let Some(only) = &setting.only {
        environment.push((run_test::ONLY, only.clone()));
    }
    let environment = borrowed(&environment);
    let runner = format!("target.'cfg(unix)'.runner = [{:?}, \"run-test\"]", setting.xtask.display().to_string());
    let arguments = ["cargo", "test", "--config", &runner, "--workspace", "--no-fail-fast", REAL];
    let run_of = |selection: &[&str], targets: &[String]| {
        let mut run = command(&arguments, &environment);
        run.args(selection).args(targets.iter().map(|name| format!("--test={name}")));
        run
    };
    let programs = ["--lib", "--bins", "--examples"];
    if !setting.with_bed {
        let status = run_of(&programs, &targets.others).status().context("running cargo")?;
        ensure!(status.success(), "tests failed");
        return Ok(());
    }
    let mut beside = vec![("other tests", "tests.log", run_of(&programs, &targets.others))];
    if !targets.own_clusters.is_empty() {
        beside.push(("tests with clusters of their own", "clusters.log", run_of(&[], &targets.own_clusters)));
    }
    let mut started = Vec::new();
    for (tests, file, mut run) in beside {
        let shown_later = setting.work.join(file);
        let log = File::create(&shown_later).context("making a log of tests")?;
        let run = run.stdout(log.try_clone()?).stderr(log).spawn().context("running cargo")?;
        started.push((tests, shown_later, run));
    }
    let on_bed = run_of(&[], &targets.on_bed).status().context("running cargo");
    let mut results = Vec::new();
    for (tests, shown_later, mut run) in started {
        let status = run.wait().context("waiting for cargo");
        io::copy(&mut File::open(&shown_later)?, &mut io::stderr()).context("showing a log of tests")?;
        results.push((tests, status?));
    }
    results.push(("tests on the test bed", on_bed?));
    if setting.only.is_none() {
        results.push(("documentation", run_of(&["--doc"], &[]).status().context("running cargo")?));
    }
    for (tests, status) in results {
        ensure!(status.success(), "{tests} failed");
    }
    Ok(())
}

/// The programs of integration tests, by their names: all of the workspace are chosen from by name, since a choice of
/// packages would have other features and build anew.
#[derive(Debug, Default, PartialEq, Eq)]
struct Targets {
    on_bed: Vec<String>,
    /// Those that start clusters of their own.
    own_clusters: Vec<String>,
    others: Vec<String>,
}

/// What tests are told in the environment, the test bed's address above all:
///
/// * `STOA_TEST_KUBECONFIG`: the admin's kubeconfig of the cluster with Stoa behind it;
/// * `STOA_TEST_CLUSTER_DIR`: the test bed's folder, for `xtask cluster … --dir`;
/// * `STOA_TEST_XTASK`: the program `xtask`;
/// * `STOA_TEST_BIN_DIR`: the folder of `stoa-apiserver` and `function-runner`;
/// * `STOA_TEST_KUBECTL`: kubectl, of whatever version is there;
/// * `STOA_TEST_KUBECTLS`: kubectl of every version that is tested, with colons in between;
/// * `STOA_TEST_CLIENT_GO`, `STOA_TEST_CONTROLLER_RUNTIME`: the tests of these Go modules as one program each;
/// * `STOA_TEST_ORACLE`: the program that says what Kubernetes' own libraries make of a write;
/// * `STOA_TEST_PACKAGES_ORACLE`: the program that updates packages by kpt's library;
/// * `STOA_TEST_RENDERER`: the program that builds kustomizations and charts;
/// * `STOA_TEST_STANDIN_RENDERER`: the program that plays one that goes wrong;
/// * `STOA_TEST_ETCD`: the program etcd;
/// * `STOA_TEST_S3`: the program versitygw, an S3 server;
/// * `STOA_TEST_REGISTRY`, `STOA_TEST_ORAS`: the program registry, an OCI registry, and the program oras, a client of it;
/// * `STOA_TEST_SOPS`: the program sops;
/// * `STOA_TEST_PORCHCTL`: the program porchctl, Porch's command line;
/// * `STOA_TEST_GITEA`, `STOA_TEST_GITEA_FILES`: the program gitea, a Git server with pull requests, and the files that it reads;
/// * `STOA_TEST_OCM`: the folder with the kinds of Open Cluster Management;
/// * `STOA_TEST_TERRAFORM_PROVIDERS`: providers of Terraform, with colons in between;
/// * `STOA_TEST_KCL`: the Python package with KCL's library;
/// * `STOA_TEST_MODULES`: a module of Kusion;
/// * `STOA_TEST_FUNCTION_WORKER`: the program that runs WebAssembly and Starlark, if it is built.
pub(crate) fn environment(work: &Path, bed: &Path, xtask: &Path) -> Result<Vec<(&'static str, String)>> {
    let text = |path: PathBuf| path.into_os_string().into_string().ok().context("a path is not UTF-8");
    let kubectls = env::join_paths(kubectl::versions()?).context("a path with a colon")?;
    let mut environment = vec![
        ("STOA_TEST_TERRAFORM_PROVIDERS", text(terraform_providers(work)?.into())?),
        ("STOA_TEST_MODULES", text(work.join(SAMPLE_MODULE.1))?),
        ("STOA_TEST_KUBECONFIG", text(bed.join("kubeconfig"))?),
        ("STOA_TEST_CLUSTER_DIR", text(bed.to_path_buf())?),
        ("STOA_TEST_XTASK", text(xtask.to_path_buf())?),
        ("STOA_TEST_BIN_DIR", text(built())?),
        ("STOA_TEST_KUBECTL", text(kubectl::program()?)?),
        ("STOA_TEST_KUBECTLS", kubectls.into_string().ok().context("a path is not UTF-8")?),
        ("STOA_TEST_RENDERER", text(renderer::binary()?)?),
        ("STOA_TEST_STANDIN_RENDERER", text(standin_renderer(work))?),
        ("STOA_TEST_ORACLE", text(oracle_program(work))?),
        ("STOA_TEST_PACKAGES_ORACLE", text(packages_oracle_program(work))?),
        ("STOA_TEST_ETCD", text(binaries::ETCD.binary()?)?),
        ("STOA_TEST_S3", text(binaries::S3.binary()?)?),
        ("STOA_TEST_REGISTRY", text(binaries::REGISTRY.binary()?)?),
        ("STOA_TEST_ORAS", text(binaries::ORAS.binary()?)?),
        ("STOA_TEST_SOPS", text(binaries::SOPS.binary()?)?),
        ("STOA_TEST_PORCHCTL", text(binaries::PORCHCTL.binary()?)?),
        ("STOA_TEST_GITEA", text(binaries::GITEA.binary()?)?),
        ("STOA_TEST_GITEA_FILES", text(binaries::GITEA.source()?)?),
        ("STOA_TEST_OCM", text(binaries::OCM.source()?)?),
    ];
    for (module, setting) in GO_TESTS {
        environment.push((setting, text(go_tests_program(work, module))?));
    }
    if let Some(wheel) = kcl::wheel()? {
        environment.push(("STOA_TEST_KCL", text(wheel)?));
    }
    if let Some(worker) = function_worker::built() {
        environment.push(("STOA_TEST_FUNCTION_WORKER", text(worker)?));
    }
    Ok(environment)
}

pub(crate) fn borrowed<'a>(environment: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    environment.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

fn cargo(args: &[&str]) -> Result<()> {
    execute(&[&["cargo"], args].concat(), &[])
}

/// Runs a command at the root of the repository.
pub(crate) fn execute(words: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let status = command(words, environment).status().with_context(|| format!("running {}", words[0]))?;
    ensure!(status.success(), "{} failed", words.join(" "));
    Ok(())
}

/// A command at the root of the repository, to which nothing is said.
fn command(words: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(words[0]);
    command.current_dir(paths::repository()).args(&words[1..]).envs(environment.iter().copied()).stdin(Stdio::null());
    command
}

/// Whether a command can be run and succeeds; its output is dropped.
fn succeeds(program: &str, args: &[&str]) -> bool {
    let status =
        Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
