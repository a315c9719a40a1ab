//! OpenSSH's server for tests: on loopback, with keys and settings of its own, for the user of the test.

use std::{
    env,
    fs::{self, File},
    net::SocketAddr,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use super::skipped;

/// Lets one key in, on some port; ends with the value.
#[derive(Debug)]
pub struct SshServer {
    folder: TempDir,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl SshServer {
    /// Starts it. Where this machine has no `sshd` there is none, which is said, also by a test that succeeds.
    pub async fn start() -> Option<Self> {
        let Some(program) = program() else {
            skipped("what is about SSH, since there is no sshd (package openssh-server)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        // It offers one of several keys, as servers do, and whoever calls has to know that one.
        let host_keys = ["ecdsa", "ed25519"].map(|kind| make_key(folder.path(), &format!("host_{kind}"), kind));
        let client_key = make_key(folder.path(), "client", "ed25519");
        fs::copy(client_key.with_extension("pub"), folder.path().join("authorized_keys")).unwrap();
        let mut settings: String = host_keys.iter().map(|key| format!("HostKey {}\n", key.display())).collect();
        settings += &format!("AuthorizedKeysFile {}\n", folder.path().join("authorized_keys").display());
        // The folder of a test is nobody's home. Nothing but that key gets anybody in, and to nothing but programs.
        settings += "StrictModes no\nUsePAM no\nPidFile none\nLogLevel VERBOSE\nPermitRootLogin prohibit-password\n\
                     PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitUserRC no\nPermitTTY no\n\
                     X11Forwarding no\nAllowTcpForwarding no\nAllowAgentForwarding no\n";
        fs::write(folder.path().join("sshd_config"), settings).unwrap();
        // For root it insists on this folder, which the system's service would make. Nobody else needs it.
        let _ = fs::create_dir_all("/run/sshd");
        run(Command::new(&program).arg("-t").arg("-f").arg(folder.path().join("sshd_config")));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(serve(listener, program, folder.path().to_owned()));
        Some(Self { folder, address, task })
    }

    /// The URL of a repository on this machine, for `user@` or for whoever the credentials name.
    pub fn url(&self, user: &str, repository: &Path) -> String {
        format!("ssh://{user}{}{}", self.address, repository.display())
    }

    /// Who gets in.
    pub fn user() -> String {
        run(Command::new("id").arg("-un")).trim().to_owned()
    }

    /// The key that gets in.
    pub fn private_key(&self) -> String {
        fs::read_to_string(self.folder.path().join("client")).unwrap()
    }

    /// The same, which this passphrase opens.
    pub fn private_key_with(&self, passphrase: &str) -> String {
        let locked = self.folder.path().join("locked");
        fs::copy(self.folder.path().join("client"), &locked).unwrap();
        run(Command::new("ssh-keygen").args(["-q", "-p", "-a", "1", "-N", passphrase, "-f"]).arg(&locked));
        fs::read_to_string(locked).unwrap()
    }

    /// A key that nobody knows, and what is known of a server that has it.
    pub fn other_key(&self) -> (String, String) {
        let key = make_key(self.folder.path(), "other", "ecdsa");
        (fs::read_to_string(&key).unwrap(), self.known(&key))
    }

    /// What is known of the server, as `ssh-keyscan` tells it.
    pub fn known_hosts(&self) -> String {
        ["host_ecdsa", "host_ed25519"].map(|name| self.known(&self.folder.path().join(name))).concat()
    }

    fn known(&self, key: &Path) -> String {
        let key = fs::read_to_string(key.with_extension("pub")).unwrap();
        format!("[{}]:{} {key}", self.address.ip(), self.address.port())
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Where `sshd` is, which often is in no user's path.
fn program() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join("sshd")).find(|program| program.is_file())
}

fn make_key(folder: &Path, name: &str, kind: &str) -> PathBuf {
    let key = folder.join(name);
    run(Command::new("ssh-keygen").args(["-q", "-C", "test", "-t", kind, "-N", "", "-f"]).arg(&key));
    key
}

fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Every caller gets a process, as inetd gives one.
async fn serve(listener: TcpListener, program: PathBuf, folder: PathBuf) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let mut child = spawn(stream, &program, &folder);
        // It ends with the connection, or with the test.
        tokio::spawn(async move { child.wait().await });
    }
}

fn spawn(stream: TcpStream, program: &Path, folder: &Path) -> tokio::process::Child {
    let stream = stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    let log = File::options().create(true).append(true).open(folder.join("log")).unwrap();
    tokio::process::Command::new(program)
        .args(["-i", "-e", "-f"])
        .arg(folder.join("sshd_config"))
        .stdin(OwnedFd::from(stream.try_clone().unwrap()))
        .stdout(OwnedFd::from(stream))
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}
