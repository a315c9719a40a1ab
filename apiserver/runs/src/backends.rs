//! From a Backend object to the store of documents that it stands for.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use stoa_kinds::{
    backend::{ACCESS_KEY, SECRET_KEY},
    cluster::Cluster,
    lookup::Lookup,
};
use stoa_machinery::ApiError;
use stoa_storage::documents::{
    DocumentError, DocumentStore, LocalDocuments, Refusal, S3Documents,
    s3::{AccessKey, AccessKeys, Addressing, KeyError, Patience, S3Location, S3Transport, Writes},
};
use stoa_types::{
    Backend, SecretReference,
    platform::{BackendType, BucketAddressing, S3Backend},
    reason,
};
use tokio::time::Instant;

use super::{
    StepError, documents,
    garbage::{Guarded, Holds},
};

/// For how long a key that was read is used without looking whether it was exchanged.
const KEY_AGE: Duration = Duration::from_secs(10);

/// The optional third key of the Secret that a Backend names.
const SESSION_TOKEN: &str = "sessionToken";

/// Opens the stores that Backends stand for, each once.
#[derive(Clone, Debug)]
pub struct Backends {
    lookup: Lookup,
    cluster: Arc<dyn Cluster>,
    root: PathBuf,
    open: Arc<Mutex<Open>>,
    holds: Arc<Holds>,
    transport: Arc<OnceLock<S3Transport>>,
    patience: Patience,
}

type Open = HashMap<(StoreAddress, Use), Arc<dyn DocumentStore>>;

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum StoreAddress {
    Directory(PathBuf),
    /// With the namespace and name of the Secret that opens it.
    Bucket(S3Location, String, String),
}

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Use {
    /// Documents of runs, for which it is worth to wait.
    Documents,
    /// A look whether it is there, which comes again soon.
    Probe,
}

impl Backends {
    /// `root` is the server's folder for documents, which relative directories are in.
    pub fn new(lookup: Lookup, cluster: Arc<dyn Cluster>, root: PathBuf) -> Self {
        Self {
            lookup,
            cluster,
            root,
            open: Arc::default(),
            holds: Arc::default(),
            transport: Arc::default(),
            patience: Patience::default(),
        }
    }

