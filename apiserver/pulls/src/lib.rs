//! Pull requests of Git servers, with commit statuses and comments: what is proposed to people, and what is told them of it.
//!
//! Start at [`PullRequests`] and [`Issues`], which are what callers see, and [`Server`], which speaks to Gitea, Forgejo, GitHub and
//! GitLab. Where a repository's API is follows from its address ([`Address`]).
//!
//! Whatever a server answers is input from outside: it is bounded, only what is needed of it is read, and nothing of it is
//! trusted to be what it should be. No credential is in an error or a log.

mod address;
mod answers;
mod server;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod transport;

use std::{fmt, time::Duration};

use async_trait::async_trait;

pub use self::{
    address::{Address, InvalidAddress, Provider},
    server::Server,
    transport::{Credentials, Pauses},
};

/// A pull request, or a merge request of GitLab, as its server tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRequest {
    /// Its number in the repository.
    pub number: u64,
    /// Its page, for people; empty when the server names none that is a URL.
    pub url: String,
    /// Its title.
    pub title: String,
    /// Its description, with [markers](is_marked).
    pub body: String,
    /// What became of it.
    pub state: PullState,
    /// The branch that it brings in, without `refs/heads/`.
    pub head: String,
    /// The commit of that branch, 40 or 64 hex digits; absent where the branch is gone.
    pub head_commit: Option<String>,
    /// Whether that branch is in another repository, or nobody knows in which.
    pub is_fork: bool,
    /// The branch that it goes to, without `refs/heads/`.
    pub base: String,
    /// Whether that is the repository's default branch.
    pub is_to_default: bool,
    /// The commit of that branch, as far as the server tells.
    pub base_commit: Option<String>,
    /// Whether it can be merged as it is; nothing while the server does not know.
    pub is_mergeable: Option<bool>,
}

impl PullRequest {
    /// Whether it goes to a branch, without `refs/heads/`, or to the repository's default branch where that is empty.
    pub fn goes_to(&self, base: &str) -> bool {
        if base.is_empty() { self.is_to_default } else { self.base == base }
    }
}

/// What became of a pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullState {
    /// It waits for somebody.
    Open,
    /// It is in the branch that it went to, by this commit if the server says so.
    Merged(Option<String>),
    /// Somebody closed it, and it went nowhere.
    Closed,
}

/// What people read of a pull request or an issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// In one line; cut after 200 characters.
    pub title: String,
    /// In Markdown; cut after 60,000 characters, but for a [marker](marked) at its end.
    pub body: String,
}

/// What is said of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitStatus {
    /// Who says it, such as `stoa/web-dev/dev`; another status of the same context takes its place.
    pub context: String,
    /// How it is.
    pub state: StatusState,
    /// In one line; cut after 140 characters.
    pub description: String,
    /// Where there is more, if anywhere.
    pub url: Option<String>,
}

/// How a commit is found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusState {
    /// It is looked at.
    Pending,
    /// It is as it should be.
    Success,
    /// It is not.
    Failure,
    /// It could not be looked at.
    Error,
}

/// A comment as it is to be.
#[derive(Clone, Copy, Debug)]
pub struct CommentText<'a> {
    /// What tells it from others of ours; see [`marked`].
    pub marker: &'a str,
    /// What it says, in Markdown.
    pub body: &'a str,
    /// The id of the one that we wrote before, if that is known.
    pub before: Option<u64>,
}

/// Why a call failed. What a server said is in it cut short, on one line and without credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullError {
    /// The server wants other credentials, or they do not allow this.
    #[error("{0}")]
    Unauthorized(String),
    /// There is no such repository or pull request, or not for whoever asks.
    #[error("{0}")]
    NotFound(String),
    /// The server does not take it; asking again does not help.
    #[error("{0}")]
    Refused(String),
    /// The server asks to wait for so long before anything else is asked.
    #[error("{message}")]
    Limited {
        /// What happened.
        message: String,
        /// For how long from now.
        wait: Duration,
    },
    /// The server is out of reach or failed. It may have done what was asked all the same.
    #[error("{0}")]
    Unavailable(String),
    /// What it answered is not what such a server answers.
    #[error("{0}")]
    Malformed(String),
}

impl PullError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Limited { .. } | Self::Unavailable(_))
    }
}

