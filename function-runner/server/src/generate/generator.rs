//! The seam of generators: what each of them is, gets and gives.
//!
//! Start at [`Generator`], and at [`ALL`], which lists one value for each. A generator knows nothing of caches, processes or Git:
//! `pipeline` reads what a generator wants, and runs [`Generator::generate`] in the sandbox of its profile.

use std::collections::HashMap;
use std::path::Path;

use prost::bytes::Bytes;
use stoa_engine::Spec;
use stoa_proto::renderer::Document;
use stoa_proto::{SourceModule, ValueOrigin};

use super::helm::Helm;
use super::kcl::Kcl;
use super::kpt::Kpt;
use super::kustomize::Kustomize;
use super::manifests::Manifests;
use super::modules::Call;
use super::placeholders::Placeholders;
use super::spec_file::SpecFile;
use crate::failure::Failure;
use crate::source::{Content, SourceFile};

/// All generators, in the order in which errors name them.
pub(super) static ALL: [&dyn Generator; 6] = [&SpecFile, &Manifests, &Kustomize, &Helm, &Kpt, &Kcl];

/// The generator of that name.
pub(super) fn named(name: &str) -> Option<&'static dyn Generator> {
    #[cfg(debug_assertions)]
    if let Some(trial) = super::testing::generator(name) {
        return Some(trial);
    }
    ALL.into_iter().find(|generator| generator.name() == name)
}

/// One way of writing configuration, which renders to a Spec.
pub(super) trait Generator: Sync {
    /// Its name, as in `spec.generator.type` of a Stack.
    fn name(&self) -> &'static str;

    /// The file by which it is detected; nothing for a path that is not written this way. Runs in a worker.
    fn detects(&self, content: &Content, at: At<'_>) -> Option<String>;

    /// The files that it wants, and the sandbox in which it reads them.
    fn profile(&self) -> Profile;

    /// Whether it gives all values and parameters to the tool.
    fn takes_values(&self) -> bool {
        false
    }

    /// Renders the files. The same input gives the same output on every runner, unless the output is volatile: it reads no environment
    /// or network.
    fn generate(&self, input: &Input<'_>) -> Result<Generated, Failure>;
}

/// The files that a generator wants, and the sandbox of the process that reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Profile {
    /// The YAML and JSON files of the path come with the job, and the process opens nothing.
    Nothing,
    /// The process reads the tree of the commit, and nothing else.
    Tree,
    /// The process reads the tree of the commit, and has KCL's library.
    Kcl,
    /// The renderer reads the tree of the commit. Its documents come with the job, and the process opens nothing.
    Renderer(Tool),
}

/// A tool of the renderer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    Kustomize,
    Helm,
}

/// The files of a job.
#[derive(Clone, Copy, Debug)]
pub(super) enum Files<'a> {
    /// The content of the path.
    Content(&'a Content),
    /// The tree of the commit.
    Tree {
        /// The folder that has it.
        root: &'a Path,
        /// The path of the stack in it; empty for all of it.
        path: &'a str,
    },
    /// The documents that the renderer made of the tree.
    Documents(&'a [Document]),
}

impl<'a> Files<'a> {
    /// The content, for generators of [`Profile::Nothing`].
    pub(super) fn content(self) -> Result<&'a Content, Failure> {
        match self {
            Self::Content(content) => Ok(content),
            Self::Tree { .. } | Self::Documents(_) => Err(Failure::internal(&"a generator has other files")),
        }
    }

    /// The documents, for generators of [`Profile::Renderer`].
    pub(super) fn documents(self) -> Result<&'a [Document], Failure> {
        match self {
            Self::Documents(documents) => Ok(documents),
            Self::Content(_) | Self::Tree { .. } => Err(Failure::internal(&"a generator has other files")),
        }
    }
}

/// The input of a generator.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    pub(super) files: Files<'a>,
    /// The overlay of the workspace, for another profile than [`Profile::Nothing`], whose content has it.
    pub(super) overlay: &'a [SourceFile],
    pub(super) values: &'a Values,
    /// The same values, for the files.
    pub(super) placeholders: &'a Placeholders,
    /// Whether the renderer gave all values to the files.
    pub(super) values_read: bool,
    /// Reports the file that is read next.
    pub(super) at: At<'a>,
}

/// Called with the position of the file that is read next, and with nothing after the last.
pub(super) type At<'a> = &'a dyn Fn(Option<usize>);

/// The stack that is rendered, and the platform's values for it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Values {
    #[prost(string, tag = "1")]
    pub(crate) organization: String,
    #[prost(string, tag = "2")]
    pub(crate) project: String,
    /// The stack's name inside the project.
    #[prost(string, tag = "3")]
    pub(crate) stack: String,
    /// The name of the Workspace.
    #[prost(string, tag = "4")]
    pub(crate) workspace: String,
    /// Parameters of the Stack, with those of the Run.
    #[prost(map = "string, string", tag = "5")]
    pub(crate) parameters: HashMap<String, String>,
    /// Values of the platform. None has the name of a parameter, which is stronger.
    #[prost(message, repeated, tag = "6")]
    pub(crate) platform: Vec<stoa_proto::Value>,
    /// The namespace of objects without one, for the generator Helm.
    #[prost(string, tag = "7")]
    pub(crate) namespace: String,
    /// The modules of the Workspace, and what they get of it ([`Settings`](super::modules::Settings)); empty without modules.
    #[prost(string, tag = "8")]
    pub(crate) modules: String,
    /// The digests of their programs.
    #[prost(string, tag = "9")]
    pub(crate) module_digests: String,
    /// The keys of the Secret that opens files of SOPS; none where they stay as they are.
    #[prost(map = "string, bytes", tag = "10")]
    pub(crate) age_keys: HashMap<String, Bytes>,
}

/// The output of a generator.
#[derive(Debug)]
pub(crate) struct Generated {
    pub(crate) spec: Spec,
    pub(crate) warnings: Vec<String>,
    pub(crate) provenance: Provenance,
    /// The calls of modules whose resources the Spec lacks.
    pub(crate) calls: Vec<Call>,
    /// Whether another rendering of the same input may give another Spec.
    pub(crate) is_volatile: bool,
}

impl From<Spec> for Generated {
    fn from(spec: Spec) -> Self {
        Self { spec, warnings: Vec::new(), provenance: Provenance::default(), calls: Vec::new(), is_volatile: false }
    }
}

/// Where a Spec came from.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Provenance {
    /// The generator that ran.
    #[prost(string, tag = "1")]
    pub(crate) generator: String,
    /// The version of the tool that rendered, such as `kustomize v0.20.1`; empty for generators of Stoa's own.
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    /// The files that decided the Spec, sorted; empty if all files of the path did.
    #[prost(string, repeated, tag = "3")]
    pub(crate) files: Vec<String>,
    /// The files that set values, sorted by name, the weakest first.
    #[prost(message, repeated, tag = "4")]
    pub(crate) origins: Vec<ValueOrigin>,
    /// Packages and subcharts, sorted by name.
    #[prost(message, repeated, tag = "5")]
    pub(crate) modules: Vec<SourceModule>,
    /// The version of Kubernetes that a chart was rendered for.
    #[prost(string, tag = "6")]
    pub(crate) kubernetes: String,
}
