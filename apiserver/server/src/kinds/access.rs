//! Who may write a project whose `access` is `Owners`, and its stacks: its owners, and whoever has the verb `edit` on it.

use stoa_machinery::{ApiError, RequestContext, request::UserInfo};
use stoa_types::Subject;

use super::lookup;
use crate::cluster::{self, Cluster};

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
    lookup::require(context, "edit", "config.stoa.dev", "projects", "", namespace, project).await
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
    let is_refused = decided.as_ref().is_err_and(|error| error.code() == 403);
    if is_refused && cluster::is_emptied(cluster, namespace).await? {
        return Ok(());
    }
    decided
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
