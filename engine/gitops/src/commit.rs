//! The commit of a Run: one commit of all its changes.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use git2::build::TreeUpdateBuilder;
use git2::{Commit, FileMode, ObjectType, Oid, Repository, Signature, Tree};
use stoa_backoff::{Jitter, Policy};
use stoa_engine::{ObjectRef, Owner, ResourceId, StateResource};
use stoa_kubernetes_model::Cascade;
use stoa_runtime::{Grant, RuntimeError};

use crate::RunInfo;
use crate::bounded::{self, Paths};
use crate::branch::{Advance, Branch};
use crate::content::Content;
use crate::file::{self, Document, Edits};
use crate::history::History;
use crate::index::{Folder, Found, Index};
use crate::manifest;
use crate::premise::{Premise, There};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// Write this content.
    Write(Box<Write>),
    /// Delete the file of this recorded resource.
    Remove(Box<StateResource>),
}

/// The content of a file, and its origin.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Write {
    pub(crate) object: ObjectRef,
    pub(crate) content: Content,
    /// The deployment from which it may be taken over.
    pub(crate) from: Option<String>,
    /// The premise of the plan.
    pub(crate) premise: Option<Premise>,
}

impl Write {
    /// The object as a document, given what is in the repository.
    fn rendered(&self, place: &At<'_>) -> Result<Cow<'_, [u8]>, RuntimeError> {
        let found = || match place.there() {
            There::Object(object) => Some(object),
            There::Spoilt | There::Nothing => None,
        };
        self.content.beside(found, place.owner)
    }

    /// The difference from the plan's premise, where the object is rendered as these bytes: the end of a message.
    fn broken(&self, place: &At<'_>, bytes: &[u8]) -> Result<Option<String>, RuntimeError> {
        let Some(premise) = &self.premise else { return Ok(None) };
        let wanted = manifest::parse(place.path, bytes)?;
        Ok(premise.broken(&place.there(), &wanted))
    }
}

/// The path of an object in a tree.
struct At<'a> {
    path: &'a str,
    /// The document of the object in its file; `None` without a file.
    found: Option<&'a Document>,
    owner: &'a Owner,
}

impl At<'_> {
    fn there(&self) -> There {
        match self.found {
            Some(Document::Object(_, object)) => There::Object(object.clone()),
            Some(Document::Spoilt) => There::Spoilt,
            Some(Document::Others) | None => There::Nothing,
        }
    }
}

impl Change {
    /// The object that is to change.
    fn object(&self) -> Option<ObjectRef> {
        match self {
            Self::Write(write) => Some(write.object.clone()),
            Self::Remove(prior) => ObjectRef::of(&prior.attributes),
        }
    }
}

/// The changes of a run.
#[derive(Clone, Debug)]
pub(crate) struct Gathered {
    pub(crate) folder: Arc<Folder>,
    /// By the path of the file that an object has of its own.
    pub(crate) changes: BTreeMap<String, Change>,
}

/// The file of a change in a tree.
struct Located {
    path: String,
    /// Whether a folder is at the path.
    is_folder: bool,
    /// The document of the object; `None` without a file.
    found: Option<Document>,
}

/// The files of a tree, and what changes of them.
struct Files<'t> {
    paths: Paths<'t>,
    index: Arc<Index>,
    /// The files that were read, by path; `None` for folders and oversized files.
    contents: RefCell<BTreeMap<String, Option<Arc<[u8]>>>>,
    edits: BTreeMap<String, Edits>,
}

impl<'t> Files<'t> {
    fn of(repository: &'t Repository, tree: &'t Tree<'t>, folder: &'t Folder) -> Result<Self, git2::Error> {
        let (index, paths) = (folder.index(repository, tree)?, Paths::of(repository, tree));
        Ok(Self { paths, index, contents: RefCell::default(), edits: BTreeMap::new() })
    }

    fn content(&self, path: &str) -> Result<Option<Arc<[u8]>>, git2::Error> {
        if let Some(content) = self.contents.borrow().get(path) {
            return Ok(content.clone());
        }
        let content = match self.paths.entry(path)? {
            Some(entry) if entry.kind() == Some(ObjectType::Blob) => {
                match bounded::file(self.paths.repository, entry.id()) {
                    Ok(file) => Some(Arc::from(file.content())),
                    Err(err) if bounded::is_too_large(&err) => None,
                    Err(err) => return Err(err),
                }
            }
            Some(_) | None => None,
        };
        self.contents.borrow_mut().insert(path.to_owned(), content.clone());
        Ok(content)
    }

