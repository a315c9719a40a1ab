//! Fetch and push between a remote repository and its bare copy.
//!
//! Start at [`reach`]. libgit2 trusts the server: refs without end, objects as large as their header says. Therefore
//! callers run this in a process with limits ([`Remotes::reach`](crate::Remotes::reach)). Nothing else of this crate
//! talks to a server.

use std::cell::Cell;

use git2::{
    AutotagOption, Direction, ErrorClass, ErrorCode, FetchOptions, Oid, PackBuilderStage, PushOptions, Remote,
    Repository,
};
use stoa_git::fetch::Bound;
use stoa_runtime::Grant;

use crate::branch::found;
use crate::{Connect, Pushing};

/// A request to a remote repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its URL.
    pub url: String,
    /// The branch that it is about: `refs/heads/<branch>`.
    pub branch: String,
    /// The task.
    pub task: Task,
}

/// A task about a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Read its head.
    List,
    /// It is brought here, unless it is.
    Fetch {
        /// The reference of the copy that is to lead to it.
        own: String,
    },
    /// Move it, if no other writer moved it.
    Push {
        /// The reference of the copy that leads to where it is to be.
        own: String,
        /// Its expected head; zero for none.
        from: Oid,
    },
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// The head of the branch, if it exists; `None` after a push.
    pub branch: Option<Oid>,
    /// Why the server refuses a push, in its words.
    pub refused: Option<String>,
}

/// The error.
#[derive(Debug)]
pub enum Unreached {
    /// An error of Git.
    Git(git2::Error),
    /// The repository exceeds a limit: which one, for people. Nothing was pushed.
    TooLarge(String),
    /// A retry may help: which repository and why, for people. A push may have taken effect.
    Unavailable(String),
    /// The same without any push.
    Unbegun(String),
    /// The grant was over when a push was about to begin. Nothing was pushed.
    Lapsed,
}

impl Unreached {
    /// The same for a push that may have started: its answer may have exceeded the limit, while the branch was moved.
    #[must_use]
    pub fn in_doubt(self) -> Self {
        match self {
            Self::TooLarge(why) => Self::Unavailable(why),
            other => other,
        }
    }

    /// The same for anything but a started push.
    #[must_use]
    pub fn unbegun(self) -> Self {
        match self {
            Self::Unavailable(why) => Self::Unbegun(why),
            other => other,
        }
    }
}

impl From<git2::Error> for Unreached {
    fn from(err: git2::Error) -> Self {
        Self::Git(err)
    }
}

/// Performs the request on the calling thread, from this copy of the repository. Nothing is pushed after the lease
/// expired.
///
/// # Errors
///
/// [`Unreached::Git`] when the server is unreachable, rejects the credentials, or another writer moved the branch, as
/// libgit2 reports it; [`Unreached::TooLarge`] when the repository exceeds a limit; [`Unreached::Lapsed`] when the
/// lease expired before a push.
pub fn reach<C: Connect + ?Sized>(
    connect: &C,
    repository: &Repository,
    request: &Request,
    grant: &Grant,
) -> Result<Reached, Unreached> {
    match &request.task {
        Task::List => Ok(Reached { branch: list(connect, repository, request)?, refused: None }),
        Task::Fetch { own } => Ok(Reached { branch: fetch(connect, repository, request, own)?, refused: None }),
        Task::Push { own, from } => {
            let push = Push { refspec: format!("{own}:{}", request.branch), from: *from, grant };
            Ok(Reached { branch: None, refused: push.run(connect, repository, request)? })
        }
    }
}

fn remote<'r, C: Connect + ?Sized>(
    connect: &C,
    repository: &'r Repository,
    request: &Request,
) -> Result<Remote<'r>, git2::Error> {
    let remote = repository.remote_anonymous(&request.url)?;
    connect.before(remote.url_bytes());
    Ok(remote)
}

/// The head of the branch on the remote.
fn list<C: Connect + ?Sized>(
    connect: &C,
    repository: &Repository,
    request: &Request,
) -> Result<Option<Oid>, git2::Error> {
    let mut remote = remote(connect, repository, request)?;
    let connection = remote.connect_auth(Direction::Fetch, Some(connect.callbacks()), None)?;
    Ok(connection.list()?.iter().find(|head| head.name() == request.branch).map(git2::RemoteHead::oid))
}

fn fetch<C: Connect + ?Sized>(
    connect: &C,
    repository: &Repository,
    request: &Request,
    own: &str,
) -> Result<Option<Oid>, Unreached> {
    let head = list(connect, repository, request)?;
    if head.is_none_or(|head| repository.find_commit(head).is_ok()) {
        return Ok(head);
    }
    connect.may_fetch()?;
    let bound = Bound::default();
    let fetched = {
        let mut callbacks = connect.callbacks();
        bound.watch(&mut callbacks);
        let mut options = FetchOptions::new();
        options.remote_callbacks(callbacks);
        options.download_tags(AutotagOption::None).update_fetchhead(false);
        options.follow_redirects(connect.credentials().redirects());
        let refspec = format!("+{}:{own}", request.branch);
        remote(connect, repository, request)?.fetch(&[refspec.as_str()], Some(&mut options), None)
    };
    if bound.is_over() {
        return Err(Unreached::TooLarge(Bound::told(&request.url)));
    }
    fetched?;
    // The branch may have moved on between the two.
    Ok(found(repository.refname_to_id(own))?)
}

struct Push<'g> {
    refspec: String,
    /// Its expected head.
    from: Oid,
    grant: &'g Grant,
}

impl Push<'_> {
    /// Why the server refuses what is pushed, if it does.
    fn run<C: Connect + ?Sized>(
        &self,
        connect: &C,
        repository: &Repository,
        request: &Request,
    ) -> Result<Option<String>, Unreached> {
        let mut refused = None;
        let is_over = Cell::new(false);
        let pushed = {
            let mut callbacks = connect.callbacks();
            callbacks.push_update_reference(|_, status| {
                refused = status.map(str::to_owned);
                Ok(())
            });
            // The server compares with the head that it reported at the start of the push; this compares with the base
            // of the commit.
            callbacks.push_negotiation(|updates| {
                // Connecting may have taken long; what comes next is the push itself.
                if let Err(lapsed) = connect.may_push(self.grant) {
                    is_over.set(true);
                    return Err(git2::Error::from_str(&lapsed.to_string()));
                }
                if updates.iter().any(|update| update.src() != self.from) {
                    return Err(git2::Error::new(ErrorCode::NotFastForward, ErrorClass::Callback, "the branch moved"));
                }
                Ok(())
            });
            // libgit2 reports the first object of a pack, and the end of its collection, on this thread right before it
            // sends anything. It reports neither for an empty pack. The progress of sent bytes follows.
            let mut told: Option<Pushing> = None;
            callbacks.pack_progress(move |stage, done, all| {
                let pushing = match stage {
                    PackBuilderStage::Deltafication if done >= all => Pushing::Sends,
                    PackBuilderStage::AddingObjects | PackBuilderStage::Deltafication => Pushing::Prepares,
                };
                // The progress never goes back.
                if told < Some(pushing) {
                    told = Some(pushing);
                    connect.pushing(pushing);
                }
            });
            let mut options = PushOptions::new();
            options.remote_callbacks(callbacks).follow_redirects(connect.credentials().redirects());
            remote(connect, repository, request)?.push(&[self.refspec.as_str()], Some(&mut options))
        };
        if is_over.get() {
            return Err(Unreached::Lapsed);
        }
        pushed?;
        Ok(refused)
    }
}
