//! From the answer of a function-runner to PackageRevision objects.

use std::collections::{HashMap, HashSet};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_controller::{object::ObjectKey, queue};
use stoa_kinds::package_names::revision_name;
use stoa_machinery::{
    ApiError,
    registry::{Api, ListOptions},
};
use stoa_packages::{git_layout, kptfile::Kptfile};
use stoa_proto::DiscoveredRevision;
use stoa_runs::runner::Discovery;
use stoa_types::{
    porch::{
        LATEST_REVISION, Lifecycle, PackageCondition, PackageContent, PackageRevision, PackageRevisionSpec,
        PackageRevisionStatus, StoredInGit,
    },
    porchconfig::Repository,
    reason,
};
use tokio::time::Instant;

use crate::packages::{PackageService, digest, lock_in_registry, lock_of, of_kptfile, registry_of, set_condition};

/// How many revisions are compared at once.
const AT_ONCE: usize = 32;

/// The outcome of a comparison.
pub(super) struct Outcome {
    /// Whether every object whose revision is gone was removed.
    pub(super) is_whole: bool,
    /// Whether an object changed during the synchronization.
    pub(super) has_newer: bool,
    /// The refs of revisions whose objects have other changes.
    pub(super) unsettled: Vec<String>,
    /// The errors of packages that make no object.
    pub(super) refused: Vec<String>,
    /// The errors of packages that make one.
    pub(super) problems: Vec<String>,
    /// The number of revisions.
    pub(super) count: usize,
}

/// The PackageRevisions of a repository, by name.
pub(super) async fn existing(
    service: &PackageService,
    repository: &Repository,
) -> Result<HashMap<String, PackageRevision>, ApiError> {
    let (namespace, name) = queue::key_of(repository);
    let options = ListOptions { field_selector: Some(format!("spec.repository={name}")), ..ListOptions::default() };
    let all = service.services().lookup.api::<PackageRevision>()?.list_with(Some(&namespace), &options).await?;
    Ok(all.into_iter().map(|revision| (revision.name_any(), revision)).collect())
}

/// Creates, changes and removes the PackageRevisions of a repository, as Git or the registry has them. `existing` was listed before `began`, the
/// time of the question. Objects that changed since are newer than the answer, and stay as they are.
pub(super) async fn reconcile(
    service: &PackageService,
    repository: &Repository,
    found: Discovery,
    (existing, began): (HashMap<String, PackageRevision>, Instant),
) -> Result<Outcome, ApiError> {
    let (namespace, name) = queue::key_of(repository);
    let api = service.services().lookup.api::<PackageRevision>()?.with_context(super::context());
    let mut count = existing.len();
    let Discovery { refs, mut revisions } = found;
    // Of two that have one name, the published one counts.
    revisions.sort_by_key(|revision| (!lifecycle(revision).is_published(), revision.revision < 0));
    let mut seen = HashSet::new();
    let named =
        revisions.iter().map(|revision| (revision_name(&name, &revision.package, &revision.workspace), revision));
    let named: Vec<(String, &DiscoveredRevision)> = named.filter(|(name, _)| seen.insert(name.clone())).collect();
    let comparison = Comparison {
        service,
        repository,
        api: &api,
        newest: newest(&existing, &revisions),
        existing: &existing,
        began,
    };
    let comparisons: Vec<_> = named.into_iter().map(|(name, revision)| comparison.compare(name, revision)).collect();
    // The log writes those together that wait for it at the same time.
    let compared = stream::iter(comparisons).buffer_unordered(AT_ONCE);
    let mut compared = std::pin::pin!(compared);
    let (mut is_whole, mut has_newer, mut refused, mut unsettled) = (true, false, Vec::new(), Vec::new());
    while let Some(compared) = compared.try_next().await? {
        match compared {
            Compared::Current => {}
            Compared::Created => count += 1,
            Compared::Newer(name) => {
                has_newer = true;
                unsettled.push(name);
            }
            Compared::Unsettled(name) => unsettled.push(name),
            Compared::Refused(why) => refused.push(why),
        }
    }
    if refs.unchanged {
        let problems = broken(&api, &namespace, &name).await?;
        return Ok(Outcome { is_whole, has_newer, unsettled, refused, problems, count });
    }
    let git = repository.spec.git.clone().unwrap_or_default();
    let branch = git_layout::branch_ref(&git.branch);
    let there: HashSet<&str> = refs.refs.iter().map(|found| found.name.as_str()).collect();
    for (object_name, object) in &existing {
        let Some(stored) = object.status.as_ref().and_then(|status| status.git.as_ref()) else { continue };
        let is_gone = match stored.reference == branch {
            true => {
                let path = git_layout::path_in(&object.spec.package_name, &git.directory);
                refs.removed_paths.contains(&path) || (refs.branch_is_complete && !seen.contains(object_name))
            }
            false => !there.contains(stored.reference.as_str()) && !seen.contains(object_name),
        };
        if !is_gone || has_changes(object) {
            continue;
        }
        let is_claimed = service.claims().was_claimed_since(&(namespace.clone(), object_name.clone()), began);
        if !is_claimed && queue::delete(&api, object).await? {
            count = count.saturating_sub(1);
        } else {
            is_whole = false;
        }
    }
    let problems = broken(&api, &namespace, &name).await?;
    Ok(Outcome { is_whole, has_newer, unsettled, refused, problems, count })
}

