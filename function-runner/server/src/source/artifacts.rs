//! Artifacts and charts as sources: which one a version means, and its content in the cache.
//!
//! Start at [`ask`]. This process asks registries and chart repositories, and compares each blob with its digest as it
//! arrives. The process that reads the cache makes a commit of it ([`super::import`]), so all further questions are those of
//! Git. The digest names the commit: that of the manifest, or of a chart's archive.

use std::path::Path;
use std::time::Duration;

use stoa_artifacts::{
    ChartRepository, ChartVersion, Descriptor, Digest, Document, Endpoint, FetchError, Found, InvalidLogin, Login,
    Manifest, Mismatch, Pick, Platform, Registry, Repository, Selector, layers,
    layers::{Compression, Form, Layer},
    manifest,
};
use stoa_git::cache::UNFINISHED;
use stoa_outbound::causes;
use stoa_proto::{
    CompareRequest, ContentRequest, ContentsRequest, FilesRequest, LookRequest, LookResponse, ReadFileRequest,
    ResolveRequest, ResolveResponse, Source,
};
use tempfile::TempDir;
use tonic::Code;

use super::disk::on_files;
use super::import::{ChartQuery, Import, ImportLayer};
use super::job::{Question, Reply};
use super::sources::{Visit, unfitting};
use crate::failure::{Failure, reason};
use crate::packages::ArtifactQuestion;

/// The largest artifact, in bytes: all of its blobs, as they arrive.
const LARGEST: u64 = 256 << 20;
/// The timeout of all blobs of an artifact.
const LONGEST: Duration = Duration::from_secs(5 * 60);
/// The most layers of an artifact.
pub(super) const LAYERS: usize = 64;

/// Whether a source is an artifact or a chart.
pub(super) fn is_artifact(source: &Source) -> bool {
    matches!(source.provider.as_str(), "OCI" | "Helm")
}

/// A repository with artifacts or versions of a chart.
enum Remote {
    /// Artifacts by the digests of their manifests.
    Artifacts(Registry),
    /// A chart by the digests of its archives, in a registry.
    Charts { registry: Registry, chart: String },
    /// The same in a chart repository.
    Repository { repository: ChartRepository, chart: String },
}

/// A revision that is wanted.
struct Wanted {
    digest: Digest,
    /// About it, in a line.
    subject: String,
    parts: Vec<Part>,
    /// Whether each part changes those before it.
    is_image: bool,
}

/// A part of a revision's content.
struct Part {
    blob: Blob,
    form: Form,
}

enum Blob {
    /// A blob of the registry, of this size if that is known.
    Registry(Digest, Option<u64>),
    /// An archive of the chart repository.
    Chart(ChartVersion),
}

impl Remote {
    fn new(source: &Source) -> Result<Self, Failure> {
        let login = |host: &str| Login::of_keys(host, |key| source.credentials.get(key).map(|it| &it[..]));
        let unauthorized = |error: InvalidLogin| unauthorized(error.to_string());
        let chart = source.chart.clone();
        let is_chart = source.provider == "Helm";
        if is_chart && !source.remote.starts_with("oci://") {
            let host = Endpoint::new(&source.remote).map(|url| url.host()).unwrap_or_default();
            let login = login(&host).map_err(unauthorized)?;
            let repository = ChartRepository::new(&source.remote, login).map_err(|error| failure(&error))?;
            return Ok(Self::Repository { repository, chart });
        }
        let name =
            if is_chart { format!("{}/{chart}", source.remote.trim_end_matches('/')) } else { source.remote.clone() };
        let repository: Repository = name.parse().map_err(|error| invalid(format!("{error}")))?;
        let login = login(&repository.registry).map_err(unauthorized)?;
        let registry = Registry::new(repository, login).map_err(|error| failure(&error))?;
        Ok(if is_chart { Self::Charts { registry, chart } } else { Self::Artifacts(registry) })
    }

