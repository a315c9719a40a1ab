//! Merges several packs into one.
//!
//! Entries are copied as they are, still compressed, so a merge costs about as much as copying the files. One kind of entry
//! changes: a whole tree with a newer version of the same folder becomes a difference from that version. The newest version stays
//! whole, because it is read most.
//!
//! Start at [`merge`]. Elsewhere: `repack` selects the packs, and `pack_file` writes.

use std::{
    borrow::Cow,
    collections::HashMap,
    fs::{self, File},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, Read as _},
    ops::Range,
    os::unix::fs::FileExt as _,
    path::Path,
};

use flate2::read::ZlibDecoder;
use git2::Oid;

use super::{
    delta::Delta,
    pack_file::{self, LARGE_TREE, OFS_DELTA, PackFile, REF_DELTA, TREE},
    pack_index::{self, IndexEntry},
    trees::{self, Entry},
};

/// A digest stands at the end of a pack.
const TRAILER: u64 = 20;
/// Smaller trees stay as they are.
const LARGE: u64 = LARGE_TREE as u64;
/// Trees of this size stay as they are, too.
const TOO_LARGE: u64 = 16 << 20;
/// How much of a pack is read at once, in bytes. Little under test, so that packs are longer.
const AHEAD: u64 = if cfg!(test) { 1 << 10 } else { 256 << 10 };
/// The most bytes of trees in memory to compare others with.
const KEPT: usize = if cfg!(test) { 128 << 10 } else { 64 << 20 };

/// A pack to be read.
pub(super) struct Pack {
    file: File,
    length: u64,
    /// In the order of the pack.
    places: Vec<IndexEntry>,
}

impl Pack {
    /// Opens a pack with the index beside it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let index = fs::read(path.with_extension("idx"))?;
        let mut places = pack_index::decode(&index).ok_or_else(|| damaged("its index makes no sense"))?;
        places.sort_unstable_by_key(|place| place.offset);
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { file, length, places })
    }

    /// The ids of its objects.
    pub(super) fn ids(&self) -> impl Iterator<Item = Oid> {
        self.places.iter().map(|place| place.id)
    }

    /// The bytes of an entry by its number. After the entry before, they are usually in `ahead` already.
    fn entry<'a>(&self, number: usize, ahead: &'a mut Ahead) -> io::Result<&'a [u8]> {
        let IndexEntry { offset, crc, .. } = self.places[number];
        let end = self.places.get(number + 1).map_or(self.length.saturating_sub(TRAILER), |next| next.offset);
        let is_whole = offset <= end && end <= self.length;
        let entry = if is_whole { ahead.range(self, offset..end)? } else { return Err(damaged("it is cut off")) };
        if crc32fast::hash(entry) == crc { Ok(entry) } else { Err(damaged("an entry is not what its index says")) }
    }

    /// The object that begins at this offset.
    fn at(&self, offset: u64) -> Option<Oid> {
        let number = self.places.binary_search_by_key(&offset, |place| place.offset).ok()?;
        Some(self.places[number].id)
    }
}

/// A part of a pack that was read.
#[derive(Default)]
struct Ahead {
    start: u64,
    bytes: Vec<u8>,
}

impl Ahead {
    /// A range of the pack, which is the same pack in every call.
    fn range(&mut self, pack: &Pack, range: Range<u64>) -> io::Result<&[u8]> {
        let has = self.start..self.start + self.bytes.len() as u64;
        if range.start < has.start || range.end > has.end {
            let end = range.end.max(pack.length.min(range.start + AHEAD));
            self.bytes.resize(usize::try_from(end - range.start).map_err(io::Error::other)?, 0);
            self.start = range.start;
            pack.file.read_exact_at(&mut self.bytes, range.start)?;
        }
        Ok(&self.bytes[(range.start - self.start) as usize..(range.end - self.start) as usize])
    }
}

