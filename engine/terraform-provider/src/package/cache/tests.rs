//! Installation from both kinds of mirrors, and packages that differ from their records.

use semver::Version;
use stoa_archive::testing::{archive, sample};

use super::super::{FilesystemMirror, HttpAnswer, HttpClient, HttpError, NetworkError, NetworkMirror, Platform};
use super::*;

struct Bed {
    folder: tempfile::TempDir,
    installer: Installer,
    address: Address,
    archive: Package,
    files: Hash,
    digest: Hash,
}

/// An archive with three candidates for the executable.
fn bed() -> Bed {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("package.zip");
    let names = ["terraform-provider-x_v3.6.0", "terraform-provider-x_a", "terraform-provider-xy", "README"];
    fs::write(&path, archive(&names.map(|name| sample(name, name)))).unwrap();
    let installer = Installer { cache: folder.path().join("cache"), limits: ArchiveLimits::default() };
    let address: Address = "x".parse().unwrap();
    let archive = Package::Archive(path.clone());
    let installed = Installer { cache: folder.path().join("other"), ..installer.clone() };
    let files = installed.install(&address, &archive, None, &[]).unwrap().files;
    Bed { installer, address, archive, files, digest: Hash::of_archive(&path).unwrap(), folder }
}

fn lock(hashes: &[&Hash]) -> LockedProvider {
    let hashes = hashes.iter().map(|it| (*it).clone()).collect();
    LockedProvider { version: Version::new(3, 6, 0), constraints: None, hashes }
}

