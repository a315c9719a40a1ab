//! A server for tests that has pull requests of bare repositories and speaks the REST APIs of Gitea and GitLab, as far as they
//! are used here.
//!
//! What it knows of a repository it reads there, and a merge is a commit. Git itself it does not speak: the repositories are
//! reached by their paths, or by another server.

#![expect(clippy::unwrap_used, reason = "this is for tests, where a panic is how they fail")]

mod gitlab;
mod issues;

use std::{
    convert::Infallible,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use git2::{Oid, Repository, Signature};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use self::issues::{Issue, Words};

/// The server; ends with the value.
#[derive(Debug)]
pub struct Forge {
    shared: Arc<Shared>,
    address: SocketAddr,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    token: String,
    state: Mutex<State>,
    /// What is in the paths of calls that are not answered for now; empty: all are.
    held: watch::Sender<String>,
}

#[derive(Debug, Default)]
struct State {
    pulls: Vec<Pull>,
    comments: Vec<Comment>,
    issues: Vec<Issue>,
    statuses: Vec<(String, Value)>,
    /// The labels of pull requests, at GitLab alone.
    labels: Vec<(u64, String)>,
    requests: Vec<String>,
    /// What the next calls are answered with.
    refusals: Vec<(u16, &'static str)>,
    next_id: u64,
    /// Whether the credentials are of an app, which is not told who it is.
    is_of_app: bool,
}

#[derive(Clone, Debug)]
struct Pull {
    repository: String,
    number: u64,
    title: String,
    body: String,
    state: &'static str,
    merged: Option<Oid>,
    head: String,
    fork: Option<(String, Oid)>,
    last_head: Oid,
    base: String,
    author: String,
    /// What takes the place of fields of the answer.
    garbled: Option<Value>,
}

#[derive(Clone, Debug)]
struct Comment {
    id: u64,
    pull: u64,
    body: String,
    author: String,
}

/// How somebody merges a pull request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// By a commit with two parents.
    Commit,
    /// As one new commit, whose message is the title alone.
    Squash,
}

impl Forge {
    /// Serves the bare repositories `<root>/<owner>/<name>.git` to who shows this token, who is `bot`; on any port of loopback.
    pub async fn start(root: &Path, token: &str) -> Self {
        let (root, token) = (root.to_owned(), token.to_owned());
        let (state, held) = (Mutex::new(State::default()), watch::Sender::new(String::new()));
        let shared = Arc::new(Shared { root, token, state, held });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self { shared, address, task }
    }

    /// The address that people open it by.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The calls so far, as method and path.
    pub fn requests(&self) -> Vec<String> {
        self.shared.state.lock().unwrap().requests.clone()
    }

    /// Answers the next call with this status and `Retry-After`.
    pub fn refuse_next(&self, status: u16, retry_after: &'static str) {
        self.shared.state.lock().unwrap().refusals.push((status, retry_after));
    }

    /// Answers no call whose path has this, until it is [released](Self::release).
    pub fn hold(&self, part: &str) {
        self.shared.held.send_replace(part.to_owned());
    }

    /// Answers all calls again.
    pub fn release(&self) {
        self.hold("");
    }

    /// The pull requests, as the API has them.
    pub fn pulls(&self) -> Vec<Value> {
        let state = self.shared.state.lock().unwrap();
        state.pulls.iter().map(|pull| pull.json(&self.shared.root)).collect()
    }

    /// The texts of the comments under a pull request.
    pub fn comments(&self, number: u64) -> Vec<String> {
        let state = self.shared.state.lock().unwrap();
        state.comments.iter().filter(|it| it.pull == number).map(|it| it.body.clone()).collect()
    }

    /// The issues, as Gitea's API has them.
    pub fn issues(&self) -> Vec<Value> {
        self.shared.state.lock().unwrap().issues.iter().map(|issue| issue.json(Words::Gitea)).collect()
    }

    /// Somebody else opens an issue; its number.
    pub fn raise(&self, repository: &str, title: &str, body: &str) -> u64 {
        self.shared.state.lock().unwrap().open_issue(repository, "eve", title.to_owned(), body.to_owned())
    }

    /// The labels of a merge request of GitLab.
    pub fn labels(&self, number: u64) -> Vec<String> {
        let state = self.shared.state.lock().unwrap();
        state.labels.iter().filter(|(of, _)| *of == number).map(|(_, label)| label.clone()).collect()
    }

    /// What was said of commits, oldest first.
    pub fn statuses(&self) -> Vec<(String, Value)> {
        self.shared.state.lock().unwrap().statuses.clone()
    }

    /// Somebody else opens a pull request, from a fork if there is a commit for that.
    pub fn open(&self, repository: &str, head: &str, base: &str, fork: Option<Oid>) -> u64 {
        let mut state = self.shared.state.lock().unwrap();
        let number = state.pulls.len() as u64 + 1;
        let last_head = fork.unwrap_or_else(|| self.shared.commit(repository, head).unwrap());
        state.pulls.push(Pull {
            repository: repository.to_owned(),
            number,
            title: "by hand".to_owned(),
            body: String::new(),
            state: "open",
            merged: None,
            head: head.to_owned(),
            fork: fork.map(|commit| ("eve/fork".to_owned(), commit)),
            last_head,
            base: base.to_owned(),
            author: "eve".to_owned(),
            garbled: None,
        });
        number
    }

    /// Somebody else writes a comment.
    pub fn say(&self, number: u64, body: &str) {
        self.say_as("eve", number, body);
    }

    /// Somebody writes a comment; who is not eve is a program.
    pub fn say_as(&self, author: &str, number: u64, body: &str) {
        let mut state = self.shared.state.lock().unwrap();
        state.next_id += 1;
        let id = state.next_id;
        state.comments.push(Comment { id, pull: number, body: body.to_owned(), author: author.to_owned() });
    }

    /// From now on it speaks to an app, as GitHub does.
    pub fn be_used_by_an_app(&self) {
        self.shared.state.lock().unwrap().is_of_app = true;
    }

    /// Somebody merges a pull request; the branch stays.
    pub fn merge(&self, number: u64, how: Merge) -> Oid {
        let mut state = self.shared.state.lock().unwrap();
        let pull = state.pulls.iter_mut().find(|pull| pull.number == number).unwrap();
        let repository = self.shared.open(&pull.repository);
        let commit =
            |branch: &str| repository.find_commit(self.shared.commit(&pull.repository, branch).unwrap()).unwrap();
        let (base, head) = (commit(&pull.base), commit(&pull.head));
        let mut index = repository.merge_commits(&base, &head, None).unwrap();
        assert!(!index.has_conflicts(), "a pull request with conflicts is not merged");
        let tree = repository.find_tree(index.write_tree_to(&repository).unwrap()).unwrap();
        let eve = Signature::now("Eve", "eve@example.com").unwrap();
        let parents = match how {
            Merge::Commit => vec![&base, &head],
            Merge::Squash => vec![&base],
        };
        let branch = format!("refs/heads/{}", pull.base);
        let message = format!("{} (#{number})", pull.title);
        let merged = repository.commit(Some(&branch), &eve, &eve, &message, &tree, &parents).unwrap();
        (pull.state, pull.merged, pull.last_head) = ("closed", Some(merged), head.id());
        merged
    }

    /// Somebody closes a pull request.
    pub fn close(&self, number: u64) {
        let mut state = self.shared.state.lock().unwrap();
        state.pulls.iter_mut().find(|pull| pull.number == number).unwrap().state = "closed";
    }

    /// Tells these fields of a pull request other than they are.
    pub fn garble(&self, number: u64, fields: Value) {
        let mut state = self.shared.state.lock().unwrap();
        state.pulls.iter_mut().find(|pull| pull.number == number).unwrap().garbled = Some(fields);
    }

    /// Somebody points a pull request at another branch.
    pub fn retarget(&self, number: u64, base: &str) {
        let mut state = self.shared.state.lock().unwrap();
        state.pulls.iter_mut().find(|pull| pull.number == number).unwrap().base = base.to_owned();
    }

    /// Somebody writes another description.
    pub fn describe(&self, number: u64, body: &str) {
        let mut state = self.shared.state.lock().unwrap();
        state.pulls.iter_mut().find(|pull| pull.number == number).unwrap().body = body.to_owned();
    }
}

impl Drop for Forge {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Pull {
    fn json(&self, root: &Path) -> Value {
        let now = commit(root, &self.repository, &self.head).unwrap_or(self.last_head);
        let (of, sha) = match &self.fork {
            Some((name, commit)) => (name.clone(), *commit),
            None if self.state == "open" => (self.repository.clone(), now),
            None => (self.repository.clone(), self.last_head),
        };
        let url = format!("https://git.example.com/{}/pulls/{}", self.repository, self.number);
        // As Gitea has it.
        let is_there = self.fork.is_some() || commit(root, &self.repository, &self.head).is_some();
        let base = commit(root, &self.repository, &self.base).map(|it| it.to_string()).unwrap_or_default();
        let head = if is_there { self.head.clone() } else { format!("refs/pull/{}/head", self.number) };
        let mut told = json!({
            "number": self.number, "html_url": url, "title": self.title, "body": self.body, "state": self.state,
            "merged": self.merged.is_some(), "merge_commit_sha": self.merged.map(|it| it.to_string()),
            "user": {"login": self.author}, "mergeable": self.is_mergeable(root),
            "head": {"ref": head, "label": self.head, "sha": sha.to_string(), "repo": {"full_name": of}},
            "base": {
                "ref": self.base, "sha": base, "repo": {"full_name": self.repository, "default_branch": "main"},
            },
        });
        for (field, value) in self.garbled.iter().filter_map(Value::as_object).flatten() {
            told[field] = value.clone();
        }
        told
    }

    fn is_mergeable(&self, root: &Path) -> bool {
        let repository = Repository::open_bare(root.join(format!("{}.git", self.repository))).unwrap();
        let branches = [&self.base, &self.head].map(|branch| commit(root, &self.repository, branch));
        let [Some(base), Some(head)] = branches.map(|id| id.and_then(|id| repository.find_commit(id).ok())) else {
            return false;
        };
        self.state == "open" && !repository.merge_commits(&base, &head, None).unwrap().has_conflicts()
    }
}

fn commit(root: &Path, repository: &str, branch: &str) -> Option<Oid> {
    let repository = Repository::open_bare(root.join(format!("{repository}.git"))).ok()?;
    repository.refname_to_id(&format!("refs/heads/{branch}")).ok()
}

impl Shared {
    fn open(&self, repository: &str) -> Repository {
        Repository::open_bare(self.root.join(format!("{repository}.git"))).unwrap()
    }

    fn commit(&self, repository: &str, branch: &str) -> Option<Oid> {
        commit(&self.root, repository, branch)
    }

    fn answer(&self, method: &Method, path: &str, query: &str, body: &Value) -> (StatusCode, Value) {
        if let Some(path) = path.strip_prefix("/api/v4/") {
            return self.answer_as_gitlab(method, path, query, body);
        }
        let parts: Vec<&str> = path.trim_start_matches("/api/v1/").split('/').collect();
        let mut state = self.state.lock().unwrap();
        let not_found = (StatusCode::NOT_FOUND, json!({"message": "not found"}));
        let text = |key: &str| body[key].as_str().map(str::to_owned);
        if parts == ["user"] {
            return match state.is_of_app {
                true => (StatusCode::FORBIDDEN, json!({"message": "Resource not accessible by integration"})),
                false => (StatusCode::OK, json!({"login": "bot"})),
            };
        }
        let ["repos", owner, name, of @ ..] = parts.as_slice() else { return not_found };
        let repository = format!("{owner}/{name}");
        if !self.root.join(format!("{repository}.git")).is_dir() {
            return not_found;
        }
        let numbered = |state: &State, number: &str| {
            let is_it = |pull: &Pull| pull.repository == repository && pull.number.to_string() == number;
            state.pulls.iter().position(is_it)
        };
        match (method.as_str(), of) {
            ("GET", ["pulls"]) => {
                let page = query.split('&').find_map(|pair| pair.strip_prefix("page=")).unwrap_or("1").to_owned();
                let wanted = if query.contains("state=closed") { "closed" } else { "open" };
                let listed = state.pulls.iter().filter(|pull| pull.repository == repository && pull.state == wanted);
                let mut listed: Vec<&Pull> = listed.collect();
                if query.contains("sort=recentupdate") {
                    listed.reverse();
                }
                // Small pages, as administrators may set.
                let skipped = (page.parse::<usize>().unwrap() - 1) * 2;
                let of_page = listed.iter().skip(skipped).take(2);
                let of_page: Vec<Value> = of_page.map(|pull| pull.json(&self.root)).collect();
                (StatusCode::OK, of_page.into())
            }
            // The first by base and head, whatever became of it, as at Gitea.
            ("GET", ["pulls", base, of @ ..]) if !of.is_empty() => {
                let head = of.join("/");
                let head = percent_encoding::percent_decode_str(&head).decode_utf8_lossy().into_owned();
                let is_it = |pull: &&Pull| {
                    pull.repository == repository && pull.fork.is_none() && pull.base == *base && pull.head == head
                };
                state.pulls.iter().find(is_it).map_or(not_found, |pull| (StatusCode::OK, pull.json(&self.root)))
            }
            ("POST", ["pulls"]) => {
                let (head, base) = (text("head").unwrap(), text("base").unwrap());
                let (Some(last_head), Some(_)) = (self.commit(&repository, &head), self.commit(&repository, &base))
                else {
                    return not_found;
                };
                let is_same = |pull: &Pull| {
                    let is_own = pull.repository == repository && pull.fork.is_none();
                    is_own && pull.state == "open" && pull.head == head && pull.base == base
                };
                if state.pulls.iter().any(is_same) {
                    return (StatusCode::CONFLICT, json!({"message": "pull request already exists"}));
                }
                let pull = Pull {
                    number: state.pulls.len() as u64 + 1,
                    title: text("title").unwrap(),
                    body: text("body").unwrap_or_default(),
                    state: "open",
                    merged: None,
                    fork: None,
                    author: "bot".to_owned(),
                    garbled: None,
                    repository,
                    head,
                    last_head,
                    base,
                };
                state.pulls.push(pull.clone());
                (StatusCode::CREATED, pull.json(&self.root))
            }
            (_, ["pulls", number]) => {
                let Some(at) = numbered(&state, number) else { return not_found };
                if method == Method::PATCH {
                    let pull = &mut state.pulls[at];
                    pull.title = text("title").unwrap_or(pull.title.clone());
                    pull.body = text("body").unwrap_or(pull.body.clone());
                    if text("state").as_deref() == Some("closed") {
                        pull.state = "closed";
                    }
                }
                (StatusCode::OK, state.pulls[at].json(&self.root))
            }
            ("GET", ["commits", sha, "status"]) => {
                // Of each context the last; Gitea says `status` for what it takes as `state`.
                let mut last: Vec<Value> = Vec::new();
                for (_, said) in state.statuses.iter().filter(|(of, _)| of == sha) {
                    last.retain(|other| other["context"] != said["context"]);
                    last.push(json!({"context": said["context"], "status": said["state"], "description": said["description"]}));
                }
                (StatusCode::OK, json!({"state": "pending", "statuses": last}))
            }
            ("POST", ["statuses", sha]) => {
                state.statuses.push(((*sha).to_owned(), body.clone()));
                (StatusCode::CREATED, json!({}))
            }
            (_, ["issues", number @ ..]) if number.len() < 2 => {
                state.answer_issues(Words::Gitea, &repository, (method, number.first().copied()), body)
            }
            ("GET", ["issues", number, "comments"]) => {
                let of_pull = state.comments.iter().filter(|comment| comment.pull.to_string() == *number);
                let kind = |it: &Comment| if it.author == "eve" { "User" } else { "Bot" };
                let user = |it: &Comment| match state.is_of_app {
                    true => json!({"login": it.author, "type": kind(it)}),
                    false => json!({"login": it.author}),
                };
                let json = |it: &Comment| json!({"id": it.id, "body": it.body, "user": user(it)});
                (StatusCode::OK, of_pull.map(json).collect::<Vec<_>>().into())
            }
            ("POST", ["issues", number, "comments"]) => {
                state.next_id += 1;
                let (id, pull) = (state.next_id, number.parse().unwrap());
                state.comments.push(Comment { id, pull, body: text("body").unwrap(), author: "bot".to_owned() });
                (StatusCode::CREATED, json!({ "id": id }))
            }
            ("PATCH", ["issues", "comments", id]) => {
                let Some(comment) = state.comments.iter_mut().find(|comment| comment.id.to_string() == *id) else {
                    return not_found;
                };
                comment.body = text("body").unwrap();
                (StatusCode::OK, json!({}))
            }
            _ => not_found,
        }
    }

    async fn serve(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
        let shown = head.headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_known = shown == format!("Bearer {}", self.token);
        let refusal = {
            let mut state = self.state.lock().unwrap();
            state.requests.push(format!("{} {path}", head.method));
            state.refusals.pop()
        };
        let mut held = self.held.subscribe();
        let is_answered = held.wait_for(|part| part.is_empty() || !path.contains(part.as_str())).await.is_ok();
        assert!(is_answered, "it ends after its calls");
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut response = Response::builder();
        let (status, answer) = match refusal {
            Some((status, wait)) => {
                response = response.header("retry-after", wait);
                (StatusCode::from_u16(status).unwrap(), json!({"message": format!("not now, {shown}")}))
            }
            None if is_known => self.answer(&head.method, &path, &query, &body),
            None => (StatusCode::UNAUTHORIZED, json!({"message": format!("{shown} is not known")})),
        };
        let is_list = path.ends_with("/pulls") || path.ends_with("/merge_requests");
        if is_list && answer.as_array().is_some_and(|page| page.len() == 2) {
            response = response.header("link", "<https://git.example.com/next>; rel=\"next\"");
        }
        response.status(status).body(Full::new(Bytes::from(answer.to_string()))).unwrap()
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(shared.serve(request).await) }
            });
            // Whoever hangs up has a reason.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
