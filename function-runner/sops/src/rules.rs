//! The values of a file that are encrypted, by the rule in its metadata: `Tree.shouldBeEncrypted` of SOPS.

use regex::Regex;

use crate::SopsError;
use crate::node::Node;

/// The rule of a file that names none.
const DEFAULT_SUFFIX: &str = "_unencrypted";

/// A rule about the keys on the way to a value.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    /// All but those with a key that ends so.
    UnencryptedSuffix(String),
    /// Those with a key that ends so.
    EncryptedSuffix(String),
    /// All but those with a key that matches.
    UnencryptedRegex(Regex),
    /// Those with a key that matches.
    EncryptedRegex(Regex),
}

impl Rule {
    pub(crate) fn of(metadata: &Node) -> Result<Self, SopsError> {
        let text = |key: &str| metadata.get(key).and_then(Node::text).filter(|text| !text.is_empty());
        for comments in ["encrypted_comment_regex", "unencrypted_comment_regex"] {
            if text(comments).is_some() {
                return Err(SopsError::Unsupported("a rule about comments"));
            }
        }
        let regex = |pattern: &str| Regex::new(pattern).map_err(|_| SopsError::Malformed("a regex of its rule"));
        let mut rules = Vec::new();
        if let Some(suffix) = text("unencrypted_suffix") {
            rules.push(Self::UnencryptedSuffix(suffix.to_owned()));
        }
        if let Some(suffix) = text("encrypted_suffix") {
            rules.push(Self::EncryptedSuffix(suffix.to_owned()));
        }
        if let Some(pattern) = text("unencrypted_regex") {
            rules.push(Self::UnencryptedRegex(regex(pattern)?));
        }
        if let Some(pattern) = text("encrypted_regex") {
            rules.push(Self::EncryptedRegex(regex(pattern)?));
        }
        match rules.len() {
            0 => Ok(Self::UnencryptedSuffix(DEFAULT_SUFFIX.to_owned())),
            1 => Ok(rules.remove(0)),
            _ => Err(SopsError::Malformed("it has several rules")),
        }
    }

    /// Whether the value at a path of keys is encrypted.
    pub(crate) fn is_encrypted(&self, path: &[String]) -> bool {
        match self {
            Self::UnencryptedSuffix(suffix) => !path.iter().any(|key| key.ends_with(suffix)),
            Self::EncryptedSuffix(suffix) => path.iter().any(|key| key.ends_with(suffix)),
            Self::UnencryptedRegex(regex) => !path.iter().any(|key| regex.is_match(key)),
            Self::EncryptedRegex(regex) => path.iter().any(|key| regex.is_match(key)),
        }
    }
}
