//! Sources that need signatures: real repositories with signatures of `git`, `ssh-keygen` and `gpg`, and of cosign's form.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use stoa_proto::{FilesRequest, PublicKeys, Verification};
use stoa_test_registry::Registry as Server;

use super::*;

/// A repository with SSH keys by name.
struct Signed {
    origin: Origin,
    keys: TempDir,
}

impl Signed {
    fn new() -> Self {
        Self { origin: Origin::new(), keys: TempDir::new().unwrap() }
    }

    /// The public key of a name, which is made at its first use.
    fn key(&self, name: &str, kind: &str) -> String {
        let path = self.keys.path().join(name);
        if !path.exists() {
            let words = ["-q", "-t", kind, "-N", "", "-C", name, "-f"];
            let made = Command::new("ssh-keygen").args(words).arg(&path).status().expect("OpenSSH is installed");
            assert!(made.success());
        }
        fs::read_to_string(path.with_extension("pub")).unwrap()
    }

    /// Runs `git` in the repository.
    #[track_caller]
    fn run(&self, settings: &[&str], words: &[&str]) -> String {
        let fixed = ["user.name=t", "user.email=t@example.com"];
        let settings = fixed.iter().chain(settings).flat_map(|setting| ["-c", setting]);
        let mut command = Command::new("git");
        command.current_dir(self.origin.directory.path()).args(settings).args(words);
        let output = command.env("GNUPGHOME", self.keys.path().join("gpg")).output().expect("git is installed");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The same, and returns the id of its head.
    #[track_caller]
    fn git(&self, settings: &[&str], words: &[&str]) -> String {
        self.run(settings, words);
        self.run(&[], &["rev-parse", "HEAD"])
    }

    /// A commit that a key signed.
    fn commit(&self, name: &str, kind: &str) -> String {
        self.key(name, kind);
        let key = format!("user.signingkey={}", self.keys.path().join(name).display());
        fs::write(self.origin.directory.path().join("a.yaml"), format!("a: {name}\n")).unwrap();
        self.run(&[], &["add", "a.yaml"]);
        self.git(&["gpg.format=ssh", &key], &["commit", "-q", "--allow-empty", "-S", "-m", name])
    }

    /// The source with the keys that it trusts.
    fn source(&self, texts: &[&str]) -> Source {
        let key = |(at, text): (usize, &&str)| PublicKeys {
            name: format!("spec.verify.publicKeys[{at}]"),
            text: (*text).to_owned().into(),
        };
        let verify = Verification { keys: texts.iter().enumerate().map(key).collect() };
        Source { verify: Some(verify), ..self.origin.source() }
    }

    async fn resolve(&self, texts: &[&str], version: &str) -> Result<String, (String, String)> {
        let resolved = self.origin.sources().resolve(&self.source(texts), version, "").await;
        resolved.map(|resolved| resolved.signed_by).map_err(problem)
    }
}

fn problem(failure: Failure) -> (String, String) {
    assert_eq!(failure.code(), Code::InvalidArgument, "{failure:?}");
    (failure.problems()[0].reason.clone(), failure.problems()[0].message.clone())
}

#[tokio::test]
async fn commits_of_trusted_ssh_keys_are_used() {
    let signed = Signed::new();
    for (name, kind) in [("ann", "ed25519"), ("bob", "ecdsa"), ("eve", "rsa")] {
        let commit = signed.commit(name, kind);
        let key = signed.key(name, kind);
        let signer = signed.resolve(&[&key], "latest").await.unwrap();
        assert!(signer.starts_with("SHA256:") && signer.ends_with(&format!("({name})")), "{signer}");
        let source = signed.source(&[&key]);
        let read = signed.origin.sources().read(&source, &commit, "a.yaml").await.unwrap();
        assert_eq!(read.files()[0].bytes, format!("a: {name}\n").as_bytes());
        let other = signed.key("other", "ed25519");
        let (reason, message) = signed.resolve(&[&other], "latest").await.unwrap_err();
        assert_eq!(reason, reason::SIGNATURE_UNTRUSTED);
        let id = signer.split(' ').next().unwrap();
        assert!(message.contains(&format!("has a signature by {id}, which is no trusted key")), "{message}");
    }
}

#[tokio::test]
async fn unsigned_commit_is_refused_by_every_question() {
    let signed = Signed::new();
    let key = signed.key("ann", "ed25519");
    let commit = signed.origin.commit("plain", &[("a.yaml", "a: 1")]).to_string();
    let (sources, source) = (signed.origin.sources(), signed.source(&[&key]));
    let paths = || vec!["a.yaml".to_owned()];
    // A source without keys uses the commit first, and what it leaves is for no other.
    assert!(sources.tree(&signed.origin.source(), &commit).await.is_ok());
    let of_package = FilesRequest { commit: commit.clone(), ..FilesRequest::default() };
    let failures = [
        sources.resolve(&source, "latest", "").await.map(drop),
        sources.look(&source, "", Vec::new()).await.map(drop),
        sources.contents(&source, &commit, paths()).await.map(drop),
        sources.read(&source, &commit, "a.yaml").await.map(drop),
        sources.file(&source, &commit, "a.yaml", 100).await.map(drop),
        sources.tree(&source, &commit).await.map(drop),
        sources.package_files(&source, of_package).await.map(drop),
    ];
    for failure in failures {
        let (reason, message) = problem(failure.unwrap_err());
        assert_eq!(reason, reason::SIGNATURE_MISSING);
        assert!(message.contains(&format!("commit {commit}")) && message.contains("has no signature"), "{message}");
    }
    // A comparison uses no content, and a source without keys needs no signature.
    assert!(sources.changed(&source, &commit, &commit, paths()).await.is_ok());
    assert!(sources.read(&signed.origin.source(), &commit, "a.yaml").await.is_ok());
    let (reason, message) = signed.resolve(&["ssh-ed25519 AAAA"], "latest").await.unwrap_err();
    assert_eq!(reason, reason::INVALID_KEYS);
    assert!(message.starts_with("spec.verify.publicKeys[0] line 1: is no public key"), "{message}");
    assert_eq!(signed.resolve(&[], "latest").await.unwrap_err().0, reason::INVALID_KEYS);
}

#[tokio::test]
async fn altered_commit_is_refused() {
    let signed = Signed::new();
    let commit = signed.commit("ann", "ed25519");
    let repository = signed.origin.repository();
    let odb = repository.odb().unwrap();
    let content = odb.read(Oid::from_str(&commit).unwrap()).unwrap().data().to_vec();
    let altered = String::from_utf8(content).unwrap().replace("\n\nann\n", "\n\nbob\n");
    let altered = odb.write(git2::ObjectType::Commit, altered.as_bytes()).unwrap();
    repository.reference("refs/heads/altered", altered, true, "").unwrap();
    let key = signed.key("ann", "ed25519");
    let (reason, message) = signed.resolve(&[&key], "altered").await.unwrap_err();
    assert_eq!(reason, reason::SIGNATURE_INVALID);
    assert!(message.contains("does not match the content (key SHA256:"), "{message}");
    assert!(signed.resolve(&[&key], "latest").await.is_ok());
}

#[tokio::test]
async fn signed_tag_vouches_for_its_commit_by_its_name() {
    let signed = Signed::new();
    let key = signed.key("ann", "ed25519");
    let commit = signed.origin.commit("plain", &[("a.yaml", "a: 1")]).to_string();
    let sources = signed.origin.sources();
    let source = signed.source(&[&key]);
    assert!(sources.read(&source, &commit, "a.yaml").await.is_err());
    let by = format!("user.signingkey={}", signed.keys.path().join("ann").display());
    signed.git(&["gpg.format=ssh", &by], &["tag", "-s", "v1", "-m", "one"]);
    // The runner has the commit already, and fetches the tag.
    assert!(sources.read(&source, &commit, "a.yaml").await.is_ok());
    assert!(signed.resolve(&[&key], "v1").await.unwrap().ends_with("(ann)"));
    let next = signed.origin.commit("next", &[("a.yaml", "a: 2")]).to_string();
    assert_eq!(signed.resolve(&[&key], &next).await.unwrap_err().0, reason::SIGNATURE_MISSING);
    signed.git(&["gpg.format=ssh", &by], &["tag", "-s", "v2", "-m", "two"]);
    assert!(signed.resolve(&[&key], &next).await.is_ok());
    // The same tag by another name is a rollback by somebody else.
    signed.git(&[], &["update-ref", "refs/tags/v3", "refs/tags/v2"]);
    signed.git(&[], &["update-ref", "-d", "refs/tags/v2"]);
    let moved = Origin { caches: TempDir::new().unwrap(), directory: signed.origin.directory };
    let failure = moved.sources().resolve(&source, "v3", "").await.unwrap_err();
    assert_eq!(failure.problems()[0].reason, reason::SIGNATURE_MISSING);
}

#[tokio::test]
async fn commits_of_gpg_agree_with_git() {
    if Command::new("gpg").arg("--version").output().is_err() {
        eprintln!("skipped: gpg is not installed");
        return;
    }
    let signed = Signed::new();
    let home = signed.keys.path().join("gpg");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    let gpg = |words: &[&str]| {
        let fixed = ["--batch", "--quiet", "--pinentry-mode=loopback", "--passphrase="];
        let output = Command::new("gpg").env("GNUPGHOME", &home).args(fixed).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    for (name, algorithm) in [("ann", "ed25519"), ("bob", "rsa2048"), ("eve", "nistp256")] {
        let user = format!("{name} <{name}@example.org>");
        gpg(&["--quick-generate-key", &user, algorithm, "sign,cert", "never"]);
        let armored = gpg(&["--armor", "--export", &format!("={user}")]);
        let by = format!("user.signingkey={name}@example.org");
        let commit = signed.git(&[&by], &["commit", "-q", "--allow-empty", "-S", "-m", name]);
        signed.git(&[], &["verify-commit", &commit]);
        let signer = signed.resolve(&[&armored], &commit).await.unwrap();
        assert!(signer.ends_with(&format!("({user})")) && signer.len() > 40, "{signer}");
        let other = signed.key("other", "ed25519");
        assert_eq!(signed.resolve(&[&other], &commit).await.unwrap_err().0, reason::SIGNATURE_UNTRUSTED);
    }
    let _ = Command::new("gpgconf").env("GNUPGHOME", &home).args(["--kill", "gpg-agent"]).status();
}

#[tokio::test]
async fn artifact_needs_a_signature_of_cosign() {
    if !Server::is_there() {
        eprintln!("skipped: STOA_TEST_REGISTRY and STOA_TEST_ORAS name no programs");
        return;
    }
    let server = Server::start();
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("a.yaml"), "a: 1\n").unwrap();
    let digest = server.push_flux("shop/config:1.0.0", folder.path());
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random).unwrap();
    // The subject of a key of P-256, before its point.
    let prefix = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE";
    let public = format!(
        "-----BEGIN PUBLIC KEY-----\n{prefix}{}\n-----END PUBLIC KEY-----\n",
        STANDARD.encode(&pair.public_key().as_ref()[1..])
    );
    let other = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
    let other = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, other.as_ref(), &random).unwrap();
    let sign_by = |of: &str, pair: &EcdsaKeyPair, certificate: Option<&str>| {
        let payload = format!(
            r#"{{"critical":{{"identity":{{"docker-reference":""}},"image":{{"docker-manifest-digest":"{of}"}},"type":"cosign container image signature"}},"optional":null}}"#
        );
        fs::write(folder.path().join("payload.json"), &payload).unwrap();
        let signature = STANDARD.encode(pair.sign(&random, payload.as_bytes()).unwrap());
        let mut annotations = serde_json::json!({"payload.json": {"dev.cosignproject.cosign/signature": signature}});
        if let Some(certificate) = certificate {
            annotations["payload.json"]["dev.sigstore.cosign/certificate"] = certificate.into();
        }
        fs::write(folder.path().join("annotations.json"), annotations.to_string()).unwrap();
        let layer = "payload.json:application/vnd.dev.cosign.simplesigning.v1+json";
        let tag = format!("shop/config:{}.sig", digest.replace(':', "-"));
        server.push(&tag, &["--annotation-file=annotations.json", layer], folder.path());
    };
    let sign = |of: &str| sign_by(of, &pair, None);
    let caches = TempDir::new().unwrap();
    let key = PublicKeys { name: "spec.verify.publicKeys[0]".to_owned(), text: public.into() };
    let source = Source {
        provider: "OCI".to_owned(),
        remote: format!("oci://{}/shop/config", server.host()),
        verify: Some(Verification { keys: vec![key] }),
        ..Source::default()
    };
    let resolve = async || sources_in(caches.path()).resolve(&source, "1.0.0", "").await;
    let (reason, message) = problem(resolve().await.unwrap_err());
    assert_eq!(reason, reason::SIGNATURE_MISSING);
    assert!(message.contains(&format!("shop/config@{digest} has no signature")), "{message}");
    sign("sha256:00");
    let (reason, message) = problem(resolve().await.unwrap_err());
    assert_eq!(reason, reason::SIGNATURE_INVALID);
    assert!(message.contains("is for sha256:00 instead of"), "{message}");
    sign_by(&digest, &other, Some("-----BEGIN CERTIFICATE-----"));
    let (reason, message) = problem(resolve().await.unwrap_err());
    assert_eq!(reason, reason::SIGNATURE_UNTRUSTED);
    assert!(message.contains("has a signature by a certificate of Sigstore, and keyless"), "{message}");
    sign(&digest);
    assert!(resolve().await.unwrap().signed_by.starts_with("sha256:"));
    let sources = sources_in(caches.path());
    assert!(sources.read(&source, &digest, "a.yaml").await.is_ok());
    // A registry that is away is asked for no signature again.
    drop(server);
    assert!(sources.read(&source, &digest, "a.yaml").await.is_ok());
    let charts = Source { provider: "Helm".to_owned(), chart: "web".to_owned(), ..source.clone() };
    let refused = sources.read(&charts, &digest, "").await.unwrap_err();
    assert!(refused.problems()[0].message.contains("spec.verify needs provider Git or OCI"), "{refused:?}");
}
