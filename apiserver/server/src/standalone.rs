//! The server alone on one machine: its own certificates, its own function-runner, loopback only.
//!
//! Data directory: `log/`, `control.git`, `documents/`, `pki/`, `runner/`, `secure-port` and `kubeconfig`.

mod certificates;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use stoa_kinds::{cluster::standalone::StandaloneCluster, lookup::Lookup};
use stoa_machinery::{
    admission,
    auth::{self, AnyOf, Authorizer, BasicUser, ClientCertificates, DynamicCa, MastersOnly, Union},
    metrics::Families,
    serve::{Limits, ServingCertificate},
};
use stoa_runs::runner::{RunnerCertificates, RunnerSettings};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use self::certificates::{Certificates, RUNNER, RUNNER_AUTHORITY, RUNNER_CLIENT, SERVING};
use crate::{
    options::StandaloneOptions,
    server::{self, Namespaces, Parts},
};

/// How long after its end the function-runner is started again.
const RESTART: Duration = Duration::from_millis(500);

/// Runs the server until a signal to end.
pub(crate) async fn run(options: StandaloneOptions) -> anyhow::Result<()> {
    let data_dir = std::path::absolute(&options.data_dir)?;
    fs::create_dir_all(&data_dir).with_context(|| format!("{} cannot be made", data_dir.display()))?;
    // What is in it is the owner's alone: values of Secrets, keys, the kubeconfig.
    fs::set_permissions(&data_dir, fs::Permissions::from_mode(0o700))?;
    let certificates = Arc::new(Certificates::issue(&data_dir)?);
    let serving =
        Arc::new(ServingCertificate::from_files(certificates.certificate(SERVING), certificates.key(SERVING))?);
    let runner_port = free_port(&data_dir.join("runner-port"), None)?;
    let secure_port = free_port(&data_dir.join("secure-port"), options.secure_port)?;

    let end = CancellationToken::new();
    let _guard = end.clone().drop_guard();
    let runner = RunnerProcess::new(&options, &data_dir, &certificates, runner_port)?;
    let supervisor = tokio::spawn(runner.supervise(end.clone()));

    let client_ca = Arc::new(DynamicCa::new("client CA"));
    client_ca.set(certificates.client_authority())?;
    let known = AnyOf::new(vec![Arc::new(BasicUser), Arc::new(MastersOnly)]);
    let authorizer: Arc<dyn Authorizer> = Arc::new(AnyOf::delegating(Arc::new(known)));
    let metrics = Families::default();
    let certificates_of_clients = ClientCertificates::new(client_ca).counted(&auth::Metrics::new(&metrics)?);
    let lookup = Lookup::default();
    let parts = Parts {
        data_dir: data_dir.clone(),
        storage: options.storage.clone(),
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, secure_port)),
        runs: options.runs,
        webhooks: options.webhooks.webhook_port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        limits: Limits { drain_timeout: Duration::from_secs(10), ..Limits::default() },
        profiling: options.features.profiling,
        // What is issued again is taken up right after: the server looks into its own files last.
        certificate: serving,
        reloads: vec![certificates.clone()],
        authenticator: Arc::new(Union::new(vec![Arc::new(certificates_of_clients)])),
        authorizer,
        cluster: Arc::new(StandaloneCluster { lookup: lookup.clone() }),
        lookup,
        namespaces: Namespaces::Own,
        // There is no cluster to configure any; namespaces are looked at in any case.
        admission: admission::Chain::default(),
        audit: None,
        runner: runner_client(&certificates, runner_port),
        schedulers: options.schedulers.clone(),
        metrics,
    };
    let bound = server::bind(parts).await?;
    let server = format!("https://127.0.0.1:{}", bound.address().port());
    certificates.serve_at(server.clone())?;
    tracing::info!(%server, kubeconfig = %data_dir.join("kubeconfig").display(), "serving");
    bound.serve().await?;
    end.cancel();
    supervisor.await?;
    Ok(())
}

/// The port that was asked for, or that of the last start if it is still free, or any.
fn free_port(memory: &Path, wanted: Option<u16>) -> anyhow::Result<u16> {
    let remembered = fs::read_to_string(memory).ok().and_then(|text| text.trim().parse().ok());
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let port = match (wanted, remembered) {
        (Some(port), _) if port != 0 => port,
        (_, Some(port)) if is_free(port) => port,
        _ => TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port(),
    };
    fs::write(memory, port.to_string())?;
    Ok(port)
}

fn runner_client(certificates: &Certificates, port: u16) -> RunnerSettings {
    RunnerSettings {
        addresses: vec![format!("https://localhost:{port}")],
        certificates: RunnerCertificates {
            ca: certificates.certificate(RUNNER_AUTHORITY),
            certificate: certificates.certificate(RUNNER_CLIENT),
            key: certificates.key(RUNNER_CLIENT),
        },
    }
}

