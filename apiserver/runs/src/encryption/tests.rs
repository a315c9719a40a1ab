use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

use super::*;

const SCOPE: &str = "shop/5f0c7f44";

fn spec(password: &str) -> Spec {
    let secret = |name: &str| {
        json!({"id": format!("v1:Secret:shop:{name}"), "type": "Kubernetes", "attributes": {"apiVersion": "v1",
            "kind": "Secret", "metadata": {"name": name}, "stringData": {"password": password, "again": password}}})
    };
    serde_json::from_value(json!({"resources": [secret("a"), secret("b")], "context": {"TOKEN": password}})).unwrap()
}

fn text(spec: &Spec) -> String {
    serde_json::to_string(spec).unwrap()
}

/// The sealed text of `password` of the first resource, to be changed.
fn password(spec: &mut Spec) -> &mut Value {
    &mut spec.resources[0].attributes["stringData"]["password"]["$sealed"]
}

#[test]
fn encrypted_value_hides_and_keeps_its_text() {
    let (encryption, clear) = (Encryption::with_keys(&[1]), spec("hunter2"));
    let kept = encryption.encrypt(SCOPE, &clear);
    for told in ["hunter2", &STANDARD.encode("hunter2"), "TOKEN"] {
        assert!(!text(&kept).contains(told), "{}", text(&kept));
    }
    assert_eq!(encryption.decrypt(SCOPE, &kept), Ok(clear));
}

