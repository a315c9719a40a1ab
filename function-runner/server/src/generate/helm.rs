//! The generator `Helm`: the objects of a chart, which the renderer makes of its templates.

use super::generator::Tool;
use super::{At, Generated, Generator, Input, Profile, in_folder, manifests, tools};
use crate::failure::Failure;
use crate::source::Content;

/// Its name.
pub(super) const NAME: &str = "Helm";

/// The generator `Helm`.
#[derive(Debug)]
pub(super) struct Helm;

impl Generator for Helm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn detects(&self, content: &Content, at: At<'_>) -> Option<String> {
        let file = in_folder(content, tools::CHART, at)?;
        (tools::of(file) == Some(Tool::Helm)).then(|| file.path.clone())
    }

    fn profile(&self) -> Profile {
        Profile::Renderer(Tool::Helm)
    }

    fn takes_values(&self) -> bool {
        true
    }

    fn generate(&self, input: &Input<'_>) -> Result<Generated, Failure> {
        manifests::rendered(input.files.documents()?, &input.values.namespace)
    }
}