    /// The revision that a selector means now.
    async fn find(&self, visit: &mut Visit, selector: &Selector) -> Result<Wanted, Failure> {
        match self {
            Self::Artifacts(registry) => {
                let found = registry.find(selector).await.map_err(|error| failure(&error))?;
                artifact(registry, found)
            }
            Self::Charts { registry, chart } => {
                let by_name = Selector { digest: None, ..selector.clone() };
                let found = match (&selector.pick, &selector.digest) {
                    (Pick::Digest, Some(digest)) => return Ok(archive(chart, digest.clone())),
                    (Pick::Newest | Pick::Digest, _) => registry.newest_release().await,
                    (Pick::Name(_) | Pick::Range(_), _) => registry.find(&by_name).await,
                };
                let found = found.map_err(|error| failure(&error))?;
                let version = found.tag.clone().unwrap_or_default();
                let [layer] = &charts(registry, found)?[..] else {
                    return Err(invalid(format!("{}:{version} has not exactly one chart", registry.repository())));
                };
                match &selector.digest {
                    Some(pinned) if *pinned != layer.digest => Err(invalid(format!(
                        "chart {chart:?} {version} has the digest {} instead of {pinned}",
                        layer.digest
                    ))),
                    _ => {
                        let blob = Blob::Registry(layer.digest.clone(), Some(layer.size));
                        let (digest, subject) = (layer.digest.clone(), format!("{chart} {version}"));
                        Ok(Wanted { digest, subject, parts: vec![Part { blob, form: Form::Chart }], is_image: false })
                    }
                }
            }
            Self::Repository { repository, chart } => {
                let folder = visit.unfinished().await?;
                let index = folder.path().join("index.yaml");
                repository.index(&index).await.map_err(|error| failure(&error))?;
                let query = ChartQuery::new(&index, chart, selector);
                let Reply::Chart(answer) = visit.ask_process(Question::Chart(query)).await? else {
                    return Err(unfitting());
                };
                let version = answer.version()?;
                let (digest, subject) = (version.digest.clone(), format!("{chart} {}", version.version));
                let part = Part { blob: Blob::Chart(version), form: Form::Chart };
                Ok(Wanted { digest, subject, parts: vec![part], is_image: false })
            }
        }
    }

    async fn download(&self, blob: &Blob, into: &Path) -> Result<(), Failure> {
        let downloaded = match (self, blob) {
            (Self::Artifacts(registry) | Self::Charts { registry, .. }, Blob::Registry(digest, size)) => {
                registry.blob(digest, *size, LARGEST, into).await
            }
            (Self::Repository { repository, .. }, Blob::Chart(version)) => {
                repository.archive(version, LARGEST, into).await
            }
            (_, _) => return Err(Failure::internal(&"a blob is of another repository")),
        };
        downloaded.map_err(|error| failure(&error))
    }
}

/// The archive of a chart, which a registry finds by its digest alone.
fn archive(chart: &str, digest: Digest) -> Wanted {
    let part = Part { blob: Blob::Registry(digest.clone(), None), form: Form::Chart };
    Wanted { digest, subject: chart.to_owned(), parts: vec![part], is_image: false }
}

fn manifest_of(registry: &Registry, found: Found) -> Result<(Digest, Option<String>, Manifest), Failure> {
    match found.document {
        Document::Manifest(manifest) => Ok((found.digest, found.tag, manifest)),
        Document::Index(_) => {
            let message = format!(
                "{}@{} is an index of several manifests; name one of these by its digest, or push one manifest",
                registry.repository(),
                found.digest
            );
            Err(invalid(message))
        }
    }
}

fn artifact(registry: &Registry, found: Found) -> Result<Wanted, Failure> {
    let (digest, tag, manifest) = manifest_of(registry, found)?;
    let layers = layers::of_manifest(&manifest);
    let layers = layers.map_err(|error| invalid(format!("{}@{digest}: {error}", registry.repository())))?;
    let size = layers.iter().fold(0_u64, |sum, layer| sum.saturating_add(layer.blob.size));
    if layers.len() > LAYERS || size > LARGEST {
        let message = format!(
            "{}@{digest} has {} layers and {size} bytes; an artifact has at most {LAYERS} layers and {} MiB",
            registry.repository(),
            layers.len(),
            LARGEST >> 20
        );
        return Err(Failure::new(Code::InvalidArgument, reason::TOO_LARGE, message));
    }
    let about = [manifest::REVISION, manifest::VERSION].into_iter().find_map(|key| manifest.annotations.get(key));
    let subject = about.cloned().or(tag).unwrap_or_default();
    let part = |Layer { blob, form }: Layer| Part { blob: Blob::Registry(blob.digest, Some(blob.size)), form };
    let is_image = layers::is_image(&layers);
    Ok(Wanted { digest, subject, parts: layers.into_iter().map(part).collect(), is_image })
}

/// The charts of a manifest.
fn charts(registry: &Registry, found: Found) -> Result<Vec<Descriptor>, Failure> {
    let (_, _, manifest) = manifest_of(registry, found)?;
    Ok(manifest.layers.into_iter().filter(|layer| layer.media_type == stoa_artifacts::media::HELM_CHART).collect())
}

