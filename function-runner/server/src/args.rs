//! What the command line says.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Fetches sources, generates, plans and applies for a stoa-apiserver, over gRPC with mutual TLS.
#[derive(Clone, Debug, Parser)]
#[command(name = "function-runner", version)]
pub(crate) struct Args {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS:PORT")]
    pub(crate) listen: SocketAddr,

    /// File to write the bound address to, once calls are accepted
    #[arg(long, value_name = "FILE")]
    pub(crate) address_file: Option<PathBuf>,

    /// Certificate chain to serve with, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: PathBuf,

    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: PathBuf,

    /// Certificate authority whose clients are let in, PEM; nobody else is
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca: PathBuf,

    /// Directory for fetched sources; it may be emptied at any time between runs
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) cache_dir: PathBuf,

    /// Kubeconfig for clusters marked `inCluster`; by default the pod's service account
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Resources that one run works on at once, when the caller does not say
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) parallelism: u32,

    /// Calls that are worked on at once; others are refused as busy, and the caller tries again
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_calls: u32,

    /// Loopback address that serves /metrics over plain HTTP; none by default
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) metrics_listen: Option<SocketAddr>,

    /// End when standard input closes, as it does when the process that started this one ends
    #[arg(long)]
    pub(crate) exit_on_stdin_close: bool,

    /// How to write logs, which go to standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,

    /// Which events to log, such as `info` or `info,function_runner=debug`
    #[arg(long, default_value = "info", value_name = "FILTER")]
    pub(crate) log: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line for people
    Text,
    /// One JSON object a line
    Json,
}

impl Args {
    /// Finds what clap cannot know to be wrong.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if let Some(address) = self.metrics_listen {
            anyhow::ensure!(address.ip().is_loopback(), "--metrics-listen {address} is not a loopback address");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn metrics_stay_on_the_machine() {
        let args = |address: &str| {
            let common = ["function-runner", "--tls-cert=a", "--tls-key=b", "--client-ca=c", "--cache-dir=d"];
            Args::parse_from(common.into_iter().chain(["--metrics-listen", address])).check()
        };
        args("127.0.0.1:9000").unwrap();
        args("0.0.0.0:9000").unwrap_err();
    }
}
