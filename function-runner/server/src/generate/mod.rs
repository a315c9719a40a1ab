//! Generators: render the files at a path of a source to a Spec.
//!
//! Start at `generator`, which says what a generator is, and at `pipeline`, which reads what one wants and runs it in a process of its
//! own. Sources are untrusted, so [`generate`] runs in workers alone. It reads no socket. The same input renders to the same
//! Spec, which `cached` relies on, unless a program reads a clock or chance: that one is volatile, and not cached.

mod cached;
mod copied_tree;
mod depends_on;
mod field_lines;
mod generator;
mod helm;
mod job;
pub(crate) mod kcl;
mod kpt;
mod kustomize;
mod lines;
mod lock;
mod manifests;
pub(crate) mod modules;
mod other_tools;
mod overlays;
mod pipeline;
mod placeholders;
mod renderer;
mod secret_values;
mod sops;
mod spec_file;
#[cfg(debug_assertions)]
pub(crate) mod testing;
mod tools;
mod warm;
mod yaml;

use stoa_engine::Spec;
use stoa_kubernetes_model::KubernetesRules;
use stoa_proto::Problem;

use crate::failure::{Failure, problem, reason};
use crate::source::{Content, SourceFile};
use generator::{ALL, At, Files, Generated, Generator, Input, Profile, Tool};
pub(crate) use generator::{Provenance, Values};
pub(crate) use job::{Rendered, work};
pub(crate) use other_tools::is_of_tool;
pub(crate) use overlays::FOLDER as OVERLAYS;
pub(crate) use pipeline::{Generators, Request};
pub(crate) use renderer::{Options as RendererOptions, Renderer};
pub(crate) use secret_values::SecretValues;
pub(crate) use tools::KUSTOMIZATIONS;
pub(crate) use warm::WarmWorkers;
pub(crate) use yaml::values as yaml_values;

/// What became of a job.
#[derive(Debug)]
enum Outcome {
    Rendered(Box<Generated>),
    /// `Auto` detected a generator that needs other files or another process.
    Detected(&'static str),
}

/// Whether the name stands for the generator that fits the files.
fn is_auto(name: &str) -> bool {
    matches!(name, "" | "Auto")
}

/// Runs the generator of that name, or detects it for `Auto`.
fn generate(name: &str, input: &Input<'_>) -> Result<Outcome, Failure> {
    if !is_auto(name) {
        return rendered(known(name)?, input).map(Box::new).map(Outcome::Rendered);
    }
    let content = input.files.content()?;
    let detected = detect(content, input.at)?;
    if detected.profile() != Profile::Nothing {
        return Ok(Outcome::Detected(detected.name()));
    }
    let mut generated = rendered(detected, input)?;
    if detected.name() == spec_file::NAME {
        generated.warnings.extend(spec_file::not_read_beside(content));
    }
    Ok(Outcome::Rendered(Box::new(generated)))
}

fn rendered(generator: &dyn Generator, input: &Input<'_>) -> Result<Generated, Failure> {
    let mut generated = overlays::generate(input, |input| generator.generate(input))?;
    if !generator.takes_values() && !input.values_read {
        generated.warnings.extend(input.placeholders.unread(hint(generator)));
    }
    if let Files::Content(Content::Folder { warnings, .. }) = input.files {
        generated.warnings.splice(0..0, warnings.iter().cloned());
    }
    generated.provenance.generator = generator.name().to_owned();
    Ok(generated)
}

/// How a file reads a value.
fn hint(generator: &dyn Generator) -> &'static str {
    match generator.profile() {
        Profile::Renderer(Tool::Kustomize) => {
            "a kustomization reads values from a ConfigMap with the annotation stoa.dev/values, and an overlay reads ${stoa_value.NAME}"
        }
        _ => "a file reads one by ${stoa_value.NAME}",
    }
}

/// The generator of a name that a Stack gives.
fn known(name: &str) -> Result<&'static dyn Generator, Failure> {
    generator::named(name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|generator| generator.name()).collect();
        Failure::request(format!("unknown generator {name:?}; use Auto, {}", names.join(", ")))
    })
}

/// The generator that fits the files: the only one that detects them, and manifests if none does.
fn detect(content: &Content, at: At<'_>) -> Result<&'static dyn Generator, Failure> {
    let fits: Vec<(&'static dyn Generator, String)> =
        ALL.into_iter().filter_map(|generator| Some((generator, generator.detects(content, at)?))).collect();
    match fits.as_slice() {
        [(only, _)] => Ok(*only),
        [(first, file), (second, other), ..] => {
            let (first, second) = (first.name(), second.name());
            let message = format!(
                "is for generator {first}, and {other} is for generator {second}; set spec.generator.type of the Stack to one of them"
            );
            let wrong = Problem { file: file.clone(), ..problem(reason::AMBIGUOUS_GENERATOR, message) };
            Err(Failure::invalid(vec![wrong]))
        }
        // The manifests of such a folder are incomplete without the tool.
        [] => match other_tools::find(content) {
            Some(problem) => Err(Failure::invalid(vec![problem])),
            None => known(manifests::NAME),
        },
    }
}

/// Checks the Spec of a generator.
fn check(spec: &Spec) -> Result<(), Vec<stoa_engine::Problem>> {
    spec.validate(&KubernetesRules)?;
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

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

#[cfg(test)]
mod tests;
