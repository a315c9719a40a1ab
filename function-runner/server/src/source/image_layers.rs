//! The files of an image, whose layers change those below them.
//!
//! Start at [`ImageFiles::apply`]. A later file replaces an earlier one of its path, and every file in its way. A file
//! `.wh.NAME` removes `NAME` of the layers below, and `.wh..wh..opq` removes all of its folder there.

use std::collections::BTreeMap;

/// The start of the name of a whiteout.
const WHITEOUT: &str = ".wh.";
/// The name of a file that empties its folder.
const OPAQUE: &str = ".wh..wh..opq";

/// The entries of one layer.
#[derive(Debug)]
pub(super) struct LayerFiles<T> {
    files: Vec<(String, T)>,
    /// Paths that the layers below lose.
    removed: Vec<String>,
    /// Folders whose content they lose.
    emptied: Vec<String>,
}

impl<T> Default for LayerFiles<T> {
    fn default() -> Self {
        Self { files: Vec::new(), removed: Vec::new(), emptied: Vec::new() }
    }
}

impl<T> LayerFiles<T> {
    /// Adds an entry by its path, which may be a whiteout.
    pub(super) fn add(&mut self, path: &str, file: T) {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        match name.strip_prefix(WHITEOUT) {
            None => self.files.push((path.to_owned(), file)),
            Some(_) if name == OPAQUE => self.emptied.push(folder.to_owned()),
            // Others of this form, and a whiteout of nothing, are notes of programs that wrote the layer.
            Some(removed) if removed.is_empty() || removed.starts_with(WHITEOUT) => {}
            Some(removed) if folder.is_empty() => self.removed.push(removed.to_owned()),
            Some(removed) => self.removed.push(format!("{folder}/{removed}")),
        }
    }
}

/// The files of the layers so far.
#[derive(Debug)]
pub(super) struct ImageFiles<T>(BTreeMap<String, T>);

impl<T> Default for ImageFiles<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> ImageFiles<T> {
    /// Applies the next layer.
    pub(super) fn apply(&mut self, layer: LayerFiles<T>) {
        for folder in &layer.emptied {
            self.remove_below(folder);
        }
        for path in &layer.removed {
            self.remove(path);
        }
        for (path, file) in layer.files {
            self.remove(&path);
            // A file where this one has a folder.
            for (at, _) in path.match_indices('/') {
                self.0.remove(&path[..at]);
            }
            self.0.insert(path, file);
        }
    }

    /// The files by path.
    pub(super) fn into_files(self) -> BTreeMap<String, T> {
        self.0
    }

    /// Removes a file, or a folder with its content.
    fn remove(&mut self, path: &str) {
        self.0.remove(path);
        self.remove_below(path);
    }

    fn remove_below(&mut self, folder: &str) {
        if folder.is_empty() {
            self.0.clear();
            return;
        }
        let start = format!("{folder}/");
        let below = self.0.range(start.clone()..).map(|(path, _)| path).take_while(|path| path.starts_with(&start));
        let below: Vec<String> = below.cloned().collect();
        for path in below {
            self.0.remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files of layers of paths, each with the number of its layer.
    fn composed(layers: &[&[&str]]) -> Vec<String> {
        let mut image = ImageFiles::default();
        for (number, paths) in layers.iter().enumerate() {
            let mut layer = LayerFiles::default();
            paths.iter().for_each(|path| layer.add(path, number));
            image.apply(layer);
        }
        image.into_files().into_iter().map(|(path, number)| format!("{path}={number}")).collect()
    }

    #[test]
    fn later_files_replace_earlier_ones() {
        assert_eq!(composed(&[&["a", "b/c"], &["a", "d"]]), ["a=1", "b/c=0", "d=1"]);
        assert_eq!(composed(&[&["a", "b/c", "b/d/e", "b-x"], &["a/x", "b"]]), ["a/x=1", "b=1", "b-x=0"]);
    }

    #[test]
    fn whiteouts_remove_from_the_layers_below() {
        assert_eq!(composed(&[&["a", "b/c", "b/d"], &[".wh.a", "b/.wh.c"]]), ["b/d=0"]);
        assert_eq!(composed(&[&["a/b", "a/c/d", "ab"], &[".wh.a", "a/e"]]), ["a/e=1", "ab=0"]);
        assert_eq!(composed(&[&["a", "b"], &["a", ".wh.a"]]), ["a=1", "b=0"], "a file of the same layer stays");
        assert_eq!(composed(&[&["a/b", "a/c/d", "e"], &["a/.wh..wh..opq", "a/f"]]), ["a/f=1", "e=0"]);
        assert_eq!(composed(&[&["a", "b/c"], &[".wh..wh..opq"], &["d"]]), ["d=2"]);
        assert_eq!(composed(&[&["a"], &[".wh.missing", ".wh..wh.plnk", ".wh."]]), ["a=0"]);
    }
}
