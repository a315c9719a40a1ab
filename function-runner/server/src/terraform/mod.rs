//! The providers of Terraform that resources of a workspace need: installed, verified, started in a sandbox and configured.
//!
//! Start at [`Terraform`], of which a runner has one, and at [`WorkspaceProviders::get`], which a run calls through the trait
//! [`Providers`]. `settings` reads `spec.terraform`, `packages` installs, `mirror` reaches mirrors, `sandbox` is the process around a
//! provider, `failure` has the words for everything that fails.
//!
//! **Invariant:** a process belongs to one organization, one configuration and one setting of the network.

mod failure;
mod metrics;
mod mirror;
mod packages;
mod registry_mirror;
pub(crate) mod sandbox;
mod settings;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use stoa_engine::Sensitive;
use stoa_engine::provider::ProviderLock;
use stoa_git::cache::Folders;
use stoa_proto::Workspace;
use stoa_runtime::{CallLimits, Caller, RuntimeError};
use stoa_runtime_terraform::{ProviderRequest, Providers};
use stoa_terraform_provider::package::{Address, LockedProvider, RecordedLockError};
use stoa_terraform_provider::pool::{Lease, Pool, PoolError, PoolOptions, ProviderSpec};
use stoa_terraform_provider::process::Launcher;
use stoa_terraform_provider::protocol::Observer;

use crate::failure::Failure;
use crate::secret_store::Variable;

use self::failure::Failed;
pub(crate) use self::metrics::ProviderMetrics;
use self::packages::{Packages, Wanted};
use self::settings::Settings;
pub(crate) use self::settings::Spec;

/// How long a call waits for a process where all are in use, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_millis(200);

/// How providers run, and how many.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The folders below which filesystem mirrors may be.
    pub(crate) mirrors: Vec<PathBuf>,
    /// How processes are started.
    pub(crate) launcher: Arc<dyn Launcher>,
    /// How long a start may take.
    pub(crate) start_limit: Duration,
    /// How long a process without calls lives.
    pub(crate) idle: Duration,
    /// The most processes.
    pub(crate) processes: usize,
    /// The most calls at once.
    pub(crate) calls: usize,
    /// Hears of processes and calls.
    pub(crate) observer: Arc<dyn Observer>,
}

/// The providers of all workspaces.
#[derive(Debug)]
pub(crate) struct Terraform {
    mirrors: Vec<PathBuf>,
    packages: Packages,
    pool: Pool,
    calls: CallLimits,
}

impl Terraform {
    /// Packages are among `caches`; processes have folders of their own in `temporary`. Needs a Tokio runtime.
    pub(crate) fn new(options: Options, caches: Folders, temporary: PathBuf) -> Self {
        let Options { mirrors, launcher, start_limit, idle, processes, calls, observer } = options;
        let pool = PoolOptions { temporary, start_limit, idle, processes, observer, ..PoolOptions::new(launcher) };
        let (packages, calls) = (Packages::new(caches, idle), CallLimits::new(calls, calls));
        Self { mirrors, packages, pool: Pool::new(pool), calls }
    }

    /// The providers of a workspace, for a run.
    pub(crate) fn of_workspace(
        self: &Arc<Self>,
        spec: Spec,
        workspace: &Workspace,
        variables: BTreeMap<String, Variable>,
        caller: Caller,
    ) -> Result<WorkspaceProviders, Failure> {
        let settings = Settings::new(spec, workspace, &self.mirrors)?.with_variables(variables);
        Ok(WorkspaceProviders { terraform: Arc::clone(self), settings, caller })
    }

    /// Ends all processes. No call begins afterwards.
    pub(crate) async fn shut_down(&self) {
        self.pool.shut_down().await;
    }
}

/// The providers of a workspace, for one run. Its secrets are in no output.
pub(crate) struct WorkspaceProviders {
    terraform: Arc<Terraform>,
    settings: Settings,
    caller: Caller,
}

impl fmt::Debug for WorkspaceProviders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkspaceProviders").field("workspace", &self.settings.workspace).finish_non_exhaustive()
    }
}

#[async_trait]
impl Providers for WorkspaceProviders {
    async fn get(&self, request: &ProviderRequest<'_>) -> Result<Lease, RuntimeError> {
        self.lease(request).await.map_err(RuntimeError::from)
    }

