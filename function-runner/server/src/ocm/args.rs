//! The command line of `function-runner ocm-scheduler`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

use crate::args::LogFormat;

/// The command that makes this binary a scheduler.
const COMMAND: &str = "ocm-scheduler";

/// Decides about SchedulingPolicies by the PlacementDecisions of Open Cluster Management, over gRPC with mutual TLS.
///
/// The scheduler watches PlacementDecisions and ManagedClusters of one cluster, and writes nothing. The API server calls it
/// by its flag --scheduler.
#[derive(Clone, Debug, Parser)]
#[command(name = "function-runner ocm-scheduler", version)]
pub(crate) struct OcmArgs {
    /// Address to listen on; port 0 is a free port
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS:PORT")]
    pub(super) listen: SocketAddr,

    /// File that receives the bound address once the scheduler accepts calls
    #[arg(long, value_name = "FILE")]
    pub(super) address_file: Option<PathBuf>,

    /// Serving certificate chain, PEM; reloaded after a change
    #[arg(long, value_name = "FILE")]
    pub(super) tls_cert: PathBuf,

    /// Private key of the serving certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub(super) tls_key: PathBuf,

    /// Certificate authorities of clients, PEM; no other client has access. Reloaded after a change
    #[arg(long, value_name = "FILE")]
    pub(super) client_ca: PathBuf,

    /// Kubeconfig of the cluster with the Placements; default: the pod's service account
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// Namespace whose Placements the policies of all environments can name; repeatable. A policy can always name the
    /// Placements of the namespace with the name of its environment
    #[arg(long = "shared-namespace", value_name = "NAMESPACE")]
    pub(super) shared_namespaces: Vec<String>,

    /// Address that serves gRPC health without TLS (grpc.health.v1), for the kubelet's probes; default: none
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) health_listen: Option<SocketAddr>,

    /// Form of log lines on standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,

    /// Log filter, such as `info` or `info,function_runner=debug`
    #[arg(long, default_value = "info", value_name = "FILTER")]
    pub(crate) log: String,
}

/// Parses the command line, if it is that of a scheduler.
pub(crate) fn arguments() -> Option<OcmArgs> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let is_scheduler = arguments.peek().is_some_and(|first| first == COMMAND);
    // The command takes the position of the program's name.
    is_scheduler.then(|| OcmArgs::parse_from(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduler_parses_its_command_line() {
        let flags = ["ocm-scheduler", "--tls-cert=/crt", "--tls-key=/key", "--client-ca=/ca"];
        let args = OcmArgs::try_parse_from(flags).unwrap();
        assert_eq!((args.listen.port(), args.kubeconfig, args.shared_namespaces.len()), (0, None, 0));
        let shared = ["--shared-namespace=a", "--shared-namespace=b"];
        let args = OcmArgs::try_parse_from(flags.iter().chain(&shared)).unwrap();
        assert_eq!(args.shared_namespaces, ["a", "b"]);
        OcmArgs::try_parse_from(&flags[..3]).unwrap_err();
    }
}
