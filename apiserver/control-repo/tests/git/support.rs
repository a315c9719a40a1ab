//! A log, its projection and a server that knows one kind, `things`, for the Git tests.
//!
//! A thing is at `/registry/things/<name>` with the value `<what people write>\0<status>`, and its file
//! `things/<name>.yaml` is the first part.

#![expect(clippy::unwrap_used, reason = "this is part of tests, where a panic is how they fail")]

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::Value;
use stoa_control_repo::{
    CommitInfo, Document, GitOptions, GitProjector, GitStatus, Ingest, IngestError, Layout, LayoutError, Location,
    ProjectionState, PushedFile, RemoteOptions,
};
pub(crate) use stoa_machinery::log::Write;
use stoa_machinery::{
    log::{Change, Expect, Key, Log, LogError, Origin, Record, Version},
    registry::Observer as _,
};
use stoa_storage::{Clock, LocalLog, local::LocalOptions};
use tempfile::TempDir;
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// How long the projection waits after a failure.
pub(crate) const RETRY: Duration = Duration::from_millis(20);
/// How long something may take on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many entries of trees are looked at in a push, which is enough for all tests but those that push more.
const MOST_ENTRIES: usize = 20_000;
const INGEST: &str = "stoa:git:control";
/// A value that does not decode, and so does not say where its file is.
const UNREADABLE: &[u8] = b"\xff";

/// A clock that stands still, so that commits can be compared.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now_ms(&self) -> i64 {
        1_700_000_001_000
    }
}

pub(crate) fn write(key: &str, change: Change, user: &str, verb: &str) -> Write {
    let origin = Origin { user: user.into(), verb: verb.into(), message: String::new() };
    Write { origin, ..Write::new(Key::new(key), Expect::Any, change) }
}

fn thing(name: &str, spec: &str, status: &str, user: &str) -> Write {
    write(&format!("/registry/things/{name}"), Change::Put(format!("{spec}\0{status}").into()), user, "update")
}

/// What a person writes through the API.
pub(crate) fn put(name: &str, spec: &str, user: &str) -> Write {
    thing(name, spec, "", user)
}

/// What a controller writes to the status.
pub(crate) fn status(name: &str, spec: &str, status: &str) -> Write {
    thing(name, spec, status, "system:stoa:controller")
}

/// What another writer of the log leaves where a thing was.
pub(crate) fn damage(name: &str) -> Write {
    write(&format!("/registry/things/{name}"), Change::Put(Bytes::from_static(UNREADABLE)), "", "")
}

pub(crate) fn remove(name: &str, user: &str) -> Write {
    write(&format!("/registry/things/{name}"), Change::Delete, user, "delete")
}

/// A write that has nothing to do with Git.
pub(crate) fn elsewhere() -> Write {
    write("/stoa/state/1/2/head", Change::Put("x".into()), "system:stoa:runs", "")
}

#[derive(Debug)]
struct Things;

/// The text of a file.
struct Thing(String);

/// What a file says of a thing, with the one default that there is: a queue has a length of 8.
fn spec(fields: &serde_json::Map<String, Value>) -> String {
    let default = fields.contains_key("queue") && !fields.contains_key("length");
    let said = fields.iter().map(|(name, value)| format!("{name}: {value}"));
    said.chain(default.then(|| "length: 8".to_owned())).collect::<Vec<_>>().join("\n")
}

impl Document for Thing {
    fn yaml(&self) -> Result<String, LayoutError> {
        Ok(self.0.clone())
    }

    fn json(&self) -> Result<Value, LayoutError> {
        Ok(serde_saphyr::from_str(&self.0)?)
    }
}

impl Layout for Things {
    fn key(&self, path: &str) -> Option<Key> {
        let name = path.strip_prefix("things/")?.strip_suffix(".yaml")?;
        Some(Key::new(format!("/registry/things/{name}")))
    }

    fn may_have_files(&self, folder: &str) -> bool {
        // As deep as people may push them here.
        matches!(folder.split('/').collect::<Vec<_>>().as_slice(), [""] | ["things", ..]) && folder.len() < 100
    }

    fn location(&self, key: &Key, value: &[u8]) -> Location {
        match key.as_str().strip_prefix("/registry/things/") {
            Some(_) if value == UNREADABLE => Location::Unknown,
            Some(name) => Location::At(format!("things/{name}.yaml")),
            None => Location::Nowhere,
        }
    }

