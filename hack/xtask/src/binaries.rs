//! Builds what the test bed runs: the control plane from Go modules, Stoa with cargo.
//!
//! Go's results are kept in the cache by name and version, for all clones of the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::paths;

/// A command of one of the Go modules here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GoCommand {
    name: &'static str,
    /// The module whose version is the command's.
    module: &'static str,
    /// Where it is built, from the root of the repository: the folder of the Go module, the file there that says the
    /// versions, and the package.
    folder: &'static str,
    versions: &'static str,
    package: &'static str,
    /// The build tags, with spaces in between; a command that has some is linked with C.
    tags: &'static str,
}

pub(crate) const ETCD: GoCommand = GoCommand::of_cluster("etcd", "go.etcd.io/etcd/server/v3", "./cmd/etcd");
pub(crate) const KUBE_APISERVER: GoCommand =
    GoCommand::of_cluster("kube-apiserver", "k8s.io/kubernetes", "./cmd/kube-apiserver");
pub(crate) const KUBE_CONTROLLER_MANAGER: GoCommand =
    GoCommand::of_cluster("kube-controller-manager", "k8s.io/kubernetes", "./cmd/kube-controller-manager");
pub(crate) const KUBECTL: GoCommand = GoCommand::of_cluster("kubectl", "k8s.io/kubernetes", "./cmd/kubectl");
pub(crate) const SAMPLE_APISERVER: GoCommand =
    GoCommand::of_cluster("sample-apiserver", "k8s.io/sample-apiserver", "./cmd/sample-apiserver");

/// The S3 server that tests of Backends run against: versitygw.
pub(crate) const S3: GoCommand = GoCommand {
    name: "versitygw",
    module: "github.com/versity/versitygw",
    folder: "tests/s3",
    versions: "go.mod",
    package: "github.com/versity/versitygw/cmd/versitygw",
    tags: "",
};

/// The OCI registry that tests of artifacts run against: CNCF's distribution.
pub(crate) const REGISTRY: GoCommand = GoCommand {
    name: "registry",
    module: "github.com/distribution/distribution/v3",
    folder: "tests/registry",
    versions: "go.mod",
    package: "github.com/distribution/distribution/v3/cmd/registry",
    tags: "",
};

/// The client that tests push artifacts with.
pub(crate) const ORAS: GoCommand = GoCommand {
    name: "oras",
    module: "oras.land/oras",
    folder: "tests/registry",
    versions: "go.mod",
    package: "oras.land/oras/cmd/oras",
    tags: "",
};

/// The program that tests encrypt files with: SOPS.
pub(crate) const SOPS: GoCommand = GoCommand {
    name: "sops",
    module: "github.com/getsops/sops/v3",
    folder: "tests/sops",
    versions: "go.mod",
    package: "github.com/getsops/sops/v3/cmd/sops",
    tags: "",
};

/// The command line of Porch that tests play a package's life with.
pub(crate) const PORCHCTL: GoCommand = GoCommand {
    name: "porchctl",
    module: "github.com/nephio-project/porch",
    folder: "tests/porch",
    versions: "go.mod",
    package: "github.com/nephio-project/porch/cmd/porchctl",
    tags: "",
};

/// The Git server with pull requests: Gitea, with its database in it.
pub(crate) const GITEA: GoCommand = GoCommand {
    name: "gitea",
    module: "code.gitea.io/gitea",
    folder: "tests/gitea",
    versions: "go.mod",
    package: "code.gitea.io/gitea",
    tags: "sqlite sqlite_unlock_notify",
};

/// The API of Open Cluster Management. Tests read the definitions of its kinds; no program is built.
pub(crate) const OCM: GoCommand = GoCommand {
    name: "ocm",
    module: "open-cluster-management.io/api",
    folder: "tests/ocm",
    versions: "go.mod",
    package: "",
    tags: "",
};

/// The providers of HashiCorp that tests of the Terraform client run, each with versions of its own.
pub(crate) const TERRAFORM_PROVIDERS: [GoCommand; 4] = [
    GoCommand::terraform_provider(
        "terraform-provider-random",
        "github.com/terraform-providers/terraform-provider-random",
        "random.mod",
    ),
    GoCommand::terraform_provider(
        "terraform-provider-local",
        "github.com/terraform-providers/terraform-provider-local",
        "local.mod",
    ),
    GoCommand::terraform_provider(
        "terraform-provider-time",
        "github.com/hashicorp/terraform-provider-time",
        "time.mod",
    ),
    GoCommand::terraform_provider("terraform-provider-tls", "github.com/hashicorp/terraform-provider-tls", "tls.mod"),
];

