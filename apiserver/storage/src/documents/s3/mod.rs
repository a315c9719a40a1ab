//! Documents in a bucket of an S3-compatible service: `<prefix>/<scope>/sha256/<first two digits>/<digits>`.
//!
//! Start at [`S3Documents`]. A put requires that the name is free (`If-None-Match: *`), so that no document is overwritten, whoever
//! else may write to the bucket. An existing document is read and compared. The crate `object_store` has the signatures and the
//! API. Elsewhere: `transport` sends requests and classifies answers, and `oss` has the differences of Alibaba Cloud OSS.
//!
//! [`Patience`] has the rules of retries: every request here may be repeated, since documents are named by their content.

mod oss;
#[cfg(test)]
mod testing;
mod transport;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use object_store::{
    BackoffConfig, CredentialProvider, GetOptions, ObjectStore as _, ObjectStoreExt as _, PutMode, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder, AwsCredential, S3ConditionalPut},
    path::Path,
};

pub use self::transport::S3Transport;
use self::{
    oss::Oss,
    transport::{AtMost, Connector, Failure},
};
use super::{Digest, DocumentError, DocumentStore, Measured, Refusal, file_segments, scope_segments};

const ALGORITHM: &str = "sha256";

/// The bucket of documents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct S3Location {
    /// The bucket.
    pub bucket: String,
    /// The prefix of all keys: path segments with `/` in between, or empty.
    pub prefix: String,
    /// The region that requests are signed for.
    pub region: String,
    /// The URL of the service, `http` or `https`, without the bucket, or that of the bucket where it has a domain to itself.
    pub endpoint: String,
    /// The form of a bucket in requests.
    pub addressing: Addressing,
    /// The protection of documents against overwrites.
    pub writes: Writes,
}

/// The form of a bucket in requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addressing {
    /// In the path: `https://<endpoint>/<bucket>/<key>`.
    Path,
    /// In the host's name: `https://<bucket>.<endpoint>/<key>`.
    VirtualHosted,
    /// Not at all, as the endpoint leads to it: `https://<endpoint>/<key>`.
    CustomDomain,
}

/// The protection of documents against overwrites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writes {
    /// The service: `If-None-Match: *`.
    Conditional,
    /// OSS: `x-oss-forbid-overwrite: true`, and a look before, since a bucket with versions takes no notice of that. Requests
    /// are OSS' in this way alone.
    ForbidOverwrite,
}

/// The timeouts of the service.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For one answer. A second per MiB is added for what is sent, and another for what is in the answer.
    pub answer: Duration,
    /// From the first try of a request; after that it is not tried again.
    pub retries: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { answer: Duration::from_secs(10), retries: Duration::from_secs(20) }
    }
}

/// A key, and what it opens.
#[derive(Clone, PartialEq, Eq, educe::Educe)]
#[educe(Debug)]
pub struct AccessKey {
    /// Its name.
    pub id: String,
    /// The credentials of signatures.
    #[educe(Debug(ignore))]
    pub secret: String,
    /// The session token of temporary credentials.
    #[educe(Debug(ignore))]
    pub session_token: Option<String>,
}

/// Why there is no key. The text is for people and says nothing of what is in a Secret.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KeyError {
    /// There is none.
    #[error("{0}")]
    Absent(String),
    /// The service is unreachable.
    #[error("{0}")]
    Unavailable(String),
}

/// Knows the key that is good now. Asked for each request, so that a key that is exchanged is used at once.
#[async_trait]
pub trait AccessKeys: fmt::Debug + Send + Sync + 'static {
    /// The key.
    async fn key(&self) -> Result<AccessKey, KeyError>;

    /// Takes note that the key was not accepted: it may have been exchanged since it was read.
    fn refused(&self);
}

/// A [`DocumentStore`] in a bucket.
#[derive(Debug)]
pub struct S3Documents {
    store: AmazonS3,
    prefix: String,
    writes: Writes,
    keys: Arc<dyn AccessKeys>,
}

