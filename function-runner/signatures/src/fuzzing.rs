//! Fuzz targets: lists of keys, and signed objects of Git.

use std::sync::OnceLock;

use crate::{TrustedKeys, tag_of};

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All fuzz targets of this crate.
pub const TARGETS: &[Target] = &[("signing_keys", keys), ("signed_objects", objects)];

/// The keys of the corpus's signatures.
const KEYS: [&str; 3] = [
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/ed.asc")),
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/sub.asc")),
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/signers")),
];

/// Fuzz input: a list of keys. A list with a key stays one after itself.
pub fn keys(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if TrustedKeys::read([("a", text)]).is_ok() {
        assert!(TrustedKeys::read([("a", text), ("b", text)]).is_ok());
    }
}

/// Fuzz input: the content of a commit or tag. A signature is for one content: a line before it ends the match.
pub fn objects(data: &[u8]) {
    static TRUSTED: OnceLock<TrustedKeys> = OnceLock::new();
    let trusted = TRUSTED.get_or_init(|| TrustedKeys::read(KEYS.map(|text| ("a", text))).expect("the keys are valid"));
    let changed = [b"x\n", data].concat();
    if trusted.verify_commit(data).is_ok() {
        assert!(trusted.verify_commit(&changed).is_err());
        assert!(trusted.verify_commit(&[data, b"x"].concat()).is_err());
    }
    if trusted.verify_tag(data).is_ok() {
        assert!(trusted.verify_tag(&changed).is_err());
        assert!(tag_of(data) != tag_of(&changed) || tag_of(data).is_none());
    }
}
