//! Public keys of OpenPGP.

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use super::packets::{Fields, Malformed};
use crate::algorithm::Curve;
use crate::armor::hex;

/// Object identifiers of curves.
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const ED25519: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x0f, 0x01];
/// The prefix of a point of Ed25519.
const NATIVE: u8 = 0x40;

/// A public key of version 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicKey {
    /// 40 hex digits.
    pub(crate) fingerprint: String,
    /// The time of its creation, in seconds since 1970.
    pub(super) created: u32,
    pub(super) material: Material,
    /// The body of the packet, which signatures cover.
    pub(super) body: Vec<u8>,
}

/// The numbers of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Material {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// The point, of 32 bytes.
    Ed25519(Vec<u8>),
    /// The uncompressed point.
    Ecdsa(Curve, Vec<u8>),
    /// A key that signs nothing here, such as one for encryption, with the number of its algorithm.
    Other(u8),
}

impl PublicKey {
    /// Reads the body of a packet.
    pub(super) fn read(body: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(body);
        if fields.u8()? != 4 {
            return Err(Malformed("an OpenPGP key has another version than 4"));
        }
        let created = fields.u32()?;
        let algorithm = fields.u8()?;
        let length = u16::try_from(body.len()).map_err(|_| Malformed("an OpenPGP key is too long"))?;
        let hashed = [&[0x99][..], &length.to_be_bytes(), body].concat();
        let fingerprint = hex(digest(&SHA1_FOR_LEGACY_USE_ONLY, &hashed).as_ref()).to_uppercase();
        let material = Material::read(algorithm, fields)?;
        Ok(Self { fingerprint, created, material, body: body.to_vec() })
    }

    /// The key as signatures cover it.
    pub(super) fn hashed(&self) -> Vec<u8> {
        let length = u16::try_from(self.body.len()).unwrap_or(u16::MAX);
        [&[0x99][..], &length.to_be_bytes(), &self.body].concat()
    }

    /// Whether an id in a signature, a fingerprint or its end, names the key.
    pub(super) fn is_named(&self, id: &str) -> bool {
        id.len() >= 16 && self.fingerprint.ends_with(id)
    }
}

impl Material {
    fn read(algorithm: u8, mut fields: Fields<'_>) -> Result<Self, Malformed> {
        match algorithm {
            1 | 3 => Ok(Self::Rsa { n: fields.number()?.to_vec(), e: fields.number()?.to_vec() }),
            19 | 22 => {
                let length = fields.u8()?;
                let curve = fields.take(usize::from(length))?;
                let point = fields.number()?;
                Ok(match (algorithm, curve) {
                    (19, P256) => Self::Ecdsa(Curve::P256, point.to_vec()),
                    (19, P384) => Self::Ecdsa(Curve::P384, point.to_vec()),
                    (22, ED25519) if point.len() == 33 && point[0] == NATIVE => Self::Ed25519(point[1..].to_vec()),
                    _ => Self::Other(algorithm),
                })
            }
            27 => Ok(Self::Ed25519(fields.take(32)?.to_vec())),
            other => Ok(Self::Other(other)),
        }
    }
}
