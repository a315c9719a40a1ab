//! OpenPGP signatures of version 4 (RFC 4880 and RFC 9580), as GnuPG makes them.
//!
//! Start at [`verify`]. The reader knows what signatures of Git need: RSA, Ed25519 and ECDSA keys, SHA-256 and stronger
//! hashes. It refuses everything else, so that no signature counts by an unknown rule.
//!
//! - `packets` splits bytes into packets and their fields.
//! - `key` reads public keys, and `signature` reads signatures and verifies them by a key.
//! - `certificate` reads a key with its self-signatures, which say what each part may sign.

mod certificate;
mod key;
mod packets;
mod signature;

pub(crate) use self::certificate::{Certificate, read};

use self::packets::{Malformed, Packet, SIGNATURE, packets};
use self::signature::{Signature, kind};
use crate::{Signer, Unverified, armor};

/// Verifies the armored signature of a message.
pub(crate) fn verify(trusted: &[Certificate], armored: &str, message: &[u8]) -> Result<Signer, Unverified> {
    let unreadable = |why: &dyn std::fmt::Display| Unverified::invalid(format!("cannot be read: {why}"));
    let block = armor::first(armored).ok_or_else(|| unreadable(&"it is not armored"))?;
    let bytes = block.map_err(|why| unreadable(&why))?.bytes;
    let all: Vec<Packet<'_>> = packets(&bytes).collect::<Result<_, Malformed>>().map_err(|why| unreadable(&why))?;
    let [Packet { tag: SIGNATURE, body }] = all.as_slice() else {
        return Err(unreadable(&format!("it has {} packets instead of one signature", all.len())));
    };
    let signature = Signature::read(body).map_err(|why| unreadable(&why))?;
    let Some(id) = signature.issuer() else { return Err(Unverified::invalid("does not name its key")) };
    let candidates = trusted.iter().flat_map(|of| of.named(&signature).map(move |part| (of, part)));
    let mut problem = Unverified::unknown(id);
    for (certificate, part) in candidates {
        match signature.verify(part.key(), kind::BINARY, message) {
            Err(why) => problem = Unverified::invalid(format!("{why} (key {})", part.key().fingerprint)),
            Ok(()) => {
                let key = part.key().fingerprint.clone();
                // A copy of the certificate from before a revocation does not undo it.
                let is_revoked = trusted.iter().any(|of| certificate.keys_of(part).any(|key| of.revokes(key)));
                let permitted = match is_revoked {
                    true => Err("which is revoked".to_owned()),
                    false => certificate.permits(part, signature.created),
                };
                match permitted {
                    Ok(()) => return Ok(Signer { key, name: certificate.user.clone() }),
                    Err(why) => problem = Unverified::Untrusted { key, why },
                }
            }
        }
    }
    Err(problem)
}

#[cfg(test)]
mod tests;
