//! A push to a repository in a folder of this machine. libgit2's own would move refs whatever their old value is.

use std::io::Write as _;
use std::path::Path;

use git2::{ErrorCode, Repository, Signature, Transaction};

use crate::push::{self, Moved, Outcome, PushError, RefUpdate, State};

/// Moves the refs: all are locked and compared before the first one moves.
pub(crate) fn push(repository: &Repository, folder: &Path, updates: &[RefUpdate]) -> Result<Outcome, PushError> {
    let failed =
        |err: git2::Error| PushError::Folder(format!("{} cannot be written: {}", folder.display(), err.message()));
    let target = Repository::open(folder).map_err(failed)?;
    let at = |name: &str| target.refname_to_id(name).ok();
    let left = match push::state(updates, true, at) {
        State::Done => return Ok(Outcome::Done { was_done: true }),
        State::Moved(moved) => return Ok(Outcome::Conflict(moved)),
        State::Ready(left) => left,
    };
    if let Some(update) = left.iter().find(|update| is_checked_out(&target, &update.name)) {
        let message = "the branch is checked out there; use a bare repository".to_owned();
        return Ok(Outcome::Rejected { name: update.name.clone(), message });
    }
    let known = target.references().map_err(failed)?.flatten().filter_map(|reference| reference.target());
    let pack = push::pack(repository, known, &left)?;
    if !is_empty(&pack) {
        add(&target, &pack).map_err(failed)?;
    }
    let mut transactions = Vec::with_capacity(left.len());
    for update in &left {
        match locked(&target, update) {
            Ok(Ok(transaction)) => transactions.push(transaction),
            Ok(Err(moved)) => return Ok(Outcome::Conflict(vec![moved])),
            Err(err) if err.code() == ErrorCode::Locked => {
                let message = format!("{} is locked by another writer: {}; retry", folder.display(), err.message());
                return Err(PushError::Folder(message));
            }
            Err(err) => {
                return Ok(Outcome::Rejected { name: update.name.clone(), message: err.message().to_owned() });
            }
        }
    }
    for transaction in transactions {
        transaction.commit().map_err(failed)?;
    }
    Ok(Outcome::Done { was_done: false })
}

/// Adds the objects of a pack.
fn add(target: &Repository, pack: &[u8]) -> Result<(), git2::Error> {
    let objects = target.odb()?;
    let mut writer = objects.packwriter()?;
    writer.write_all(pack).map_err(|err| git2::Error::from_str(&err.to_string()))?;
    writer.commit().map(drop)
}

/// Whether a pack has no object, which libgit2 does not index.
fn is_empty(pack: &[u8]) -> bool {
    pack.get(8..12).is_none_or(|count| count == [0; 4])
}

fn is_checked_out(target: &Repository, name: &str) -> bool {
    !target.is_bare()
        && target.find_reference("HEAD").is_ok_and(|head| head.symbolic_target().is_ok_and(|at| at == Some(name)))
}

/// A transaction that moves one locked ref, which is where it is expected.
fn locked<'r>(target: &'r Repository, update: &RefUpdate) -> Result<Result<Transaction<'r>, Moved>, git2::Error> {
    let mut transaction = target.transaction()?;
    transaction.lock_ref(&update.name)?;
    let actual = target.refname_to_id(&update.name).ok();
    if actual != update.expected {
        return Ok(Err(Moved { name: update.name.clone(), expected: update.expected, actual }));
    }
    match update.target {
        Some(id) => {
            if !target.odb()?.exists(id) {
                return Err(git2::Error::from_str(&format!("object {id} did not arrive")));
            }
            let who = Signature::now("Stoa", "noreply@stoa.dev")?;
            transaction.set_target(&update.name, id, Some(&who), "stoa")?;
        }
        None => transaction.remove(&update.name)?,
    }
    Ok(Ok(transaction))
}
