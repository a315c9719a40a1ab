//! The rejected files, as the record in the log lists them.
//!
//! The record has to fit into one request to etcd. Many files get short reasons; very many get none, and files of one push
//! share the fields that they have in common.
//!
//! Start at [`InvalidFile`]. Elsewhere: `progress` is the record.

use std::{borrow::Cow, collections::BTreeMap};

use git2::Oid;
use serde::{Deserialize, Serialize};

use super::progress::Progress;

/// How long a reason may be, in bytes.
pub(super) const REASON: usize = 1 << 10;
/// The room for reasons where there are many files.
const SHORT_REASON: usize = 64;
/// The limits in bytes of rejected files in the record: with full reasons, with short reasons, and in all. etcd accepts 1.5
/// MiB.
const ROOM_FOR_REASONS: usize = 256 << 10;
const ROOM_FOR_SHORT_REASONS: usize = 512 << 10;
const ROOM: usize = 1280 << 10;
/// Extra room for files in the record whose problem changes: they stay there.
const SLACK: usize = 128 << 10;
/// The most bytes of a rejected file besides its path and reason, and of the common fields of many.
const EACH: usize = 192;
/// The bytes of a path in a list besides itself.
const LISTED: usize = 3;

/// A file, or its removal, that was refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InvalidFile {
    /// Why, for people; [`CUT`](Self::CUT) where there are too many.
    pub reason: String,
    /// The id of the commit with the file.
    pub commit: String,
    /// The id of the commit on main with the content when it was last applied or written, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good: Option<String>,
    /// Whether it is blocked by another object, or by a missing one. It is retried until it is not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
}

impl InvalidFile {
    /// The mark for a reason, or a part of one, without room.
    pub const CUT: &str = "…";

    /// That of [`good`](Self::good). The repository may have been replaced since.
    pub(super) fn good_commit(&self) -> Option<Oid> {
        Oid::from_str(self.good.as_deref()?).ok()
    }

    /// The same with a reason of at most this many bytes.
    fn short(&self) -> Self {
        Self { reason: cut(&self.reason, SHORT_REASON), ..self.clone() }
    }

    /// The same without its reason, but for a leading word as in `refused: …`.
    fn bare(&self) -> Self {
        Self { reason: self.bare_reason(), ..self.clone() }
    }

    fn bare_reason(&self) -> String {
        let word = self.reason.split_once(": ").map(|(word, _)| word);
        let word = word.filter(|word| word.len() <= 16 && word.bytes().all(|byte| byte.is_ascii_lowercase()));
        word.map_or_else(|| Self::CUT.to_owned(), |word| format!("{word}: {}", Self::CUT))
    }

    fn is_bare(&self) -> bool {
        self.reason.ends_with(Self::CUT) && self.reason == self.bare_reason()
    }
}

/// How many bytes a text takes as JSON, at most.
fn encoded(text: &str) -> usize {
    let byte = |byte| match byte {
        b'"' | b'\\' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(byte).sum()
}

/// A text of at most this many bytes, with a mark where it was cut.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(most - InvalidFile::CUT.len());
    format!("{}{}", &text[..end], InvalidFile::CUT)
}

/// Files by path, as they are written.
pub(super) type Files<'a> = BTreeMap<Cow<'a, str>, Cow<'a, InvalidFile>>;

/// Files that have all but their paths in common.
#[derive(Serialize, Deserialize)]
pub(super) struct Alike<'a> {
    #[serde(flatten)]
    file: Cow<'a, InvalidFile>,
    paths: Vec<Cow<'a, str>>,
}

