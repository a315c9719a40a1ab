//! `hack/cluster`: a real control plane on loopback, and Stoa behind it when asked.
//!
//! Start at [`run`]. Everything of one test bed is in its folder, so that several run side by side and none knows
//! of the others.
//!
//! Elsewhere: `control_plane` starts etcd and Kubernetes, `stoa` starts Stoa and registers it, `wardle` does so with
//! the servers that the conformance program compares, `pki` makes everybody's certificates, `state` remembers ports
//! and options.

mod control_plane;
mod pki;
mod state;
mod stoa;
mod wardle;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};

use crate::binaries::{self, Profile};
use crate::kubectl::Kubectl;
use crate::paths;
use crate::process::Signal;
use crate::renderer;

pub(crate) use state::State;
pub(crate) use wardle::WardleLog;

/// What `hack/cluster` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Starts what is not running yet and prints the path of the admin's kubeconfig
    Up(Up),
    /// Ends what runs in the folder; its data stays unless --purge is given
    Down(Down),
    /// Prints KEY=value lines for scripts and tests
    Env(Folder),
    /// Starts whichever of etcd, kube-apiserver, stoa-apiserver and function-runner is not running, where it was before
    StartStoa(Folder),
    /// Ends a process of Stoa, etcd or kube-apiserver with SIGKILL, as a crash would
    Kill(Kill),
}

/// Where the test bed lives.
#[derive(Debug, Clone, Args)]
pub(crate) struct Folder {
    /// The test bed's folder; everything of it is in there
    #[arg(long, default_value = ".cluster")]
    dir: PathBuf,
}

/// What to start.
#[derive(Debug, Args)]
pub(crate) struct Up {
    #[command(flatten)]
    folder: Folder,
    /// Build, start and register stoa-apiserver and function-runner too
    #[arg(long)]
    stoa: bool,
    /// Run so many stoa-apiservers on the test bed's etcd, instead of one on local files
    #[arg(long, requires = "stoa", value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: Option<u8>,
    /// Another argument of every stoa-apiserver, such as --stoa-arg=--git-remote=file:///srv/control.git; those of before
    /// if there is none
    #[arg(long, requires = "stoa", allow_hyphen_values = true)]
    stoa_arg: Vec<String>,
    /// Build Stoa optimized
    #[arg(long, requires = "stoa")]
    release: bool,
    /// Build Stoa as it is shipped: optimized as a whole, which takes three times as long
    #[arg(long, requires = "stoa", conflicts_with = "release")]
    dist: bool,
    /// Start the programs in this folder rather than build them
    #[arg(long, value_name = "DIR", conflicts_with_all = ["release", "dist"])]
    built: Option<PathBuf>,
    /// Build, start and register Go's sample-apiserver and the example wardle, which serve the same kinds. What wardle is told
    /// is kept in this log, on local files if none is named
    #[arg(long, value_enum, value_name = "LOG", num_args = 0..=1, require_equals = true, default_missing_value = "local")]
    wardle: Option<WardleLog>,
}

/// What to leave behind.
#[derive(Debug, Args)]
pub(crate) struct Down {
    #[command(flatten)]
    folder: Folder,
    /// Remove the folder as well
    #[arg(long)]
    purge: bool,
}

/// Which process to end.
#[derive(Debug, Args)]
pub(crate) struct Kill {
    #[command(flatten)]
    folder: Folder,
    process: Process,
    /// Which stoa-apiserver, counted from 0
    #[arg(long, default_value_t = 0)]
    replica: usize,
}

/// A process that tests end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Process {
    /// stoa-apiserver
    Stoa,
    /// function-runner
    Runner,
    /// etcd
    Etcd,
    /// kube-apiserver
    KubeApiserver,
}

