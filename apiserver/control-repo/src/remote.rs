//! The remote of record: fetches and pushes, without any knowledge of the log.
//!
//! All functions block. libgit2 limits the time without a byte, if the process has set that (`stoa_git::set_timeouts`), and a token
//! cancels transfers.
//!
//! A push is a compare-and-swap. The protocol's command names the commit from which a ref moves, and the server rejects it when
//! the ref is elsewhere. We check before we send that this is the commit that everybody agreed on. libgit2 cannot ask the server to
//! move all refs or none, so each ref has an answer of its own.
//!
//! Start at [`Remote`]. Elsewhere: `sync` decides what to push and when.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use git2::{
    AutotagOption, Direction, ErrorClass, ErrorCode, FetchOptions, Oid, PushOptions, RemoteRedirect, Repository,
    Signature, Transaction,
};
use stoa_git::{Credentials, Explanation, Problem};
use stoa_machinery::profile;
use tokio_util::sync::CancellationToken;

use super::repository::{self, MAIN};

/// The remote's main at the last fetch.
pub(super) const REMOTE_MAIN: &str = "refs/stoa/remote/main";
/// The remote's history at the last fetch.
pub(super) const REMOTE_HISTORY: &str = "refs/stoa/remote/history";
/// The most bytes of a fetch: no history of YAML files is that large.
const MOST_BYTES: usize = 16 << 30;
/// The most objects of a fetch.
const MOST_OBJECTS: usize = 100_000_000;
/// Main rests at least this many times the duration of our push. Where that is slow, others are slow too, and they fetch
/// before they push.
const SLOWER: u32 = 3;
/// The longest rest.
const LONGEST_REST: Duration = Duration::from_secs(30);

/// The remote of record, and the intervals of its use.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// Its URL: `https://`, `ssh://`, `file://` or as in `git@example.com:control.git`, without a password.
    pub url: String,
    /// A folder with the credentials, as [`Credentials::read`] takes them, read again at each use.
    pub credentials: Option<PathBuf>,
    /// The interval at which it is asked for commits of others.
    pub poll: Duration,
    /// The longest delay between two attempts while it is unavailable.
    pub longest_retry: Duration,
    /// The least time from the end of a push to the next under constant writes: people who fetch and push lose a race
    /// against every move of main.
    pub pace: Duration,
}

impl RemoteOptions {
    /// A remote without credentials that is asked every ten seconds.
    pub fn new(url: impl Into<String>) -> Self {
        let (poll, longest_retry) = (Duration::from_secs(10), Duration::from_secs(60));
        Self { url: url.into(), credentials: None, poll, longest_retry, pace: Duration::from_secs(5) }
    }
}

/// Why the remote could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// It is unreachable, or failed; it may be back any time.
    #[error("{0}")]
    Unavailable(String),
    /// It rejects the credentials, or its own identity does not verify.
    #[error("{0}")]
    Unauthorized(String),
    /// It rejects commits, as where main is a protected branch.
    #[error("{0}")]
    Refused(String),
    /// Its main does not descend from the agreed commit.
    #[error(
        "main of the remote was rewritten: it is {main}, which does not go on from {agreed}; nothing is taken from it or put \
         there until main contains {agreed} again"
    )]
    Rewritten {
        /// The commit of its main.
        main: String,
        /// The agreed commit.
        agreed: String,
    },
    /// Its main exceeds the limits of a walk, or of a fetch.
    #[error("{0}")]
    TooMuch(String),
    /// Another writer moved a ref first.
    #[error("somebody else pushed first")]
    Raced,
}

impl RemoteError {
    /// The reason, one CamelCase word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unavailable(_) | Self::Raced => "RemoteUnavailable",
            Self::Unauthorized(_) => "RemoteUnauthorized",
            Self::Refused(_) => "RemoteRefused",
            Self::Rewritten { .. } => "RemoteRewritten",
            Self::TooMuch(_) => "RemoteTooLarge",
        }
    }
}