impl<'a> Alike<'a> {
    /// The files without reasons, and the others.
    pub(super) fn of(files: &'a BTreeMap<String, InvalidFile>) -> (Vec<Self>, Files<'a>) {
        let (mut alike, mut others) = (BTreeMap::<&InvalidFile, Vec<Cow<'a, str>>>::new(), Files::new());
        for (path, file) in files {
            let path = Cow::Borrowed(path.as_str());
            if file.is_bare() {
                alike.entry(file).or_default().push(path);
            } else {
                others.insert(path, Cow::Borrowed(file));
            }
        }
        (alike.into_iter().map(|(file, paths)| Self { file: Cow::Borrowed(file), paths }).collect(), others)
    }

    /// By path.
    pub(super) fn files(self) -> impl Iterator<Item = (String, InvalidFile)> {
        let (file, paths) = (self.file.into_owned(), self.paths);
        paths.into_iter().map(move |path| (path.into_owned(), file.clone()))
    }
}

/// How much of the record files take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    /// In bytes, at most.
    taken: usize,
    /// The numbers of files by their common fields.
    alike: BTreeMap<InvalidFile, usize>,
}

impl Room {
    fn of(files: &BTreeMap<String, InvalidFile>) -> Self {
        let mut room = Self::default();
        files.iter().for_each(|(path, file)| room.add(path, file));
        room
    }

    /// How many bytes a file would take that is not there.
    fn size(&self, path: &str, file: &InvalidFile) -> usize {
        let own = encoded(&file.reason) + EACH;
        match file.is_bare() {
            true if self.alike.contains_key(file) => encoded(path) + LISTED,
            true => encoded(path) + LISTED + own,
            false => encoded(path) + own,
        }
    }

    fn add(&mut self, path: &str, file: &InvalidFile) {
        self.taken += self.size(path, file);
        if file.is_bare() {
            *self.alike.entry(file.clone()).or_default() += 1;
        }
    }

    /// How many bytes that gives back.
    fn remove(&mut self, path: &str, file: &InvalidFile) -> usize {
        if let Some(count) = self.alike.get_mut(file) {
            *count -= 1;
            if *count == 0 {
                self.alike.remove(file);
            }
        }
        let size = self.size(path, file);
        self.taken -= size;
        size
    }
}

impl Progress {
    /// Adds a rejected file. With many files reasons are cut short, then left out, and then files are only counted: false
    /// when there was no room. An existing file keeps its room, however many came since; where a new reason does not fit,
    /// the old one stays.
    pub(super) fn refuse(&mut self, path: &str, file: InvalidFile) -> bool {
        let before = self.forget(path);
        let (own, slack) = before.as_ref().map_or((0, 0), |(_, size)| (*size, SLACK));
        let room = self.room.get_or_insert_default();
        let (short, bare) = (file.short(), file.bare());
        let forms = [(file, ROOM_FOR_REASONS), (short, ROOM_FOR_SHORT_REASONS), (bare, ROOM + slack)];
        let fits = |(file, most): &(InvalidFile, usize)| {
            let size = room.size(path, file);
            size <= own || room.taken + size <= *most
        };
        let kept = forms.into_iter().find(fits).map(|(file, _)| file).or_else(|| before.map(|(file, _)| file));
        let Some(file) = kept else {
            self.unkept += 1;
            return false;
        };
        room.add(path, &file);
        self.invalid.insert(path.to_owned(), file);
        true
    }

    /// Notes that nothing is wrong with a file any more; whether that was in the record.
    pub(super) fn accept(&mut self, path: &str) -> bool {
        let was_there = self.forget(path).is_some();
        if self.invalid.is_empty() {
            self.unkept = 0;
        }
        was_there
    }

    /// Removes a file from the record; returns it, and its bytes.
    fn forget(&mut self, path: &str) -> Option<(InvalidFile, usize)> {
        let room = self.room.get_or_insert_with(|| Room::of(&self.invalid));
        let file = self.invalid.remove(path)?;
        let size = room.remove(path, &file);
        Some((file, size))
    }

    /// Whether a file waits.
    pub(super) fn waits(&self, path: &str) -> bool {
        self.invalid.get(path).is_some_and(|file| file.waits)
    }

