//! Fuzz targets: the answers of registries and chart repositories.

use crate::{ChartIndex, Document, Endpoint, Repository, Selector, layers, parse_challenges};

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All fuzz targets of this crate.
pub const TARGETS: &[Target] = &[
    ("artifact_names", names),
    ("artifact_manifests", manifests),
    ("artifact_challenges", challenges),
    ("chart_indexes", indexes),
    ("tar_archives", archives),
];

/// Fuzz input: the name of a repository, a line break, and a selector. Both print and parse to themselves, and a
/// repository leads to its own registry.
pub fn names(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (repository, selector) = text.split_once('\n').unwrap_or((text, ""));
    if let Ok(repository) = repository.parse::<Repository>() {
        assert_eq!(repository.to_string().parse().as_ref(), Ok(&repository));
        let url = format!("https://{}/v2/{}/", repository.registry, repository.name);
        if let Ok(endpoint) = Endpoint::new(&url) {
            assert!(endpoint.to_string().ends_with(&format!("/v2/{}/", repository.name)), "{endpoint}");
        }
    }
    if let Ok(selector) = selector.parse::<Selector>() {
        assert_eq!(selector.to_string().parse().as_ref(), Ok(&selector));
    }
}

/// Fuzz input: a media type, a line break, and a document. A document is a manifest or an index, never both.
pub fn manifests(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let Ok(said) = std::str::from_utf8(&data[..end]) else { return };
    let Ok(document) = Document::parse(data.get(end + 1..).unwrap_or_default(), said) else { return };
    if let Document::Manifest(manifest) = document
        && let Ok(found) = layers::of_manifest(&manifest)
    {
        assert!(!found.is_empty() && found.len() <= manifest.layers.len());
    }
}

/// Fuzz input: a header `WWW-Authenticate`.
pub fn challenges(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    assert!(parse_challenges(text).len() <= text.len());
}

/// Fuzz input: an index of a chart repository. A selected version has the digest that selects it alone.
pub fn indexes(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(index) = ChartIndex::parse(text, "web") else { return };
    let newest = Selector { pick: crate::Pick::Newest, digest: None };
    if let Ok(found) = index.select(&newest) {
        assert!(found.version.pre.is_empty());
        let again = Selector { pick: crate::Pick::Digest, digest: Some(found.digest.clone()) };
        assert_eq!(index.select(&again).map(|it| &it.digest), Ok(&found.digest));
    }
}

/// Fuzz input: a tar archive, compressed or not. Its entries are unique and stay below its root.
pub fn archives(data: &[u8]) {
    use stoa_archive::tar::{Compression, read};
    use stoa_archive::{ArchiveLimits, Names};

    let limits = ArchiveLimits { entries: 100, size: 1 << 20 };
    let folder =
        std::env::temp_dir().join(format!("stoa-fuzz-{}-{:?}", std::process::id(), std::thread::current().id()));
    std::fs::write(&folder, data).expect("a file can be written");
    for compression in [Compression::Plain, Compression::Gzip] {
        let (mut names, mut size) = (std::collections::HashSet::new(), 0);
        let read = read(&folder, compression, limits, &mut Names::new(limits), |entry| {
            assert!(names.insert(entry.name.to_owned()), "{:?} occurs twice", entry.name);
            assert!(entry.name.split('/').all(|part| !matches!(part, "" | "." | "..")), "{:?}", entry.name);
            if let stoa_archive::tar::Kind::File { content, .. } = entry.kind {
                size += std::io::copy(content, &mut std::io::sink())?;
            }
            Ok(())
        });
        assert!(read.is_err() || size <= limits.size);
    }
    std::fs::remove_file(&folder).expect("the file is there");
}