/// The refs of the remote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heads {
    pub main: Option<Oid>,
    pub history: Option<Oid>,
}

/// A ref to be moved.
#[derive(Clone, Debug)]
pub(super) struct Update {
    pub name: String,
    /// Its commit as far as we know; `None` when it does not exist.
    pub old: Option<Oid>,
    pub new: Oid,
}

#[derive(Clone, Debug)]
pub(super) struct Remote {
    options: RemoteOptions,
    stop: CancellationToken,
    /// The most objects of a fetch.
    most_objects: usize,
}

impl Remote {
    /// Transfers end when `stop` is cancelled.
    pub(super) fn new(options: RemoteOptions, stop: CancellationToken) -> Self {
        Self { options, stop, most_objects: MOST_OBJECTS }
    }

    /// The ref with the history of the log of this id.
    pub(super) fn history_of(id: &str) -> String {
        format!("refs/stoa/history/{id}")
    }

    /// The rest of main after a push of ours of this duration.
    pub(super) fn rest(&self, took: Duration) -> Duration {
        self.options.pace.max(took.saturating_mul(SLOWER).min(LONGEST_REST))
    }

    /// Fetches the wanted refs: main, and a history by the name of its ref.
    pub(super) fn fetch(
        &self,
        repository: &Repository,
        main: bool,
        history: Option<&str>,
    ) -> Result<Heads, RemoteError> {
        let session = self.session()?;
        // libgit2 takes a wait that a signal interrupts for a lost server.
        let _uninterrupted = profile::uninterrupted();
        let wanted: Vec<(&str, &str)> =
            main.then_some((MAIN, REMOTE_MAIN)).into_iter().chain(history.map(|name| (name, REMOTE_HISTORY))).collect();
        let fetched = || {
            let mut remote = repository.remote_anonymous(&self.options.url)?;
            let told = list(&mut remote, &session)?;
            let told = |name: &str| told.iter().find(|(told, _)| told == name).map(|(_, id)| *id);
            let missing = |(name, _): &&(&str, &str)| told(name).is_some_and(|id| repository.find_commit(id).is_err());
            let refspecs: Vec<String> =
                wanted.iter().filter(missing).map(|(name, here)| format!("+{name}:{here}")).collect();
            if !refspecs.is_empty() {
                let mut options = FetchOptions::new();
                options.remote_callbacks(session.callbacks());
                options.download_tags(AutotagOption::None).update_fetchhead(false);
                options.follow_redirects(RemoteRedirect::None);
                remote.fetch(&refspecs, Some(&mut options), None)?;
            }
            let head = |name: &str, here: &str| {
                let Some(id) = told(name) else { return Ok(None) };
                if refspecs.iter().any(|refspec| refspec.ends_with(here)) {
                    // It may have moved on between the two.
                    return repository.refname_to_id(here).map(Some);
                }
                repository.reference(here, id, true, "stoa: as at the remote")?;
                Ok::<_, git2::Error>(Some(id))
            };
            Ok(Heads {
                main: if main { head(MAIN, REMOTE_MAIN)? } else { None },
                history: history.map_or(Ok(None), |name| head(name, REMOTE_HISTORY))?,
            })
        };
        fetched().map_err(|error: git2::Error| match session.exceeded.load(Ordering::Relaxed) {
            true => RemoteError::TooMuch(self.too_much()),
            false => self.explain(&error, &session),
        })
    }

    fn too_much(&self) -> String {
        let url = stoa_git::without_userinfo(&self.options.url);
        let most = format!("{} GiB or {} objects to fetch at once", MOST_BYTES >> 30, self.most_objects);
        format!("{url} has more than {most}; nothing is taken from it until it has less")
    }

