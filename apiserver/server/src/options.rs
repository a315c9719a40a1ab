//! The command line.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use http::Uri;
use stoa_control_repo::RemoteOptions;
use stoa_kinds::validation::holds_credentials;
use stoa_machinery::{
    content,
    options::{FeatureOptions, RecommendedOptions},
    registry::Window,
};
use stoa_runs::encryption::{AwsCredentials, AwsKeys, Kms, Transit, Wrapper};

use crate::storage::{EtcdSettings, TlsFiles};

/// Serves the Stoa API.
#[derive(Debug, Parser)]
#[command(name = "stoa-apiserver", version, about)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Log filter, such as `info,stoa_apiserver=debug`
    #[arg(long, global = true, env = "STOA_LOG", default_value = "info")]
    pub(crate) log_filter: String,
    /// Form of log lines
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// For machines
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serves behind the aggregation layer of a cluster, which authenticates and authorizes
    Serve(Box<ServeOptions>),
    /// Serves on loopback with its own certificates and its own function-runner; only members of
    /// system:masters have access
    Standalone(Box<StandaloneOptions>),
}

#[derive(Debug, Args)]
pub(crate) struct StandaloneOptions {
    /// Directory of all data: the log, the control repository, documents, certificates and the kubeconfig
    #[arg(long)]
    pub(crate) data_dir: PathBuf,
    /// Port on loopback; default: the port of the last start, or else a free one
    #[arg(long)]
    pub(crate) secure_port: Option<u16>,
    /// The function-runner to start; default: the one beside this program
    #[arg(long)]
    pub(crate) runner_binary: Option<PathBuf>,
    /// Directory below which Git repositories can be named by path or file://; repeatable
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    pub(crate) local_repositories: Vec<PathBuf>,
    /// Directory below which workspaces can name filesystem mirrors of Terraform providers; repeatable
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    pub(crate) provider_mirrors: Vec<PathBuf>,
    /// Directory that Terraform providers can read and write; repeatable. Default: none
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) provider_directories: Vec<PathBuf>,
    /// Days that the function-runner keeps the cache of a source or GitOps repository after its last use; default: 7
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cache_days: Option<u32>,
    /// Size of all these caches together, in MiB; default: 10240
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cache_mib: Option<u32>,
    /// Memory of a process that fetches and reads a source, in MiB; default: 1024
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(64..))]
    pub(crate) source_memory_mib: Option<u32>,
    /// Timeout to fetch or read a source, in seconds, also without a waiting caller; default: 900
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) source_timeout_seconds: Option<u32>,
    /// Program that builds kustomizations and charts; default: stoa-renderer beside the function-runner. Without it, only
    /// stacks that need it fail
    #[arg(long, value_name = "FILE")]
    pub(crate) renderer: Option<PathBuf>,
    /// The Python package kcl_lib, or the shared object in it. Default: none, and only stacks in KCL fail
    #[arg(long, value_name = "FILE")]
    pub(crate) kcl_library: Option<PathBuf>,
    /// SHA-256 of that file; default: those of the releases that the function-runner knows
    #[arg(long, value_name = "SHA256", requires = "kcl_library")]
    pub(crate) kcl_library_sha256: Option<String>,
    /// Directory with the programs of Kusion modules. Default: none, and only stacks with modules fail
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) kusion_modules: Option<PathBuf>,
    /// File with the executables and WebAssembly modules that packages can name as functions. Default: none, and only the
    /// built-in functions run
    #[arg(long, value_name = "FILE")]
    pub(crate) functions: Option<PathBuf>,
    /// Program that runs functions in WebAssembly and Starlark; default: stoa-function-worker beside the function-runner.
    /// Without it, only functions that need it fail
    #[arg(long, value_name = "FILE")]
    pub(crate) function_worker: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) schedulers: SchedulerOptions,
    #[command(flatten)]
    pub(crate) webhooks: WebhookOptions,
    #[command(flatten)]
    pub(crate) runs: RunOptions,
    #[command(flatten)]
    pub(crate) storage: StorageOptions,
    #[command(flatten)]
    pub(crate) features: FeatureOptions,
}