#[test]
fn encryption_is_deterministic_per_value() {
    let kept = text(&Encryption::with_keys(&[1]).encrypt(SCOPE, &spec("hunter2")));
    assert_eq!(text(&Encryption::with_keys(&[1, 2]).encrypt(SCOPE, &spec("hunter2"))), kept);
    for other in [
        Encryption::with_keys(&[2]).encrypt(SCOPE, &spec("hunter2")),
        Encryption::with_keys(&[1]).encrypt("shop/another", &spec("hunter2")),
        Encryption::with_keys(&[1]).encrypt(SCOPE, &spec("hunter3")),
    ] {
        let sealed = |text: &str| {
            text.split('"')
                .filter(|part| part.starts_with("v1:") && !part.contains("Secret"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let (one, two) = (sealed(&kept), sealed(&text(&other)));
        assert_eq!((one.len(), two.len()), (5, 5));
        assert!(one.iter().all(|part| !two.contains(part)));
        // Nor are equal values in different places.
        assert!(one.iter().enumerate().all(|(index, part)| !one[..index].contains(part)));
    }
}

#[test]
fn lengths_are_told_in_steps() {
    let length =
        |value: &str| password(&mut Encryption::with_keys(&[1]).encrypt(SCOPE, &spec(value))).as_str().unwrap().len();
    assert_eq!(length("a"), length("a longer one with 30 letters.."));
    assert!(length(&"a".repeat(31)) > length("a"));
}

#[test]
fn what_was_moved_opens_nowhere_else() {
    let encryption = Encryption::with_keys(&[1]);
    let kept = encryption.encrypt(SCOPE, &spec("hunter2"));
    let told = |spec: &Spec| encryption.decrypt(SCOPE, spec).unwrap_err().to_string();
    assert!(encryption.decrypt("shop/another", &kept).is_err(), "another stack's");
    for (to, name) in [(0, "again"), (1, "password")] {
        let mut moved = kept.clone();
        let sealed = moved.resources[0].attributes["stringData"]["password"].clone();
        moved.resources[to].attributes["stringData"][name] = sealed;
        assert!(told(&moved).contains(name), "{}", told(&moved));
    }
    let mut moved = kept.clone();
    moved.context = Some(kept.resources[0].attributes["stringData"]["password"].clone());
    assert!(told(&moved).contains(r#"[null,"context"]"#), "{}", told(&moved));
}

#[test]
fn missing_key_is_named_and_older_key_decrypts() {
    let kept = Encryption::with_keys(&[1]).encrypt(SCOPE, &spec("hunter2"));
    assert_eq!(Encryption::with_keys(&[2]).decrypt(SCOPE, &kept), Err(DecryptError::NoKey(key_name(1))));
    assert_eq!(Encryption::with_keys(&[2, 1]).decrypt(SCOPE, &kept), Ok(spec("hunter2")));
}

#[test]
fn other_forms_are_left_to_later_versions() {
    let encryption = Encryption::with_keys(&[1]);
    for other in ["v2:00000000:AAAA", "v1", "v1:00000000", "", "v1:00000000:no base64!"] {
        let mut kept = encryption.encrypt(SCOPE, &spec("hunter2"));
        *password(&mut kept) = json!(other);
        assert!(matches!(encryption.decrypt(SCOPE, &kept), Err(DecryptError::Unknown(_))), "{other}");
    }
}

#[test]
fn provider_state_opens_for_its_resource_only() {
    let (encryption, id) = (Encryption::with_keys(&[1]), ResourceId::from("a"));
    let clear = ProviderState::Open("hunter2 \u{e9}\n".to_owned());
    let sealed = encryption.seal_state(SCOPE, &id, &clear);
    assert_eq!(encryption.open_state(SCOPE, &id, &sealed), Ok(clear.clone()));
    assert_eq!(encryption.seal_state(SCOPE, &id, &sealed), sealed, "it is encrypted once");
    assert_eq!(encryption.seal_state(SCOPE, &id, &clear), sealed, "an unchanged state has an equal text");
    assert_eq!(Encryption::with_keys(&[2, 1]).open_state(SCOPE, &id, &sealed), Ok(clear));
    let other_keys = Encryption::with_keys(&[2]);
    assert_eq!(other_keys.open_state(SCOPE, &id, &sealed), Err(DecryptError::NoKey(key_name(1))));
    assert!(other_keys.is_of_old_key(&sealed) && !encryption.is_of_old_key(&sealed));
    for (scope, id) in [(SCOPE, "b"), ("shop/another", "a")] {
        let opened = encryption.open_state(scope, &id.into(), &sealed);
        assert!(matches!(opened, Err(DecryptError::Changed(_))), "{scope} {id}");
    }
    // Neither opens in a Spec, nor a value of a Spec as a provider state.
    let ProviderState::Sealed(text) = sealed else { panic!("it is encrypted") };
    let spec = |value: Value| -> Spec {
        let attributes = json!({"kind": "Secret", "data": {"providerState": value.clone()}, "providerState": value});
        let resource = json!({"id": "a", "type": "Kubernetes", "attributes": attributes});
        serde_json::from_value(json!({"resources": [resource]})).unwrap()
    };
    let opened = encryption.decrypt(SCOPE, &spec(json!({"$sealed": text})));
    assert!(matches!(opened, Err(DecryptError::Changed(_))));
    let kept = encryption.encrypt(SCOPE, &spec(json!("hunter2")));
    let value = kept.resources[0].attributes["providerState"]["$sealed"].as_str().unwrap();
    let opened = encryption.open_state(SCOPE, &id, &ProviderState::Sealed(value.to_owned()));
    assert!(matches!(opened, Err(DecryptError::Changed(_))));
}

#[test]
fn digest_keys_differ_between_deployments() {
    let keys = Encryption::with_keys(&[1, 2]).digest_keys(SCOPE, "dev");
    assert_eq!(
        keys,
        [Encryption::with_keys(&[1]).digest_keys(SCOPE, "dev"), Encryption::with_keys(&[2]).digest_keys(SCOPE, "dev")]
            .concat()
    );
    assert_ne!(keys, Encryption::with_keys(&[1, 2]).digest_keys(SCOPE, "prod"));
    assert_ne!(keys, Encryption::with_keys(&[1, 2]).digest_keys("shop/another", "dev"));
}

#[test]
fn keys_reload_unless_the_file_is_broken() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("keys");
    let line = |byte: u8| STANDARD.encode([byte; 32]) + "\n";
    std::fs::write(&path, line(1)).unwrap();
    let encryption = Encryption::open(Some(&path), false, folder.path()).unwrap();
    let kept = encryption.encrypt(SCOPE, &spec("hunter2"));
    assert!(!encryption.reload().unwrap(), "nothing is new");
    std::fs::write(&path, line(2) + &line(1)).unwrap();
    assert!(encryption.reload().unwrap());
    assert_eq!(encryption.decrypt(SCOPE, &kept), Ok(spec("hunter2")));
    assert_ne!(encryption.encrypt(SCOPE, &spec("hunter2")), kept);
    std::fs::write(&path, "").unwrap();
    encryption.reload().unwrap_err();
    assert_eq!(encryption.decrypt(SCOPE, &kept), Ok(spec("hunter2")));
}

#[test]
fn reload_does_not_wait_for_users_of_keys() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("keys");
    let line = |byte: u8| STANDARD.encode([byte; 32]) + "\n";
    std::fs::write(&path, line(1)).unwrap();
    let encryption = Encryption::open(Some(&path), false, folder.path()).unwrap();
    let taken = encryption.keys();
    std::fs::write(&path, line(2)).unwrap();
    assert!(encryption.reload().unwrap(), "they were taken out and are not locked");
    assert_eq!((taken[0].name(), encryption.keys()[0].name()), (key_name(1).as_str(), key_name(2).as_str()));
    // Whoever waits to write holds up all who come to read.
    let reading = encryption.keys.read();
    assert!(!encryption.reload().unwrap(), "nothing is new, and nothing is written");
    drop(reading);
}

fn key_name(byte: u8) -> String {
    EncryptionKey::new([byte; 32]).name().to_owned()
}

#[test]
fn replicas_need_to_be_given_a_key() {
    let folder = TempDir::new().unwrap();
    let told = Encryption::open(None, true, folder.path()).unwrap_err().to_string();
    assert!(told.contains("--sealing-key-file") && told.contains("/dev/urandom"), "{told}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "none is made for one of them alone");
    let missing = Encryption::open(Some(&folder.path().join("none")), false, folder.path()).unwrap_err();
    assert!(missing.to_string().contains("none"), "{missing}");
    Encryption::open(None, false, folder.path()).unwrap();
}

proptest! {
    #[test]
    fn what_was_changed_does_not_open(value in ".{0,40}", at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let encryption = Encryption::with_keys(&[1]);
        let clear = spec(&value);
        let mut kept = encryption.encrypt(SCOPE, &clear);
        prop_assert_eq!(encryption.decrypt(SCOPE, &kept), Ok(clear));
        let sealed = password(&mut kept).clone();
        let (head, body) = sealed.as_str().unwrap().rsplit_once(':').unwrap();
        let mut bytes = STANDARD.decode(body).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        for changed in [&bytes[..], &bytes[..at]] {
            *password(&mut kept) = Value::from(format!("{head}:{}", STANDARD.encode(changed)));
            prop_assert!(matches!(encryption.decrypt(SCOPE, &kept), Err(DecryptError::Changed(_))));
        }
    }
}