    /// Waits no longer for a bucket than tests do.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn impatient(mut self) -> Self {
        self.patience = Patience { answer: Duration::from_secs(1), retries: Duration::from_secs(1) };
        self
    }

    /// What keeps documents from being removed, in all stores.
    pub(crate) fn holds(&self) -> &Arc<Holds> {
        &self.holds
    }

    /// The store of a Backend.
    ///
    /// # Errors
    ///
    /// Failed when there is no such Backend; Retry when it cannot be opened.
    pub async fn store(&self, name: &str) -> Result<Arc<dyn DocumentStore>, StepError> {
        let Some(backend) = self.lookup.api::<Backend>()?.get_opt("", name).await? else {
            return Err(StepError::failed(reason::REFERENCE_NOT_FOUND, format!("backend {name:?} does not exist")));
        };
        self.open(name, &backend, Use::Documents)
            .await
            .map_err(|error| documents::halt(&error, &format!("backend {name:?} cannot be opened")))
    }

    /// The store of the server's own documents in a folder, which no Backend has: its name begins with `_`.
    ///
    /// # Errors
    ///
    /// As [`DocumentStore::put`] has them.
    pub async fn own(&self, folder: &str) -> Result<Arc<dyn DocumentStore>, DocumentError> {
        self.opened(folder, StoreAddress::Directory(self.own_folder(folder)), Use::Documents).await
    }

    /// The path of that folder.
    pub fn own_folder(&self, folder: &str) -> PathBuf {
        self.root.join(folder)
    }

    /// The store of a Backend that was read already.
    ///
    /// # Errors
    ///
    /// As [`DocumentStore::put`] has them.
    pub async fn open(
        &self,
        name: &str,
        backend: &Backend,
        r#use: Use,
    ) -> Result<Arc<dyn DocumentStore>, DocumentError> {
        // A directory is open once.
        let is_local = backend.spec.kind == BackendType::Local;
        let r#use = if is_local { Use::Documents } else { r#use };
        self.opened(name, self.place(name, backend)?, r#use).await
    }

    async fn opened(
        &self,
        name: &str,
        address: StoreAddress,
        r#use: Use,
    ) -> Result<Arc<dyn DocumentStore>, DocumentError> {
        let open = self.open.lock().get(&(address.clone(), r#use)).cloned();
        if let Some(store) = open {
            return Ok(store);
        }
        // Nobody else waits meanwhile: what the directory is mounted from may not answer.
        let store: Arc<dyn DocumentStore> = match &address {
            StoreAddress::Directory(path) => {
                let path = path.clone();
                let opened = tokio::task::spawn_blocking(move || LocalDocuments::open(path)).await;
                let opened = opened.map_err(|error| {
                    tracing::error!(name, error = &error as &dyn std::error::Error, "opening a directory broke off");
                    DocumentError::Unavailable("the server failed to open it; its log has the cause".into())
                })?;
                Arc::new(opened?)
            }
            StoreAddress::Bucket(location, namespace, name) => {
                let keys = SecretKeys {
                    cluster: self.cluster.clone(),
                    namespace: namespace.clone(),
                    name: name.clone(),
                    known: Mutex::default(),
                };
                let patience = match r#use {
                    Use::Documents => self.patience,
                    Use::Probe => Patience { answer: Duration::from_secs(3), retries: Duration::from_secs(2) },
                };
                let transport = self.transport.get_or_init(S3Transport::default);
                Arc::new(S3Documents::open(location, Arc::new(keys), transport, patience)?)
            }
        };
        let store: Arc<dyn DocumentStore> = Arc::new(Guarded::new(store, self.holds.clone()));
        // Of two that came at once both have the same.
        Ok(self.open.lock().entry((address, r#use)).or_insert(store).clone())
    }

    fn place(&self, name: &str, backend: &Backend) -> Result<StoreAddress, DocumentError> {
        let spec = &backend.spec;
        if spec.kind == BackendType::Local {
            let directory = spec.local.as_ref().map_or("", |local| local.directory.as_str());
            return Ok(StoreAddress::Directory(self.root.join(if directory.is_empty() { name } else { directory })));
        }
        let refused = |refusal, what: &str| DocumentError::Refused { refusal, source: what.into() };
        let bucket = spec.s3.as_ref().ok_or_else(|| refused(Refusal::Request, "spec.s3 is not set"))?;
        let Some(SecretReference { namespace: Some(namespace), name }) = &bucket.credentials_secret_ref else {
            return Err(refused(Refusal::Credentials, "spec.s3.credentialsSecretRef is not set"));
        };
        Ok(StoreAddress::Bucket(location(spec.kind, bucket), namespace.clone(), name.clone()))
    }
}

/// Where a bucket is, and how its service wants to be asked.
fn location(kind: BackendType, bucket: &S3Backend) -> S3Location {
    let S3Backend { region, endpoint, .. } = bucket;
    let is_oss = kind == BackendType::Oss;
    let is_own = endpoint.is_empty();
    // Alibaba Cloud writes its regions in both ways.
    let region = if is_oss { region.strip_prefix("oss-").unwrap_or(region) } else { region };
    let endpoint = match (is_own, is_oss) {
        (false, _) => endpoint.clone(),
        (true, true) => format!("https://s3.oss-{region}.aliyuncs.com"),
        (true, false) if region.starts_with("cn-") => format!("https://s3.{region}.amazonaws.com.cn"),
        (true, false) => format!("https://s3.{region}.amazonaws.com"),
    };
    // A provider's certificate does not cover a bucket with dots, and other services may lack such hosts.
    let addressing = match bucket.addressing {
        Some(BucketAddressing::Path) => Addressing::Path,
        Some(BucketAddressing::VirtualHosted) => Addressing::VirtualHosted,
        Some(BucketAddressing::CustomDomain) => Addressing::CustomDomain,
        None if is_oss || is_own && !bucket.bucket.contains('.') => Addressing::VirtualHosted,
        None => Addressing::Path,
    };
    S3Location {
        bucket: bucket.bucket.clone(),
        prefix: bucket.prefix.clone(),
        region: if region.is_empty() { "us-east-1" } else { region }.to_owned(),
        endpoint,
        addressing,
        writes: if is_oss { Writes::ForbidOverwrite } else { Writes::Conditional },
    }
}

/// The key in a Secret, read anew every few seconds, and at once when it was not accepted.
#[derive(Debug)]
struct SecretKeys {
    cluster: Arc<dyn Cluster>,
    namespace: String,
    name: String,
    known: Mutex<Option<(AccessKey, Instant)>>,
}

#[async_trait]
impl AccessKeys for SecretKeys {
    async fn key(&self) -> Result<AccessKey, KeyError> {
        if let Some((key, read)) = &*self.known.lock()
            && read.elapsed() < KEY_AGE
        {
            return Ok(key.clone());
        }
        let Self { namespace, name, .. } = self;
        let secret = self.cluster.secret(namespace, name).await.map_err(|error: ApiError| {
            KeyError::Unavailable(format!("secret {namespace}/{name} cannot be read: {}", error.message()))
        })?;
        let secret = secret.ok_or_else(|| KeyError::Absent(format!("secret {namespace}/{name} does not exist")))?;
        let key = access_key(secret).map_err(|what| KeyError::Absent(format!("secret {namespace}/{name} {what}")))?;
        *self.known.lock() = Some((key.clone(), Instant::now()));
        Ok(key)
    }

    fn refused(&self) {
        *self.known.lock() = None;
    }
}

fn access_key(mut secret: BTreeMap<String, Vec<u8>>) -> Result<AccessKey, String> {
    let has_token = secret.contains_key(SESSION_TOKEN);
    let mut text = |key: &str| match secret.remove(key).map(String::from_utf8) {
        None => Err(format!("has no key {key:?}")),
        Some(Err(_)) => Err(format!("has no text under {key:?}")),
        // Files that editors wrote end with a line. Nothing else fits into a header.
        Some(Ok(text)) if text.trim().bytes().all(|byte| byte.is_ascii_graphic()) => Ok(text.trim().to_owned()),
        Some(Ok(_)) => Err(format!("has an invalid value under {key:?}")),
    };
    let (id, secret_key) = (text(ACCESS_KEY)?, text(SECRET_KEY)?);
    let session_token = if has_token { Some(text(SESSION_TOKEN)?) } else { None };
    Ok(AccessKey { id, secret: secret_key, session_token })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(name: &str, region: &str, endpoint: &str) -> S3Backend {
        let (bucket, region, endpoint) = (name.to_owned(), region.to_owned(), endpoint.to_owned());
        S3Backend { bucket, region, endpoint, ..S3Backend::default() }
    }

    #[test]
    fn providers_are_asked_in_their_own_form() {
        let check = |kind, bucket: &S3Backend, endpoint: &str, addressing, writes| {
            let found = location(kind, bucket);
            assert_eq!((found.endpoint.as_str(), found.addressing, found.writes), (endpoint, addressing, writes));
        };
        use {Addressing::*, BackendType::*, Writes::*};
        let aws = "https://s3.eu-central-1.amazonaws.com";
        check(S3, &bucket("docs", "eu-central-1", ""), aws, VirtualHosted, Conditional);
        check(S3, &bucket("docs.example.com", "eu-central-1", ""), aws, Path, Conditional);
        let china = "https://s3.cn-north-1.amazonaws.com.cn";
        check(S3, &bucket("docs", "cn-north-1", ""), china, VirtualHosted, Conditional);
        let own = "https://minio.example.com:9000";
        check(S3, &bucket("docs", "", own), own, Path, Conditional);
        let oss = "https://s3.oss-cn-hangzhou.aliyuncs.com";
        check(Oss, &bucket("docs", "cn-hangzhou", ""), oss, VirtualHosted, ForbidOverwrite);
        check(Oss, &bucket("docs", "oss-cn-hangzhou", ""), oss, VirtualHosted, ForbidOverwrite);
        assert_eq!(location(Oss, &bucket("docs", "oss-cn-hangzhou", "")).region, "cn-hangzhou");
        let internal = "https://s3.oss-cn-hangzhou-internal.aliyuncs.com";
        check(Oss, &bucket("docs", "cn-hangzhou", internal), internal, VirtualHosted, ForbidOverwrite);
        let told = |addressing, endpoint| S3Backend { addressing: Some(addressing), ..bucket("docs", "", endpoint) };
        check(S3, &told(BucketAddressing::VirtualHosted, own), own, VirtualHosted, Conditional);
        let domain = "https://docs.example.com";
        check(Oss, &told(BucketAddressing::CustomDomain, domain), domain, CustomDomain, ForbidOverwrite);
        assert_eq!(location(S3, &bucket("docs", "", own)).region, "us-east-1");
    }

    #[test]
    fn error_about_a_secret_shows_no_value() {
        let secret = |keys: &[(&str, &str)]| {
            access_key(keys.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect())
        };
        let key = secret(&[("accessKey", "id\n"), ("secretKey", "hunter2")]).unwrap();
        assert_eq!((key.id.as_str(), key.secret.as_str(), key.session_token), ("id", "hunter2", None));
        let key = secret(&[("accessKey", "id"), ("secretKey", "hunter2"), ("sessionToken", "t")]).unwrap();
        assert_eq!(key.session_token.as_deref(), Some("t"));
        assert_eq!(secret(&[("accessKey", "id"), ("password", "hunter2")]).unwrap_err(), "has no key \"secretKey\"");
        for token in ["hun\nter2", "hunter\u{e9}"] {
            let told = secret(&[("accessKey", "id"), ("secretKey", "s"), ("sessionToken", token)]).unwrap_err();
            assert_eq!(told, "has an invalid value under \"sessionToken\"");
        }
    }
}
