//! What is kept says which shape it has: every document and every record carries a `schemaVersion`,
//! a whole number. What has none was written before there was one, and has the first shape.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// What is kept somewhere and read by later versions of this program, or earlier ones.
pub trait Document: Serialize + DeserializeOwned {
    /// The shape that is written here, and the newest that is read.
    const SCHEMA_VERSION: u32;
}

/// Why what was kept cannot be read. It must be left as it is: somebody else may be able to.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// A later version wrote it, in a shape that is not known here.
    #[error("it has schemaVersion {found}, and {known} is the newest known here")]
    Newer {
        /// The version that it has.
        found: u64,
        /// The newest known here.
        known: u32,
    },
    /// It is not what it should be.
    #[error("it does not decode")]
    Malformed(#[source] serde_json::Error),
}

impl DocumentError {
    /// What somebody can do about it who has no copy of it.
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

/// Reads what [`encode`] made, here or elsewhere.
///
/// # Errors
///
/// [`DocumentError::Newer`] when its shape is not known here, [`DocumentError::Malformed`] when it has not the
/// shape that it says.
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
    fn what_was_written_is_read_whatever_known_version_wrote_it() {
        let note = Note { text: "a".to_owned() };
        let bytes = encode(&note);
        assert_eq!(String::from_utf8_lossy(&bytes), r#"{"schemaVersion":2,"text":"a"}"#);
        assert_eq!(decode::<Note>(&bytes).unwrap(), note);
        assert_eq!(check(r#"{"schemaVersion":1,"text":"b"}"#), "b");
        assert_eq!(check(r#"{"text":"c"}"#), "c", "it was written before there were versions");
    }

    #[test]
    fn what_a_later_version_wrote_is_not_guessed_at() {
        let told = "it has schemaVersion 3, and 2 is the newest known here";
        assert_eq!(check(r#"{"schemaVersion":3,"text":"a"}"#), told);
        assert_eq!(check(r#"{"schemaVersion":3,"words":["a"]}"#), told, "though it would not decode");
        assert_eq!(check(r#"{"schemaVersion":"three","text":"a"}"#), "it does not decode");
        assert_eq!(check(r#"{"schemaVersion":2}"#), "it does not decode");
        assert_eq!(check("\u{0}"), "it does not decode");
    }
}
