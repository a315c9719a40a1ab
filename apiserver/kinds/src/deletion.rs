//! The deletionPolicy that counts for a Stack, Project or Organization.
//!
//! The policy of a Stack wins over that of its Project, and that of a Project over that of the Organization. Where none is
//! set, it is `Refuse`. Nothing is stored for a policy that is left out: it is looked up when it counts, so it follows the
//! owner. Start at [`of_stack`], or at [`Policies`] for many stacks of a namespace.

use std::{collections::BTreeMap, fmt};

use kube::ResourceExt as _;
use stoa_machinery::{ApiError, RequestContext};
use stoa_types::{DeletionPolicy, Organization, Project, Stack, names};

use super::lookup::Lookup;
use crate::deployed::{self, Live};

/// The most stacks that an error names.
const NAMED: usize = 10;

/// The policy that counts for an object, and the object that sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// The policy.
    pub policy: DeletionPolicy,
    set_by: SetBy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SetBy {
    Itself,
    Project(String),
    Organization(String),
    Nothing,
}

/// As in an error: `Refuse (set by project "web")`; the policy alone where the object sets it.
impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.policy)?;
        match &self.set_by {
            SetBy::Itself => Ok(()),
            SetBy::Project(name) => write!(f, " (set by project {name:?})"),
            SetBy::Organization(name) => write!(f, " (set by organization {name:?})"),
            SetBy::Nothing => f.write_str(" (the default)"),
        }
    }
}

/// The policies that the Organization of a namespace and its Projects set.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    organization_name: String,
    organization: Option<DeletionPolicy>,
    projects: BTreeMap<String, Option<DeletionPolicy>>,
}

impl Policies {
    /// Takes the policy of an Organization, as it is or is to be.
    pub fn of_organization(organization: &Organization) -> Self {
        Self {
            organization_name: organization.name_any(),
            organization: organization.spec.deletion_policy,
            projects: BTreeMap::new(),
        }
    }

    /// Reads the policy of a namespace's Organization and takes that of a Project in it, as it is or is to be.
    ///
    /// # Errors
    ///
    /// When the Organization cannot be read.
    pub async fn of_project(lookup: &Lookup, project: &Project) -> Result<Self, ApiError> {
        let namespace = project.namespace().unwrap_or_default();
        Ok(Self::read(lookup, &namespace).await?.with_project(project))
    }

    /// Takes another policy for the Organization.
    pub(crate) fn with_organization(mut self, organization: &Organization) -> Self {
        self.organization = organization.spec.deletion_policy;
        self
    }

    /// Takes another policy for a Project.
    pub(crate) fn with_project(mut self, project: &Project) -> Self {
        self.projects.insert(project.name_any(), project.spec.deletion_policy);
        self
    }

    async fn read(lookup: &Lookup, namespace: &str) -> Result<Self, ApiError> {
        let organization = lookup.api::<Organization>()?.get_opt("", namespace).await?;
        Ok(Self {
            organization_name: namespace.to_owned(),
            organization: organization.and_then(|organization| organization.spec.deletion_policy),
            projects: BTreeMap::new(),
        })
    }

    /// Reads the policies of the Projects of those of these stacks that set none themselves.
    ///
    /// # Errors
    ///
    /// When a Project cannot be read.
    pub async fn read_projects(
        &mut self,
        lookup: &Lookup,
        stacks: impl Iterator<Item = &Stack>,
    ) -> Result<(), ApiError> {
        for stack in stacks.filter(|stack| stack.spec.deletion_policy.is_none()) {
            let name = &stack.spec.project;
            if !self.projects.contains_key(name) {
                let namespace = stack.namespace().unwrap_or_default();
                let project = lookup.api::<Project>()?.get_opt(&namespace, name).await?;
                self.projects.insert(name.clone(), project.and_then(|project| project.spec.deletion_policy));
            }
        }
        Ok(())
    }

    /// The policy of the Organization itself.
    pub fn organization(&self) -> Effective {
        match self.organization {
            Some(policy) => Effective { policy, set_by: SetBy::Itself },
            None => Effective { policy: DeletionPolicy::Refuse, set_by: SetBy::Nothing },
        }
    }

