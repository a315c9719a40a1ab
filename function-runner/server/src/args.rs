//! The command line.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use stoa_apply::MARGIN;
use stoa_engine::bounds::LARGEST_SPEC;
use stoa_git::cache::{Bounds, Folders};
use stoa_kusion_module::mirror::Mirror;
use stoa_runtime::CallLimits;
use stoa_workers::{Limits, PoolConfig, SubprocessConfig, SubprocessStarter};

use crate::functions::{self, Functions};
use crate::generate::modules::{self, Modules};
use crate::generate::{Generators, Renderer, RendererOptions, WarmWorkers, kcl};
use crate::terraform::sandbox::SandboxLauncher;
use crate::terraform::{self, ProviderMetrics, Terraform};
use crate::{runtimes, service, source, worker};

/// How long calls in flight for a resource may go on when its apply is stopped, at most.
const GRACE: Duration = Duration::from_secs(30);

/// How long a provider may take to start and to accept its configuration. Terraform allows a minute, too.
const PROVIDER_START: Duration = Duration::from_secs(60);

/// The number of blocking threads for files: Tokio's default.
const FOR_FILES: usize = 512;

/// The largest Spec, in MiB.
const LARGEST_SPEC_MIB: u32 = (LARGEST_SPEC >> 20) as u32;

/// Fetches sources, generates, plans and applies for a stoa-apiserver, over gRPC with mutual TLS.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "function-runner",
    version,
    after_help = "function-runner agent reports the deployments of a cluster to the hub, and function-runner ocm-scheduler \
        decides about SchedulingPolicies by Open Cluster Management; see --help of either"
)]
pub(crate) struct Args {
    /// Address to listen on; port 0 is a free port
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS:PORT")]
    pub(crate) listen: SocketAddr,

    /// File that receives the bound address once the runner accepts calls
    #[arg(long, value_name = "FILE")]
    pub(crate) address_file: Option<PathBuf>,

    /// Serving certificate chain, PEM; reloaded after a change
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: PathBuf,

    /// Private key of the serving certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: PathBuf,

    /// Certificate authorities of clients, PEM; no other client has access. Reloaded after a change
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca: PathBuf,

    /// Interval to reload certificates, in seconds
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tls_reload_seconds: u32,

    /// Directory for caches of sources and packages of providers, with a folder for each runner; it can be emptied while no runner uses it
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) cache_dir: PathBuf,

    #[command(flatten)]
    pub(crate) cache: CacheArgs,

    /// Directory below which Sources and workspaces can name Git repositories by path or `file://`; repeatable.
    /// Default: none, because authors of Sources could read all repositories that this process can read
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) local_repositories: Vec<PathBuf>,

    /// Kubeconfig for clusters marked `inCluster`; default: the pod's service account
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    pub(crate) pool: PoolArgs,

    #[command(flatten)]
    pub(crate) kcl: KclArgs,

    #[command(flatten)]
    pub(crate) functions: FunctionArgs,

    #[command(flatten)]
    pub(crate) sources: SourceArgs,

    #[command(flatten)]
    pub(crate) terraform: TerraformArgs,

    /// Seconds for calls to finish after SIGTERM. The runner accepts no others, and applies move to another runner
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub(crate) drain_seconds: u32,

    /// Address that serves gRPC health without TLS (grpc.health.v1), for the kubelet's probes; default: none
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) health_listen: Option<SocketAddr>,

    /// Loopback address that serves /metrics over HTTP; default: none
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) metrics_listen: Option<SocketAddr>,

    /// Exit when standard input closes, as at the exit of the parent process
    #[arg(long)]
    pub(crate) exit_on_stdin_close: bool,

    /// Form of log lines on standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,

    /// Log filter, such as `info` or `info,function_runner=debug`
    #[arg(long, default_value = "info", value_name = "FILTER")]
    pub(crate) log: String,
}

/// How much of the fetched repositories is cached.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct CacheArgs {
    /// Days to keep the cache of a source or GitOps repository after its last use
    #[arg(long, default_value_t = 7, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cache_days: u32,

    /// Size of all caches together, in MiB; the runner deletes the least recently used ones, and none in use
    #[arg(long, default_value_t = 10_240, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cache_mib: u32,
}

impl CacheArgs {
    pub(crate) fn of_folders(&self) -> Bounds {
        Bounds {
            unused: Duration::from_secs(u64::from(self.cache_days) * 24 * 60 * 60),
            bytes: u64::from(self.cache_mib) << 20,
        }
    }
}

