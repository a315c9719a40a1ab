//! Signatures of OpenPGP.

use super::key::{Material, PublicKey};
use super::packets::{Fields, Malformed};
use crate::algorithm::{self, Hash, padded};
use crate::armor::hex;

/// Types of signatures.
pub(super) mod kind {
    /// Of a document.
    pub(crate) const BINARY: u8 = 0x00;
    /// The first of four kinds of signatures that bind a user ID to a key.
    pub(crate) const CERTIFICATION: u8 = 0x10;
    /// The last of them.
    pub(crate) const POSITIVE: u8 = 0x13;
    /// Of a primary key for a subkey.
    pub(crate) const SUBKEY: u8 = 0x18;
    /// Of a subkey for its primary key.
    pub(crate) const PRIMARY: u8 = 0x19;
    /// Of a key directly.
    pub(crate) const DIRECT: u8 = 0x1f;
    /// The revocation of a key.
    pub(crate) const REVOCATION: u8 = 0x20;
    /// The revocation of a subkey.
    pub(crate) const SUBKEY_REVOCATION: u8 = 0x28;
}

/// The flag of a key that signs documents.
const SIGNS: u8 = 0x02;

/// Types of subpackets.
const CREATED: u8 = 2;
const EXPIRES: u8 = 3;
const KEY_EXPIRES: u8 = 9;
const ISSUER: u8 = 16;
const NOTATION: u8 = 20;
const KEY_FLAGS: u8 = 27;
const EMBEDDED: u8 = 32;
const FINGERPRINT: u8 = 33;

/// A signature of version 4.
#[derive(Clone, Debug)]
pub(super) struct Signature<'b> {
    pub(super) kind: u8,
    algorithm: u8,
    hash: u8,
    /// The part that the signature covers itself.
    hashed: &'b [u8],
    /// The time of its creation, in seconds since 1970.
    pub(super) created: u32,
    /// The seconds after the key's creation at which the key expires.
    pub(super) key_expires: Option<u32>,
    /// Whether the key may sign documents, if the signature says so.
    pub(super) key_signs: Option<bool>,
    /// The signature of the subkey in that of its primary key.
    pub(super) embedded: Option<&'b [u8]>,
    expires: bool,
    /// The fingerprint or key id in upper-case hex digits, which nothing protects.
    issuer: Option<String>,
    /// A subpacket that a reader must know, and this one does not.
    unknown: Option<u8>,
    numbers: Fields<'b>,
}

impl<'b> Signature<'b> {
    /// Reads the body of a packet.
    pub(super) fn read(body: &'b [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(body);
        if fields.u8()? != 4 {
            return Err(Malformed("an OpenPGP signature has another version than 4"));
        }
        let (kind, algorithm, hash) = (fields.u8()?, fields.u8()?, fields.u8()?);
        let protected = fields.u16()?;
        let protected = Fields(fields.take(protected)?);
        let hashed = &body[..body.len() - fields.0.len()];
        let unprotected = fields.u16()?;
        let unprotected = Fields(fields.take(unprotected)?);
        fields.take(2)?;
        let mut signature = Self {
            kind,
            algorithm,
            hash,
            hashed,
            created: 0,
            key_expires: None,
            key_signs: None,
            embedded: None,
            expires: false,
            issuer: None,
            unknown: None,
            numbers: fields,
        };
        signature.read_protected(protected)?;
        signature.read_unprotected(unprotected)?;
        Ok(signature)
    }

    fn read_protected(&mut self, mut fields: Fields<'b>) -> Result<(), Malformed> {
        while !fields.0.is_empty() {
            let (kind, content) = fields.subpacket()?;
            let is_critical = kind & 0x80 != 0;
            match kind & 0x7f {
                CREATED => self.created = Fields(content).u32()?,
                EXPIRES => self.expires = Fields(content).u32()? > 0,
                KEY_EXPIRES => self.key_expires = Some(Fields(content).u32()?).filter(|seconds| *seconds > 0),
                KEY_FLAGS => self.key_signs = Some(content.first().is_some_and(|flags| flags & SIGNS != 0)),
                EMBEDDED => self.embedded = Some(content),
                ISSUER | FINGERPRINT => self.read_issuer(kind & 0x7f, content),
                // Features, preferences and the like: they change nothing about a signature.
                4 | 5 | 7 | 11 | 21..=26 | 28..=31 | 34 | 35 | 39 => {}
                NOTATION if !is_critical => {}
                other if is_critical => self.unknown = Some(other),
                _ => {}
            }
        }
        Ok(())
    }