impl S3Documents {
    /// The store at a location. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`Refusal::Request`] when the location makes no sense.
    pub fn open(
        location: &S3Location,
        keys: Arc<dyn AccessKeys>,
        transport: &S3Transport,
        patience: Patience,
    ) -> Result<Self, DocumentError> {
        let endpoint = location.endpoint.trim_end_matches('/');
        let endpoint = match endpoint.split_once("://") {
            Some((scheme, host)) if location.addressing == Addressing::VirtualHosted => {
                format!("{scheme}://{}.{host}", location.bucket)
            }
            _ => endpoint.to_owned(),
        };
        let oss = match location.writes {
            Writes::Conditional => None,
            Writes::ForbidOverwrite => Some(Oss::new(&location.region, keys.clone())),
        };
        let backoff = BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(3),
            ..BackoffConfig::default()
        };
        let store = AmazonS3Builder::new()
            .with_bucket_name(&location.bucket)
            .with_region(&location.region)
            .with_endpoint(endpoint)
            .with_virtual_hosted_style_request(location.addressing != Addressing::Path)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            // Whole batches would be one more request that services understand differently.
            .with_disable_bulk_delete(true)
            .with_credentials(Arc::new(Provider(keys.clone())))
            .with_retry(RetryConfig { backoff, max_retries: 20, retry_timeout: patience.retries })
            .with_http_connector(Connector::new(transport.clone(), patience.answer, oss))
            .build()
            .map_err(|error| DocumentError::Refused { refusal: Refusal::Request, source: error.into() })?;
        Ok(Self { store, prefix: location.prefix.clone(), writes: location.writes, keys })
    }

    fn scope(&self, scope: &str) -> Result<Path, DocumentError> {
        let scope = scope_segments(scope)?.into_iter();
        let prefix = self.prefix.split('/').filter(|segment| !segment.is_empty());
        Ok(prefix.chain(scope).chain([ALGORITHM]).collect())
    }

    fn path(&self, scope: &str, digest: &Digest) -> Result<Path, DocumentError> {
        let hex = digest.hex();
        Ok(self.scope(scope)?.join(&hex[..2]).join(hex.as_str()))
    }

    async fn read(&self, path: &Path) -> Result<Option<Bytes>, DocumentError> {
        self.read_with(path, GetOptions::default()).await.map_err(|error| self.failure(error))
    }

    /// Reads what has no more bytes than that: else it fails as [`Failure::Large`].
    async fn read_at_most(&self, path: &Path, most: u64) -> object_store::Result<Option<Bytes>> {
        let mut extensions = http::Extensions::new();
        extensions.insert(AtMost(most));
        self.read_with(path, GetOptions { extensions, ..GetOptions::default() }).await
    }

    async fn read_with(&self, path: &Path, options: GetOptions) -> object_store::Result<Option<Bytes>> {
        let read = async { self.store.get_opts(path, options).await?.bytes().await };
        match read.await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What a failure means, in our own words: those of a service may quote the request, with what identifies us.
    fn failure(&self, error: object_store::Error) -> DocumentError {
        if let Some(failure) = told::<Failure>(&error) {
            let failure = failure.meaning();
            if matches!(failure, DocumentError::Refused { refusal: Refusal::Access, .. }) {
                self.keys.refused();
            }
            return failure;
        }
        match told::<KeyError>(&error) {
            Some(none @ KeyError::Absent(_)) => {
                DocumentError::Refused { refusal: Refusal::Credentials, source: Box::new(none.clone()) }
            }
            Some(none @ KeyError::Unavailable(_)) => DocumentError::Unavailable(Box::new(none.clone())),
            None => DocumentError::Unavailable(Box::new(error)),
        }
    }
}

/// The found bytes, if they are the requested document.
fn checked(scope: &str, digest: &Digest, found: Option<Bytes>) -> Result<Option<Bytes>, DocumentError> {
    match found {
        Some(bytes) if Digest::of(&bytes) != *digest => {
            Err(DocumentError::Corrupt { scope: scope.to_owned(), digest: *digest })
        }
        found => Ok(found),
    }
}

