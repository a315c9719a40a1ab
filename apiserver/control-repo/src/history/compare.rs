//! Compares the end of the chain with another state of the objects.

use std::collections::{BTreeMap, BTreeSet};

use git2::{Oid, Repository};
use stoa_machinery::log::{Key, Version};

use super::{
    Batch, Step,
    read::{everything, is_unknown, newest, newest_of},
    versions,
};

/// The batch that turns the newest state into `wanted`, by key. The versions in between are unknown, from the newest version
/// of the chains on, or from a later one up to which they are `known` to show everything. A key without a value stays
/// unchanged.
pub(crate) fn difference(
    repository: &Repository,
    bases: &[Oid],
    known: Option<Version>,
    at: Version,
    wanted: BTreeMap<Key, Option<Vec<u8>>>,
) -> Result<Batch, git2::Error> {
    let newest = newest_of(repository, bases)?;
    let there = match newest {
        Some((_, state)) => everything(repository, &repository.find_tree(state)?)?,
        None => BTreeMap::new(),
    };
    let gone = there.keys().filter(|key| !wanted.contains_key(*key)).cloned().collect::<Vec<_>>();
    let gone = gone.into_iter().map(|key| Step { version: at, key, value: None });
    let wanted = wanted.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let changed = wanted.filter(|(key, value)| there.get(key).is_none_or(|old| *old != *value));
    let changed = changed.map(|(key, value)| Step { version: at, key, value: Some(value) });
    let unknown = newest.map(|(version, _)| Version(known.map_or(version, |known| known.max(version)).0 + 1));
    Ok(Batch { unknown: unknown.filter(|unknown| *unknown < at), ..Batch::new(at, gone.chain(changed).collect()) })
}

/// The keys of the objects that differed at a version, in the chain with this end, from `wanted`; `None` where the version
/// is unknown. A key without a value counts as unchanged.
pub(crate) fn changed_since(
    repository: &Repository,
    end: Oid,
    at: Version,
    wanted: &BTreeMap<Key, Option<Vec<u8>>>,
) -> Result<Option<BTreeSet<Key>>, git2::Error> {
    let state = newest(repository, &versions(repository, end)?, at)?.map(|(_, state)| repository.find_tree(state));
    let Some(state) = state.transpose()?.filter(|state| !is_unknown(state)) else { return Ok(None) };
    let there = everything(repository, &state)?;
    let gone = there.keys().filter(|key| !wanted.contains_key(*key));
    let is_another = |(key, value): &(&Key, &Option<Vec<u8>>)| {
        value.as_ref().is_some_and(|value| there.get(*key).is_none_or(|old| *old != *value))
    };
    let changed = wanted.iter().filter(is_another).map(|(key, _)| key);
    Ok(Some(gone.chain(changed).cloned().collect()))
}