#[test]
fn the_first_executable_by_name_is_installed_and_verified() {
    let bed = bed();
    let lock = lock(&[&bed.files, &bed.digest]);
    let mirror = [bed.digest.clone()];
    let installed = bed.installer.install(&bed.address, &bed.archive, Some(&lock), &mirror).unwrap();
    assert!(installed.executable.ends_with("terraform-provider-x_a"));
    assert_eq!((&installed.files, &installed.archive), (&bed.files, &Some(bed.digest.clone())));
    installed.verify().unwrap();
    let again = bed.installer.install(&bed.address, &bed.archive, Some(&lock), &mirror).unwrap();
    assert_eq!(again, installed);

    fs::write(&installed.executable, "changed").unwrap();
    assert!(matches!(installed.verify(), Err(InstallError::Changed(_))));
    // A damaged folder is installed again.
    bed.installer.install(&bed.address, &bed.archive, Some(&lock), &mirror).unwrap().verify().unwrap();
    assert_eq!(fs::read(&installed.executable).unwrap(), b"terraform-provider-x_a");
    let left = fs::read_dir(bed.installer.cache.join("packages")).unwrap().count();
    assert_eq!(left, 1);
    let mode = fs::metadata(bed.installer.cache.join("packages")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn installed_packages_need_no_mirror() {
    let bed = bed();
    let installed = |lock: &LockedProvider| bed.installer.installed(&bed.address, lock).unwrap();
    let (by_files, by_archive) = (lock(&[&bed.files]), lock(&[&bed.digest]));
    assert_eq!((installed(&by_files), installed(&by_archive)), (None, None));
    let first = bed.installer.install(&bed.address, &bed.archive, Some(&by_archive), &[]).unwrap();
    assert_eq!(installed(&by_archive), Some(first.clone()));
    assert_eq!(installed(&by_files).unwrap().executable, first.executable);
    // Every scheme needs a match.
    assert_eq!(installed(&lock(&[&bed.digest, &Hash::Files([1; 32])])), None);
    assert_eq!(installed(&lock(&[])), None);
    fs::write(&first.executable, "changed").unwrap();
    assert_eq!((installed(&by_files), installed(&by_archive)), (None, None));
}

#[test]
fn folders_have_the_checksum_of_their_archive() {
    let bed = bed();
    let installed = bed.installer.install(&bed.address, &bed.archive, None, &[]).unwrap();
    let unpacked = Package::Folder(installed.folder);
    let other = Installer { cache: bed.folder.path().join("third"), ..bed.installer };
    let copied = other.install(&bed.address, &unpacked, Some(&lock(&[&bed.files])), &[]).unwrap();
    assert_eq!((copied.files, copied.archive), (bed.files, None));
    // The digest of the archive says nothing about a folder.
    let error = other.install(&bed.address, &unpacked, Some(&lock(&[&bed.digest])), &[]).unwrap_err();
    assert!(matches!(error, InstallError::NotRecorded { .. }), "{error}");
}

#[test]
fn every_scheme_that_can_be_compared_has_to_match() {
    let bed = bed();
    let (wrong_files, wrong_archive) = (Hash::Files([1; 32]), Hash::Archive([1; 32]));
    let other = Hash::Other("h2:x".to_owned());
    let install = |lock: &[&Hash], mirror: &[&Hash]| {
        let mirror: Vec<Hash> = mirror.iter().map(|it| (*it).clone()).collect();
        bed.installer.install(&bed.address, &bed.archive, Some(&self::lock(lock)), &mirror).map(|_| ())
    };
    install(&[&wrong_files, &bed.files, &wrong_archive, &bed.digest], &[]).unwrap();
    install(&[&bed.files, &other], &[&bed.digest]).unwrap();
    for (lock, mirror) in [
        (&[&bed.files, &wrong_archive][..], &[][..]),
        (&[&wrong_files, &bed.digest], &[]),
        (&[&bed.files], &[&wrong_archive]),
        (&[&bed.files], &[&wrong_files, &bed.digest]),
    ] {
        let error = install(lock, mirror).unwrap_err();
        assert!(matches!(error, InstallError::Mismatch { .. }), "{error}");
    }
    for (lock, mirror) in [(&[][..], &[][..]), (&[&other], &[]), (&[&bed.files], &[&other])] {
        let error = install(lock, mirror).unwrap_err();
        assert!(matches!(error, InstallError::NotRecorded { .. }), "{error}");
    }
}

#[test]
fn packages_without_an_executable_and_links_are_rejected() {
    let bed = bed();
    let error = bed.installer.install(&"y".parse().unwrap(), &bed.archive, None, &[]).unwrap_err();
    assert!(matches!(error, InstallError::NoExecutable { .. }), "{error}");
    let folder = bed.folder.path().join("links");
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink("/bin/sh", folder.join("terraform-provider-x")).unwrap();
    let error = bed.installer.install(&bed.address, &Package::Folder(folder), None, &[]).unwrap_err();
    assert!(matches!(error, InstallError::Hash { .. }), "{error}");
    assert_eq!(fs::read_dir(bed.installer.cache.join("packages")).unwrap().count(), 0);
}

#[test]
fn a_filesystem_mirror_is_installed_from() {
    let bed = bed();
    let root = bed.folder.path().join("mirror");
    let folder = root.join("registry.terraform.io/hashicorp/x");
    fs::create_dir_all(&folder).unwrap();
    let Package::Archive(path) = &bed.archive else { panic!() };
    fs::copy(path, folder.join(format!("terraform-provider-x_3.6.0_{}.zip", Platform::current()))).unwrap();
    let mirror = FilesystemMirror { root };
    let (version, package) = mirror.find(&bed.address, &"~> 3.6".parse().unwrap(), &Platform::current()).unwrap();
    assert_eq!(version, Version::new(3, 6, 0));
    bed.installer.install(&bed.address, &package, Some(&lock(&[&bed.digest])), &[]).unwrap();
}

/// Serves files of a folder on loopback, as if it were the host of the URL.
struct LocalServer {
    address: std::net::SocketAddr,
}

impl LocalServer {
    async fn start(files: Vec<(String, &'static str, Vec<u8>)>) -> Self {
        use hyper::service::service_fn;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let files = files.clone();
                let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                    let file = files.iter().find(|(path, ..)| *path == request.uri().path()).cloned();
                    let answer = match file {
                        Some((_, kind, body)) => hyper::Response::builder().header("content-type", kind).body(body),
                        None => hyper::Response::builder().status(404).body(Vec::new()),
                    };
                    let answer = answer.unwrap().map(|body| http_body_util::Full::new(bytes::Bytes::from(body)));
                    async { Ok::<_, std::convert::Infallible>(answer) }
                });
                let stream = hyper_util::rt::TokioIo::new(stream);
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(stream, service));
            }
        });
        Self { address }
    }
}