/// A comparison of an answer with the objects.
struct Comparison<'c> {
    service: &'c PackageService,
    repository: &'c Repository,
    api: &'c Api<PackageRevision>,
    /// The newest published number of each package.
    newest: HashMap<String, i64>,
    /// The objects, listed before `began`.
    existing: &'c HashMap<String, PackageRevision>,
    began: Instant,
}

/// The outcome for one revision.
enum Compared {
    /// The object is as Git or the registry has it.
    Current,
    Created,
    /// The object changed after the list. The ref of the revision.
    Newer(String),
    /// The object has changes that Git lacks. The ref of the revision.
    Unsettled(String),
    /// The revision makes no object, for this reason.
    Refused(String),
}

impl Comparison<'_> {
    /// Brings the object of a revision to the revision.
    async fn compare(&self, object_name: String, revision: &DiscoveredRevision) -> Result<Compared, ApiError> {
        let (namespace, _) = queue::key_of(self.repository);
        let key = (namespace, object_name);
        // A publication or deletion is in Git before it is in the log.
        if self.service.claims().was_claimed_since(&key, self.began) {
            return Ok(Compared::Newer(revision.r#ref.clone()));
        }
        let written = match self.existing.get(&key.1) {
            None => self.create(&key, revision).await,
            Some(object) if is_current(object, revision) => Ok(Compared::Current),
            Some(object) if has_changes(object) => Ok(Compared::Unsettled(revision.r#ref.clone())),
            Some(listed) => self.update(&key, listed, revision).await,
        };
        match written {
            // One broken package hides no other.
            Err(error) if queue::is_refusal(&error) => {
                Ok(Compared::Refused(format!("{}: {}", revision.path, error.message())))
            }
            written => written,
        }
    }

    async fn create(&self, (namespace, name): &ObjectKey, revision: &DiscoveredRevision) -> Result<Compared, ApiError> {
        let mut new = new_object(self.repository, revision);
        // `package_latest` would need another write.
        if new.spec.lifecycle.is_published() && self.newest.get(&revision.package) == Some(&new.spec.revision) {
            new.labels_mut().insert(LATEST_REVISION.to_owned(), "true".to_owned());
        }
        match self.api.create(&new).await {
            Ok(_) => Ok(Compared::Created),
            // Somebody created it after the list. An object that does not decode remains an error.
            Err(error) if error.code() == 409 && self.api.get(namespace, name).await.is_ok() => {
                Ok(Compared::Newer(revision.r#ref.clone()))
            }
            Err(error) => Err(error),
        }
    }

    async fn update(
        &self,
        (namespace, name): &ObjectKey,
        listed: &PackageRevision,
        revision: &DiscoveredRevision,
    ) -> Result<Compared, ApiError> {
        let mut is_newer = false;
        let changed = self.api.update_with(namespace, name, |object: &mut PackageRevision| {
            is_newer = !is_as_listed(object, listed);
            if !is_newer {
                adopt(object, self.repository, revision);
            }
        });
        queue::unless_gone(changed.await)?;
        Ok(if is_newer { Compared::Newer(revision.r#ref.clone()) } else { Compared::Current })
    }
}

/// The newest published number of each package, by the name of the package.
fn newest(existing: &HashMap<String, PackageRevision>, revisions: &[DiscoveredRevision]) -> HashMap<String, i64> {
    let stored = existing.values().filter(|object| object.spec.lifecycle.is_published());
    let stored = stored.map(|object| (&object.spec.package_name, object.spec.revision));
    let found = revisions.iter().filter(|revision| lifecycle(revision).is_published());
    let found = found.map(|revision| (&revision.package, i64::from(revision.revision)));
    let mut newest: HashMap<String, i64> = HashMap::new();
    for (package, number) in stored.chain(found).filter(|(_, number)| *number > 0) {
        let most = newest.entry(package.clone()).or_default();
        *most = number.max(*most);
    }
    newest
}

/// The errors of the broken packages of a repository.
async fn broken(api: &Api<PackageRevision>, namespace: &str, repository: &str) -> Result<Vec<String>, ApiError> {
    let options =
        ListOptions { field_selector: Some(format!("spec.repository={repository}")), ..ListOptions::default() };
    let error = |revision: PackageRevision| {
        let conditions = revision.status?.conditions;
        let found = conditions.into_iter().find(|found| found.type_ == reason::PACKAGES_READABLE)?;
        Some(format!("{} {}: {}", revision.spec.package_name, revision.spec.workspace_name, found.message))
    };
    api.list_of(Some(namespace), &options, error).await
}

fn lifecycle(revision: &DiscoveredRevision) -> Lifecycle {
    match revision.lifecycle.as_str() {
        "Proposed" => Lifecycle::Proposed,
        "Published" => Lifecycle::Published,
        "DeletionProposed" => Lifecycle::DeletionProposed,
        _ => Lifecycle::Draft,
    }
}

/// Whether an object has something that Git does not have yet.
fn has_changes(object: &PackageRevision) -> bool {
    let stored = object.status.as_ref().and_then(|status| status.git.as_ref());
    match stored {
        None => true,
        Some(stored) => {
            let has_content = !digest(object).is_empty() && digest(object) != stored.digest;
            has_content || (stored.lifecycle != object.spec.lifecycle && !object.spec.lifecycle.is_published())
        }
    }
}

/// Whether an object is unchanged since the list, and Git has all of it.
fn is_as_listed(object: &PackageRevision, listed: &PackageRevision) -> bool {
    object.metadata.resource_version == listed.metadata.resource_version && !has_changes(object)
}

/// Whether an object equals the revision in Git.
fn is_current(object: &PackageRevision, revision: &DiscoveredRevision) -> bool {
    let stored = object.status.as_ref().and_then(|status| status.git.as_ref());
    stored.is_some_and(|stored| {
        stored.reference == revision.r#ref
            && stored.lifecycle == lifecycle(revision)
            && object.spec.revision == i64::from(revision.revision)
            && match is_on_branch(revision) {
                // The head of the branch moves with every other package.
                true => stored.tree == revision.tree,
                false => stored.commit == revision.ref_commit && stored.tree == revision.tree,
            }
    })
}

fn is_on_branch(revision: &DiscoveredRevision) -> bool {
    revision.revision < 0 && !revision.r#ref.starts_with("refs/tags/")
}

fn new_object(repository: &Repository, revision: &DiscoveredRevision) -> PackageRevision {
    let mut object = PackageRevision::default();
    let (namespace, name) = queue::key_of(repository);
    object.metadata.namespace = Some(namespace);
    object.metadata.name = Some(revision_name(&name, &revision.package, &revision.workspace));
    object.spec = PackageRevisionSpec {
        package_name: revision.package.clone(),
        repository_name: name,
        workspace_name: revision.workspace.clone(),
        tasks: serde_json::from_str(&revision.task).into_iter().collect(),
        ..PackageRevisionSpec::default()
    };
    adopt(&mut object, repository, revision);
    object
}

/// Makes an object equal the revision in Git.
fn adopt(object: &mut PackageRevision, repository: &Repository, revision: &DiscoveredRevision) {
    let lifecycle = lifecycle(revision);
    let (spec, status) = (&mut object.spec, object.status.get_or_insert_default());
    spec.lifecycle = lifecycle;
    spec.revision = revision.revision.into();
    let git = repository.spec.git.clone().unwrap_or_default();
    let stored = StoredInGit {
        reference: revision.r#ref.clone(),
        commit: if is_on_branch(revision) { revision.commit.clone() } else { revision.ref_commit.clone() },
        tree: revision.tree.clone(),
        digest: String::new(),
        lifecycle,
    };
    // The content is the same where the folder is.
    let is_same = status.git.as_ref().is_some_and(|before| before.tree == stored.tree && !before.tree.is_empty());
    let before = status.content.clone().filter(|content| is_same && !content.digest.is_empty());
    let stored =
        StoredInGit { digest: before.as_ref().map_or(String::new(), |content| content.digest.clone()), ..stored };
    status.content = Some(before.unwrap_or(PackageContent { digest: String::new(), files: None }));
    if !is_same {
        // The server rendered other files.
        set_condition(&mut status.conditions, reason::RENDERED, None);
    }
    status.self_lock = match registry_of(repository) {
        Some(oci) => lock_in_registry(oci, &stored),
        None => Some(lock_of(&git.repo, &revision.path, &stored)),
    };
    status.git = Some(stored);
    status.deployment = repository.spec.deployment;
    if lifecycle.is_published() && status.published_at.is_none() {
        publication(status, revision);
    }
    kptfile(spec, status, revision);
    set_condition(&mut status.conditions, reason::PUSHED, None);
}

fn publication(status: &mut PackageRevisionStatus, revision: &DiscoveredRevision) {
    let Some(author) = &revision.author else { return };
    status.published_by = if author.email.is_empty() { author.name.clone() } else { author.email.clone() };
    status.published_at = jiff::Timestamp::from_second(author.seconds).ok().map(Time);
}

fn kptfile(spec: &mut PackageRevisionSpec, status: &mut PackageRevisionStatus, revision: &DiscoveredRevision) {
    let text = std::str::from_utf8(&revision.kptfile).unwrap_or_default();
    let problem = match (&revision.problem, Kptfile::parse(text)) {
        (None, Ok(kptfile)) => {
            of_kptfile(spec, status, &kptfile);
            None
        }
        (Some(problem), _) => Some((problem.reason.clone(), problem.message.clone())),
        (None, Err(error)) => Some((reason::INVALID_PACKAGES.to_owned(), error.to_string())),
    };
    let condition = problem.map(|(reason, message)| PackageCondition {
        type_: reason::PACKAGES_READABLE.to_owned(),
        status: "False".to_owned(),
        reason,
        message,
    });
    set_condition(&mut status.conditions, reason::PACKAGES_READABLE, condition);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> Repository {
        let value = serde_json::json!({
            "metadata": {"name": "blueprints", "namespace": "shop"},
            "spec": {"git": {"repo": "file:///r.git", "branch": "main"}},
        });
        serde_json::from_value(value).unwrap()
    }

    fn draft(commit: &str) -> DiscoveredRevision {
        DiscoveredRevision {
            r#ref: "refs/heads/drafts/basens/ws".to_owned(),
            package: "basens".to_owned(),
            path: "basens".to_owned(),
            workspace: "ws".to_owned(),
            lifecycle: "Draft".to_owned(),
            commit: commit.to_owned(),
            ref_commit: commit.to_owned(),
            tree: format!("tree of {commit}"),
            kptfile: "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: basens\n".into(),
            ..DiscoveredRevision::default()
        }
    }

    #[test]
    fn discovered_revision_is_current_until_git_moves() {
        let object = new_object(&repository(), &draft("a"));
        assert_eq!(object.name_any(), "blueprints.basens.ws");
        assert!(is_current(&object, &draft("a")) && !has_changes(&object));
        assert!(!is_current(&object, &draft("b")));
        let proposed = DiscoveredRevision { lifecycle: "Proposed".to_owned(), ..draft("a") };
        assert!(!is_current(&object, &proposed));
    }

    #[test]
    fn artifact_of_a_registry_is_a_published_revision() {
        let repository: Repository = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "catalog", "namespace": "shop"},
            "spec": {"type": "oci", "oci": {"registry": "registry.example.com/packages"}},
        }))
        .unwrap();
        let artifact = |digest: &str| DiscoveredRevision {
            r#ref: "refs/tags/packages/basens/v2".to_owned(),
            path: "packages/basens".to_owned(),
            workspace: "v2".to_owned(),
            revision: 2,
            lifecycle: "Published".to_owned(),
            ..draft(digest)
        };
        let object = new_object(&repository, &artifact("sha256:1"));
        assert_eq!(object.name_any(), "catalog.basens.v2");
        assert_eq!((object.spec.lifecycle, object.spec.revision), (Lifecycle::Published, 2));
        assert!(is_current(&object, &artifact("sha256:1")) && !has_changes(&object));
        assert!(!is_current(&object, &artifact("sha256:2")), "the tag moved");
        let lock = object.status.unwrap().self_lock.unwrap().git.unwrap();
        assert_eq!((&*lock.repo, &*lock.reference), ("oci://registry.example.com/packages/basens", "v2"));
        assert_eq!(lock.commit, "sha256:1");
    }

    #[test]
    fn newest_number_counts_objects_and_answers() {
        let published =
            |number: i32| DiscoveredRevision { lifecycle: "Published".to_owned(), revision: number, ..draft("a") };
        let stored = new_object(&repository(), &published(3));
        let existing = HashMap::from([("blueprints.basens.v3".to_owned(), stored)]);
        let number = |revisions: &[DiscoveredRevision]| newest(&existing, revisions).get("basens").copied();
        assert_eq!(number(&[published(2), draft("b")]), Some(3));
        assert_eq!(number(&[published(4)]), Some(4));
        assert!(newest(&HashMap::new(), &[published(-1), draft("a")]).is_empty());
    }

    #[test]
    fn unpushed_changes_are_seen() {
        let mut object = new_object(&repository(), &draft("a"));
        object.spec.lifecycle = Lifecycle::Proposed;
        assert!(has_changes(&object), "a proposal that was not pushed");
        object.spec.lifecycle = Lifecycle::Draft;
        object.status.as_mut().unwrap().content = Some(PackageContent { digest: "sha256:1".to_owned(), files: None });
        assert!(has_changes(&object), "a save that was not pushed");
    }

    #[test]
    fn object_that_changed_after_the_list_is_newer() {
        let at = |version: &str| {
            let mut object = new_object(&repository(), &draft("a"));
            object.metadata.resource_version = Some(version.to_owned());
            object
        };
        let mut saved = at("7");
        assert!(is_as_listed(&saved, &at("7")));
        assert!(!is_as_listed(&at("8"), &at("7")), "a push after the list");
        saved.spec.lifecycle = Lifecycle::Proposed;
        assert!(!is_as_listed(&saved, &at("7")), "a proposal that was not pushed");
    }

    #[test]
    fn broken_package_shows_a_condition() {
        let broken = DiscoveredRevision { kptfile: "kind: Other\n".into(), ..draft("a") };
        let object = new_object(&repository(), &broken);
        let conditions = object.status.unwrap().conditions;
        assert_eq!((&*conditions[0].type_, &*conditions[0].status), (reason::PACKAGES_READABLE, "False"));
    }
}
