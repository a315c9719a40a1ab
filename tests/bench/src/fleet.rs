//! Fleets: a million assignments in this process and at the server, and pull requests for commits to a control plane.
//!
//! Start at [`measure`]. `generator` makes control planes; `templates` executes their templates, by a function-runner of this
//! program; `pulls` measures commits; `assignments` measures lists of assignments.

mod assignments;
mod generator;
mod pulls;
mod templates;

use std::{
    collections::BTreeMap,
    env,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use ring::digest::{Context as Digest, SHA256};
use stoa_fleet::{
    ControlPlane, Files, Fleet, Sources,
    changed::changed,
    render::{File, Output, render_each},
    templates::Renderer,
};
use stoa_proto::fleet_client::FleetClient;
use stoa_proto::{GitPerson, PackageFile, ProposeFilesRequest, Source};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tonic::transport::Channel;

use self::generator::{Dimensions, edited, sources};
use self::templates::{OnRunner, Replacing};
use crate::measure::{Bench, Side};
use crate::process::{forget_own_peak, peak_with_workers};
use crate::report::{Better, Numbers};
use crate::runner::RunnerProcess;
use crate::scene::{Scene, git};

/// One cluster type of so many has its files committed.
const SHARE: usize = 100;
/// Files of a control plane with one object each, for each cluster type of the other one.
const FILES: usize = 10;
/// The largest message of a function-runner.
const MESSAGE: usize = 256 << 20;

/// Measures a fleet in this process, a commit of its files, pull requests, and lists of assignments.
///
/// # Errors
///
/// When a step fails, or has another result than it should.
pub(crate) async fn measure(bench: &mut Bench, scene: &Scene) -> Result<()> {
    let dimensions = Dimensions { cluster_types: bench.size.cluster_types, workloads: bench.size.workloads };
    let renderer = env::var_os("STOA_TEST_RENDERER").filter(|it| !it.is_empty()).map(PathBuf::from);
    if renderer.is_none() {
        bench.report.note(
            "fleet: STOA_TEST_RENDERER is not set, so that templates are replacements in this process, and no pull request is measured",
        );
    }
    let runner = RunnerProcess::start(bench.bed.servers.runner, renderer.as_deref(), None).await?;
    let client =
        FleetClient::new(runner.channel()).max_decoding_message_size(MESSAGE).max_encoding_message_size(MESSAGE);
    let templates: Arc<dyn Renderer> = match &renderer {
        Some(_) => Arc::new(OnRunner { client: client.clone(), runtime: Handle::current() }),
        None => Arc::new(Replacing),
    };
    let measured = tokio::task::spawn_blocking(move || in_process(dimensions, &*templates));
    let measured = measured.await.context("the fleet panicked")??;
    bench.report.section(format!("a fleet of {} assignments", dimensions.assignments()));
    bench.report.note(
        "fleet: in this process, as the API server does it; the peak memory is that of this process, a function-runner and its renderers",
    );
    for (title, measure, number) in measured.rows {
        bench.report.row(&title, measure, Better::Less, of_stoa(number));
    }
    commit(bench, client, measured.share).await.context("commit")?;
    drop(runner);
    if renderer.is_some() {
        pulls::measure(bench, scene).await.context("pull requests")?;
    }
    assignments::measure(bench, scene).await.context("assignments")
}

fn of_stoa(number: f64) -> Numbers {
    [(Side::Stoa, number)].into_iter().collect()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The figures of a fleet in this process.
struct Measured {
    rows: Vec<(String, &'static str, f64)>,
    /// The files of one cluster type in a hundred.
    share: BTreeMap<String, String>,
}

/// Reads a fleet, edits one ConfigMap, and renders everything.
fn in_process(dimensions: Dimensions, renderer: &dyn Renderer) -> Result<Measured> {
    let mut rows = Vec::new();
    let mut add = |title: &str, measure: &'static str, number: f64| rows.push((title.to_owned(), measure, number));
    let mut sources = sources("prod", dimensions);
    let began = Instant::now();
    let plane = ControlPlane::read(&sources, None);
    ensure!(plane.problems.is_empty(), "the control plane has a problem: {}", plane.problems[0]);
    let old = Fleet::new(plane.inputs.clone());
    add("read and schedule", "ms", ms(began.elapsed()));

    let (path, text) = edited("after");
    sources.branch.insert(path, Bytes::from(text));
    let began = Instant::now();
    let after = ControlPlane::read(&sources, Some(&plane));
    let new = old.next(after.inputs);
    let changes = changed(&old, &BTreeMap::new(), &new, renderer)?;
    add("one config edit to the exact diff", "ms", ms(began.elapsed()));
    let expected = dimensions.of_edited_region() * dimensions.workloads;
    ensure!(changes.written.len() == expected, "{} files differ, not {expected}", changes.written.len());
    ensure!(changes.deleted.is_empty() && changes.broken.is_empty(), "the edit deletes or breaks files");
    drop((changes, old, plane));

    forget_own_peak()?;
    let began = Instant::now();
    let (mut files, mut digest, mut share, mut broken) = (0_usize, Digest::new(&SHA256), BTreeMap::new(), None);
    render_each(&new, renderer, &mut |output| match output {
        Output::File(path, File { content, .. }) => {
            files += 1;
            // The digest of a file, and of all.
            digest.update(path.as_bytes());
            digest.update(ring::digest::digest(&SHA256, content.as_bytes()).as_ref());
            if is_in_share(&path) {
                share.insert(path, content);
            }
        }
        Output::Broken(folder, of) => broken = Some(format!("{folder}: {:?}", of.problems)),
        Output::Warning(_) => {}
    })?;
    add("digests of all files", "s", began.elapsed().as_secs_f64());
    let _whole = digest.finish();
    add("digests of all files", "peak MB", peak_with_workers(std::process::id())? as f64 / 1e6);
    ensure!(broken.is_none(), "an assignment is not rendered: {broken:?}");
    let expected = 3 * dimensions.assignments() + dimensions.cluster_types;
    ensure!(files == expected, "{files} files are rendered, not {expected}");
    drop((new, sources));
    let number = FILES * dimensions.cluster_types;
    let (read, again) = many_files(number)?;
    add(&format!("read {number} files"), "ms", read);
    add("the same after one edit", "ms", again);
    Ok(Measured { rows, share })
}

/// Whether a file is of one cluster type in [`SHARE`].
fn is_in_share(path: &str) -> bool {
    let number = path.strip_prefix("type-").and_then(|rest| rest.split('/').next());
    number.and_then(|number| number.parse::<usize>().ok()).is_some_and(|number| number % SHARE == 0)
}

/// How long a control plane of many small files takes, and once more after an edit, in ms.
fn many_files(files: usize) -> Result<(f64, f64)> {
    let map = |number: usize, value: &str| {
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: map-{number}, labels: {{platform-config: 'true'}}}}\ndata: {{KEY: {value}}}\n"
        );
        (format!("folder-{}/{number}.yaml", number % 100), Bytes::from(text))
    };
    let branch: Files = (0..files).map(|number| map(number, "value")).collect();
    let mut many = Sources { environment: "prod".to_owned(), branch, ..Sources::default() };
    let began = Instant::now();
    let plane = ControlPlane::read(&many, None);
    let read = ms(began.elapsed());
    ensure!(plane.inputs.config_maps.len() == files, "{} files are read", plane.inputs.config_maps.len());
    many.branch.extend([map(0, "other")]);
    let began = Instant::now();
    let after = ControlPlane::read(&many, Some(&plane));
    let again = ms(began.elapsed());
    ensure!(after.inputs.config_maps["map-0"] != plane.inputs.config_maps["map-0"], "the edit is not read");
    Ok((read, again))
}