    /// The file that a change is about. `own` is the path of the object's own file.
    ///
    /// # Errors
    ///
    /// The inner one when it is not known which file that is.
    fn locate(&self, own: &str, change: &Change) -> Result<Result<Located, RuntimeError>, git2::Error> {
        if let Some(object) = change.object() {
            match self.index.find(&object, own) {
                Ok(None) => {}
                Ok(Some(found)) => {
                    let Found { path, range, object } = found.clone();
                    return Ok(Ok(Located { path, is_folder: false, found: Some(Document::Object(range, object)) }));
                }
                Err(error) => return Ok(Err(error)),
            }
        }
        let entry = self.paths.entry(own)?;
        let is_folder = entry.as_ref().is_some_and(|entry| entry.kind() != Some(ObjectType::Blob));
        let found = match entry.filter(|_| !is_folder) {
            None => None,
            // An oversized file is written anew, or deleted.
            Some(_) => Some(self.content(own)?.map_or(Document::Spoilt, |content| file::own(own, &content))),
        };
        Ok(Ok(Located { path: own.to_owned(), is_folder, found }))
    }

    /// The new bytes of a document with the content of `rendered`; `None` without a change.
    fn document(&self, path: &str, range: &Range<usize>, rendered: &[u8]) -> Result<Option<String>, git2::Error> {
        let content = self.content(path)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&content);
        Ok(file::document(path, text.get(range.clone()).unwrap_or_default(), rendered))
    }

    fn edit(&mut self, path: String) -> &mut Edits {
        self.edits.entry(path).or_default()
    }

    /// The tree with the changes, and what they are; no tree where nothing changes.
    ///
    /// # Errors
    ///
    /// The inner one when a file would be larger than one that is read again.
    fn written(mut self, repository: &Repository, base: &Tree<'_>) -> Result<Result<Made, RuntimeError>, git2::Error> {
        let (mut update, mut files) = (TreeUpdateBuilder::new(), BTreeMap::new());
        for (path, edits) in std::mem::take(&mut self.edits) {
            let content = edits.made(&self.content(&path)?.unwrap_or_default());
            if content.as_ref().is_some_and(|content| content.len() > bounded::LARGEST_FILE) {
                return Ok(Err(too_large(&path)));
            }
            let before = self.paths.entry(&path)?.map(|entry| entry.id());
            let after = content.as_deref().map(|content| Oid::hash_object(ObjectType::Blob, content)).transpose()?;
            let change = match (before, after) {
                (before, after) if before == after => continue,
                (_, None) => FileChange::Deleted,
                (None, Some(_)) => FileChange::Created,
                (Some(_), Some(_)) => FileChange::Updated,
            };
            match content {
                Some(content) => drop(update.upsert(path.as_str(), repository.blob(&content)?, FileMode::Blob)),
                None => drop(update.remove(path.as_str())),
            }
            files.insert(path, change);
        }
        let tree = if files.is_empty() { None } else { Some(update.create_updated(repository, base)?) };
        Ok(Ok((tree, files)))
    }
}

/// A tree, if it is another, and the files that differ.
type Made = (Option<Oid>, BTreeMap<String, FileChange>);

fn too_large(path: &str) -> RuntimeError {
    let message = format!("{path} would be larger than {} MiB", bounded::LARGEST_FILE >> 20);
    RuntimeError::Rejected { message, field: None, by_definition: false }
}

#[derive(Debug)]
pub(crate) struct Written {
    /// The commit on the branch; or the one that an earlier try of the same run made; or none when nothing changes.
    pub(crate) commit: Option<Oid>,
    /// Resources that were not deleted, with their owners.
    pub(crate) left: BTreeMap<ResourceId, String>,
}

/// Whose commits are: who committed them, and what their messages say.
const COMMITTER: &str = "Stoa";
const STACK: &str = "Stoa-Stack";
const WORKSPACE: &str = "Stoa-Workspace";
pub(crate) const RUN: &str = "Stoa-Run";
pub(crate) const RUN_NAME: &str = "Stoa-Run-Name";

/// How many files a stale-plan message names.
const NAMED: usize = 5;

/// How often other writers may come first before this try ends.
pub(crate) const RACES: u32 = 20;

/// How many commits are searched for that of an earlier try.
pub(crate) const HISTORY: usize = 2_000;

