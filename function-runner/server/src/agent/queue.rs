//! The deployments that the hub does not have yet, in a file that survives a restart.
//!
//! Start at [`Queue::observe`], which decides whether the state of an object is a new deployment. The file also has the last known
//! deployment of each object, so that a restart repeats none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::{Deserialize, Serialize};
use stoa_runtime_gitops::{Deployment, Progress};
use stoa_types::hub::{DeploymentStatus, ReportedDeployment};
use tempfile::NamedTempFile;

use super::assignment::Assignment;

/// The maximum number of deployments of one Reconciler in a report, which the hub accepts.
const OF_RECONCILER: usize = 100;

/// An object of Flux or Argo CD in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ObjectId {
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// A deployment of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Observed {
    pub(super) commit: String,
    pub(super) status: DeploymentStatus,
    pub(super) message: String,
    /// Since when, by the clock of the cluster.
    pub(super) time: Timestamp,
}

impl Observed {
    fn new(deployment: Deployment, now: Timestamp) -> Self {
        let status = match deployment.progress {
            Progress::Progressing => DeploymentStatus::InProgress,
            Progress::Ready => DeploymentStatus::Success,
            Progress::Failed => DeploymentStatus::Failure,
        };
        let time = deployment.since.parse().unwrap_or(now);
        Self { commit: deployment.revision, status, message: deployment.message, time }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.commit == other.commit && self.status == other.status
    }