/// Where Git servers tell of pushes.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct WebhookOptions {
    /// Port for webhooks of Git servers, with the serving certificate of the API; default: none
    #[arg(long)]
    pub(crate) webhook_port: Option<u16>,
}

/// How runs are executed.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct RunOptions {
    /// Runs that are executed at once; others wait, and namespaces share the slots
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) max_concurrent_runs: u16,
    /// Lease of a run that changes infrastructure, in seconds. The server renews it six times in that time. After a
    /// crash another replica resumes the run when the lease has expired
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(10..=600))]
    pub(crate) run_lease_seconds: u64,
}

impl RunOptions {
    /// How long the lease of a run lasts without renewal.
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_secs(self.run_lease_seconds)
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    /// Directory of the log, the control repository and documents
    #[arg(long)]
    pub(crate) data_dir: PathBuf,
    #[command(flatten)]
    pub(crate) server: RecommendedOptions,
    #[command(flatten)]
    pub(crate) runner: RunnerOptions,
    #[command(flatten)]
    pub(crate) schedulers: SchedulerOptions,
    #[command(flatten)]
    pub(crate) webhooks: WebhookOptions,
    #[command(flatten)]
    pub(crate) runs: RunOptions,
    #[command(flatten)]
    pub(crate) storage: StorageOptions,
}

/// Where what is served is kept. The flags for etcd are kube-apiserver's.
#[derive(Debug, Clone, Args)]
pub(crate) struct StorageOptions {
    /// etcd servers of the log (scheme://host:port), separated by commas; default: local files, which allow one
    /// replica
    #[arg(long, value_delimiter = ',')]
    pub(crate) etcd_servers: Vec<String>,
    /// Certificate authorities of etcd, PEM; reloaded after a change
    #[arg(long, requires = "etcd_servers")]
    pub(crate) etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd, PEM; reloaded after a change
    #[arg(long, requires_all = ["etcd_servers", "etcd_keyfile"])]
    pub(crate) etcd_certfile: Option<PathBuf>,
    /// Private key of that certificate, PEM
    #[arg(long, requires_all = ["etcd_servers", "etcd_certfile"])]
    pub(crate) etcd_keyfile: Option<PathBuf>,
    /// Prefix of all keys in etcd; the same for all replicas
    #[arg(long, default_value = "/stoa")]
    pub(crate) etcd_prefix: String,
    /// Directory of the control repository and documents that all replicas share; default: --data-dir. With
    /// --git-remote the repository is in --data-dir
    #[arg(long)]
    pub(crate) shared_dir: Option<PathBuf>,
    /// File with the keys that seal sensitive values, one a line: 32 random bytes in base64, as from
    /// `head --bytes=32 /dev/urandom | base64`. The first key seals, all keys open; reloaded after a change. All
    /// replicas use the same keys. Default: a new file in --data-dir; required with --etcd-servers
    #[arg(long)]
    pub(crate) sealing_key_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) sealing_key_vault: SealingKeyVaultOptions,
    #[command(flatten)]
    pub(crate) sealing_key_kms: SealingKeyKmsOptions,
    #[command(flatten)]
    pub(crate) git: GitRemoteOptions,
    #[command(flatten)]
    pub(crate) history: HistoryOptions,
    #[command(flatten)]
    pub(crate) hub: HubOptions,
}

/// The history of deployments.
#[derive(Debug, Clone, Args)]
pub(crate) struct HubOptions {
    /// Backend of the history of deployments that clusters report; default: a directory beside those of other documents
    #[arg(long, value_name = "BACKEND")]
    pub(crate) hub_backend: Option<String>,
    /// Days that the history of deployments goes back
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) hub_retention_days: u32,
}

