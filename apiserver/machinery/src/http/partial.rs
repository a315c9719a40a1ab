//! `PartialObjectMetadata`: an object's metadata, cut out of its encoded form.

/// Appends encoded metadata as a `PartialObjectMetadata` of `version`.
pub(crate) fn write(out: &mut Vec<u8>, metadata: &[u8], version: &str) {
    out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/"#);
    out.extend_from_slice(version.as_bytes());
    out.extend_from_slice(br#"","metadata":"#);
    out.extend_from_slice(metadata);
    out.push(b'}');
}
