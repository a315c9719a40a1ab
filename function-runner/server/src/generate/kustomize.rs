//! The generator `Kustomize`: the objects of a kustomization, which the renderer builds.

use super::generator::Tool;
use super::{At, Generated, Generator, Input, Profile, in_folder, manifests, tools};
use crate::failure::Failure;
use crate::source::Content;

/// The generator `Kustomize`.
#[derive(Debug)]
pub(super) struct Kustomize;

impl Generator for Kustomize {
    fn name(&self) -> &'static str {
        "Kustomize"
    }

    fn detects(&self, content: &Content, at: At<'_>) -> Option<String> {
        let file = tools::KUSTOMIZATIONS.iter().find_map(|name| in_folder(content, name, at))?;
        (tools::of(file) == Some(Tool::Kustomize)).then(|| file.path.clone())
    }

    fn profile(&self) -> Profile {
        Profile::Renderer(Tool::Kustomize)
    }

    fn generate(&self, input: &Input<'_>) -> Result<Generated, Failure> {
        manifests::rendered(input.files.documents()?, "")
    }
}