/// Vault's transit engine, which wraps the sealing keys.
#[derive(Clone, Debug, Args)]
pub(crate) struct SealingKeyVaultOptions {
    /// URL of a Vault server whose transit engine wraps the sealing keys: https, or http of a loopback address. A line
    /// `vault:v1:…` of the file with the keys is what `vault write transit/encrypt/stoa plaintext=KEY` printed. Default:
    /// none, and no line may be wrapped
    #[arg(long, value_name = "URL", requires = "sealing_key_vault_token_file")]
    pub(crate) sealing_key_vault_server: Option<String>,
    /// File with the token for that server, which needs `update` on the paths encrypt and decrypt of the key; read at
    /// each use
    #[arg(long, value_name = "FILE", requires = "sealing_key_vault_server")]
    pub(crate) sealing_key_vault_token_file: Option<PathBuf>,
    /// Name of the key in the transit engine
    #[arg(long, value_name = "NAME", default_value = "stoa")]
    pub(crate) sealing_key_vault_key: String,
    /// Path of the transit engine
    #[arg(long, value_name = "PATH", default_value = "transit")]
    pub(crate) sealing_key_vault_mount: String,
    /// Certificate authorities of that server, PEM; default: those of the system
    #[arg(long, value_name = "FILE", requires = "sealing_key_vault_server")]
    pub(crate) sealing_key_vault_cafile: Option<PathBuf>,
    /// Namespace of Vault Enterprise
    #[arg(long, value_name = "NAMESPACE", requires = "sealing_key_vault_server")]
    pub(crate) sealing_key_vault_namespace: Option<String>,
}

impl SealingKeyVaultOptions {
    fn transit(&self) -> anyhow::Result<Option<Transit>> {
        let (Some(server), Some(token_file)) = (&self.sealing_key_vault_server, &self.sealing_key_vault_token_file)
        else {
            return Ok(None);
        };
        check_is_private("--sealing-key-vault-server", server)?;
        Ok(Some(Transit {
            server: server.clone(),
            mount: self.sealing_key_vault_mount.clone(),
            key: self.sealing_key_vault_key.clone(),
            token_file: token_file.clone(),
            ca_file: self.sealing_key_vault_cafile.clone(),
            namespace: self.sealing_key_vault_namespace.clone(),
        }))
    }
}

/// AWS KMS, which wraps the sealing keys.
#[derive(Clone, Debug, Args)]
pub(crate) struct SealingKeyKmsOptions {
    /// Key of AWS KMS that wraps the sealing keys: its id, its ARN, or an alias such as `alias/stoa`. A line `aws-kms:…`
    /// of the file with the keys is the CiphertextBlob of `aws kms encrypt --encryption-context
    /// purpose=stoa-sealing-key`. Default: none, and no line may be wrapped
    #[arg(long, value_name = "KEY", conflicts_with = "sealing_key_vault_server")]
    pub(crate) sealing_key_kms_key: Option<String>,
    /// Region of that key; default: that of the ARN, or else AWS_REGION or AWS_DEFAULT_REGION
    #[arg(long, value_name = "REGION", requires = "sealing_key_kms_key")]
    pub(crate) sealing_key_kms_region: Option<String>,
    /// URL of the service: https, or http of a loopback address; default: that of the region
    #[arg(long, value_name = "URL", requires = "sealing_key_kms_key")]
    pub(crate) sealing_key_kms_endpoint: Option<String>,
    /// Shared credentials file of AWS, read at each use. The credentials need kms:Encrypt and kms:Decrypt for the key.
    /// Default: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or else AWS_SHARED_CREDENTIALS_FILE
    #[arg(long, value_name = "FILE", requires = "sealing_key_kms_key")]
    pub(crate) sealing_key_kms_credentials_file: Option<PathBuf>,
    /// Profile in that file; default: AWS_PROFILE, or else `default`
    #[arg(long, value_name = "NAME", requires = "sealing_key_kms_key")]
    pub(crate) sealing_key_kms_profile: Option<String>,
    /// Certificate authorities of the service, PEM; default: those of the system
    #[arg(long, value_name = "FILE", requires = "sealing_key_kms_key")]
    pub(crate) sealing_key_kms_cafile: Option<PathBuf>,
}