/// Writes one pack, durably, with the objects of `packs`, newest first, and of others, whose entries `entry` gives; returns
/// its name without suffix.
pub(super) fn merge(
    folder: &Path,
    packs: Vec<Pack>,
    others: &[Oid],
    entry: impl Fn(Oid) -> io::Result<Vec<u8>>,
) -> io::Result<String> {
    let (count, mut repeated) = distinct(&packs, others);
    let mut out = PackFile::create(folder, count)?;
    // An entry may have a base in a newer pack, but never in an older one.
    let mut likes = Likenesses::default();
    let mut is_next = |id: &Oid| repeated.get_mut(id).is_none_or(|taken| !std::mem::replace(taken, true));
    for pack in packs {
        let mut ahead = Ahead::default();
        for (number, place) in pack.places.iter().enumerate() {
            if is_next(&place.id) {
                let entry = copied(&pack, place, pack.entry(number, &mut ahead)?, &mut likes)?;
                out.add(place.id, &entry)?;
            }
        }
    }
    for id in others {
        if is_next(id) {
            out.add(*id, &entry(*id)?)?;
        }
    }
    drop(likes);
    out.finish()
}

/// The number of distinct objects, and the repeated ones, which are few: there may be millions of objects, so nothing else
/// is stored for each.
fn distinct(packs: &[Pack], others: &[Oid]) -> (usize, HashMap<Oid, bool>) {
    let mut all = Vec::with_capacity(packs.iter().map(|pack| pack.places.len()).sum::<usize>() + others.len());
    all.extend(packs.iter().flat_map(Pack::ids).chain(others.iter().copied()));
    all.sort_unstable();
    let repeated = all.windows(2).filter(|two| two[0] == two[1]).map(|two| (two[0], false)).collect();
    all.dedup();
    (all.len(), repeated)
}

/// An entry as another pack has it.
fn copied<'a>(pack: &Pack, place: &IndexEntry, entry: &'a [u8], likes: &mut Likenesses) -> io::Result<Cow<'a, [u8]>> {
    let (kind, size, at) = header(entry).ok_or_else(|| damaged("an entry has no beginning"))?;
    match kind {
        // The offset of its base changes, its content does not.
        OFS_DELTA => {
            let (back, at) = distance(entry, at).ok_or_else(|| damaged("a difference has no base"))?;
            let base = place.offset.checked_sub(back).and_then(|offset| pack.at(offset));
            let base = base.ok_or_else(|| damaged("a difference is from no object"))?;
            let mut moved = pack_file::header(REF_DELTA, size, base.as_bytes());
            moved.extend(&entry[at..]);
            Ok(moved.into())
        }
        TREE if (LARGE..TOO_LARGE).contains(&size) => {
            let mut tree = Vec::with_capacity(size as usize);
            ZlibDecoder::new(&entry[at..]).take(size).read_to_end(&mut tree)?;
            let shorter = likes.difference(place.id, tree)?;
            Ok(shorter.filter(|shorter| shorter.len() < entry.len() / 2).map_or(entry.into(), Cow::Owned))
        }
        _ => Ok(entry.into()),
    }
}

/// The kind and size of an entry, and where its header ends.
fn header(entry: &[u8]) -> Option<(u8, u64, usize)> {
    let first = *entry.first()?;
    let (mut size, mut shift, mut at, mut byte) = (u64::from(first & 0xf), 4, 1, first);
    while byte & 0x80 != 0 {
        byte = *entry.get(at)?;
        size |= u64::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
        at += 1;
    }
    Some((first >> 4 & 7, size, at))
}

/// How far before an entry its base begins, and where that number ends.
fn distance(entry: &[u8], mut at: usize) -> Option<(u64, usize)> {
    let mut byte = *entry.get(at)?;
    let mut back = u64::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        at += 1;
        byte = *entry.get(at)?;
        back = back.checked_add(1)?.checked_mul(0x80)? | u64::from(byte & 0x7f);
    }
    Some((back, at + 1))
}

/// Whole trees, by a mark that versions of the same folder most probably share.
#[derive(Default)]
struct Likenesses {
    trees: HashMap<u64, (Oid, Vec<u8>)>,
    bytes: usize,
}

