//! `hack/test`: every check there is, one after the other, timed.
//!
//! Start at [`run`]. A check that fails does not stop the others. The tests come last, so that the output ends with
//! what cargo says about them.

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::binaries::{self, Profile};
use crate::cluster::{self, WardleLog};
use crate::conformance;
use crate::coverage;
use crate::kubectl;
use crate::paths;

/// Which checks to run.
#[derive(Debug, Args)]
pub(crate) struct Checks {
    /// Also build each crate alone, with nobody else's features
    #[arg(long)]
    full: bool,
    /// The folder for the test bed, which the caller ends and removes
    #[arg(long)]
    work: PathBuf,
}

/// Runs the checks.
///
/// # Errors
///
/// When any of them failed; by then each has said why.
pub(crate) fn run(args: &Checks) -> Result<()> {
    prerequisites()?;
    let targets = Targets::of_workspace()?;
    let work = paths::make_folder(&args.work)?;
    let xtask = keep_this_program(&work)?;
    let mut phases = Phases::default();
    phases.run("format", format);
    phases.run("coverage table", coverage::check);
    phases.run("Go programs", || go_programs(&work));
    phases.run("clippy", || cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny=warnings"]));
    phases.run("documentation", documentation);
    phases.run("dependencies", dependencies);
    if args.full {
        phases.run("each crate alone", each_crate_alone);
    }
    // Each set of packages has other features and so would be compiled anew: what is tested is built once, with all.
    phases.run("build", || cargo(&["build", "--workspace", "--all-targets", REAL]));
    let bed = work.join("cluster");
    let options = cluster::Options {
        stoa: Some(Profile::Debug),
        built: Some(built()),
        wardle: Some(WardleLog::Local),
        ..cluster::Options::default()
    };
    phases.run("test bed", || cluster::up(&bed, options).map(drop));
    phases.run("conformance", || conformance::compare(&bed, Some(&built()), &[]));
    phases.run("conformance on etcd", || {
        let wardle = Some(WardleLog::Etcd);
        cluster::up(&bed, cluster::Options { wardle, built: Some(built()), ..cluster::Options::default() })?;
        conformance::compare(&bed, Some(&built()), &conformance::STORED)
    });
    phases.run("benchmark, small", || benchmark(&bed));
    phases.report();

    heading("tests");
    let tests = tests(&work, &bed, &xtask, &targets);
    match (phases.failed.is_empty(), tests) {
        (true, tests) => tests,
        (false, Ok(())) => bail!("failed: {}", phases.failed.join(", ")),
        (false, Err(error)) => Err(error.context(format!("failed: {}, tests", phases.failed.join(", ")))),
    }
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

/// Installs the packages that the build links against, where that is possible, and says what else is missing.
pub(crate) fn prerequisites() -> Result<()> {
    let missing: Vec<&str> = [
        ("cc", succeeds("cc", &["--version"]), "gcc"),
        ("git", succeeds("git", &["--version"]), "git"),
        ("pkg-config", succeeds("pkg-config", &["--version"]), "pkg-config"),
        ("OpenSSL's headers", succeeds("pkg-config", &["--exists", "openssl"]), "libssl-dev"),
    ]
    .into_iter()
    .filter(|(what, there, _)| {
        !there && {
            eprintln!("missing: {what}");
            true
        }
    })
    .map(|(_, _, package)| package)
    .collect();
    if !missing.is_empty() {
        ensure!(succeeds("apt-get", &["--version"]), "install {} first", missing.join(", "));
        install(&missing)?;
    }
    ssh_server();
    ensure!(
        succeeds("go", &["version"]),
        "Go 1.26 has to be in PATH: the control plane and the client-go tests are built with it"
    );
    Ok(())
}

/// Installs packages with apt-get.
fn install(packages: &[&str]) -> Result<()> {
    let root = succeeds("sh", &["-c", "test \"$(id -u)\" = 0"]);
    let prefix: &[&str] = if root { &["apt-get"] } else { &["sudo", "apt-get"] };
    eprintln!("installing with apt-get: {}", packages.join(" "));
    // Until an installation that was cut off is brought to its end, there can be no other.
    let sudo = &prefix[..prefix.len() - 1];
    execute(&[sudo, &["dpkg", "--configure", "-a"]].concat(), &[])?;
    execute(&[prefix, &["update", "--quiet"]].concat(), &[])?;
    let install = ["install", "--yes", "--quiet", "--no-install-recommends"];
    execute(&[prefix, &install, packages].concat(), &[])
}

/// Installs the SSH server that the tests of remotes over SSH run for themselves, or says why they are skipped.
fn ssh_server() {
    // One that root starts needs a user, which is made last.
    let is_there = "PATH=$PATH:/usr/sbin:/usr/local/sbin; command -v sshd && { test \"$(id -u)\" != 0 || id sshd; }";
    if succeeds("sh", &["-c", is_there]) {
        return;
    }
    // There the package starts a server for the whole machine, which nobody asked for.
    let has_services = Path::new("/run/systemd/system").is_dir();
    let installed = if has_services || !succeeds("apt-get", &["--version"]) {
        Err(anyhow::anyhow!("sshd is not there"))
    } else {
        install(&["openssh-server"])
    };
    if let Err(error) = installed {
        eprintln!("skipped: tests of remotes over SSH, which need the package openssh-server: {error:#}");
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
        "tests/oracle",
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
    go("tests/oracle", &["vet", "./..."])?;
    go("tests/oracle", &["build", "-o", &text(oracle_program(work))?, "."])
}

fn documentation() -> Result<()> {
    let args = ["cargo", "doc", "--workspace", "--no-deps", "--quiet"];
    execute(&args, &[("RUSTDOCFLAGS", "--deny=warnings")])
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
    for name in packages()?.iter().filter_map(|package| package["name"].as_str()) {
        eprintln!("{name}");
        cargo(&["check", "--quiet", "--package", name])?;
    }
    Ok(())
}

/// What cargo knows of the workspace's crates.
fn packages() -> Result<Vec<serde_json::Value>> {
    let output = Command::new("cargo")
        .current_dir(paths::repository())
        .args(["metadata", "--no-deps", "--format-version=1"])
        .output();
    let mut metadata: serde_json::Value = serde_json::from_slice(&output.context("running cargo")?.stdout)?;
    match metadata["packages"].take() {
        serde_json::Value::Array(packages) => Ok(packages),
        _ => bail!("cargo metadata lists no packages"),
    }
}

/// The folder where cargo leaves what it has built.
fn built() -> PathBuf {
    paths::cargo_target().join("debug")
}

fn benchmark(bed: &Path) -> Result<()> {
    let program = built().join("stoa-bench");
    let text = |path: &Path| path.to_str().context("a path is not UTF-8").map(str::to_owned);
    execute(&[&text(&program)?, "--small", "--dir", &text(bed)?], &[])
}

/// The crates whose integration tests share the test bed, where some of them switch APIs off and on.
const ON_THE_TEST_BED: [&str; 2] = ["stoa-e2e", "stoa-runtime-kubernetes"];
/// Those of their programs that have clusters of their own alone, and run with the others, so that both runs of tests
/// take about as long.
const WITH_OTHERS: [&str; 5] = ["history", "operation", "remote", "runners", "suspended"];
/// The features with the tests that need the test bed.
pub(crate) const REAL: &str =
    "--features=stoa-runtime-kubernetes/cluster-tests,stoa-storage/etcd-tests,stoa-storage/s3-tests";

/// Runs every test. Some wait for processes where others compute, so that two runs of cargo's share the machine: the
/// tests on the test bed are shown as they go, the others once those are through.
fn tests(work: &Path, bed: &Path, xtask: &Path, targets: &Targets) -> Result<()> {
    let environment = environment(work, bed, xtask)?;
    let environment = borrowed(&environment);
    let runner = format!("target.'cfg(unix)'.runner = [{:?}, \"run-test\"]", xtask.display().to_string());
    let arguments = ["cargo", "test", "--config", &runner, "--workspace", "--no-fail-fast", REAL];
    let run_of = |selection: &[&str], targets: &[String]| {
        let mut run = command(&arguments, &environment);
        run.args(selection).args(targets.iter().map(|name| format!("--test={name}")));
        run
    };
    let shown_later = work.join("tests.log");
    let log = File::create(&shown_later).context("making the log of tests")?;
    let mut beside = run_of(&["--lib", "--bins", "--examples"], &targets.others);
    let mut beside = beside.stdout(log.try_clone()?).stderr(log).spawn().context("running cargo")?;
    let on_bed = run_of(&[], &targets.on_bed).status().context("running cargo");
    let others = beside.wait().context("waiting for cargo");
    io::copy(&mut File::open(&shown_later)?, &mut io::stderr()).context("showing the log of tests")?;
    let documented = run_of(&["--doc"], &[]).status().context("running cargo");
    for (tests, status) in
        [("tests on the test bed", on_bed?), ("other tests", others?), ("documentation", documented?)]
    {
        ensure!(status.success(), "{tests} failed");
    }
    Ok(())
}

/// The programs of integration tests, by their names: all of the workspace are chosen from by name, since a choice of
/// packages would have other features and build anew.
struct Targets {
    on_bed: Vec<String>,
    others: Vec<String>,
}

impl Targets {
    fn of_workspace() -> Result<Self> {
        let mut targets = Self { on_bed: Vec::new(), others: Vec::new() };
        for package in packages()? {
            let is_on_bed = package["name"].as_str().is_some_and(|name| ON_THE_TEST_BED.contains(&name));
            let tests = package["targets"].as_array().into_iter().flatten();
            let tests = tests.filter(|target| target["kind"][0] == "test");
            for name in tests.filter_map(|target| target["name"].as_str()) {
                let with_others = !is_on_bed || WITH_OTHERS.contains(&name);
                let into = if with_others { &mut targets.others } else { &mut targets.on_bed };
                into.push(name.to_owned());
            }
        }
        let Self { on_bed, others } = &targets;
        let twice = on_bed.iter().find(|name| others.contains(name));
        ensure!(twice.is_none(), "a test on the test bed has the name of another: {twice:?}");
        Ok(targets)
    }
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
/// * `STOA_TEST_ETCD`: the program etcd;
/// * `STOA_TEST_S3`: the program versitygw, an S3 server;
/// * `STOA_TEST_GITEA`, `STOA_TEST_GITEA_FILES`: the program gitea, a Git server with pull requests, and the files that it reads.
pub(crate) fn environment(work: &Path, bed: &Path, xtask: &Path) -> Result<Vec<(&'static str, String)>> {
    let text = |path: PathBuf| path.into_os_string().into_string().ok().context("a path is not UTF-8");
    let kubectls = env::join_paths(kubectl::versions()?).context("a path with a colon")?;
    let mut environment = vec![
        ("STOA_TEST_KUBECONFIG", text(bed.join("kubeconfig"))?),
        ("STOA_TEST_CLUSTER_DIR", text(bed.to_path_buf())?),
        ("STOA_TEST_XTASK", text(xtask.to_path_buf())?),
        ("STOA_TEST_BIN_DIR", text(built())?),
        ("STOA_TEST_KUBECTL", text(kubectl::program()?)?),
        ("STOA_TEST_KUBECTLS", kubectls.into_string().ok().context("a path is not UTF-8")?),
        ("STOA_TEST_ORACLE", text(oracle_program(work))?),
        ("STOA_TEST_ETCD", text(binaries::ETCD.binary()?)?),
        ("STOA_TEST_S3", text(binaries::S3.binary()?)?),
        ("STOA_TEST_GITEA", text(binaries::GITEA.binary()?)?),
        ("STOA_TEST_GITEA_FILES", text(binaries::GITEA.source()?)?),
    ];
    for (module, setting) in GO_TESTS {
        environment.push((setting, text(go_tests_program(work, module))?));
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