/// Writes the changes as one commit on the branch, without deletions of files of others.
///
/// When another writer moves the branch first, the changes are made again on top of that.
///
/// # Errors
///
/// [`RuntimeError::Owned`] when another deployment owns a file that is not taken over;
/// [`RuntimeError::ForeignContents`] when a deletion would delete objects of others; [`RuntimeError::Stale`] when a
/// file is not as the plan found it; [`RuntimeError::Unread`] when the repository cannot be read, or the lease expired
/// before the branch was moved.
pub(crate) fn write(place: &Branch, run: &RunInfo, changes: &Gathered, grant: &Grant) -> Result<Written, RuntimeError> {
    let mut last = String::new();
    for race in 0..RACES {
        wait_before(race);
        let (repository, head) = place.head().map_err(RuntimeError::before_a_change)?;
        let (written, is_new) = prepare(&repository, head, run, changes)
            .map_err(|err| place.explain_in(&repository, &err).before_a_change())??;
        let Some(commit) = written.commit.filter(|_| is_new) else { return Ok(written) };
        match place.advance(&repository, head, commit, grant)? {
            Advance::Done => return Ok(written),
            Advance::Raced(why) => last = why,
        }
    }
    Err(outrun(&last))
}

/// The waits before another try to be first.
const RACE: Policy = Policy::new(Duration::from_millis(20), Duration::from_millis(640)).with_jitter(Jitter(0.1, 1.0));

/// Waits before another try to be first. This is a thread that may.
pub(crate) fn wait_before(race: u32) {
    if race > 0 {
        // No two runs wait alike, lest they meet again.
        std::thread::sleep(RACE.after(race));
    }
}

fn blocked(path: &str) -> RuntimeError {
    let message =
        format!("{path} cannot be written: a file stands where a folder should be, or a folder where a file should");
    RuntimeError::Rejected { message, field: None, by_definition: false }
}

pub(crate) fn outrun(last: &str) -> RuntimeError {
    RuntimeError::Unavailable { message: format!("other writers kept updating the branch first: {last}") }
}

/// The changed tree. Only unreferenced objects are written.
#[derive(Debug, Default)]
pub(crate) struct Draft<'c> {
    /// The tree with the changes; none when everything stands there already, or when they cannot be made.
    pub(crate) tree: Option<Oid>,
    /// Changed files, by path.
    pub(crate) files: BTreeMap<String, FileChange>,
    /// Resources that were not deleted, with their owners.
    pub(crate) left: BTreeMap<ResourceId, String>,
    /// Files of others, which this run has nothing to do with.
    pub(crate) others: BTreeSet<&'c str>,
    /// A file is another deployment's, files of others would go with one in the end, or a path leads through a file or to a
    /// folder.
    pub(crate) refused: Option<RuntimeError>,
    /// Files that are not what the plan found, a sentence without its end each.
    pub(crate) stale: Vec<String>,
}

/// The change of a file between two trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileChange {
    Created,
    Updated,
    Deleted,
}

impl FileChange {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
        }
    }
}

impl Draft<'_> {
    /// Refuses to write what was planned on other files than there are.
    pub(crate) fn stale(&self) -> Option<RuntimeError> {
        let more = self.stale.len().saturating_sub(NAMED);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let named = self.stale.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
        let message = || format!("since the plan was made, {named}{more}; nothing was written, plan again");
        (!self.stale.is_empty()).then(|| RuntimeError::Stale(message()))
    }

    /// The numbers of changed files, as words.
    fn counts(&self) -> String {
        let all = [FileChange::Created, FileChange::Updated, FileChange::Deleted];
        let counted = all.map(|of| (self.files.values().filter(|change| **change == of).count(), of.word()));
        let counted = counted.into_iter().filter(|(count, _)| *count > 0);
        counted.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
    }

    /// The title of a commit or pull request: `shop/web-dev on dev: 2 created`.
    pub(crate) fn title(&self, run: &RunInfo) -> String {
        format!("{}: {}", one_line(&deployment(run)), self.counts())
    }
}

/// The stack and its workspace, for people.
fn deployment(run: &RunInfo) -> String {
    let Owner { workspace, .. } = &run.owner;
    let place = if workspace.is_empty() { String::new() } else { format!(" on {workspace}") };
    format!("{}{place}", stack(&run.owner))
}

/// The stack with its organization, where it has one.
pub(crate) fn stack(Owner { organization, stack, .. }: &Owner) -> String {
    if organization.is_empty() { stack.clone() } else { format!("{organization}/{stack}") }
}