    /// Moves refs, each provided that it is unchanged; returns for each the reason of a rejection by the server.
    pub(super) fn push(&self, repository: &Repository, updates: &[Update]) -> Result<Vec<Option<String>>, RemoteError> {
        let session = self.session()?;
        let pushed = match stoa_git::local_path(&self.options.url) {
            Some(folder) => push_into(repository, &folder, updates),
            None => self.push_over_network(repository, updates, &session),
        };
        pushed.map_err(|error| match error.code() {
            ErrorCode::NotFastForward | ErrorCode::Modified | ErrorCode::Exists => RemoteError::Raced,
            // By another process, or by one that was killed: that lasts until a person removes the lock.
            ErrorCode::Locked => {
                let url = stoa_git::without_userinfo(&self.options.url);
                RemoteError::Unavailable(format!("{url} is locked: {}", error.message()))
            }
            _ => self.explain(&error, &session),
        })
    }

    fn push_over_network(
        &self,
        repository: &Repository,
        updates: &[Update],
        session: &Session,
    ) -> Result<Vec<Option<String>>, git2::Error> {
        // As for a fetch.
        let _uninterrupted = profile::uninterrupted();
        let mut told = vec![None; updates.len()];
        let mut callbacks = session.callbacks();
        callbacks.push_negotiation(|commands| {
            let is_expected = |command: &git2::PushUpdate<'_>| {
                let update = updates.iter().find(|update| update.name.as_bytes() == command.dst_refname_bytes());
                update.is_some_and(|update| command.src() == update.old.unwrap_or(Oid::ZERO_SHA1))
            };
            if commands.iter().all(is_expected) {
                return Ok(());
            }
            Err(git2::Error::new(ErrorCode::NotFastForward, ErrorClass::Callback, "somebody else pushed first"))
        });
        callbacks.push_update_reference(|name, status| {
            if let Some(number) = updates.iter().position(|update| update.name == name) {
                told[number] = Some(status.map(str::to_owned));
            }
            Ok(())
        });
        let mut options = PushOptions::new();
        options.remote_callbacks(callbacks).packbuilder_parallelism(1).follow_redirects(RemoteRedirect::None);
        let refspecs: Vec<String> = updates.iter().map(|update| format!("{}:{}", update.new, update.name)).collect();
        repository.remote_anonymous(&self.options.url)?.push(&refspecs, Some(&mut options))?;
        drop(options);
        // A push without an answer may still take effect.
        let all: Option<Vec<Option<String>>> = told.into_iter().collect();
        all.ok_or_else(|| git2::Error::from_str("the server did not say what became of a push"))
    }

    /// The credentials of the moment.
    fn session(&self) -> Result<Session, RemoteError> {
        let credentials = match &self.options.credentials {
            Some(folder) => Credentials::read(folder).map_err(|error| {
                let folder = folder.display();
                RemoteError::Unauthorized(format!("the credentials in {folder} cannot be read: {error}"))
            })?,
            None => Credentials::default(),
        };
        let (url, stop, most_objects) = (self.options.url.clone(), self.stop.clone(), self.most_objects);
        Ok(Session { url, credentials, stop, most_objects, exceeded: Arc::default() })
    }

    fn explain(&self, error: &git2::Error, session: &Session) -> RemoteError {
        let Explanation { problem, message } = stoa_git::explain(error, &self.options.url, &session.credentials);
        match problem {
            Problem::Unauthorized | Problem::Untrusted | Problem::Elsewhere => RemoteError::Unauthorized(message),
            Problem::NotFound | Problem::Unreachable | Problem::Other => RemoteError::Unavailable(message),
        }
    }
}

/// One use of the remote.
struct Session {
    url: String,
    credentials: Credentials,
    stop: CancellationToken,
    most_objects: usize,
    /// Whether a transfer was cancelled because it exceeded a limit.
    exceeded: Arc<AtomicBool>,
}

