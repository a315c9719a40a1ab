//! Folders of folders: each commit writes anew the folders that it changes, so none may grow without end.
//!
//! A folder that is full ([`FULL`]) takes no new names. They go into folders in it that are called `_` and two
//! hexadecimal digits, the first byte of the name's SHA-1, and when one of those is full into folders in that, by the
//! second byte, and so on. What was there before stays where it is. No object can have such a name. Everywhere else
//! paths are without them: the same for an object wherever its file is.

use std::borrow::Cow;

use ring::digest;

/// From how many entries on a folder is full.
pub(super) const FULL: usize = 256;
/// How deep it may go, which is far more than anything needs.
pub(super) const DEPTH: usize = 4;

/// The folder for a name in one that is so deep in a full one.
pub(super) fn folder(name: &str, depth: usize) -> String {
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, name.as_bytes());
    format!("_{:02x}", digest.as_ref()[depth])
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
            |name: &str| names[first..].iter().enumerate().all(|(depth, folder)| *folder == self::folder(name, depth));
        if folders > 0 && folders <= DEPTH && !is_folder(name) && is_for(name) {
            names.truncate(first);
        }
        folders = if is_folder(name) { folders + 1 } else { 0 };
        names.push(name);
    }
    Cow::Owned(names.join("/"))
}

/// Whether a folder has a name as those have that are there because another is full.
pub(super) fn is_folder(name: &str) -> bool {
    name.strip_prefix('_').is_some_and(|digits| digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_put_where_sha1sum_says() {
        // printf web.yaml | sha1sum
        assert_eq!([folder("web.yaml", 0), folder("web.yaml", 1)], ["_5b", "_fd"]);
    }

    #[test]
    fn paths_are_the_same_wherever_the_file_is() {
        let (one, two) = (folder("web.yaml", 0), folder("web.yaml", 1));
        for path in [
            "shop/stacks/web.yaml".to_owned(),
            format!("shop/stacks/{one}/web.yaml"),
            format!("shop/stacks/{one}/{two}/web.yaml"),
            format!("{}/shop/stacks/{one}/web.yaml", folder("shop", 0)),
        ] {
            assert_eq!(plain(&path), "shop/stacks/web.yaml");
        }
        // Somebody's own folders.
        for path in ["_00/web.yaml", "_a/web.yaml", "_00", "shop/_00/_00/x", "_00/", "a/_/b"] {
            assert_eq!(plain(path), path);
        }
    }
}
