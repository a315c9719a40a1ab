//! The same pull requests by GitLab's REST API v4, with answers as its documentation has them.

use std::path::Path;

use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::{Comment, Pull, Shared, issues::Words};

/// The id of the project, and of the fork of somebody else.
const PROJECT: u64 = 3;
const FORK: u64 = 4;

impl Shared {
    /// What GitLab answers at a path behind `/api/v4/`.
    pub(super) fn answer_as_gitlab(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        body: &Value,
    ) -> (StatusCode, Value) {
        let parts: Vec<String> = path.split('/').map(decoded).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let not_found = (StatusCode::NOT_FOUND, json!({"message": "404 Not Found"}));
        let refused = |status: StatusCode, why: &str| (status, json!({"message": [why]}));
        let text = |key: &str| body[key].as_str().map(str::to_owned);
        let of_query = |key: &str| {
            let pair = query.split('&').filter_map(|pair| pair.split_once('=')).find(|(name, _)| *name == key);
            pair.map(|(_, value)| decoded(value))
        };
        if parts == ["user"] {
            return (StatusCode::OK, json!({"id": 1, "username": "bot", "name": "Bot", "state": "active"}));
        }
        let ["projects", repository, of @ ..] = parts.as_slice() else { return not_found };
        if !self.root.join(format!("{repository}.git")).is_dir() {
            return not_found;
        }
        let mut state = self.state.lock().unwrap();
        match (method.as_str(), of) {
            ("GET", []) => {
                let project = json!({"id": PROJECT, "path_with_namespace": repository, "default_branch": "main"});
                (StatusCode::OK, project)
            }
            ("GET", ["repository", "branches", branch]) => match self.commit(repository, branch) {
                Some(commit) => {
                    let commit = json!({"id": commit.to_string(), "title": "a commit"});
                    (StatusCode::OK, json!({"name": branch, "default": *branch == "main", "commit": commit}))
                }
                None => (StatusCode::NOT_FOUND, json!({"message": "404 Branch Not Found"})),
            },
            ("GET", ["merge_requests"]) => {
                let (wanted, from, to) = (of_query("state"), of_query("source_branch"), of_query("target_branch"));
                let is_listed = |pull: &&Pull| {
                    pull.repository == *repository
                        && wanted.as_ref().is_none_or(|wanted| state_of(pull) == wanted)
                        && from.as_ref().is_none_or(|from| pull.head == *from)
                        && to.as_ref().is_none_or(|to| pull.base == *to)
                };
                let page = of_query("page").map_or(1, |page| page.parse::<usize>().unwrap());
                // Small pages, as administrators may set; those that were changed last come first.
                let of_page = state.pulls.iter().rev().filter(is_listed).skip((page - 1) * 2).take(2);
                let of_page: Vec<Value> = of_page.map(|pull| merge_request(&self.root, pull)).collect();
                (StatusCode::OK, of_page.into())
            }
            ("POST", ["merge_requests"]) => {
                let (head, base) = (text("source_branch").unwrap(), text("target_branch").unwrap());
                let (Some(last_head), Some(_)) = (self.commit(repository, &head), self.commit(repository, &base))
                else {
                    return refused(StatusCode::BAD_REQUEST, "Source branch does not exist");
                };
                let is_same = |pull: &&Pull| {
                    let is_own = pull.repository == *repository && pull.fork.is_none();
                    is_own && pull.state == "open" && pull.head == head && pull.base == base
                };
                if let Some(pull) = state.pulls.iter().find(is_same) {
                    let why = "Another open merge request already exists for this source branch";
                    return refused(StatusCode::CONFLICT, &format!("{why}: !{}", pull.number));
                }
                let pull = Pull {
                    repository: (*repository).to_owned(),
                    number: state.pulls.len() as u64 + 1,
                    title: text("title").unwrap(),
                    body: text("description").unwrap_or_default(),
                    state: "open",
                    merged: None,
                    head,
                    fork: None,
                    last_head,
                    base,
                    author: "bot".to_owned(),
                    garbled: None,
                };
                let answer = merge_request(&self.root, &pull);
                state.pulls.push(pull);
                (StatusCode::CREATED, answer)
            }
            (_, ["merge_requests", number]) => {
                let is_it = |pull: &Pull| pull.repository == *repository && pull.number.to_string() == *number;
                let Some(at) = state.pulls.iter().position(is_it) else { return not_found };
                if *method == Method::PUT {
                    let pull = &mut state.pulls[at];
                    pull.title = text("title").unwrap_or(pull.title.clone());
                    pull.body = text("description").unwrap_or(pull.body.clone());
                    if text("state_event").as_deref() == Some("close") {
                        pull.state = "closed";
                    }
                    let number = pull.number;
                    let labels = text("add_labels").unwrap_or_default();
                    let labels = labels.split(',').filter(|label| !label.is_empty());
                    state.labels.extend(labels.map(|label| (number, label.to_owned())));
                }
                (StatusCode::OK, merge_request(&self.root, &state.pulls[at]))
            }
            (_, ["issues", number @ ..]) if number.len() < 2 => {
                state.answer_issues(Words::GitLab, repository, (method, number.first().copied()), body)
            }
            ("GET", ["repository", "commits", sha, "statuses"]) => {
                let name = of_query("name");
                let mut last: Vec<Value> = Vec::new();
                for (at, (of, said)) in state.statuses.iter().enumerate() {
                    if of != sha || name.as_ref().is_some_and(|name| said["context"] != name.as_str()) {
                        continue;
                    }
                    last.retain(|other| other["name"] != said["context"]);
                    last.push(json!({
                        "id": at + 1, "sha": sha, "ref": "main", "name": said["context"], "status": said["state"],
                        "description": said["description"], "target_url": said["target_url"],
                    }));
                }
                (StatusCode::OK, last.into())
            }
            ("POST", ["statuses", sha]) => {
                let mut before = state.statuses.iter().rev();
                let before = before.find(|(of, said)| of == sha && said["context"] == body["context"]);
                if body["state"] == "pending" && before.is_some_and(|(_, said)| said["state"] == "pending") {
                    return refused(StatusCode::BAD_REQUEST, "Cannot transition status via :enqueue from :pending");
                }
                state.statuses.push(((*sha).to_owned(), body.clone()));
                (StatusCode::CREATED, json!({"id": state.statuses.len(), "sha": sha, "status": body["state"]}))
            }
            ("GET", ["merge_requests", number, "notes"]) => {
                let of_pull = state.comments.iter().filter(|comment| comment.pull.to_string() == *number);
                (StatusCode::OK, of_pull.map(note).collect::<Vec<_>>().into())
            }
            ("POST", ["merge_requests", number, "notes"]) => {
                state.next_id += 1;
                let (id, pull) = (state.next_id, number.parse().unwrap());
                let comment = Comment { id, pull, body: text("body").unwrap(), author: "bot".to_owned() };
                let answer = note(&comment);
                state.comments.push(comment);
                (StatusCode::CREATED, answer)
            }
            ("PUT", ["merge_requests", _, "notes", id]) => {
                let Some(comment) = state.comments.iter_mut().find(|comment| comment.id.to_string() == *id) else {
                    return not_found;
                };
                comment.body = text("body").unwrap();
                (StatusCode::OK, note(comment))
            }
            _ => not_found,
        }
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn state_of(pull: &Pull) -> &'static str {
    match pull.state {
        _ if pull.merged.is_some() => "merged",
        "open" => "opened",
        other => other,
    }
}

fn merge_request(root: &Path, pull: &Pull) -> Value {
    let told = pull.json(root);
    let is_conflicting = pull.state == "open" && !pull.is_mergeable(root);
    let source = if pull.fork.is_some() { FORK } else { PROJECT };
    json!({
        "id": 100 + pull.number, "iid": pull.number, "project_id": PROJECT, "title": pull.title, "description": pull.body,
        "state": state_of(pull), "source_branch": pull.head, "target_branch": pull.base, "source_project_id": source,
        "target_project_id": PROJECT, "sha": told["head"]["sha"], "merge_commit_sha": told["merge_commit_sha"],
        "squash_commit_sha": null, "has_conflicts": is_conflicting, "author": {"id": 2, "username": pull.author},
        "detailed_merge_status": if is_conflicting { "conflict" } else { "mergeable" },
        "web_url": format!("https://gitlab.example.com/{}/-/merge_requests/{}", pull.repository, pull.number),
    })
}

fn note(comment: &Comment) -> Value {
    json!({
        "id": comment.id, "type": null, "body": comment.body, "system": false, "noteable_type": "MergeRequest",
        "author": {"id": 2, "username": comment.author, "name": comment.author, "state": "active"},
    })
}