impl Session {
    fn callbacks(&self) -> git2::RemoteCallbacks<'static> {
        let mut callbacks = self.credentials.callbacks(&self.url);
        let (stop, exceeded, most_objects) = (self.stop.clone(), Arc::clone(&self.exceeded), self.most_objects);
        callbacks.transfer_progress(move |progress| {
            let fits = progress.received_bytes() <= MOST_BYTES && progress.total_objects() <= most_objects;
            if !fits {
                exceeded.store(true, Ordering::Relaxed);
            }
            fits && !stop.is_cancelled()
        });
        let stop = self.stop.clone();
        callbacks.sideband_progress(move |_| !stop.is_cancelled());
        callbacks
    }
}

/// The refs of a remote.
fn list(remote: &mut git2::Remote<'_>, session: &Session) -> Result<Vec<(String, Oid)>, git2::Error> {
    let connection = remote.connect_auth(Direction::Fetch, Some(session.callbacks()), None)?;
    Ok(connection.list()?.iter().map(|head| (head.name().to_owned(), head.oid())).collect())
}

/// Pushes to a repository on this machine. libgit2's own push moves references whatever their old value is.
///
/// The references move in the order of `updates`, each in a transaction of its own, once all are locked and checked.
/// libgit2 1.9.7 commits the references of one transaction in the order of a hash map and stops at the first error
/// (`git_transaction_commit` in `src/libgit2/transaction.c`). It also takes a target that does not exist
/// (`update_target`, which unlike `git_reference_create` asks no object database).
///
/// Returns for each reference why it did not move, if it did not and an earlier one did.
fn push_into(repository: &Repository, folder: &Path, updates: &[Update]) -> Result<Vec<Option<String>>, git2::Error> {
    let target = repository::open_another(folder, repository)?;
    if !target.is_bare() {
        return Err(git2::Error::new(ErrorCode::BareRepo, ErrorClass::Repository, "the repository is not a bare one"));
    }
    let mut walk = repository.revwalk()?;
    for update in updates {
        walk.push(update.new)?;
        if let Some(old) = update.old.filter(|old| target.find_commit(*old).is_ok()) {
            walk.hide(old)?;
        }
    }
    let mut builder = repository.packbuilder()?;
    builder.insert_walk(&mut walk)?;
    if builder.object_count() > 0 {
        // By the settings of the repository that they come from. A writer of the target's syncs nothing.
        builder.write(&target.commondir().join("objects/pack"), 0)?;
    }
    let mut transactions = Vec::with_capacity(updates.len());
    for update in updates {
        transactions.push(locked(&target, update)?);
    }
    let mut failed = None;
    for transaction in transactions {
        // Those after a failure are dropped, which unlocks them.
        if let Err(error) = transaction.commit() {
            failed = Some(error);
            break;
        }
    }
    let Some(error) = failed else { return Ok(vec![None; updates.len()]) };
    // A reference may have moved although its transaction failed, as where its folder was not synced.
    let moved = |update: &Update| target.refname_to_id(&update.name).is_ok_and(|id| id == update.new);
    if !updates.iter().any(moved) {
        return Err(error);
    }
    Ok(updates.iter().map(|update| (!moved(update)).then(|| error.message().to_owned())).collect())
}

