//! Write access to a Project whose `access` is `Owners`, and to its Stacks: its owners, and users with the verb
//! `edit` on it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use stoa_machinery::{
    ApiError, RequestContext,
    registry::{FOREGROUND_DELETION, ORPHAN_DEPENDENTS},
    request::UserInfo,
};
use stoa_types::{Project, Subject};

use super::lookup;
use crate::cluster::{self, Cluster};

/// What the garbage collector keeps an object by until it has dealt with what belongs to it.
const COLLECTORS: [&str; 2] = [FOREGROUND_DELETION, ORPHAN_DEPENDENTS];

/// Requires that the requester may edit a project, given by its namespace and name.
///
/// # Errors
///
/// 403 that names the verb and the project.
pub(crate) async fn require_edit(
    context: &RequestContext,
    (namespace, project): (&str, &str),
    owners: &[Subject],
) -> Result<(), ApiError> {
    if context.is_internal() || owners.iter().any(|owner| is(owner, &context.user)) {
        return Ok(());
    }
    lookup::require::<Project>(context, "edit", "", namespace, project).await
}

/// The same to delete the project or what belongs to it, unless that empties a namespace that is being deleted.
///
/// # Errors
///
/// As [`require_edit`], and when the namespace cannot be read.
pub(crate) async fn require_delete(
    context: &RequestContext,
    cluster: &dyn Cluster,
    (namespace, project): (&str, &str),
    owners: &[Subject],
) -> Result<(), ApiError> {
    let decided = require_edit(context, (namespace, project), owners).await;
    cluster::unless_emptied(cluster, namespace, decided).await
}

/// Whether a change of metadata decides how an object ends: by whose deletion it goes, too, without what a finalizer waits
/// for, or not before that. The garbage collector carries out what others decided, and has no need of their rights: it takes
/// away its own finalizers, and references to owners. `kept` is the finalizer of Stoa's, which any write gives back to an
/// object that has lost it.
pub(crate) fn decides_end(new: &ObjectMeta, old: &ObjectMeta, kept: &str) -> bool {
    let has =
        |metadata: &ObjectMeta, finalizer: &String| metadata.finalizers.iter().flatten().any(|it| it == finalizer);
    let is_others = |finalizer: &&String| !COLLECTORS.contains(&finalizer.as_str());
    let lets_go = old.finalizers.iter().flatten().filter(is_others).any(|finalizer| !has(new, finalizer));
    let mut added = new.finalizers.iter().flatten().filter(is_others).filter(|finalizer| !has(old, finalizer));
    let holds = added.any(|finalizer| finalizer != kept);
    let is_same = |a: &OwnerReference, b: &OwnerReference| {
        (&a.api_version, &a.kind, &a.name, &a.uid) == (&b.api_version, &b.kind, &b.name, &b.uid)
    };
    let had = |owner: &OwnerReference| old.owner_references.iter().flatten().any(|before| is_same(before, owner));
    lets_go || holds || !new.owner_references.iter().flatten().all(had)
}

/// Whether a subject of RBAC stands for a user.
fn is(subject: &Subject, user: &UserInfo) -> bool {
    let Subject { kind, name, namespace, .. } = subject;
    match kind.as_str() {
        "User" => *name == user.name,
        "Group" => user.in_group(name),
        "ServiceAccount" => {
            let namespace = namespace.as_deref().unwrap_or_default();
            user.name == format!("system:serviceaccount:{namespace}:{name}")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalizer_changes_decide_object_end() {
        let with = |finalizers: &[&str]| ObjectMeta {
            finalizers: Some(finalizers.iter().map(|finalizer| (*finalizer).to_owned()).collect()),
            ..ObjectMeta::default()
        };
        let (kept, held) = ("stoa.dev/stacks", "example.com/held");
        let cases: [(&[&str], &[&str], bool); 9] = [
            (&[kept, held], &[held, kept], false),
            (&[kept], &[kept, held], true),
            (&[kept, held], &[kept], true),
            (&[kept], &[], true),
            (&[], &[kept], false),
            (&[], &[kept, held], true),
            (&[kept], &[kept, "stoa.dev/infrastructure"], true),
            (&[kept], &[kept, "foregroundDeletion"], false),
            (&[kept, "orphan"], &[kept], false),
        ];
        for (old, new, decides) in cases {
            assert_eq!(decides_end(&with(new), &with(old), kept), decides, "{old:?} to {new:?}");
        }
    }

    #[test]
    fn subject_stands_for_whom_it_names() {
        let subject = |kind: &str, name: &str, namespace: Option<&str>| Subject {
            kind: kind.to_owned(),
            name: name.to_owned(),
            api_group: None,
            namespace: namespace.map(str::to_owned),
        };
        let user = |name: &str, groups: &[&str]| UserInfo {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..UserInfo::default()
        };
        let (ann, robot) = (user("ann", &["leads"]), user("system:serviceaccount:shop:robot", &[]));
        for (subject, of_ann, of_robot) in [
            (subject("User", "ann", None), true, false),
            (subject("User", "leads", None), false, false),
            (subject("Group", "leads", None), true, false),
            (subject("Group", "ann", None), false, false),
            (subject("ServiceAccount", "robot", Some("shop")), false, true),
            (subject("ServiceAccount", "robot", Some("bank")), false, false),
            (subject("ServiceAccount", "robot", None), false, false),
        ] {
            assert_eq!((is(&subject, &ann), is(&subject, &robot)), (of_ann, of_robot), "{subject:?}");
        }
    }
}