impl Likenesses {
    /// A tree as its difference from a newer one of the same folder. The first tree of a folder is stored for later ones.
    fn difference(&mut self, id: Oid, tree: Vec<u8>) -> io::Result<Option<Vec<u8>>> {
        let Some(mark) = trees::entries(&tree).map(|(name, _)| hash(name)).min() else { return Ok(None) };
        if let Some((base, like)) = self.trees.get(&mark) {
            let delta = difference(like, &tree);
            return delta.map(|delta| pack_file::entry(REF_DELTA, base.as_bytes(), &delta)).transpose();
        }
        if self.bytes + tree.len() <= KEPT {
            self.bytes += tree.len();
            self.trees.insert(mark, (id, tree));
        }
        Ok(None)
    }
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// The difference between two trees, entry by entry.
fn difference(base: &[u8], tree: &[u8]) -> Option<Vec<u8>> {
    let mut others = trees::entries(base).peekable();
    let mut delta = Delta::new(base.len(), tree.len());
    let (mut copy, mut insert) = (0..0, 0..0);
    for (name, entry) in trees::entries(tree) {
        let range = entry.range();
        let is_same = |other: &Entry| base[other.range()] == tree[range.clone()];
        // Most are the same, which costs less to see than their order.
        let is_before = |other_name: &[u8], other: &Entry| {
            !is_same(other) && trees::order(other_name, other.is_tree, name, entry.is_tree).is_lt()
        };
        while others.next_if(|(before, other)| is_before(before, other)).is_some() {}
        match others.next_if(|(_, other)| is_same(other)).map(|(_, other)| other.range().start) {
            Some(at) if insert.is_empty() && copy.end == at => copy.end += range.len(),
            Some(at) => {
                delta.copy(copy.start, copy.end);
                delta.insert(&tree[insert]);
                copy = at..at + range.len();
                insert = range.end..range.end;
            }
            None => {
                if insert.is_empty() {
                    insert = range.start..range.start;
                }
                insert.end = range.end;
            }
        }
    }
    delta.copy(copy.start, copy.end);
    delta.insert(&tree[insert]);
    delta.finish()
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a pack is damaged: {what}"))
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, process::Command};

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::{
        commit_builder::{CommitBuilder, Edit, Person},
        delta::follow,
        repository::{ControlRepository, MAIN},
    };

