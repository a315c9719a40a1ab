//! The logic behind the scripts in `hack/`.
//!
//! Results go to stdout, for scripts; what people follow along goes to stderr.
#![expect(clippy::print_stdout, reason = "printing results is what these commands are for")]

mod binaries;
mod checks;
mod cluster;
mod conformance;
mod coverage;
mod function_worker;
mod kcl;
mod kubectl;
mod paths;
mod ports;
mod process;
mod prose;
mod quickstart;
mod renderer;
mod run_test;
mod schemas;
mod soak;
mod sources;
mod walls;

use std::process::ExitCode;

use clap::Parser;

/// Repository chores; the scripts in hack/ call these.
#[derive(Debug, Parser)]
enum Command {
    /// A real Kubernetes control plane on loopback
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// From a clone to a first rollout
    Quickstart(quickstart::Quickstart),
    /// The same questions to Go's API server and to ours
    Conformance(conformance::Conformance),
    /// The checks of a change
    Test(checks::Checks),
    /// The tests of faults, again and again
    Soak(soak::Soak),
    /// One program of tests, for Cargo
    #[command(hide = true)]
    RunTest(run_test::RunTest),
    /// The schemas of Kubernetes' own kinds in engine/schemas/data, and of readers of a fleet's files in engine/fleet/data
    Schemas,
    /// The programs of Terraform's providers for tests, which are built first where they are missing
    TerraformProviders,
    /// The program that builds kustomizations and charts, which is built first where it is missing
    Renderer,
    /// The program of Gitea and the folder of its files, as KEY=value lines; it is built first where it is missing
    Gitea,
    /// Downloads KCL's library, if it is not there, and prints its path
    Kcl,
    /// Whether docs/coverage.md names tests that exist
    CheckCoverage,
    /// Commit titles, the width of Markdown, the words of names and docs
    Prose(prose::Prose),
    /// Whether the modules of stoa-apiserver import only what they may
    Walls,
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Cluster(command) => cluster::run(&command),
        Command::Quickstart(args) => quickstart::run(&args),
        Command::Conformance(args) => conformance::run(&args),
        Command::Test(args) => checks::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::RunTest(args) => run_test::run(&args),
        Command::Schemas => schemas::generate(),
        Command::TerraformProviders => checks::print_terraform_providers(),
        Command::Kcl => kcl::wheel().map(|path| path.into_iter().for_each(|path| println!("{}", path.display()))),
        Command::Renderer => renderer::binary().map(|path| println!("{}", path.display())),
        Command::Gitea => checks::print_gitea(),
        Command::CheckCoverage => coverage::check(),
        Command::Prose(args) => prose::run(&args),
        Command::Walls => walls::check(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