/// The function-runner that belongs to this server.
#[derive(Debug)]
struct RunnerProcess {
    binary: PathBuf,
    arguments: Vec<(&'static str, String)>,
}

impl RunnerProcess {
    fn new(
        options: &StandaloneOptions,
        data_dir: &Path,
        certificates: &Certificates,
        port: u16,
    ) -> anyhow::Result<Self> {
        let binary = match &options.runner_binary {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("function-runner"),
        };
        anyhow::ensure!(
            binary.is_file(),
            "{} is not there; name the function-runner with --runner-binary",
            binary.display()
        );
        let path = |path: PathBuf| path.display().to_string();
        let folders = [
            ("--local-repositories", &options.local_repositories),
            ("--provider-mirrors", &options.provider_mirrors),
            ("--provider-directories", &options.provider_directories),
        ];
        let folders = folders
            .into_iter()
            .flat_map(|(flag, folders)| folders.iter().cloned().map(move |folder| (flag, path(folder))));
        let numbers = [
            ("--cache-days", options.cache_days),
            ("--cache-mib", options.cache_mib),
            ("--source-memory-mib", options.source_memory_mib),
            ("--source-timeout-seconds", options.source_timeout_seconds),
        ];
        let numbers = numbers.into_iter().filter_map(|(flag, value)| Some((flag, value?.to_string())));
        let files = [
            ("--renderer", &options.renderer),
            ("--kcl-library", &options.kcl_library),
            ("--kusion-modules", &options.kusion_modules),
            ("--functions", &options.functions),
            ("--function-worker", &options.function_worker),
        ];
        let files = files.into_iter().filter_map(|(flag, file)| Some((flag, path(file.clone()?))));
        let sha256 = options.kcl_library_sha256.iter().map(|sha256| ("--kcl-library-sha256", sha256.clone()));
        let arguments = [
            ("--listen", format!("127.0.0.1:{port}")),
            ("--tls-cert", path(certificates.certificate(RUNNER))),
            ("--tls-key", path(certificates.key(RUNNER))),
            ("--client-ca", path(certificates.certificate(RUNNER_AUTHORITY))),
            ("--cache-dir", path(data_dir.join("runner"))),
        ];
        let arguments = arguments.into_iter().chain(folders).chain(numbers).chain(files).chain(sha256);
        Ok(Self { binary, arguments: arguments.collect() })
    }

    /// Its standard input is held open by this process and closes with it, however it ends; the
    /// runner then ends too.
    fn start(&self) -> std::io::Result<Child> {
        Command::new(&self.binary)
            .args(self.arguments.iter().flat_map(|(flag, value)| [*flag, value.as_str()]))
            .arg("--exit-on-stdin-close")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
    }

    /// Starts it again whenever it ends, until the token does.
    async fn supervise(self, end: CancellationToken) {
        while !end.is_cancelled() {
            match self.start() {
                Err(error) => {
                    tracing::error!(%error, binary = %self.binary.display(), "the function-runner cannot be started")
                }
                Ok(mut child) => {
                    let pid = child.id();
                    tracing::info!(pid, "the function-runner is started");
                    let stdin = child.stdin.take();
                    tokio::select! {
                        ended = child.wait() => tracing::warn!(pid, ?ended, "the function-runner ended; it is started again"),
                        () = end.cancelled() => {
                            drop(stdin);
                            let _ = tokio::time::timeout(Duration::from_secs(10), child.wait()).await;
                            return;
                        }
                    }
                }
            }
            end.run_until_cancelled(tokio::time::sleep(RESTART)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::options::{self, Options};

    /// What the function-runner is told of these flags.
    fn passed_on(flags: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("function-runner");
        fs::write(&binary, "").unwrap();
        let runner = format!("--runner-binary={}", binary.display());
        let all = [&["stoa-apiserver", "standalone", "--data-dir=x", runner.as_str()], flags].concat();
        let options::Command::Standalone(standalone) = Options::try_parse_from(all).unwrap().command else {
            unreachable!("it is")
        };
        let certificates = Certificates::issue(folder.path()).unwrap();
        let process = RunnerProcess::new(&standalone, folder.path(), &certificates, 1).unwrap();
        let known = [
            "--local-repositories",
            "--provider-mirrors",
            "--provider-directories",
            "--cache-days",
            "--cache-mib",
            "--source-memory-mib",
            "--source-timeout-seconds",
            "--renderer",
            "--kcl-library",
            "--kusion-modules",
            "--functions",
            "--function-worker",
            "--kcl-library-sha256",
        ];
        let told = process.arguments.into_iter().filter(|(flag, _)| known.contains(flag));
        told.map(|(flag, value)| format!("{flag}={value}")).collect()
    }

    #[test]
    fn server_passes_runner_options_through() {
        assert_eq!(passed_on(&[]), ["--local-repositories=/", "--provider-mirrors=/"]);
        let said = [
            "--local-repositories=/a",
            "--local-repositories=/b",
            "--provider-mirrors=/c",
            "--provider-directories=/d",
            "--cache-days=3",
            "--cache-mib=9",
            "--source-memory-mib=2048",
            "--source-timeout-seconds=3600",
            "--renderer=/e/stoa-renderer",
            "--kcl-library=/e/kcl_lib.whl",
            "--kusion-modules=/e/modules",
            "--functions=/e/functions.yaml",
            "--function-worker=/e/stoa-function-worker",
            "--kcl-library-sha256=00ff",
        ];
        assert_eq!(passed_on(&said), said);
    }
}
