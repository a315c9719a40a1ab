//! Finds a version in the index, and reads its objects.

use std::{cmp::Ordering, collections::BTreeMap};

use bytes::Bytes;
use git2::{ObjectType, Oid, Repository, Tree};
use stoa_machinery::log::{Entry, Key, Version};

use super::{REGISTRY, UNKNOWN, covered, names, version, versions};
use crate::{fan_out::NARROW, reader::content, trees::Item};

/// The path of a folder has no more slashes than a key: `/registry/<group>/<resource>/<namespace>/<name>`.
const DEEPEST: usize = 5;

/// Which objects of a state are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range<'a> {
    /// How their keys begin.
    pub prefix: &'a str,
    /// The key that they come after.
    pub after: Option<&'a str>,
    /// How many at most.
    pub max: usize,
}

/// Objects of a log as of a version, in the order of their keys. `None` when the history begins later, or nothing is known
/// of that version.
pub(crate) fn read(
    repository: &Repository,
    log: &str,
    at: Version,
    range: Range<'_>,
) -> Result<Option<Vec<Entry>>, git2::Error> {
    let Some((index, _)) = covered(repository, log)? else { return Ok(None) };
    let Some((_, state)) = newest(repository, &versions(repository, index)?, at)? else { return Ok(None) };
    let state = repository.find_tree(state)?;
    if is_unknown(&state) {
        return Ok(None);
    }
    let mut entries = Vec::new();
    collect(repository, &state, REGISTRY, range, &mut entries)?;
    Ok(Some(entries))
}

pub(super) fn collect(
    repository: &Repository,
    tree: &Tree<'_>,
    folder: &str,
    range: Range<'_>,
    entries: &mut Vec<Entry>,
) -> Result<(), git2::Error> {
    if folder.matches('/').count() > DEEPEST {
        return Err(git2::Error::from_str("the history has folders that no object is in"));
    }
    for (name, item) in items(repository, tree, 0)? {
        if entries.len() == range.max {
            return Ok(());
        }
        let id = match item {
            Item::File(id) => id,
            Item::Tree(id) => {
                let inner = format!("{folder}{name}/");
                let is_wanted = inner.starts_with(range.prefix) || range.prefix.starts_with(&inner);
                let is_over = range.after.is_some_and(|after| !after.starts_with(&inner) && after > inner.as_str());
                if is_wanted && !is_over {
                    collect(repository, &repository.find_tree(id)?, &inner, range, entries)?;
                }
                continue;
            }
        };
        let key = format!("{folder}{name}");
        if !key.starts_with(range.prefix) || range.after.is_some_and(|after| key.as_str() <= after) {
            continue;
        }
        let content = content(repository, id)?.bytes();
        let entry = content.iter().position(|byte| *byte == b'\n').and_then(|newline| {
            let version = std::str::from_utf8(&content[..newline]).ok()?.parse().ok()?;
            let value = content[newline + 1..].to_vec().into();
            Some(Entry { key: Key::new(key.as_str()), version: Version(version), value })
        });
        entries.push(entry.ok_or_else(|| git2::Error::from_str(&format!("{key} has no version in the history")))?);
    }
    Ok(())
}

/// The items of a folder in the order of keys, also from subfolders of a full one.
fn items(repository: &Repository, tree: &Tree<'_>, depth: usize) -> Result<Vec<(String, Item)>, git2::Error> {
    let mut all = Vec::with_capacity(tree.len());
    let mut is_spread = false;
    for entry in tree {
        let name = entry.name().unwrap_or_default();
        let is_tree = entry.kind() == Some(ObjectType::Tree);
        if is_tree && depth < NARROW.depth && NARROW.is_folder(name) {
            all.extend(items(repository, &repository.find_tree(entry.id())?, depth + 1)?);
            is_spread = true;
        } else {
            all.push((name.to_owned(), if is_tree { Item::Tree(entry.id()) } else { Item::File(entry.id()) }));
        }
    }
    if is_spread {
        all.sort_by_cached_key(|(name, item)| {
            format!("{name}{}", if matches!(item, Item::Tree(_)) { "/" } else { "" })
        });
    }
    Ok(all)
}

/// The objects of a state, by key.
pub(super) fn everything(repository: &Repository, state: &Tree<'_>) -> Result<BTreeMap<Key, Bytes>, git2::Error> {
    let mut entries = Vec::new();
    let all = Range { prefix: REGISTRY, after: None, max: usize::MAX };
    collect(repository, state, REGISTRY, all, &mut entries)?;
    Ok(entries.into_iter().map(|entry| (entry.key, entry.value)).collect())
}

/// Whether a state stands for versions that nothing is known of.
pub(super) fn is_unknown(state: &Tree<'_>) -> bool {
    state.get_name(UNKNOWN).is_some_and(|entry| entry.kind() == Some(ObjectType::Blob))
}

/// The newest state of the chains that end in `bases`, and its version.
pub(super) fn newest_of(repository: &Repository, bases: &[Oid]) -> Result<Option<(Version, Oid)>, git2::Error> {
    let mut found = None;
    for base in bases {
        found = found.max(newest(repository, &versions(repository, *base)?, Version(u64::MAX))?);
    }
    Ok(found)
}

/// The newest version of the chains that end in `bases`.
pub(crate) fn newest_version(repository: &Repository, bases: &[Oid]) -> Result<Option<Version>, git2::Error> {
    Ok(newest_of(repository, bases)?.map(|(version, _)| version))
}

/// The state at a version: that of the newest version up to it, with that version.
pub(super) fn newest(
    repository: &Repository,
    versions: &Tree<'_>,
    at: Version,
) -> Result<Option<(Version, Oid)>, git2::Error> {
    /// The newest version below a node; with `limit`, none after it.
    fn below(
        repository: &Repository,
        node: &Tree<'_>,
        limit: Option<&[String]>,
        names: &mut Vec<String>,
    ) -> Result<Option<(Version, Oid)>, git2::Error> {
        for entry in node.iter().rev() {
            let name = entry.name().unwrap_or_default();
            let limit = match limit.map(|limit| (name.cmp(limit[0].as_str()), limit)) {
                Some((Ordering::Greater, _)) => continue,
                Some((Ordering::Equal, limit)) => Some(&limit[1..]),
                Some((Ordering::Less, _)) | None => None,
            };
            names.push(name.to_owned());
            if names.len() == 8 {
                return Ok(Some((version(names), entry.id())));
            }
            let limit = limit.filter(|limit| !limit.is_empty());
            if let Some(found) = below(repository, &repository.find_tree(entry.id())?, limit, names)? {
                return Ok(Some(found));
            }
            names.pop();
        }
        Ok(None)
    }
    below(repository, versions, Some(&names(at)), &mut Vec::new())
}
