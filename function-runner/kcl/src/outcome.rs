//! The outcome of a program: its result, or the reasons why there is none.

use crate::value::Value;

/// The codes of problems that KCL's library does not report. Its own are such as `E2L23`.
pub mod code {
    /// An entry or package does not exist.
    pub const MISSING: &str = "Missing";
    /// The value of an option has the wrong type.
    pub const OPTION: &str = "Option";
    /// The program exports nothing.
    pub const EMPTY: &str = "EmptyResult";
    /// A placeholder survives to the result.
    pub const NO_VALUE: &str = "NoValue";
    /// An integer literal has more than 64 bits.
    pub const LITERAL: &str = "IntegerLiteral";
    /// The result differs from run to run.
    pub const VOLATILE: &str = "Volatile";
    /// A stream replaces other results.
    pub const STREAM: &str = "Stream";
    /// The library broke its interface.
    pub const LIBRARY: &str = "Library";
}

/// The result of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The value of all exported names, or the documents of a stream.
    pub documents: Vec<Value>,
    /// The lines that the program printed.
    pub log: String,
    /// Surprising parts of the result.
    pub warnings: Vec<Problem>,
    /// The sources, with paths from the root: the entries, and what they import.
    pub files: Vec<String>,
    /// The names that the entries set at the beginning of a line, in order.
    pub exports: Vec<Export>,
    /// The options that a source reads with a default, in the order of [`files`](Self::files).
    pub defaults: Vec<Export>,
    /// Whether the program reads a clock or draws random numbers, so that another run may give another result.
    pub is_volatile: bool,
}

/// A name that an entry sets, or an option with a default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The name.
    pub name: String,
    /// The path of the source from the root.
    pub file: String,
    /// The line from 1 on.
    pub line: u32,
}

/// A problem of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// A code of KCL's, or one of [`code`].
    pub code: String,
    /// The sentence.
    pub message: String,
    /// The path of the file from the root, or nothing.
    pub file: String,
    /// The line from 1 on; 0 if unknown.
    pub line: u32,
    /// The column from 1 on; 0 if unknown.
    pub column: u32,
}

impl Problem {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), ..Self::default() }
    }

    pub(crate) fn in_file(self, file: &str) -> Self {
        Self { file: file.to_owned(), ..self }
    }

    pub(crate) fn at(self, line: u32, column: u32) -> Self {
        Self { line, column, ..self }
    }
}

/// Why a program has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program is wrong: at least one problem.
    #[error("the program is wrong: {}", .0.first().map(|problem| problem.message.as_str()).unwrap_or_default())]
    Program(Vec<Problem>),
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self::Program(vec![problem])
    }
}
