//! The names of an archive's entries, and how many there are.

use std::collections::HashSet;

use super::{ArchiveError, ArchiveLimits};

/// The longest name, in bytes: the longest path of most systems.
const LONGEST: usize = 4096;

/// The entries of one or several archives that share a folder.
#[derive(Debug)]
pub struct Names {
    limits: ArchiveLimits,
    files: HashSet<String>,
    folders: HashSet<String>,
    size: u64,
    /// The number of entries of earlier layers.
    earlier: usize,
}

impl Names {
    /// No entries.
    pub fn new(limits: ArchiveLimits) -> Self {
        Self { limits, files: HashSet::new(), folders: HashSet::new(), size: 0, earlier: 0 }
    }

    /// Begins the next layer of an image. Its entries may have the names of earlier ones, and all of them count.
    pub fn begin_layer(&mut self) {
        self.earlier += self.files.len() + self.folders.len();
        self.files.clear();
        self.folders.clear();
    }

    /// Adds a file of a size in bytes, and the folders above it.
    ///
    /// # Errors
    ///
    /// If its name leads elsewhere or is taken, or the limits are exceeded.
    pub fn add_file(&mut self, name: &str, size: u64) -> Result<(), ArchiveError> {
        check(name)?;
        if self.files.contains(name) {
            return Err(wrong(name, "occurs twice"));
        }
        if self.folders.contains(name) {
            return Err(wrong(name, "is a file and a folder"));
        }
        self.add_folders_above(name)?;
        self.files.insert(name.to_owned());
        self.size = self.size.saturating_add(size);
        self.within_limits()
    }

    /// Adds a folder, which may be there already.
    ///
    /// # Errors
    ///
    /// As for files.
    pub fn add_folder(&mut self, name: &str) -> Result<(), ArchiveError> {
        check(name)?;
        if self.files.contains(name) {
            return Err(wrong(name, "is a file and a folder"));
        }
        self.add_folders_above(name)?;
        self.folders.insert(name.to_owned());
        self.within_limits()
    }

    fn add_folders_above(&mut self, name: &str) -> Result<(), ArchiveError> {
        let mut rest = name;
        while let Some((folder, _)) = rest.rsplit_once('/') {
            if self.files.contains(folder) {
                return Err(wrong(folder, "is a file and a folder"));
            }
            // Those above a known folder are known.
            if !self.folders.insert(folder.to_owned()) {
                break;
            }
            self.within_limits()?;
            rest = folder;
        }
        Ok(())
    }

    fn within_limits(&self) -> Result<(), ArchiveError> {
        let limits = self.limits;
        let entries = self.earlier + self.files.len() + self.folders.len();
        let is_within = entries <= limits.entries && self.size <= limits.size;
        if is_within { Ok(()) } else { Err(ArchiveError::TooLarge { limits }) }
    }
}

pub(crate) fn wrong(name: &str, problem: &'static str) -> ArchiveError {
    ArchiveError::Entry { name: name.to_owned(), problem }
}

/// Checks that a name is relative, and each of its parts is one.
pub(crate) fn check(name: &str) -> Result<(), ArchiveError> {
    let is_plain = |part: &str| !matches!(part, "" | "." | "..");
    if name.len() > LONGEST {
        let start: String = name.chars().take(80).collect();
        return Err(wrong(&start, "begins a name of more than 4096 bytes"));
    }
    if name.contains(['\\', '\0', '\n']) || !name.split('/').all(is_plain) {
        return Err(wrong(name, "has a name that leads elsewhere"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new(ArchiveLimits { entries: 4, size: 10 })
    }

    #[test]
    fn names_are_unique_and_stay_below() {
        for name in ["../x", "/x", "a/../../x", "a//b", "./x", "a\\b", "", "/", "a/..", "a\nb"] {
            let error = names().add_file(name, 0).unwrap_err().to_string();
            assert!(error.ends_with("which has a name that leads elsewhere"), "{error}");
        }
        let mut names = names();
        names.add_file("a/b", 1).unwrap();
        names.add_folder("a").unwrap();
        for (name, problem) in
            [("a/b", "occurs twice"), ("a", "is a file and a folder"), ("a/b/c", "is a file and a folder")]
        {
            let error = names.add_file(name, 0).unwrap_err().to_string();
            assert!(error.ends_with(problem), "{error}");
        }
        assert!(names.add_folder("a/b").is_err());
    }

    #[test]
    fn names_and_sizes_are_limited() {
        let mut long = names();
        assert!(matches!(long.add_file("a/b/c/d/e", 0), Err(ArchiveError::TooLarge { .. })));
        assert!(long.add_file(&"x".repeat(4097), 0).is_err());
        let mut large = names();
        large.add_file("a", 10).unwrap();
        assert!(matches!(large.add_file("b", 1), Err(ArchiveError::TooLarge { .. })));
        assert!(matches!(names().add_file("b", u64::MAX), Err(ArchiveError::TooLarge { .. })));
    }

    #[test]
    fn layers_share_names_and_limits() {
        let mut names = names();
        names.add_file("a", 5).unwrap();
        names.begin_layer();
        names.add_file("a/b", 5).unwrap();
        names.begin_layer();
        names.add_file("a", 0).unwrap();
        names.begin_layer();
        assert!(matches!(names.add_file("a", 0), Err(ArchiveError::TooLarge { .. })), "four entries were there");
    }
}
