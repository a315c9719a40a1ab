//! Files of a stack that SOPS encrypted: decrypted in a worker, right before the generator reads them.
//!
//! Start at [`decrypted`] for the content of a path, and at [`decrypt_all`] for files of a tree. The age keys of the Workspace come with the job. The decrypted values are secret values of the
//! stack: declared sensitive in its Spec, and hidden in its messages.

use stoa_proto::{Problem, Value};
use stoa_sops::age::{Identity, identities};
use tonic::Code;

use super::SecretValues;
use super::generator::Values;
use crate::failure::{Failure, problem, reason};
use crate::source::{Content, SourceFile};

/// The content with decrypted files, and the values in them. Without age keys, it stays as it is.
pub(super) fn decrypted(mut content: Content, values: &Values) -> Result<(Content, SecretValues), Failure> {
    let secrets = decrypt_all(content.files_mut(), values)?;
    Ok((content, SecretValues::of(&secrets)))
}

/// Decrypts files, and returns the values in them. Without age keys, the files stay as they are.
pub(super) fn decrypt_all(files: &mut [SourceFile], values: &Values) -> Result<Vec<Value>, Failure> {
    let mut secrets = Vec::new();
    if values.age_keys.is_empty() || !files.iter().any(may_be_encrypted) {
        return Ok(secrets);
    }
    let keys = values.age_keys.iter().map(|(key, value)| (key.as_str(), &value[..]));
    let identities = identities(keys).map_err(|error| {
        let message = format!("the Secret of spec.sops of the Workspace: {error}");
        Failure::new(Code::InvalidArgument, reason::NOT_DECRYPTED, message)
    })?;
    let mut problems = Vec::new();
    for file in files.iter_mut().filter(|file| may_be_encrypted(file)) {
        match decrypt(file, &identities) {
            Ok(found) => secrets.extend(found),
            Err(problem) => problems.push(*problem),
        }
    }
    if problems.is_empty() { Ok(secrets) } else { Err(Failure::invalid(problems)) }
}

/// Whether SOPS may have encrypted a file.
pub(super) fn may_be_encrypted(file: &SourceFile) -> bool {
    std::str::from_utf8(&file.bytes).is_ok_and(stoa_sops::may_be_encrypted)
}

/// Decrypts a file, and returns its secret values.
fn decrypt(file: &mut SourceFile, identities: &[Identity]) -> Result<Vec<Value>, Box<Problem>> {
    let text = std::str::from_utf8(&file.bytes).unwrap_or_default();
    let decrypted = stoa_sops::decrypt(text, identities).map_err(|error| {
        let message =
            format!("{error}; check ageKeySecretRef in spec.sops of the Workspace, or encrypt the file again");
        Box::new(Problem { file: file.path.clone(), ..problem(reason::NOT_DECRYPTED, message) })
    })?;
    let Some(decrypted) = decrypted else { return Ok(Vec::new()) };
    file.bytes = decrypted.text.into_bytes();
    let value = |(path, text): (String, String)| Value {
        name: format!("{path} of {}", file.path),
        json: serde_json::Value::String(text).to_string(),
        sensitive: true,
        ..Value::default()
    };
    Ok(decrypted.secrets.into_iter().map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../sops/tests/data/secret.enc.yaml"));
    const KEYS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../sops/tests/data/keys.txt"));
    const OTHER: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../sops/tests/data/other.txt"));

    fn content() -> Content {
        let file = |path: &str, text: &str| SourceFile { path: path.to_owned(), bytes: text.as_bytes().to_vec() };
        let plain = "apiVersion: v1\nkind: Namespace\nmetadata: {name: sops-web}\n";
        let files = vec![file("web/a.yaml", plain), file("web/secret.yaml", FILE)];
        Content::Folder { path: "web".to_owned(), files, others: Vec::new(), warnings: Vec::new() }
    }

    fn values(keys: &[&str]) -> Values {
        let keys = keys.iter().enumerate().map(|(at, key)| (format!("{at}.agekey"), (*key).to_owned().into()));
        Values { age_keys: keys.collect(), ..Values::default() }
    }

    #[test]
    fn decrypted_values_are_secret() {
        let (content, secrets) = decrypted(content(), &values(&[OTHER, KEYS])).unwrap();
        let text = String::from_utf8(content.files()[1].bytes.clone()).unwrap();
        assert!(text.contains("password: \"hunter2-and-more\"") && !text.contains("sops:"), "{text}");
        assert_eq!(secrets.redact("x hunter2-and-more"), "x (sensitive)");
    }

    #[test]
    fn files_stay_without_a_key() {
        let (same, secrets) = decrypted(content(), &values(&[])).unwrap();
        assert!(same.files() == content().files() && secrets.is_empty());
    }

    #[test]
    fn wrong_keys_name_the_file() {
        let failure = |keys: &[&str]| decrypted(content(), &values(keys)).unwrap_err().problems()[0].clone();
        let problem = failure(&[OTHER]);
        assert_eq!((problem.reason.as_str(), problem.file.as_str()), (reason::NOT_DECRYPTED, "web/secret.yaml"));
        assert!(problem.message.contains("no age key of the Secret opens it"), "{problem:?}");
        assert!(failure(&["x"]).message.contains("the Secret of spec.sops of the Workspace: key \"0.agekey\""));
    }
}