impl SealingKeyKmsOptions {
    fn kms(&self, variable: Variable<'_>) -> anyhow::Result<Option<Kms>> {
        let Some(key) = &self.sealing_key_kms_key else { return Ok(None) };
        // arn:aws:kms:REGION:ACCOUNT:key/ID
        let of_arn = key.strip_prefix("arn:").and_then(|arn| arn.split(':').nth(2)).map(str::to_owned);
        let region = self.sealing_key_kms_region.clone().or(of_arn);
        let region = region.or_else(|| variable("AWS_REGION")).or_else(|| variable("AWS_DEFAULT_REGION"));
        let region = region.context("the region of AWS KMS is unknown; set --sealing-key-kms-region")?;
        if let Some(url) = &self.sealing_key_kms_endpoint {
            check_is_private("--sealing-key-kms-endpoint", url)?;
        }
        Ok(Some(Kms {
            key: key.clone(),
            region,
            endpoint: self.sealing_key_kms_endpoint.clone(),
            credentials: self.credentials(variable)?,
            ca_file: self.sealing_key_kms_cafile.clone(),
        }))
    }

    fn credentials(&self, variable: Variable<'_>) -> anyhow::Result<AwsCredentials> {
        let file = |path: PathBuf| {
            let profile = self.sealing_key_kms_profile.clone().or_else(|| variable("AWS_PROFILE"));
            AwsCredentials::File { path, profile: profile.unwrap_or_else(|| "default".to_owned()) }
        };
        if let Some(path) = &self.sealing_key_kms_credentials_file {
            return Ok(file(path.clone()));
        }
        match (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) {
            (Some(id), Some(secret)) => {
                Ok(AwsCredentials::Keys(AwsKeys { id, secret, session_token: variable("AWS_SESSION_TOKEN") }))
            }
            (None, None) => {
                let path = variable("AWS_SHARED_CREDENTIALS_FILE").context(
                    "AWS KMS has no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, \
                     or --sealing-key-kms-credentials-file",
                )?;
                Ok(file(path.into()))
            }
            (Some(_), None) => bail!("AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY; set both"),
            (None, Some(_)) => bail!("AWS_SECRET_ACCESS_KEY is set without AWS_ACCESS_KEY_ID; set both"),
        }
    }
}

/// Gives variables of the environment; an empty one counts as absent.
type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Checks that a URL is encrypted, or leads to this machine.
fn check_is_private(flag: &str, url: &str) -> anyhow::Result<()> {
    let uri: Option<http::Uri> = url.parse().ok();
    let host = uri.as_ref().and_then(http::Uri::host).unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_loopback = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    let scheme = uri.as_ref().and_then(http::Uri::scheme_str);
    anyhow::ensure!(
        scheme == Some("https") || (scheme == Some("http") && is_loopback),
        "{flag} must be an https URL; http is for loopback addresses alone"
    );
    Ok(())
}

impl StorageOptions {
    /// The service that wraps the sealing keys, if there is one.
    ///
    /// # Errors
    ///
    /// Names the flag or the variable that is missing or has a wrong value.
    pub(crate) fn wrapper(&self) -> anyhow::Result<Option<Wrapper>> {
        self.wrapper_of(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn wrapper_of(&self, variable: Variable<'_>) -> anyhow::Result<Option<Wrapper>> {
        let transit = self.sealing_key_vault.transit()?.map(Wrapper::Transit);
        Ok(transit.or(self.sealing_key_kms.kms(variable)?.map(Wrapper::Kms)))
    }

    /// The etcd of the log, if there is one.
    pub(crate) fn etcd(&self) -> Option<EtcdSettings> {
        let client = self.etcd_certfile.clone().zip(self.etcd_keyfile.clone());
        let tls = TlsFiles { ca: self.etcd_cafile.clone(), client };
        let (servers, prefix) = (self.etcd_servers.clone(), self.etcd_prefix.clone());
        (!servers.is_empty()).then_some(EtcdSettings { servers, prefix, tls })
    }
}

/// How far back watches begin, and pages go on.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct HistoryOptions {
    /// Changes of all kinds that the history keeps for watches and pages; each kind has a tenth of them in memory
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..))]
    pub(crate) history_records: u32,
    /// Seconds that the history keeps each change at least, unless it takes more than 256 MiB of memory
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) history_seconds: u32,
}