/// A transaction that moves one reference, which is locked and at its old value.
fn locked<'r>(target: &'r Repository, update: &Update) -> Result<Transaction<'r>, git2::Error> {
    if target.find_commit(update.new).is_err() {
        let lacks = format!("the repository lacks commit {} for {}: run git fsck in it", update.new, update.name);
        return Err(git2::Error::new(ErrorCode::NotFound, ErrorClass::Odb, lacks));
    }
    let mut transaction = target.transaction()?;
    transaction.lock_ref(&update.name)?;
    if target.refname_to_id(&update.name).ok() != update.old {
        return Err(git2::Error::new(ErrorCode::Modified, ErrorClass::Reference, "somebody else pushed first"));
    }
    let who = Signature::now("Stoa", "stoa@users.stoa.dev")?;
    transaction.set_target(&update.name, update.new, Some(&who), "stoa")?;
    Ok(transaction)
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        io::{self, Read, Write as _},
        net::TcpListener,
        process::{Command, Stdio},
        thread::{self, JoinHandle},
    };

    use tempfile::TempDir;

    use super::*;
    use crate::{commit_builder::CommitBuilder, repository::ControlRepository};

    /// Is set where the test about syncs is the only one of its process.
    const ALONE: &str = "STOA_SYNC_TEST_ALONE";

    fn commit(control: &ControlRepository, base: Option<Oid>, content: &str) -> Oid {
        control.commit(base, &[CommitBuilder::of_file("things/web.yaml", content)]).unwrap().unwrap()
    }

    /// How often libgit2 has synced a file or a folder in this process.
    #[expect(unsafe_code, reason = "libgit2 counts for its own tests, in a global")]
    fn syncs() -> usize {
        unsafe extern "C" {
            static mut p_fsync__cnt: usize;
        }
        // SAFETY: it is a `size_t`, which is changed by this thread alone where this is called.
        unsafe { (&raw const p_fsync__cnt).read_volatile() }
    }

    #[test]
    fn folder_push_syncs_files_and_leaves_settings() {
        if env::var_os(ALONE).is_none() {
            let name = concat!(module_path!(), "::folder_push_syncs_files_and_leaves_settings");
            let name = name.split_once("::").unwrap().1;
            let mut alone = Command::new(env::current_exe().unwrap());
            let output = alone.args(["--exact", name]).env(ALONE, "").output().unwrap();
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && told.contains("1 passed"), "{told}");
            return;
        }
        let (here, theirs) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        Repository::init_bare(theirs.path()).unwrap();
        let settings = || std::fs::read_to_string(theirs.path().join("config")).unwrap();
        let before = settings();
        let control = ControlRepository::open(here.path(), true).unwrap();
        let first = commit(&control, None, "replicas: 1\n");
        let second = commit(&control, Some(first), "replicas: 2\n");
        let ours = control.repository().unwrap();
        let synced_by = |old: Option<Oid>, new: Oid| {
            let before = syncs();
            push_into(&ours, theirs.path(), &[Update { name: MAIN.to_owned(), old, new }]).unwrap();
            syncs() - before
        };
        let both = synced_by(None, second);
        // The objects are there.
        let of_ref = synced_by(Some(second), first);
        assert!(of_ref >= 1, "the ref is not synced");
        assert!(both >= of_ref + 2, "the pack and its index are not synced: {both} and {of_ref}");
        assert_eq!(settings(), before);
    }

    /// Puts a folder with a file where the log of a reference would be.
    fn stand_in_the_way(repository: &Path, reference: &str) {
        let folder = repository.join("logs").join(reference);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("file"), "").unwrap();
    }

    #[test]
    fn failed_folder_push_reports_moved_references() {
        let (here, theirs) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let target = Repository::init_bare(theirs.path()).unwrap();
        // The log of main cannot be written, so that its transaction fails when it is committed.
        target.config().unwrap().set_str("core.logAllRefUpdates", "always").unwrap();
        stand_in_the_way(theirs.path(), MAIN);
        let control = ControlRepository::open(here.path(), true).unwrap();
        let (new, ours) = (commit(&control, None, "replicas: 1\n"), control.repository().unwrap());
        let url = format!("file://{}", theirs.path().display());
        let remote = Remote::new(RemoteOptions::new(url), CancellationToken::new());
        // Whatever order a hash map has, one of these names would come after main in it.
        for id in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            let history = Update { name: Remote::history_of(id), old: None, new };
            let main = Update { name: MAIN.to_owned(), old: None, new };
            let outcomes = remote.push(&ours, &[history.clone(), main]).unwrap();
            assert_eq!(outcomes.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true], "{outcomes:?}");
            assert_eq!(target.refname_to_id(&history.name).unwrap(), new);
            assert!(target.refname_to_id(MAIN).is_err());
        }
        // The locks are free again, and the push succeeds once the obstacle is removed.
        std::fs::remove_dir_all(theirs.path().join("logs/refs/heads/main")).unwrap();
        let main = Update { name: MAIN.to_owned(), old: None, new };
        assert_eq!(remote.push(&ours, &[main]).unwrap(), [None]);
        assert_eq!(target.refname_to_id(MAIN).unwrap(), new);
    }

    #[test]
    fn failed_first_reference_stops_folder_push() {
        let (here, theirs) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let target = Repository::init_bare(theirs.path()).unwrap();
        target.config().unwrap().set_str("core.logAllRefUpdates", "always").unwrap();
        let control = ControlRepository::open(here.path(), true).unwrap();
        let (new, ours) = (commit(&control, None, "replicas: 1\n"), control.repository().unwrap());
        for id in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            let history = Remote::history_of(id);
            stand_in_the_way(theirs.path(), &history);
            let updates = [history, MAIN.to_owned()].map(|name| Update { name, old: None, new });
            push_into(&ours, theirs.path(), &updates).unwrap_err();
            assert!(target.refname_to_id(MAIN).is_err(), "main moved before the history {id}");
        }
    }

    #[test]
    fn folder_push_rejects_missing_commit() {
        let (here, theirs) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let target = Repository::init_bare(theirs.path()).unwrap();
        let control = ControlRepository::open(here.path(), true).unwrap();
        let first = commit(&control, None, "replicas: 1\n");
        let second = commit(&control, Some(first), "replicas: 2\n");
        let ours = control.repository().unwrap();
        push_into(&ours, theirs.path(), &[Update { name: MAIN.to_owned(), old: None, new: second }]).unwrap();
        // A repository that has lost all but the commit at its tip: nothing of what leads there would be sent.
        let tip = ours.odb().unwrap().read(second).unwrap().data().to_vec();
        let packs = theirs.path().join("objects/pack");
        std::fs::remove_dir_all(&packs).unwrap();
        std::fs::create_dir(&packs).unwrap();
        Repository::open_bare(theirs.path()).unwrap().odb().unwrap().write(git2::ObjectType::Commit, &tip).unwrap();
        let back = Update { name: MAIN.to_owned(), old: Some(second), new: first };
        let error = push_into(&ours, theirs.path(), &[back]).unwrap_err();
        assert!(error.message().contains(&format!("lacks commit {first}")), "{error}");
        assert_eq!(target.refname_to_id(MAIN).unwrap(), second);
    }

    #[test]
    fn main_rests_the_longer_the_slower_pushes_are() {
        let options = RemoteOptions { pace: Duration::from_secs(5), ..RemoteOptions::new("file:///nowhere") };
        let remote = Remote::new(options, CancellationToken::new());
        for (took, rest) in [(0, 5), (1, 5), (4, 12), (600, 30)] {
            assert_eq!(remote.rest(Duration::from_secs(took)), Duration::from_secs(rest), "{took}");
        }
    }

    #[test]
    fn oversized_fetch_reports_too_much() {
        let (here, there) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let theirs = ControlRepository::open(there.path(), false).unwrap();
        let main = commit(&theirs, None, "replicas: 1\n");
        assert!(theirs.advance(None, main).unwrap());
        let control = ControlRepository::open(here.path(), true).unwrap();
        let repository = control.repository().unwrap();
        let url = format!("file://{}", there.path().display());
        let remote = Remote::new(RemoteOptions::new(url), CancellationToken::new());
        // A commit, two trees and a file.
        let small = Remote { most_objects: 3, ..remote.clone() };
        let error = small.fetch(&repository, true, None).unwrap_err();
        assert!(matches!(&error, RemoteError::TooMuch(why) if why.contains("3 objects")), "{error:?}");
        assert!(repository.find_commit(main).is_err(), "nothing of it is here");
        let large = Remote { most_objects: 4, ..remote };
        assert_eq!(large.fetch(&repository, true, None).unwrap().main, Some(main));
    }

    /// The next packet as it is sent.
    fn packet(from: &mut impl Read) -> String {
        let mut length = [0; 4];
        from.read_exact(&mut length).unwrap();
        let length = String::from_utf8(length.to_vec()).unwrap();
        // One of length 0 ends a list.
        let mut content = vec![0; usize::from_str_radix(&length, 16).unwrap().saturating_sub(4)];
        from.read_exact(&mut content).unwrap();
        length + &String::from_utf8(content).unwrap()
    }

    /// Serves one push over `git://`, as a server that takes it and does not say what became of the refs.
    fn serve_a_push(listener: TcpListener, repository: &Path) -> JoinHandle<()> {
        let mut program = Command::new("git");
        program.arg("receive-pack").arg(repository).stdin(Stdio::piped()).stdout(Stdio::piped());
        thread::spawn(move || {
            let mut caller = listener.accept().unwrap().0;
            // It is known what is asked for.
            packet(&mut caller);
            let mut program = program.spawn().unwrap();
            let mut told = program.stdout.take().unwrap();
            loop {
                let packet = packet(&mut told);
                caller.write_all(packet.as_bytes()).unwrap();
                if packet == "0000" {
                    break;
                }
            }
            let (mut pushed, mut to) = (caller.try_clone().unwrap(), program.stdin.take().unwrap());
            // By hand, since `io::copy` keeps back what it has while more may come.
            let copying = thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(size @ 1..) = pushed.read(&mut buffer)
                    && to.write_all(&buffer[..size]).is_ok()
                {}
            });
            io::copy(&mut told, &mut io::sink()).unwrap();
            program.wait().unwrap();
            caller.write_all(b"000eunpack ok\n0000").unwrap();
            copying.join().unwrap();
        })
    }

    #[test]
    fn unreported_reference_fails_push() {
        let (here, there) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let theirs = Repository::init_bare(there.path()).unwrap();
        let control = ControlRepository::open(here.path(), true).unwrap();
        let new = commit(&control, None, "replicas: 1\n");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("git://{}/control.git", listener.local_addr().unwrap());
        let server = serve_a_push(listener, there.path());
        let remote = Remote::new(RemoteOptions::new(url), CancellationToken::new());
        let update = Update { name: MAIN.to_owned(), old: None, new };
        let error = remote.push(&control.repository().unwrap(), &[update]).unwrap_err();
        assert!(matches!(&error, RemoteError::Unavailable(why) if why.contains("did not say")), "{error:?}");
        server.join().unwrap();
        // That is why: whoever comes next has to look.
        assert_eq!(theirs.refname_to_id(MAIN).unwrap(), new);
    }

    #[test]
    fn ref_listing_rejects_redirect_to_other_host() {
        let here = TempDir::new().unwrap();
        let control = ControlRepository::open(here.path(), true).unwrap();
        let (server, other) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let url = format!("http://{}/control.git", server.local_addr().unwrap());
        let location = format!("http://localhost:{}/control.git/info/refs", other.local_addr().unwrap().port());
        let answering = thread::spawn(move || {
            let mut caller = server.accept().unwrap().0;
            // It is known what is asked for.
            let _ = caller.read(&mut [0; 4096]).unwrap();
            let answer = format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
            caller.write_all(answer.as_bytes()).unwrap();
        });
        let remote = Remote::new(RemoteOptions::new(url), CancellationToken::new());
        let error = remote.fetch(&control.repository().unwrap(), true, None).unwrap_err();
        assert!(matches!(&error, RemoteError::Unauthorized(why) if why.contains("leads to")), "{error:?}");
        answering.join().unwrap();
        other.set_nonblocking(true).unwrap();
        assert_eq!(other.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "it heard of us");
    }
}
