//! The index: the versions of all commits of the chain in one tree. Finding a version takes eight lookups.

use std::collections::BTreeMap;

use git2::{ErrorCode, Oid, Repository, Sort};
use stoa_machinery::log::Version;

use super::{Names, commit, insert, read::newest, versions};
use crate::{fan_out::NARROW, objects::Objects, trees::Directory};

/// Where the indexes are, each by the id of its log.
pub(super) const VERSIONS: &str = "refs/stoa/versions";
/// The most commits of the chain that one step indexes.
const AT_ONCE: usize = 1024;

/// Where the index of a log is.
pub(super) fn index_of(log: &str) -> String {
    format!("{VERSIONS}/{log}")
}

/// The index of a log, by its id, and the end of the chain that it covers.
pub(crate) fn covered(repository: &Repository, log: &str) -> Result<Option<(Oid, Oid)>, git2::Error> {
    match repository.refname_to_id(&index_of(log)) {
        Ok(index) => Ok(Some((index, repository.find_commit(index)?.parent_id(0)?))),
        Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Publishes the index of a log, and removes the indexes of earlier logs of the repository.
pub(crate) fn set_index(repository: &Repository, log: &str, index: Oid) -> Result<(), git2::Error> {
    let name = index_of(log);
    if repository.find_reference(&name).is_err() {
        let others = repository.references_glob(&format!("{VERSIONS}*"))?.collect::<Result<Vec<_>, _>>()?;
        others.into_iter().try_for_each(|mut other| other.delete())?;
    }
    repository.reference(&name, index, true, "stoa").map(|_| ())
}

/// Extends the index of a log to `end`; `publish` writes objects.
pub(crate) fn index(
    repository: &Repository,
    log: &str,
    end: Oid,
    publish: impl Fn(&Objects) -> Result<(), git2::Error>,
) -> Result<(), git2::Error> {
    let covered = match covered(repository, log)? {
        // A remote that rejected the newest commit is behind this repository.
        Some((_, covered)) if covered == end || repository.graph_descendant_of(covered, end)? => return Ok(()),
        Some((index, covered)) if repository.graph_descendant_of(end, covered)? => Some((index, covered)),
        // The index belongs to an abandoned end.
        _ => None,
    };
    let mut walk = repository.revwalk()?;
    walk.set_sorting(Sort::TOPOLOGICAL | Sort::REVERSE)?;
    walk.push(end)?;
    let mut all = None;
    if let Some((index, covered)) = covered {
        walk.hide(covered)?;
        all = Some(versions(repository, index)?.id());
    }
    let chain = walk.collect::<Result<Vec<_>, _>>()?;
    // A chain may begin with a commit that has all earlier versions. It is the index so far.
    let begun = usize::from(all.is_none());
    if let Some(first) = chain.first().filter(|_| all.is_none()) {
        all = Some(versions(repository, *first)?.id());
    }
    let mut tree = match all {
        Some(all) => Directory::load(repository, all, NARROW)?,
        None => Directory::new(NARROW),
    };
    for commits in chain[begun.min(chain.len())..].chunks(AT_ONCE) {
        let mut states = BTreeMap::new();
        for commit in commits {
            leaves(repository, versions(repository, *commit)?.id(), &mut Vec::new(), &mut states)?;
        }
        let states: Vec<(Names, Oid)> = states.into_iter().collect();
        let mut objects = Objects::default();
        all = Some(insert(repository, &mut tree, &states, 0, &mut objects)?);
        publish(&objects)?;
    }
    let mut objects = Objects::default();
    let all = all.ok_or_else(|| git2::Error::from_str("the history has no beginning"))?;
    let index = commit(all, &[end], &mut objects)?;
    publish(&objects)?;
    set_index(repository, log, index)
}

/// The newest version in the index of a log.
pub(crate) fn newest_indexed(repository: &Repository, index: Oid) -> Result<Option<Version>, git2::Error> {
    Ok(newest(repository, &versions(repository, index)?, Version(u64::MAX))?.map(|(version, _)| version))
}

/// The states in a tree of versions.
fn leaves(
    repository: &Repository,
    node: Oid,
    names: &mut Vec<String>,
    states: &mut BTreeMap<Names, Oid>,
) -> Result<(), git2::Error> {
    for entry in &repository.find_tree(node)? {
        names.push(entry.name().unwrap_or_default().to_owned());
        match Names::try_from(names.clone()) {
            Ok(names) => drop(states.insert(names, entry.id())),
            Err(_) => leaves(repository, entry.id(), names, states)?,
        }
        names.pop();
    }
    Ok(())
}