    /// The policy of a Project that was read or taken.
    pub fn project(&self, name: &str) -> Effective {
        match (self.projects.get(name).copied().flatten(), self.organization) {
            (Some(policy), _) => Effective { policy, set_by: SetBy::Itself },
            (None, Some(policy)) => Effective { policy, set_by: SetBy::Organization(self.organization_name.clone()) },
            (None, None) => Effective { policy: DeletionPolicy::Refuse, set_by: SetBy::Nothing },
        }
    }

    /// The policy of a Stack whose Project was read or taken.
    pub fn stack(&self, stack: &Stack) -> Effective {
        if let Some(policy) = stack.spec.deletion_policy {
            return Effective { policy, set_by: SetBy::Itself };
        }
        let of = self.project(&stack.spec.project);
        match of.set_by {
            SetBy::Itself => Effective { set_by: SetBy::Project(stack.spec.project.clone()), ..of },
            SetBy::Project(_) | SetBy::Organization(_) | SetBy::Nothing => of,
        }
    }
}

/// The policy that counts for a Stack.
///
/// # Errors
///
/// When its Project or Organization cannot be read.
pub async fn of_stack(lookup: &Lookup, stack: &Stack) -> Result<Effective, ApiError> {
    if stack.spec.deletion_policy.is_some() {
        return Ok(Policies::default().stack(stack));
    }
    let mut policies = Policies::read(lookup, &stack.namespace().unwrap_or_default()).await?;
    policies.read_projects(lookup, std::iter::once(stack)).await?;
    Ok(policies.stack(stack))
}

/// The same as the watch cache has it: for warnings, never for decisions.
pub(crate) fn cached_of_stack(lookup: &Lookup, stack: &Stack) -> DeletionPolicy {
    let namespace = stack.namespace().unwrap_or_default();
    let of_project = || lookup.cached_spec::<Project>(&namespace, &stack.spec.project)?.deletion_policy;
    let own = stack.spec.deletion_policy.or_else(of_project);
    own.unwrap_or_else(|| cached_of_namespace(lookup, &namespace))
}

/// The policy that counts for a Project, as the watch cache has it: for warnings, never for decisions.
pub(crate) fn cached_of_project(lookup: &Lookup, project: &Project) -> DeletionPolicy {
    let namespace = project.namespace().unwrap_or_default();
    project.spec.deletion_policy.unwrap_or_else(|| cached_of_namespace(lookup, &namespace))
}

fn cached_of_namespace(lookup: &Lookup, namespace: &str) -> DeletionPolicy {
    lookup.cached_spec::<Organization>("", namespace).and_then(|spec| spec.deletion_policy).unwrap_or_default()
}

/// A Project or Organization that is to be deleted.
pub struct Owner<'a> {
    /// `project` or `organization`.
    pub kind: &'a str,
    /// The name of the object.
    pub name: &'a str,
    /// The policy that counts for it.
    pub policy: DeletionPolicy,
}

