//! Signatures of OCI artifacts by cosign with a key: ECDSA P-256 over a payload that names the digest.
//!
//! Cosign's SIGNATURE_SPEC.md and its simple signing format. Keyless signatures need Fulcio and Rekor, and are not
//! verified.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use serde::Deserialize;

use crate::{Signer, Unverified, armor};

/// The media type of a payload.
pub const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation of a layer with the signature, in base64.
pub const SIGNATURE_ANNOTATION: &str = "dev.cosignproject.cosign/signature";
/// The annotation of a layer whose signature is keyless: the certificate, which Fulcio issued.
pub const CERTIFICATE_ANNOTATION: &str = "dev.sigstore.cosign/certificate";
/// The beginning of a public key of P-256: RFC 5480. The point follows.
const PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// The length of an uncompressed point, in bytes.
const POINT: usize = 65;
/// The type of a payload about an artifact.
const TYPE: &str = "cosign container image signature";

/// The tag of the signatures of an artifact with a digest, `sha256:<hex>`.
pub fn signature_tag(digest: &str) -> String {
    format!("{}.sig", digest.replace(':', "-"))
}

/// A key that may sign artifacts.
#[derive(Clone, Debug)]
pub(crate) struct TrustedKey {
    point: Vec<u8>,
    id: String,
}

impl TrustedKey {
    /// Reads the content of a block `PUBLIC KEY`.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let point = bytes.strip_prefix(&PREFIX).filter(|point| point.len() == POINT && point[0] == 4);
        let point = point.ok_or("is no ECDSA key of P-256, which cosign generate-key-pair makes")?;
        let id = format!("sha256:{}", armor::hex(digest(&SHA256, bytes).as_ref()));
        Ok(Self { point: point.to_vec(), id })
    }
}

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// Verifies a signature of a payload, and that the payload is about a digest.
pub(crate) fn verify(keys: &[TrustedKey], digest: &str, payload: &[u8], signature: &str) -> Result<Signer, Unverified> {
    let signature = STANDARD.decode(signature.trim()).map_err(|_| Unverified::invalid("is no base64"))?;
    let matches = |key: &&TrustedKey| {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &key.point).verify(payload, &signature).is_ok()
    };
    let trusted = keys.iter().find(matches).ok_or_else(|| Unverified::unknown("a key"))?;
    let wrong = |why: String| Unverified::invalid(format!("{why} (key {})", trusted.id));
    let Payload { critical } = serde_json::from_slice(payload).map_err(|_| wrong("signs no payload".to_owned()))?;
    if critical.kind != TYPE {
        return Err(wrong(format!("signs a payload of the type {:?}", critical.kind)));
    }
    if critical.image.digest != digest {
        return Err(wrong(format!("is for {} instead of {digest}", critical.image.digest)));
    }
    Ok(Signer { key: trusted.id.clone(), name: String::new() })
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

    use super::*;

    #[test]
    fn payload_must_name_the_digest() {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random).unwrap();
        let key = TrustedKey::read(&[&PREFIX[..], pair.public_key().as_ref()].concat()).unwrap();
        let payload = |digest: &str, kind: &str| {
            format!(
                r#"{{"critical":{{"identity":{{}},"image":{{"docker-manifest-digest":"{digest}"}},"type":"{kind}"}}}}"#
            )
        };
        let verify = |keys: &[TrustedKey], payload: &str| {
            let signature = STANDARD.encode(pair.sign(&random, payload.as_bytes()).unwrap());
            super::verify(keys, "sha256:aa", payload.as_bytes(), &signature).map_err(|error| error.to_string())
        };
        let keys = [key];
        assert!(verify(&keys, &payload("sha256:aa", TYPE)).unwrap().key.starts_with("sha256:"));
        assert!(verify(&keys, &payload("sha256:bb", TYPE)).unwrap_err().contains("is for sha256:bb instead of"));
        assert!(verify(&keys, &payload("sha256:aa", "other")).unwrap_err().contains("of the type \"other\""));
        assert!(verify(&keys, "{}").unwrap_err().contains("signs no payload"));
        assert!(verify(&[], &payload("sha256:aa", TYPE)).unwrap_err().contains("which is no trusted key"));
        assert!(super::verify(&keys, "sha256:aa", b"x", "*").is_err());
        assert!(TrustedKey::read(&PREFIX).is_err());
        assert_eq!(signature_tag("sha256:aa"), "sha256-aa.sig");
    }
}
