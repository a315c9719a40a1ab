//! Signatures by SSH keys, as `ssh-keygen -Y sign -n git` makes them: PROTOCOL.sshsig of OpenSSH.

use ring::digest::{SHA256, digest};
use ssh_encoding::{Decode as _, Reader as _};
use ssh_key::public::{EcdsaPublicKey, KeyData};
use ssh_key::{Algorithm, HashAlg, Mpint, PublicKey, Signature, SshSig};

use crate::algorithm::{self, Curve, Hash};
use crate::{Signer, Unverified, armor};

/// The namespace of Git's signatures.
const NAMESPACE: &str = "git";
/// The flags and counter after a signature by a security key, in bytes.
const TRAILER: usize = 5;
/// The flag of a security key that a person touched it.
const TOUCHED: u8 = 1;
/// The types of keys at the beginning of a key's text.
const TYPES: [&str; 7] = [
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "ecdsa-sha2-nistp521",
];

/// A key that may sign.
#[derive(Clone, Debug)]
pub(crate) struct TrustedKey {
    key: KeyData,
    name: String,
}

/// Reads a list of keys: lines of an `allowed_signers` file, or of an `authorized_keys` file.
///
/// # Errors
///
/// The end of a sentence about the text.
pub(crate) fn read(text: &str) -> Result<Vec<TrustedKey>, String> {
    let mut keys = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        keys.push(read_line(line).map_err(|why| format!("line {}: {why}", number + 1))?);
    }
    Ok(keys)
}

fn read_line(line: &str) -> Result<TrustedKey, String> {
    let words = words(line);
    let at = words.iter().take(3).position(|word| TYPES.contains(word));
    let Some(at) = at else {
        return Err(format!("has no key of a known type; known are {}", TYPES[..6].join(", ")));
    };
    if let Some(options) = words.get(1).filter(|_| at == 2) {
        check_options(options)?;
    }
    if at == 1 && is_option(words[0]) {
        return Err(format!(
            "has the options {:?} of authorized_keys, which are not supported; list the key alone",
            words[0]
        ));
    }
    let key = PublicKey::from_openssh(&words[at..].join(" ")).map_err(|error| format!("is no public key: {error}"))?;
    let name = if at == 0 { key.comment() } else { words[0] };
    supported(key.key_data())?;
    Ok(TrustedKey { name: name.to_owned(), key: key.key_data().clone() })
}

/// Whether a word before a key restricts it in `authorized_keys`, rather than names its owner.
fn is_option(word: &str) -> bool {
    let first = word.split(',').next().unwrap_or_default().to_ascii_lowercase();
    let flags =
        ["cert-authority", "restrict", "verify-required", "agent-forwarding", "port-forwarding", "pty", "user-rc"];
    word.contains('=') || first.starts_with("no-") || flags.contains(&first.as_str()) || first == "x11-forwarding"
}

/// The words of a line. Quotation marks enclose spaces.
fn words(line: &str) -> Vec<&str> {
    let mut is_quoted = false;
    let split = line.split(move |it: char| {
        is_quoted ^= it == '"';
        it.is_whitespace() && !is_quoted
    });
    split.filter(|word| !word.is_empty()).collect()
}

/// Refuses options that would restrict the key, unless they permit Git's signatures.
fn check_options(options: &str) -> Result<(), String> {
    let mut is_quoted = false;
    let split = options.split(move |it: char| {
        is_quoted ^= it == '"';
        it == ',' && !is_quoted
    });
    for option in split {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name.to_ascii_lowercase().as_str() {
            "namespaces" => {
                if !value.trim_matches('"').split(',').any(|namespace| matches!(namespace, NAMESPACE | "*")) {
                    return Err("namespaces does not have git".to_owned());
                }
            }
            "cert-authority" => return Err("cert-authority is not supported; list the keys themselves".to_owned()),
            "valid-after" | "valid-before" => {
                return Err(format!("{name} is not supported; add and remove the key when it changes"));
            }
            _ => return Err(format!("unknown option {name:?}")),
        }
    }
    Ok(())
}

fn supported(key: &KeyData) -> Result<(), String> {
    match key {
        KeyData::Ed25519(_) | KeyData::SkEd25519(_) | KeyData::SkEcdsaSha2NistP256(_) | KeyData::Rsa(_) => Ok(()),
        KeyData::Ecdsa(EcdsaPublicKey::NistP256(_) | EcdsaPublicKey::NistP384(_)) => Ok(()),
        other => Err(format!("keys of the type {} are not supported", other.algorithm())),
    }
}

