//! Mirrors in folders, and workspaces that use them.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use stoa_engine::SourceLock;
use stoa_engine::provider::ProviderLock;
use stoa_git::cache::Folders;
use stoa_proto::Workspace;
use stoa_runtime::{Caller, RuntimeError};
use stoa_runtime_terraform::{ProviderRequest, Providers as _};
use stoa_terraform_provider::package::{Address, Hash, Platform};
use stoa_terraform_provider::pool::Lease;
use stoa_terraform_provider::process::DirectLauncher;
pub(super) use stoa_terraform_provider::testing::executable as provider;
use tempfile::TempDir;

use crate::failure::Failure;
use crate::secret_store::Variable;
use crate::terraform::failure::Failed;
use crate::terraform::packages::{Package, Wanted};
use crate::terraform::sandbox::SandboxLauncher;
use crate::terraform::settings::{Configured, Spec};
use crate::terraform::{Options, ProviderMetrics, Terraform, WorkspaceProviders};

/// How long providers may take to start here.
const START: Duration = Duration::from_secs(20);

/// The function-runner that was built with these tests, if it was; otherwise the test is skipped.
pub(super) fn runner() -> Option<PathBuf> {
    let tests = std::env::current_exe().unwrap();
    let beside = tests.parent().and_then(Path::parent).map(|folder| folder.join("function-runner"));
    let found = beside.filter(|path| path.exists());
    if found.is_none() {
        eprintln!("skipped: there is no function-runner; build it first");
    }
    found
}

/// A filesystem mirror with a lock, and the providers of a runner.
pub(super) struct Bed {
    folder: TempDir,
    pub(super) folders: Folders,
    pub(super) terraform: Arc<Terraform>,
}

impl Bed {
    /// Providers whose processes and calls are counted.
    pub(super) fn observed(observer: ProviderMetrics) -> Self {
        Self::with(|options| options.observer = Arc::new(observer))
    }

    /// Providers without a sandbox.
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    /// Providers in so many processes.
    pub(super) fn with_processes(processes: usize) -> Self {
        Self::with(|options| options.processes = processes)
    }

    /// Providers that start within a time.
    pub(super) fn with_start_limit(time: Duration) -> Self {
        Self::with(|options| options.start_limit = time)
    }

    /// Providers whose processes and packages are idle for a time.
    pub(super) fn idle_for(time: Duration) -> Self {
        Self::with(|options| options.idle = time)
    }

    /// Providers in the sandbox of this function-runner.
    pub(super) fn sandboxed(program: PathBuf) -> Self {
        let launcher = SandboxLauncher { program, memory: 256 << 20, directories: Vec::new() };
        Self::with(|options| options.launcher = Arc::new(launcher))
    }