/// Does what the command line asks.
pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Up(args) => {
            let cluster = up(&args.folder.dir, args.options())?;
            println!("{}", cluster.kubeconfig().display());
            Ok(())
        }
        Command::Down(args) => down(&args.folder.dir, args.purge),
        Command::Env(args) => env(&Cluster::existing(&args.dir)?),
        Command::StartStoa(args) => {
            let cluster = Cluster::existing(&args.dir)?;
            let _lock = cluster.lock()?;
            let state = State::load(&cluster.dir)?;
            let mut started = control_plane::start_again(&cluster, &state)?;
            started.extend(stoa::start(&cluster, &state)?);
            eprintln!("started: {}", if started.is_empty() { "nothing".to_owned() } else { started.join(", ") });
            Ok(())
        }
        Command::Kill(args) => {
            let cluster = Cluster::existing(&args.folder.dir)?;
            let daemon = match args.process {
                Process::Stoa => stoa::apiserver(&cluster.dir, args.replica)?,
                Process::Runner => stoa::runner(&cluster.dir),
                Process::Etcd => {
                    let [etcd, _, _] = control_plane::daemons(&cluster.dir);
                    etcd
                }
                Process::KubeApiserver => {
                    let [_, apiserver, _] = control_plane::daemons(&cluster.dir);
                    apiserver
                }
            };
            ensure!(daemon.end(Signal::Kill, Duration::from_secs(10))?, "{} does not run", daemon.name());
            Ok(())
        }
    }
}

/// How a test bed is to be started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// Start Stoa too, built like this.
    pub(crate) stoa: Option<Profile>,
    /// The folder with our programs, where somebody has built them.
    pub(crate) built: Option<PathBuf>,
    /// So many of it on etcd; one on local files, or what there was before, when it is not said.
    pub(crate) replicas: Option<u8>,
    /// What to tell every one of them besides; what they were told before, when there is nothing.
    pub(crate) stoa_args: Vec<String>,
    /// Start the two servers of `wardle.example.com` too, ours on this log.
    pub(crate) wardle: Option<WardleLog>,
}

impl Up {
    fn options(&self) -> Options {
        let profile = match (self.dist, self.release) {
            (true, _) => Profile::Dist,
            (false, true) => Profile::Release,
            (false, false) => Profile::Debug,
        };
        Options {
            stoa: self.stoa.then_some(profile),
            built: self.built.clone(),
            replicas: self.replicas,
            stoa_args: self.stoa_arg.clone(),
            wardle: self.wardle,
        }
    }
}

/// One test bed's folder.
#[derive(Debug)]
pub(crate) struct Cluster {
    dir: PathBuf,
}

impl Cluster {
    fn existing(dir: &Path) -> Result<Self> {
        let dir = fs::canonicalize(dir).with_context(|| format!("no test bed in {}", dir.display()))?;
        ensure!(State::exists(&dir), "no test bed in {}; hack/cluster up makes one", dir.display());
        Ok(Self { dir })
    }

    /// The admin's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// kubectl as the admin.
    pub(crate) fn kubectl(&self) -> Result<Kubectl> {
        Kubectl::new(&self.kubeconfig())
    }

    /// Keeps other `hack/cluster` commands off the folder.
    fn lock(&self) -> Result<fs::File> {
        paths::lock(&self.dir.join(".lock"))
    }

    fn pki(&self) -> PathBuf {
        self.dir.join("pki")
    }

    fn audit_log(&self) -> PathBuf {
        self.dir.join("logs/audit.log")
    }
}

/// Starts what is not running yet. A second call changes nothing.
pub(crate) fn up(dir: &Path, options: Options) -> Result<Cluster> {
    let cluster = Cluster { dir: paths::make_own_folder(dir)? };
    let _lock = cluster.lock()?;
    let mut state = State::load_or_new(&cluster.dir)?;
    control_plane::up(&cluster, &mut state)?;
    let built = options.built.as_deref();
    if let Some(profile) = options.stoa {
        let binaries = binaries::stoa(profile, built)?;
        // Its runner looks for it.
        renderer::binary()?;
        stoa::up(&cluster, &mut state, binaries, options.replicas, options.stoa_args)?;
    }
    if let Some(log) = options.wardle {
        let example = binaries::wardle(built)?;
        wardle::up(&cluster, &mut state, &example, log)?;
    }
    Ok(cluster)
}