impl HistoryOptions {
    /// At least so many records are kept.
    pub(crate) fn records(&self) -> u64 {
        self.history_records.into()
    }

    /// And those of so long ago.
    pub(crate) fn age(&self) -> Duration {
        Duration::from_secs(self.history_seconds.into())
    }

    /// What the watch cache of a kind keeps in memory.
    pub(crate) fn window(&self) -> Window {
        let events = usize::try_from(self.history_records / 10).unwrap_or(usize::MAX);
        Window { events, age: self.age(), ..Window::default() }
    }
}

/// The remote of record of the control repository.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct GitRemoteOptions {
    /// Git repository with the control repository's main (https://, http://, ssh://, user@host:path or file://),
    /// without a password; the local repository is then a copy. Default: the local repository is the only one
    #[arg(long)]
    pub(crate) git_remote: Option<String>,
    /// Directory with its credentials in files that are named as keys of Secrets: username and password or token,
    /// ssh-privatekey and known_hosts, ca.crt; read at each use
    #[arg(long, requires = "git_remote")]
    pub(crate) git_remote_credentials_dir: Option<PathBuf>,
    /// Interval of polls for pushed commits, in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) git_remote_poll_seconds: u64,
    /// Pause after each push of the server, in seconds, so that users can push between its writes
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) git_remote_pace_seconds: u64,
    /// Seconds of an outage before organizations report it
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) git_remote_patience_seconds: u64,
}

impl GitRemoteOptions {
    /// What the projection has to know of it, if there is one.
    ///
    /// # Errors
    ///
    /// When the URL is none of a remote. This is not left to clap, which would tell the URL and a password in it.
    pub(crate) fn remote(&self) -> anyhow::Result<Option<RemoteOptions>> {
        // Files and Secrets that have it often end in a new line.
        let Some(url) = self.git_remote.as_deref().map(str::trim) else { return Ok(None) };
        check_remote(url).map_err(|complaint| anyhow::anyhow!("--git-remote: {complaint}"))?;
        Ok(Some(RemoteOptions {
            credentials: self.git_remote_credentials_dir.clone(),
            poll: Duration::from_secs(self.git_remote_poll_seconds),
            pace: Duration::from_secs(self.git_remote_pace_seconds),
            ..RemoteOptions::new(url)
        }))
    }

    /// How long it may be away before organizations are told.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(self.git_remote_patience_seconds)
    }
}

/// Checks the URL of a remote. What is wrong with one that holds a password is told without it.
fn check_remote(url: &str) -> Result<(), String> {
    if let Some((scheme, _)) = url.split_once("://") {
        if !["https", "http", "ssh", "file"].contains(&scheme) {
            return Err("the URL has to begin with https://, http://, ssh:// or file://".to_owned());
        }
        if holds_credentials(url) {
            return Err("credentials do not belong into the URL; see --git-remote-credentials-dir".to_owned());
        }
        return Ok(());
    }
    let is_ssh = url.split_once(':').is_some_and(|(host, path)| host.contains('@') && !path.is_empty());
    if is_ssh || url.starts_with('/') { Ok(()) } else { Err("this is no URL of a Git repository".to_owned()) }
}

