//! Certificates of OpenPGP: a primary key, its user IDs and subkeys, and the self-signatures that bind them.

use super::key::{Material, PublicKey};
use super::packets::{Malformed, PUBLIC_KEY, PUBLIC_SUBKEY, Packet, SIGNATURE, USER_ATTRIBUTE, USER_ID, packets};
use super::signature::{Signature, kind};

/// A key with the parts that may sign documents.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    /// The first user ID.
    pub(super) user: String,
    primary: Part,
    subkeys: Vec<Part>,
}

/// A key of a certificate.
#[derive(Clone, Debug)]
pub(super) struct Part {
    key: PublicKey,
    /// Whether it may sign documents.
    signs: bool,
    /// The time at which it expires, in seconds since 1970.
    expires: Option<u64>,
    is_revoked: bool,
}

/// Reads the certificates of an armored block.
///
/// # Errors
///
/// The end of a sentence about the block.
pub(crate) fn read(bytes: &[u8]) -> Result<Vec<Certificate>, String> {
    let unreadable = |why: Malformed| format!("has an OpenPGP key that cannot be read: {why}");
    let all: Vec<Packet<'_>> = packets(bytes).collect::<Result<_, Malformed>>().map_err(unreadable)?;
    let mut certificates = Vec::new();
    let mut rest = all.as_slice();
    while let Some((first, others)) = rest.split_first() {
        if first.tag != PUBLIC_KEY {
            return Err(format!("has an OpenPGP packet {} where a public key begins", first.tag));
        }
        let end = others.iter().position(|packet| packet.tag == PUBLIC_KEY).unwrap_or(others.len());
        let (own, next) = others.split_at(end);
        certificates.push(Certificate::read(first.body, own)?);
        rest = next;
    }
    Ok(certificates)
}

/// A part of a certificate with the signatures that follow it.
struct Section<'b> {
    packet: Packet<'b>,
    signatures: Vec<Signature<'b>>,
}