    fn read(&self, _key: &Key, value: &[u8]) -> Result<Box<dyn Document>, LayoutError> {
        let spec = value.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Box::new(Thing(format!("{}\n", std::str::from_utf8(spec)?))))
    }

    fn read_file(&self, _path: &str, content: &[u8]) -> Option<Box<dyn Document>> {
        let said: Value = serde_saphyr::from_str(std::str::from_utf8(content).ok()?).ok()?;
        Some(Box::new(Thing(format!("{}\n", spec(said.as_object()?)))))
    }

    fn outlives_log(&self, path: &str) -> bool {
        path.starts_with("things/records/")
    }

    fn reads_alike(&self, _key: &Key, old: &[u8], new: &[u8]) -> bool {
        let spec = |value: &[u8]| value.split(|byte| *byte == 0).next().map(<[u8]>::to_vec);
        old != UNREADABLE && new != UNREADABLE && spec(old) == spec(new)
    }

    fn subject(&self, record: &Record, before: Option<&Value>, _now: Option<&Value>) -> String {
        let verb = match (&record.change, before) {
            (Change::Delete, _) => "delete",
            (_, None) => "create",
            _ => "update",
        };
        format!("{verb} thing {}", record.key.as_str().rsplit('/').next().unwrap_or_default())
    }

    fn ingest_user(&self) -> &str {
        INGEST
    }
}

/// Applies files as a server would: refuses what is wrong and writes nothing where nothing changes.
#[derive(Debug)]
struct Server {
    log: Arc<dyn Log>,
    invalid: parking_lot::Mutex<std::collections::BTreeSet<String>>,
}

impl Server {
    async fn append(&self, path: &str, change: Change, commit: &CommitInfo) -> Result<(), IngestError> {
        let name = path.trim_start_matches("things/").trim_end_matches(".yaml");
        let mut write = write(&format!("/registry/things/{name}"), change, INGEST, "apply");
        write.origin.message = commit.origin_message();
        let there = self.log.read(&write.key).await.map_err(|e| IngestError::Unavailable(e.into()))?;
        let same = match (&write.change, &there) {
            (Change::Put(value), Some(there)) => value == &there.value,
            (Change::Delete, None) => true,
            _ => false,
        };
        if !same {
            self.log.append(write).await.map_err(|e| IngestError::Unavailable(e.into()))?;
        }
        Ok(())
    }
}

#[async_trait]
impl Ingest for Server {
    async fn apply(&self, file: PushedFile<'_>) -> Result<(), IngestError> {
        let PushedFile { path, content, commit, .. } = file;
        let text = std::str::from_utf8(content).map_err(|error| IngestError::Invalid(error.to_string()))?;
        let value: serde_json::Value =
            serde_saphyr::from_str(text).map_err(|error| IngestError::Invalid(error.to_string()))?;
        let fields = value.as_object().ok_or_else(|| IngestError::Invalid("not a thing".to_owned()))?;
        if let Some(bad) = fields.get("bad") {
            return Err(IngestError::Invalid(format!("bad is {bad}")));
        }
        if let Some(needed) = fields.get("needs").and_then(Value::as_str) {
            let key = Key::new(format!("/registry/things/{needed}"));
            let there = self.log.read(&key).await.map_err(|e| IngestError::Unavailable(e.into()))?;
            there.ok_or_else(|| IngestError::Waiting(format!("{needed} is not there")))?;
        }
        self.append(path, Change::Put(format!("{}\0", spec(fields)).into()), commit).await
    }

    async fn remove(&self, path: &str, commit: &CommitInfo) -> Result<(), IngestError> {
        self.append(path, Change::Delete, commit).await
    }

    async fn invalid(&self, path: &str, _reason: &str, _commit: &CommitInfo) -> Result<(), IngestError> {
        self.invalid.lock().insert(path.to_owned());
        Ok(())
    }

    async fn valid_again(&self, path: &str) -> Result<(), IngestError> {
        self.invalid.lock().remove(path);
        Ok(())
    }
}

