//! The rejected files, as the record in the log lists them.
//!
//! The record has to fit into one request to etcd. Reasons are cut, and files without room are counted.
//!
//! Start at [`InvalidFile`]. Elsewhere: `progress` is the record.

use git2::Oid;
use serde::{Deserialize, Serialize};

use super::progress::Progress;

/// How long a reason may be, in bytes.
pub(super) const REASON: usize = 1 << 10;
/// The most bytes of rejected files in the record. etcd accepts 1.5 MiB.
const ROOM: usize = 1280 << 10;
/// The most bytes of a rejected file besides its path and reason.
const EACH: usize = 192;
/// The end of a text that was cut.
const CUT: &str = "…";

/// A file, or its removal, that was refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InvalidFile {
    /// Why, for people.
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
    /// That of [`good`](Self::good). The repository may have been replaced since.
    pub(super) fn good_commit(&self) -> Option<Oid> {
        Oid::from_str(self.good.as_deref()?).ok()
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
    let end = text.floor_char_boundary(most.saturating_sub(CUT.len()));
    format!("{}{}", &text[..end], CUT)
}

/// How many bytes of the record a file takes, at most.
fn size(path: &str, file: &InvalidFile) -> usize {
    encoded(path) + encoded(&file.reason) + EACH
}

impl Progress {
    /// Adds a rejected file; false when there was no room, and the file is counted alone. A file that is in the record stays
    /// there, with a shorter reason where the new one does not fit.
    pub(super) fn refuse(&mut self, path: &str, mut file: InvalidFile) -> bool {
        let taken = self.bytes.unwrap_or_else(|| self.invalid.iter().map(|(path, file)| size(path, file)).sum());
        let before = self.invalid.get(path);
        let own = before.map_or(0, |before| size(path, before));
        let room = ROOM.saturating_sub(taken) + own;
        if size(path, &file) > room {
            let Some(before) = before else {
                self.bytes = Some(taken);
                self.unkept += 1;
                return false;
            };
            let most = encoded(&before.reason);
            // As JSON, a text has at most six times the bytes.
            let shorter = [before.reason.len(), before.reason.len() / 6].map(|most| cut(&file.reason, most));
            file.reason = shorter.into_iter().find(|reason| encoded(reason) <= most).unwrap_or_default();
        }
        self.bytes = Some(taken - own + size(path, &file));
        self.invalid.insert(path.to_owned(), file);
        true
    }

    /// Notes that nothing is wrong with a file any more; whether that was in the record.
    pub(super) fn accept(&mut self, path: &str) -> bool {
        let file = self.invalid.remove(path);
        if let (Some(file), Some(bytes)) = (&file, &mut self.bytes) {
            *bytes -= size(path, file);
        }
        if self.invalid.is_empty() {
            self.unkept = 0;
        }
        file.is_some()
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

    #[test]
    fn rejected_file_record_fits_log_entry() {
        for reason in ["it is wrong".to_owned(), "\u{1}\"".repeat(REASON / 2), "ü".repeat(REASON / 2)] {
            let (mut progress, mut recorded) = (Progress::default(), 0);
            for number in 0..20_000 {
                let path = format!("organizations/shop/projects/web/stacks/{number}.yaml");
                recorded += usize::from(progress.refuse(&path, invalid(&reason)));
            }
            assert_eq!(progress.invalid.len(), recorded);
            assert_eq!(progress.invalid.len() as u64 + progress.unkept, 20_000);
            let size = |progress: &Progress| serde_json::to_vec(progress).unwrap().len();
            assert!((ROOM / 2..ROOM + 1024).contains(&size(&progress)), "{}", size(&progress));
            // A file stays in the record whatever is wrong with it by then.
            let (first, before) = ("organizations/shop/projects/web/stacks/0.yaml", progress.unkept);
            assert!(
                progress.refuse(first, invalid("another")) && progress.refuse(first, invalid(&"\u{1}".repeat(REASON)))
            );
            assert!(size(&progress) < ROOM + 1024);
            assert!(progress.invalid.contains_key(first) && progress.unkept == before);
            // It is that of the last push, also where its reason has to be shorter.
            let second = "organizations/shop/projects/web/stacks/1.yaml";
            let long = "\u{1}".repeat(2 * REASON);
            for (commit, reason) in [("d", long.as_str()), ("e", "ü"), ("f", "üüüüüüüüü"), ("", ""), ("g", &long)]
            {
                let pushed = InvalidFile { commit: commit.to_owned(), good: None, waits: false, ..invalid(reason) };
                assert!(progress.refuse(second, pushed.clone()));
                let InvalidFile { reason: cut, .. } = progress.invalid[second].clone();
                assert_eq!(progress.invalid[second], InvalidFile { reason: cut.clone(), ..pushed });
                assert!(cut == reason || cut.is_empty() || cut.ends_with(CUT), "{cut}");
                assert!(size(&progress) < ROOM + 1024, "{}", size(&progress));
                let bytes = progress.invalid.iter().map(|(path, file)| super::size(path, file)).sum();
                assert_eq!(progress.bytes, Some(bytes));
            }
            assert!(progress.may_be_told("without/room.yaml") && !progress.accept("without/room.yaml"));
            for path in progress.invalid.keys().cloned().collect::<Vec<_>>() {
                assert!(progress.accept(&path));
            }
            assert_eq!((progress.invalid.len(), progress.unkept, progress.bytes), (0, 0, Some(0)));
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("short", 8), "short");
        assert_eq!(cut("a üüüüü", 8), "a ü…");
        assert_eq!(cut(&"ü".repeat(REASON), REASON).len(), REASON - 1);
    }
}
