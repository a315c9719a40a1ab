//! Spreads full folders over subfolders, because each commit writes every folder on the way to a changed file anew.
//!
//! A full folder takes no new names. New names go into subfolders that are called `_` and hexadecimal digits of the name's
//! SHA-1. A full subfolder has subfolders by the next digits, and so on. Existing files stay where they are. No object can have
//! such a name. Paths elsewhere are plain: the path of an object does not depend on the folder of its file.
//!
//! Start at [`Spread`]. Elsewhere: `trees` reads and writes spread folders.

use std::borrow::Cow;

use sha1::{Digest as _, Sha1};

/// How the names of a tree are spread over folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spread {
    /// From how many entries on a folder is full.
    pub full: usize,
    /// How many digits a folder in a full one is called by; 16 folders for one, 256 for two.
    digits: usize,
    /// How deep it may go, which is far more than anything needs.
    pub depth: usize,
}

/// Of files that people look at: few folders, that are as Git has them for its own objects.
pub(super) const FILES: Spread = Spread { full: 256, digits: 2, depth: 4 };
/// Of trees that nobody looks at: a change of one name writes as few bytes as can be.
pub(super) const NARROW: Spread = Spread { full: 32, digits: 1, depth: 8 };

impl Spread {
    /// The folder for a name in one that is so deep in a full one.
    pub(super) fn folder(self, name: &str, depth: usize) -> String {
        let digest = Sha1::digest(name);
        let at = depth * self.digits;
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("_{}", &digits[at..at + self.digits])
    }

    /// Whether a folder has a name as those have that are there because another is full.
    pub(super) fn is_folder(self, name: &str) -> bool {
        name.strip_prefix('_')
            .is_some_and(|digits| digits.len() == self.digits && digits.bytes().all(|b| b.is_ascii_hexdigit()))
    }
}

/// A path without the folders that are there because others are full.
pub(super) fn plain(path: &str) -> Cow<'_, str> {
    if !path.starts_with('_') && !path.contains("/_") {
        return Cow::Borrowed(path);
    }
    let mut names: Vec<&str> = Vec::new();
    // How many of them come before the next name and may be there for it.
    let mut folders = 0;
    for name in path.split('/') {
        let first = names.len() - folders;
        let is_for =
            |name: &str| names[first..].iter().enumerate().all(|(depth, folder)| *folder == FILES.folder(name, depth));
        if folders > 0 && folders <= FILES.depth && !FILES.is_folder(name) && is_for(name) {
            names.truncate(first);
        }
        folders = if FILES.is_folder(name) { folders + 1 } else { 0 };
        names.push(name);
    }
    Cow::Owned(names.join("/"))
}

/// The folder that is full, by its path without others, of one that may be there for that.
pub(super) fn full(folder: &str) -> Option<Cow<'_, str>> {
    let mut full = folder;
    let mut folders = 0;
    while !full.is_empty() {
        let (parent, name) = full.rsplit_once('/').unwrap_or(("", full));
        if !FILES.is_folder(name) {
            break;
        }
        full = parent;
        folders += 1;
    }
    (1..=FILES.depth).contains(&folders).then(|| plain(full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_put_where_sha1sum_says() {
        // printf web.yaml | sha1sum
        assert_eq!([FILES.folder("web.yaml", 0), FILES.folder("web.yaml", 1)], ["_5b", "_fd"]);
        assert_eq!([0, 1, 2].map(|depth| NARROW.folder("web.yaml", depth)), ["_5", "_b", "_f"]);
    }

    #[test]
    fn paths_are_the_same_wherever_the_file_is() {
        let (one, two) = (FILES.folder("web.yaml", 0), FILES.folder("web.yaml", 1));
        for path in [
            "shop/stacks/web.yaml".to_owned(),
            format!("shop/stacks/{one}/web.yaml"),
            format!("shop/stacks/{one}/{two}/web.yaml"),
            format!("{}/shop/stacks/{one}/web.yaml", FILES.folder("shop", 0)),
        ] {
            assert_eq!(plain(&path), "shop/stacks/web.yaml");
        }
        // Somebody's own folders.
        for path in ["_00/web.yaml", "_a/web.yaml", "_00", "shop/_00/_00/x", "_00/", "a/_/b"] {
            assert_eq!(plain(path), path);
        }
    }

    #[test]
    fn folders_are_in_the_one_that_is_full() {
        let below = format!("{}/shop/_5b", FILES.folder("shop", 0));
        for (folder, is_in) in [
            ("shop/_5b", Some("shop")),
            ("shop/_5b/_fd/_00/_00", Some("shop")),
            ("_5b", Some("")),
            (below.as_str(), Some("shop")),
            ("shop/_5b/_fd/_00/_00/_00", None),
            ("shop/_5b/web", None),
            ("shop", None),
            ("", None),
        ] {
            assert_eq!(full(folder).as_deref(), is_in, "{folder}");
        }
    }
}