pub(crate) struct Bench {
    directory: PathBuf,
    // Keeps the directory, unless that is somebody else's.
    _folder: Option<TempDir>,
    log: Arc<dyn Log>,
    server: Arc<Server>,
    stop: CancellationToken,
    running: Option<(JoinHandle<()>, watch::Receiver<GitStatus>)>,
    remote: Option<RemoteOptions>,
    /// The machines that it has been on.
    machine: usize,
    /// How often it is looked whether packs have to be merged.
    repack: Duration,
    /// How long a commit waits for others.
    linger: Duration,
    /// How long a push waits for what its files need.
    patience: Duration,
}

impl Bench {
    pub(crate) async fn start() -> Self {
        let bench = Self::new(None).run();
        bench.wait(|status| status.commit.is_some()).await;
        bench
    }

    /// One that does not run yet.
    pub(crate) fn new(remote: Option<RemoteOptions>) -> Self {
        let folder = TempDir::new().unwrap();
        let bench = Self::at(folder.path());
        Self { remote, _folder: Some(folder), ..bench }
    }

    /// One in a directory that may have been another's before, which does not run yet.
    pub(crate) fn at(directory: &Path) -> Self {
        let log = open_log(&directory.join("log"));
        let server = Arc::new(Server { log: Arc::clone(&log), invalid: Default::default() });
        Self {
            directory: directory.to_owned(),
            _folder: None,
            log,
            server,
            stop: CancellationToken::new(),
            running: None,
            remote: None,
            machine: 0,
            repack: Duration::from_millis(100),
            linger: Duration::from_millis(5),
            patience: Duration::from_millis(50),
        }
    }

    pub(crate) fn repacked_every(self, repack: Duration) -> Self {
        Self { repack, ..self }
    }

    pub(crate) fn lingering(self, linger: Duration) -> Self {
        Self { linger, ..self }
    }

    pub(crate) fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    pub(crate) fn with_remote(mut self, remote: Option<RemoteOptions>) -> Self {
        self.remote = remote;
        self
    }

    /// On another machine, with nothing but the log.
    pub(crate) fn elsewhere(mut self) -> Self {
        self.machine += 1;
        self
    }

    pub(crate) fn run(mut self) -> Self {
        let options = GitOptions {
            poll: Duration::from_millis(20),
            linger: self.linger,
            pace: Duration::from_millis(5),
            retry: RETRY,
            patience: self.patience,
            repack: self.repack,
            most_entries: MOST_ENTRIES,
            clock: Arc::new(Still),
            remote: self.remote.clone(),
            ..GitOptions::default()
        };
        let layout = Arc::new(Things);
        let projector =
            GitProjector::new(Arc::clone(&self.log), self.repository(), layout, Arc::clone(&self.server) as _, options);
        let status = projector.status();
        let stop = CancellationToken::new();
        self.stop = stop.clone();
        self.running = Some((tokio::spawn(async move { projector.run(stop).await }), status));
        self
    }

    pub(crate) async fn stop(mut self) -> Self {
        self.stop.cancel();
        self.running.take().unwrap().0.await.unwrap();
        self
    }

    pub(crate) async fn restart(self) -> Self {
        let bench = self.stop().await.run();
        bench.wait(|status| status.commit.is_some()).await;
        bench
    }

    /// Drops what the projection is doing at some moment, and starts it again.
    pub(crate) async fn interrupt(mut self, after: Duration) -> Self {
        tokio::time::sleep(after).await;
        let (task, _) = self.running.take().unwrap();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        self.run()
    }

    pub(crate) fn with_new_log(mut self) -> Self {
        self.log = open_log(&self.directory.join("another-log"));
        self.server = Arc::new(Server { log: Arc::clone(&self.log), invalid: Default::default() });
        self
    }

    pub(crate) fn repository(&self) -> PathBuf {
        match self.machine {
            0 => self.directory.join("control.git"),
            machine => self.directory.join(format!("machine-{machine}/control.git")),
        }
    }

    pub(crate) async fn write(&self, write: Write) -> Version {
        self.log.append(write).await.unwrap()
    }

    pub(crate) async fn refused(&self, write: Write) {
        assert!(matches!(self.log.append(write).await, Err(LogError::Conflict { .. })));
    }

    pub(crate) async fn head(&self) -> Version {
        self.log.head().await.unwrap()
    }

    pub(crate) fn log(&self) -> Arc<dyn Log> {
        Arc::clone(&self.log)
    }

    pub(crate) async fn compact(&self, before: Version) {
        self.log.compact(before).await.unwrap();
    }

