//! Files that the program `sops` encrypts: decrypted to the values that it had, and refused when altered.

#![expect(clippy::unwrap_used, reason = "the lint knows tests, not their helpers")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use stoa_sops::age::{Identity, identities};
use stoa_sops::{SopsError, decrypt};
use tempfile::TempDir;

const KEYS: &str = include_str!("data/keys.txt");

/// The program, if there is one to test with.
fn program() -> Option<PathBuf> {
    let program = std::env::var_os("STOA_TEST_SOPS").map(PathBuf::from);
    if program.is_none() {
        eprintln!("skipped: STOA_TEST_SOPS names no program");
    }
    program
}

fn keys() -> Vec<Identity> {
    identities([("a.agekey", KEYS.as_bytes())]).unwrap()
}

/// The public key in the comment of `age-keygen`.
fn recipient() -> &'static str {
    KEYS.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap()
}

/// Encrypts a file by a rule.
fn encrypted(program: &Path, name: &str, text: &str, rule: &str) -> String {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join(name), text).unwrap();
    let rules = format!("creation_rules:\n- age: {}\n{rule}", recipient());
    fs::write(folder.path().join(".sops.yaml"), rules).unwrap();
    let output = Command::new(program).args(["encrypt", name]).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

/// Files of both formats, with the things that their readers differ in.
const FILES: [(&str, &str); 5] = [
    ("a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {user: shop, password: hunter2}\n"),
    (
        "b.yaml",
        "# first\na: 1\n---\nb:\n# inside\n- c: true\n  d: -2.5\n- e: \"\"\n- null\n# last\n---\nf: |\n  two\n  lines\n",
    ),
    (
        "c.yaml",
        "a: '12'\nb: 12\nc: 0.1\nd: 2.5\ne: 'true'\nf: \"quoted \\\" \\n text: {x}\"\ng_unencrypted: [1, x, true]\n",
    ),
    (
        "d.json",
        "{\"data\": {\"password\": \"hunter2\", \"n\": 1, \"list\": [1.5, \"x\", false, null]}, \"kind\": \"X\"}",
    ),
    (
        "e.yaml",
        "data:\n  config.json: |\n    {\"sops\": \"ENC[AES256_GCM,\"}\n  key with space: x\nlist: [[a, b], [c]]\n",
    ),
];

const RULES: [&str; 5] = [
    "",
    "  encrypted_regex: ^(data|stringData|a|b)$\n",
    "  unencrypted_regex: ^(kind|metadata|apiVersion)$\n",
    "  encrypted_suffix: word\n",
    "  encrypted_regex: ^(data|b)$\n  mac_only_encrypted: true\n",
];

#[test]
fn files_of_sops_have_their_values() {
    let Some(program) = program() else { return };
    for (name, text) in FILES {
        for rule in RULES {
            let sealed = encrypted(&program, name, text, rule);
            let case = format!("{name} with {rule:?}:\n{sealed}");
            let found = decrypt(&sealed, &keys()).unwrap_or_else(|error| panic!("{error}\n{case}"));
            let found = match found {
                Some(found) => documents(&found.text),
                // No value was encrypted, but the MAC is.
                None => panic!("it is one of SOPS\n{case}"),
            };
            assert_eq!(found, documents(text), "{case}");
        }
    }
}

#[test]
fn altered_files_of_sops_are_refused() {
    let Some(program) = program() else { return };
    let text = "kind: Secret\nname: a\nstringData: {user: shop, password: hunter2}\n";
    let sealed = encrypted(&program, "a.yaml", text, "  encrypted_regex: ^stringData$\n");
    let refused = |altered: String| decrypt(&altered, &keys()).unwrap_err();
    assert_eq!(refused(sealed.replace("name: a", "name: b")), SopsError::Mac);
    assert_eq!(refused(sealed.replace("name: a\n", "")), SopsError::Mac);
    let moved = sealed.replace("user:", "password2:");
    assert_eq!(refused(moved), SopsError::Value("stringData.password2".to_owned()));
    let rule = sealed.replace("encrypted_regex: ^stringData$", "encrypted_regex: ^name$");
    assert_eq!(refused(rule), SopsError::Value("name".to_owned()));
    assert_eq!(json!(decrypt(&sealed, &keys()).unwrap().unwrap().secrets.len()), json!(2));
}
