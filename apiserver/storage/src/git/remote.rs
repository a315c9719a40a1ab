//! The remote of record: what is asked of it over the network, and nothing about the log.
//!
//! Everything here blocks. libgit2 bounds the time without a byte, if the process told it to
//! (`stoa_git::set_timeouts`), and a token ends transfers.
//!
//! A push is a compare-and-swap. The protocol's command names the commit that a ref is moved from, and the server refuses
//! it when the ref is elsewhere by then; that it is the commit which we agreed on is checked before anything is sent.
//! libgit2 cannot ask that all refs of a push move or none, so each is told about by itself.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use git2::{
    AutotagOption, Direction, ErrorClass, ErrorCode, FetchOptions, Oid, PushOptions, RemoteRedirect, Repository,
    Signature,
};
use stoa_git::{Credentials, Explanation, Problem};
use stoa_machinery::profile;
use tokio_util::sync::CancellationToken;

use super::repository::MAIN;

/// Where the remote's main was when it was last looked at.
pub(super) const REMOTE_MAIN: &str = "refs/stoa/remote/main";
/// And the history of what was authored there.
pub(super) const REMOTE_HISTORY: &str = "refs/stoa/remote/history";
/// A fetch that grows beyond this is broken off: no history of YAML files gets there.
const MOST_BYTES: usize = 16 << 30;
/// And beyond so many objects.
const MOST_OBJECTS: usize = 100_000_000;

/// Where the remote of record is, and how it is used.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// Its URL: `https://`, `ssh://`, `file://` or as in `git@example.com:control.git`. No password is in it.
    pub url: String,
    /// A folder with the credentials, as [`Credentials::read`] takes them, read again at each use.
    pub credentials: Option<PathBuf>,
    /// How often it is asked for commits of others.
    pub poll: Duration,
    /// The longest wait between two attempts while it is away.
    pub longest_retry: Duration,
}

impl RemoteOptions {
    /// A remote without credentials that is asked every ten seconds.
    pub fn new(url: impl Into<String>) -> Self {
        let (poll, longest_retry) = (Duration::from_secs(10), Duration::from_secs(60));
        Self { url: url.into(), credentials: None, poll, longest_retry }
    }
}

/// Why the remote could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// It is out of reach, or failed; it may be back any time.
    #[error("{0}")]
    Unavailable(String),
    /// It wants other credentials, or is not who it should be.
    #[error("{0}")]
    Unauthorized(String),
    /// It takes no commits, as where main is a protected branch.
    #[error("{0}")]
    Refused(String),
    /// Its main does not go on from what we agreed on.
    #[error(
        "main of the remote was rewritten: it is {main}, which does not go on from {agreed}; nothing is taken from it or put \
         there until main contains {agreed} again"
    )]
    Rewritten {
        /// Where its main is.
        main: String,
        /// The commit that we agreed on.
        agreed: String,
    },
    /// Somebody else moved a ref first.
    #[error("somebody else pushed first")]
    Raced,
}

impl RemoteError {
    /// One CamelCase word for machines.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unavailable(_) | Self::Raced => "RemoteUnavailable",
            Self::Unauthorized(_) => "RemoteUnauthorized",
            Self::Refused(_) => "RemoteRefused",
            Self::Rewritten { .. } => "RemoteRewritten",
        }
    }
}

/// What the remote has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heads {
    pub main: Option<Oid>,
    pub history: Option<Oid>,
}

/// A ref to be moved.
#[derive(Clone, Debug)]
pub(super) struct Update {
    pub name: String,
    /// Where it is as far as we know; `None` when it is not there.
    pub old: Option<Oid>,
    pub new: Oid,
}

#[derive(Clone, Debug)]
pub(super) struct Remote {
    options: RemoteOptions,
    stop: CancellationToken,
}

impl Remote {
    /// Nothing is transferred any more once `stop` is cancelled.
    pub(super) fn new(options: RemoteOptions, stop: CancellationToken) -> Self {
        Self { options, stop }
    }

    /// The ref that has the history of one log, which has this id.
    pub(super) fn history_of(id: &str) -> String {
        format!("refs/stoa/history/{id}")
    }