    /// What another replica knows of the projection.
    pub(crate) async fn record(&self) -> ProjectionState {
        let record = ProjectionState::default();
        self.update(&record).await;
        record
    }

    /// Waits until the record has these files as refused or waiting, and no others.
    pub(crate) async fn recorded(&self, files: &[&str]) {
        let is_recorded = async {
            loop {
                let entry = self.log.read(&Key::new(ProjectionState::PREFIX)).await.unwrap();
                let record: Value = serde_json::from_slice(&entry.unwrap().value).unwrap();
                let there: Vec<&String> =
                    record["invalid"].as_object().into_iter().flat_map(|map| map.keys()).collect();
                if there == files {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, is_recorded).await;
        waited.unwrap_or_else(|_| panic!("{files:?} are not recorded within {PATIENCE:?}"));
    }

    pub(crate) async fn update(&self, record: &ProjectionState) {
        let there = self.log.scan(ProjectionState::PREFIX, None).await.unwrap();
        record.reset(&there.entries);
    }

    pub(crate) async fn value(&self, name: &str) -> Option<String> {
        let entry = self.log.read(&Key::new(format!("/registry/things/{name}"))).await.unwrap()?;
        Some(String::from_utf8(entry.value.split(|byte| *byte == 0).next().unwrap().to_vec()).unwrap())
    }

    pub(crate) fn status(&self) -> GitStatus {
        self.running.as_ref().unwrap().1.borrow().clone()
    }

    pub(crate) fn invalid(&self) -> Vec<String> {
        self.server.invalid.lock().iter().cloned().collect()
    }

    pub(crate) async fn wait(&self, condition: impl FnMut(&GitStatus) -> bool) {
        let mut status = self.running.as_ref().unwrap().1.clone();
        let waited = tokio::time::timeout(PATIENCE, status.wait_for(condition)).await;
        waited.unwrap_or_else(|_| panic!("still {:?}", self.status())).unwrap();
    }

    pub(crate) async fn projected(&self, version: Version) {
        self.wait(|status| status.projected >= version && status.error.is_none()).await;
    }

    /// How many packs there are.
    pub(crate) fn packs(&self) -> usize {
        packs(&self.repository())
    }

    /// Waits until something is so.
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let waited = tokio::time::timeout(PATIENCE, async {
            while !is_so(self) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"));
    }

    /// Waits until main has this commit and all of it is accounted for.
    pub(crate) async fn ingested(&self, commit: &str) {
        let is_in = |tip: &String| {
            if !self.repository().is_dir() {
                return false;
            }
            let merge_base = ["merge-base", "--is-ancestor", commit, tip];
            Command::new("git").arg("-C").arg(self.repository()).args(merge_base).status().unwrap().success()
        };
        self.wait(|status| status.commit.as_ref().is_some_and(is_in)).await;
    }

    /// Waits until main was put back this many times since the start.
    pub(crate) async fn refused_histories(&self, times: u64) {
        self.wait(|status| status.refused == times).await;
    }

    pub(crate) async fn ingested_all(&self, clone: &Clone) {
        self.ingested(&clone.git(&["rev-parse", "HEAD"])).await;
    }

    /// The versions of records that pushes became.
    pub(crate) async fn pushed(&self) -> Vec<Version> {
        self.pushed_records().await.iter().map(|record| record.version).collect()
    }

    async fn pushed_records(&self) -> Vec<Record> {
        self.records(|record| record.origin.user == INGEST).await
    }

    async fn records(&self, are_wanted: impl Fn(&Record) -> bool) -> Vec<Record> {
        let head = self.log.head().await.unwrap();
        let records = self.log.follow(Version(0)).await.unwrap().take(usize::try_from(head.0).unwrap());
        let records = records.map(Result::unwrap);
        records.filter(|record| std::future::ready(are_wanted(record))).collect().await
    }

    /// How many bytes each record of the progress has.
    pub(crate) async fn saved(&self) -> Vec<usize> {
        let records = self.records(|record| record.key.as_str() == ProjectionState::PREFIX).await;
        let size = |record: &Record| match &record.change {
            Change::Put(value) => value.len(),
            Change::Delete => 0,
        };
        records.iter().map(size).collect()
    }

    /// The files whose content became records, with the subject of the commit they came from.
    pub(crate) async fn applied(&self) -> Vec<(String, String)> {
        let records = self.pushed_records().await;
        records
            .iter()
            .map(|record| {
                let commit = record.origin.message.strip_prefix("commit ").unwrap();
                (Things.location(&record.key, b"").path().unwrap(), self.git(&["log", "-1", "--format=%s", commit]))
            })
            .collect()
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        git(&self.repository(), arguments)
    }

    /// The subjects of all commits, oldest first.
    pub(crate) fn subjects(&self) -> Vec<String> {
        self.git(&["log", "--reverse", "--format=%s", "main"]).lines().map(str::to_owned).collect()
    }

    pub(crate) fn clone_repository(&self) -> Clone {
        Clone::of(&self.repository())
    }
}

impl Clone {
    pub(crate) fn of(repository: &Path) -> Self {
        let directory = TempDir::new().unwrap();
        git(directory.path(), &["clone", "-q", repository.to_str().unwrap(), "."]);
        git(directory.path(), &["config", "user.name", "Carla"]);
        git(directory.path(), &["config", "user.email", "carla@example.com"]);
        Clone { directory }
    }
}

/// How many packs a repository has.
pub(crate) fn packs(repository: &Path) -> usize {
    let files = std::fs::read_dir(repository.join("objects/pack")).unwrap();
    files.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|e| e == "pack")).count()
}

fn open_log(path: &Path) -> Arc<dyn Log> {
    let options = LocalOptions { clock: Arc::new(Still), ..LocalOptions::default() };
    Arc::new(LocalLog::open(path, options).unwrap())
}

/// A person's clone.
pub(crate) struct Clone {
    directory: TempDir,
}

impl Clone {
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        git(self.directory.path(), arguments)
    }