/// Limits on concurrency and time.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct LimitArgs {
    /// Resources that one run calls at once, if the caller sets no number
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) parallelism: u32,

    /// Calls at once; more are rejected as busy, and the caller tries another runner, or retries. As for the other limits, one
    /// organization alone gets three quarters, and the rest is for others
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_calls: u32,

    /// Size of the Specs, plans and states of all concurrent large calls (1 MiB and more), in MiB; as much again
    /// waits, and the runner rejects more as busy
    #[arg(long, default_value_t = 512, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) max_calls_mib: u32,

    /// Concurrent requests to clusters; others wait, with turns for each organization and each of its runs
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) max_kubernetes_requests: u32,

    /// Concurrent requests to one cluster
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) max_cluster_requests: u32,

    /// Concurrent reads and commits of GitOps repositories; others wait, with turns for each organization and each
    /// of its runs. Each uses a process; slow servers use up to as many more
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub(crate) max_gitops_requests: u32,

    /// Concurrent reads and commits of one repository
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub(crate) max_repository_requests: u32,

    /// Timeout of one resource, in seconds
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) resource_timeout_seconds: u32,

    /// Timeout for all resources of a run to become healthy, in seconds
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) health_timeout_seconds: u32,
}

impl LimitArgs {
    /// The limits on calls of a runner that may take so long to shut down.
    pub(crate) fn of_calls(&self, drain: Duration) -> service::Limits {
        service::Limits {
            parallelism: self.parallelism,
            calls: self.max_calls,
            calls_mib: self.max_calls_mib,
            resource_timeout: Duration::from_secs(self.resource_timeout_seconds.into()),
            health_timeout: Duration::from_secs(self.health_timeout_seconds.into()),
            // There must be time left until nothing of it can arrive any more, and to report its result.
            grace: GRACE.min(drain.saturating_sub(MARGIN) / 2),
        }
    }

    /// The number of processes for GitOps repositories: one for each request, and as many again for slow ones.
    pub(crate) fn gitops_processes(&self) -> usize {
        2 * self.max_gitops_requests as usize
    }

    /// The number of blocking threads. Each call may use one while it computes (`blocking`), and would wait for ever if none were
    /// left for files and for GitOps repositories, whose servers may hang.
    pub(crate) fn waiting_threads(&self) -> usize {
        FOR_FILES + self.max_calls as usize + self.gitops_processes()
    }

    /// The limits on all runs together.
    pub(crate) fn of_runtimes(&self) -> runtimes::Limits {
        let limits = |all: u32, each: u32| CallLimits::new(all as usize, each as usize);
        runtimes::Limits {
            kubernetes: limits(self.max_kubernetes_requests, self.max_cluster_requests),
            gitops: limits(self.max_gitops_requests, self.max_repository_requests),
        }
    }
}

/// The processes in which generators run, and the limits on one job.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PoolArgs {
    /// Worker processes that parse sources, one job at a time each; default: one for each processor, at least 2
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) workers: Option<u32>,

    /// Memory of a worker, in MiB
    #[arg(long, default_value_t = 1024, value_name = "MIB", value_parser = clap::value_parser!(u32).range(64..))]
    pub(crate) worker_memory_mib: u32,

    /// Processor time of one job, in seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) worker_cpu_seconds: u32,

    /// Timeout of one job in a worker, in seconds
    #[arg(long, default_value_t = 120, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) worker_timeout_seconds: u32,

    /// Size of the largest Spec, in MiB
    #[arg(
        long,
        default_value_t = LARGEST_SPEC_MIB,
        value_name = "MIB",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(LARGEST_SPEC_MIB)),
    )]
    pub(crate) worker_output_mib: u32,

    /// Program that builds kustomizations and charts, with the limits of workers; default: stoa-renderer beside this program.
    /// Without it, only stacks that need it fail
    #[arg(long, value_name = "FILE")]
    pub(crate) renderer: Option<PathBuf>,

    /// Jobs that wait for a worker; the runner rejects more calls as busy
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_waiting_jobs: u32,

    /// Size of the sources of all waiting jobs, in MiB; the runner rejects more calls as busy
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_waiting_mib: u32,
}

impl PoolArgs {
    /// Workers of this binary.
    pub(crate) fn of_pool(&self) -> PoolConfig {
        let processors = || std::thread::available_parallelism().map_or(2, |number| number.get().max(2));
        let memory = u64::from(self.worker_memory_mib) << 20;
        PoolConfig {
            program: worker::program(),
            arguments: worker::command(memory),
            environment: worker::environment(),
            workers: self.workers.map_or_else(processors, |workers| workers as usize),
            limits: Limits {
                memory,
                processor: Duration::from_secs(self.worker_cpu_seconds.into()),
                time: Duration::from_secs(self.worker_timeout_seconds.into()),
                answer: (self.worker_output_mib as usize) << 20,
            },
            waiting: self.max_waiting_jobs as usize,
            waiting_bytes: (self.max_waiting_mib as usize) << 20,
        }
    }
}