/// kubectl of the versions before the cluster's that are still about, by what they are called elsewhere.
pub(crate) const OLD_KUBECTLS: [(&str, GoCommand); 4] = [
    ("kubectl.1.27", GoCommand::old_kubectl("v1.27.mod")),
    ("kubectl.1.29", GoCommand::old_kubectl("v1.29.mod")),
    ("kubectl.1.31", GoCommand::old_kubectl("v1.31.mod")),
    ("kubectl.1.33", GoCommand::old_kubectl("v1.33.mod")),
];

impl GoCommand {
    const fn of_cluster(name: &'static str, module: &'static str, package: &'static str) -> Self {
        Self { name, module, folder: "tests/cluster", versions: "go.mod", package, tags: "" }
    }

    const fn old_kubectl(versions: &'static str) -> Self {
        Self { name: "kubectl", module: "k8s.io/kubectl", folder: "tests/kubectl", versions, package: ".", tags: "" }
    }

    const fn terraform_provider(name: &'static str, module: &'static str, versions: &'static str) -> Self {
        Self { name, module, folder: "tests/terraform/providers", versions, package: module, tags: "" }
    }

    /// The path of the binary, which is built first when the cache does not have it.
    pub(crate) fn binary(self) -> Result<PathBuf> {
        let source = paths::repository().join(self.folder);
        let versions = source.join(self.versions);
        let text = fs::read_to_string(&versions).with_context(|| format!("reading {}", versions.display()))?;
        let version = module_version(&text, self.module)
            .with_context(|| format!("{} does not require {}", versions.display(), self.module))?;

        let folder = paths::cache()?.join("bin");
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let binary = folder.join(format!("{}-{version}", self.name));
        if binary.exists() {
            return Ok(binary);
        }
        let _lock = paths::lock(&folder.join(format!(".{}.lock", self.name)))?;
        if !binary.exists() {
            self.build(&source, version, &binary)?;
        }
        Ok(binary)
    }

    /// The folder with the source of its module, which some commands read while they run.
    pub(crate) fn source(self) -> Result<PathBuf> {
        let folder = paths::repository().join(self.folder);
        let mut go = self.go(&folder, &["mod", "download", "-json"]);
        let output = go.arg(self.module).stderr(Stdio::inherit()).output();
        let output = output.context("running go; Go 1.26 is needed to build it")?;
        ensure!(output.status.success(), "go mod download of {} failed", self.module);
        let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        Ok(told["Dir"].as_str().context("go mod download names no folder")?.into())
    }

    fn build(self, source: &Path, version: &str, binary: &Path) -> Result<()> {
        eprintln!("building {} {version} from Go modules, once; this takes minutes …", self.name);
        let started = Instant::now();
        // Never a half-written binary under the final name.
        let partial = binary.with_extension("partial");
        let mut go = self.go(source, &["build", "-trimpath", "-buildvcs=false"]);
        go.arg("-ldflags").arg(linker_flags(version)).arg("-o").arg(&partial).arg(self.package);
        let built = go.stdout(std::io::stderr()).status().context("running go; Go 1.26 is needed to build it")?;
        ensure!(built.success(), "go build of {} failed", self.name);
        fs::rename(&partial, binary).with_context(|| format!("renaming {}", partial.display()))?;
        eprintln!("built {} in {:.0?}", binary.display(), started.elapsed());
        Ok(())
    }

    fn go(self, source: &Path, words: &[&str]) -> Command {
        let mut go = Command::new("go");
        let cgo = if self.tags.is_empty() { "0" } else { "1" };
        go.current_dir(source).env("CGO_ENABLED", cgo).args(words);
        if !self.tags.is_empty() && matches!(words, ["build", ..]) {
            go.args(["-tags", self.tags]);
        }
        if self.versions != "go.mod" {
            go.arg(format!("-modfile={}", self.versions));
        }
        go
    }
}

/// The version `go.mod` requires of `module`.
fn module_version<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().map(|line| line.trim().trim_start_matches("require ")).find_map(|line| {
        let (name, rest) = line.split_once(' ')?;
        (name == module && !rest.starts_with("=>")).then(|| rest.split_whitespace().next())?
    })
}

