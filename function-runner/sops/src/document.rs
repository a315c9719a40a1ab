//! Files of SOPS in YAML and JSON, decrypted with an age key: `Tree.Decrypt` of SOPS 3.10.
//!
//! Start at [`decrypt`]. The MAC covers the values of all documents in their order, so a file with a missing, moved or
//! altered value is refused. Comments are not covered, and not decrypted.

use ring::digest::{Context, SHA512};

use crate::age::{self, AgeError, Identity};
use crate::cipher;
use crate::node::Node;
use crate::rules::Rule;

/// The key of the metadata.
const METADATA: &str = "sops";
/// The SHA-256 of `sops`, which begins a MAC about encrypted values alone.
const ONLY_ENCRYPTED: [u8; 32] = [
    0x8a, 0x3f, 0xd2, 0xad, 0x54, 0xce, 0x66, 0x52, 0x7b, 0x10, 0x34, 0xf3, 0xd1, 0x47, 0xbe, 0x0b, 0x0b, 0x97, 0x5b,
    0x3b, 0xf4, 0x4f, 0x72, 0xc6, 0xfd, 0xad, 0xec, 0x81, 0x76, 0xf2, 0x7d, 0x69,
];

/// The reason that a file cannot be decrypted, as the end of a sentence about the file. No message has a value of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SopsError {
    /// The file is no YAML or JSON of SOPS.
    #[error("cannot be decrypted: {0}")]
    Malformed(&'static str),
    /// The file uses a part of SOPS that is not supported.
    #[error("has {0} of SOPS, which is not supported")]
    Unsupported(&'static str),
    /// The file has no recipient of age.
    #[error("has no recipient of age; encrypt it with sops --age")]
    NoRecipient,
    /// No identity opens the file.
    #[error("cannot be decrypted: {0}")]
    Age(AgeError),
    /// A value was altered, or encrypted at another place.
    #[error("has a value at {0} that its key does not decrypt; it was altered or moved")]
    Value(String),
    /// Values were added, removed or altered.
    #[error("has another MAC than its values; it was altered after its encryption")]
    Mac,
}

/// A decrypted file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decrypted {
    /// The file without its metadata. Lines of YAML stay where they were.
    pub text: String,
    /// The values that were encrypted, as texts, with their paths: keys with `.` between them.
    pub secrets: Vec<(String, String)>,
}

/// Whether a file may be one of SOPS.
pub fn may_be_encrypted(text: &str) -> bool {
    text.contains(METADATA) && text.contains(cipher::BEGIN)
}

/// Decrypts a file; nothing if it is none of SOPS.
///
/// # Errors
///
/// [`SopsError`], which names no value.
pub fn decrypt(text: &str, identities: &[Identity]) -> Result<Option<Decrypted>, SopsError> {
    if !may_be_encrypted(text) {
        return Ok(None);
    }
    // The text of the error may quote the file.
    let Ok(documents) = serde_saphyr::from_multiple::<Node>(text) else { return Ok(None) };
    let Some(metadata) = documents.iter().find_map(|document| document.get(METADATA)) else { return Ok(None) };
    let key = data_key(metadata, identities)?;
    let rule = Rule::of(metadata)?;
    let is_only_encrypted = metadata.get("mac_only_encrypted") == Some(&Node::Bool(true));
    let mut walk = Walk {
        key: &key,
        rule,
        is_only_encrypted,
        mac: Context::new(&SHA512),
        found: Vec::new(),
        comments: Vec::new(),
    };
    if is_only_encrypted {
        walk.mac.update(&ONLY_ENCRYPTED);
    }
    let mut clear = Vec::new();
    for document in &documents {
        let Node::Map(entries) = document else {
            clear.push(document.clone());
            continue;
        };
        let own: Vec<_> = entries.iter().filter(|(name, _)| name != METADATA).cloned().collect();
        clear.push(walk.node(&Node::Map(own), &mut Vec::new())?);
    }
    let Walk { mac, found, comments, .. } = walk;
    check_mac(metadata, &key, mac)?;
    let text = with_values(text, (&found, &comments), &clear).unwrap_or_else(|| as_json(&clear));
    let secrets = found.into_iter().filter_map(|found| Some((found.path, shown(&found.value)?))).collect();
    Ok(Some(Decrypted { text, secrets }))
}

/// The key of the values, which an identity opens.
fn data_key(metadata: &Node, identities: &[Identity]) -> Result<Vec<u8>, SopsError> {
    if metadata.get("key_groups").is_some() || metadata.get("shamir_threshold").is_some() {
        return Err(SopsError::Unsupported("groups of keys"));
    }
    let Some(Node::List(recipients)) = metadata.get("age") else { return Err(SopsError::NoRecipient) };
    let mut problem = SopsError::NoRecipient;
    for sealed in recipients.iter().filter_map(|recipient| recipient.get("enc")?.text()) {
        match age::decrypt(sealed.as_bytes(), identities) {
            Ok(key) => return Ok(key),
            Err(error) => problem = SopsError::Age(error),
        }
    }
    Err(problem)
}

