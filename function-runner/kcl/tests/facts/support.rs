//! Cases, and the library that runs them.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::Value as Json;
use stoa_archive::{ArchiveLimits, zip};
use stoa_kcl::{Compiler, Error, Output, Package, Parameter, Problem, Program, Settings, object_in, without_python};
use tempfile::TempDir;

/// A program, and its outcome.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// The first file, if there are none.
    pub(crate) entries: &'static [&'static str],
    pub(crate) packages: &'static [(&'static str, &'static str)],
    pub(crate) options: fn() -> Vec<(&'static str, Json)>,
    pub(crate) settings: fn(&mut Settings),
    pub(crate) expected: Expected,
}

/// An outcome.
pub(crate) enum Expected {
    /// The documents as JSON, with spaces and in order.
    Json(&'static str),
    /// The documents, and a part of the only warning.
    Warned(&'static str, &'static str),
    /// The code, the position, and a part of the message of the first problem.
    Wrong(&'static str, &'static str, &'static str),
}

pub(crate) const CASE: Case = Case {
    name: "",
    files: &[],
    entries: &[],
    packages: &[],
    options: Vec::new,
    settings: |_| {},
    expected: Expected::Json(""),
};

/// A program of one file.
pub(crate) const fn source(
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    expected: Expected,
) -> Case {
    Case { name, files, expected, ..CASE }
}

/// Runs cases, and compares all of them.
pub(crate) fn check(cases: &[Case]) {
    let Some(mut library) = library() else { return };
    let mut wrong = Vec::new();
    for case in cases {
        let found = run(&mut library, case.files, &case.program());
        if let Some(difference) = case.difference(&found) {
            wrong.push(format!("{}: {difference}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

impl Case {
    fn program(&self) -> Program {
        let entries = if self.entries.is_empty() { vec![self.files[0].0] } else { self.entries.to_vec() };
        let mut settings = Settings::default();
        (self.settings)(&mut settings);
        Program {
            entries: entries.into_iter().map(str::to_owned).collect(),
            packages: self
                .packages
                .iter()
                .map(|(name, path)| Package { name: (*name).to_owned(), path: (*path).to_owned() })
                .collect(),
            options: (self.options)().into_iter().map(parameter).collect(),
            settings,
            ..Program::default()
        }
    }

    fn difference(&self, found: &Result<Output, Error>) -> Option<String> {
        let is = |is: bool| (!is).then(|| format!("{found:#?}"));
        match (&self.expected, found) {
            (Expected::Json(json), Ok(output)) => is(shown(output) == *json && output.warnings.is_empty()),
            (Expected::Warned(json, warning), Ok(output)) => match output.warnings.as_slice() {
                [only] => is(shown(output) == *json && sentence(only).contains(warning)),
                _ => is(false),
            },
            (Expected::Wrong(code, position, message), Err(Error::Program(problems))) => {
                let first = problems.first()?;
                let place = format!("{}:{}:{}", first.file, first.line, first.column);
                is(first.code == *code && place == *position && first.message.contains(message))
            }
            _ => is(false),
        }
    }
}

/// All documents as JSON in their order, one a line.
pub(crate) fn shown(output: &Output) -> String {
    output.documents.iter().map(json).collect::<Vec<_>>().join("\n")
}

fn json(value: &stoa_kcl::Value) -> String {
    use stoa_kcl::Value;
    match value {
        Value::List(list) => format!("[{}]", list.iter().map(json).collect::<Vec<_>>().join(", ")),
        Value::Map(map) => {
            let entry = |(key, value): &(String, Value)| format!("{}: {}", Json::from(key.as_str()), json(value));
            format!("{{{}}}", map.0.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        other => Json::from(other.clone()).to_string(),
    }
}

/// The position and the message of a problem.
pub(crate) fn sentence(problem: &Problem) -> String {
    format!("{}:{}:{} {}", problem.file, problem.line, problem.column, problem.message)
}

fn parameter((name, value): (&str, Json)) -> Parameter {
    Parameter { name: name.to_owned(), value, is_common: false, origin: None }
}

/// Runs a program whose files are these.
pub(crate) fn run(library: &mut Compiler, files: &[(&str, &str)], program: &Program) -> Result<Output, Error> {
    let root = written(files);
    library.run(program, root.path())
}

/// Runs the file `main.k`.
pub(crate) fn run_main(library: &mut Compiler, text: &str) -> Result<Output, Error> {
    run(library, &[("main.k", text)], &main_program())
}

pub(crate) fn main_program() -> Program {
    Program { entries: vec!["main.k".to_owned()], ..Program::default() }
}

/// A folder with files.
pub(crate) fn written(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

/// A compiler of this process, which runs one program at a time.
pub(crate) struct Library {
    compiler: Compiler,
    _turn: MutexGuard<'static, ()>,
}

impl std::ops::Deref for Library {
    type Target = Compiler;

    fn deref(&self) -> &Compiler {
        &self.compiler
    }
}

impl std::ops::DerefMut for Library {
    fn deref_mut(&mut self) -> &mut Compiler {
        &mut self.compiler
    }
}

/// The library of `STOA_TEST_KCL`, if there is one.
pub(crate) fn library() -> Option<Library> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let compiler = Compiler::load(&object()?).unwrap();
    Some(Library { compiler, _turn: turn })
}

/// The folder with the files of the Python package.
pub(crate) fn package() -> Option<&'static Path> {
    extracted().map(|(folder, _)| folder.path())
}

/// The object without Python.
fn object() -> Option<PathBuf> {
    extracted().map(|(_, path)| path.clone())
}

fn extracted() -> Option<&'static (TempDir, PathBuf)> {
    static OBJECT: OnceLock<Option<(TempDir, PathBuf)>> = OnceLock::new();
    let extract = || {
        let Some(wheel) = std::env::var_os("STOA_TEST_KCL") else {
            eprintln!("skipped: STOA_TEST_KCL is not set; see CONTRIBUTING.md");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kcl.so");
        let files = folder.path().join("files");
        zip::extract(Path::new(&wheel), &files, ArchiveLimits::default()).unwrap();
        let object = std::fs::read(object_in(&files).unwrap().unwrap()).unwrap();
        std::fs::write(&path, without_python(object).unwrap()).unwrap();
        Some((folder, path))
    };
    OBJECT.get_or_init(extract).as_ref()
}
