//! `PartialObjectMetadata`: an object's metadata, cut out of its encoded form.

use stoa_registry::cache::Encoded;

/// Appends encoded metadata as a `PartialObjectMetadata` of `version`.
pub(crate) fn write(out: &mut Vec<u8>, metadata: Encoded<'_>, version: &str) {
    out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/"#);
    out.extend_from_slice(version.as_bytes());
    out.extend_from_slice(br#"","metadata":"#);
    metadata.write(out);
    out.push(b'}');
}
