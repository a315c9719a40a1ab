//! Lists the package revisions of a repository, or those that changed since the refs of an earlier answer.
//!
//! Start at [`page`]. Every ref has its own outcome, so a broken package hides no other.

use std::collections::{BTreeSet, HashMap};

use git2::Oid;
use prost::Message as _;
use stoa_packages::git_layout::{self, RefKind, RevisionRef};
use stoa_proto::{DiscoverRequest, DiscoveredRefs, DiscoveredRevision, GitRef};
use tonic::Code;

use super::history;
use super::reader::{Marks, Reader};
use crate::failure::{Failure, reason};
use crate::source::{Cache, Head, Heads, error, parse_commit};

/// The most bytes of a page, as soon as it has one revision.
pub(crate) const PAGE: usize = 24 << 20;

/// The most refs that are fetched by name; more are fetched by patterns.
const MOST_BY_NAME: usize = 32;

/// A question for revisions from a position on. Its request has no source here.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DiscoverJob {
    #[prost(message, optional, tag = "1")]
    pub(crate) request: Option<DiscoverRequest>,
    /// The refs of the first page, so that all pages are of one moment.
    #[prost(message, repeated, tag = "2")]
    pub(crate) refs: Vec<GitRef>,
    /// The position; 0 is the first page, which lists the refs.
    #[prost(uint32, tag = "3")]
    pub(crate) from: u32,
    /// Whether the first page has all packages of the deployed branch.
    #[prost(bool, tag = "4")]
    is_complete: bool,
}

/// Some revisions.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DiscoverPage {
    /// On the first page.
    #[prost(message, optional, tag = "1")]
    pub(crate) refs: Option<DiscoveredRefs>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) revisions: Vec<DiscoveredRevision>,
    /// Where the next page begins; 0 after the last.
    #[prost(uint32, tag = "3")]
    pub(crate) next: u32,
}

impl DiscoverJob {
    /// The first page.
    pub(crate) fn first(request: DiscoverRequest) -> Self {
        Self { request: Some(DiscoverRequest { source: None, ..request }), ..Self::default() }
    }

    /// The page after one that belongs to this first page, if there is one.
    pub(crate) fn after(&self, page: &DiscoverPage, first: &DiscoveredRefs) -> Option<Self> {
        let (request, refs, is_complete) = (self.request.clone(), first.refs.clone(), first.branch_is_complete);
        (page.next > 0).then(|| Self { request, refs, from: page.next, is_complete })
    }
}

/// A part of an answer.
enum Item<'r> {
    /// A revision with a ref of its own.
    Ref(&'r GitRef, RevisionRef),
    /// A package of the deployed branch, by its path, and its tree.
    Package(String, Oid),
}

/// One page of revisions.
pub(crate) fn page(cache: &Cache, job: &DiscoverJob) -> Result<DiscoverPage, Failure> {
    page_within(cache, job, PAGE)
}

/// The same with another limit, in bytes.
pub(super) fn page_within(cache: &Cache, job: &DiscoverJob, most: usize) -> Result<DiscoverPage, Failure> {
    let request = job.request.as_ref().ok_or_else(|| Failure::internal(&"a question for packages has a request"))?;
    let branch = git_layout::branch_ref(&request.branch);
    let directory = request.directory.trim_matches('/');
    let is_first = job.from == 0;
    let heads = if is_first { Some(cache.list()?) } else { None };
    let now = heads.as_ref().map_or_else(|| job.refs.clone(), |heads| relevant(heads, &branch, directory));
    let known = by_name(&request.known);
    let is_known = |of: &GitRef| known.get(&*of.name) == Some(&&*of.commit);
    let branch_commit = now.iter().find(|of| of.name == branch).map(|of| of.commit.clone());
    let mut header = compared(&now, &known);
    header.branch_commit = branch_commit.clone().unwrap_or_default();
    if header.unchanged {
        return Ok(DiscoverPage { refs: Some(header), ..DiscoverPage::default() });
    }
    let changed: Vec<&GitRef> = now.iter().filter(|of| !is_known(of)).collect();
    let missing = changed.iter().copied().filter(|of| !Oid::from_str(&of.commit).is_ok_and(|id| cache.has(id)));
    fetch(cache, heads.as_ref(), &missing.collect::<Vec<_>>(), &branch)?;

    let marks = Marks::of(&now, &header.removed_refs, &changed);
    let is_affected = |of: &&GitRef| {
        !is_known(of) || RevisionRef::parse(&of.name).is_some_and(|revision| marks.are_new_for(&revision))
    };
    let own = now.iter().filter(|of| of.name != branch).filter(is_affected);
    let own = own.filter_map(|of| Some((of, RevisionRef::parse(&of.name)?)));
    let mut items: Vec<Item<'_>> = own
        .filter(|(_, revision)| revision.kind != RefKind::DeletionProposed)
        .map(|(of, revision)| Item::Ref(of, revision))
        .collect();
    let reader = Reader::new(cache, request, (&branch, directory), &marks);
    let before = known.get(&*branch).and_then(|id| parse_commit(id).ok()).filter(|_| !job.is_complete);
    let before = match before {
        Some(before) if cache.has(before) => Some(before),
        // The earlier pages counted on it.
        Some(_) if !is_first => return Err(lost(cache)),
        _ => None,
    };
    let mut people = HashMap::new();
    if let Some(head) = &branch_commit {
        let head = parse_commit(head)?;
        let packages = reader.packages(head, before)?;
        header.removed_paths = packages.removed;
        header.branch_is_complete = before.is_none();
        let paths: BTreeSet<&str> = packages.changed.keys().map(String::as_str).collect();
        people = history::authors(&cache.repository, head, before, &paths).map_err(|err| error::here(&err))?;
        items.extend(packages.changed.into_iter().map(|(path, tree)| Item::Package(path, tree)));
    } else {
        header.branch_is_complete = true;
    }
    let mut page = DiscoverPage::default();
    let mut bytes = 0;
    let from = job.from as usize;
    for (number, item) in items.iter().enumerate().skip(from) {
        if bytes > most {
            page.next = u32::try_from(number).map_err(|err| Failure::internal(&err))?;
            break;
        }
        let revision = match item {
            Item::Ref(of, revision) => reader.revision(of, revision)?,
            Item::Package(path, tree) => Some(reader.package(path, *tree, &header.branch_commit, people.get(path))?),
        };
        bytes += revision.as_ref().map_or(0, |revision| revision.encoded_len());
        page.revisions.extend(revision);
    }
    header.refs = now;
    page.refs = is_first.then_some(header);
    Ok(page)
}

