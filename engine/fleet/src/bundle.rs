//! A folder of the GitOps repository as an archive with an OCI image layout, for clusters without a network.
//!
//! Start at [`pack`]. The layout has one artifact with the media types of `flux push artifact`, so that an OCIRepository of Flux
//! reads it from any registry. The same commit gives the same bytes.
//!
//! Follows `github.com/fluxcd/pkg/oci`, and the OCI image layout 1.0.0, which `oras cp --from-oci-layout` reads from an archive.

use std::io::{self, Write as _};

use bytes::Bytes;
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// The media type of the manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of the index.
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The media type of the configuration, as Flux writes it.
pub const CONFIG: &str = "application/vnd.cncf.flux.config.v1+json";
/// The media type of the files, as Flux writes it.
pub const CONTENT: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";

/// A file of the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BundleFile {
    /// The path in the folder, with `/` between its parts.
    pub path: String,
    /// The bytes.
    pub content: Bytes,
    /// Whether its owner may execute it.
    pub is_executable: bool,
}

/// The identity of a bundle.
#[derive(Clone, Copy, Debug)]
pub struct BundleOf<'a> {
    /// The name of the layer, which `oras pull` gives the file.
    pub title: &'a str,
    /// The URL of the repository.
    pub source: &'a str,
    /// The branch and the commit, such as `dev@sha1:54b5…`.
    pub revision: &'a str,
    /// The time of the commit, in RFC 3339.
    pub created: &'a str,
    /// The tags of the artifact in the layout.
    pub tags: &'a [&'a str],
}

/// Packs files into the archive of an OCI image layout.
///
/// # Errors
///
/// A path that no archive can have, such as one with a zero byte.
pub fn pack(of: &BundleOf<'_>, files: &[BundleFile]) -> io::Result<Vec<u8>> {
    let content = archive(files.iter().map(|file| (file.path.as_str(), &*file.content, file.is_executable)))?;
    let diff = digest(&content);
    // Neither a time nor a file name, which would differ from one packing to the next.
    let mut compressed = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    compressed.write_all(&content)?;
    let layer = compressed.finish()?;
    drop(content);
    // Clients of images read the configuration of one.
    let config = json!({
        "architecture": "",
        "config": {},
        "created": of.created,
        "os": "",
        "rootfs": {"type": "layers", "diff_ids": [diff]},
    });
    let config = config.to_string().into_bytes();
    let mut of_layer = descriptor(CONTENT, &layer);
    of_layer["annotations"] = json!({"org.opencontainers.image.title": of.title});
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor(CONFIG, &config),
        "layers": [of_layer],
        "annotations": {
            "org.opencontainers.image.created": of.created,
            "org.opencontainers.image.revision": of.revision,
            "org.opencontainers.image.source": of.source,
        },
    });
    let manifest = manifest.to_string().into_bytes();
    let tagged = of.tags.iter().map(|tag| {
        let mut tagged = descriptor(MANIFEST, &manifest);
        tagged["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
        tagged
    });
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": tagged.collect::<Vec<_>>()}).to_string();
    let blobs = [&manifest, &config, &layer].map(|blob| (format!("blobs/sha256/{}", hex(blob)), blob.as_slice()));
    let roots = [("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#.as_slice()), ("index.json", index.as_bytes())];
    let roots = roots.into_iter().map(|(name, bytes)| (name, bytes, false));
    archive(roots.chain(blobs.iter().map(|(name, bytes)| (name.as_str(), *bytes, false))))
}

/// A tar archive without owners and times.
fn archive<'f>(files: impl Iterator<Item = (&'f str, &'f [u8], bool)>) -> io::Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    for (path, content, is_executable) in files {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(if is_executable { 0o755 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, path, content)?;
    }
    archive.into_inner()
}

