//! The rights of roles on the objects of a kind: the data of the ClusterRoles in `manifests/base`.

/// A ClusterRole of `manifests/base`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the manifests describe each")]
pub enum Role {
    Viewer,
    Developer,
    Approver,
    Owner,
    PlatformEngineer,
    Git,
    GarbageCollector,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 7] = [
        Self::Viewer,
        Self::Developer,
        Self::Approver,
        Self::Owner,
        Self::PlatformEngineer,
        Self::Git,
        Self::GarbageCollector,
    ];

    /// The name of the ClusterRole, such as `stoa:viewer`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "stoa:viewer",
            Self::Developer => "stoa:developer",
            Self::Approver => "stoa:approver",
            Self::Owner => "stoa:owner",
            Self::PlatformEngineer => "stoa:platform-engineer",
            Self::Git => "stoa:git",
            Self::GarbageCollector => "stoa:garbage-collector",
        }
    }
}

/// Verbs that some roles have on some resources of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Right {
    /// The roles.
    pub roles: &'static [Role],
    /// Subresources, and `""` for the objects themselves.
    pub on: &'static [&'static str],
    /// The verbs.
    pub verbs: &'static [&'static str],
    /// A comment on the rule in the manifests, or nothing.
    pub note: &'static str,
}

/// The objects themselves.
pub(crate) const OBJECTS: &[&str] = &[""];
/// The verbs of a reader.
pub(crate) const READ: &[&str] = &["get", "list", "watch"];
/// The verb that writes what only owners of a Project may write.
pub(crate) const EDIT: &[&str] = &["edit"];
/// The verbs that decide about an approval.
pub(crate) const DECIDE: &[&str] = &["get", "update", "patch"];
/// The roles that read what is in an Organization.
pub(crate) const READERS: &[Role] =
    &[Role::Viewer, Role::Developer, Role::Approver, Role::Owner, Role::PlatformEngineer];
/// The roles that read the statuses in an Organization too.
pub(crate) const MEMBERS: &[Role] = &[Role::Viewer, Role::Developer, Role::Owner];

/// Developers write the objects.
pub(crate) const DEVELOPED: Right = right(&[Role::Developer], OBJECTS, &["create", "update", "patch", "delete"]);
/// Owners write the objects, and delete many at once.
pub(crate) const OWNED: Right =
    right(&[Role::Owner], OBJECTS, &["create", "update", "patch", "delete", "deletecollection"]);
/// Approvers and owners decide.
pub(crate) const APPROVED: Right = right(&[Role::Approver, Role::Owner], &["approval"], DECIDE);
/// Pushed files become writes.
pub(crate) const PUSHED: Right = right(&[Role::Git], OBJECTS, &["get", "create", "update", "patch", "delete"]);

/// Verbs of roles on subresources, and on the objects themselves for `""`.
pub(crate) const fn right(
    roles: &'static [Role],
    on: &'static [&'static str],
    verbs: &'static [&'static str],
) -> Right {
    Right { roles, on, verbs, note: "" }
}
