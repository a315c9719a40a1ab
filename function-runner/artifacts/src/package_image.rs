//! The artifact of a package: an image of one layer, whose manifest has the annotations of Porch.
//!
//! Start at [`PackageImage::new`]. The same files are the same layer: entries are sorted, and have no time and no owner.
//!
//! Porch and kpt read the layers of such an image, its manifest's annotations, and the tasks in the history of its
//! configuration.

use std::io::{self, Write as _};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use serde_json::{Map, Value, json};

use super::{Digest, manifest, media};

/// The number of a revision.
pub const REVISION: &str = "kpt.dev/revision";
/// The lifecycle of a revision.
pub const LIFECYCLE: &str = "kpt.dev/lifecycle";
/// The workspace of a revision, which Porch has as the tag.
pub const WORKSPACE: &str = "stoa.dev/workspace";

/// A file of a package.
#[derive(Clone, Copy, Debug)]
pub struct PackageImageFile<'a> {
    /// Its path from the root of the package.
    pub path: &'a str,
    /// Its bytes.
    pub content: &'a [u8],
    /// Whether its owner may execute it.
    pub is_executable: bool,
}

/// A published revision of a package.
#[derive(Clone, Copy, Debug)]
pub struct PackageImageRevision<'a> {
    /// Its number.
    pub number: i32,
    /// Its workspace.
    pub workspace: &'a str,
    /// The name of the user who published it; may be empty.
    pub author: &'a str,
    /// The time of its publication, as of RFC 3339.
    pub created: &'a str,
    /// Its first task, as JSON; may be empty.
    pub task: &'a str,
}

/// The blobs and the manifest of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageImage {
    /// The archive, compressed by gzip.
    pub layer: Bytes,
    /// The configuration.
    pub config: Bytes,
    /// The manifest.
    pub manifest: Bytes,
}

impl PackageImage {
    /// The image of a revision.
    ///
    /// # Errors
    ///
    /// For a path that no archive has.
    pub fn new(files: &[PackageImageFile<'_>], revision: &PackageImageRevision<'_>) -> io::Result<Self> {
        let archive = archive(files)?;
        let diff = Digest::of(&archive);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&archive)?;
        let layer: Bytes = encoder.finish()?.into();
        let config: Bytes = config(&diff, revision).to_string().into();
        let manifest: Bytes = manifest_of(&layer, &config, revision).to_string().into();
        Ok(Self { layer, config, manifest })
    }
}

/// A tar archive without times and owners.
fn archive(files: &[PackageImageFile<'_>]) -> io::Result<Vec<u8>> {
    let mut sorted = files.to_vec();
    sorted.sort_by_key(|file| file.path);
    let mut archive = tar::Builder::new(Vec::new());
    for file in sorted {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(if file.is_executable { 0o755 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(file.content.len() as u64);
        archive.append_data(&mut header, file.path, file.content)?;
    }
    archive.into_inner()
}

/// The configuration. Its history has the task, as Porch's does.
fn config(diff: &Digest, revision: &PackageImageRevision<'_>) -> Value {
    let PackageImageRevision { author, created, task, .. } = revision;
    json!({
        "created": created, "author": author, "architecture": "unknown", "os": "unknown", "config": {},
        "rootfs": {"type": "layers", "diff_ids": [diff]},
        "history": [{"created": created, "author": author, "created_by": format!("kpt:{task}")}],
    })
}

fn manifest_of(layer: &Bytes, config: &Bytes, revision: &PackageImageRevision<'_>) -> Value {
    let blob =
        |kind: &str, content: &Bytes| json!({"mediaType": kind, "digest": Digest::of(content), "size": content.len()});
    let PackageImageRevision { number, workspace, author, created, .. } = *revision;
    let annotations: Map<String, Value> = [
        (LIFECYCLE, "Published".to_owned()),
        (REVISION, number.to_string()),
        (WORKSPACE, workspace.to_owned()),
        (manifest::CREATED, created.to_owned()),
        (manifest::AUTHORS, author.to_owned()),
    ]
    .into_iter()
    .filter(|(_, text)| !text.is_empty())
    .map(|(key, text)| (key.to_owned(), text.into()))
    .collect();
    json!({
        "schemaVersion": 2, "mediaType": media::MANIFEST, "config": blob(media::IMAGE_CONFIG, config),
        "layers": [blob(media::IMAGE_LAYER, layer)], "annotations": annotations,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::{Document, layers};

    fn file<'a>(path: &'a str, content: &'a str) -> PackageImageFile<'a> {
        PackageImageFile { path, content: content.as_bytes(), is_executable: path.ends_with(".sh") }
    }

    fn image(files: &[PackageImageFile<'_>], author: &str) -> PackageImage {
        let created = "2026-01-02T03:04:05Z";
        let task = r#"{"type":"init"}"#;
        PackageImage::new(files, &PackageImageRevision { number: 3, workspace: "ws", author, created, task }).unwrap()
    }

    #[test]
    fn image_is_one_layer_with_annotations_of_porch() {
        let long = format!("{}/map.yaml", "folder/".repeat(30).trim_end_matches('/'));
        let image = image(&[file("run.sh", "x"), file("Kptfile", "kind: Kptfile\n"), file(&long, "a: 1\n")], "ann");
        let Document::Manifest(manifest) = Document::parse(&image.manifest, media::MANIFEST).unwrap() else {
            panic!("it is an index")
        };
        let annotation = |key: &str| manifest.annotations.get(key).map(String::as_str);
        let found = [LIFECYCLE, REVISION, WORKSPACE, manifest::AUTHORS, manifest::CREATED].map(annotation);
        assert_eq!(found, [Some("Published"), Some("3"), Some("ws"), Some("ann"), Some("2026-01-02T03:04:05Z")]);
        let layers = layers::of_manifest(&manifest).unwrap();
        let [layer] = &layers[..] else { panic!("{layers:?}") };
        assert_eq!(layer.form, layers::Form::Archive(layers::Compression::Gzip));
        assert_eq!((&layer.blob.digest, layer.blob.size), (&Digest::of(&image.layer), image.layer.len() as u64));
        let mut archive = Vec::new();
        flate2::read::GzDecoder::new(&image.layer[..]).read_to_end(&mut archive).unwrap();
        let config: Value = serde_json::from_slice(&image.config).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"], json!([Digest::of(&archive)]));
        assert_eq!(config["history"][0]["created_by"], r#"kpt:{"type":"init"}"#);
        let mut tar = tar::Archive::new(&archive[..]);
        let entry = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            let (path, mode) = (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap());
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (path, mode, text)
        };
        let entries: Vec<_> = tar.entries().unwrap().map(entry).collect();
        let expected =
            [("Kptfile", 0o644, "kind: Kptfile\n"), (long.as_str(), 0o644, "a: 1\n"), ("run.sh", 0o755, "x")];
        assert_eq!(entries, expected.map(|(path, mode, text)| (path.to_owned(), mode, text.to_owned())));
    }

    #[test]
    fn same_files_are_the_same_layer() {
        let (one, other) = (file("a.yaml", "a"), file("b.yaml", "b"));
        let (first, second) = (image(&[one, other], "ann"), image(&[other, one], "bob"));
        assert_eq!(first.layer, second.layer);
        assert_ne!(first.manifest, second.manifest, "another author");
        assert_eq!(first, image(&[one, other], "ann"));
    }

    #[test]
    fn path_that_leads_elsewhere_is_rejected() {
        let revision = PackageImageRevision { number: 1, workspace: "ws", author: "", created: "", task: "" };
        assert!(PackageImage::new(&[file("../x", "")], &revision).is_err());
    }
}