/// Tells Kubernetes its version; without that, clients would see `v0.0.0-master`.
fn linker_flags(version: &str) -> String {
    // The libraries of Kubernetes v1.N are v0.N.
    let version = version.strip_prefix("v0.").map_or_else(|| version.to_owned(), |rest| format!("v1.{rest}"));
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let mut flags = "-s -w".to_owned();
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        for (name, value) in
            [("gitVersion", version.as_str()), ("gitMajor", major), ("gitMinor", minor), ("gitTreeState", "clean")]
        {
            flags.push_str(&format!(" -X {package}.{name}={value}"));
        }
    }
    flags
}

/// How cargo optimizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Quick to build.
    Debug,
    /// Quick to run.
    Release,
    /// Quickest to run, as it is shipped, and slow to build.
    Dist,
}

impl Profile {
    /// What cargo calls it.
    fn name(self) -> &'static str {
        match self {
            Self::Debug => "dev",
            Self::Release => "release",
            Self::Dist => "dist",
        }
    }

    /// The folder with what is built so, in cargo's.
    fn folder(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Release | Self::Dist => self.name(),
        }
    }
}

/// The two processes of Stoa.
#[derive(Debug, Clone)]
pub(crate) struct StoaBinaries {
    pub(crate) apiserver: PathBuf,
    pub(crate) runner: PathBuf,
}

/// Builds `stoa-apiserver` and `function-runner`, unless they are in the folder `built`; cargo itself shows the progress.
pub(crate) fn stoa(profile: Profile, built: Option<&Path>) -> Result<StoaBinaries> {
    let in_folder = |folder: &Path| StoaBinaries {
        apiserver: folder.join("stoa-apiserver"),
        runner: folder.join("function-runner"),
    };
    if let Some(built) = built {
        return Ok(in_folder(built));
    }
    let mut cargo = Command::new("cargo");
    cargo.current_dir(paths::repository()).args(["build", "--package=stoa-apiserver", "--package=function-runner"]);
    cargo.args(["--profile", profile.name()]);
    let binaries = in_folder(&paths::cargo_target().join(profile.folder()));
    if profile != Profile::Debug && !(binaries.apiserver.exists() && binaries.runner.exists()) {
        eprintln!("building Stoa with optimization; the first time this takes some minutes …");
    }
    // What a script prints on stdout is for its caller.
    let status = cargo.stdout(std::io::stderr()).status().context("running cargo")?;
    ensure!(status.success(), "cargo build failed");
    Ok(binaries)
}

/// Builds the example `wardle` of `stoa-storage`, unless it is in the folder `built`.
pub(crate) fn wardle(built: Option<&Path>) -> Result<PathBuf> {
    example("stoa-storage", "wardle", built)
}

/// Builds the example `crds` of `stoa-kinds`, unless it is in the folder `built`: it prints the definitions of Stoa's kinds.
pub(crate) fn crds(built: Option<&Path>) -> Result<PathBuf> {
    example("stoa-kinds", "crds", built)
}

fn example(package: &str, name: &str, built: Option<&Path>) -> Result<PathBuf> {
    let debug = paths::cargo_target().join("debug");
    if built.is_none() {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(paths::repository()).args(["build", "--package", package, "--example", name]);
        let status = cargo.stdout(std::io::stderr()).status().context("running cargo")?;
        ensure!(status.success(), "cargo build failed");
    }
    Ok(built.unwrap_or(&debug).join("examples").join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_requirements_not_from_replacements() {
        let go_mod = "module m\n\nrequire (\n\tk8s.io/kubernetes v1.36.3\n\tx.io/y v1.0.0 // indirect\n)\n\
                      replace (\n\tk8s.io/api => k8s.io/api v0.36.3\n)\nrequire x.io/single v2.0.0\n";
        assert_eq!(module_version(go_mod, "k8s.io/kubernetes"), Some("v1.36.3"));
        assert_eq!(module_version(go_mod, "x.io/y"), Some("v1.0.0"));
        assert_eq!(module_version(go_mod, "x.io/single"), Some("v2.0.0"));
        assert_eq!(module_version(go_mod, "k8s.io/api"), None);
    }

    #[test]
    fn kubernetes_learns_its_version_from_the_linker() {
        let flags = linker_flags("v1.36.3");
        assert!(flags.contains("-X k8s.io/component-base/version.gitVersion=v1.36.3"), "{flags}");
        assert!(flags.contains("-X k8s.io/component-base/version.gitMinor=36"), "{flags}");
        assert_eq!(linker_flags("v0.36.3"), flags);
    }
}
