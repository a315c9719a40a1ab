//! Reaches the repository: a local one in place, a remote one through a bare copy that is kept
//! between runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use git2::{Config, ConfigLevel, Direction, ErrorClass, ErrorCode, FetchOptions, Oid, PushOptions, Remote, Repository};
use sha2::{Digest as _, Sha256};
use stoa_git::{Credentials, Explanation, Problem, cache, without_userinfo};
use stoa_runtime::{Grant, RuntimeError};

use crate::Connect;

/// Where a branch is.
#[derive(Debug)]
pub(crate) struct Place {
    /// How people name the repository, without user and password.
    shown: String,
    /// `refs/heads/<branch>`
    reference: String,
    location: Location,
    cache: PathBuf,
    connect: Arc<dyn Connect>,
    /// A reference of this run alone in the copy of a remote repository.
    own: String,
}

#[derive(Debug)]
enum Location {
    Local(PathBuf),
    Remote(String),
}

/// Whether the branch was moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Advance {
    /// It was.
    Done,
    /// Somebody else moved it first, or seems to have.
    Raced(String),
}

impl Place {
    pub(crate) fn new(
        repository: &str,
        reference: String,
        cache: PathBuf,
        run: &str,
        connect: Arc<dyn Connect>,
    ) -> Self {
        let location = match repository.strip_prefix("file://") {
            Some(path) => Location::Local(PathBuf::from(path)),
            None if repository.starts_with('/') => Location::Local(PathBuf::from(repository)),
            None => Location::Remote(repository.to_owned()),
        };
        let own = format!("refs/stoa/{}", hex(run.as_bytes()));
        Self { shown: without_userinfo(repository), reference, location, cache, connect, own }
    }

    /// The repository as it is named to people.
    pub(crate) fn repository(&self) -> &str {
        &self.shown
    }

    /// The branch as people name it.
    pub(crate) fn branch(&self) -> &str {
        self.reference.strip_prefix("refs/heads/").unwrap_or(&self.reference)
    }

