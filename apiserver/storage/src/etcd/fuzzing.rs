//! The properties of reads of etcd, for any content that others put there.

use super::keys::{Keys, Note};

/// A note of a write, and the name of a key: what is read is the same once it is written.
pub(crate) fn etcd_notes(data: &[u8]) {
    match Note::decode(data) {
        Ok(note) => {
            let encoded = note.encode();
            let again = Note::decode(&encoded).expect("it was written here");
            assert_eq!(again, note);
            assert_eq!(again.encode(), encoded);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let keys = Keys::new("/stoa");
    for name in [data.to_vec(), [&b"/stoa/log/data"[..], data].concat()] {
        if let Some(key) = keys.key_of(&name) {
            assert_eq!(keys.data(&key), name);
            let (start, end) = keys.data_range(key.as_str());
            assert!(*start <= *name && *name < *end);
        }
    }
}