/// The ids of refs.
pub(crate) fn by_name(refs: &[GitRef]) -> HashMap<&str, &str> {
    refs.iter().map(|of| (&*of.name, &*of.commit)).collect()
}

/// Compares refs with those that are known: which ones do not exist any more, and whether all are the same.
pub(crate) fn compared(now: &[GitRef], known: &HashMap<&str, &str>) -> DiscoveredRefs {
    let names: BTreeSet<&str> = now.iter().map(|of| &*of.name).collect();
    let removed = known.keys().filter(|name| !names.contains(**name)).map(|name| (*name).to_owned());
    let mut removed_refs: Vec<String> = removed.collect();
    removed_refs.sort_unstable();
    let is_known = |of: &GitRef| known.get(&*of.name) == Some(&&*of.commit);
    let unchanged = now.len() == known.len() && now.iter().all(is_known);
    DiscoveredRefs { unchanged, removed_refs, ..DiscoveredRefs::default() }
}

/// The failure of a page whose cache was removed after the first one.
fn lost(cache: &Cache) -> Failure {
    let message = format!("the cache of {} was removed during the answer; retry", cache.remote());
    Failure::new(Code::Unavailable, reason::SOURCE_UNAVAILABLE, message)
}

/// The refs of packages in a directory, sorted.
fn relevant(heads: &Heads, branch: &str, directory: &str) -> Vec<GitRef> {
    let is_relevant = |head: &&Head| {
        head.name == branch
            || RevisionRef::parse(&head.name)
                .is_some_and(|revision| git_layout::package_in(&revision.path, directory).is_some())
    };
    let of = |head: &Head| GitRef { name: head.name.clone(), commit: head.oid.to_string() };
    let mut refs: Vec<GitRef> = heads.iter().filter(is_relevant).map(of).collect();
    refs.sort_by(|a, b| a.name.cmp(&b.name));
    refs
}

/// Fetches the commits of refs that are not cached.
pub(crate) fn fetch(cache: &Cache, heads: Option<&Heads>, missing: &[&GitRef], branch: &str) -> Result<(), Failure> {
    if missing.is_empty() {
        return Ok(());
    }
    if let Some(heads) = heads {
        // A branch `a` that is gone would be in the way of a branch `a/b`.
        cache.prune(heads, &["refs/heads/*", "refs/tags/*"])?;
    }
    let refspec = |name: &str| format!("+{name}:{name}");
    let refspecs: Vec<String> = if missing.len() <= MOST_BY_NAME {
        missing.iter().map(|of| refspec(&of.name)).collect()
    } else {
        let drafts =
            ["drafts", "proposed", "deletionProposed"].map(|prefix| refspec(&format!("refs/heads/{prefix}/*")));
        [refspec(branch), refspec("refs/tags/*")].into_iter().chain(drafts).collect()
    };
    cache.fetch(&refspecs.iter().map(String::as_str).collect::<Vec<_>>())
}