    fn lock(&self, request: &ProviderRequest<'_>) -> Option<ProviderLock> {
        let version = self.locked(request).ok()?.version.to_string();
        let by = match (&self.settings.lock, request.lock) {
            (None, Some(lock)) => lock.file.clone(),
            _ => lock_of(&self.settings.workspace),
        };
        Some(ProviderLock { version, by })
    }

    fn destination(&self) -> String {
        self.settings.destination()
    }
}

impl WorkspaceProviders {
    async fn lease(&self, request: &ProviderRequest<'_>) -> Result<Lease, Failed> {
        let Self { terraform, settings, caller } = self;
        let address = request.address;
        let locked = self.locked(request)?;
        let locked = &*locked;
        let configured = settings.configured(request)?;
        let endpoint = format!("{}/{address}", caller.organization);
        let turn = terraform.calls.turns(&endpoint, caller.clone()).next().await;
        let wanted = Wanted { address, locked, mirror: &settings.mirror, organization: &caller.organization };
        let package = terraform.packages.get(&wanted).await?;
        let spec = ProviderSpec {
            tenant: Arc::clone(&caller.organization),
            network: settings.network,
            executable: package.installed.executable.clone(),
            digest: package.installed.digest,
            environment: configured.environment,
            configuration: configured.configuration,
        };
        let waiting = Instant::now();
        let started = loop {
            match terraform.pool.get(&spec).await {
                // Another run ends, or lets its process idle.
                Err(PoolError::Full(_)) if waiting.elapsed() < PATIENCE => tokio::time::sleep(RETRY).await,
                started => break started,
            }
        };
        match started {
            Ok(lease) => Ok(lease.holding((turn, package))),
            Err(error) => {
                if matches!(error, PoolError::Start(_) | PoolError::Changed(_)) {
                    // Its files are compared again, or installed again.
                    terraform.packages.forget(&wanted);
                }
                Err(self.failed(request, locked, &error, &configured.secrets))
            }
        }
    }

    /// The lock of a provider, which a resource may name a version of: that of the workspace, or else that of the source.
    fn locked(&self, request: &ProviderRequest<'_>) -> Result<Cow<'_, LockedProvider>, Failed> {
        let (address, workspace) = (request.address, &self.settings.workspace);
        let lasting = |message: String| Failed::lasting(message).at("extensions.provider");
        let add = "add its block from the .terraform.lock.hcl that `terraform providers lock` writes";
        let (locked, decides) = match (&self.settings.lock, request.lock) {
            (Some(lock), _) => {
                let decides = lock_of(workspace);
                (lock.providers.get(address).map(Cow::Borrowed), decides)
            }
            (None, Some(lock)) => {
                let decides = format!("{} of the source", lock.file);
                let locked = LockedProvider::recorded(&lock.version, &lock.hashes);
                let wrong = |error: RecordedLockError| lasting(format!("provider {address} in {decides}: {error}"));
                (locked.map_err(wrong)?.map(Cow::Owned), decides)
            }
            (None, None) => {
                return Err(lasting(format!(
                    "provider {address} has no lock: workspace {workspace} has no spec.terraform.lock, and the source \
                     has no .terraform.lock.hcl in the folder of the stack or in one around it; {add}"
                )));
            }
        };
        let locked = locked.ok_or_else(|| lasting(format!("provider {address} is not in {decides}; {add}")))?;
        let is_other = |version: &&str| version.parse().ok() != Some(locked.version.clone());
        match request.version.filter(is_other) {
            None => Ok(locked),
            Some(version) => Err(lasting(format!(
                "the resource names version {version} of provider {address}, and {decides} has version {}; use the \
                 same version in both",
                locked.version
            ))),
        }
    }

    fn failed(
        &self,
        request: &ProviderRequest<'_>,
        locked: &LockedProvider,
        error: &PoolError,
        secrets: &Sensitive,
    ) -> Failed {
        let provider = named(request.address, locked);
        let of_resource = |argument: &str| request.configuration.is_some_and(|own| own.contains_key(argument));
        let entry = self.settings.entry(request.address).map(|entry| entry.name.as_str());
        failure::of_pool(&provider, error, &failure::Arguments { of_resource: &of_resource, entry }).redacted(secrets)
    }
}

/// The lock of a workspace in messages.
fn lock_of(workspace: &str) -> String {
    format!("spec.terraform.lock of workspace {workspace}")
}

/// A provider in messages.
fn named(address: &Address, locked: &LockedProvider) -> String {
    format!("provider {address} {}", locked.version)
}
