//! Functions outside of this crate: the call and its answer.

use std::fmt;

/// A program that a function runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program<'f> {
    /// A container image with its registry, and a tag or a digest.
    Image(&'f str),
    /// A command with its arguments, split by the rules of a shell.
    Exec(&'f str),
}

impl fmt::Display for Program<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(name) | Self::Exec(name) => formatter.write_str(name),
        }
    }
}

/// One call of a function.
#[derive(Clone, Copy, Debug)]
pub struct Call<'c> {
    /// The function.
    pub program: Program<'c>,
    /// A `ResourceList` as YAML, for its standard input.
    pub input: &'c [u8],
}

/// The outcome of a function that ran to its end, whether it succeeded or failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Its standard output: a `ResourceList` as YAML or JSON.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: String,
    /// Its exit code; only 0 is a success.
    pub exit_code: i32,
}

/// Runs functions.
///
/// A call takes its time and waits for its end, so callers of [`render`](crate::render::render()) run it on a thread that may
/// wait. A second call with the same input has the same outcome and leaves nothing behind.
pub trait Executor: fmt::Debug + Send + Sync {
    /// Runs one function.
    ///
    /// # Errors
    ///
    /// [`ExecuteError`] when the function did not run to its end. One that failed is an [`Output`].
    fn execute(&self, call: &Call<'_>) -> Result<Output, ExecuteError>;
}

/// Why a function did not run to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecuteError {
    /// No rule permits the image.
    #[error("image {0} is not allowed; ask the platform team to allow it")]
    ImageNotAllowed(String),
    /// No rule permits the command.
    #[error("exec {0:?} is not allowed; use an image, or ask the platform team to allow the program")]
    ExecNotAllowed(String),
    /// There is no such image or program.
    #[error("{0} does not exist; correct the name or the tag")]
    NotFound(String),
    /// The function ran for too long.
    #[error("no answer after {seconds} s; make the function faster or its input smaller")]
    TimedOut {
        /// The limit, in seconds.
        seconds: u64,
    },
    /// The answer is too large.
    #[error("the answer has more than {bytes} bytes; split the package")]
    TooLarge {
        /// The limit, in bytes.
        bytes: usize,
    },
    /// The executor is busy or away. A retry may succeed.
    #[error("the executor is not available: {0}; retry later")]
    Unavailable(String),
    /// The function ended without an exit code.
    #[error("the function crashed: {0}")]
    Crashed(String),
}

/// An executor that allows no function.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoExecutor;

impl Executor for NoExecutor {
    fn execute(&self, call: &Call<'_>) -> Result<Output, ExecuteError> {
        Err(match call.program {
            Program::Image(name) => ExecuteError::ImageNotAllowed(name.to_owned()),
            Program::Exec(command) => ExecuteError::ExecNotAllowed(command.to_owned()),
        })
    }
}