impl Owner<'_> {
    /// Those of the live stacks of an owner that keep it from being deleted: all of them where its own policy is `Refuse`.
    pub fn kept_by<'a>(&self, live: &'a [Live], policies: &Policies) -> Vec<&'a Stack> {
        live.iter().map(|of| &of.stack).filter(|stack| self.keeps(stack, policies)).collect()
    }

    /// Whether a stack, if it is live, keeps its owner from being deleted.
    pub fn keeps(&self, stack: &Stack, policies: &Policies) -> bool {
        self.policy == DeletionPolicy::Refuse || policies.stack(stack).policy == DeletionPolicy::Refuse
    }

    /// A sentence that says why an owner is not deleted, such as `organization "shop" has 3 live stacks with deletionPolicy
    /// Refuse (web, api, db); destroy them first`.
    pub fn message(&self, kept: &[&Stack], policies: &Policies) -> String {
        let (kind, name) = (self.kind, self.name);
        let named: Vec<String> = kept.iter().take(NAMED).map(|stack| stack.name_any()).collect();
        let mut names = named.join(", ");
        if let more @ 1.. = kept.len().saturating_sub(NAMED) {
            names += &format!(" and {more} more");
        }
        let (stacks, them) = if kept.len() == 1 { ("stack", "it") } else { ("stacks", "them") };
        let stacks = format!("{} live {stacks}", kept.len());
        if kept.iter().all(|stack| policies.stack(stack).policy == DeletionPolicy::Refuse) {
            format!("{kind} {name:?} has {stacks} with deletionPolicy Refuse ({names}); destroy {them} first")
        } else {
            format!("{kind} {name:?} has deletionPolicy Refuse and {stacks} ({names}); destroy {them} first")
        }
    }

    /// Requires what the deletion of an owner takes: no live stack refuses it, and the requester may destroy each stack that
    /// is destroyed by it.
    ///
    /// # Errors
    ///
    /// 403 that names the stacks that refuse it, or the verb that the requester lacks.
    pub(crate) async fn require_deletion(
        &self,
        lookup: &Lookup,
        context: &RequestContext,
        namespace: &str,
        live: Vec<Live>,
        policies: &Policies,
    ) -> Result<(), ApiError> {
        let kept = self.kept_by(&live, policies);
        if !kept.is_empty() {
            let message = self.message(&kept, policies);
            return Err(ApiError::forbidden(names::group::<Stack>(), &format!("{}s", self.kind), self.name, message));
        }
        let is_destroyed = |of: &Live| policies.stack(&of.stack).policy == DeletionPolicy::Destroy;
        let destroyed: Vec<Live> = live.into_iter().filter(is_destroyed).collect();
        deployed::require_destroy_all(lookup, context, namespace, &destroyed).await
    }
}

/// Requires leave to destroy the live stacks that come to be destroyed by a change of policies. It is asked for when the
/// policy changes, since it counts when the stacks are deleted, which may be long after somebody deleted their owner.
///
/// # Errors
///
/// 403 that names the verb that the requester lacks.
pub(crate) async fn require_change(
    lookup: &Lookup,
    context: &RequestContext,
    namespace: &str,
    live: Vec<Live>,
    (new, old): (&Policies, &Policies),
) -> Result<(), ApiError> {
    let is_destroyed = |policies: &Policies, of: &Live| policies.stack(&of.stack).policy == DeletionPolicy::Destroy;
    let comes_to_be: Vec<Live> =
        live.into_iter().filter(|of| is_destroyed(new, of) && !is_destroyed(old, of)).collect();
    deployed::require_destroy_all(lookup, context, namespace, &comes_to_be).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stack(policy: Option<&str>) -> Stack {
        let spec = json!({"project": "web", "deletionPolicy": policy});
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec})).unwrap()
    }

    #[track_caller]
    fn check(
        stack_sets: Option<&str>,
        project: Option<DeletionPolicy>,
        organization: Option<DeletionPolicy>,
        of: &str,
    ) {
        let projects = BTreeMap::from([("web".to_owned(), project)]);
        let policies = Policies { organization_name: "shop".to_owned(), organization, projects };
        assert_eq!(policies.stack(&stack(stack_sets)).to_string(), of);
    }

    #[test]
    fn nearest_policy_wins() {
        use DeletionPolicy::{Destroy, Orphan, Refuse};
        check(None, None, None, "Refuse (the default)");
        check(None, None, Some(Destroy), "Destroy (set by organization \"shop\")");
        check(None, Some(Refuse), Some(Destroy), "Refuse (set by project \"web\")");
        check(Some("Refuse"), Some(Destroy), Some(Orphan), "Refuse");
        check(Some("Destroy"), Some(Orphan), None, "Destroy");
    }

    #[test]
    fn message_names_ten_stacks_at_most() {
        let owner = Owner { kind: "organization", name: "shop", policy: DeletionPolicy::Destroy };
        let kept = stack(Some("Refuse"));
        let message = |count: usize| owner.message(&vec![&kept; count], &Policies::default());
        assert_eq!(
            message(1),
            "organization \"shop\" has 1 live stack with deletionPolicy Refuse (web); destroy it first"
        );
        let of_twelve = message(12);
        assert!(of_twelve.contains("12 live stacks") && of_twelve.contains("web and 2 more)"), "{of_twelve}");
    }
}