    fn git(directory: &Path, args: &[&str]) -> String {
        let out = Command::new("git").arg("-C").arg(directory).args(args).output().unwrap();
        assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    fn packs(directory: &Path) -> Vec<Pack> {
        let files = fs::read_dir(directory.join("objects/pack")).unwrap().map(|file| file.unwrap().path());
        let packs = files.filter(|file| file.extension().is_some_and(|extension| extension == "pack"));
        packs.map(|file| Pack::open(&file).unwrap()).collect()
    }

    /// A commit that changes a few of many files.
    fn builder(number: usize, files: usize) -> CommitBuilder {
        let edit = |file: usize| Edit {
            path: format!("shop/stacks/stack-{file:04}.yaml"),
            content: Some(format!("number: {number}\nfile: {file}\n")),
        };
        let edits = (0..files).filter(|file| number == 0 || file % 37 == number).map(edit).collect();
        CommitBuilder { edits, author: Person::stoa(), time_ms: 0, message: format!("{number}\n") }
    }

    #[test]
    fn merge_joins_git_and_projection_packs() {
        let (directory, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let control = ControlRepository::open(directory.path(), false).unwrap();
        let mut tip = None;
        for number in 0..12 {
            tip = control.commit(tip, &[builder(number, 300)]).unwrap();
            if number == 5 {
                control.advance(None, tip.unwrap()).unwrap();
                // Git names the base of a difference by its distance.
                git(directory.path(), &["repack", "-a", "-d", "-f", "--quiet"]);
            }
        }
        let tip = tip.unwrap();
        git(directory.path(), &["update-ref", MAIN, &tip.to_string()]);

        git(other.path(), &["init", "--bare", "--quiet"]);
        let entry = |_| crate::objects::whole(git2::ObjectType::Blob, b"loose");
        let loose = Oid::hash_object(git2::ObjectType::Blob, b"loose").unwrap();
        let sources = packs(directory.path());
        assert_eq!(sources.len(), 7);
        let entries = sources.iter().map(|pack| pack.places.len()).sum::<usize>();
        let name = merge(&other.path().join("objects/pack"), sources, &[loose, loose], entry).unwrap();
        git(other.path(), &["update-ref", MAIN, &tip.to_string()]);

        git(other.path(), &["fsck", "--strict", "--full", "--no-dangling"]);
        let objects = |directory| git(directory, &["rev-list", "--objects", MAIN]);
        assert!(objects(directory.path()) == objects(other.path()), "they have other objects");
        let pack = git(other.path(), &["verify-pack", "-v", &format!("objects/pack/{name}.pack")]);
        let trees: Vec<Vec<&str>> = pack
            .lines()
            .filter(|line| line.get(40..).is_some_and(|kind| kind.starts_with(" tree")))
            .map(|l| l.split_whitespace().collect())
            .collect();
        // With a depth and a base at the end.
        let whole = trees.iter().filter(|tree| tree.len() == 5 && tree[2].parse::<u64>().unwrap() > LARGE).count();
        let mut said = String::new();
        trees.iter().for_each(|tree| writeln!(said, "{tree:?}").unwrap());
        assert_eq!(whole, 1, "of {entries} entries:\n{said}");
    }

    #[test]
    fn what_is_damaged_is_not_copied() {
        let directory = TempDir::new().unwrap();
        let control = ControlRepository::open(directory.path(), false).unwrap();
        control.commit(None, &[builder(0, 20)]).unwrap();
        let folder = directory.path().join("objects/pack");
        let is_pack = |file: &std::path::PathBuf| file.extension().is_some_and(|extension| extension == "pack");
        let file = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).find(is_pack).unwrap();
        let mut bytes = fs::read(&file).unwrap();
        bytes[40] ^= 1;
        fs::remove_file(&file).unwrap();
        fs::write(&file, &bytes).unwrap();
        let merge = || merge(directory.path(), packs(directory.path()), &[], |_| Ok(Vec::new()));
        let error = merge().unwrap_err();
        assert!(error.to_string().contains("an entry is not what its index says"), "{error}");
        fs::write(&file, &bytes[..60]).unwrap();
        assert!(merge().is_err());
    }

    fn tree(entries: &[(u16, u8)]) -> Vec<u8> {
        let mut entries: Vec<_> = entries.to_vec();
        entries.sort();
        entries.dedup_by_key(|(name, _)| *name);
        entries
            .into_iter()
            .flat_map(|(name, content)| {
                let mut entry = format!("100644 stack-{name:05}.yaml\0").into_bytes();
                entry.extend([content; 20]);
                entry
            })
            .collect()
    }

    proptest! {
        #[test]
        fn one_tree_becomes_another(
            base in proptest::collection::vec((0_u16..60, 0_u8..3), 0..60), other in proptest::collection::vec((0_u16..60, 0_u8..3), 0..60),
        ) {
            let (base, other) = (tree(&base), tree(&other));
            if let Some(delta) = difference(&base, &other) {
                prop_assert_eq!(follow(&base, &delta), other);
            }
        }

        #[test]
        fn entries_of_any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some((_, _, at)) = header(&bytes) {
                prop_assert!(at <= bytes.len());
                let end = distance(&bytes, at).map_or(0, |(_, end)| end);
                prop_assert!(end <= bytes.len());
            }
        }
    }

    #[test]
    fn full_base_cache_leaves_trees_whole() {
        let folder = |number: u16, changed: u8| {
            let names = number * 500..(number + 1) * 500;
            tree(&names.clone().map(|name| (name, if name == names.start { changed } else { 1 })).collect::<Vec<_>>())
        };
        let mut likes = Likenesses::default();
        for number in 0..10 {
            assert!(likes.difference(Oid::ZERO_SHA1, folder(number, 1)).unwrap().is_none(), "folder {number}");
        }
        assert!(likes.bytes <= KEPT);
        let kept = KEPT / folder(0, 1).len();
        for number in 0..10 {
            let entry = likes.difference(Oid::ZERO_SHA1, folder(number, 2)).unwrap();
            assert_eq!(entry.is_some(), usize::from(number) < kept, "folder {number}, and {kept} are kept");
        }
    }

    #[test]
    fn tree_delta_stores_only_changes() {
        let old: Vec<(u16, u8)> = (0..2_000).map(|name| (name, 1)).collect();
        let mut new = old.clone();
        new.extend([(3_000, 2), (3_001, 2)]);
        new[700].1 = 9;
        let mut likes = Likenesses::default();
        assert!(likes.difference(Oid::ZERO_SHA1, tree(&new)).unwrap().is_none(), "the newest stays whole");
        let entry = likes.difference(Oid::ZERO_SHA1, tree(&old)).unwrap().expect("a difference");
        assert!(entry.len() < 120, "{}", entry.len());
    }
}
