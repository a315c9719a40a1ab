//! Lookup of referenced values: what a reference to a resource resolves to, once the action of that resource is
//! decided.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::ignore::{IGNORE_FIELDS, Ignored};
use crate::object::{has_data, has_no_default, is_fixed, is_volatile, may_exist, secret_as_stored};
use crate::path::{FieldPath, Found, below};
use crate::plan::{Action, ProviderPlan};
use crate::reference::{Reference, ReferenceError};
use crate::resolve::{Lookup, Resolved};
use crate::sensitive::Sensitive;
use crate::spec::{Resource, ResourceType};
use crate::state::StateResource;

/// The result of a dry run.
#[derive(Clone, Copy, Debug)]
pub enum DryRun<'l> {
    /// The dry run was not made yet.
    Pending,
    /// There was no dry run, or it has no result.
    Unavailable,
    /// This.
    Object(&'l Map<String, Value>),
}

/// A resource of the Spec with resolved references and a decided action.
#[derive(Clone, Debug)]
pub struct Settled<'l> {
    kind: ResourceType,
    resolved: Cow<'l, Resolved<'l>>,
    /// The attributes as a server keeps them, where that differs: a Secret's.
    stored: Option<Map<String, Value>>,
    action: Action,
    live: Option<Cow<'l, Map<String, Value>>>,
    /// Its record.
    before: Option<&'l StateResource>,
    /// The resource itself, if its live object was read.
    seen: Option<&'l Resource>,
    dry_run: DryRun<'l>,
    /// The plan of its provider.
    plan: Option<&'l ProviderPlan>,
    sensitive: Sensitive,
}

impl Settled<'static> {
    /// A resource after its action, whose live values are final.
    #[must_use]
    pub fn applied(resource: &Resource, resolved: Resolved<'static>, live: Map<String, Value>) -> Self {
        Self::new(resource, Cow::Owned(resolved), Action::Unchanged, Some(Cow::Owned(live)))
    }
}

impl<'l> Settled<'l> {
    /// Takes what is known of a resource. `live` is the resource as the infrastructure reports it:
    /// before the action while planning, after it while applying.
    pub fn new(
        resource: &Resource,
        resolved: Cow<'l, Resolved<'l>>,
        action: Action,
        live: Option<Cow<'l, Map<String, Value>>>,
    ) -> Self {
        let stored = match resource.kind {
            ResourceType::Kubernetes => secret_as_stored(&resolved.attributes),
            ResourceType::Terraform => None,
        };
        let mut sensitive = Sensitive::of(&resolved.attributes, &resolved.sensitive);
        for object in [stored.as_ref(), live.as_deref()].into_iter().flatten() {
            sensitive.extend(&Sensitive::of(object, &resolved.sensitive));
        }
        let (before, seen, dry_run, plan) = (None, None, DryRun::Unavailable, None);
        Self { kind: resource.kind, resolved, stored, action, live, before, seen, dry_run, plan, sensitive }
    }

    /// The same with its record: an applied field that the Spec drops will be removed.
    #[must_use]
    pub fn after(self, prior: &'l StateResource) -> Self {
        Self { before: Some(prior), ..self }
    }

    /// The same after a read of the live object: missing data stays missing unless a known writer sets it.
    #[must_use]
    pub fn seen(self, resource: &'l Resource) -> Self {
        Self { seen: Some(resource), ..self }
    }

    /// The same with the result of its dry run.
    #[must_use]
    pub fn dry_run(self, dry_run: DryRun<'l>) -> Self {
        Self { dry_run, ..self }
    }

    /// The same with the plan of its provider, whose values count alone.
    #[must_use]
    pub fn planned(self, plan: &'l ProviderPlan) -> Self {
        let mut sensitive = self.sensitive;
        sensitive.extend(&Sensitive::of(&plan.after, &plan.sensitive));
        Self { plan: Some(plan), sensitive, ..self }
    }

