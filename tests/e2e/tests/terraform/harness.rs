//! A mirror of providers, and an organization whose Workspace uses it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stoa_e2e::fixture::{Organization, workspace};
use stoa_e2e::{Kubectl, Server};
use stoa_terraform_provider::package::Hash;
use tempfile::TempDir;

/// The stack that the tests deploy.
pub(crate) const STACK: &str = "shop";

/// A filesystem mirror with a lock file for it.
#[derive(Debug)]
pub(crate) struct Mirror {
    folder: TempDir,
    providers: Vec<(String, String)>,
}

impl Mirror {
    /// A mirror with versions of providers, each a type and a version. The executables are those of
    /// `STOA_TEST_TERRAFORM_PROVIDERS`.
    pub(crate) fn of(providers: &[(&str, &str)]) -> Self {
        let owned = providers.iter().map(|(provider, version)| ((*provider).to_owned(), (*version).to_owned()));
        let mirror = Self { folder: tempfile::tempdir().unwrap(), providers: owned.collect() };
        for (provider, version) in providers {
            let package = mirror.package(provider, version);
            fs::create_dir_all(&package).unwrap();
            let name = format!("terraform-provider-{provider}_v{version}");
            fs::copy(executable(provider), package.join(name)).unwrap();
        }
        mirror
    }

    fn package(&self, provider: &str, version: &str) -> PathBuf {
        let platform = stoa_terraform_provider::package::Platform::current();
        self.path().join(format!("registry.terraform.io/hashicorp/{provider}/{version}/{}", platform.0))
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Its providers, each a type and a version.
    pub(crate) fn providers(&self) -> &[(String, String)] {
        &self.providers
    }

    /// The lock file for versions of providers.
    pub(crate) fn lock(&self, providers: &[(&str, &str)]) -> String {
        let entry = |(provider, version): &(&str, &str)| {
            let hash = Hash::of_folder(&self.package(provider, version)).unwrap();
            format!(
                "provider \"registry.terraform.io/hashicorp/{provider}\" {{\n  version = \"{version}\"\n  hashes = \
                 [\"{hash}\"]\n}}\n"
            )
        };
        providers.iter().map(entry).collect()
    }
}

fn executable(provider: &str) -> PathBuf {
    let all = std::env::var_os("STOA_TEST_TERRAFORM_PROVIDERS").expect("hack/test sets it");
    let name = format!("terraform-provider-{provider}-");
    let is_it = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&name);
    std::env::split_paths(&all).find(is_it).unwrap_or_else(|| panic!("no provider {provider}"))
}

/// An organization whose Workspace has Terraform's providers beside its other target.
#[derive(Debug)]
pub(crate) struct Bed {
    pub(crate) organization: Organization,
    pub(crate) mirror: Mirror,
    pub(crate) kubectl: Kubectl,
    target: String,
}

impl Bed {
    pub(crate) fn new(server: &dyn Server, providers: &[(&str, &str)]) -> Self {
        let organization = Organization::create(server);
        let (mirror, kubectl) = (Mirror::of(providers), server.kubectl());
        let target = server.target(&organization.deploy);
        let bed = Self { organization, mirror, kubectl, target };
        bed.use_lock(&bed.mirror.lock(providers), "");
        bed
    }

    /// Gives the Workspace another lock file, and further fields of `spec.terraform` in lines of YAML.
    pub(crate) fn use_lock(&self, lock: &str, fields: &str) {
        self.configure(&self.mirror, lock, fields);
    }

    fn configure(&self, mirror: &Mirror, lock: &str, fields: &str) {
        let name = &self.organization.name;
        let lines: String = lock.lines().map(|line| format!("      {line}\n")).collect();
        let terraform = format!(
            "  terraform:\n    mirror: {{directory: {}}}\n    lock: |\n{lines}{fields}",
            mirror.path().display()
        );
        self.kubectl.apply(&workspace(name, name, &format!("{}{terraform}", self.target)));
    }

    /// Gives the Workspace another mirror with its lock file.
    pub(crate) fn use_mirror(&self, mirror: &Mirror, lock: &str) {
        self.configure(mirror, lock, "");
    }

    /// Commits a Spec of these resources.
    pub(crate) fn commit(&self, resources: &Value) {
        self.organization.stack(STACK, &serde_json::json!({ "resources": resources }).to_string());
    }

    /// The text of a subresource of a Run: `log` or `plan`.
    pub(crate) fn document(&self, run: &Value, subresource: &str) -> String {
        let (namespace, name) = (&self.organization.name, run["metadata"]["name"].as_str().unwrap());
        let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{namespace}/runs/{name}/{subresource}");
        self.kubectl.raw(&path)
    }

    /// Everything that people read of the organization's runs, releases and resources.
    pub(crate) fn everything_shown(&self) -> String {
        let namespace = ["--namespace", &self.organization.name];
        let mut shown =
            self.kubectl.run(&[&["get", "runs,resources,releases", "--output=yaml"], &namespace[..]].concat());
        let runs = self.kubectl.get(&[&["runs"], &namespace[..]].concat());
        for run in runs["items"].as_array().unwrap() {
            if run["status"]["plan"].is_object() {
                shown.push_str(&self.document(run, "plan"));
            }
            shown.push_str(&self.document(run, "log"));
        }
        shown
    }

    /// The Resource of an id.
    pub(crate) fn resource(&self, id: &str) -> Value {
        let all = self.organization.of_stack("resources", STACK);
        all.into_iter().find(|resource| resource["spec"]["id"] == id).unwrap_or_default()
    }

    /// The nonzero counts of a Run's plan: `create 2, update 1`.
    pub(crate) fn summary(run: &Value) -> String {
        let summary = run["status"]["plan"]["summary"].as_object().cloned().unwrap_or_default();
        let is_action = |(action, count): &(&String, &Value)| {
            !matches!(action.as_str(), "unchanged" | "unverified") && count.as_u64() != Some(0)
        };
        let counts = summary.iter().filter(is_action);
        counts.map(|(action, count)| format!("{action} {count}")).collect::<Vec<_>>().join(", ")
    }
}

pub(crate) fn id(kind: &str, name: &str) -> String {
    format!("hashicorp:{}:{kind}:{name}", kind.split('_').next().unwrap())
}

/// A resource of a provider, of the version of the lock.
pub(crate) fn resource(kind: &str, name: &str, attributes: &Value) -> Value {
    let provider = kind.split('_').next().unwrap();
    serde_json::json!({
        "id": id(kind, name), "type": "Terraform", "attributes": attributes,
        "extensions": {"provider": format!("hashicorp/{provider}"), "resourceType": kind},
    })
}

/// A reference to an attribute of a resource.
pub(crate) fn of(kind: &str, name: &str, path: &str) -> String {
    format!("$kusion_path.{}.{path}", id(kind, name))
}
