//! `PartialObjectMetadata`: an object's metadata, cut out of its encoded form.

use serde_json::value::RawValue;

/// The part of an object that is looked for; the rest is skipped without being built.
#[derive(serde::Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

/// Appends the metadata of the encoded object `json` as a `PartialObjectMetadata` of `version`.
pub(crate) fn write(out: &mut Vec<u8>, json: &[u8], version: &str) {
    let envelope: Option<Envelope<'_>> = serde_json::from_slice(json).ok();
    let metadata = envelope.and_then(|e| e.metadata).map_or("{}", RawValue::get);
    out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/"#);
    out.extend_from_slice(version.as_bytes());
    out.extend_from_slice(br#"","metadata":"#);
    out.extend_from_slice(metadata.as_bytes());
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_copied_as_it_stands() {
        let json =
            br#"{"spec":{"metadata":{"name":"not this"}},"metadata":{"name":"a","labels":{"k":"\u00e9"}},"status":[]}"#;
        let mut out = Vec::new();
        write(&mut out, json, "v1");
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","labels":{"k":"\u00e9"}}}"#
        );
    }
}