/// The tree with the changes.
pub(crate) fn draft<'c>(
    repository: &Repository,
    base: &Tree<'_>,
    run: &RunInfo,
    changes: &'c Gathered,
) -> Result<Draft<'c>, git2::Error> {
    let mut draft = Draft::default();
    let mut files = Files::of(repository, base, &changes.folder)?;
    for (own, change) in &changes.changes {
        let Located { path, is_folder, found } = match files.locate(own, change)? {
            Ok(located) => located,
            Err(error) => {
                draft.refused.get_or_insert(error);
                continue;
            }
        };
        if is_folder {
            // The files of a folder are not this deployment's.
            if matches!(change, Change::Write(_)) {
                draft.refused = Some(blocked(&path));
                return Ok(draft);
            }
            draft.others.insert(own.as_str());
            continue;
        }
        let object = match &found {
            Some(Document::Object(_, object)) => Some(object),
            Some(Document::Others | Document::Spoilt) | None => None,
        };
        match (change, &found) {
            // The file has nothing of this deployment.
            (Change::Remove(_), None | Some(Document::Others)) => {}
            (Change::Remove(prior), Some(document)) => {
                if let Some(other) = object.and_then(|object| run.owner.other(object)) {
                    draft.left.insert(prior.id.clone(), other);
                    draft.others.insert(own.as_str());
                    continue;
                }
                if let Some(contents) = Cascade::of(prior, object) {
                    let held = files.index.foreign_contents(&run.owner, &contents);
                    draft.refused = draft.refused.or_else(|| held.refusal(prior).map(RuntimeError::ForeignContents));
                }
                match document {
                    Document::Object(range, _) => files.edit(path).replace(range, None),
                    Document::Others | Document::Spoilt => files.edit(path).set(None),
                }
            }
            (Change::Write(write), found) => {
                let place = At { path: &path, found: found.as_ref(), owner: &run.owner };
                let bytes = match write.rendered(&place) {
                    Ok(bytes) => bytes,
                    Err(error) => {
                        draft.refused.get_or_insert(error);
                        continue;
                    }
                };
                let document = match found {
                    Some(Document::Object(range, _)) => match files.document(&path, range, &bytes)? {
                        None => continue,
                        document => document,
                    },
                    Some(Document::Others | Document::Spoilt) | None => None,
                };
                // It counts all the same: an earlier try of this run may have written it before.
                if let Some(object) = object
                    && let Err(error) = RuntimeError::check_owner(&run.owner, write.from.as_deref(), object)
                {
                    draft.refused.get_or_insert(error);
                }
                match write.broken(&place, &bytes) {
                    Ok(None) => {}
                    Ok(Some(how)) => draft.stale.push(format!("{path} {how}")),
                    Err(error) => {
                        draft.refused.get_or_insert(error);
                    }
                }
                if is_blocked(&files.paths, &path)? {
                    draft.refused = Some(blocked(&path));
                    return Ok(draft);
                }
                match found {
                    Some(Document::Object(range, _)) => files.edit(path).replace(range, document),
                    Some(Document::Others) => files.edit(path).append(String::from_utf8_lossy(&bytes).into_owned()),
                    Some(Document::Spoilt) | None => files.edit(path).set(Some(bytes.to_vec())),
                }
            }
        }
    }
    match files.written(repository, base)? {
        Ok((tree, changed)) => (draft.tree, draft.files) = (tree, changed),
        Err(error) => drop(draft.refused.get_or_insert(error)),
    }
    Ok(draft)
}

/// What there is to write, and whether it is a new commit that no branch has yet.
fn prepare(
    repository: &Repository,
    head: Option<Oid>,
    run: &RunInfo,
    changes: &Gathered,
) -> Result<Result<(Written, bool), RuntimeError>, git2::Error> {
    let parent = head.map(|head| bounded::commit(repository, head)).transpose()?;
    let base = match &parent {
        Some(parent) => bounded::root(repository, parent)?,
        None => repository.find_tree(repository.treebuilder(None)?.write()?)?,
    };
    let earlier = match head {
        Some(head) => commits_of(repository, head, &run.uid)?,
        None => Vec::new(),
    };
    let mut draft = draft(repository, &base, run, changes)?;
    let left = std::mem::take(&mut draft.left);
    let Some(tree) = draft.tree else {
        let there = (Written { commit: earlier.first().map(Commit::id), left }, false);
        return Ok(draft.refused.map_or(Ok(there), Err));
    };
    // Others may have changed the files of an earlier try since; they were written, and are not written twice.
    for commit in &earlier {
        if holds(repository, &bounded::root(repository, commit)?, &run.owner, changes, &draft.others)? {
            return Ok(Ok((Written { commit: Some(commit.id()), left }, false)));
        }
    }
    if let Some(error) = draft.refused.take().or_else(|| draft.stale()) {
        return Ok(Err(error));
    }
    let parents: Vec<&Commit<'_>> = parent.iter().collect();
    let commit = Some(make(repository, run, &draft, tree, &parents)?);
    Ok(Ok((Written { commit, left }, true)))
}