    /// What the branch holds at these paths; what is not there is left out.
    pub(crate) fn read<'p>(
        &self,
        paths: impl Iterator<Item = &'p str>,
    ) -> Result<BTreeMap<String, Vec<u8>>, RuntimeError> {
        let (repository, head) = self.head()?;
        let Some(head) = head else { return Ok(BTreeMap::new()) };
        let read = || {
            let tree = repository.find_commit(head)?.tree()?;
            let mut files = BTreeMap::new();
            for path in paths {
                if let Some(entry) = found(tree.get_path(Path::new(path)))?
                    && let Some(blob) = entry.to_object(&repository)?.as_blob()
                {
                    files.insert(path.to_owned(), blob.content().to_vec());
                }
            }
            Ok(files)
        };
        read().map_err(|err| self.explain(&err))
    }

    /// The repository with the head of the branch in it; no head before the first commit.
    pub(crate) fn head(&self) -> Result<(Repository, Option<Oid>), RuntimeError> {
        match &self.location {
            Location::Local(path) => {
                let repository = self.local(path)?;
                let head = found(repository.refname_to_id(&self.reference)).map_err(|err| self.explain(&err))?;
                Ok((repository, head))
            }
            Location::Remote(url) => {
                let fetch = || {
                    let repository = self.copy(url)?;
                    let head = {
                        let mut remote = repository.remote_anonymous(url)?;
                        let head = self.listed(&mut remote)?;
                        if head.is_some_and(|head| repository.find_commit(head).is_err()) {
                            let mut options = FetchOptions::new();
                            options.remote_callbacks(self.connect.callbacks());
                            options.download_tags(git2::AutotagOption::None).update_fetchhead(false);
                            let refspec = format!("+{}:{}", self.reference, self.own);
                            remote.fetch(&[refspec.as_str()], Some(&mut options), None)?;
                            // The branch may have moved on between the two.
                            found(repository.refname_to_id(&self.own))?
                        } else {
                            head
                        }
                    };
                    Ok((repository, head))
                };
                fetch().map_err(|err| self.explain(&err))
            }
        }
    }

    /// What the remote says the branch is.
    fn listed(&self, remote: &mut Remote<'_>) -> Result<Option<Oid>, git2::Error> {
        let connection = remote.connect_auth(Direction::Fetch, Some(self.connect.callbacks()), None)?;
        Ok(connection.list()?.iter().find(|head| head.name() == self.reference).map(git2::RemoteHead::oid))
    }

    fn local(&self, path: &Path) -> Result<Repository, RuntimeError> {
        if !path.exists() {
            let message = format!("repository {} does not exist", self.shown);
            return Err(RuntimeError::Rejected { message, field: Some("spec.gitops.repository".to_owned()) });
        }
        let open = || {
            let repository = Repository::open(path)?;
            self.make_durable(&repository)?;
            Ok(repository)
        };
        let repository = open().map_err(|err| self.explain(&err))?;
        let checked_out =
            repository.find_reference("HEAD").ok().and_then(|head| head.symbolic_target().ok()?.map(str::to_owned));
        if !repository.is_bare() && checked_out.as_deref() == Some(self.reference.as_str()) {
            let message = format!("{} has {} checked out; use a bare repository", self.shown, self.reference);
            return Err(RuntimeError::Rejected { message, field: Some("spec.gitops.repository".to_owned()) });
        }
        Ok(repository)
    }

    /// Lets libgit2 sync what it writes, without touching the settings of the repository, which is
    /// somebody else's.
    fn make_durable(&self, repository: &Repository) -> Result<(), git2::Error> {
        let settings = self.cache.join("durable.gitconfig");
        cache::put(&settings, |path| std::fs::write(path, "[core]\n\tfsyncObjectFiles = true\n").map_err(io))?;
        let mut config = Config::new()?;
        config.add_file(&repository.commondir().join("config"), ConfigLevel::Local, false)?;
        config.add_file(&settings, ConfigLevel::App, false)?;
        repository.set_config(&config)
    }

    /// The bare copy of a remote repository.
    fn copy(&self, url: &str) -> Result<Repository, git2::Error> {
        let path = self.cache.join(hex(&Sha256::digest(url.as_bytes())));
        cache::open_or_make_bare(&path)
    }

    /// Moves the branch, provided that it still is where `from` says, and the grant is not over.
    pub(crate) fn advance(
        &self,
        repository: &Repository,
        from: Option<Oid>,
        to: Oid,
        grant: &Grant,
    ) -> Result<Advance, RuntimeError> {
        grant.check()?;
        match &self.location {
            Location::Local(_) => {
                let moved = match from {
                    Some(from) => repository.reference_matching(&self.reference, to, true, from, "stoa"),
                    None => repository.reference(&self.reference, to, false, "stoa"),
                };
                match moved {
                    Ok(_) => Ok(Advance::Done),
                    Err(err)
                        if matches!(
                            err.code(),
                            ErrorCode::Modified | ErrorCode::Exists | ErrorCode::Locked | ErrorCode::NotFound
                        ) =>
                    {
                        Ok(Advance::Raced(err.message().to_owned()))
                    }
                    Err(err) => Err(self.explain(&err)),
                }
            }
            Location::Remote(url) => self.push(repository, url, [from.unwrap_or(Oid::ZERO_SHA1), to], grant),
        }
    }

    fn push(
        &self,
        repository: &Repository,
        url: &str,
        [from, to]: [Oid; 2],
        grant: &Grant,
    ) -> Result<Advance, RuntimeError> {
        let mut refused = None;
        let pushed = {
            let mut push = || {
                repository.reference(&self.own, to, true, "stoa")?;
                let mut callbacks = self.connect.callbacks();
                callbacks.push_update_reference(|_, status| {
                    refused = status.map(str::to_owned);
                    Ok(())
                });
                // The server compares with what it told when the push began; here it is compared
                // with what the commit was made from.
                callbacks.push_negotiation(move |updates| {
                    // Connecting may have taken long; what comes next is the push itself.
                    grant.check().map_err(|lapsed| git2::Error::from_str(&lapsed.to_string()))?;
                    if updates.iter().any(|update| update.src() != from) {
                        return Err(git2::Error::new(
                            ErrorCode::NotFastForward,
                            ErrorClass::Callback,
                            "the branch moved",
                        ));
                    }
                    Ok(())
                });
                let mut options = PushOptions::new();
                options.remote_callbacks(callbacks);
                let refspec = format!("{}:{}", self.own, self.reference);
                repository.remote_anonymous(url)?.push(&[refspec.as_str()], Some(&mut options))
            };
            push()
        };
        match (pushed, refused) {
            (Ok(()), None) => Ok(Advance::Done),
            (Err(err), _)
                if matches!(
                    err.code(),
                    ErrorCode::NotFastForward | ErrorCode::Modified | ErrorCode::Exists | ErrorCode::Locked
                ) =>
            {
                Ok(Advance::Raced(err.message().to_owned()))
            }
            (Err(err), _) => Err(self.explain(&err)),
            (Ok(()), Some(why)) => {
                // Somebody who is moving the branch right now holds its lock. Otherwise a hook's refusal
                // and a lost race look alike; only a race has moved the branch.
                if why.contains("lock") {
                    return Ok(Advance::Raced(why));
                }
                let head = repository.remote_anonymous(url).and_then(|mut remote| self.listed(&mut remote));
                if head.map_err(|err| self.explain(&err))?.unwrap_or(Oid::ZERO_SHA1) == from {
                    let message = format!("{} refuses the push: {why}", self.shown);
                    return Err(RuntimeError::Rejected { message, field: None });
                }
                Ok(Advance::Raced(why))
            }
        }
    }

    /// Sorts libgit2's errors by whether trying again may help.
    pub(crate) fn explain(&self, err: &git2::Error) -> RuntimeError {
        let remote = match &self.location {
            Location::Remote(url) => url.as_str(),
            Location::Local(_) => &self.shown,
        };
        let Explanation { problem, message } = stoa_git::explain(err, remote, &Credentials::default());
        let message = format!("repository {message}");
        match problem {
            Problem::Unauthorized | Problem::Untrusted | Problem::NotFound => {
                RuntimeError::Rejected { message, field: Some("spec.gitops.repository".to_owned()) }
            }
            Problem::Unreachable | Problem::Other => RuntimeError::Unavailable { message },
        }
    }
}

/// Turns "not found" into nothing.
pub(crate) fn found<T>(result: Result<T, git2::Error>) -> Result<Option<T>, git2::Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(err) if matches!(err.code(), ErrorCode::NotFound | ErrorCode::UnbornBranch) => Ok(None),
        Err(err) => Err(err),
    }
}

fn io(err: std::io::Error) -> git2::Error {
    git2::Error::new(ErrorCode::GenericError, ErrorClass::Os, err.to_string())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