impl PoolArgs {
    /// The renderer, with trees among `caches` and sockets in `temporary`.
    pub(crate) fn of_renderer(&self, caches: Folders, temporary: PathBuf) -> Renderer {
        let PoolConfig { program, limits, workers, .. } = self.of_pool();
        let options = RendererOptions { program: self.renderer.clone(), this: program, limits, processes: workers };
        Renderer::new(options, caches, temporary)
    }

    /// Processes of this binary that read a tree, with the limits of workers.
    pub(crate) fn of_trees(&self) -> SubprocessConfig {
        let PoolConfig { program, arguments, environment, limits, .. } = self.of_pool();
        SubprocessConfig { program, arguments, environment, limits }
    }
}

/// KCL's library.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct KclArgs {
    /// The Python package kcl_lib, or the shared object in it. Programs in KCL run in processes with the limits of workers. Default: none,
    /// and only stacks in KCL fail
    #[arg(long, value_name = "FILE")]
    pub(crate) kcl_library: Option<PathBuf>,

    /// SHA-256 of that file; default: those of the known releases
    #[arg(long, value_name = "SHA256", requires = "kcl_library")]
    pub(crate) kcl_library_sha256: Option<String>,

    /// Directory with the programs of Kusion modules, with the limits of workers. A module is in PATH/VERSION, such as
    /// ghcr.io/kusionstack/network/0.2.0, with SHA256SUMS beside OS/ARCH/kusion-module-NAME_VERSION. Default: none, and only modules
    /// that are registered with a registry run
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) kusion_modules: Option<PathBuf>,
}

impl KclArgs {
    /// Processes with KCL's library, whose object is in `temporary`. Needs a Tokio runtime.
    pub(crate) fn of_workers(&self, pool: &PoolArgs, temporary: &Path) -> anyhow::Result<Option<WarmWorkers>> {
        let Some(file) = &self.kcl_library else { return Ok(None) };
        let object = kcl::library::prepare(file, self.kcl_library_sha256.as_deref(), temporary)?;
        let PoolConfig { program, environment, limits, workers, .. } = pool.of_pool();
        let arguments = worker::command_for_kcl(limits.memory, &object);
        let config = SubprocessConfig { program, arguments, environment, limits };
        let starter = SubprocessStarter::new(config).context("starting processes for KCL")?;
        Ok(Some(WarmWorkers::new(starter, workers, temporary)))
    }

    /// Modules in sandboxes, with the folders of their sockets in `temporary`.
    pub(crate) fn of_modules(&self, pool: &PoolArgs, temporary: PathBuf) -> Modules {
        let mirror = self.kusion_modules.as_ref().map(Mirror::new);
        let PoolConfig { program, limits, workers, .. } = pool.of_pool();
        let launcher = SandboxLauncher { program, memory: limits.memory, directories: Vec::new() };
        let launcher = Arc::new(launcher);
        Modules::new(modules::Options { mirror, launcher, temporary, limits, processes: workers })
    }
}

/// The functions of packages.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FunctionArgs {
    /// File with the executables and WebAssembly modules that packages can name as functions, each by its SHA-256, with the limits of
    /// workers. Default: none, and only the built-in functions run
    #[arg(long, value_name = "FILE")]
    pub(crate) functions: Option<PathBuf>,

    /// Program that runs WebAssembly and Starlark; default: stoa-function-worker beside this program. Without it, only functions that
    /// need it fail
    #[arg(long, value_name = "FILE")]
    pub(crate) function_worker: Option<PathBuf>,

    /// Address that serves Porch's FunctionEvaluator and gRPC health without TLS, for a Porch server. Every client that reaches the
    /// address can run functions; default: none
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) functions_listen: Option<SocketAddr>,

    /// Namespace of the runner's own cluster in which it runs images as pods; default: none. See manifests/functions
    #[arg(long, value_name = "NAMESPACE", requires_all = ["function_pod_images", "function_wrapper_image"])]
    pub(crate) function_pods: Option<String>,

    /// Beginning of the images that run as pods, up to the end of a part of the name, such as registry.example.com/fn; repeatable
    #[arg(long, value_name = "PREFIX")]
    pub(crate) function_pod_images: Vec<String>,

    /// Image with Porch's wrapper-server, which runs in each of these pods
    #[arg(long, value_name = "IMAGE")]
    pub(crate) function_wrapper_image: Option<String>,

    /// Address of a function runner of Porch, without TLS. It runs the functions that this runner does not have; default: none
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) function_evaluator: Option<String>,
}

