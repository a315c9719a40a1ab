//! A real Git server with pull requests for tests: Gitea ([`GiteaServer`]).
//!
//! `STOA_TEST_GITEA` names the program, and `STOA_TEST_GITEA_FILES` the folder with what it reads while it runs, which is the
//! source of its Go module; `hack/test` builds it from the Go module in this folder and sets both.

#![expect(clippy::unwrap_used, reason = "this is for tests, where a panic is how they fail")]

use std::{
    fs,
    io::Write as _,
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering::SeqCst},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Who may do everything there, and whose repositories are used.
pub const USER: &str = "bot";
/// Somebody else, who may fork what is public.
pub const STRANGER: &str = "eve";
const PASSWORD: &str = "opens-the-git-server";
const PATIENCE: Duration = Duration::from_secs(60);

/// A Gitea on loopback with the users [`USER`] and [`STRANGER`]; ends with the value.
#[derive(Debug)]
pub struct GiteaServer {
    folder: TempDir,
    port: u16,
    process: Option<Child>,
    /// A token of [`USER`], for everything.
    pub token: String,
}

impl GiteaServer {
    /// The program and its files, where tests are to run with one.
    pub fn program() -> Option<(PathBuf, PathBuf)> {
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        Some((path("STOA_TEST_GITEA")?, path("STOA_TEST_GITEA_FILES")?))
    }

    /// Starts it, if there is a program.
    pub fn start() -> Option<Self> {
        let (program, files) = Self::program()?;
        let folder = TempDir::new().unwrap();
        let port = free_port();
        let root = folder.path().display();
        let settings = format!(
            "RUN_MODE = prod
WORK_PATH = {root}
I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = {port}
ROOT_URL = http://127.0.0.1:{port}/
STATIC_ROOT_PATH = {files}
DISABLE_SSH = true
OFFLINE_MODE = true
[database]
DB_TYPE = sqlite3
PATH = {root}/gitea.db
[security]
INSTALL_LOCK = true
SECRET_KEY = of-a-server-that-tests-throw-away
PASSWORD_HASH_ALGO = pbkdf2$1000$50
[log]
MODE = file
LEVEL = Warn
ROOT_PATH = {root}/log
[indexer]
ISSUE_INDEXER_TYPE = db
[actions]
ENABLED = false
[packages]
ENABLED = false
[repository]
DEFAULT_BRANCH = main
",
            files = files.display()
        );
        fs::write(folder.path().join("app.ini"), settings).unwrap();
        let mut server = Self { folder, port, process: None, token: String::new() };
        let output = fs::File::create(server.folder.path().join("output")).unwrap();
        let mut gitea = server.gitea(&program);
        gitea.arg("web").stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        server.process = Some(gitea.spawn().unwrap());
        server.until_it_answers();
        for user in [USER, STRANGER] {
            let mut create = server.gitea(&program);
            create.args(["admin", "user", "create", "--must-change-password=false", "--username", user]);
            create.args(["--password", PASSWORD, "--email"]).arg(format!("{user}@localhost.localdomain"));
            if user == USER {
                create.arg("--admin");
            }
            let created = create.stdin(Stdio::null()).output().unwrap();
            assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        }
        let token = json!({"name": "tests", "scopes": ["all"]});
        let token = server.call_as(USER, "POST", &format!("users/{USER}/tokens"), Some(&token));
        token["sha1"].as_str().unwrap().clone_into(&mut server.token);
        Some(server)
    }

    fn gitea(&self, program: &PathBuf) -> Command {
        let mut command = Command::new(program);
        command.arg("--config").arg(self.folder.path().join("app.ini")).arg("--work-path").arg(self.folder.path());
        command.current_dir(self.folder.path());
        command
    }

    fn until_it_answers(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        let url = format!("{}/api/v1/version", self.url());
        while !Command::new("curl")
            .args(["--fail", "--silent", "--output", "/dev/null", &url])
            .status()
            .unwrap()
            .success()
        {
            let has_ended = self.process.as_mut().unwrap().try_wait().unwrap().is_some();
            if has_ended || Instant::now() > deadline {
                panic!("Gitea does not answer: {}", fs::read_to_string(self.folder.path().join("output")).unwrap());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The address that people open it by.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Makes a repository of [`USER`] with a first commit on `main`; its address, without credentials.
    pub fn create(&self, name: &str) -> String {
        self.call("POST", "user/repos", Some(&json!({"name": name, "auto_init": true, "default_branch": "main"})));
        format!("{}/{USER}/{name}.git", self.url())
    }

    /// The same address with what opens it for a user.
    pub fn with_password(address: &str, user: &str) -> String {
        address.replacen("://", &format!("://{user}:{PASSWORD}@"), 1)
    }

    /// Calls the API as [`USER`], which has to go well; what it answers.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        self.call_as(USER, method, path, body)
    }

    /// Calls the API as a user.
    pub fn call_as(&self, user: &str, method: &str, path: &str, body: Option<&Value>) -> Value {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail-with-body", "--request", method]);
        curl.args(["--user", &format!("{user}:{PASSWORD}"), "--header", "Content-Type: application/json"]);
        if body.is_some() {
            curl.args(["--data", "@-"]);
        }
        curl.arg(format!("{}/api/v1/{path}", self.url()));
        let mut curl = curl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let sent = body.map(Value::to_string).unwrap_or_default();
        curl.stdin.take().unwrap().write_all(sent.as_bytes()).unwrap();
        let answer = curl.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&answer.stdout);
        assert!(answer.status.success(), "{method} {path}: {text} {}", String::from_utf8_lossy(&answer.stderr));
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Opens a pull request as [`USER`]; its number. `head` is a branch, or `<owner>:<branch>` of a fork.
    pub fn open(&self, repository: &str, head: &str) -> u64 {
        let body = json!({"head": head, "base": "main", "title": format!("Bring in {head}")});
        self.call("POST", &format!("repos/{USER}/{repository}/pulls"), Some(&body))["number"].as_u64().unwrap()
    }

    /// Merges a pull request by a commit with two parents, once Gitea has found out that it can be.
    pub fn merge(&self, repository: &str, number: u64) {
        let path = format!("repos/{USER}/{repository}/pulls/{number}");
        let deadline = Instant::now() + PATIENCE;
        while self.call("GET", &path, None)["mergeable"] != true {
            assert!(Instant::now() < deadline, "pull request {number} cannot be merged");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.call("POST", &format!("{path}/merge"), Some(&json!({"Do": "merge"})));
    }

    /// The texts of the comments under a pull request.
    pub fn comments(&self, repository: &str, number: u64) -> Vec<String> {
        let comments = self.call("GET", &format!("repos/{USER}/{repository}/issues/{number}/comments"), None);
        comments.as_array().unwrap().iter().map(|comment| comment["body"].as_str().unwrap().to_owned()).collect()
    }

    /// All that was ever said of a commit, as `<context> <state>: <description>`, oldest first.
    pub fn statuses(&self, repository: &str, commit: &str) -> Vec<String> {
        let path = format!("repos/{USER}/{repository}/commits/{commit}/statuses?sort=oldest&limit=50");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let told =
            |it: &Value| format!("{} {}: {}", text(&it["context"]), text(&it["status"]), text(&it["description"]));
        self.call("GET", &path, None).as_array().unwrap().iter().map(told).collect()
    }
}

impl Drop for GiteaServer {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

/// A port that nothing listens on, below the range of outgoing connections, so that none takes it meanwhile.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 2_000).unwrap();
    (0..2_000)
        .map(|_| 22_000 + (start + NEXT.fetch_add(1, SeqCst)) % 2_000)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("one of two thousand ports is free")
}
