//! Tests with a Git server over HTTPS, with its own certificate authority and with passwords.

use stoa_git::cache::Folders;
use stoa_git::testing::GitServer;
use stoa_pki::{CertificateAuthority, CertificateRequest};
use tempfile::TempDir;

use super::*;
use crate::local::LocalRepositories;

struct Server {
    directory: TempDir,
    authority: CertificateAuthority,
    remote: String,
    commit: String,
    server: GitServer,
}

const PASSWORD: &str = "correct horse";

impl Server {
    async fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let repository = Repository::init_bare(directory.path().join("a.git")).unwrap();
        let tree = repository.treebuilder(None).unwrap().write().unwrap();
        let author = git2::Signature::now("t", "t@example.com").unwrap();
        let tree = repository.find_tree(tree).unwrap();
        let commit =
            repository.commit(Some("refs/heads/main"), &author, &author, "first", &tree, &[]).unwrap().to_string();
        repository.set_head("refs/heads/main").unwrap();

        let authority = CertificateAuthority::new("git test").unwrap();
        let issued = authority.issue(&CertificateRequest::server("git").loopback()).unwrap();
        let tls = (issued.certificate_pem.as_str(), issued.key_pem.as_str());
        let server = GitServer::start(directory.path(), PASSWORD, Some(tls)).await;
        let remote = server.url("https", "a.git");
        Self { directory, authority, remote, commit, server }
    }

    async fn resolve(&self, credentials: &[(&str, &str)]) -> Result<String, Failure> {
        let source = Source {
            provider: "Git".to_owned(),
            remote: self.remote.clone(),
            credentials: credentials
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec().into()))
                .collect(),
            ..Source::default()
        };
        let caches = Folders::new(self.directory.path().join("caches"));
        let sources = Sources::new(caches, LocalRepositories::default(), ReaderPool::in_process());
        sources.resolve(&source, "latest", "").await.map(|resolved| resolved.commit)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn source_authority_and_password_are_accepted() {
    let server = Server::start().await;
    let ca = server.authority.certificate_pem().to_owned();
    for key in ["password", "token"] {
        let opened = server.resolve(&[("username", "bot"), (key, PASSWORD), ("ca.crt", &ca)]).await;
        assert_eq!(opened.unwrap(), server.commit, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bearer_token_is_accepted() {
    let server = Server::start().await;
    let ca = server.authority.certificate_pem().to_owned();
    server.server.set_token("sesame");
    let opened = server.resolve(&[("bearerToken", "sesame\n"), ("ca.crt", &ca)]).await;
    assert_eq!(opened.unwrap(), server.commit);
    let refused = server.resolve(&[("bearerToken", "wrong token"), ("ca.crt", &ca)]).await.unwrap_err();
    assert_eq!(refused.problems()[0].reason, reason::SOURCE_UNAUTHORIZED);
    assert!(!refused.problems()[0].message.contains("wrong token"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_credentials_differ_from_an_unreachable_server() {
    let server = Server::start().await;
    let ca = server.authority.certificate_pem().to_owned();
    let other = CertificateAuthority::new("other").unwrap().certificate_pem().to_owned();
    for credentials in [
        vec![("username", "bot"), ("password", "wrong password"), ("ca.crt", ca.as_str())],
        vec![("ca.crt", ca.as_str())],
        vec![("username", "bot"), ("password", PASSWORD), ("ca.crt", other.as_str())],
        vec![("username", "bot"), ("password", PASSWORD)],
    ] {
        let failure = server.resolve(&credentials).await.unwrap_err();
        let problem = &failure.problems()[0];
        assert_eq!(
            (failure.code(), problem.reason.as_str()),
            (Code::InvalidArgument, reason::SOURCE_UNAUTHORIZED),
            "{problem:?}"
        );
        assert!(!problem.message.contains("wrong password") && !problem.message.contains(PASSWORD), "{problem:?}");
    }
}
