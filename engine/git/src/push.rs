//! Moves several refs of a remote: all or none, each from where it is expected.
//!
//! Start at [`push`]. libgit2 cannot ask a server for an atomic push, so the request is written here. A server without the
//! capability `atomic` gets creations and moves first and deletions last, so that nothing is lost in between; a repeated push
//! brings it to its end.

use std::collections::BTreeSet;

use git2::{Oid, Repository};

use crate::files::commit_of;
use crate::folder;
use crate::packet::{self, Packet};
use crate::remote::{Access, Advertised, Connection, RemoteError, Service};

/// The most refs of the server that a push names as known, besides those that matter to it.
const KNOWN: usize = 256;

/// The longest name of a ref, in bytes. A line of the protocol has room for it.
const LONGEST_NAME: usize = 1024;

/// The move of a ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefUpdate {
    /// The full name.
    pub name: String,
    /// Where it is expected; nothing if it is not to exist.
    pub expected: Option<Oid>,
    /// Where it is to be; nothing if it is to be deleted.
    pub target: Option<Oid>,
}

/// A ref that is not where it was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The full name.
    pub name: String,
    /// Where it was expected.
    pub expected: Option<Oid>,
    /// Where it is.
    pub actual: Option<Oid>,
}

/// The result of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All refs are where they are to be.
    Done {
        /// Whether they were before, as after an earlier push without an answer.
        was_done: bool,
    },
    /// These are elsewhere. Nothing was moved.
    Conflict(Vec<Moved>),
    /// The server does not accept it. Nothing was moved.
    Rejected {
        /// The first ref; empty for all.
        name: String,
        /// The server's words.
        message: String,
    },
}

/// Why a push failed.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The server could not be used.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The local copy lacks something, or cannot be read.
    #[error("the objects to push cannot be read")]
    Git(#[from] git2::Error),
    /// The repository on this machine cannot be written.
    #[error("{0}")]
    Folder(String),
}

/// Where the refs are in comparison with a request.
pub(crate) enum State<'u> {
    Done,
    /// These are to be moved, in this order.
    Ready(Vec<&'u RefUpdate>),
    Moved(Vec<Moved>),
}

/// Compares the request with where refs are. If refs move one by one, those that an earlier call moved count as moved; else a
/// ref that is where it is to be, while others are not, was moved by somebody else.
pub(crate) fn state(updates: &[RefUpdate], one_by_one: bool, actual: impl Fn(&str) -> Option<Oid>) -> State<'_> {
    let ordered = in_order(updates);
    let is_done = |update: &&RefUpdate| actual(&update.name) == update.target;
    let done = ordered.iter().take_while(|update| is_done(update)).count();
    if done == ordered.len() {
        return State::Done;
    }
    let left = if one_by_one { &ordered[done..] } else { &ordered[..] };
    let moved = left.iter().filter_map(|update| {
        let (expected, actual) = (update.expected, actual(&update.name));
        (actual != expected).then(|| Moved { name: update.name.clone(), expected, actual })
    });
    match moved.collect::<Vec<_>>() {
        moved if moved.is_empty() => State::Ready(left.to_vec()),
        moved => State::Moved(moved),
    }
}

/// Deletions last: what they lead to has another ref by then.
fn in_order(updates: &[RefUpdate]) -> Vec<&RefUpdate> {
    let mut ordered: Vec<&RefUpdate> = updates.iter().collect();
    ordered.sort_by_key(|update| update.target.is_none());
    ordered
}

/// Moves the refs, whose targets are in this repository. A second call with the same request changes nothing.
///
/// # Errors
///
/// [`PushError`]. After [`RemoteError::Unanswered`] the refs may have moved.
pub fn push(repository: &Repository, access: &Access, updates: &[RefUpdate]) -> Result<Outcome, PushError> {
    if let Some(update) = updates.iter().find(|update| update.name.len() > LONGEST_NAME) {
        let message = format!("the name of the ref has more than {LONGEST_NAME} bytes");
        return Ok(Outcome::Rejected { name: update.name.clone(), message });
    }
    if let Some(path) = stoa_git::local_path(&access.url) {
        return folder::push(repository, &path, updates);
    }
    let connection = Connection::open(access, Service::ReceivePack)?;
    let is_atomic = connection.advertised().can("atomic");
    let left = match state(updates, !is_atomic, |name| connection.advertised().get(name)) {
        State::Done => return Ok(Outcome::Done { was_done: true }),
        State::Moved(moved) => return Ok(Outcome::Conflict(moved)),
        State::Ready(left) => left,
    };
    if is_atomic || left.len() == 1 {
        return sent(repository, access, connection, updates, &left);
    }
    drop(connection);
    for update in left {
        let connection = Connection::open(access, Service::ReceivePack)?;
        match sent(repository, access, connection, std::slice::from_ref(update), &[update])? {
            Outcome::Done { .. } => {}
            other => return Ok(other),
        }
    }
    Ok(Outcome::Done { was_done: false })
}

/// Sends one push over a connection.
fn sent(
    repository: &Repository,
    access: &Access,
    connection: Connection,
    all: &[RefUpdate],
    left: &[&RefUpdate],
) -> Result<Outcome, PushError> {
    let errors = connection.errors().clone();
    let has_bands = connection.advertised().can("side-band-64k");
    let request = request(repository, connection.advertised(), left)?;
    let answer = connection.push(request)?;
    let report = Report::read(&answer, has_bands);
    let report = report.map_err(|err| errors.make(RemoteError::Unanswered, err.to_string()))?;
    let Some((name, message)) = report.refused(left) else { return Ok(Outcome::Done { was_done: false }) };
    // A lost race and a hook's rejection look alike; only a race has moved a ref.
    let now = Connection::open(access, Service::ReceivePack)?;
    match state(all, false, |name| now.advertised().get(name)) {
        State::Done => Ok(Outcome::Done { was_done: false }),
        State::Moved(moved) => Ok(Outcome::Conflict(moved)),
        State::Ready(_) => Ok(Outcome::Rejected { name, message: errors.scrub(&message) }),
    }
}

