//! Trusted public keys, and the objects that they verify.

use crate::{Signer, Unverified, armor, cosign, git, openpgp, ssh};

/// The labels of armored blocks.
const OPENPGP_KEY: &str = "PGP PUBLIC KEY BLOCK";
const COSIGN_KEY: &str = "PUBLIC KEY";

/// Public keys whose signatures count.
#[derive(Clone, Debug, Default)]
pub struct TrustedKeys {
    ssh: Vec<ssh::TrustedKey>,
    openpgp: Vec<openpgp::Certificate>,
    cosign: Vec<cosign::TrustedKey>,
}

/// A text that has no public keys. The message quotes nothing of the text, which may be a private key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} {why}")]
pub struct InvalidKeys {
    /// The name of the text.
    pub name: String,
    /// The end of a sentence about the text.
    pub why: String,
}

impl TrustedKeys {
    /// Reads texts with keys, each with a name for errors. A text has armored blocks (`PGP PUBLIC KEY BLOCK` for OpenPGP,
    /// `PUBLIC KEY` for cosign), or lines of an `allowed_signers` or `authorized_keys` file.
    ///
    /// # Errors
    ///
    /// [`InvalidKeys`] for a text without a key, with a private key, or with a key that is not supported.
    pub fn read<'t>(texts: impl IntoIterator<Item = (&'t str, &'t str)>) -> Result<Self, InvalidKeys> {
        let mut keys = Self::default();
        for (name, text) in texts {
            keys.add(text).map_err(|why| InvalidKeys { name: name.to_owned(), why })?;
        }
        Ok(keys)
    }

    fn add(&mut self, text: &str) -> Result<(), String> {
        let before = self.count();
        let mut rest = text;
        while let Some(block) = armor::first(rest) {
            let block = block.map_err(|why| format!("has a block that {why}"))?;
            match block.label {
                OPENPGP_KEY => self.openpgp.extend(openpgp::read(&block.bytes)?),
                COSIGN_KEY => self.cosign.push(cosign::TrustedKey::read(&block.bytes)?),
                label if label.contains("PRIVATE") => {
                    return Err("has a private key; replace this key, and write the public one".to_owned());
                }
                label => return Err(format!("has a block {label:?}, which is no public key")),
            }
            rest = block.rest;
        }
        if rest.len() == text.len() {
            self.ssh.extend(ssh::read(text)?);
        }
        if self.count() == before { Err("has no public key".to_owned()) } else { Ok(()) }
    }

    fn count(&self) -> usize {
        self.ssh.len() + self.openpgp.len() + self.cosign.len()
    }

    /// Verifies a commit by the content of its object.
    ///
    /// # Errors
    ///
    /// [`Unverified`] unless a trusted key signed it.
    pub fn verify_commit(&self, content: &[u8]) -> Result<Signer, Unverified> {
        self.verify(&git::commit(content)?)
    }

    /// Verifies an annotated tag by the content of its object. [`tag_of`](crate::tag_of) says what the tag leads to.
    ///
    /// # Errors
    ///
    /// [`Unverified`] unless a trusted key signed it.
    pub fn verify_tag(&self, content: &[u8]) -> Result<Signer, Unverified> {
        self.verify(&git::tag(content)?)
    }

    fn verify(&self, signed: &git::Signed) -> Result<Signer, Unverified> {
        let armored = std::str::from_utf8(&signed.signature).map_err(|_| Unverified::invalid("is not armored"))?;
        match armored.split_once("-----BEGIN ").map_or("", |(_, rest)| rest) {
            label if label.starts_with("SSH SIGNATURE-----") => ssh::verify(&self.ssh, armored, &signed.payload),
            label if label.starts_with("PGP SIGNATURE-----") => {
                openpgp::verify(&self.openpgp, armored, &signed.payload)
            }
            label if label.starts_with("SIGNED MESSAGE-----") => {
                Err(Unverified::invalid("is one of X.509, which is not supported; sign with SSH or OpenPGP"))
            }
            _ => Err(Unverified::invalid("is neither one of SSH nor of OpenPGP")),
        }
    }

    /// Verifies a signature of cosign for the artifact with a digest, `sha256:<hex>`. `payload` is the signed document, and
    /// `signature` is base64.
    ///
    /// # Errors
    ///
    /// [`Unverified`] unless a trusted key signed a payload about this digest.
    pub fn verify_artifact(&self, digest: &str, payload: &[u8], signature: &str) -> Result<Signer, Unverified> {
        cosign::verify(&self.cosign, digest, payload, signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_without_public_keys_are_refused() {
        let error = |text: &str| TrustedKeys::read([("publicKeys[0]", text)]).unwrap_err().to_string();
        assert_eq!(error(""), "publicKeys[0] has no public key");
        assert_eq!(error("# none\n"), "publicKeys[0] has no public key");
        let private = "-----BEGIN OPENSSH PRIVATE KEY-----\naGVsbG8=\n-----END OPENSSH PRIVATE KEY-----\n";
        assert!(error(private).starts_with("publicKeys[0] has a private key"));
        assert!(error("-----BEGIN X-----\nAA==\n-----END X-----\n").contains("which is no public key"));
        assert!(error("-----BEGIN PUBLIC KEY-----\nAA==\n-----END PUBLIC KEY-----\n").contains("ECDSA key of P-256"));
        assert!(error("-----BEGIN PUBLIC KEY-----\nAA==\n").contains("has a block that has no end"));
        let pgp = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nAA==\n-----END PGP PUBLIC KEY BLOCK-----\n";
        assert!(error(pgp).contains("OpenPGP"));
    }

    #[test]
    fn signatures_of_other_forms_are_invalid() {
        let keys = TrustedKeys::default();
        let commit = |signature: &str| {
            let text = format!("tree 1\ngpgsig {signature}\n\nm\n");
            keys.verify_commit(text.as_bytes()).unwrap_err().to_string()
        };
        assert!(commit("-----BEGIN SIGNED MESSAGE-----").contains("X.509"));
        assert!(commit("x").contains("neither one of SSH nor of OpenPGP"));
        assert!(commit("-----BEGIN SSH SIGNATURE-----").contains("cannot be read"));
        assert!(commit("-----BEGIN PGP SIGNATURE-----").contains("cannot be read"));
    }
}