/// The pull requests of one repository.
///
/// Every call may be repeated: what is there already as it is wanted is left alone or found.
#[async_trait]
pub trait PullRequests: fmt::Debug + Send + Sync + 'static {
    /// The pull request with this number.
    ///
    /// # Errors
    ///
    /// [`PullError::NotFound`] when there is none.
    async fn get(&self, number: u64) -> Result<PullRequest, PullError>;

    /// The open pull request that brings the branch `head` of the repository itself into `base`.
    async fn find(&self, head: &str, base: &str) -> Result<Option<PullRequest>, PullError>;

    /// The pull request of these two branches of the repository that was closed, and not merged, while `head` was at this commit.
    /// Of all that were closed in the repository the latest fifty or so are looked through.
    async fn find_closed(&self, head: &str, base: &str, commit: &str) -> Result<Option<PullRequest>, PullError>;

    /// The open pull requests that go to `base`, or to the repository's default branch where that is empty; those of forks too.
    /// Of many the latest thousand are looked through, and what makes no sense is left out.
    async fn list_open(&self, base: &str) -> Result<Vec<PullRequest>, PullError>;

    /// Opens a pull request from `head` to `base`, or finds the one that is open.
    ///
    /// # Errors
    ///
    /// [`PullError::Refused`] when a branch is missing, or they do not differ.
    async fn open(&self, head: &str, base: &str, text: &Text) -> Result<PullRequest, PullError>;

    /// Gives a pull request another title and description.
    async fn update(&self, number: u64, text: &Text) -> Result<(), PullError>;

    /// Gives a pull request a label, which is made where the repository has none of that name.
    async fn label(&self, number: u64, label: &str) -> Result<(), PullError>;

    /// Closes a pull request without merging it. One that is closed or merged stays so.
    async fn close(&self, number: u64) -> Result<(), PullError>;

    /// Says something of a commit, unless it is what was said of it last in the same context.
    async fn set_status(&self, commit: &str, status: &CommitStatus) -> Result<(), PullError>;

    /// Writes a comment under a pull request, in the place of the one with its marker if we wrote that; its id.
    ///
    /// The marker says what a comment is about, and not who wrote it: anybody can write one. That is told by who we are, or
    /// where a server does not say, as GitHub does not to an app, by the comment's id. Without either it is one of a program
    /// at GitHub, and none at Gitea and GitLab.
    async fn comment(&self, number: u64, comment: &CommentText<'_>) -> Result<u64, PullError>;
}

/// The issues of one repository.
///
/// Every call may be repeated: what is there already as it is wanted is left alone or found.
#[async_trait]
pub trait Issues: fmt::Debug + Send + Sync + 'static {
    /// Has our open issue with a [marker](marked) say this, or opens one; its number. `before` is the number that an earlier call
    /// gave. An issue that people closed stays closed, and another one is opened.
    async fn report(&self, marker: &str, text: &Text, before: Option<u64>) -> Result<u64, PullError>;

    /// Closes the issue that an earlier call reported. One that is closed or gone, or has lost its marker, stays as it is.
    async fn resolve(&self, number: u64, marker: &str) -> Result<(), PullError>;
}

/// A text in Markdown with a marker at its end that people do not see. Markers are names with `/` and `:` in between.
pub fn marked(text: &str, marker: &str) -> String {
    format!("{}\n\n<!-- {marker} -->\n", text.trim_end())
}

/// Whether a text has a marker.
pub fn is_marked(text: &str, marker: &str) -> bool {
    text.contains(&format!("<!-- {marker} -->"))
}

/// A text of others as Markdown shows it without meaning anything by it: on one line, and cut after 200 characters.
pub fn quoted(text: &str) -> String {
    let plain: String = text.chars().take(200).map(|c| if c.is_control() || c == '`' { ' ' } else { c }).collect();
    let plain = plain.trim();
    if plain.is_empty() { "`(nothing)`".to_owned() } else { format!("`{plain}`") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_matches_only_marked_text() {
        let text = marked("what is proposed\n", "stoa:shop/web-dev/dev");
        assert_eq!(text, "what is proposed\n\n<!-- stoa:shop/web-dev/dev -->\n");
        assert!(is_marked(&text, "stoa:shop/web-dev/dev"));
        assert!(!is_marked(&text, "stoa:shop/web-dev/de"));
        assert!(!is_marked("stoa:shop/web-dev/dev", "stoa:shop/web-dev/dev"));
    }

    #[test]
    fn what_others_wrote_means_nothing_in_markdown() {
        assert_eq!(quoted("ann"), "`ann`");
        assert_eq!(quoted("`\n# x <!-- y -->"), "`# x <!-- y -->`");
        assert_eq!(quoted(" ` "), "`(nothing)`");
        assert_eq!(quoted(&"x".repeat(1000)).len(), 202);
    }
}