    fn with(change: impl FnOnce(&mut Options)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("mirrors/mirror")).unwrap();
        std::fs::create_dir_all(path("run")).unwrap();
        let mut options = Options {
            mirrors: vec![path("mirrors")],
            launcher: Arc::new(DirectLauncher),
            start_limit: START,
            idle: Duration::from_secs(60),
            processes: 8,
            calls: 8,
            observer: Arc::new(()),
        };
        change(&mut options);
        let folders = Folders::new(path("caches"));
        let terraform = Terraform::new(options, folders.clone(), path("run"));
        Self { terraform: Arc::new(terraform), folders, folder }
    }

    pub(super) fn caches(&self) -> PathBuf {
        self.folder.path().join("caches")
    }

    pub(super) fn mirror(&self) -> PathBuf {
        self.folder.path().join("mirrors/mirror")
    }

    /// The folder of a provider in the mirror.
    fn of_provider(&self, name: &str) -> PathBuf {
        self.mirror().join("registry.terraform.io/hashicorp").join(name)
    }

    /// Adds a package as a folder, and returns its checksum.
    pub(super) fn unpacked(&self, name: &str, version: &str, executable: &Path) -> Hash {
        self.unpacked_for(&Platform::current().0, name, version, executable)
    }

    pub(super) fn unpacked_for(&self, platform: &str, name: &str, version: &str, executable: &Path) -> Hash {
        let folder = self.of_provider(name).join(version).join(platform);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::copy(executable, folder.join(format!("terraform-provider-{name}_v{version}"))).unwrap();
        Hash::of_folder(&folder).unwrap()
    }

    /// Adds a package as a folder whose executable is a script.
    pub(super) fn script(&self, name: &str, text: &str) -> Hash {
        let path = self.folder.path().join("script");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        self.unpacked(name, "1.0.0", &path)
    }

    /// Adds a package as an archive, and returns its checksum.
    pub(super) fn packed(&self, name: &str, version: &str, executable: &Path) -> (PathBuf, Hash) {
        let folder = self.of_provider(name);
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("terraform-provider-{name}_{version}_{}.zip", Platform::current()));
        let file = format!("terraform-provider-{name}_v{version}");
        std::fs::write(&path, archive(&file, &std::fs::read(executable).unwrap())).unwrap();
        let hash = Hash::of_archive(&path).unwrap();
        (path, hash)
    }

    /// A workspace with the packages of the mirror in its lock, by their checksums of folders.
    pub(super) fn scene(&self, organization: &str) -> Scene<'_> {
        let mut lock = String::new();
        for folder in std::fs::read_dir(self.mirror().join("registry.terraform.io/hashicorp")).into_iter().flatten() {
            let folder = folder.unwrap();
            let name = folder.file_name().into_string().unwrap();
            for version in std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
                let package = version.path().join(Platform::current().0);
                if let Ok(hash) = Hash::of_folder(&package) {
                    lock.push_str(&locked(&name, version.file_name().to_str().unwrap(), &[hash.to_string()]));
                }
            }
        }
        let spec = json!({"mirror": {"directory": self.mirror()}, "lock": lock, "providers": []});
        let workspace = Workspace { name: "dev".to_owned(), ..Workspace::default() };
        let (organization, configuration) = (organization.to_owned(), None);
        let variables = BTreeMap::new();
        Scene { bed: self, workspace, spec, organization, version: None, configuration, lock: None, variables }
    }
}

/// The block of a lock file.
pub(super) fn locked(name: &str, version: &str, hashes: &[String]) -> String {
    let hashes: Vec<String> = hashes.iter().map(|hash| format!("    \"{hash}\",\n")).collect();
    let hashes = if hashes.is_empty() { String::new() } else { format!("  hashes = [\n{}  ]\n", hashes.concat()) };
    format!("provider \"registry.terraform.io/hashicorp/{name}\" {{\n  version = \"{version}\"\n{hashes}}}\n")
}

/// An archive with one file, as it is.
fn archive(name: &str, content: &[u8]) -> Vec<u8> {
    let mut crc = flate2::Crc::new();
    crc.update(content);
    let size = u32::try_from(content.len()).unwrap().to_le_bytes();
    // Versions, flags, method, time and date, checksum, sizes and the length of the name.
    let common = [
        &[20, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
        &crc.sum().to_le_bytes(),
        &size,
        &size,
        &u16::try_from(name.len()).unwrap().to_le_bytes(),
        &[0, 0],
    ]
    .concat();
    let mut archive = Vec::new();
    archive.write_all(&[b"PK\x03\x04", &common[..], name.as_bytes(), content].concat()).unwrap();
    let directory = u32::try_from(archive.len()).unwrap();
    // The file is executable: a Unix system made it, with these permissions.
    let permissions = (0o100_755_u32 << 16).to_le_bytes();
    let entry = [b"PK\x01\x02\x14\x03", &common[..], &[0; 6], &permissions, &[0; 4], name.as_bytes()].concat();
    let length = u32::try_from(entry.len()).unwrap();
    archive.write_all(&entry).unwrap();
    let end = [&b"PK\x05\x06\0\0\0\0\x01\0\x01\0"[..], &length.to_le_bytes(), &directory.to_le_bytes(), &[0, 0]];
    archive.write_all(&end.concat()).unwrap();
    archive
}

/// A run of a workspace, with a resource that needs a provider.
pub(super) struct Scene<'b> {
    bed: &'b Bed,
    pub(super) workspace: Workspace,
    pub(super) spec: Value,
    organization: String,
    pub(super) version: Option<&'static str>,
    configuration: Option<Map<String, Value>>,
    lock: Option<SourceLock>,
    pub(super) variables: BTreeMap<String, Variable>,
}

