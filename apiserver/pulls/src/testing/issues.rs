//! Issues, in the words of either API.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::State;

/// An issue of a repository.
#[derive(Clone, Debug)]
pub(super) struct Issue {
    pub(super) repository: String,
    pub(super) number: u64,
    pub(super) title: String,
    pub(super) body: String,
    pub(super) state: &'static str,
    pub(super) author: String,
}

/// The words of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    Gitea,
    GitLab,
}

impl Issue {
    pub(super) fn json(&self, words: Words) -> Value {
        match words {
            Words::Gitea => json!({
                "id": 500 + self.number, "number": self.number, "title": self.title, "body": self.body, "state": self.state,
                "user": {"login": self.author, "username": self.author}, "pull_request": null,
            }),
            Words::GitLab => json!({
                "id": 500 + self.number, "iid": self.number, "project_id": 3, "title": self.title, "description": self.body,
                "state": if self.state == "open" { "opened" } else { "closed" },
                "author": {"id": 2, "username": self.author}, "issue_type": "issue",
            }),
        }
    }
}

impl State {
    /// Somebody opens an issue; its number.
    pub(super) fn open_issue(&mut self, repository: &str, author: &str, title: String, body: String) -> u64 {
        let (repository, author) = (repository.to_owned(), author.to_owned());
        let number = self.issues.len() as u64 + 1;
        self.issues.push(Issue { repository, number, title, body, state: "open", author });
        number
    }

    /// What is answered at `issues`, or at `issues/<number>`.
    pub(super) fn answer_issues(
        &mut self,
        words: Words,
        repository: &str,
        (method, number): (&Method, Option<&str>),
        body: &Value,
    ) -> (StatusCode, Value) {
        let described = if words == Words::GitLab { "description" } else { "body" };
        let text = |key: &str| body[key].as_str().map(str::to_owned);
        let Some(number) = number else {
            if *method == Method::POST {
                let (title, body) = (text("title").unwrap(), text(described).unwrap_or_default());
                let number = self.open_issue(repository, "bot", title, body);
                let made = self.issues.iter().find(|issue| issue.number == number).unwrap();
                return (StatusCode::CREATED, made.json(words));
            }
            let open = self.issues.iter().filter(|issue| issue.repository == repository && issue.state == "open");
            return (StatusCode::OK, open.map(|issue| issue.json(words)).collect::<Vec<_>>().into());
        };
        let is_it = |issue: &&mut Issue| issue.repository == repository && issue.number.to_string() == number;
        let Some(issue) = self.issues.iter_mut().find(is_it) else {
            return (StatusCode::NOT_FOUND, json!({"message": "not found"}));
        };
        if *method != Method::GET {
            issue.title = text("title").unwrap_or(issue.title.clone());
            issue.body = text(described).unwrap_or(issue.body.clone());
            if text("state").as_deref() == Some("closed") || text("state_event").as_deref() == Some("close") {
                issue.state = "closed";
            }
        }
        (StatusCode::OK, issue.json(words))
    }
}
