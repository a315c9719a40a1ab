//! Commits to a control plane as large as Kalypso's own samples, until each is in a pull request at a real Git server.
//!
//! Kalypso's own figure for seven assignments is 13 s.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use ring::hmac;
use serde_json::{Value, json};
use stoa_test_gitea::{GiteaServer, USER};
use tempfile::TempDir;
use tokio::task::block_in_place;

use super::generator::{Dimensions, edited, sources};
use super::{ms, of_stoa};
use crate::client::Call;
use crate::measure::{Bench, MeasuredCollection, Side, percentile_ms};
use crate::report::Better;
use crate::scene::{Scene, git};

/// Some files more than the recorded environment `dev` has.
const DIMENSIONS: Dimensions = Dimensions { cluster_types: 5, workloads: 2 };
/// The Secret with the credentials of an Environment, by Kalypso's name.
const SECRET: &str = "gh-repo-secret";
const TOKEN: &str = "of-the-benchmark";
const PATIENCE: Duration = Duration::from_secs(120);
const API: &str = "/apis/scheduler.kalypso.io/v1alpha1/namespaces";

/// Measures the time from a pushed commit to its pull request.
///
/// # Errors
///
/// When a commit gets no pull request.
pub(super) async fn measure(bench: &mut Bench, scene: &Scene) -> Result<()> {
    let Some((webhooks, authority)) = bench.bed.webhooks.clone() else {
        bench.report.note("the test bed takes no webhooks, so that no pull request of a fleet is measured");
        return Ok(());
    };
    let Some(gitea) = block_in_place(GiteaServer::start) else {
        bench.report.note("STOA_TEST_GITEA is not set, so that no pull request of a fleet is measured");
        return Ok(());
    };
    let environment = format!("{}-fleet", scene.name);
    let control_plane = block_in_place(|| ControlPlane::push(&gitea, &environment))?;
    let secrets = format!("/api/v1/namespaces/{}/secrets", scene.name);
    let texts = json!({"username": USER, "password": gitea.token, "webhookToken": TOKEN});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": texts});
    scene.kubernetes(&Call::post(secrets, &secret)).await?;
    let collection = format!("{API}/{}/environments", scene.name);
    let environments = MeasuredCollection::new(Side::Stoa, bench.bed.stoa.clone(), collection);
    let of = json!({"repo": control_plane.address, "branch": "prod", "path": "."});
    let object = json!({
        "apiVersion": "scheduler.kalypso.io/v1alpha1", "kind": "Environment", "metadata": {"name": environment},
        "spec": {"controlPlane": of},
    });
    environments.ask(&Call::post(environments.collection.clone(), &object)).await?;
    let repo = Repo { target: &environments, path: format!("{API}/{environment}/gitopsrepoes/fleet") };
    let mut commit = repo.next("").await?;
    let mut times = Vec::new();
    for number in 0..bench.size.fleet_commits {
        bench.settle().await?;
        block_in_place(|| control_plane.edit(&format!("value-{number}")))?;
        let began = Instant::now();
        let path = format!("{webhooks}/{}/environments/{environment}", scene.name);
        block_in_place(|| deliver(&path, &authority))?;
        commit = repo.next(&commit).await?;
        times.push(began.elapsed());
    }
    environments.ask(&Call::delete(environments.object(&environment))).await?;
    times.sort_unstable();
    let assignments = DIMENSIONS.assignments();
    bench.report.section(format!("a commit of {assignments} assignments, with a webhook, at Gitea"));
    bench.report.row("until its pull request", "p50 ms", Better::Less, of_stoa(percentile_ms(&times, 0.5)));
    let slowest = times.last().copied().map_or(f64::NAN, ms);
    bench.report.row("until its pull request", "max ms", Better::Less, of_stoa(slowest));
    bench.report.note("without a webhook, Stoa asks for the commit of a branch every ten seconds");
    // Its namespace is of the cluster, and has no organization.
    scene.kubernetes(&Call::delete(format!("/api/v1/namespaces/{environment}"))).await.map(drop)
}

/// A control plane at a Git server.
struct ControlPlane {
    folder: TempDir,
    /// Without credentials.
    address: String,
}

impl ControlPlane {
    fn push(gitea: &GiteaServer, environment: &str) -> Result<Self> {
        let (address, gitops) = (gitea.create("control-plane"), gitea.create("gitops"));
        let folder = TempDir::new().context("making a folder")?;
        git(&folder, &["init", "--quiet", "--initial-branch=prod"])?;
        git(&folder, &["remote", "add", "origin", &GiteaServer::with_password(&address, USER)])?;
        let control_plane = Self { folder, address };
        for (path, content) in sources(environment, DIMENSIONS).branch {
            control_plane.write(&path, &content)?;
        }
        let repo = json!({
            "apiVersion": "scheduler.kalypso.io/v1alpha1", "kind": "GitOpsRepo", "metadata": {"name": "fleet"},
            "spec": {"repo": gitops, "branch": "main", "path": "."},
        });
        // JSON is YAML.
        control_plane.write("gitops-repo.yaml", repo.to_string().as_bytes())?;
        control_plane.commit()?;
        Ok(control_plane)
    }

    fn write(&self, path: &str, content: &[u8]) -> Result<()> {
        let file = self.folder.path().join(path);
        fs::create_dir_all(file.parent().context("the file has a folder")?)?;
        fs::write(&file, content).with_context(|| format!("writing {}", file.display()))
    }

    fn commit(&self) -> Result<()> {
        git(&self.folder, &["add", "--all"])?;
        git(&self.folder, &["commit", "--quiet", "--message", "Change the fleet"])?;
        git(&self.folder, &["push", "--quiet", "origin", "HEAD:prod"])
    }

    /// Pushes a commit with another value of a region.
    fn edit(&self, value: &str) -> Result<()> {
        let (path, text) = edited(value);
        self.write(&path, text.as_bytes())?;
        self.commit()
    }
}

/// Delivers a push as GitHub does.
fn deliver(url: &str, authority: &Path) -> Result<()> {
    let body = r#"{"ref":"refs/heads/prod","repository":{"full_name":"bot/control-plane"}}"#;
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, TOKEN.as_bytes()), body.as_bytes());
    let hex: String = signature.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--output", "/dev/null", "--write-out", "%{http_code}", "--data", body]);
    curl.arg("--cacert").arg(authority).args(["--header", "X-GitHub-Event: push", "--header"]);
    let output = curl.arg(format!("X-Hub-Signature-256: sha256={hex}")).arg(url).output().context("running curl")?;
    let code = String::from_utf8_lossy(&output.stdout);
    ensure!(code == "202", "the webhook answered {code}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// The GitOpsRepo of an environment.
struct Repo<'r> {
    target: &'r MeasuredCollection,
    path: String,
}

impl Repo<'_> {
    /// Waits for a pull request with another commit; the commit.
    async fn next(&self, before: &str) -> Result<String> {
        let (mut client, deadline) = (self.target.endpoint.connect().await?, Instant::now() + PATIENCE);
        loop {
            let answer = client.call(&Call::get(self.path.clone())).await?;
            // The object comes with the first reading of the control plane.
            let found = if answer.status.is_success() { answer.json()? } else { Value::Null };
            match found["status"]["pullRequest"]["commit"].as_str() {
                Some(commit) if commit != before => return Ok(commit.to_owned()),
                _ if Instant::now() > deadline => bail!("there is no pull request: {}", found["status"]),
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}
