//! Fuzz targets: files of age and of SOPS.

use std::sync::OnceLock;

use crate::age::{self, Identity};

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All fuzz targets of this crate.
pub const TARGETS: &[Target] = &[("age_files", files), ("sops_files", documents)];

const KEYS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/keys.txt"));

fn identities() -> &'static [Identity] {
    static IDENTITIES: OnceLock<Vec<Identity>> = OnceLock::new();
    IDENTITIES.get_or_init(|| age::identities([("a.agekey", KEYS.as_bytes())]).expect("the key is valid"))
}

/// Fuzz input: a file of age. One that opens was not changed: a byte more at its end is noticed.
pub fn files(data: &[u8]) {
    if age::decrypt(data, identities()).is_ok() {
        assert!(age::decrypt(&[data, b"x"].concat(), identities()).is_err());
    }
    let _ = age::identities([("a.agekey", data)]);
}

/// Fuzz input: a file of SOPS. A decrypted file is none of SOPS, and has all values that were encrypted.
pub fn documents(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(Some(decrypted)) = crate::decrypt(text, identities()) {
        assert_ne!(decrypted.text, text);
        assert!(!matches!(crate::decrypt(&decrypted.text, identities()), Ok(Some(_))), "{}", decrypted.text);
    }
}