impl FunctionArgs {
    /// The functions, with working directories in `temporary` and compiled modules among `caches`. Needs a Tokio runtime.
    pub(crate) fn of_functions(
        &self,
        pool: &PoolArgs,
        generators: Generators,
        kubeconfig: Option<PathBuf>,
        temporary: PathBuf,
        caches: Folders,
    ) -> anyhow::Result<Functions> {
        let pods = self.function_pods.clone().map(|namespace| functions::PodOptions {
            namespace,
            images: self.function_pod_images.clone(),
            wrapper: self.function_wrapper_image.clone().unwrap_or_default(),
            kubeconfig,
        });
        let PoolConfig { program, limits, workers, .. } = pool.of_pool();
        let settings = self.functions.as_deref().map(functions::Settings::read).transpose()?.unwrap_or_default();
        Functions::new(functions::Options {
            settings,
            generators,
            pods,
            evaluator: self.function_evaluator.clone(),
            worker: self.function_worker.clone(),
            this: program,
            limits,
            processes: workers,
            temporary,
            caches,
        })
    }
}

/// The processes that fetch and read sources, and their limits.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct SourceArgs {
    /// Sources that are fetched or read at once, each in a process of its own; more wait, and one organization alone gets three
    /// quarters of the processes
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) source_processes: u32,

    /// Memory of such a process, in MiB
    #[arg(long, default_value_t = 1024, value_name = "MIB", value_parser = clap::value_parser!(u32).range(64..))]
    pub(crate) source_memory_mib: u32,

    /// Timeout to fetch or read a source, in seconds, also without a waiting caller
    #[arg(long, default_value_t = 900, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) source_timeout_seconds: u32,
}

impl SourceArgs {
    /// Processes of this binary.
    pub(crate) fn of_subprocesses(&self) -> SubprocessConfig {
        let memory = u64::from(self.source_memory_mib) << 20;
        let time = Duration::from_secs(self.source_timeout_seconds.into());
        SubprocessConfig {
            program: worker::program(),
            arguments: worker::command_for_sources(memory),
            environment: worker::environment_for_sources(),
            limits: Limits {
                memory,
                // Packs are unpacked as they come, which takes about as long.
                processor: time,
                time,
                answer: source::LARGEST_ANSWER,
            },
        }
    }
}

/// The providers of Terraform, each in a process of its own, and their limits.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TerraformArgs {
    /// Directory below which workspaces can name filesystem mirrors of Terraform providers; repeatable. Default: none
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) provider_mirrors: Vec<PathBuf>,

    /// Directory that providers can read and write; repeatable. Default: none, and a provider writes only a temporary
    /// directory of its own. Providers of all organizations share it
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) provider_directories: Vec<PathBuf>,

    /// Memory of a provider, in MiB
    #[arg(long, default_value_t = 2048, value_name = "MIB", value_parser = clap::value_parser!(u32).range(256..))]
    pub(crate) provider_memory_mib: u32,

    /// Seconds that a provider waits for the next call before its process ends
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) provider_idle_seconds: u32,

    /// Processes of providers: one for each provider, configuration and organization. One organization uses three
    /// quarters at once
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) max_provider_processes: u32,

    /// Concurrent calls of providers; others wait, with turns for each organization and each of its runs
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) max_provider_calls: u32,
}

impl TerraformArgs {
    /// Providers in sandboxes, with packages among `caches` and temporary files in `temporary`. Needs a Tokio runtime.
    pub(crate) fn of_terraform(&self, caches: Folders, temporary: PathBuf, metrics: ProviderMetrics) -> Terraform {
        let launcher = SandboxLauncher {
            program: worker::program(),
            memory: u64::from(self.provider_memory_mib) << 20,
            directories: self.provider_directories.clone(),
        };
        let options = terraform::Options {
            mirrors: self.provider_mirrors.clone(),
            launcher: Arc::new(launcher),
            start_limit: PROVIDER_START,
            idle: Duration::from_secs(self.provider_idle_seconds.into()),
            processes: self.max_provider_processes as usize,
            calls: self.max_provider_calls as usize,
            observer: Arc::new(metrics),
        };
        Terraform::new(options, caches, temporary)
    }
}

#[cfg(test)]
impl Default for TerraformArgs {
    fn default() -> Self {
        Args::of_tests().terraform
    }
}