/// Verifies the armored signature of a message.
pub(crate) fn verify(keys: &[TrustedKey], armored: &str, message: &[u8]) -> Result<Signer, Unverified> {
    let unreadable = |why: &dyn std::fmt::Display| Unverified::invalid(format!("cannot be read: {why}"));
    let block = armor::first(armored).ok_or_else(|| unreadable(&"it is not armored"))?;
    let bytes = block.map_err(|why| unreadable(&why))?.bytes;
    let mut reader = bytes.as_slice();
    let signature = SshSig::decode(&mut reader).map_err(|error| unreadable(&error))?;
    if !reader.is_finished() {
        return Err(unreadable(&"there are bytes after it"));
    }
    if signature.namespace() != NAMESPACE {
        let why = format!("is for the namespace {:?} instead of {NAMESPACE:?}", signature.namespace());
        return Err(Unverified::Invalid { why });
    }
    let id = signature.public_key().fingerprint(HashAlg::Sha256).to_string();
    let trusted = keys.iter().find(|trusted| trusted.key == *signature.public_key());
    let trusted = trusted.ok_or_else(|| Unverified::unknown(&id))?;
    let signed = SshSig::signed_data(NAMESPACE, signature.hash_alg(), message).map_err(|error| unreadable(&error))?;
    match matches(&trusted.key, signature.signature(), &signed) {
        Ok(true) => Ok(Signer { key: id, name: trusted.name.clone() }),
        Ok(false) => Err(Unverified::invalid(format!("does not match the content (key {id})"))),
        Err(why) => Err(Unverified::invalid(format!("{why} (key {id})"))),
    }
}

/// Whether a signature matches; an error for one that is not supported.
fn matches(key: &KeyData, signature: &Signature, signed: &[u8]) -> Result<bool, String> {
    let other = || Err(format!("has the algorithm {}, which its key does not have", signature.algorithm()));
    let bytes = signature.as_bytes();
    match (key, signature.algorithm()) {
        (KeyData::Ed25519(key), Algorithm::Ed25519) => Ok(algorithm::ed25519(&key.0, signed, bytes)),
        (KeyData::Rsa(key), Algorithm::Rsa { hash }) => {
            let hash = match hash {
                Some(HashAlg::Sha256) => Hash::Sha256,
                Some(HashAlg::Sha512) => Hash::Sha512,
                _ => return Err("uses SHA-1, which is broken".to_owned()),
            };
            let numbers = key.n.as_positive_bytes().zip(key.e.as_positive_bytes());
            Ok(numbers.is_some_and(|numbers| algorithm::rsa(hash, numbers, signed, bytes)))
        }
        (KeyData::Ecdsa(key), Algorithm::Ecdsa { .. }) => {
            let (curve, hash) = match key {
                EcdsaPublicKey::NistP256(_) => (Curve::P256, Hash::Sha256),
                EcdsaPublicKey::NistP384(_) => (Curve::P384, Hash::Sha384),
                EcdsaPublicKey::NistP521(_) => return other(),
            };
            Ok(ecdsa(curve, hash, key.as_sec1_bytes(), signed, bytes))
        }
        (KeyData::SkEd25519(key), Algorithm::SkEd25519) => {
            let Some((signature, touched)) = by_security_key(key.application(), signed, bytes) else {
                return Ok(false);
            };
            Ok(algorithm::ed25519(&key.public_key().0, &touched, signature))
        }
        (KeyData::SkEcdsaSha2NistP256(key), Algorithm::SkEcdsaSha2NistP256) => {
            let Some((signature, touched)) = by_security_key(key.application(), signed, bytes) else {
                return Ok(false);
            };
            Ok(ecdsa(Curve::P256, Hash::Sha256, key.ec_point().as_bytes(), &touched, signature))
        }
        _ => other(),
    }
}

fn ecdsa(curve: Curve, hash: Hash, key: &[u8], signed: &[u8], mut bytes: &[u8]) -> bool {
    let mut number = || Mpint::decode(&mut bytes).ok();
    let (Some(r), Some(s)) = (number(), number()) else { return false };
    let numbers = r.as_positive_bytes().zip(s.as_positive_bytes());
    numbers.and_then(|numbers| algorithm::ecdsa(curve, hash, key, signed, numbers)).unwrap_or_default()
}

/// The signature of a security key, and the bytes that it signs: PROTOCOL.u2f. `None` if nobody touched it.
fn by_security_key<'s>(application: &str, signed: &[u8], bytes: &'s [u8]) -> Option<(&'s [u8], Vec<u8>)> {
    let (signature, trailer) = bytes.split_at(bytes.len().checked_sub(TRAILER)?);
    (trailer[0] & TOUCHED != 0).then(|| {
        let sha256 = |data: &[u8]| digest(&SHA256, data).as_ref().to_vec();
        (signature, [&sha256(application.as_bytes()), trailer, &sha256(signed)].concat())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";

    #[test]
    fn lists_of_both_forms_are_read() {
        let names = |text: &str| read(text).map(|keys| keys.into_iter().map(|key| key.name).collect::<Vec<_>>());
        let text = format!("# team\n\n{KEY} ann@example.com\nann,bob namespaces=\"file,git\" {KEY}\nbob {KEY} x\n");
        assert_eq!(names(&text).unwrap(), ["ann@example.com", "ann,bob", "bob"]);
        for (line, why) in [
            ("ann cert-authority", "line 1: cert-authority is not supported"),
            ("ann namespaces=\"file\"", "line 1: namespaces does not have git"),
            ("ann valid-before=\"20300101\"", "line 1: valid-before is not supported"),
            ("ann no-such", "line 1: unknown option \"no-such\""),
            ("a b c", "line 1: has no key of a known type"),
            ("expiry-time=\"20300101\"", "line 1: has the options \"expiry-time"),
            ("cert-authority", "line 1: has the options \"cert-authority"),
            ("no-pty,restrict", "line 1: has the options \"no-pty"),
        ] {
            let error = names(&format!("{line} {KEY}")).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
        assert!(names("ssh-ed25519 AAAA").unwrap_err().starts_with("line 1: is no public key"));
    }
}
