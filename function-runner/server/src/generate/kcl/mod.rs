//! The generator `KCL`: programs in KCL, run by KCL's own library.
//!
//! Start at [`Kcl`]. `layout` finds the entries and the packages of a stack, `result` turns the result into a Spec. `application` knows the
//! AppConfigurations of Kusion, `workload` their containers, and `fields` reads both.
//!
//! The library is in the process ([`use_library`]), which reads the tree of the commit and nothing else.

mod application;
mod fields;
pub(crate) mod layout;
pub(crate) mod library;
pub(crate) mod module_file;
mod result;
mod workload;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

use stoa_kcl::{Compiler, Error, Export, Output, VERSION};
use stoa_proto::{Problem, ValueOrigin};
use stoa_workers::{Failed, Fault};

use self::layout::Layout;
use self::result::Found;
use super::generator::{At, Files, Generated, Generator, Input, Profile, Provenance};
use super::modules::{Platform, package_folders};
use crate::failure::{Failure, problem, reason};
use crate::source::Content;

/// The generator's name.
pub(super) const NAME: &str = "KCL";
/// The files by which it is detected.
const DETECTED: [&str; 2] = [module_file::NAME, "main.k"];
/// The number of lines of the end of a standard error.
const LAST_LINES: usize = 5;
/// The most lines of the program's log that become warnings.
const LOGGED: usize = 20;

thread_local! {
    /// The library of this process, which has one thread.
    static LIBRARY: RefCell<Option<Compiler>> = const { RefCell::new(None) };
}

/// Gives the library to this generator. The process enters its sandbox afterwards.
pub(crate) fn use_library(compiler: Compiler) {
    LIBRARY.set(Some(compiler));
}

/// The generator `KCL`.
#[derive(Debug)]
pub(super) struct Kcl;

impl Generator for Kcl {
    fn name(&self) -> &'static str {
        NAME
    }

    fn detects(&self, content: &Content, _: At<'_>) -> Option<String> {
        let Content::Folder { path, others, .. } = content else { return None };
        let is_ours =
            |name: &&String| !name.contains('/') && (DETECTED.contains(&name.as_str()) || name.ends_with(".k"));
        others.iter().find(is_ours).map(|name| super::join(path, name))
    }

    fn profile(&self) -> Profile {
        Profile::Kcl
    }

    fn takes_values(&self) -> bool {
        true
    }

    fn generate(&self, input: &Input<'_>) -> Result<Generated, Failure> {
        let Files::Tree { root, path } = input.files else {
            return Err(Failure::internal(&"the generator KCL got no tree"));
        };
        let platform = Platform::of(input.values)?;
        let layout = Layout::read(root, path, input.values)?;
        let output = run(&layout, root)?;
        without_base(&layout, &output)?;
        let mut warnings: Vec<String> = output.warnings.iter().map(sentence).collect();
        warnings.extend(logged(&output.log));
        // Packages of registered modules are no files of the source.
        let registered = package_folders(&input.values.modules);
        let is_registered = |file: &String| registered.iter().any(|folder| Path::new(file).starts_with(folder));
        let files: BTreeSet<String> =
            layout.files.iter().chain(&output.files).filter(|file| !is_registered(file)).cloned().collect();
        let is_volatile = output.is_volatile;
        let origins = origins(&output.defaults, layout.origins);
        let Found { spec, warnings: more, calls } =
            result::spec(output, layout.kusion.as_ref(), &platform).map_err(Failure::invalid)?;
        warnings.extend(more);
        let provenance = Provenance {
            version: format!("kcl_lib {VERSION}"),
            files: files.into_iter().collect(),
            origins,
            modules: layout.modules,
            ..Provenance::default()
        };
        Ok(Generated { spec, warnings, provenance, calls, is_volatile })
    }
}

/// The lines of defaults of options, and those of settings files, which are stronger. Sorted by the name of the option.
fn origins(defaults: &[Export], of_files: Vec<ValueOrigin>) -> Vec<ValueOrigin> {
    let default = |Export { name, file, line }: &Export| ValueOrigin {
        name: name.clone(),
        kind: "Default".to_owned(),
        file: file.clone(),
        line: *line,
        is_stronger: false,
    };
    let mut origins: Vec<ValueOrigin> = defaults.iter().map(default).chain(of_files).collect();
    origins.sort_by(|a, b| a.name.cmp(&b.name));
    origins.dedup();
    origins
}

/// The failure of a program that ended the library's process; nothing for another failure.
pub(super) fn died(failed: &Failed, path: &str) -> Option<Failure> {
    let Fault::Died(how) = &failed.fault else { return None };
    let plain = failed.stderr.trim();
    let last: String =
        plain.lines().rev().take(LAST_LINES).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("; ");
    let more = if last.is_empty() { String::new() } else { format!(": {last}") };
    let message = format!("the program ends KCL's library, as endless recursion does ({how}){more}");
    Some(layout::wrong(path, 0, &message))
}

fn run(layout: &Layout, root: &Path) -> Result<Output, Failure> {
    LIBRARY.with_borrow_mut(|library| {
        let library = library.as_mut().ok_or_else(|| Failure::internal(&"the process has no KCL library"))?;
        library.run(&layout.program, root).map_err(|Error::Program(problems)| {
            let problems = problems.into_iter().map(|found| Problem {
                file: found.file,
                line: found.line,
                ..problem(reason::INVALID_KCL, message(&found.code, found.message))
            });
            Failure::invalid(problems.collect())
        })
    })
}

/// A message with the code of KCL's documentation, such as `E2L23`.
fn message(code: &str, message: String) -> String {
    let is_documented = code.starts_with('E') && code.bytes().any(|byte| byte.is_ascii_digit());
    if is_documented { format!("{message} ({code})") } else { message }
}

fn sentence(found: &stoa_kcl::Problem) -> String {
    match (found.file.as_str(), found.line) {
        ("", _) => found.message.clone(),
        (file, 0) => format!("{file}: {}", found.message),
        (file, line) => format!("{file}:{line}: {}", found.message),
    }
}

/// The lines that the program printed.
fn logged(log: &str) -> Vec<String> {
    let count = log.lines().count();
    let mut lines: Vec<String> = log.lines().take(LOGGED).map(|line| format!("the program prints: {line}")).collect();
    if count > LOGGED {
        lines.push(format!("the program prints {} more lines", count - LOGGED));
    }
    lines
}

/// Rejects a stack that leaves the base of its project out, which the library would not report.
fn without_base(layout: &Layout, output: &Output) -> Result<(), Failure> {
    let Some(base) = layout.base.as_deref().filter(|_| layout.kusion.is_some()) else { return Ok(()) };
    let is_used = output.files.iter().any(|file| file.strip_prefix(base).is_some_and(|rest| rest.starts_with('/')));
    if is_used {
        return Ok(());
    }
    let message = format!(
        "the stack leaves out {base}; add [profile] entries = [\"../base/base.k\", \"main.k\"] to its kcl.mod, with the base first"
    );
    Err(layout::wrong(&layout.program.folder, 0, &message))
}

#[cfg(test)]
mod tests;