    /// Brings what the remote has here, as far as it is wanted: main, and a history by the name of its ref.
    pub(super) fn fetch(
        &self,
        repository: &Repository,
        main: bool,
        history: Option<&str>,
    ) -> Result<Heads, RemoteError> {
        let session = self.session()?;
        // libgit2 takes a wait that a signal interrupts for a server that is gone.
        let _uninterrupted = profile::uninterrupted();
        let wanted: Vec<(&str, &str)> =
            main.then_some((MAIN, REMOTE_MAIN)).into_iter().chain(history.map(|name| (name, REMOTE_HISTORY))).collect();
        let fetched = || {
            let mut remote = repository.remote_anonymous(&self.options.url)?;
            let told: Vec<(String, Oid)> = {
                let connection = remote.connect_auth(Direction::Fetch, Some(session.callbacks()), None)?;
                connection.list()?.iter().map(|head| (head.name().to_owned(), head.oid())).collect()
            };
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
        fetched().map_err(|error: git2::Error| self.explain(&error, &session))
    }

    /// Moves refs, each provided that it still is where it was; tells of each why the server refused it, if it did.
    pub(super) fn push(&self, repository: &Repository, updates: &[Update]) -> Result<Vec<Option<String>>, RemoteError> {
        let session = self.session()?;
        let pushed = match self.folder() {
            Some(folder) => push_into(repository, &folder, updates).map(|()| vec![None; updates.len()]),
            None => self.push_over_network(repository, updates, &session),
        };
        pushed.map_err(|error| match error.code() {
            ErrorCode::NotFastForward | ErrorCode::Modified | ErrorCode::Exists => RemoteError::Raced,
            // By somebody who is at it, or who was killed: that lasts until a person takes it away.
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
        let mut told = vec![Some("the server did not say what became of it".to_owned()); updates.len()];
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
                told[number] = status.map(str::to_owned);
            }
            Ok(())
        });
        let mut options = PushOptions::new();
        options.remote_callbacks(callbacks).packbuilder_parallelism(1).follow_redirects(RemoteRedirect::None);
        let refspecs: Vec<String> = updates.iter().map(|update| format!("{}:{}", update.new, update.name)).collect();
        repository.remote_anonymous(&self.options.url)?.push(&refspecs, Some(&mut options))?;
        drop(options);
        Ok(told)
    }

    /// The folder of a remote on this machine.
    fn folder(&self) -> Option<PathBuf> {
        let url = &self.options.url;
        url.strip_prefix("file://").or_else(|| url.starts_with('/').then_some(url)).map(PathBuf::from)
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
        Ok(Session { url: self.options.url.clone(), credentials, stop: self.stop.clone() })
    }

    fn explain(&self, error: &git2::Error, session: &Session) -> RemoteError {
        let Explanation { problem, message } = stoa_git::explain(error, &self.options.url, &session.credentials);
        match problem {
            Problem::Unauthorized | Problem::Untrusted => RemoteError::Unauthorized(message),
            Problem::NotFound | Problem::Unreachable | Problem::Other => RemoteError::Unavailable(message),
        }
    }
}

/// One use of the remote.
struct Session {
    url: String,
    credentials: Credentials,
    stop: CancellationToken,
}

impl Session {
    fn callbacks(&self) -> git2::RemoteCallbacks<'static> {
        let mut callbacks = self.credentials.callbacks(&self.url);
        let stop = self.stop.clone();
        callbacks.transfer_progress(move |progress| {
            !stop.is_cancelled() && progress.received_bytes() <= MOST_BYTES && progress.total_objects() <= MOST_OBJECTS
        });
        let stop = self.stop.clone();
        callbacks.sideband_progress(move |_| !stop.is_cancelled());
        callbacks
    }
}

/// A push to a repository on this machine: libgit2's own moves refs wherever they are.
fn push_into(repository: &Repository, folder: &Path, updates: &[Update]) -> Result<(), git2::Error> {
    let target = Repository::open(folder)?;
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
        let odb = target.odb()?;
        let mut writer = odb.packwriter()?;
        let mut failure = None;
        builder.foreach(|data| match writer.write_all(data) {
            Ok(()) => true,
            Err(error) => {
                failure = Some(git2::Error::from_str(&format!("objects cannot be written: {error}")));
                false
            }
        })?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        writer.commit()?;
    }
    let who = Signature::now("Stoa", "stoa@users.stoa.dev")?;
    let mut refs = target.transaction()?;
    for update in updates {
        refs.lock_ref(&update.name)?;
        if target.refname_to_id(&update.name).ok() != update.old {
            return Err(git2::Error::new(ErrorCode::Modified, ErrorClass::Reference, "somebody else pushed first"));
        }
        refs.set_target(&update.name, update.new, Some(&who), "stoa")?;
    }
    refs.commit()
}