/// The digest of the artifact that a version of a module means now, or the pinned one. Of an index, it is that of the manifest for the
/// platform of this process.
pub(crate) async fn of_module(source: &Source, version: &str, pinned: &str) -> Result<String, Failure> {
    let Remote::Artifacts(registry) = Remote::new(source)? else {
        return Err(Failure::internal(&"a module is an artifact"));
    };
    let digest = if pinned.is_empty() { None } else { Some(parsed(pinned)?) };
    let found = registry.find(&Selector { pick: Pick::Name(version.to_owned()), digest }).await;
    let found = found.map_err(|error| failure(&error))?;
    let index = match found.document {
        Document::Manifest(_) => return Ok(found.digest.to_string()),
        Document::Index(index) => index,
    };
    let (os, architecture) = stoa_kusion_module::mirror::platform();
    let is_ours = |platform: &Platform| platform.os == os && platform.architecture == architecture;
    let ours = index.manifests.iter().find(|it| it.platform.as_ref().is_some_and(is_ours));
    let ours = ours.ok_or_else(|| {
        invalid(format!("{}@{} has no manifest for {os}/{architecture}", registry.repository(), found.digest))
    })?;
    Ok(ours.digest.to_string())
}

/// Answers a question about an artifact or chart.
pub(super) async fn ask(visit: &mut Visit, question: Question) -> Result<Reply, Failure> {
    let remote = Remote::new(visit.source())?;
    match question {
        Question::Resolve(ResolveRequest { version, r#ref, .. }) => {
            let is_latest = version.is_empty() || version == "latest";
            let selector = selector(if is_latest { &r#ref } else { &version })?;
            let digest = match (selector.pick, &selector.digest) {
                (Pick::Digest, Some(digest)) => {
                    signer(visit, &remote, digest).await?;
                    ensure(visit, &remote, digest).await?;
                    digest.clone()
                }
                (pick, _) => found(visit, &remote, &Selector { pick, digest: selector.digest.clone() }).await?,
            };
            let version = digest.to_string();
            let asked = Question::Resolve(ResolveRequest { version, ..ResolveRequest::default() });
            let Reply::Resolved(resolved) = visit.ask_process(asked).await? else { return Err(unfitting()) };
            let signed_by = signer(visit, &remote, &digest).await?;
            Ok(Reply::Resolved(ResolveResponse { signed_by, ..resolved }))
        }
        Question::Look(LookRequest { branch_only: true, .. }) => {
            Err(Failure::request("an artifact or chart has no branches"))
        }
        Question::Look(LookRequest { r#ref, versions, .. }) => {
            let latest = found(visit, &remote, &selector(&r#ref)?).await?;
            let signed_by = signer(visit, &remote, &latest).await?;
            let mut looked = LookResponse { latest: latest.to_string(), signed_by, ..LookResponse::default() };
            for version in versions {
                // A version that selects nothing does not exist.
                let Ok(selector) = version.parse() else { continue };
                match remote.find(visit, &selector).await {
                    Ok(wanted) => drop(looked.commits.insert(version, wanted.digest.to_string())),
                    Err(failure) if failure.is_not_found() => {}
                    Err(failure) => return Err(failure),
                }
            }
            Ok(Reply::Looked(looked))
        }
        question => {
            let is_used = !matches!(question, Question::Compare(_));
            for digest in digests(&question) {
                let digest = parsed(digest)?;
                if is_used {
                    signer(visit, &remote, &digest).await?;
                }
                ensure(visit, &remote, &digest).await?;
            }
            visit.ask_process(question).await
        }
    }
}

/// The signer of an artifact; empty where the source needs no signature.
async fn signer(visit: &Visit, remote: &Remote, digest: &Digest) -> Result<String, Failure> {
    let registry = match remote {
        Remote::Artifacts(registry) => Some(registry),
        Remote::Charts { .. } | Remote::Repository { .. } => None,
    };
    visit.verified().signer(visit.source(), registry, digest).await
}

/// The revision that a selector means now, whose content is then in the cache.
async fn found(visit: &mut Visit, remote: &Remote, selector: &Selector) -> Result<Digest, Failure> {
    let wanted = remote.find(visit, selector).await?;
    let digest = wanted.digest.clone();
    signer(visit, remote, &digest).await?;
    if !has(visit, &digest).await? {
        fetch(visit, remote, wanted).await?;
    }
    Ok(digest)
}

/// Fetches a revision, unless it is cached.
async fn ensure(visit: &mut Visit, remote: &Remote, digest: &Digest) -> Result<(), Failure> {
    if has(visit, digest).await? {
        return Ok(());
    }
    let selector = Selector { pick: Pick::Digest, digest: Some(digest.clone()) };
    let wanted = remote.find(visit, &selector).await?;
    fetch(visit, remote, wanted).await
}

async fn has(visit: &mut Visit, digest: &Digest) -> Result<bool, Failure> {
    match visit.ask_process(Question::Has(digest.to_string())).await? {
        Reply::Fetched(has) => Ok(has),
        _ => Err(unfitting()),
    }
}

/// Downloads the parts of a revision, and has the process that reads the cache make a commit of them.
async fn fetch(visit: &mut Visit, remote: &Remote, wanted: Wanted) -> Result<(), Failure> {
    visit.require_room().await?;
    let folder = visit.unfinished().await?;
    // It goes on when the caller leaves, who finds the content later.
    let downloads = async {
        let mut layers = Vec::new();
        for (at, Part { blob, form }) in wanted.parts.iter().enumerate() {
            let path = folder.path().join(at.to_string());
            remote.download(blob, &path).await?;
            layers.push(ImportLayer::new(&path, form));
        }
        Ok(layers)
    };
    let layers = tokio::time::timeout(LONGEST, downloads).await.unwrap_or_else(|_| {
        let message = format!("{} did not arrive within {} s", wanted.digest, LONGEST.as_secs());
        Err(Failure::new(Code::Unavailable, reason::SOURCE_UNAVAILABLE, message))
    })?;
    let Wanted { digest, subject, is_image, .. } = wanted;
    let import = Import { revision: digest.to_string(), subject, layers, is_image };
    visit.ask_process(Question::Import(import)).await?;
    on_files(move || folder.close().map_err(|error| Failure::internal(&error))).await
}

/// The digests of which a question needs the content.
fn digests(question: &Question) -> Vec<&str> {
    match question {
        Question::Contents(ContentsRequest { commit, .. })
        | Question::ReadFile(ReadFileRequest { commit, .. })
        | Question::Fetch(commit)
        | Question::WriteTree(commit)
        | Question::WritePrograms(commit)
        | Question::Read(ContentRequest { commit, .. })
        | Question::Files(FilesRequest { commit, .. })
        | Question::Package(ArtifactQuestion { digest: commit, .. }) => vec![commit],
        Question::Compare(CompareRequest { base, commit, .. }) => vec![base, commit],
        _ => Vec::new(),
    }
}

fn parsed(digest: &str) -> Result<Digest, Failure> {
    digest.parse().map_err(|error| Failure::request(format!("the revision of an artifact or chart: {error}")))
}

fn selector(text: &str) -> Result<Selector, Failure> {
    text.parse().map_err(|error| Failure::new(Code::NotFound, reason::VERSION_NOT_FOUND, format!("{error}")))
}

/// A new folder in a cache, which goes with the value or with the next process.
pub(super) async fn unfinished(cache: &Path) -> Result<TempDir, Failure> {
    let cache = cache.to_owned();
    on_files(move || {
        let folder = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(cache);
        folder.map_err(|error| Failure::internal(&error))
    })
    .await
}

fn invalid(message: String) -> Failure {
    Failure::new(Code::InvalidArgument, reason::INVALID_MANIFEST, message)
}

fn unauthorized(message: String) -> Failure {
    Failure::new(Code::InvalidArgument, reason::SOURCE_UNAUTHORIZED, message)
}

/// The failure of a request.
pub(crate) fn failure(error: &FetchError) -> Failure {
    let message = causes(error);
    match error {
        FetchError::Unauthorized { .. } => unauthorized(format!("{message}; check the Secret in spec.secretRef")),
        FetchError::Authorities(_) => unauthorized(message),
        FetchError::NotFound { .. } => Failure::new(Code::NotFound, reason::VERSION_NOT_FOUND, message),
        FetchError::Mismatch { source: Mismatch::TooLarge(_), .. } => {
            Failure::new(Code::InvalidArgument, reason::TOO_LARGE, message)
        }
        FetchError::Unreachable { .. }
        | FetchError::Status { .. }
        | FetchError::Wrong { .. }
        | FetchError::Mismatch { .. }
        | FetchError::Io { .. } => Failure::new(Code::Unavailable, reason::SOURCE_UNAVAILABLE, message),
    }
}

impl ImportLayer {
    pub(super) fn new(path: &Path, form: &Form) -> Self {
        use std::os::unix::ffi::OsStrExt as _;

        let path = path.as_os_str().as_bytes().to_vec();
        let (compression, is_chart, file) = match form {
            Form::Archive(compression) => (*compression, false, String::new()),
            Form::Chart => (Compression::Gzip, true, String::new()),
            Form::File(name) => (Compression::Plain, false, name.clone()),
        };
        Self { path, file, is_chart, is_gzip: compression == Compression::Gzip }
    }
}