/// How to reach the function-runners.
#[derive(Debug, Args)]
pub(crate) struct RunnerOptions {
    /// Address of a function-runner, such as https://localhost:7443; repeatable. A name can resolve to several
    /// addresses, as that of a headless Service does. Their certificates are for the name
    #[arg(long = "runner", required = true, value_name = "URL")]
    pub(crate) runner_addresses: Vec<String>,
    /// Certificate authorities of function-runners, PEM; reloaded after a change
    #[arg(long)]
    pub(crate) runner_ca: PathBuf,
    /// Client certificate for function-runners, PEM; reloaded after a change
    #[arg(long)]
    pub(crate) runner_cert: PathBuf,
    /// Private key of that certificate, PEM
    #[arg(long)]
    pub(crate) runner_key: PathBuf,
}

/// The external schedulers of fleets.
#[derive(Debug, Clone, Args)]
pub(crate) struct SchedulerOptions {
    /// External scheduler of fleets: the name for SchedulingPolicies, and its address, such as
    /// ocm=https://ocm-scheduler:7443; repeatable. Only an address on loopback can begin with http://. The
    /// server shows its certificate for function-runners
    #[arg(long = "scheduler", value_name = "NAME=URL", value_parser = scheduler)]
    pub(crate) schedulers: Vec<(String, Uri)>,
    /// Certificate authorities of external schedulers, PEM; default: those of function-runners. Read for each new
    /// connection
    #[arg(long, value_name = "FILE", requires = "schedulers")]
    pub(crate) scheduler_ca: Option<PathBuf>,
}

impl SchedulerOptions {
    /// The addresses by name.
    ///
    /// # Errors
    ///
    /// When two have one name.
    pub(crate) fn addresses(&self) -> anyhow::Result<BTreeMap<String, Uri>> {
        let mut addresses = BTreeMap::new();
        for (name, uri) in &self.schedulers {
            let is_new = addresses.insert(name.clone(), uri.clone()).is_none();
            anyhow::ensure!(is_new, "--scheduler {name} has two addresses; give one of them another name");
        }
        Ok(addresses)
    }
}