fn check_mac(metadata: &Node, key: &[u8], mac: Context) -> Result<(), SopsError> {
    let field = |key: &str| metadata.get(key).and_then(Node::text);
    let modified = field("lastmodified").ok_or(SopsError::Malformed("it has no lastmodified"))?;
    let sealed = field("mac").ok_or(SopsError::Malformed("it has no mac"))?;
    let Some(Node::Text(expected)) = cipher::decrypt(sealed, key, modified) else { return Err(SopsError::Mac) };
    let found: String = mac.finish().as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    if expected == found { Ok(()) } else { Err(SopsError::Mac) }
}

/// A value that was encrypted.
struct Found {
    path: String,
    sealed: String,
    value: Node,
}

struct Walk<'k> {
    key: &'k [u8],
    rule: Rule,
    is_only_encrypted: bool,
    mac: Context,
    found: Vec<Found>,
    /// The comments that are items of lists.
    comments: Vec<String>,
}

impl Walk<'_> {
    fn node(&mut self, node: &Node, path: &mut Vec<String>) -> Result<Node, SopsError> {
        match node {
            Node::Map(entries) => {
                let mut clear = Vec::new();
                for (key, value) in entries {
                    path.push(key.clone());
                    clear.push((key.clone(), self.node(value, path)?));
                    path.pop();
                }
                Ok(Node::Map(clear))
            }
            Node::List(items) => {
                let mut clear = Vec::new();
                for item in items {
                    match item {
                        Node::Text(text) if self.rule.is_encrypted(path) && cipher::is_comment(text) => {
                            self.comment(text, path)?;
                        }
                        item => clear.push(self.node(item, path)?),
                    }
                }
                Ok(Node::List(clear))
            }
            Node::Null => Ok(Node::Null),
            leaf => self.leaf(leaf, path),
        }
    }

    /// Checks a comment inside a list, which SOPS writes as an item. It is no value, and the MAC does not cover it.
    fn comment(&mut self, sealed: &str, path: &[String]) -> Result<(), SopsError> {
        let clear = cipher::decrypt(sealed, self.key, &format!("{}:", path.join(":")));
        clear.ok_or_else(|| SopsError::Value(path.join(".")))?;
        self.comments.push(sealed.to_owned());
        Ok(())
    }

    fn leaf(&mut self, leaf: &Node, path: &[String]) -> Result<Node, SopsError> {
        let is_encrypted = self.rule.is_encrypted(path);
        let value = match leaf {
            // SOPS leaves an empty text as it is.
            Node::Text(text) if is_encrypted && !text.is_empty() => {
                let clear = cipher::decrypt(text, self.key, &format!("{}:", path.join(":")));
                let clear = clear.ok_or_else(|| SopsError::Value(path.join(".")))?;
                let found = Found { path: path.join("."), sealed: text.clone(), value: clear.clone() };
                self.found.push(found);
                clear
            }
            Node::Text(_) => leaf.clone(),
            _ if is_encrypted => return Err(SopsError::Value(path.join("."))),
            _ => leaf.clone(),
        };
        if is_encrypted || !self.is_only_encrypted {
            self.mac.update(bytes(&value).as_bytes());
        }
        Ok(value)
    }
}

/// A value as the MAC covers it.
fn bytes(value: &Node) -> String {
    match value {
        Node::Bool(true) => "True".to_owned(),
        Node::Bool(false) => "False".to_owned(),
        Node::Int(number) => number.to_string(),
        // Without an exponent, as Go's format `f`.
        Node::Float(number) => number.to_string(),
        Node::Text(text) => text.clone(),
        Node::Null | Node::List(_) | Node::Map(_) => String::new(),
    }
}

/// A value as a text that messages may have. Words such as `true` are no secrets.
fn shown(value: &Node) -> Option<String> {
    match value {
        Node::Text(_) | Node::Int(_) | Node::Float(_) => Some(bytes(value)).filter(|text| !text.is_empty()),
        Node::Null | Node::Bool(_) | Node::List(_) | Node::Map(_) => None,
    }
}

/// The text with its values in place of the encrypted ones, and without metadata. `None` where that is another document.
fn with_values(text: &str, (found, comments): (&[Found], &[String]), clear: &[Node]) -> Option<String> {
    let mut replaced = text.to_owned();
    for Found { sealed, value, .. } in found {
        let value = serde_json::to_string(value).ok()?;
        let quoted = format!("\"{sealed}\"");
        replaced = if replaced.contains(&quoted) {
            replaced.replacen(&quoted, &value, 1)
        } else {
            replaced.replacen(sealed.as_str(), &value, 1)
        };
    }
    for sealed in comments {
        replaced = replaced.replacen(&format!("- {sealed}"), "#", 1);
    }
    let mut in_metadata = false;
    let lines = replaced.split_inclusive('\n').map(|line| {
        let begins = line.starts_with(|it: char| !it.is_whitespace());
        if begins {
            in_metadata = line.starts_with("sops:");
        }
        if in_metadata { "\n" } else { line }
    });
    let replaced: String = lines.collect();
    let read = serde_saphyr::from_multiple::<Node>(&replaced).ok()?;
    (read == clear).then_some(replaced)
}

/// The documents as JSON, which is YAML too.
fn as_json(clear: &[Node]) -> String {
    let documents = clear.iter().filter_map(|document| serde_json::to_string_pretty(document).ok());
    documents.collect::<Vec<_>>().join("\n---\n")
}