/// What we said ourselves of an error, somewhere among its causes.
fn told<T: std::error::Error + 'static>(error: &object_store::Error) -> Option<&T> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(found) = cause {
        if let Some(found) = found.downcast_ref::<T>() {
            return Some(found);
        }
        cause = found.source();
    }
    None
}

#[async_trait]
impl DocumentStore for S3Documents {
    async fn put(&self, scope: &str, bytes: Bytes) -> Result<Digest, DocumentError> {
        let digest = Digest::of(&bytes);
        let path = self.path(scope, &digest)?;
        let compare = |there: Bytes| match there == bytes {
            true => Ok(digest),
            false => Err(DocumentError::Conflict { scope: scope.to_owned(), digest }),
        };
        if self.writes == Writes::ForbidOverwrite
            && let Some(there) = self.read(&path).await?
        {
            return compare(there);
        }
        match self.store.put_opts(&path, bytes.clone().into(), PutMode::Create.into()).await {
            Ok(_) => return Ok(digest),
            Err(object_store::Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(self.failure(error)),
        }
        // This put itself, where its first answer was lost, or another one.
        let there = self.read(&path).await?;
        compare(there.ok_or_else(|| DocumentError::Unavailable("the document was removed while it was put".into()))?)
    }

    async fn size(&self, scope: &str, digest: &Digest) -> Result<Option<u64>, DocumentError> {
        let path = self.path(scope, digest)?;
        match self.store.head(&path).await {
            Ok(about) => Ok(Some(about.size)),
            // That answer has no body, which would say whether it is the document or the bucket that is not there.
            Err(object_store::Error::NotFound { .. }) => Ok(self.read(&path).await?.map(|there| there.len() as u64)),
            Err(error) => Err(self.failure(error)),
        }
    }

    async fn get(&self, scope: &str, digest: &Digest) -> Result<Option<Bytes>, DocumentError> {
        checked(scope, digest, self.read(&self.path(scope, digest)?).await?)
    }

    async fn get_at_most(&self, scope: &str, digest: &Digest, most: u64) -> Result<Option<Measured>, DocumentError> {
        let error = match self.read_at_most(&self.path(scope, digest)?, most).await {
            Ok(found) => return Ok(checked(scope, digest, found)?.map(Measured::Whole)),
            Err(error) => error,
        };
        match told(&error) {
            Some(Failure::Large(Some(bytes))) => Ok(Some(Measured::Larger(*bytes))),
            Some(Failure::Large(None)) => Ok(self.size(scope, digest).await?.map(Measured::Larger)),
            _ => Err(self.failure(error)),
        }
    }

    async fn list(&self, scope: &str) -> Result<Vec<Digest>, DocumentError> {
        let within = self.scope(scope)?;
        let found: Vec<_> = self.store.list(Some(&within)).try_collect().await.map_err(|error| self.failure(error))?;
        let digest = |path: &Path| format!("{ALGORITHM}:{}", path.filename()?).parse::<Digest>().ok();
        let mut digests: Vec<Digest> = found.iter().filter_map(|object| digest(&object.location)).collect();
        digests.sort_unstable();
        Ok(digests)
    }

    async fn file(&self, path: &str, most: u64) -> Result<Option<Bytes>, DocumentError> {
        let prefix = self.prefix.split('/').filter(|segment| !segment.is_empty());
        let key: Path = prefix.chain(file_segments(path)?).collect();
        match self.read_at_most(&key, most).await {
            Ok(found) => Ok(found),
            Err(error) if matches!(told(&error), Some(Failure::Large(_))) => {
                Err(DocumentError::TooLarge { path: path.to_owned(), most })
            }
            Err(error) => Err(self.failure(error)),
        }
    }

    async fn delete(&self, scope: &str, digest: &Digest) -> Result<(), DocumentError> {
        match self.store.delete(&self.path(scope, digest)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failure(error)),
        }
    }
}