/// A commit of one hundredth of the files, and of the same files with one that differs.
async fn commit(bench: &mut Bench, client: FleetClient<Channel>, mut share: BTreeMap<String, String>) -> Result<()> {
    let repository = TempDir::new().context("making a folder")?;
    git(&repository, &["init", "--quiet", "--initial-branch=main"])?;
    git(&repository, &["commit", "--quiet", "--allow-empty", "--message", "Begin"])?;
    // The branch of a work tree is not pushed to.
    git(&repository, &["checkout", "--quiet", "--detach"])?;
    let title = format!("commit of {} files", share.len());
    let first = propose(client.clone(), &repository, &share, share.len()).await?;
    bench.report.row(&title, "s", Better::Less, of_stoa(first.as_secs_f64()));
    let changed = share.first_entry().context("there are files")?.key().clone();
    share.insert(changed, "kind: Other\n".to_owned());
    // Against the base, all files are new.
    let second = propose(client, &repository, &share, share.len()).await?;
    bench.report.row("the same with one that differs", "s", Better::Less, of_stoa(second.as_secs_f64()));
    Ok(())
}

/// Proposes files as the server does; how long that took.
async fn propose(
    mut client: FleetClient<Channel>,
    repository: &TempDir,
    files: &BTreeMap<String, String>,
    changes: usize,
) -> Result<Duration> {
    let file = |(path, content): (&String, &String)| PackageFile {
        path: path.clone(),
        content: Bytes::copy_from_slice(content.as_bytes()),
        ..PackageFile::default()
    };
    let source = Source {
        provider: "Git".to_owned(),
        remote: format!("file://{}", repository.path().display()),
        organization: "bench".to_owned(),
        ..Source::default()
    };
    let person = GitPerson { name: "Bench".to_owned(), email: "bench@localhost".to_owned(), seconds: 1_700_000_000 };
    let began = Instant::now();
    let request = ProposeFilesRequest {
        source: Some(source),
        base: "main".to_owned(),
        head: "deployment/prod".to_owned(),
        files: files.iter().map(file).collect(),
        owner: "prod/fleet".to_owned(),
        message: "Update manifests".to_owned(),
        author: Some(person),
        ..ProposeFilesRequest::default()
    };
    let answer = client.propose_files(request).await;
    let elapsed = began.elapsed();
    let answer = answer.map_err(|status| anyhow::anyhow!("{}: {}", status.code(), status.message()))?.into_inner();
    ensure!(answer.is_pushed && answer.rejected.is_empty(), "nothing is pushed: {}", answer.rejected);
    ensure!(answer.changes.len() == changes, "{} files differ, not {changes}", answer.changes.len());
    Ok(elapsed)
}