#[async_trait::async_trait]
impl HttpClient for LocalServer {
    async fn get(&self, url: &str, limit: usize) -> Result<HttpAnswer, HttpError> {
        use http_body_util::BodyExt as _;
        let path = url.strip_prefix("https://mirror.test").ok_or("another host")?;
        let stream = tokio::net::TcpStream::connect(self.address).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = hyper::Request::get(path).header("host", "mirror.test");
        let request = request.body(http_body_util::Empty::<bytes::Bytes>::new())?;
        let answer = sender.send_request(request).await?;
        let content_type = answer.headers().get("content-type").and_then(|it| it.to_str().ok()).map(str::to_owned);
        let status = answer.status().as_u16();
        let body = http_body_util::Limited::new(answer.into_body(), limit).collect().await?.to_bytes();
        Ok(HttpAnswer { status, content_type, body })
    }

    async fn download(&self, url: &str, into: &Path, limit: u64) -> Result<u16, HttpError> {
        let answer = self.get(url, usize::try_from(limit)?).await?;
        fs::write(into, answer.body)?;
        Ok(answer.status)
    }
}

#[tokio::test]
async fn a_network_mirror_is_installed_from() {
    let bed = bed();
    let Package::Archive(path) = &bed.archive else { panic!() };
    let package = fs::read(path).unwrap();
    let platform = Platform::current();
    let folder = "/m/registry.terraform.io/hashicorp/x";
    let versions = |hash: &Hash| {
        format!(
            r#"{{"archives":{{"{platform}":{{"url":"files/x.zip","hashes":["{hash}","h2:other"]}},"plan9_386":{{"url":"y"}}}}}}"#
        )
    };
    let json = "application/json; charset=utf-8";
    let server = LocalServer::start(vec![
        (
            format!("{folder}/index.json"),
            json,
            br#"{"versions":{"3.6.0":{},"3.5.0":{},"3.4.0":{},"3.3.0":{}}}"#.to_vec(),
        ),
        (format!("{folder}/3.6.0.json"), json, versions(&bed.digest).into()),
        (format!("{folder}/3.5.0.json"), "text/html", b"{}".to_vec()),
        (format!("{folder}/3.4.0.json"), json, br#"{"archives":{}}"#.to_vec()),
        (format!("{folder}/files/x.zip"), "application/zip", package.clone()),
    ])
    .await;
    let mirror = NetworkMirror::new("https://mirror.test/m").unwrap();
    let into = bed.folder.path();
    let fetch = async |constraint: &str, limit| {
        let constraint = constraint.parse().unwrap();
        mirror.fetch(&server, (&bed.address, &constraint, &platform), into, limit).await
    };
    let (version, fetched, hashes) = fetch(">= 3", 1 << 20).await.unwrap();
    assert_eq!((version, hashes.len()), (Version::new(3, 6, 0), 2));
    let installed = bed.installer.install(&bed.address, &fetched, None, &hashes).unwrap();
    assert_eq!(installed.files, bed.files);

    assert!(matches!(fetch(">= 3", package.len() as u64 - 1).await, Err(NetworkError::Request { .. })));
    assert!(matches!(fetch("3.5.0", 1).await, Err(NetworkError::Document { .. })));
    assert!(matches!(fetch("3.4.0", 1).await, Err(NetworkError::Missing(_))));
    assert!(matches!(fetch("3.3.0", 1).await, Err(NetworkError::Status { status: 404, .. })));
    assert!(matches!(fetch("4.0.0", 1).await, Err(NetworkError::Missing(_))));
    let other = mirror.versions(&server, &"other".parse().unwrap()).await;
    assert!(matches!(other, Err(NetworkError::Status { status: 404, .. })));
}