/// Reads the name and the address of an external scheduler.
fn scheduler(text: &str) -> Result<(String, Uri), String> {
    let (name, url) = text.split_once('=').ok_or("the form is NAME=URL")?;
    if let Some(why) = content::dns_label(name).first() {
        return Err(format!("the name {name:?} is invalid: {why}"));
    }
    let uri: Uri = url.parse().map_err(|error| format!("scheduler {name} has no URL: {error}"))?;
    let host = uri.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_loopback = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    match uri.scheme_str() {
        Some("https") => {}
        Some("http") if is_loopback => {}
        _ => return Err(format!("the URL of scheduler {name} must begin with https://")),
    }
    let has_rest = !matches!(uri.path(), "" | "/") || uri.query().is_some();
    if has_rest || uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(format!("the URL of scheduler {name} must have a host and a port only"));
    }
    Ok((name.to_owned(), uri))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiling_is_on_unless_it_is_switched_off() {
        let profiling = |flags: &[&str]| {
            let all = [&["stoa-apiserver", "standalone", "--data-dir=x"], flags].concat();
            let profiling = |options: Options| match options.command {
                Command::Serve(options) => options.server.features.profiling,
                Command::Standalone(options) => options.features.profiling,
            };
            Options::try_parse_from(all).map(profiling).map_err(|error| error.kind())
        };
        assert_eq!(profiling(&[]), Ok(true));
        assert_eq!(profiling(&["--profiling"]), Ok(true));
        assert_eq!(profiling(&["--profiling=false"]), Ok(false));
        assert_eq!(profiling(&["--profiling=no"]), Err(clap::error::ErrorKind::InvalidValue));
    }

    #[test]
    fn schedulers_are_named_addresses() {
        let parse = |flags: &[&str]| {
            let all = [&["stoa-apiserver", "standalone", "--data-dir=x"], flags].concat();
            let Command::Standalone(options) = Options::try_parse_from(all)?.command else { unreachable!("it is") };
            options.schedulers.addresses()
        };
        assert_eq!(parse(&[]).unwrap(), BTreeMap::new());
        let addresses =
            parse(&["--scheduler=ocm=https://ocm.svc:7444", "--scheduler=mine=http://127.0.0.1:7"]).unwrap();
        assert_eq!(addresses.keys().collect::<Vec<_>>(), ["mine", "ocm"]);
        assert_eq!(addresses["ocm"].host(), Some("ocm.svc"));
        parse(&["--scheduler=ocm=http://[::1]:7", "--scheduler-ca=ca.pem"]).unwrap();
        for (wrong, why) in [
            ("ocm", "NAME=URL"),
            ("OCM=https://ocm.svc", "is invalid"),
            ("ocm=http://ocm.svc", "https://"),
            ("ocm=ocm.svc:7444", "https://"),
            ("ocm=https://ocm.svc/path", "a host and a port only"),
            ("ocm=https://ann@ocm.svc", "a host and a port only"),
        ] {
            let message = format!("{:#}", parse(&[&format!("--scheduler={wrong}")]).unwrap_err());
            assert!(message.contains(why), "{message}");
        }
        let twice = parse(&["--scheduler=ocm=https://a", "--scheduler=ocm=https://b"]).unwrap_err();
        assert!(twice.to_string().contains("two addresses"), "{twice}");
        assert!(parse(&["--scheduler-ca=ca.pem"]).is_err(), "no scheduler has it");
    }

    #[test]
    fn lease_option_sets_run_lease_seconds() {
        let parse = |flags: &[&str]| {
            let all = [&["stoa-apiserver", "standalone", "--data-dir=x"], flags].concat();
            Options::try_parse_from(all).map(|options| {
                let Command::Standalone(options) = options.command else { unreachable!("it is") };
                options.runs.lease().as_secs()
            })
        };
        assert_eq!(parse(&[]).unwrap(), 30);
        assert_eq!(parse(&["--run-lease-seconds=60"]).unwrap(), 60);
        for wrong in ["9", "601", "0", "30s"] {
            assert!(parse(&[&format!("--run-lease-seconds={wrong}")]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn history_is_as_long_as_is_said() {
        let parse = |flags: &[&str]| {
            let all = [&["stoa-apiserver", "standalone", "--data-dir=x"], flags].concat();
            Options::try_parse_from(all).map(|options| {
                let Command::Standalone(options) = options.command else { unreachable!("it is") };
                let history = options.storage.history;
                (history.records(), history.window().events, history.age().as_secs())
            })
        };
        let usual = Window::default();
        assert_eq!(parse(&[]).unwrap(), (100_000, usual.events, usual.age.as_secs()));
        assert_eq!(parse(&["--history-records=500", "--history-seconds=7"]).unwrap(), (500, 50, 7));
        assert!(parse(&["--history-records=99"]).is_err() && parse(&["--history-seconds=0"]).is_err());
    }

    #[test]
    fn one_service_wraps_sealing_keys() {
        let wrapper = |flags: &[&str], variables: &[(&str, &str)]| {
            let all = [&["stoa-apiserver", "standalone", "--data-dir=x"], flags].concat();
            let Command::Standalone(options) = Options::try_parse_from(all)?.command else { unreachable!("it is") };
            options.storage.wrapper_of(&|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let kms = |flags: &[&str], variables: &[(&str, &str)]| match wrapper(flags, variables) {
            Ok(Some(Wrapper::Kms(kms))) => kms,
            other => panic!("{other:?}"),
        };
        let error =
            |flags: &[&str], variables: &[(&str, &str)]| format!("{:#}", wrapper(flags, variables).unwrap_err());
        let (key, region) = ("--sealing-key-kms-key=alias/stoa", "--sealing-key-kms-region=eu-central-1");
        let vault = ["--sealing-key-vault-server=https://vault.example.com", "--sealing-key-vault-token-file=t"];
        let keys = [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", "hunter2")];

        assert_eq!(wrapper(&[], &keys).unwrap(), None);
        assert!(matches!(wrapper(&vault, &keys), Ok(Some(Wrapper::Transit(_)))));
        let message = error(&[&vault[..], &[key, region]].concat(), &keys);
        assert!(message.contains("--sealing-key-kms-key") && message.contains("cannot be used with"), "{message}");
        assert!(error(&[region], &keys).contains("--sealing-key-kms-key"));
        assert!(error(&[key], &keys).contains("--sealing-key-kms-region"));
        assert!(error(&[key, region], &[]).contains("--sealing-key-kms-credentials-file"));
        let message = error(&[key, region], &keys[1..]);
        assert!(message.contains("AWS_ACCESS_KEY_ID; set both") && !message.contains("hunter2"), "{message}");
        let endpoint = "--sealing-key-kms-endpoint=http://kms.example.com";
        assert!(error(&[key, region, endpoint], &keys).contains("must be an https URL"));

        let of_keys = kms(&[key, region], &keys);
        assert!(matches!(&of_keys.credentials, AwsCredentials::Keys(keys) if keys.secret == "hunter2"), "{of_keys:?}");
        assert!(!format!("{of_keys:?}").contains("hunter2"));
        let arn = "--sealing-key-kms-key=arn:aws:kms:us-east-2:111122223333:key/1234abcd";
        assert_eq!(kms(&[arn], &keys).region, "us-east-2");
        let variables = [("AWS_REGION", "us-west-1"), ("AWS_SHARED_CREDENTIALS_FILE", "y"), ("AWS_PROFILE", "stoa")];
        let of_variables = kms(&[key], &variables);
        assert_eq!(of_variables.region, "us-west-1");
        let file = |path: &str, profile: &str| AwsCredentials::File { path: path.into(), profile: profile.to_owned() };
        assert_eq!(of_variables.credentials, file("y", "stoa"));
        let flag = "--sealing-key-kms-credentials-file=z";
        assert_eq!(kms(&[key, region, flag], &keys).credentials, file("z", "default"), "the flag is stronger");
    }

    #[test]
    fn a_remote_is_a_url_without_a_password() {
        for url in [
            "https://git.example.com/platform/control.git",
            "http://git.example.com/platform/control.git",
            "ssh://git@git.example.com:2222/control.git",
            "git@git.example.com:platform/control.git",
            "file:///srv/control.git",
            "/srv/control.git",
        ] {
            assert_eq!(check_remote(url), Ok(()));
        }
        let parse = |arguments: &[&str]| {
            let all = [&["stoa-apiserver", "standalone", "--data-dir=x"], arguments].concat();
            let Command::Standalone(options) = Options::try_parse_from(all)?.command else { unreachable!("it is") };
            let git = options.storage.git;
            let seconds =
                |remote: &RemoteOptions| [remote.poll, remote.pace, git.patience()].map(|time| time.as_secs());
            anyhow::Ok(git.remote()?.map(|remote| (seconds(&remote), remote.url)))
        };
        assert_eq!(parse(&[]).unwrap(), None);
        for (url, why) in [
            ("https://bot:hunter2@git.example.com/x", "--git-remote-credentials-dir"),
            ("https://hunter2@git.example.com/x", "--git-remote-credentials-dir"),
            ("https://git.example.com/x?token=hunter2", "--git-remote-credentials-dir"),
            ("bot:hunter2://x/y", "http://"),
            ("git://hunter2@x/y", "http://"),
            ("hunter2", "no URL"),
            ("", "no URL"),
        ] {
            let told = format!("{:#}", parse(&[&format!("--git-remote={url}")]).unwrap_err());
            assert!(told.contains(why) && !told.contains("hunter2"), "{told}");
        }
        assert!(parse(&["--git-remote-credentials-dir=z"]).is_err());
        let url = "--git-remote=file:///x";
        assert_eq!(parse(&[url]).unwrap(), Some(([10, 5, 30], "file:///x".to_owned())));
        let times = ["--git-remote-poll-seconds=3", "--git-remote-pace-seconds=2", "--git-remote-patience-seconds=7"];
        let remote = parse(&[&[url], &times[..]].concat()).unwrap();
        assert_eq!(remote, Some(([3, 2, 7], "file:///x".to_owned())));
    }
}
