//! What another state of things differs in from what the chain has.

use std::collections::{BTreeMap, BTreeSet};

use git2::{Oid, Repository};
use stoa_machinery::log::{Key, Version};

use super::{
    Batch, Step,
    read::{everything, is_unknown, newest, newest_of},
    versions,
};

/// What makes the newest state what `wanted` says, by key. What was there in between is unknown, from the newest version
/// of the chains on or from a later one that they are `known` to show everything up to. Where `wanted` has no value it
/// stays as it is.
pub(in crate::git) fn difference(
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

/// Of the chain that ends here, the keys of what was another at a version than `wanted` says; `None` where nothing is known
/// of that version. Where `wanted` has no value it is as it was.
pub(in crate::git) fn changed_since(
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