    /// What git says of a command that fails.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let (success, text) = run(self.directory.path(), arguments);
        assert!(!success, "git {arguments:?}: {text}");
        text
    }

    pub(crate) fn write(&self, path: &str, content: &str) {
        let path = self.directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(path)).unwrap()
    }

    /// Puts a folder on main in which one file is ten times, in each of ten folders, and so on so many times. Nobody can
    /// check it out.
    pub(crate) fn push_bomb(&self, folder: &str, levels: u32) -> String {
        let repository = git2::Repository::open(self.directory.path()).unwrap();
        let mut item = (repository.blob(b"a: 1\n").unwrap(), 0o100_644);
        for _ in 0..levels {
            let mut tree = repository.treebuilder(None).unwrap();
            for number in 0..10 {
                tree.insert(format!("{number}.yaml"), item.0, item.1).unwrap();
            }
            item = (tree.write().unwrap(), 0o040_000);
        }
        let head = repository.head().unwrap().peel_to_tree().unwrap();
        let mut tree = repository.treebuilder(Some(&head)).unwrap();
        tree.insert(folder, item.0, item.1).unwrap();
        let tree = tree.write().unwrap().to_string();
        let commit = self.git(&["commit-tree", &tree, "-p", "HEAD", "-m", "a bomb"]);
        self.git(&["push", "-q", "origin", &format!("{commit}:refs/heads/main")]);
        commit
    }

    pub(crate) fn commit_and_push(&self, subject: &str) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", subject]);
        self.git(&["push", "-q"]);
    }

    /// For when others write to main all the time.
    pub(crate) fn commit_and_push_rebasing(&self, subject: &str) {
        self.commit_and_push_after(subject, Duration::ZERO, 50);
    }

    /// The same by somebody who takes so long between a pull and a push, and tries so often.
    pub(crate) fn commit_and_push_after(&self, subject: &str, pause: Duration, times: u32) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", subject]);
        for _ in 0..times {
            self.git(&["pull", "-q", "--rebase"]);
            std::thread::sleep(pause);
            if run(self.directory.path(), &["push", "-q"]).0 {
                return;
            }
        }
        panic!("main moved {times} times between a pull and a push");
    }
}

fn run(directory: &Path, arguments: &[&str]) -> (bool, String) {
    let output = Command::new("git")
        .arg("-C")
        .arg(directory)
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(if output.status.success() { &output.stdout } else { &output.stderr });
    (output.status.success(), text.trim_end_matches('\n').to_owned())
}

pub(crate) fn git(directory: &Path, arguments: &[&str]) -> String {
    let (success, text) = run(directory, arguments);
    assert!(success, "git {arguments:?}: {text}");
    text
}
