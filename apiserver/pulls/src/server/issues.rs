//! Issues, by the same steps for all servers.

use std::ops::ControlFlow;

use async_trait::async_trait;
use http::Method;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{Server, escaped};
use crate::{
    Issues, Provider, PullError, Text,
    answers::{self, Issue, User},
    is_marked, marked,
};

impl Server {
    /// The path of one issue.
    fn issue(&self, number: u64) -> String {
        self.path(&format!("issues/{number}"))
    }

    /// The issue with this number, if it is open and has the marker.
    async fn open_issue(&self, number: u64, marker: &str) -> Result<Option<Issue>, PullError> {
        match self.transport.get_json::<Issue>(&self.issue(number)).await {
            Ok(issue) => Ok(Some(issue).filter(|issue| issue.is_open() && is_marked(issue.body(), marker))),
            Err(PullError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Our open issue with a marker.
    async fn find_issue(&self, marker: &str) -> Result<Option<Issue>, PullError> {
        let login = self.transport.login().await?;
        let by = |field: &str| login.map(|login| format!("{field}={}&", escaped(login))).unwrap_or_default();
        let query = match self.provider() {
            Provider::Gitea => format!("state=open&type=issues&{}", by("created_by")),
            Provider::GitHub => format!("state=open&{}", by("creator")),
            Provider::GitLab => format!("state=opened&{}", by("author_username")),
        };
        let is_by_us = |issue: &Issue| match login {
            Some(login) => issue.writer().and_then(User::name) == Some(login),
            None => issue.writer().is_some_and(User::is_program),
        };
        let is_it = |issue: Value| match answers::read::<Issue>(issue) {
            Ok(issue) if issue.is_open() && is_marked(issue.body(), marker) && is_by_us(&issue) => {
                ControlFlow::Break(issue)
            }
            // One that cannot be read is none of ours.
            Ok(_) | Err(_) => ControlFlow::Continue(()),
        };
        let found = self.transport.each(&self.path("issues"), &query, is_it).await?;
        Ok(found.ok_or_else(|| self.transport.too_many())?.break_value())
    }
}

#[async_trait]
impl Issues for Server {
    async fn report(&self, marker: &str, text: &Text, before: Option<u64>) -> Result<u64, PullError> {
        let text = Text { title: text.title.clone(), body: marked(&text.body, marker) };
        let wanted = self.text_json(&text);
        let known = match before {
            Some(number) => self.open_issue(number, marker).await?,
            None => None,
        };
        let found = match known {
            Some(issue) => Some(issue),
            None => self.find_issue(marker).await?,
        };
        match found {
            Some(issue) if issue.says(&wanted) => Ok(issue.number),
            Some(issue) => {
                let path = self.issue(issue.number);
                self.transport.send::<IgnoredAny>(self.edit(), &path, wanted).await.map(|_| issue.number)
            }
            None => {
                let made = self.transport.send::<Issue>(Method::POST, &self.path("issues"), wanted).await;
                made.map(|made| made.number)
            }
        }
    }

    async fn resolve(&self, number: u64, marker: &str) -> Result<(), PullError> {
        if self.open_issue(number, marker).await?.is_none() {
            return Ok(());
        }
        self.transport.send::<IgnoredAny>(self.edit(), &self.issue(number), self.closing()).await.map(drop)
    }
}
