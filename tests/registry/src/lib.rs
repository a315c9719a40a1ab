//! A real OCI registry for tests ([`Registry`]), and a server before it or instead of it ([`Front`]).
//!
//! The registry is CNCF's distribution, and oras pushes to it. `STOA_TEST_REGISTRY` and `STOA_TEST_ORAS` name the
//! programs; `hack/test` builds them from the Go module in this folder and sets both.

#![expect(clippy::unwrap_used, reason = "this is for tests, where a panic is how they fail")]

mod front;

use std::{
    ffi::OsStr,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use stoa_test_s3::free_port;
use tempfile::TempDir;

pub use self::front::{Answer, Front, ReceivedRequest};

const PATIENCE: Duration = Duration::from_secs(30);

/// The user of a registry with a login.
pub const USER: &str = "ann";
/// The password of the user.
pub const PASSWORD: &str = "first-secret-of-the-tests";
/// The password as the registry stores it, by bcrypt.
const HASH: &str = "$2a$04$vGa/RVZ.ifATVYlw4mT0VOPWir4DvsrPO/GGWlDaDkhtcBMm5Cv9.";

/// The settings of a registry.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Whether it demands the user and the password.
    pub login: bool,
    /// Its certificate and key, PEM, for HTTPS.
    pub certificate: Option<(String, String)>,
}

/// A registry on loopback; ends with the value.
#[derive(Debug)]
pub struct Registry {
    folder: TempDir,
    port: u16,
    process: Child,
    settings: Settings,
}

impl Registry {
    /// Whether the programs are there, and so tests with a registry are to run.
    pub fn is_there() -> bool {
        ["STOA_TEST_REGISTRY", "STOA_TEST_ORAS"].iter().all(|name| std::env::var_os(name).is_some())
    }

    /// Starts one over HTTP without a login.
    pub fn start() -> Self {
        Self::start_with(Settings::default())
    }

    /// Starts one with these settings.
    pub fn start_with(settings: Settings) -> Self {
        let (folder, port) = (TempDir::new().unwrap(), free_port());
        let path = |name: &str| folder.path().join(name);
        let mut config = format!(
            "version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\nstorage:\n  filesystem: {{rootdirectory: \
             {}}}\n  delete: {{enabled: true}}\nhttp:\n  addr: 127.0.0.1:{port}\n  secret: tests\n",
            path("storage").display()
        );
        if let Some((certificate, key)) = &settings.certificate {
            fs::write(path("tls.crt"), certificate).unwrap();
            fs::write(path("tls.key"), key).unwrap();
            let (certificate, key) = (path("tls.crt"), path("tls.key"));
            config += &format!("  tls: {{certificate: {}, key: {}}}\n", certificate.display(), key.display());
        }
        if settings.login {
            fs::write(path("users"), format!("{USER}:{HASH}\n")).unwrap();
            config += &format!("auth:\n  htpasswd: {{realm: tests, path: {}}}\n", path("users").display());
        }
        fs::write(path("config.yaml"), config).unwrap();
        let program = std::env::var_os("STOA_TEST_REGISTRY").expect("STOA_TEST_REGISTRY names the program registry");
        let process = Command::new(program)
            .arg("serve")
            .arg(path("config.yaml"))
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "the registry does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { folder, port, process, settings }
    }

    /// Its host and port.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The file of a blob, by the 64 digits of its digest.
    pub fn blob(&self, hex: &str) -> PathBuf {
        let blobs = self.folder.path().join("storage/docker/registry/v2/blobs/sha256");
        blobs.join(&hex[..2]).join(hex).join("data")
    }

    /// Pushes an artifact by `oras push`, with these words after the name `repository:tag`, in a folder with the files.
    /// Returns its digest.
    pub fn push(&self, name: &str, words: &[&str], folder: &Path) -> String {
        let reference = format!("{}/{name}", self.host());
        digest_in(&self.oras(&[&["push", "--no-tty", reference.as_str()], words].concat(), folder))
    }

    /// Copies an artifact from an archive with an OCI image layout, such as `bundle.tar:latest` in a folder, to the name
    /// `repository:tag`. Returns its digest.
    pub fn copy_from_layout(&self, artifact: &str, name: &str, folder: &Path) -> String {
        let reference = format!("{}/{name}", self.host());
        let words = ["cp", "--no-tty", "--from-oci-layout", artifact, reference.as_str()];
        digest_in(&self.oras_with("--to-", &words, folder))
    }

    /// Pushes a folder as `flux push artifact` does: all of it in one archive, with Flux's media types.
    pub fn push_flux(&self, name: &str, folder: &Path) -> String {
        let work = TempDir::new().unwrap();
        fs::write(work.path().join("config.json"), "{}").unwrap();
        tar_gz(folder, ".", &work.path().join("content.tgz"));
        let words = [
            "--config=config.json:application/vnd.cncf.flux.config.v1+json",
            "--annotation=org.opencontainers.image.revision=main@sha1:b3b00fe35424a45d373bf4c7214178bc36fd7872",
            "content.tgz:application/vnd.cncf.flux.content.v1.tar+gzip",
        ];
        self.push(name, &words, work.path())
    }

    /// Pushes a chart's archive as `helm push` does.
    pub fn push_chart(&self, name: &str, archive: &Path) -> String {
        let work = TempDir::new().unwrap();
        fs::write(work.path().join("config.json"), "{}").unwrap();
        fs::copy(archive, work.path().join("chart.tgz")).unwrap();
        let words = [
            "--config=config.json:application/vnd.cncf.helm.config.v1+json",
            "chart.tgz:application/vnd.cncf.helm.chart.content.v1.tar+gzip",
        ];
        self.push(name, &words, work.path())
    }

    /// Runs oras in a folder, and returns its output.
    pub fn oras(&self, words: &[&str], folder: &Path) -> String {
        self.oras_with("--", words, folder)
    }

    /// The same where the flags about the registry have another prefix.
    fn oras_with(&self, prefix: &str, words: &[&str], folder: &Path) -> String {
        let flag = |name: &str| format!("{prefix}{name}");
        let program = std::env::var_os("STOA_TEST_ORAS").expect("STOA_TEST_ORAS names the program oras");
        let mut oras = Command::new(program);
        oras.args(words).current_dir(folder).env("HOME", self.folder.path());
        match &self.settings.certificate {
            Some(_) => oras.arg(flag("insecure")),
            None => oras.arg(flag("plain-http")),
        };
        if self.settings.login {
            oras.args([flag("username").as_str(), USER, flag("password").as_str(), PASSWORD]);
        }
        output(&mut oras)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The digest that oras prints at the end.
fn digest_in(printed: &str) -> String {
    let digest = printed.lines().find_map(|line| line.strip_prefix("Digest: "));
    digest.unwrap_or_else(|| panic!("no digest in {printed}")).trim().to_owned()
}

/// Writes what is at a path of a folder to a tar archive with gzip.
pub fn tar_gz(folder: &Path, path: &str, archive: &Path) {
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(archive).arg("-C").arg(folder);
    output(tar.args([OsStr::new("--owner=0"), OsStr::new("--group=0"), OsStr::new(path)]));
}

fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {told}{}", String::from_utf8_lossy(&output.stderr));
    told
}
