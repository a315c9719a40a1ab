//! Modules that the platform registered: finds their artifacts in registries, and their programs in these.
//!
//! Start at [`Modules::find`]. An artifact is a cached source as any other, of no organization: it is verified as it arrives, and its
//! archives are opened in the process that reads the source. The programs in it run by their SHA-256 only.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use prost::bytes::Bytes;
use sha2::{Digest as _, Sha256};
use stoa_kusion_module::configuration::ModuleSettings;
use stoa_kusion_module::mirror::{self, Program};
use stoa_proto::{FindModuleRequest, FindModuleResponse, Source, StoreCredentials};
use tonic::Code;

use super::calls::{Call, Settings};
use super::programs::{Modules, hex, without_folder};
use crate::failure::{Failure, reason};
use crate::generate::copied_tree::AddedPackage;
use crate::generate::kcl::layout::vendored_name;
use crate::generate::kcl::module_file;
use crate::source::{self, Sources, Tree};

/// Where programs of registered modules come from.
#[derive(Clone, Copy, Debug)]
pub(in crate::generate) struct Registries<'a> {
    pub(in crate::generate) sources: &'a Sources,
    /// The credentials by the names of the modules in the Workspace.
    pub(in crate::generate) credentials: &'a HashMap<String, StoreCredentials>,
}

impl Modules {
    /// Finds a version of a module, which is fetched from its registry.
    pub(crate) async fn find(
        &self,
        sources: &Sources,
        request: FindModuleRequest,
    ) -> Result<FindModuleResponse, Failure> {
        let FindModuleRequest { path, version, digest, in_folder, credentials } = request;
        if in_folder {
            return self.find_in_folder(&path, &version, &digest).await;
        }
        let source = of_registry(&path, credentials);
        let digest = source::artifact_of_module(&source, &version, &digest).await?;
        let tree = sources.programs(&source, &digest).await?;
        let name = mirror::name(&path).unwrap_or_default().to_owned();
        let found = tokio::task::spawn_blocking(move || {
            let program = mirror::program_in(tree.root(), &name, &version).map(|file| digest_of(&file)).transpose()?;
            let is_package = tree.root().join(module_file::NAME).is_file();
            Ok::<_, io::Error>((program, if is_package { name } else { String::new() }))
        });
        let found = found.await.map_err(|error| Failure::internal(&error))?;
        let (program, package) = found.map_err(|error| Failure::internal(&error))?;
        if program.is_none() && package.is_empty() {
            let message = format!(
                "{path}@{digest} has neither a program for this platform ({}) nor a kcl.mod; push the module as `kusion mod push` does",
                mirror::program_path("NAME", "VERSION")
            );
            return Err(Failure::new(Code::InvalidArgument, reason::NOT_AVAILABLE, message));
        }
        let program = program.map(|digest| format!("sha256:{}", hex(&digest))).unwrap_or_default();
        Ok(FindModuleResponse { digest, program, package })
    }

    async fn find_in_folder(&self, path: &str, version: &str, digest: &str) -> Result<FindModuleResponse, Failure> {
        let mirror = self.mirror().ok_or_else(without_folder)?.clone();
        let (path, version) = (path.to_owned(), version.to_owned());
        let found = tokio::task::spawn_blocking(move || mirror.find(&path, &version)).await;
        let found = found.map_err(|error| Failure::internal(&error))?;
        let found = found.map_err(|error| {
            let message = format!("the function-runner does not have the module: {error}");
            Failure::new(Code::InvalidArgument, reason::NOT_AVAILABLE, message)
        })?;
        let program = format!("sha256:{}", hex(&found.digest));
        if !digest.is_empty() && digest != program {
            let message = format!("the program in the folder has the digest {program} instead of {digest}");
            return Err(Failure::new(Code::InvalidArgument, reason::INVALID_MANIFEST, message));
        }
        Ok(FindModuleResponse { program, ..FindModuleResponse::default() })
    }
}

/// The program of a call of a registered module, and the tree that has it.
pub(super) async fn program(registries: &Registries<'_>, call: &Call) -> Result<(Program, Tree), Failure> {
    let problem =
        |message: &str| Failure::of(Code::InvalidArgument, vec![call.problem(reason::NOT_AVAILABLE, message)]);
    let digest = digest(&call.program)
        .ok_or_else(|| problem("its artifact has no program for the platform of the function-runner"))?;
    let credentials = registries.credentials.get(&call.module).map(|it| it.values.clone()).unwrap_or_default();
    let tree = registries.sources.programs(&of_registry(&call.path, credentials), &call.artifact).await?;
    let name = mirror::name(&call.path).unwrap_or_default();
    let executable = mirror::program_in(tree.root(), name, &call.version)
        .ok_or_else(|| problem("its artifact has no program for the platform of the function-runner"))?;
    Ok((Program { executable, digest }, tree))
}

/// The registered modules of a Workspace that have a package of KCL, by their names there.
fn with_package(settings: &str) -> impl Iterator<Item = (String, ModuleSettings)> {
    let has_package = |module: &ModuleSettings| !module.package.is_empty() && !module.artifact.is_empty();
    Settings::each(settings).into_iter().filter(move |(_, module)| has_package(module))
}

fn folder_of(module: &ModuleSettings) -> String {
    vendored_name(&module.package, Some(&module.version))
}

/// The folders of packages of registered modules, from the root of a tree that has them beside its own files.
pub(in crate::generate) fn package_folders(settings: &str) -> Vec<String> {
    with_package(settings).map(|(_, module)| folder_of(&module)).collect()
}

/// The packages of the registered modules of a Workspace.
pub(in crate::generate) async fn packages(
    registries: &Registries<'_>,
    settings: &str,
) -> Result<Vec<AddedPackage>, Failure> {
    let mut packages = Vec::new();
    for (alias, module) in with_package(settings) {
        let credentials = registries.credentials.get(&alias).map(|it| it.values.clone()).unwrap_or_default();
        let tree = registries.sources.programs(&of_registry(&module.path, credentials), &module.artifact).await?;
        packages.push(AddedPackage { tree, path: folder_of(&module) });
    }
    Ok(packages)
}

/// A registry as a source, whose cache all organizations share.
fn of_registry(path: &str, credentials: HashMap<String, Bytes>) -> Source {
    let remote = if path.contains("://") { path.to_owned() } else { format!("oci://{path}") };
    Source { provider: "OCI".to_owned(), remote, credentials, ..Source::default() }
}

/// The bytes of `sha256:<hex>`.
pub(super) fn digest(text: &str) -> Option<[u8; 32]> {
    let hex = text.strip_prefix("sha256:").filter(|hex| hex.len() == 64 && hex.is_ascii())?;
    let mut digest = [0; 32];
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(digest)
}

fn digest_of(file: &Path) -> io::Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    let (mut file, mut part) = (fs::File::open(file)?, vec![0; 64 << 10]);
    loop {
        match io::Read::read(&mut file, &mut part)? {
            0 => return Ok(hasher.finalize().into()),
            read => hasher.update(&part[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_have_an_algorithm_and_64_digits() {
        assert_eq!(digest(&format!("sha256:{}", "0f".repeat(32))), Some([15; 32]));
        for wrong in ["", "sha256:0f", &"0f".repeat(32), &format!("sha256:{}", "0g".repeat(32))] {
            assert_eq!(digest(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn registry_paths_become_sources_without_an_organization() {
        for path in ["oci://r.example.com/a/network", "r.example.com/a/network"] {
            let source = of_registry(path, HashMap::new());
            assert_eq!((source.remote.as_str(), source.organization.as_str()), ("oci://r.example.com/a/network", ""));
        }
    }
}