impl Scene<'_> {
    /// The same with an entry of a provider.
    pub(super) fn with_configuration(mut self, provider: &str, configuration: &str) -> Self {
        let configuration: Value = serde_json::from_str(configuration).unwrap();
        let entry = json!({"name": provider, "source": provider, "configuration": configuration});
        self.spec["providers"].as_array_mut().unwrap().push(entry);
        self
    }

    /// The same with a resource that has a configuration.
    pub(super) fn of_resource(self, configuration: &str) -> Self {
        Self { configuration: Some(serde_json::from_str(configuration).unwrap()), ..self }
    }

    pub(super) fn without_network(mut self) -> Self {
        self.spec["network"] = "Deny".into();
        self
    }

    pub(super) fn with_lock(mut self, lock: &str) -> Self {
        self.spec["lock"] = lock.into();
        self
    }

    /// The same with a lock of the source instead of that of the workspace.
    pub(super) fn with_source_lock(mut self, version: &str, hashes: &[String]) -> Self {
        self.spec["lock"] = "".into();
        let file = "apps/.terraform.lock.hcl".to_owned();
        Self { lock: Some(SourceLock { file, version: version.to_owned(), hashes: hashes.to_vec() }), ..self }
    }

    /// The providers, unless the settings are wrong.
    pub(super) fn providers(&self) -> Result<WorkspaceProviders, Failure> {
        let spec: Spec = serde_json::from_value(self.spec.clone()).unwrap();
        let caller = Caller { organization: self.organization.as_str().into(), run: "run".into() };
        self.bed.terraform.of_workspace(spec, &self.workspace, self.variables.clone(), caller)
    }

    pub(super) async fn get(&self, provider: &str) -> Result<Lease, RuntimeError> {
        let address: Address = provider.parse().unwrap();
        let configuration = self.configuration.as_ref();
        let lock = self.lock.as_ref();
        let request = ProviderRequest { address: &address, version: self.version, configuration, lock };
        self.providers().unwrap().get(&request).await
    }

    pub(super) fn configured(&self, provider: &str) -> Result<Configured, Failed> {
        let address: Address = provider.parse().unwrap();
        let configuration = self.configuration.as_ref();
        let request = ProviderRequest { address: &address, version: None, configuration, lock: None };
        self.providers().unwrap().settings.configured(&request)
    }

    /// The package of a provider, which stays until it is dropped.
    pub(super) async fn package(&self, provider: &str) -> Arc<Package> {
        let address: Address = provider.parse().unwrap();
        let providers = self.providers().unwrap();
        let (locked, mirror) =
            (&providers.settings.lock.as_ref().unwrap().providers[&address], &providers.settings.mirror);
        let wanted = Wanted { address: &address, locked, mirror, organization: &self.organization };
        self.bed.terraform.packages.get(&wanted).await.unwrap()
    }

    /// The lock that decides about a provider.
    pub(super) fn lock(&self, provider: &str) -> Option<ProviderLock> {
        let address: Address = provider.parse().unwrap();
        let lock = self.lock.as_ref();
        let request = ProviderRequest { address: &address, version: self.version, configuration: None, lock };
        self.providers().unwrap().lock(&request)
    }

    pub(super) fn destination(&self) -> String {
        self.providers().unwrap().destination()
    }

    /// The message of a failure, and whether a retry may help.
    pub(super) async fn failure(&self, provider: &str) -> (String, bool) {
        let error = self.get(provider).await.expect_err("the provider is not available");
        (error.to_string(), error.is_retryable())
    }

    /// The field of a failure.
    pub(super) async fn field(&self, provider: &str) -> Option<String> {
        match self.get(provider).await.expect_err("the provider is not available") {
            RuntimeError::Invalid { field, .. } => field,
            error => panic!("{error:?}"),
        }
    }
}
