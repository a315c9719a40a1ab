//! The repository that is rendered. The kustomization and the chart are those of the renderer's own benchmarks.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::scene::git;

/// A program of a hundred ConfigMaps.
pub(super) const PROGRAM: &str = "schema Settings:
    name: str
    color: str = \"blue\"

_all = [Settings {name = \"a${number}\"} for number in range(100)]
objects = [{
    apiVersion = \"v1\"
    kind = \"ConfigMap\"
    metadata.name = settings.name
    data.color = settings.color
} for settings in _all]
";

/// A Git repository with a work tree.
#[derive(Debug)]
pub(super) struct Inputs {
    folder: TempDir,
}

impl Inputs {
    pub(super) fn new() -> Result<Self> {
        let folder = tempfile::tempdir().context("making a folder")?;
        let write = |path: &str, text: &str| -> Result<()> {
            let file = folder.path().join(path);
            fs::create_dir_all(file.parent().context("the file has a folder")?)?;
            fs::write(&file, text).with_context(|| format!("writing {}", file.display()))
        };
        let mut list = "namePrefix: dev-\nlabels:\n- pairs: {team: shop}\nresources:\n".to_owned();
        for number in 0..100 {
            let _ = writeln!(list, "- a{number}.yaml");
            let object = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a{number}}}\ndata: {{a: b}}\n");
            write(&format!("kustomization/a{number}.yaml"), &object)?;
        }
        write("kustomization/kustomization.yaml", &list)?;
        write("chart/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n")?;
        write("chart/values.yaml", "x: y\n")?;
        for number in 0..50 {
            let template = format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{{{ .Release.Name }}}}-{number}\ndata:\n  a: {{{{ .Values.x | quote }}}}\n"
            );
            write(&format!("chart/templates/a{number}.yaml"), &template)?;
        }
        write("kcl/main.k", PROGRAM)?;
        git(&folder, &["init", "--quiet", "--initial-branch=main"])?;
        git(&folder, &["add", "--all"])?;
        git(&folder, &["commit", "--quiet", "--message", "Add what is rendered"])?;
        Ok(Self { folder })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Its only commit.
    pub(super) fn commit(&self) -> Result<String> {
        let head = fs::read_to_string(self.path().join(".git/refs/heads/main")).context("reading the commit")?;
        Ok(head.trim().to_owned())
    }
}