/// Our keys as the crate asks for them.
#[derive(Debug)]
struct Provider(Arc<dyn AccessKeys>);

#[async_trait]
impl CredentialProvider for Provider {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let credential = credential(&*self.0).await;
        credential.map(Arc::new).map_err(|error| object_store::Error::Generic { store: "S3", source: Box::new(error) })
    }
}

/// The key that is good now, as the crate has keys.
async fn credential(keys: &dyn AccessKeys) -> Result<AwsCredential, KeyError> {
    let key = keys.key().await?;
    Ok(AwsCredential { key_id: key.id, secret_key: key.secret, token: key.session_token })
}

#[cfg(test)]
mod tests {
    use super::{testing::Server, *};

    #[derive(Debug)]
    struct Key;

    #[async_trait]
    impl AccessKeys for Key {
        async fn key(&self) -> Result<AccessKey, KeyError> {
            Ok(AccessKey { id: "AKIA1".into(), secret: "hunter2".into(), session_token: None })
        }

        fn refused(&self) {}
    }

    /// What an object is told with, before its length.
    const HEAD: &str = "ETag: \"1\"\r\nLast-Modified: Wed, 01 Jan 2025 00:00:00 GMT\r\nContent-Length: ";

    fn store(server: &Server) -> S3Documents {
        let location = S3Location {
            bucket: "documents".to_owned(),
            prefix: String::new(),
            region: "us-east-1".to_owned(),
            endpoint: server.url.clone(),
            addressing: Addressing::Path,
            writes: Writes::Conditional,
        };
        S3Documents::open(&location, Arc::new(Key), &S3Transport::default(), Patience::default()).unwrap()
    }

    #[tokio::test]
    async fn size_lookup_makes_one_request_without_body() {
        let server = Server::start(format!("{HEAD}2147483648"), Vec::new(), Duration::ZERO).await;
        let size = store(&server).size("shop", &Digest::of(b"plan")).await.unwrap();
        assert_eq!((size, server.asked()), (Some(2_147_483_648), 1));
    }

    #[tokio::test]
    async fn document_lookup_makes_only_one_request() {
        let whole = Measured::Whole(Bytes::from_static(b"plan"));
        for (length, body, expected) in [(4_u64, "plan", whole), (2_147_483_648, "", Measured::Larger(2_147_483_648))] {
            let body = vec![body.as_bytes().to_vec()];
            let server = Server::start(format!("{HEAD}{length}"), body, Duration::ZERO).await;
            let found = store(&server).get_at_most("shop", &Digest::of(b"plan"), 4).await.unwrap();
            assert_eq!((found, server.asked()), (Some(expected), 1));
        }
        let server = Server::start(format!("{HEAD}4"), vec![b"plot".to_vec()], Duration::ZERO).await;
        let found = store(&server).get_at_most("shop", &Digest::of(b"plan"), 4).await;
        assert!(matches!(found, Err(DocumentError::Corrupt { .. })), "{found:?}");
    }

    #[tokio::test]
    async fn oversized_file_lookup_reads_no_body() {
        for (length, body, expected) in [(2_147_483_648_u64, "", None), (4, "plan", Some("plan"))] {
            let server = Server::start(format!("{HEAD}{length}"), vec![body.as_bytes().to_vec()], Duration::ZERO).await;
            match (store(&server).file("releases/1.yaml", 4).await, expected) {
                (Ok(Some(bytes)), Some(expected)) => assert_eq!(bytes, expected),
                (Err(DocumentError::TooLarge { most: 4, .. }), None) => {}
                (other, _) => panic!("{other:?}"),
            }
            assert_eq!(server.asked(), 1);
        }
    }

    #[test]
    fn a_key_does_not_show_what_it_opens_with() {
        let key = AccessKey { id: "AKIA1".into(), secret: "hunter2".into(), session_token: Some("hunter3".into()) };
        let shown = format!("{key:?} {key:#?}");
        assert!(shown.contains("AKIA1") && !shown.contains("hunter"), "{shown}");
    }
}
