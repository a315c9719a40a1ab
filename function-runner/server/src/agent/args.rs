//! The command line of `function-runner agent`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

use crate::args::LogFormat;

/// The command that makes this binary an agent.
const COMMAND: &str = "agent";

/// Reports the deployments of a cluster's Flux and Argo CD to the hub of Stoa.
///
/// The agent watches Kustomizations, HelmReleases and Applications. It reports those for which the hub has a Reconciler with the
/// host of this cluster.
#[derive(Clone, Debug, Parser)]
#[command(name = "function-runner agent", version)]
pub(crate) struct AgentArgs {
    /// Host of this cluster: `spec.hostName` of its Reconcilers in the hub
    #[arg(long, value_name = "NAME")]
    pub(super) host: String,

    /// Namespace of the Reconcilers in the hub
    #[arg(long, value_name = "NAMESPACE")]
    pub(super) namespace: String,

    /// Kubeconfig of the hub, for an account that can list Reconcilers and create DeploymentReports
    #[arg(long, value_name = "FILE")]
    pub(super) hub_kubeconfig: PathBuf,

    /// Kubeconfig of the cluster; default: the pod's service account
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// File for the deployments that the hub does not have yet. They survive a restart with it
    #[arg(long, value_name = "FILE")]
    pub(super) queue_file: PathBuf,

    /// Deployments in that file; the agent drops the oldest beyond it
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) queue_deployments: u32,

    /// Interval to report unchanged deployments, and to find new Reconcilers, in seconds
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(10..=86_400))]
    pub(super) heartbeat_seconds: u32,

    /// Address that serves /metrics over HTTP; default: none
    #[arg(long, value_name = "ADDRESS")]
    pub(super) metrics_listen: Option<SocketAddr>,

    /// Form of log lines on standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,

    /// Log filter, such as `info` or `info,function_runner=debug`
    #[arg(long, default_value = "info", value_name = "FILTER")]
    pub(crate) log: String,
}

/// Parses the command line, if it is an agent's.
pub(crate) fn arguments() -> Option<AgentArgs> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let is_agent = arguments.peek().is_some_and(|first| first == COMMAND);
    // The command takes the position of the program's name.
    is_agent.then(|| AgentArgs::parse_from(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_parses_its_command_line() {
        let flags =
            ["agent", "--host=drone-1", "--namespace=drones", "--hub-kubeconfig=/hub", "--queue-file=/queue.json"];
        let args = AgentArgs::try_parse_from(flags).unwrap();
        assert_eq!((args.host.as_str(), args.namespace.as_str()), ("drone-1", "drones"));
        assert_eq!((args.kubeconfig, args.queue_deployments, args.heartbeat_seconds), (None, 10_000, 300));
        assert_eq!(args.metrics_listen, None);
        AgentArgs::try_parse_from(&flags[..3]).unwrap_err();
        AgentArgs::try_parse_from(flags.iter().chain([&"--heartbeat-seconds=1"])).unwrap_err();
    }
}