#[cfg(test)]
impl Args {
    fn of_tests() -> Self {
        Self::parse_from(["function-runner", "--tls-cert=a", "--tls-key=b", "--client-ca=c", "--cache-dir=d"])
    }
}

#[cfg(test)]
impl Default for LimitArgs {
    fn default() -> Self {
        Args::of_tests().limits
    }
}

#[cfg(test)]
impl Default for PoolArgs {
    fn default() -> Self {
        Args::of_tests().pool
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line of text an event
    Text,
    /// One JSON object an event
    Json,
}

impl Args {
    /// How long calls may take to end once the process is asked to.
    pub(crate) fn drain_limit(&self) -> Duration {
        Duration::from_secs(self.drain_seconds.into())
    }

    /// Makes folders absolute, since processes for sources start elsewhere.
    pub(crate) fn absolute(mut self) -> anyhow::Result<Self> {
        let of_terraform = &mut self.terraform;
        let of_providers = of_terraform.provider_mirrors.iter_mut().chain(&mut of_terraform.provider_directories);
        let folders = [&mut self.cache_dir].into_iter().chain(&mut self.local_repositories).chain(of_providers);
        let FunctionArgs { functions, function_worker, .. } = &mut self.functions;
        let programs = [&mut self.pool.renderer, &mut self.kcl.kusion_modules, functions, function_worker];
        for folder in folders.chain(programs.into_iter().flatten()) {
            *folder = std::path::absolute(&*folder).with_context(|| format!("finding {}", folder.display()))?;
        }
        Ok(self)
    }

    /// Checks what clap cannot.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if let Some(address) = self.metrics_listen {
            anyhow::ensure!(
                address.ip().is_loopback(),
                "--metrics-listen {address}: use a loopback address, such as 127.0.0.1:9000"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn command_line_is_valid() {
        Args::command().debug_assert();
    }

    fn parse(flags: &[&str]) -> Result<Args, clap::Error> {
        let common = ["function-runner", "--tls-cert=a", "--tls-key=b", "--client-ca=c", "--cache-dir=d"];
        Args::try_parse_from([&common[..], flags].concat())
    }

    #[test]
    fn cache_defaults_to_a_week_and_ten_gib() {
        let bounds = |flags: &[&str]| parse(flags).map(|args| args.cache.of_folders());
        let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
        assert_eq!(bounds(&[]).unwrap(), Bounds { unused: days(7), bytes: 10 << 30 });
        let said = bounds(&["--cache-days=30", "--cache-mib=3"]).unwrap();
        assert_eq!(said, Bounds { unused: days(30), bytes: 3 << 20 });
        // Every run would fetch all of it anew.
        bounds(&["--cache-days=0"]).unwrap_err();
        bounds(&["--cache-mib=0"]).unwrap_err();
    }

    #[test]
    fn hanging_repositories_leave_threads_to_calls() {
        for requests in ["1", "16", "512"] {
            let args = parse(&["--max-gitops-requests", requests, "--max-calls=100"]).unwrap().limits;
            // Slow ones aside, of which there may be as many again.
            let hang = 2 * requests.parse::<usize>().unwrap();
            assert!(args.waiting_threads() >= hang + 100 + FOR_FILES, "{requests}");
        }
    }

    #[test]
    fn no_flag_exceeds_the_largest_spec() {
        let answer = |flags: &[&str]| parse(flags).map(|args| args.pool.of_pool().limits.answer);
        assert_eq!(answer(&[]).unwrap(), LARGEST_SPEC);
        assert_eq!(answer(&["--worker-output-mib=1"]).unwrap(), 1 << 20);
        answer(&["--worker-output-mib=65"]).unwrap_err();
    }

    #[test]
    fn relative_folders_become_absolute() {
        let args = parse(&["--local-repositories=a/b", "--local-repositories=/c"]).unwrap().absolute().unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!(args.cache_dir, here.join("d"));
        assert_eq!(args.local_repositories, [here.join("a/b"), PathBuf::from("/c")]);
        let args = parse(&["--provider-mirrors=a", "--provider-directories=b"]).unwrap().absolute().unwrap().terraform;
        assert_eq!((args.provider_mirrors, args.provider_directories), (vec![here.join("a")], vec![here.join("b")]));
    }

    #[test]
    fn metrics_stay_on_the_machine() {
        let args = |address: &str| parse(&["--metrics-listen", address]).unwrap().check();
        args("127.0.0.1:9000").unwrap();
        args("0.0.0.0:9000").unwrap_err();
    }
}
