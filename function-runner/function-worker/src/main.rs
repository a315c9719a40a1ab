//! The program `stoa-function-worker`: runs one function of a package in WebAssembly or Starlark.
//!
//! A function-runner starts it in a sandbox, once for each call. A module is compiled in one process (`wasm::compile`) and runs in
//! others (`wasm::run`). The standard input of a function is a ResourceList, and so is its standard output. The exit code is that of
//! the function. A fault that is no answer of the function, such as a limit, ends the process by a signal, after one line on standard
//! error.

mod starlark_run;
mod wasi;
mod wasm;

use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs one function of a package
#[derive(Debug, Parser)]
#[command(name = "stoa-function-worker", version)]
struct Args {
    #[command(subcommand)]
    work: Work,
}

#[derive(Debug, Subcommand)]
enum Work {
    /// Compiles the module of standard input, and writes the code to standard output
    Compile,
    /// Runs compiled code
    Wasm {
        /// The compiled code
        #[arg(long, value_name = "FILE")]
        code: PathBuf,
        /// The limit of its memory, in bytes
        #[arg(long, value_name = "BYTES")]
        memory: usize,
        /// The number of instructions, about
        #[arg(long)]
        fuel: u64,
    },
    /// Runs the program in `source` of the configuration
    Starlark {
        /// The limit of its memory, in bytes
        #[arg(long, value_name = "BYTES")]
        memory: usize,
    },
}

/// The end of a function that gave no answer.
#[derive(Debug)]
enum Failure {
    /// The function itself failed, or its input is wrong.
    Function(String),
    /// It reached a limit, or broke a rule of its machine.
    Fault(String),
}

fn main() -> ExitCode {
    let done = match Args::parse().work {
        Work::Compile => compile(),
        Work::Wasm { code, memory, fuel } => wasm::run(&code, wasi::Wasi::of_process(memory), fuel).map(ExitCode::from),
        Work::Starlark { memory } => starlark(memory),
    };
    match done {
        Ok(code) => code,
        Err(Failure::Function(message)) => {
            report(&message);
            ExitCode::FAILURE
        }
        Err(Failure::Fault(message)) => {
            report(&message);
            std::process::abort()
        }
    }
}

/// One line on standard error; a closed one has no reader.
fn report(message: &str) {
    let _ = writeln!(io::stderr(), "{message}");
}

fn input() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| Failure::Fault(format!("standard input cannot be read: {error}")))?;
    Ok(bytes)
}

fn output(bytes: &[u8]) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    written.map_err(|error| Failure::Fault(format!("standard output cannot be written: {error}")))?;
    Ok(ExitCode::SUCCESS)
}

fn compile() -> Result<ExitCode, Failure> {
    output(&wasm::compile(&input()?)?)
}

fn starlark(memory: usize) -> Result<ExitCode, Failure> {
    output(starlark_run::run(&input()?, memory)?.as_bytes())
}