    /// The resolved attributes.
    pub fn resolved(&self) -> &Resolved<'l> {
        &self.resolved
    }

    /// The resolved attributes, by value.
    pub fn into_resolved(self) -> Resolved<'l> {
        self.resolved.into_owned()
    }

    /// Its sensitive values.
    pub fn sensitive(&self) -> &Sensitive {
        &self.sensitive
    }

    /// Whether the wanted attributes alone resolve a reference.
    pub fn answers(&self, path: &FieldPath) -> bool {
        let wanted = [Some(&*self.resolved.attributes), self.stored.as_ref()];
        wanted.into_iter().flatten().any(|attributes| path.get(attributes).is_some())
    }

    /// Finds the value of a reference to this resource: what is wanted of it, else what is live.
    ///
    /// # Errors
    ///
    /// [`ReferenceError::Dangling`] when there is no such value and applying will not make one.
    pub fn lookup(&self, reference: &Reference) -> Result<Lookup<'_>, ReferenceError> {
        let path = &reference.path;
        match self.of_provider(path) {
            Some(lookup) => return Ok(lookup),
            None if self.plan.is_some() => {
                let message = format!("{} has no {path}, by the plan of its provider", reference.id);
                return Err(ReferenceError::Dangling(message));
            }
            // The provider has not planned yet, and may convert what is wanted.
            None if self.kind == ResourceType::Terraform && matches!(self.dry_run, DryRun::Pending) => {
                return Ok(Lookup::Unknown);
            }
            None => {}
        }
        if self.resolved.is_unknown(path) {
            return Ok(Lookup::Unknown);
        }
        for attributes in [Some(&*self.resolved.attributes), self.stored.as_ref()].into_iter().flatten() {
            match path.find(attributes) {
                Found::Value(value) => return Ok(self.known(path, value)),
                Found::Impossible { depth, found } => {
                    let message =
                        format!("{reference} cannot exist: {} of {} is {found}", path.up_to(depth), reference.id);
                    return Err(ReferenceError::Dangling(message));
                }
                Found::Missing => {}
            }
        }
        if self.kind == ResourceType::Kubernetes && !may_exist(path) {
            let message = format!("{reference} cannot exist: objects have no field {}", path.up_to(2));
            return Err(ReferenceError::Dangling(message));
        }
        let live = self.live.as_ref().and_then(|live| path.get(live));
        match (self.action, live) {
            (Action::Unchanged, Some(value)) => Ok(self.known(path, value)),
            (Action::Unchanged, None) => {
                let message = format!("{} has no {path}, neither in the Spec nor in the live object", reference.id);
                Err(ReferenceError::Dangling(message))
            }
            (Action::Update | Action::Adopt | Action::Replace, _) if self.is_dropped(path) => {
                let stays = match self.dry_run {
                    // Only the server knows whether a default or another manager sets it.
                    DryRun::Pending => true,
                    DryRun::Unavailable => !has_no_default(&self.resolved.attributes, path),
                    DryRun::Object(made) => path.get(made).is_some(),
                };
                if stays {
                    return Ok(Lookup::Unknown);
                }
                let message = format!("{} will have no {path}: the Spec does not set it any more", reference.id);
                Err(ReferenceError::Dangling(message))
            }
            (Action::Update | Action::Adopt, Some(value)) if self.keeps(path, value) => Ok(self.known(path, value)),
            (Action::Create | Action::Update | Action::Adopt | Action::Replace, None) if self.will_lack(path) => {
                let message = format!(
                    "{} will have no {path}: neither the Spec nor another writer sets it; if another writer sets it \
                     later, add it to {IGNORE_FIELDS} there",
                    reference.id
                );
                Err(ReferenceError::Dangling(message))
            }
            _ => Ok(Lookup::Unknown),
        }
    }

    /// The value that a provider planned or made. It may have converted the wanted value, or set another one.
    fn of_provider(&self, path: &FieldPath) -> Option<Lookup<'_>> {
        if let Some(plan) = self.plan {
            let is_unknown = (0..=path.0.len()).any(|depth| plan.unknown.contains(&path.0[..depth]))
                || below(&plan.unknown, &path.0).next().is_some();
            return if is_unknown { Some(Lookup::Unknown) } else { Some(self.known(path, path.get(&plan.after)?)) };
        }
        let live =
            self.live.as_ref().filter(|_| self.kind == ResourceType::Terraform && self.action == Action::Unchanged);
        Some(self.known(path, path.get(live?)?))
    }

    /// Whether a change keeps the live value of a field that the Spec does not set.
    fn keeps(&self, path: &FieldPath, value: &Value) -> bool {
        match self.dry_run {
            _ if is_volatile(path) => false,
            // Assume so before the dry run, so that referring resources are dry-run too.
            DryRun::Pending => true,
            // A dry run may show a temporary value, such as ports of a Service.
            DryRun::Object(made) => path.get(made) == Some(value),
            DryRun::Unavailable => is_fixed(path) || has_no_default(&self.resolved.attributes, path),
        }
    }

    /// Whether a field will have no value: it is neither wanted nor live, has no default, is not ignored, and was not set
    /// by others before.
    ///
    /// A ConfigMap or Secret without data in the Spec is excluded, since others fill it, such as with a bundle of
    /// certificates.
    fn will_lack(&self, path: &FieldPath) -> bool {
        let Some(resource) = self.seen else { return false };
        let attributes = &self.resolved.attributes;
        if self.kind != ResourceType::Kubernetes || !has_no_default(attributes, path) || !has_data(attributes) {
            return false;
        }
        let is_made = match self.dry_run {
            DryRun::Pending => true,
            DryRun::Unavailable => false,
            DryRun::Object(made) => path.get(made).is_some(),
        };
        let was_others = || self.before.is_some_and(|prior| path.get(&prior.live).is_some()) && !self.was_applied(path);
        let is_left = || Ignored::of(resource).is_ok_and(|ignored| ignored.touches(path));
        !is_made && !was_others() && !is_left()
    }

    /// Whether the Spec drops an applied field.
    fn is_dropped(&self, path: &FieldPath) -> bool {
        self.was_applied(path) && !is_volatile(path)
    }

    /// Whether the record has a field as applied.
    fn was_applied(&self, path: &FieldPath) -> bool {
        let Some(prior) = self.before else { return false };
        let stored = match self.kind {
            ResourceType::Kubernetes => secret_as_stored(&prior.attributes),
            ResourceType::Terraform => None,
        };
        let has_it = |object: &Map<String, Value>| path.get(object).is_some_and(|value| !value.is_null());
        [Some(&prior.attributes), stored.as_ref()].into_iter().flatten().any(has_it)
    }

    fn known<'v>(&self, path: &FieldPath, value: &'v Value) -> Lookup<'v> {
        Lookup::Known { value, sensitive: self.sensitive.below(path) }
    }
}