/// A commit of the run with this tree, which no branch has yet.
pub(crate) fn make(
    repository: &Repository,
    run: &RunInfo,
    draft: &Draft<'_>,
    tree: Oid,
    parents: &[&Commit<'_>],
) -> Result<Oid, git2::Error> {
    let author = Signature::now(&author_name(&run.requester), &author_email(&run.requester))?;
    let committer = Signature::now(COMMITTER, "noreply@stoa.dev")?;
    let tree = repository.find_tree(tree)?;
    repository.commit(None, &author, &committer, &message(run, draft), &tree, parents)
}

/// Whether a parent of the path is a file.
fn is_blocked(paths: &Paths<'_>, path: &str) -> Result<bool, git2::Error> {
    for (end, _) in path.match_indices('/') {
        if let Some(entry) = paths.entry(&path[..end])?
            && entry.kind() != Some(ObjectType::Tree)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a tree has the changes, except for those of these files.
pub(crate) fn holds(
    repository: &Repository,
    tree: &Tree<'_>,
    owner: &Owner,
    changes: &Gathered,
    others: &BTreeSet<&str>,
) -> Result<bool, git2::Error> {
    let files = Files::of(repository, tree, &changes.folder)?;
    for (own, change) in changes.changes.iter().filter(|(own, _)| !others.contains(own.as_str())) {
        let Ok(Located { path, is_folder, found }) = files.locate(own, change)? else { return Ok(false) };
        let is_so = match (change, &found) {
            (Change::Write(write), Some(Document::Object(range, _))) => {
                let place = At { path: &path, found: found.as_ref(), owner };
                match write.rendered(&place) {
                    Ok(bytes) => files.document(&path, range, &bytes)?.is_none(),
                    Err(_) => false,
                }
            }
            (Change::Write(_), _) => false,
            (Change::Remove(_), Some(Document::Others)) => true,
            (Change::Remove(_), found) => found.is_none() && !is_folder,
        };
        if !is_so {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The commits of a run, newest first.
pub(crate) fn commits_of<'r>(repository: &'r Repository, head: Oid, run: &str) -> Result<Vec<Commit<'r>>, git2::Error> {
    if run.is_empty() {
        return Ok(Vec::new());
    }
    let line = format!("{RUN}: {run}");
    let mut commits = Vec::new();
    for commit in History::of(repository).newest(head)?.take(HISTORY) {
        let commit = commit?;
        if String::from_utf8_lossy(commit.message_bytes()).lines().any(|of| of == line) {
            commits.push(commit);
        }
    }
    Ok(commits)
}

fn message(run: &RunInfo, draft: &Draft<'_>) -> String {
    let mut message = format!("{}\n\n", draft.title(run));
    for (trailer, text) in [
        (STACK, stack(&run.owner).as_str()),
        (WORKSPACE, &run.owner.workspace),
        (RUN_NAME, &run.name),
        ("Stoa-Source-Commit", &run.source_commit),
        ("Stoa-Requester", &run.requester),
        (RUN, &run.uid),
    ] {
        if !text.is_empty() {
            message.push_str(&format!("{trailer}: {}\n", one_line(text)));
        }
    }
    message
}

/// The last trailer of a name in a commit.
pub(crate) fn trailer(commit: &Commit<'_>, name: &str) -> Option<String> {
    let message = String::from_utf8_lossy(commit.message_bytes()).into_owned();
    let said = message.lines().rev().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned));
    said.filter(|said| !said.is_empty())
}

/// Whether a commit is of this deployment, by any run.
pub(crate) fn is_of(commit: &Commit<'_>, owner: &Owner) -> bool {
    let says = |name: &str, text: &str| trailer(commit, name).unwrap_or_default() == one_line(text);
    commit.committer().name_bytes() == COMMITTER.as_bytes()
        && says(STACK, &stack(owner))
        && says(WORKSPACE, &owner.workspace)
}

/// A text on one line, so that it cannot forge a trailer.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The requester as a valid author name.
fn author_name(requester: &str) -> String {
    let name: String = requester.chars().filter(|c| !c.is_control() && !matches!(c, '<' | '>')).collect();
    if name.trim().is_empty() { "Stoa".to_owned() } else { name.trim().to_owned() }
}

/// The requester if it is an address, else an invalid address.
fn author_email(requester: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+' | '@');
    let local: String = requester.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
    let is_address =
        requester == local && local.matches('@').count() == 1 && !local.starts_with('@') && !local.ends_with('@');
    match local.trim_matches('-') {
        "" => "noreply@stoa.dev".to_owned(),
        _ if is_address => local,
        local => format!("{}@users.invalid", local.replace('@', "-")),
    }
}
