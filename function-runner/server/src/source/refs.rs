//! The names of a remote's refs, and the ref that a version means.

use git2::{Oid, RemoteHead};
use stoa_engine_git::remote::Advertised;
use tonic::Code;

use crate::failure::{Failure, reason};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The full name, such as `refs/heads/main`.
    pub(crate) name: String,
    /// What it points to: a commit, or an annotated tag.
    pub(crate) oid: Oid,
}

/// The refs of a remote.
#[derive(Debug)]
pub(crate) struct Heads {
    heads: Vec<Head>,
    /// What HEAD stands for.
    default: Option<String>,
}

impl Heads {
    pub(super) fn new(listed: &[RemoteHead<'_>]) -> Self {
        let head = listed.iter().find(|head| head.name() == "HEAD");
        let mut default = head.and_then(|head| head.symref_target()).map(str::to_owned);
        let heads: Vec<Head> = listed
            .iter()
            .filter(|head| !head.name().ends_with("^{}") && head.name() != "HEAD")
            .map(|head| Head { name: head.name().to_owned(), oid: head.oid() })
            .collect();
        if default.is_none()
            && let Some(head) = head
        {
            // Servers that do not say what HEAD stands for still say what it points to.
            let same = |name: &str| heads.iter().any(|h| h.name == name && h.oid == head.oid());
            default = ["refs/heads/main", "refs/heads/master"]
                .into_iter()
                .find(|name| same(name))
                .map(str::to_owned)
                .or_else(|| heads.iter().find(|h| h.oid == head.oid()).map(|h| h.name.clone()));
        }
        Self { heads, default }
    }

    /// The refs of a list, and what HEAD stands for.
    pub(super) fn of(advertised: &Advertised) -> Self {
        let is_ref = |(name, _): &&(String, Oid)| name != "HEAD";
        let heads = advertised.refs.iter().filter(is_ref);
        let heads = heads.map(|(name, oid)| Head { name: name.clone(), oid: *oid }).collect();
        Self { heads, default: advertised.head().map(str::to_owned) }
    }

    /// The head of a ref, or of the default branch.
    pub(super) fn latest(&self, reference: &str) -> Option<&Head> {
        if reference.is_empty() { self.exact(self.default.as_deref()?) } else { self.find(reference) }
    }

    /// A full ref name, a branch or a tag; a branch where both have the name.
    pub(super) fn find(&self, name: &str) -> Option<&Head> {
        self.exact(name)
            .filter(|_| name.starts_with("refs/"))
            .or_else(|| self.branch(name))
            .or_else(|| self.exact(&format!("refs/tags/{name}")))
    }

    pub(super) fn branch(&self, name: &str) -> Option<&Head> {
        self.exact(&format!("refs/heads/{name}"))
    }

    /// All branches and tags.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Head> {
        let is_fetched = |head: &&Head| head.name.starts_with("refs/heads/") || head.name.starts_with("refs/tags/");
        self.heads.iter().filter(is_fetched)
    }

    fn exact(&self, name: &str) -> Option<&Head> {
        self.heads.iter().find(|head| head.name == name)
    }
}

/// Whether a version may be the beginning of a commit's id. Git asks for at least 4 digits; 7 are
/// what people copy.
pub(super) fn is_abbreviated_commit(version: &str) -> bool {
    (7..40).contains(&version.len()) && version.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Checks the name of a revision: a commit, or the digest of an artifact or chart.
pub(super) fn revision(text: &str) -> Result<String, Failure> {
    match super::import::reference(text) {
        Some(_) => Ok(text.to_owned()),
        None => parse_commit(text).map(|commit| commit.to_string()),
    }
}

pub(crate) fn parse_commit(commit: &str) -> Result<Oid, Failure> {
    match Oid::from_str(commit) {
        Ok(oid) if commit.len() == 40 => Ok(oid),
        _ => {
            let message = format!("{commit:?} is not a commit id of 40 hex digits");
            Err(Failure::new(Code::InvalidArgument, reason::INVALID_REQUEST, message))
        }
    }
}
