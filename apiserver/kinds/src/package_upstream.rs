//! The default upstream of a repository, for tasks of type clone that name none.

use kube::ResourceExt as _;
use stoa_types::{
    porch::{CloneTask, GitPackage, NameReference, PackageRevision, UpstreamPackage},
    porchconfig::Repository,
};

use crate::lookup::Lookup;

/// Names the upstream of a new revision whose task of type clone names none, or only a folder: that of its repository. A folder
/// is `upstreamRef.git.directory` without an address; without one it is the path of the package itself.
pub(crate) fn set_default(lookup: &Lookup, revision: &mut PackageRevision) {
    let namespace = revision.namespace().unwrap_or_default();
    let (repository, package) = (revision.spec.repository_name.clone(), revision.spec.package_name.clone());
    let Some(task) = revision.spec.tasks.first_mut().filter(|task| task.kind == "clone") else { return };
    let CloneTask { upstream, .. } = task.clone.get_or_insert_default();
    if is_named(upstream) {
        return;
    }
    let Some(default) = lookup.cached_spec::<Repository>(&namespace, &repository).and_then(|spec| spec.upstream) else {
        return;
    };
    let asked = upstream.git.take().unwrap_or_default();
    let folder = match asked.directory.trim_matches('/') {
        "" => package.as_str(),
        folder => folder,
    };
    if let Some(registered) = default.repository_ref {
        let newest = newest(lookup, (&namespace, &registered.name, folder));
        upstream.upstream_ref = newest.map(|name| NameReference { name });
    } else if let Some(git) = default.git {
        let reference = if asked.reference.is_empty() { git.branch.clone() } else { asked.reference };
        let directory = format!("{}/{folder}", git.directory.trim_matches('/'));
        "git".clone_into(&mut upstream.kind);
        upstream.git = Some(GitPackage { repo: git.repo, reference, directory, secret_ref: git.secret_ref });
    }
}

/// Whether a task names its upstream.
fn is_named(upstream: &UpstreamPackage) -> bool {
    let has_name = upstream.upstream_ref.as_ref().is_some_and(|reference| !reference.name.is_empty());
    has_name || upstream.oci.is_some() || upstream.git.as_ref().is_some_and(|git| !git.repo.is_empty())
}

/// The newest published revision of a package.
fn newest(lookup: &Lookup, (namespace, repository, package): (&str, &str, &str)) -> Option<String> {
    let of_path = lookup.cached_keys::<PackageRevision>(namespace, "spec.packageName", package);
    let revisions = of_path.iter().filter_map(|(namespace, name)| lookup.cached::<PackageRevision>(namespace, name));
    let published = revisions.filter(|revision| {
        revision.spec.repository_name == repository
            && revision.spec.lifecycle.is_published()
            && revision.spec.revision > 0
    });
    published.max_by_key(|revision| revision.spec.revision).map(|revision| revision.name_any())
}