    /// As the deployment of a Reconciler; without a time, it is of the hub's now.
    pub(super) fn reported(&self, reconciler: &str, time: Option<Timestamp>) -> ReportedDeployment {
        ReportedDeployment {
            reconciler: reconciler.to_owned(),
            git_ops_commit_id: self.commit.clone(),
            status: self.status,
            status_message: self.message.clone(),
            time: time.map(MicroTime),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    object: ObjectId,
    deployment: Observed,
}

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Contents {
    /// The last deployment of each object.
    known: Vec<Entry>,
    /// The deployments to report, the oldest first.
    pending: Vec<Entry>,
}

/// The deployments that wait for the hub.
#[derive(Debug)]
pub(super) struct Queue {
    file: PathBuf,
    max_pending: usize,
    known: BTreeMap<ObjectId, Observed>,
    pending: VecDeque<Entry>,
    is_saved: bool,
    /// The number of deployments that were dropped since the queue was empty.
    dropped: u64,
    /// The same since the start.
    dropped_in_all: u64,
}

impl Queue {
    /// Reads the file, or creates it. A file that does not parse is renamed to `<file>.damaged`.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written.
    pub(super) fn open(file: &Path, max_pending: usize) -> io::Result<Self> {
        let contents = match fs::read(file) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(contents) => contents,
                Err(error) => {
                    let mut aside = file.as_os_str().to_owned();
                    aside.push(".damaged");
                    fs::rename(file, &aside)?;
                    tracing::warn!(%error, file = %file.display(), "the queue file is damaged; renamed to .damaged");
                    Contents::default()
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Contents::default(),
            Err(error) => return Err(error),
        };
        let known = contents.known.into_iter().map(|entry| (entry.object, entry.deployment)).collect();
        let pending = contents.pending.into();
        let (is_saved, dropped, dropped_in_all) = (false, 0, 0);
        let mut queue = Self { file: file.to_owned(), max_pending, known, pending, is_saved, dropped, dropped_in_all };
        queue.drop_oldest();
        queue.save()?;
        Ok(queue)
    }

    /// Notes the deployment of an object. A change of the commit or the status waits for the hub.
    ///
    /// Conditions keep their time when only the commit changes. Such a change is of `now`, as the cluster's clock has it.
    pub(super) fn observe(&mut self, object: &ObjectId, deployment: Deployment, now: Timestamp) {
        let mut observed = Observed::new(deployment, now);
        if let Some(known) = self.known.get_mut(object) {
            if known.is_same(&observed) {
                known.message = observed.message;
                return;
            }
            if observed.time <= known.time {
                observed.time = now.max(known.time);
            }
        }
        self.known.insert(object.clone(), observed.clone());
        self.pending.push_back(Entry { object: object.clone(), deployment: observed });
        self.drop_oldest();
        self.is_saved = false;
    }

    fn drop_oldest(&mut self) {
        while self.pending.len() > self.max_pending {
            if self.dropped == 0 {
                tracing::warn!(
                    deployments = self.max_pending,
                    "the queue is full; the agent drops the oldest deployments until it reaches the hub"
                );
            }
            self.dropped += 1;
            self.dropped_in_all += 1;
            self.pending.pop_front();
            self.is_saved = false;
        }
    }

    /// Forgets a deleted object. Its deployments still wait for the hub.
    pub(super) fn forget(&mut self, object: &ObjectId) {
        if self.known.remove(object).is_some() {
            self.is_saved = false;
        }
    }

    /// Forgets the objects of a kind that do not exist any more.
    pub(super) fn retain(&mut self, kind: &str, existing: &BTreeSet<&ObjectId>) {
        let before = self.known.len();
        self.known.retain(|object, _| object.kind != kind || existing.contains(object));
        if self.known.len() < before {
            self.is_saved = false;
        }
    }

    /// The last deployment of each object.
    pub(super) fn known(&self) -> &BTreeMap<ObjectId, Observed> {
        &self.known
    }

    /// The number of waiting deployments.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// The number of deployments that were dropped since the start because the queue was full.
    pub(super) fn total_dropped(&self) -> u64 {
        self.dropped_in_all
    }

    /// Whether no deployment waits.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The objects that are known or have waiting deployments; some twice.
    pub(super) fn objects(&self) -> impl Iterator<Item = &ObjectId> {
        self.known.keys().chain(self.pending.iter().map(|entry| &entry.object))
    }

    /// The oldest deployments, for one report of some `most` of them, and the number of entries that they are made of. Objects
    /// without a Reconciler have entries, and no deployments.
    pub(super) fn batch(&self, assignment: &Assignment, most: usize) -> (Vec<ReportedDeployment>, usize) {
        let mut deployments = Vec::new();
        let mut counts = BTreeMap::<&str, usize>::new();
        for (position, Entry { object, deployment }) in self.pending.iter().enumerate() {
            let reconcilers = assignment.of(object);
            let is_full = |name: &String| counts.get(name.as_str()).is_some_and(|count| *count >= OF_RECONCILER);
            let is_large = !deployments.is_empty() && deployments.len() + reconcilers.len() > most;
            if is_large || reconcilers.iter().any(is_full) {
                return (deployments, position);
            }
            for name in reconcilers {
                *counts.entry(name).or_default() += 1;
                deployments.push(deployment.reported(name, Some(deployment.time)));
            }
        }
        (deployments, self.pending.len())
    }

    /// Removes the oldest entries, which the hub has.
    pub(super) fn remove(&mut self, entries: usize) {
        if entries > 0 {
            self.pending.drain(..entries.min(self.pending.len()));
            self.is_saved = false;
        }
        if self.pending.is_empty() && self.dropped > 0 {
            tracing::warn!(
                dropped = self.dropped,
                "the hub has the queue; these deployments are missing in its history"
            );
            self.dropped = 0;
        }
    }

    /// Writes the file, if it has changed: whole or not at all.
    ///
    /// # Errors
    ///
    /// The file cannot be written. The deployments stay in memory.
    pub(super) fn save(&mut self) -> io::Result<()> {
        if self.is_saved {
            return Ok(());
        }
        let entry = |(object, deployment): (&ObjectId, &Observed)| Entry {
            object: object.clone(),
            deployment: deployment.clone(),
        };
        let contents =
            Contents { known: self.known.iter().map(entry).collect(), pending: self.pending.iter().cloned().collect() };
        let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut file = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
        file.write_all(&serde_json::to_vec(&contents)?)?;
        file.as_file().sync_all()?;
        file.persist(&self.file)?;
        self.is_saved = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stoa_types::hub::{Reconciler, ReconcilerSpec};

    use super::*;

    fn object(name: &str) -> ObjectId {
        ObjectId { kind: "Kustomization".to_owned(), namespace: "flux-system".to_owned(), name: name.to_owned() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn deployment(commit: &str, progress: Progress, second: i64) -> Deployment {
        let since = at(second).to_string();
        Deployment { revision: commit.to_owned(), progress, message: String::new(), since }
    }

    /// The commits and times of waiting deployments.
    fn pending(queue: &Queue) -> Vec<(String, i64)> {
        queue.pending.iter().map(|it| (it.deployment.commit.clone(), it.deployment.time.as_second())).collect()
    }

    fn pairs(pairs: &[(&str, i64)]) -> Vec<(String, i64)> {
        pairs.iter().map(|(commit, second)| ((*commit).to_owned(), *second)).collect()
    }

    #[test]
    fn only_changes_wait_for_the_hub() {
        let folder = tempfile::tempdir().unwrap();
        let mut queue = Queue::open(&folder.path().join("queue.json"), 10).unwrap();
        let web = object("web");
        queue.observe(&web, deployment("c1", Progress::Ready, 10), at(100));
        queue.observe(&web, deployment("c1", Progress::Ready, 20), at(101));
        queue.observe(&web, deployment("c2", Progress::Progressing, 30), at(102));
        // Its condition has the old time.
        queue.observe(&web, deployment("c3", Progress::Progressing, 30), at(103));
        let timeless = Deployment { since: String::new(), ..deployment("c4", Progress::Ready, 0) };
        queue.observe(&web, timeless, at(104));
        assert_eq!(pending(&queue), pairs(&[("c1", 10), ("c2", 30), ("c3", 103), ("c4", 104)]));
    }

    #[test]
    fn queue_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("queue.json");
        let mut queue = Queue::open(&file, 10).unwrap();
        queue.observe(&object("web"), deployment("c1", Progress::Ready, 10), at(100));
        queue.observe(&object("api"), deployment("c2", Progress::Failed, 11), at(100));
        queue.save().unwrap();
        drop(queue);

        let mut queue = Queue::open(&file, 10).unwrap();
        assert_eq!(pending(&queue), pairs(&[("c1", 10), ("c2", 11)]));
        // A list of the same state repeats nothing, even after a report.
        queue.remove(2);
        queue.save().unwrap();
        let mut queue = Queue::open(&file, 10).unwrap();
        queue.observe(&object("web"), deployment("c1", Progress::Ready, 10), at(100));
        assert!(queue.is_empty());

        fs::write(&file, "{").unwrap();
        let queue = Queue::open(&file, 10).unwrap();
        assert!(queue.is_empty() && queue.known().is_empty());
        assert!(folder.path().join("queue.json.damaged").exists());
    }

    #[test]
    fn full_queue_drops_the_oldest() {
        let folder = tempfile::tempdir().unwrap();
        let mut queue = Queue::open(&folder.path().join("queue.json"), 2).unwrap();
        for (second, commit) in [(1, "c1"), (2, "c2"), (3, "c3")] {
            queue.observe(&object("web"), deployment(commit, Progress::Ready, second), at(100));
        }
        assert_eq!(pending(&queue), pairs(&[("c2", 2), ("c3", 3)]));
        assert_eq!(queue.dropped, 1);
        queue.remove(2);
        assert_eq!((queue.dropped, queue.total_dropped(), queue.len()), (0, 1, 0));
    }

    #[test]
    fn batch_has_the_limits_of_a_report() {
        let folder = tempfile::tempdir().unwrap();
        let mut queue = Queue::open(&folder.path().join("queue.json"), 1000).unwrap();
        queue.observe(&object("unknown"), deployment("c", Progress::Ready, 1), at(1));
        for second in 1..=150 {
            queue.observe(&object("web"), deployment(&format!("c{second}"), Progress::Ready, second), at(1000));
        }
        let spec = ReconcilerSpec { reconciler_name: "web".to_owned(), ..ReconcilerSpec::default() };
        let assignment = Assignment::new(&[Reconciler::new("drone-web", spec)], queue.objects());
        let (deployments, entries) = queue.batch(&assignment, 1000);
        assert_eq!((deployments.len(), entries), (100, 101));
        assert_eq!(
            (deployments[0].git_ops_commit_id.as_str(), deployments[0].reconciler.as_str()),
            ("c1", "drone-web")
        );
        let (deployments, entries) = queue.batch(&assignment, 10);
        assert_eq!((deployments.len(), entries), (10, 11));
        queue.remove(101);
        let (deployments, entries) = queue.batch(&assignment, 1000);
        assert_eq!((deployments.len(), entries), (50, 50));
    }

    #[test]
    fn deleted_objects_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let mut queue = Queue::open(&folder.path().join("queue.json"), 10).unwrap();
        for name in ["web", "api", "old"] {
            queue.observe(&object(name), deployment("c1", Progress::Ready, 1), at(1));
        }
        queue.forget(&object("api"));
        let web = object("web");
        queue.retain("Application", &BTreeSet::new());
        queue.retain("Kustomization", &BTreeSet::from([&web]));
        assert_eq!(queue.known().keys().collect::<Vec<_>>(), [&web]);
        assert_eq!(pending(&queue).len(), 3);
    }
}
