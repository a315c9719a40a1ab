//! How an artifact becomes files.
//!
//! Start at [`of_manifest`]. Known are the artifacts of Flux, Helm charts, and those that ORAS writes: archives, and
//! files with their names. Several archives without names are the layers of an image ([`is_image`]).

use super::manifest::{Descriptor, Manifest, TITLE, UNPACK, media};
pub use stoa_archive::tar::Compression;

/// A layer, and how it becomes files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The blob.
    pub blob: Descriptor,
    /// The form of its content.
    pub form: Form,
}

/// The form of a layer's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// A tar archive.
    Archive(Compression),
    /// The archive of a chart, whose only folder is the root.
    Chart,
    /// A file of this name.
    File(String),
}

/// An artifact that has no files that are known here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownArtifact {
    /// A layer has another media type.
    #[error(
        "a layer of the artifact has the media type {0:?}; Stoa reads tar archives, tar archives with gzip, Helm charts, \
         and files with the annotation org.opencontainers.image.title"
    )]
    Layer(String),
    /// There are no layers.
    #[error("the artifact has no layers")]
    Empty,
}

/// The layers of an artifact that have files.
///
/// # Errors
///
/// If one is unknown, or there is none.
pub fn of_manifest(manifest: &Manifest) -> Result<Vec<Layer>, UnknownArtifact> {
    let mut layers = Vec::new();
    for blob in &manifest.layers {
        let title = blob.annotations.get(TITLE).filter(|title| !title.is_empty());
        let is_packed = blob.annotations.get(UNPACK).is_some_and(|it| it == "true");
        let form = match (blob.media_type.as_str(), title) {
            (media::HELM_PROVENANCE, _) => continue,
            (media::HELM_CHART, _) => Form::Chart,
            // A file with a name is not opened, whatever it is, except where Flux or ORAS say so.
            (kind, Some(title)) if !is_packed && kind != media::FLUX_CONTENT => Form::File(title.clone()),
            (kind, _) if kind.ends_with(".tar+gzip") || kind.ends_with(".tar.gzip") => Form::Archive(Compression::Gzip),
            (kind, _) if kind.ends_with(".tar") => Form::Archive(Compression::Plain),
            (kind, _) => return Err(UnknownArtifact::Layer(kind.chars().take(200).collect())),
        };
        layers.push(Layer { blob: blob.clone(), form });
    }
    if layers.is_empty() { Err(UnknownArtifact::Empty) } else { Ok(layers) }
}

/// Whether layers are those of an image, which later ones change: files of the same path, and whiteouts.
pub fn is_image(layers: &[Layer]) -> bool {
    let is_archive =
        |layer: &Layer| matches!(layer.form, Form::Archive(_)) && !layer.blob.annotations.contains_key(TITLE);
    layers.len() > 1 && layers.iter().all(is_archive)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Digest;

    fn forms(layers: &[(&str, &str, &str)]) -> Result<Vec<Form>, UnknownArtifact> {
        let blob = |kind: &str| json!({"mediaType": kind, "digest": Digest::of(b""), "size": 0});
        let layers = layers.iter().map(|(kind, title, unpack)| {
            let mut layer = blob(kind);
            layer["annotations"] = json!({TITLE: title, UNPACK: unpack});
            layer
        });
        let manifest = json!({"config": blob("x"), "layers": layers.collect::<Vec<_>>()});
        let layers = of_manifest(&serde_json::from_value(manifest).unwrap())?;
        Ok(layers.into_iter().map(|layer| layer.form).collect())
    }

    #[test]
    fn layers_are_archives_charts_and_files() {
        let archive = |compression| Form::Archive(compression);
        for (layer, form) in [
            ((media::FLUX_CONTENT, "", ""), archive(Compression::Gzip)),
            ((media::FLUX_CONTENT, "config.tgz", ""), archive(Compression::Gzip)),
            (("application/vnd.oci.image.layer.v1.tar+gzip", "config", "true"), archive(Compression::Gzip)),
            (("application/vnd.docker.image.rootfs.diff.tar.gzip", "", ""), archive(Compression::Gzip)),
            (("application/vnd.oci.image.layer.v1.tar", "", ""), archive(Compression::Plain)),
            (("application/vnd.oci.image.layer.v1.tar", "web.yaml", ""), Form::File("web.yaml".to_owned())),
            (("application/yaml", "a/web.yaml", ""), Form::File("a/web.yaml".to_owned())),
            ((media::HELM_CHART, "", ""), Form::Chart),
        ] {
            assert_eq!(forms(&[layer]), Ok(vec![form]), "{layer:?}");
        }
        assert_eq!(forms(&[(media::HELM_CHART, "", ""), (media::HELM_PROVENANCE, "", "")]), Ok(vec![Form::Chart]));
        assert_eq!(forms(&[(media::HELM_PROVENANCE, "", "")]), Err(UnknownArtifact::Empty));
        let unknown = UnknownArtifact::Layer("application/vnd.oci.image.layer.v1.tar+zstd".to_owned());
        assert_eq!(forms(&[("application/vnd.oci.image.layer.v1.tar+zstd", "", "")]), Err(unknown));
    }

    #[test]
    fn several_archives_without_names_are_an_image() {
        let layer = |form: Form, title: Option<&str>| {
            let mut blob = json!({"mediaType": "x", "digest": Digest::of(b""), "size": 0});
            if let Some(title) = title {
                blob["annotations"] = json!({ TITLE: title });
            }
            Layer { blob: serde_json::from_value(blob).unwrap(), form }
        };
        let archive = |title| layer(Form::Archive(Compression::Gzip), title);
        assert!(is_image(&[archive(None), archive(None)]));
        assert!(!is_image(&[archive(None)]), "one archive has nothing below it");
        assert!(!is_image(&[archive(None), archive(Some("apps"))]), "a folder of ORAS");
        assert!(!is_image(&[archive(None), layer(Form::File("a".to_owned()), Some("a"))]));
    }
}