    /// Whether a problem of a file may have been reported.
    pub(super) fn may_be_told(&self, path: &str) -> bool {
        self.unkept > 0 || self.invalid.contains_key(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid(reason: &str) -> InvalidFile {
        InvalidFile { reason: reason.to_owned(), commit: "c".repeat(40), good: Some("g".repeat(40)), waits: true }
    }

    /// The record as whoever reads it has it.
    fn read(progress: &Progress) -> Progress {
        serde_json::from_slice(&serde_json::to_vec(progress).unwrap()).unwrap()
    }

    #[test]
    fn however_many_files_are_refused_the_record_fits_into_the_log() {
        for reason in ["it is wrong".to_owned(), "\u{1}\"".repeat(REASON / 2), "ü".repeat(REASON / 2)] {
            let (mut progress, mut kept) = (Progress::default(), 0);
            for number in 0..20_000 {
                let path = format!("organizations/shop/projects/web/stacks/{number}.yaml");
                kept += usize::from(progress.refuse(&path, invalid(&reason)));
            }
            assert_eq!(progress.invalid.len(), kept);
            assert!(kept > 12_000, "{kept}");
            let size = serde_json::to_vec(&progress).unwrap().len();
            assert!((ROOM / 2..ROOM + 1024).contains(&size), "{size}");
            assert_eq!(progress.invalid.len() as u64 + progress.unkept, 20_000);
            assert_eq!(read(&progress).invalid, progress.invalid);
            assert_eq!(Some(Room::of(&progress.invalid)), progress.room);
            // What there is room for is not put out by what comes later, and what is known of takes no more.
            let first = "organizations/shop/projects/web/stacks/0.yaml";
            assert_eq!(progress.invalid[first].reason, reason);
            let last = progress.invalid.keys().next_back().unwrap().clone();
            assert_eq!(progress.invalid[&last], invalid(InvalidFile::CUT));
            assert!(progress.refuse(&last, invalid(&reason)));
            assert_eq!(progress.invalid.len(), kept);
            // Nor does what is tried again lose its reason, or its place, whatever is wrong with it by then.
            let before = progress.clone();
            for (path, file) in &before.invalid {
                assert!(progress.refuse(path, InvalidFile { reason: reason.clone(), ..file.clone() }));
            }
            assert_eq!(progress, before);
            for (number, (path, file)) in before.invalid.iter().enumerate() {
                let commit = format!("{number:040}");
                assert!(progress.refuse(path, InvalidFile { reason: reason.clone(), commit, ..file.clone() }));
            }
            assert_eq!((progress.invalid.len(), progress.unkept), (kept, before.unkept));
            assert_eq!(progress.invalid[first].commit, "0".repeat(40));
            let size = serde_json::to_vec(&progress).unwrap().len();
            assert!(size < ROOM + SLACK + 1024, "{size}");
            assert_eq!(Some(Room::of(&progress.invalid)), progress.room);
            assert!(progress.may_be_told("of/which/there/is/no/record.yaml"));
            assert!(!progress.accept("of/which/there/is/no/record.yaml"));
            for path in progress.invalid.keys().cloned().collect::<Vec<_>>() {
                assert!(progress.accept(&path));
            }
            assert_eq!((progress.invalid.len(), progress.unkept, progress.room), (0, 0, Some(Room::default())));
        }
    }

    #[test]
    fn of_a_reason_the_word_is_left_that_it_begins_with() {
        for (reason, bare) in [
            ("refused: stacks \"web\" is forbidden", "refused: …"),
            ("refused: …", "refused: …"),
            ("line 3: unknown field", "…"),
            ("spec.project: not found", "…"),
            ("", "…"),
        ] {
            assert_eq!(invalid(reason).bare(), invalid(bare));
            assert_eq!(invalid(reason).is_bare(), reason == bare, "{reason}");
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("short", 8), "short");
        assert_eq!(cut("a üüüüü", 8), "a ü…");
        assert_eq!(cut(&"ü".repeat(REASON), REASON).len(), REASON - 1);
    }
}
