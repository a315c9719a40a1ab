//! Keys and signatures that GnuPG 2.2.40 made, in `tests/data`. The keys are of 2026-01-01, the signatures of 2026-01-05.

use super::*;

macro_rules! data {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/", $name))
    };
}

const MESSAGE: &[u8] = b"hello\n";

fn certificates(armored: &str) -> Result<Vec<Certificate>, String> {
    read(&armor::first(armored).unwrap().unwrap().bytes)
}

#[track_caller]
fn verified(key: &str, signature: &str, message: &[u8]) -> Result<Signer, String> {
    verify(&certificates(key).unwrap(), signature, message).map_err(|error| error.to_string())
}

#[test]
fn signatures_of_every_algorithm_are_verified() {
    for (key, signature, user) in [
        (data!("ed.asc"), data!("ed.sig"), "ed <ed@example.com>"),
        (data!("rsa.asc"), data!("rsa.sig"), "rsa <rsa@example.com>"),
        (data!("p256.asc"), data!("p256.sig"), "p256 <p256@example.com>"),
        (data!("p384.asc"), data!("p384.sig"), "p384 <p384@example.com>"),
        (data!("sub.asc"), data!("sub.sig"), "sub <sub@example.com>"),
    ] {
        let signer = verified(key, signature, MESSAGE).unwrap();
        assert_eq!(signer.name, user);
        assert_eq!(signer.key.len(), 40);
        let error = verified(key, signature, b"hello").unwrap_err();
        assert!(error.contains("does not match the content"), "{user}: {error}");
    }
}

#[test]
fn signature_of_a_subkey_names_the_subkey() {
    let signer = verified(data!("sub.asc"), data!("sub.sig"), MESSAGE).unwrap();
    let primary = &certificates(data!("sub.asc")).unwrap()[0].primary().key().fingerprint.clone();
    assert_ne!(&signer.key, primary);
}

#[test]
fn keys_count_within_their_limits_only() {
    let at_its_time = verified(data!("short.asc"), data!("short.sig"), MESSAGE);
    assert!(at_its_time.is_ok(), "{at_its_time:?}");
    let late = verified(data!("short.asc"), data!("late.sig"), MESSAGE).unwrap_err();
    assert!(late.contains("had expired at the time of the signature"), "{late}");
    let revoked = verified(data!("revoked.asc"), data!("revoked.sig"), MESSAGE).unwrap_err();
    assert!(revoked.contains("which is revoked"), "{revoked}");
    // The certificate from before, which an older list may still have beside the new one.
    let bytes = armor::first(data!("revoked.asc")).unwrap().unwrap().bytes;
    let all: Vec<_> = packets(&bytes).map(Result::unwrap).collect();
    let end = |index: usize| all[index].body.as_ptr() as usize - bytes.as_ptr() as usize + all[index].body.len();
    assert_eq!(Signature::read(all[1].body).unwrap().kind, 0x20);
    let before = read(&[&bytes[..end(0)], &bytes[end(1)..]].concat()).unwrap();
    assert!(verify(&before, data!("revoked.sig"), MESSAGE).is_ok());
    let both = [before, certificates(data!("revoked.asc")).unwrap()].concat();
    let error = verify(&both, data!("revoked.sig"), MESSAGE).unwrap_err().to_string();
    assert!(error.contains("which is revoked"), "{error}");
    let other = verified(data!("ed.asc"), data!("rsa.sig"), MESSAGE).unwrap_err();
    assert!(other.ends_with("which is no trusted key"), "{other}");
    let broken = verified(data!("ed.asc"), data!("sha1.sig"), MESSAGE).unwrap_err();
    assert!(broken.contains("uses SHA-1, which is broken"), "{broken}");
}

#[test]
fn keys_that_cannot_sign_are_refused() {
    let error = certificates(data!("dsa.asc")).unwrap_err();
    assert!(error.contains("without a self-signature") || error.contains("no part of which signs"), "{error}");
    // Without the packets after the first, nothing says what the key is for.
    let bytes = armor::first(data!("ed.asc")).unwrap().unwrap().bytes;
    let error = read(&bytes[..53]).unwrap_err();
    assert!(error.contains("without a self-signature: it has none"), "{error}");
    assert!(read(&bytes[..40]).unwrap_err().contains("ends too early"));
    assert!(read(&bytes[53..]).unwrap_err().contains("where a public key begins"));
}

#[test]
fn every_changed_byte_breaks_a_signature() {
    let trusted = certificates(data!("ed.asc")).unwrap();
    let bytes = armor::first(data!("ed.sig")).unwrap().unwrap().bytes;
    let body = packets(&bytes).next().unwrap().unwrap().body;
    let protected = 6 + usize::from(u16::from_be_bytes([body[4], body[5]]));
    let start = bytes.len() - body.len();
    for at in start..start + protected {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let armored = super::tests::armored(&changed);
        assert!(verify(&trusted, &armored, MESSAGE).is_err(), "byte {at}");
    }
    assert!(verify(&trusted, &armored(&bytes), MESSAGE).is_ok());
}

fn armored(bytes: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    format!("-----BEGIN PGP SIGNATURE-----\n\n{text}\n-----END PGP SIGNATURE-----\n")
}
