//! Files that SOPS 3.10.2 encrypted to the key in `data/keys.txt`.

#![expect(clippy::unwrap_used, reason = "the lint knows tests, not their helpers")]

use stoa_sops::age::{AgeError, identities};
use stoa_sops::{Decrypted, SopsError, decrypt};

const SECRET: &str = include_str!("data/secret.enc.yaml");
const VALUES: &str = include_str!("data/values.enc.yaml");
const ONLY: &str = include_str!("data/only.enc.yaml");
const JSON: &str = include_str!("data/values.enc.json");
const KEYS: &str = include_str!("data/keys.txt");
const OTHER: &str = include_str!("data/other.txt");

fn opened(text: &str, key: &str) -> Result<Option<Decrypted>, SopsError> {
    decrypt(text, &identities([("a.agekey", key.as_bytes())]).unwrap())
}

fn documents(text: &str) -> Vec<serde_json::Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

#[test]
fn every_document_is_decrypted() {
    let Decrypted { text, secrets } = opened(SECRET, KEYS).unwrap().unwrap();
    let found = documents(&text);
    assert_eq!(found[0]["stringData"], serde_json::json!({"password": "hunter2-and-more", "user": "shop"}));
    let data = serde_json::json!({"token": "token-of-the-shop", "url": "https://shop.example.com"});
    assert_eq!(found[1]["data"], data);
    assert!(found.iter().all(|document| document.get("sops").is_none()));
    let line = |text: &str, part: &str| text.lines().position(|line| line.contains(part));
    assert!(line(SECRET, "kind: ConfigMap").is_some());
    assert_eq!(line(&text, "kind: ConfigMap"), line(SECRET, "kind: ConfigMap"), "lines stay where they were");
    let paths: Vec<&str> = secrets.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["stringData.password", "stringData.user", "data.token"]);
}

#[test]
fn values_have_their_types() {
    let found = documents(&opened(VALUES, KEYS).unwrap().unwrap().text);
    let expected = serde_json::json!({"port": 5432, "ratio": 0.25, "large": 1e30, "enabled": true, "disabled": false,
        "empty": "", "nothing": null, "lines": "first\nsecond \"quoted\"\n", "list": ["a", {"name": "b", "value": "c"}],
        "public_unencrypted": "plain"});
    assert_eq!(found, [expected]);
    let only = documents(&opened(ONLY, KEYS).unwrap().unwrap().text);
    assert_eq!((&only[0]["port"], &only[0]["list"][1]["value"]), (&5432.into(), &"c".into()));
    let json = documents(&opened(JSON, KEYS).unwrap().unwrap().text);
    assert_eq!(json[0]["stringData"], serde_json::json!({"password": "hunter2-in-json", "port": "1"}));
}

#[test]
fn altered_files_and_other_keys_are_refused() {
    assert_eq!(opened(SECRET, OTHER), Err(SopsError::Age(AgeError::NotARecipient)));
    let altered = SECRET.replace("https://shop.example.com", "https://evil.example.com");
    assert_eq!(opened(&altered, KEYS), Err(SopsError::Mac));
    let removed: String =
        SECRET.lines().filter(|line| !line.contains("url:")).map(|line| format!("{line}\n")).collect();
    assert_eq!(opened(&removed, KEYS), Err(SopsError::Mac));
    // An encrypted value at another place.
    let moved = SECRET.replacen("user:", "other:", 1);
    assert_eq!(opened(&moved, KEYS), Err(SopsError::Value("stringData.other".to_owned())));
    let plain = SECRET.replacen("user: ENC[", "user: plain # ENC[", 1);
    assert_eq!(opened(&plain, KEYS), Err(SopsError::Value("stringData.user".to_owned())));
    let recipients = SECRET.replace("    age:\n", "    other:\n");
    assert_eq!(opened(&recipients, KEYS), Err(SopsError::NoRecipient));
    let rule = SECRET.replacen("    encrypted_regex:", "    encrypted_comment_regex: x\n    encrypted_regex:", 1);
    assert_eq!(opened(&rule, KEYS), Err(SopsError::Unsupported("a rule about comments")));
}

#[test]
fn other_files_stay_as_they_are() {
    for text in ["a: b\n", "sops: ENC[AES256_GCM,x]\nb: [\n", "a: ENC[AES256_GCM,sops]\n"] {
        assert_eq!(opened(text, KEYS), Ok(None), "{text}");
    }
    assert_eq!(opened("sops: ENC[AES256_GCM,x]\n", KEYS), Err(SopsError::NoRecipient));
}