    fn read_unprotected(&mut self, mut fields: Fields<'b>) -> Result<(), Malformed> {
        while !fields.0.is_empty() {
            let (kind, content) = fields.subpacket()?;
            match kind & 0x7f {
                ISSUER | FINGERPRINT => self.read_issuer(kind & 0x7f, content),
                // GnuPG puts it here. It has its own signature, which is verified.
                EMBEDDED if self.embedded.is_none() => self.embedded = Some(content),
                _ => {}
            }
        }
        Ok(())
    }

    fn read_issuer(&mut self, kind: u8, content: &[u8]) {
        let id = if kind == ISSUER { Some(content) } else { content.strip_prefix(&[4]) };
        let is_longer = |id: &&[u8]| self.issuer.as_ref().is_none_or(|issuer| issuer.len() < 2 * id.len());
        let is_id = |id: &&[u8]| matches!(id.len(), 8 | 20);
        if let Some(id) = id.filter(is_id).filter(is_longer) {
            self.issuer = Some(hex(id).to_uppercase());
        }
    }

    /// The fingerprint or key id that the signature names.
    pub(super) fn issuer(&self) -> Option<&str> {
        self.issuer.as_deref()
    }

    /// The name of a hash that is broken.
    fn weak_hash(&self) -> Option<&'static str> {
        match self.hash {
            1 => Some("MD5"),
            2 => Some("SHA-1"),
            3 => Some("RIPEMD-160"),
            _ => None,
        }
    }

    /// Whether it cannot be verified here, though it may be right.
    pub(super) fn is_unsupported(&self, key: &PublicKey) -> bool {
        !matches!(self.hash, 8..=10) || matches!(key.material, Material::Other(_)) || self.unknown.is_some()
    }

    /// Verifies that a key made this signature of a kind over data.
    ///
    /// # Errors
    ///
    /// The end of a clause about the signature.
    pub(super) fn verify(&self, key: &PublicKey, kind: u8, data: &[u8]) -> Result<(), String> {
        if self.kind != kind {
            return Err(format!("is of the kind {:#04x} instead of {kind:#04x}", self.kind));
        }
        if let Some(unknown) = self.unknown {
            return Err(format!("has the critical subpacket {unknown}, which is not supported"));
        }
        if self.expires {
            return Err("expires; sign without default-sig-expire".to_owned());
        }
        if self.created == 0 {
            return Err("has no time of its creation".to_owned());
        }
        let hash = match self.hash {
            8 => Hash::Sha256,
            9 => Hash::Sha384,
            10 => Hash::Sha512,
            other => {
                let weak = self.weak_hash().map(|name| format!("uses {name}, which is broken"));
                return Err(weak.unwrap_or_else(|| format!("uses the hash {other}, which is not supported")));
            }
        };
        let length = u32::try_from(self.hashed.len()).unwrap_or(u32::MAX);
        let message = [data, self.hashed, &[0x04, 0xff], &length.to_be_bytes()].concat();
        match self.matches(key, hash, &message) {
            Some(true) => Ok(()),
            Some(false) => Err("does not match the content".to_owned()),
            None => Err(format!("has the algorithm {}, which is not supported", self.algorithm)),
        }
    }

    /// Whether it matches; `None` if that cannot be said.
    fn matches(&self, key: &PublicKey, hash: Hash, message: &[u8]) -> Option<bool> {
        let mut numbers = self.numbers;
        let mut number = || numbers.number().unwrap_or_default();
        match (&key.material, self.algorithm) {
            (Material::Rsa { n, e }, 1 | 3) => Some(algorithm::rsa(hash, (n, e), message, number())),
            (Material::Ecdsa(curve, point), 19) => {
                let (r, s) = (number(), number());
                algorithm::ecdsa(*curve, hash, point, message, (r, s))
            }
            (Material::Ed25519(point), 22) => {
                let parts = [number(), number()].map(|part| padded(part, 32));
                let [Some(r), Some(s)] = parts else { return Some(false) };
                Some(algorithm::ed25519(point, &hash.digest(message), &[r, s].concat()))
            }
            (Material::Ed25519(point), 27) => Some(algorithm::ed25519(point, &hash.digest(message), self.numbers.0)),
            _ => None,
        }
    }
}
