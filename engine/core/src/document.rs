//! Stored documents: each has a `schemaVersion`, a whole number.
//!
//! A document without one is older than the field, and has version 1.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A stored document that earlier or later versions of Stoa may read.
pub trait Document: Serialize + DeserializeOwned {
    /// The shape that is written here, and the newest that is read.
    const SCHEMA_VERSION: u32;
}

/// Why a stored document cannot be read. Leave it unchanged: another version may be able to read it.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// A later version wrote it, in a shape that is not known here.
    #[error("schemaVersion {found} is newer than {known}, the newest that this version of Stoa reads")]
    Newer {
        /// The version that it has.
        found: u64,
        /// The newest known here.
        known: u32,
    },
    /// It is not what it should be.
    #[error("the document does not decode")]
    Malformed(#[source] serde_json::Error),
}

impl DocumentError {
    /// What a user without a backup can do.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Newer { .. } => "run the version of Stoa that wrote it, or a later one",
            Self::Malformed(_) => "restore it from a backup",
        }
    }
}

/// The one field that never changes.
#[derive(Deserialize)]
struct Shape {
    #[serde(rename = "schemaVersion", default = "first")]
    schema_version: u64,
}

fn first() -> u64 {
    1
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    #[serde(rename = "schemaVersion")]
    schema_version: u32,
    #[serde(flatten)]
    document: &'a T,
}

/// The document as JSON, with the version of its shape. A [`Plan`](crate::Plan) has it as a field already, since its
/// canonical JSON is what counts.
pub fn encode<T: Document>(document: &T) -> Vec<u8> {
    let versioned = Versioned { schema_version: T::SCHEMA_VERSION, document };
    serde_json::to_vec(&versioned).expect("a document is JSON")
}

/// Reads the output of [`encode`].
///
/// # Errors
///
/// [`DocumentError::Newer`] for a later schema version, [`DocumentError::Malformed`] when the document does not match its
/// version.
pub fn decode<T: Document>(bytes: &[u8]) -> Result<T, DocumentError> {
    let Shape { schema_version } = serde_json::from_slice(bytes).map_err(DocumentError::Malformed)?;
    if schema_version > u64::from(T::SCHEMA_VERSION) {
        return Err(DocumentError::Newer { found: schema_version, known: T::SCHEMA_VERSION });
    }
    serde_json::from_slice(bytes).map_err(DocumentError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Note {
        text: String,
    }

    impl Document for Note {
        const SCHEMA_VERSION: u32 = 2;
    }

    fn check(bytes: &str) -> String {
        match decode::<Note>(bytes.as_bytes()) {
            Ok(note) => note.text,
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn older_versions_are_read() {
        let note = Note { text: "a".to_owned() };
        let bytes = encode(&note);
        assert_eq!(String::from_utf8_lossy(&bytes), r#"{"schemaVersion":2,"text":"a"}"#);
        assert_eq!(decode::<Note>(&bytes).unwrap(), note);
        assert_eq!(check(r#"{"schemaVersion":1,"text":"b"}"#), "b");
        assert_eq!(check(r#"{"text":"c"}"#), "c", "it was written before there were versions");
    }

    #[test]
    fn newer_version_is_rejected() {
        let told = "schemaVersion 3 is newer than 2, the newest that this version of Stoa reads";
        assert_eq!(check(r#"{"schemaVersion":3,"text":"a"}"#), told);
        assert_eq!(check(r#"{"schemaVersion":3,"words":["a"]}"#), told, "though it would not decode");
        assert_eq!(check(r#"{"schemaVersion":"three","text":"a"}"#), "the document does not decode");
        assert_eq!(check(r#"{"schemaVersion":2}"#), "the document does not decode");
        assert_eq!(check("\u{0}"), "the document does not decode");
    }
}