impl Certificate {
    fn read(body: &[u8], packets: &[Packet<'_>]) -> Result<Self, String> {
        let unreadable = |why: Malformed| format!("has an OpenPGP key that cannot be read: {why}");
        let primary = PublicKey::read(body).map_err(unreadable)?;
        let mut sections = vec![Section { packet: Packet { tag: PUBLIC_KEY, body }, signatures: Vec::new() }];
        for packet in packets {
            match packet.tag {
                // Those of others may have any form.
                SIGNATURE => {
                    if let (Some(section), Ok(read)) = (sections.last_mut(), Signature::read(packet.body)) {
                        section.signatures.push(read);
                    }
                }
                USER_ID | USER_ATTRIBUTE | PUBLIC_SUBKEY => {
                    sections.push(Section { packet: *packet, signatures: Vec::new() });
                }
                _ => {}
            }
        }
        let read = Self::of(primary, &sections)?;
        let all = std::iter::once(&read.primary).chain(&read.subkeys);
        if !all.into_iter().any(|part| part.signs) {
            return Err(format!(
                "has the OpenPGP key {}, no part of which signs: RSA, Ed25519, ECDSA of P-256 and P-384 are supported",
                read.primary.key.fingerprint
            ));
        }
        Ok(read)
    }

    fn of(primary: PublicKey, sections: &[Section<'_>]) -> Result<Self, String> {
        let hashed = primary.hashed();
        let (mut user, mut latest, mut is_revoked) = (String::new(), None::<&Signature<'_>>, false);
        let mut problem = None;
        for Section { packet, signatures } in sections {
            let data = match packet.tag {
                PUBLIC_KEY => hashed.clone(),
                USER_ID | USER_ATTRIBUTE => bound(&hashed, packet),
                _ => continue,
            };
            let mut is_bound = false;
            for signature in signatures {
                let is_self = signature.issuer().is_some_and(|id| primary.is_named(id));
                let is_binding = match packet.tag {
                    PUBLIC_KEY => signature.kind == kind::DIRECT,
                    _ => (kind::CERTIFICATION..=kind::POSITIVE).contains(&signature.kind),
                };
                if packet.tag == PUBLIC_KEY && signature.kind == kind::REVOCATION && is_self {
                    // One that cannot be verified counts, too: the owner of the list may have wanted it.
                    let verified = signature.verify(&primary, kind::REVOCATION, &data);
                    is_revoked |= verified.is_ok() || signature.is_unsupported(&primary);
                }
                if !is_self || !is_binding {
                    continue;
                }
                match signature.verify(&primary, signature.kind, &data) {
                    Ok(()) => {
                        is_bound = true;
                        if latest.is_none_or(|latest| latest.created <= signature.created) {
                            latest = Some(signature);
                        }
                    }
                    Err(why) => problem = Some(why),
                }
            }
            if is_bound && packet.tag == USER_ID && user.is_empty() {
                user = String::from_utf8_lossy(packet.body).chars().filter(|it| !it.is_control()).take(200).collect();
            }
        }
        let Some(latest) = latest else {
            let why = problem.map_or_else(|| "has none".to_owned(), |why| format!("{why}; renew it"));
            return Err(format!("has the OpenPGP key {} without a self-signature: it {why}", primary.fingerprint));
        };
        let subkeys = sections.iter().filter(|section| section.packet.tag == PUBLIC_SUBKEY);
        let subkeys = subkeys.filter_map(|section| subkey(&primary, section)).collect();
        let can_sign = !matches!(primary.material, Material::Other(_));
        let part = Part {
            signs: can_sign && latest.key_signs.unwrap_or(true),
            expires: expiry(&primary, latest),
            is_revoked,
            key: primary,
        };
        Ok(Self { user, primary: part, subkeys })
    }

    #[cfg(test)]
    pub(super) fn primary(&self) -> &Part {
        &self.primary
    }

    /// The parts that a signature names.
    pub(super) fn named(&self, signature: &Signature<'_>) -> impl Iterator<Item = &Part> {
        let id = signature.issuer().unwrap_or_default().to_owned();
        std::iter::once(&self.primary).chain(&self.subkeys).filter(move |part| part.key.is_named(&id))
    }

    /// The keys on which a signature by a part depends.
    pub(super) fn keys_of<'c>(&'c self, part: &'c Part) -> impl Iterator<Item = &'c PublicKey> {
        [&part.key, &self.primary.key].into_iter()
    }

    /// Whether this certificate revokes a key.
    pub(super) fn revokes(&self, key: &PublicKey) -> bool {
        let mut parts = std::iter::once(&self.primary).chain(&self.subkeys);
        parts.any(|part| part.is_revoked && part.key.fingerprint == key.fingerprint)
    }

    /// Whether a part of this certificate, if nothing revokes it, was permitted to sign a document at a time.
    ///
    /// # Errors
    ///
    /// A clause about the key.
    pub(super) fn permits(&self, part: &Part, at: u32) -> Result<(), String> {
        for key in [part, &self.primary] {
            if at < key.key.created {
                return Err("which was created after the signature".to_owned());
            }
            if key.expires.is_some_and(|expires| expires <= u64::from(at)) {
                return Err("which had expired at the time of the signature".to_owned());
            }
        }
        if part.signs { Ok(()) } else { Err("which may not sign documents".to_owned()) }
    }
}

impl Part {
    pub(super) fn key(&self) -> &PublicKey {
        &self.key
    }
}

/// A user ID or attribute as its signatures cover it.
fn bound(primary: &[u8], packet: &Packet<'_>) -> Vec<u8> {
    let mark = if packet.tag == USER_ID { 0xb4 } else { 0xd1 };
    let length = u32::try_from(packet.body.len()).unwrap_or(u32::MAX);
    [primary, &[mark], &length.to_be_bytes(), packet.body].concat()
}

/// A subkey that its primary key binds, and that signs.
fn subkey(primary: &PublicKey, section: &Section<'_>) -> Option<Part> {
    let key = PublicKey::read(section.packet.body).ok()?;
    let data = [primary.hashed(), key.hashed()].concat();
    let own = || section.signatures.iter().filter(|it| it.issuer().is_some_and(|id| primary.is_named(id)));
    let binds = |signature: &&Signature<'_>| signature.verify(primary, kind::SUBKEY, &data).is_ok();
    let binding = own().filter(binds).max_by_key(|signature| signature.created)?;
    let agrees = || {
        let embedded = Signature::read(binding.embedded?).ok()?;
        embedded.verify(&key, kind::PRIMARY, &data).ok()
    };
    let signs = binding.key_signs.unwrap_or_default() && agrees().is_some();
    let is_revoked = own().any(|signature| {
        signature.kind == kind::SUBKEY_REVOCATION
            && (signature.verify(primary, kind::SUBKEY_REVOCATION, &data).is_ok() || signature.is_unsupported(primary))
    });
    Some(Part { signs, expires: expiry(&key, binding), is_revoked, key })
}

fn expiry(key: &PublicKey, signature: &Signature<'_>) -> Option<u64> {
    signature.key_expires.map(|seconds| u64::from(key.created) + u64::from(seconds))
}
