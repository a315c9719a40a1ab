//! Generators: turn what is at a path of a source into a Spec.
//!
//! Start at [`generate`]. It reads no clock, file or socket: the same content always gives the same
//! Spec. What is in a source is anybody's, so that it is called in workers alone: [`Generators`] has it done there.

mod depends_on;
mod job;
mod lines;
mod manifests;
mod not_built;
mod places;
mod spec_file;
#[cfg(debug_assertions)]
pub(crate) mod trials;
mod yaml;

use stoa_engine::{Spec, Warnings};
use stoa_proto::Problem;
use tonic::Code;

use crate::failure::{Failure, problem, reason};
use crate::source::{Content, SourceFile};
pub(crate) use job::{Generators, Rendered, work};

/// So many warnings are told one by one.
const WARNED: usize = 100;
/// The name of a Kusion Spec file in a folder.
const SPEC_FILE: &str = "spec.yaml";
/// So many files are named that are not read.
const NAMED: usize = 5;

/// What a generator made.
#[derive(Debug)]
pub(crate) struct Generated {
    pub(crate) spec: Spec,
    pub(crate) warnings: Vec<String>,
    /// The generator that did it: `Spec` or `Manifests`.
    pub(crate) generator: &'static str,
}

/// Told which file of the content is read next, by its position, and that none is any more.
type At<'a> = &'a dyn Fn(Option<usize>);

/// Runs the generator of that name, or the one that fits when it is `Auto` or empty.
fn generate(generator: &str, content: &Content, at: At<'_>) -> Result<Generated, Failure> {
    let mut generated = match generator {
        "" | "Auto" => automatic(content, at),
        "Spec" => spec(content, at),
        "Manifests" => manifests(content, at),
        "Kpt" | "KCL" => Err(not_available(generator)),
        _ => Err(Failure::request(format!("there is no generator {generator:?}; there are Auto, Spec and Manifests"))),
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
            // Applying the manifests of such a folder as they are would leave out what makes them.
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

/// Warns of the files beside a Spec that look as if they had manifests, which nobody reads.
fn not_read_beside(spec: &SourceFile, files: &[SourceFile]) -> Option<String> {
    let others = files.iter().map(|file| file.path.as_str());
    let unread: Vec<&str> = others.filter(|path| *path != spec.path && !manifests::may_be_of_tool(path)).collect();
    let rest = unread.len().saturating_sub(NAMED);
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    let named = unread[..unread.len() - rest].join(", ");
    let because = format!("{} is a Spec, which is all that is deployed of the folder", spec.path);
    (!unread.is_empty()).then(|| format!("{named}{more}: not read, since {because}"))
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
            Some(file) => format!("{} is empty, and there are no manifests here; a Spec has resources", file.path),
            None => "there are no manifests here".to_owned(),
        });
    }
    Ok(Generated { spec, warnings, generator: "Manifests" })
}

/// Checks what a generator made of files.
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