/// Ends the test bed's own processes, the newest first.
pub(crate) fn down(dir: &Path, purge: bool) -> Result<()> {
    let Ok(dir) = fs::canonicalize(dir) else {
        eprintln!("no test bed in {}", dir.display());
        return Ok(());
    };
    // A folder that holds anything else was named by mistake.
    if !State::exists(&dir) {
        bail!("{} is no test bed's folder", dir.display());
    }
    let cluster = Cluster { dir };
    let lock = cluster.lock()?;
    let mut ended = Vec::new();
    let before = stoa::daemons(&cluster.dir).into_iter().chain(wardle::daemons(&cluster.dir));
    for daemon in before.chain(control_plane::daemons(&cluster.dir).into_iter().rev()) {
        if daemon.end(Signal::Terminate, Duration::from_secs(20))? {
            ended.push(daemon.name());
        }
    }
    eprintln!("ended: {}", if ended.is_empty() { "nothing, it was down".to_owned() } else { ended.join(", ") });
    if purge {
        fs::remove_dir_all(&cluster.dir).with_context(|| format!("removing {}", cluster.dir.display()))?;
    }
    drop(lock);
    Ok(())
}

fn env(cluster: &Cluster) -> Result<()> {
    for (key, value) in environment(&cluster.dir)? {
        println!("{key}={value}");
    }
    Ok(())
}

/// What scripts and tests want to know of a test bed.
pub(crate) fn environment(dir: &Path) -> Result<Vec<(&'static str, String)>> {
    let cluster = Cluster::existing(dir)?;
    let state = State::load(&cluster.dir)?;
    let pki = cluster.pki();
    let mut lines = vec![
        ("KUBECONFIG", cluster.kubeconfig().display().to_string()),
        ("CLUSTER_DIR", cluster.dir.display().to_string()),
        ("AUDIT_LOG", cluster.audit_log().display().to_string()),
        ("APISERVER_URL", state.apiserver_url()),
        ("ETCD_URL", format!("https://127.0.0.1:{}", state.etcd_port)),
        ("CLUSTER_CA", pki.join("ca.crt").display().to_string()),
        ("CLIENT_CERT", pki.join("admin.crt").display().to_string()),
        ("CLIENT_KEY", pki.join("admin.key").display().to_string()),
        ("FRONT_PROXY_CERT", pki.join("front-proxy-client.crt").display().to_string()),
        ("FRONT_PROXY_KEY", pki.join("front-proxy-client.key").display().to_string()),
    ];
    for (key, daemon) in
        ["ETCD_PID", "APISERVER_PID", "CONTROLLER_MANAGER_PID"].into_iter().zip(control_plane::daemons(&cluster.dir))
    {
        lines.extend(daemon.pid().map(|pid| (key, pid.to_string())));
    }
    if let Some(stoa) = &state.stoa {
        let urls = stoa.urls();
        lines.extend(urls.first().map(|url| ("STOA_URL", url.clone())));
        lines.push(("STOA_URLS", urls.join(",")));
        lines.extend(stoa.webhook_url().map(|url| ("STOA_WEBHOOK_URL", url)));
        lines.push(("RUNNER_URL", stoa.runner_url()));
        lines.push(("STOA_CA", pki.join("stoa-ca.crt").display().to_string()));
        lines.push(("STOA_DATA_DIR", stoa::data_folder(&cluster.dir).display().to_string()));
        lines.push(("STOA_AUDIT_LOG", stoa::audit_log(&cluster.dir, 0).display().to_string()));
        let registered = stoa::apiserver(&cluster.dir, 0)?;
        for (key, daemon) in [("STOA_PID", registered), ("RUNNER_PID", stoa::runner(&cluster.dir))] {
            lines.extend(daemon.pid().map(|pid| (key, pid.to_string())));
        }
    }
    if let Some(wardle) = &state.wardle {
        lines.push(("WARDLE_REFERENCE_URL", format!("https://localhost:{}", wardle.reference_port)));
        lines.push(("WARDLE_SUBJECT_URL", format!("https://localhost:{}", wardle.subject_port)));
        let logs = wardle::audit_logs(&cluster.dir).map(|log| log.display().to_string());
        lines.extend(["WARDLE_REFERENCE_AUDIT_LOG", "WARDLE_SUBJECT_AUDIT_LOG"].into_iter().zip(logs));
        lines.push(("WARDLE_SUBJECT_LOG", wardle.log.name()));
        lines.push(("WARDLE_CA", pki.join("wardle-ca.crt").display().to_string()));
        let [sample_apiserver, _] = wardle::daemons(&cluster.dir);
        lines.extend(sample_apiserver.pid().map(|pid| ("WARDLE_REFERENCE_PID", pid.to_string())));
    }
    Ok(lines)
}