fn descriptor(media_type: &str, blob: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(blob), "size": blob.len()})
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(bytes))
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, io::Read as _};

    use flate2::read::GzDecoder;

    use super::*;

    const OF: BundleOf<'static> = BundleOf {
        title: "drone.tar.gz",
        source: "https://git.example.com/acme/gitops",
        revision: "dev@sha1:54b53e769ea41e7c3fd420f9bce3e5ae98044c2f",
        created: "2026-02-01T10:00:00Z",
        tags: &["latest", "54b53e769ea41e7c3fd420f9bce3e5ae98044c2f"],
    };

    fn file(path: &str, content: &str, is_executable: bool) -> BundleFile {
        BundleFile { path: path.to_owned(), content: Bytes::copy_from_slice(content.as_bytes()), is_executable }
    }

    /// The files of an archive, with their modes.
    fn unpacked(archive: &[u8]) -> BTreeMap<String, (Vec<u8>, u32)> {
        let mut found = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            assert_eq!((entry.header().mtime().unwrap(), entry.header().uid().unwrap()), (0, 0));
            let (path, mode) = (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap());
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            found.insert(path, (content, mode));
        }
        found
    }

    fn json_at(files: &BTreeMap<String, (Vec<u8>, u32)>, path: &str) -> Value {
        serde_json::from_slice(&files[path].0).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The bytes that a descriptor names, compared with its digest and size.
    fn blob<'f>(files: &'f BTreeMap<String, (Vec<u8>, u32)>, descriptor: &Value) -> &'f [u8] {
        let digest_of = descriptor["digest"].as_str().unwrap();
        let blob = &files[&format!("blobs/sha256/{}", digest_of.trim_start_matches("sha256:"))].0;
        assert_eq!((digest(blob), blob.len() as u64), (digest_of.to_owned(), descriptor["size"].as_u64().unwrap()));
        blob
    }

    #[test]
    fn layout_has_one_artifact_of_flux_under_each_tag() {
        let long = format!("web/{}/reconciler.yaml", "long/".repeat(60).trim_end_matches('/'));
        let files = [file("web/reconciler.yaml", "a: 1\n", false), file("run.sh", "#!", true), file(&long, "b", false)];
        let layout = unpacked(&pack(&OF, &files).unwrap());
        assert_eq!(json_at(&layout, "oci-layout"), json!({"imageLayoutVersion": "1.0.0"}));
        let index = json_at(&layout, "index.json");
        let manifests = index["manifests"].as_array().unwrap();
        let tags = manifests.iter().map(|it| it["annotations"]["org.opencontainers.image.ref.name"].as_str().unwrap());
        assert_eq!(tags.collect::<Vec<_>>(), OF.tags);
        let manifest: Value = serde_json::from_slice(blob(&layout, &index["manifests"][0])).unwrap();
        assert_eq!(index["manifests"][0]["digest"], index["manifests"][1]["digest"]);
        let annotations = json!({
            "org.opencontainers.image.created": OF.created,
            "org.opencontainers.image.revision": OF.revision,
            "org.opencontainers.image.source": OF.source,
        });
        assert_eq!(manifest["annotations"], annotations);
        assert_eq!((&manifest["config"]["mediaType"], &manifest["mediaType"]), (&json!(CONFIG), &json!(MANIFEST)));
        let layers = manifest["layers"].as_array().unwrap();
        assert_eq!((layers.len(), &layers[0]["mediaType"]), (1, &json!(CONTENT)));

        let mut content = Vec::new();
        GzDecoder::new(blob(&layout, &layers[0])).read_to_end(&mut content).unwrap();
        let config: Value = serde_json::from_slice(blob(&layout, &manifest["config"])).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"], json!([digest(&content)]));
        let expected = [
            (long, (b"b".to_vec(), 0o644)),
            ("run.sh".to_owned(), (b"#!".to_vec(), 0o755)),
            ("web/reconciler.yaml".to_owned(), (b"a: 1\n".to_vec(), 0o644)),
        ];
        assert_eq!(unpacked(&content), expected.into());
    }

    #[test]
    fn same_files_give_the_same_bytes() {
        let files = [file("a.yaml", "a: 1\n", false), file("b/c.yaml", &"x".repeat(100_000), false)];
        let bytes = pack(&OF, &files).unwrap();
        assert_eq!(pack(&OF, &files).unwrap(), bytes);
        let other = BundleOf { revision: "dev@sha1:0000000000000000000000000000000000000000", ..OF };
        assert_ne!(pack(&other, &files).unwrap(), bytes);
        assert!(pack(&OF, &[file("a\0b", "", false)]).is_err(), "no archive has such a name");
    }
}
