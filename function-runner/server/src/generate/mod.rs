//! Generators: render the files at a path of a source to a Spec.
//!
//! Start at [`generate`]. It reads no clock, file or socket: the same content always renders to the same
//! Spec. Sources are untrusted, so only workers call it: [`Generators`] sends them the jobs.

mod depends_on;
mod field_lines;
mod job;
mod lines;
mod lock;
mod manifests;
mod not_built;
mod spec_file;
#[cfg(debug_assertions)]
pub(crate) mod testing;
mod yaml;

use stoa_engine::{Spec, Warnings};
use stoa_proto::Problem;
use tonic::Code;

use crate::failure::{Failure, problem, reason};
use crate::source::{Content, SourceFile};
pub(crate) use job::{Generators, Rendered, work};

/// The number of warnings that are listed one by one.
const WARNED: usize = 100;
/// The name of a Kusion Spec file in a folder.
const SPEC_FILE: &str = "spec.yaml";
/// The number of ignored files that are named.
const NAMED: usize = 5;

/// The result of a generator.
#[derive(Debug)]
pub(crate) struct Generated {
    pub(crate) spec: Spec,
    pub(crate) warnings: Vec<String>,
    /// The generator that ran: `Spec` or `Manifests`.
    pub(crate) generator: &'static str,
}

/// Called with the position of the file that is read next, and with nothing after the last.
type At<'a> = &'a dyn Fn(Option<usize>);

/// Runs the generator of that name, or detects it for `Auto` and the empty name.
fn generate(generator: &str, content: &Content, at: At<'_>) -> Result<Generated, Failure> {
    let mut generated = match generator {
        "" | "Auto" => automatic(content, at),
        "Spec" => spec(content, at),
        "Manifests" => manifests(content, at),
        "Kpt" | "KCL" => Err(not_available(generator)),
        _ => Err(Failure::request(format!("unknown generator {generator:?}; use Auto, Spec or Manifests"))),
    }?;
    if let Content::Folder { warnings, .. } = content {
        generated.warnings.splice(0..0, warnings.iter().cloned());
    }
    Ok(generated)
}

fn automatic(content: &Content, at: At<'_>) -> Result<Generated, Failure> {
    match content {
        Content::File(file) if spec_file::is_spec(file) => spec(content, at),
        Content::File(_) => manifests(content, at),
        Content::Folder { others, .. } => {
            if let Some(file) = in_folder(content, SPEC_FILE, at).filter(|file| spec_file::is_spec(file)) {
                let mut generated = spec(content, at)?;
                generated.warnings.extend(not_read_beside(file, content.files()));
                return Ok(generated);
            }
            // The manifests of such a folder are incomplete without the tool.
            if others.iter().any(|name| name == "Kptfile") {
                return Err(not_available("Kpt"));
            }
            if others.iter().any(|name| name == "kcl.mod" || name.ends_with(".k")) {
                return Err(not_available("KCL"));
            }
            manifests(content, at)
        }
    }
}

/// Warns about files beside a Spec that look like manifests, since they are ignored.
fn not_read_beside(spec: &SourceFile, files: &[SourceFile]) -> Option<String> {
    let others = files.iter().map(|file| file.path.as_str());
    let unread: Vec<&str> = others.filter(|path| *path != spec.path && !manifests::may_be_of_tool(path)).collect();
    let rest = unread.len().saturating_sub(NAMED);
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    let named = unread[..unread.len() - rest].join(", ");
    let because = format!("{} is a Spec, and Stoa deploys nothing else of the folder", spec.path);
    (!unread.is_empty()).then(|| format!("{named}{more}: ignored, because {because}"))
}

fn spec(content: &Content, at: At<'_>) -> Result<Generated, Failure> {
    let file = match content {
        Content::File(file) => file,
        Content::Folder { path, .. } => in_folder(content, SPEC_FILE, at).ok_or_else(|| {
            let wrong = Problem { file: join(path, SPEC_FILE), ..problem(reason::PATH_NOT_FOUND, "does not exist") };
            Failure::of(Code::NotFound, vec![wrong])
        })?,
    };
    let spec = spec_file::read(file).map_err(Failure::invalid)?;
    Ok(Generated { spec, warnings: Vec::new(), generator: "Spec" })
}

fn manifests(content: &Content, at: At<'_>) -> Result<Generated, Failure> {
    let mut warnings = Warnings::at_most(WARNED);
    let spec = manifests::read(content.files(), &mut warnings, at).map_err(Failure::invalid)?;
    let mut warnings = warnings.into_lines();
    if spec.resources.is_empty() {
        let is_nothing =
            |file: &&SourceFile| is_called_spec(file) && yaml::documents(file).is_ok_and(|it| it.is_empty());
        warnings.push(match content.files().iter().find(is_nothing) {
            Some(file) => format!("{} is empty, and the folder has no manifests; add resources to the Spec", file.path),
            None => "the folder has no manifests; add YAML or JSON files of Kubernetes objects".to_owned(),
        });
    }
    Ok(Generated { spec, warnings, generator: "Manifests" })
}

/// Checks the Spec of a generator.
fn check(spec: &Spec) -> Result<(), Vec<stoa_engine::Problem>> {
    spec.validate()?;
    let problems = stoa_runtime_kubernetes::check_health_policies(spec);
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// A file right in the folder, which is read next.
fn in_folder<'a>(content: &'a Content, name: &str, at: At<'_>) -> Option<&'a SourceFile> {
    let Content::Folder { path, files, .. } = content else { return None };
    let wanted = join(path, name);
    let position = files.iter().position(|file| file.path == wanted)?;
    at(Some(position));
    files.get(position)
}

/// Whether a file has the name of a Spec.
fn is_called_spec(file: &SourceFile) -> bool {
    file.path.rsplit('/').next() == Some(SPEC_FILE)
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

fn not_available(generator: &str) -> Failure {
    let message = format!("generator {generator} is not available yet");
    Failure::new(Code::InvalidArgument, reason::NOT_AVAILABLE, message)
}

#[cfg(test)]
mod tests;