/// The commands and the pack.
fn request(repository: &Repository, advertised: &Advertised, updates: &[&RefUpdate]) -> Result<Vec<u8>, git2::Error> {
    let wanted = ["report-status", "atomic", "side-band-64k", "object-format=sha1"];
    let capabilities = wanted.into_iter().filter(|wanted| advertised.can(wanted));
    let capabilities: Vec<&str> = capabilities.chain(["agent=stoa"]).collect();
    let mut request = Vec::new();
    for (number, update) in updates.iter().enumerate() {
        let [old, new] = [update.expected, update.target].map(|id| id.unwrap_or(Oid::ZERO_SHA1));
        let mut line = format!("{old} {new} {}", update.name);
        if number == 0 {
            line.push('\0');
            line.push_str(&capabilities.join(" "));
        }
        packet::write(&mut request, line.as_bytes());
    }
    packet::flush(&mut request);
    if updates.iter().any(|update| update.target.is_some()) {
        request.extend_from_slice(&pack(repository, advertised.refs.iter().map(|(_, id)| *id), updates)?);
    }
    Ok(request)
}

/// The objects of the targets that the server lacks, which has the commits of its refs.
pub(crate) fn pack(
    repository: &Repository,
    known: impl Iterator<Item = Oid>,
    updates: &[&RefUpdate],
) -> Result<Vec<u8>, git2::Error> {
    let mut walk = repository.revwalk()?;
    let mut near: BTreeSet<Oid> = BTreeSet::new();
    for target in updates.iter().filter_map(|update| update.target) {
        let commit = repository.find_object(target, None)?.peel_to_commit()?;
        near.extend([target, commit.id()]);
        // A few generations: a request may have several new commits.
        let mut commits = vec![commit];
        for _ in 0..8 {
            commits = commits.iter().flat_map(git2::Commit::parents).take(KNOWN).collect();
            near.extend(commits.iter().map(git2::Commit::id));
        }
        walk.push(commit_of(repository, target)?)?;
    }
    near.extend(updates.iter().filter_map(|update| update.expected));
    let mut others = 0;
    for id in known {
        if !near.contains(&id) {
            others += 1;
            if others > KNOWN {
                continue;
            }
        }
        if let Ok(commit) = commit_of(repository, id) {
            walk.hide(commit)?;
        }
    }
    let mut builder = repository.packbuilder()?;
    builder.set_threads(1);
    builder.insert_walk(&mut walk)?;
    for target in updates.iter().filter_map(|update| update.target) {
        if repository.find_tag(target).is_ok() {
            builder.insert_object(target, None)?;
        }
    }
    let mut pack = git2::Buf::new();
    builder.write_buf(&mut pack)?;
    Ok(pack.to_vec())
}

/// The answer to a push.
#[derive(Debug, Default, PartialEq, Eq)]
struct Report {
    /// Why the pack was not accepted.
    unpack: Option<String>,
    moved: BTreeSet<String>,
    /// Refs that were not moved, and why.
    refused: Vec<(String, String)>,
    /// Words for people, such as those of hooks.
    said: String,
}

impl Report {
    fn read(answer: &[u8], has_bands: bool) -> std::io::Result<Self> {
        let mut answer = answer;
        let (lines, said) = match has_bands {
            true => packet::first_band(&mut answer)?,
            false => (answer.to_vec(), String::new()),
        };
        let mut report = Self { said, ..Self::default() };
        let mut lines = lines.as_slice();
        let mut has_begun = false;
        loop {
            let line = match packet::read(&mut lines)? {
                Some(Packet::Data(line)) => line,
                Some(Packet::Flush) if has_begun => return Ok(report),
                Some(Packet::Flush) | None => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            };
            has_begun = true;
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches('\n');
            match line.split_once(' ') {
                Some(("unpack", "ok")) => {}
                Some(("unpack", why)) => report.unpack = Some(why.to_owned()),
                Some(("ok", name)) => drop(report.moved.insert(name.to_owned())),
                Some(("ng", rest)) => {
                    let (name, why) = rest.split_once(' ').unwrap_or((rest, "refused"));
                    report.refused.push((name.to_owned(), why.to_owned()));
                }
                _ => {}
            }
        }
    }

    /// The first ref that did not move, with the reason; nothing if all moved.
    fn refused(&self, updates: &[&RefUpdate]) -> Option<(String, String)> {
        let with = |why: &str| match self.said.trim() {
            "" => why.to_owned(),
            said => format!("{why}: {said}"),
        };
        if let Some(why) = &self.unpack {
            return Some((String::new(), with(why)));
        }
        // Others fail because of the first one.
        let is_own = |(_, why): &&(String, String)| !why.contains("atomic") && !why.contains("transaction");
        let first = self.refused.iter().find(is_own).or_else(|| self.refused.first());
        if let Some((name, why)) = first {
            return Some((name.clone(), with(why)));
        }
        let silent = updates.iter().find(|update| !self.moved.contains(&update.name))?;
        Some((silent.name.clone(), with("the server does not say what became of it")))
    }
}

#[cfg(test)]
mod tests;
