//! The sample organization: its Git repositories and its objects, both from `hack/quickstart.d`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::kubectl::Kubectl;
use crate::paths;

/// Where the sample is deployed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SampleTarget {
    /// A Git repository that a GitOps tool would reconcile.
    GitOps,
    /// The cluster that Stoa runs in.
    Cluster,
}

/// The sample in one folder: `quickstart/source` is a repository to edit, `quickstart/deploy.git` the one that
/// rollouts are committed to.
#[derive(Debug)]
pub(super) struct Sample {
    folder: PathBuf,
    target: SampleTarget,
}

impl Sample {
    /// Makes the repositories that are not there yet, below the absolute path `dir`.
    pub(super) fn make(dir: &Path, target: SampleTarget) -> Result<Self> {
        let folder = paths::make_folder(&dir.join("quickstart"))?;
        let sample = Self { folder, target };
        if !sample.source().exists() {
            // Made aside and renamed, so that an interrupted call leaves no half of it.
            let partial = sample.folder.join("source.partial");
            remove_folder(&partial)?;
            let template = paths::repository().join("hack/quickstart.d/source");
            let copied = Command::new("cp").arg("-R").arg(template).arg(&partial).status().context("running cp")?;
            ensure!(copied.success(), "copying to {} failed", partial.display());
            git(&partial, &["init", "--quiet", "--initial-branch=main"])?;
            // Whoever edits the sample commits as themselves, if git knows them.
            if !knows_author(&partial) {
                git(&partial, &["config", "user.name", "Quick Start"])?;
                git(&partial, &["config", "user.email", "quickstart@localhost"])?;
            }
            git(&partial, &["add", "--all"])?;
            git(&partial, &["-c", "commit.gpgsign=false", "commit", "--quiet", "--message=Describe the web shop"])?;
            fs::rename(&partial, sample.source()).context("renaming the sample repository")?;
        }
        if target == SampleTarget::GitOps && !sample.deploy().exists() {
            let partial = sample.folder.join("deploy.partial");
            remove_folder(&partial)?;
            fs::create_dir_all(&partial).context("making the deployment repository")?;
            git(&partial, &["init", "--quiet", "--bare", "--initial-branch=main"])?;
            fs::rename(&partial, sample.deploy()).context("renaming the deployment repository")?;
        }
        eprintln!("source repository: {}", sample.source().display());
        Ok(sample)
    }

    /// The repository with the configuration, and its work tree.
    pub(super) fn source(&self) -> PathBuf {
        self.folder.join("source")
    }

    /// The file to edit.
    pub(super) fn spec(&self) -> PathBuf {
        self.source().join("apps/web/dev/spec.yaml")
    }

    fn deploy(&self) -> PathBuf {
        self.folder.join("deploy.git")
    }

    /// Applies the sample's objects and waits until they are ready.
    pub(super) fn create_objects(&self, kubectl: &Kubectl) -> Result<()> {
        let platform = match self.target {
            SampleTarget::GitOps => "platform-gitops",
            SampleTarget::Cluster => "platform-kubernetes",
        };
        self.apply(kubectl, platform, &["backend/default", "workspace/dev"])?;
        self.apply(kubectl, "organization", &["organization/shop"])?;
        self.apply(kubectl, "shop", &["source/config", "project/web"])
    }

    fn apply(&self, kubectl: &Kubectl, name: &str, ready: &[&str]) -> Result<()> {
        let template = paths::repository().join(format!("hack/quickstart.d/objects/{name}.yaml"));
        let text = fs::read_to_string(&template).with_context(|| format!("reading {}", template.display()))?;
        let text = text.replace("@SOURCE@", &file_url(&self.source())).replace("@DEPLOY@", &file_url(&self.deploy()));
        let file = self.folder.join(format!("{name}.yaml"));
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        let file = file.to_str().context("the folder's path is not UTF-8")?;
        kubectl.show(&["apply", "--filename", file])?;
        let mut wait = vec!["wait", "--for=condition=Ready", "--timeout=60s", "--namespace=shop"];
        wait.extend_from_slice(ready);
        kubectl.run(&wait)?;
        Ok(())
    }

    /// Shows what the rollout made: the commit, or the objects.
    pub(super) fn show_result(&self, kubectl: &Kubectl) -> Result<()> {
        match self.target {
            SampleTarget::GitOps => {
                println!("The commit in {}:\n", self.deploy().display());
                git(&self.deploy(), &["--no-pager", "log", "-1", "--stat", "main"])
            }
            SampleTarget::Cluster => {
                println!("The objects in the cluster:\n");
                let kinds = "serviceaccounts,services,configmaps,roles,rolebindings,networkpolicies,ingresses,\
                             resourcequotas,limitranges";
                kubectl.show(&["get", kinds, "--namespace=web-dev"])
            }
        }
    }

    /// The commands that show the history, to be printed.
    pub(super) fn history_hint(&self, dir: &Path) -> String {
        let (deployed, control) = match self.target {
            SampleTarget::GitOps => (
                format!("git --git-dir {} log --stat main   # what was deployed", self.deploy().display()),
                dir.join("control.git"),
            ),
            SampleTarget::Cluster => {
                ("kubectl get configmap settings -n web-dev -o yaml".to_owned(), dir.join("cluster/stoa/control.git"))
            }
        };
        format!("{deployed}\ngit --git-dir {} log main          # what was decided", control.display())
    }
}

/// `file://` and the absolute path, percent-encoded as far as a path needs it.
fn file_url(path: &Path) -> String {
    let mut url = "file://".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' | b'+' | b'@' => {
                url.push(char::from(*byte))
            }
            other => url.push_str(&format!("%{other:02X}")),
        }
    }
    url
}

fn git(folder: &Path, args: &[&str]) -> Result<()> {
    let status = Command::new("git").arg("-C").arg(folder).args(args).stdin(Stdio::null()).status();
    ensure!(status.context("running git")?.success(), "git {} failed in {}", args.join(" "), folder.display());
    Ok(())
}

fn knows_author(folder: &Path) -> bool {
    let output = Command::new("git").arg("-C").arg(folder).args(["config", "user.email"]).output();
    output.is_ok_and(|output| output.status.success())
}

fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_of_a_path_with_blanks_is_encoded() {
        assert_eq!(file_url(Path::new("/a b/c%.git")), "file:///a%20b/c%25.git");
    }

    #[test]
    fn history_is_in_the_control_repository_of_either_server() {
        let hint = |target| Sample { folder: PathBuf::from("/s/quickstart"), target }.history_hint(Path::new("/s"));
        assert!(hint(SampleTarget::GitOps).contains("git --git-dir /s/control.git log main"));
        assert!(hint(SampleTarget::Cluster).contains("git --git-dir /s/cluster/stoa/control.git log main"));
    }

    #[test]
    fn source_is_one_commit_and_survives_a_second_call() {
        let dir = tempfile::tempdir().unwrap();
        let sample = Sample::make(dir.path(), SampleTarget::GitOps).unwrap();
        let head = |sample: &Sample| {
            let output =
                Command::new("git").arg("-C").arg(sample.source()).args(["rev-parse", "main"]).output().unwrap();
            assert!(output.status.success());
            output.stdout
        };
        let first = head(&sample);
        fs::write(sample.spec(), "resources: []\n").unwrap();
        let again = Sample::make(dir.path(), SampleTarget::GitOps).unwrap();
        assert_eq!(head(&again), first);
        assert_eq!(fs::read_to_string(again.spec()).unwrap(), "resources: []\n");
        assert!(again.deploy().join("HEAD").exists());
    }
}
