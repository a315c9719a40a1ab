//! Ownership after a write, and the object that an applied configuration results in.
//!
//! Follows `structured-merge-diff/v6/merge/update.go`. An object has one version here, so what a manager owns at any
//! other is forgotten, as upstream forgets versions that are no longer served.

use serde_json::{Map, Value};

use super::{
    entries::{ManagerId, Managers, Owned},
    path::PathElement,
    schema::Schema,
    set::Set,
    typed::{self, Comparison, Structs},
    value,
};

/// A field that a configuration wants to change and somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) manager: ManagerId,
    pub(super) path: Vec<PathElement>,
}

/// Why a configuration was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Others own what it would change. By manager, in the order of [`ManagerId::sort_key`].
    Conflicts(Vec<Conflict>),
    /// It makes no sense.
    Error(String),
}

impl Failure {
    fn error(context: &str, error: impl std::fmt::Display) -> Self {
        Self::Error(format!("{context}: {error}"))
    }
}

/// One version of a kind, and what is written through one of its subresources.
#[derive(Debug)]
pub(super) struct Updater<'a> {
    pub(super) schema: &'a Schema,
    pub(super) api_version: &'a str,
    /// What a write through this subresource leaves as it was, and therefore nobody comes to own.
    pub(super) ignored: &'a Set,
}

/// What a configuration made of an object.
pub(super) struct Applied {
    /// Nothing when the object is as it was.
    pub(super) object: Option<Map<String, Value>>,
    pub(super) managers: Managers,
}

impl Updater<'_> {
    /// Who owns what after an object was changed, and what the change itself set. Whoever owned a field that was
    /// changed or removed owns it no more.
    /// Fails when an object cannot be compared.
    pub(super) fn update(
        &self,
        old: &Map<String, Value>,
        new: &Map<String, Value>,
        managers: Managers,
    ) -> Result<(Set, Managers), String> {
        let mut managers = self.reconcile(managers)?;
        let Comparison { modified, added, .. } =
            match self.transfer((old, new, Structs::Present), &mut managers, None, true) {
                Ok(comparison) => comparison,
                Err(Failure::Error(error)) => return Err(error),
                Err(Failure::Conflicts(_)) => unreachable!("there are no conflicts when they are overridden"),
            };
        Ok((modified.union(&added).recursive_difference(self.ignored), managers))
    }

    /// Merges a configuration into an object and takes away what the same manager applied before and no longer does,
    /// unless somebody else owns it.
    /// Fails with [`Failure::Conflicts`] unless `force` is set.
    pub(super) fn apply(
        &self,
        live: &Map<String, Value>,
        configuration: &Map<String, Value>,
        managers: Managers,
        manager: &ManagerId,
        force: bool,
    ) -> Result<Applied, Failure> {
        let time = managers.get(manager).and_then(|owned| owned.time);
        let mut managers = self.reconcile(managers).map_err(Failure::Error)?;
        let merged = typed::merge(self.schema, live, configuration)
            .map_err(|error| Failure::error("failed to merge config", error))?;
        let set = typed::field_set(self.schema, configuration)
            .map_err(|error| Failure::error("failed to get field set", error))?
            .recursive_difference(self.ignored);
        let owned = Owned { set, api_version: self.api_version.to_owned(), time };
        let last = managers.insert(manager.clone(), owned);
        let object = self.prune(merged, &managers, last.as_ref())?;
        self.transfer((live, &object, Structs::Written), &mut managers, Some(manager), force)?;
        let object = (!value::equal_maps(live, &object)).then_some(object);
        Ok(Applied { object, managers })
    }

    /// Takes what changed from whoever owned it, but for `except`.
    fn transfer(
        &self,
        (old, new, structs): (&Map<String, Value>, &Map<String, Value>, Structs),
        managers: &mut Managers,
        except: Option<&ManagerId>,
        force: bool,
    ) -> Result<Comparison, Failure> {
        let comparison = typed::compare(self.schema, old, new, structs)
            .map_err(|error| Failure::error("failed to compare objects", error))?
            .excluding(self.ignored);
        let changed = comparison.modified.union(&comparison.added);
        let others = || managers.iter().filter(|(id, _)| Some(*id) != except);
        if !force {
            let mut conflicts: Vec<_> = others()
                .map(|(id, owned)| (id, owned.set.intersection(&changed).paths()))
                .filter(|(_, paths)| !paths.is_empty())
                .collect();
            if !conflicts.is_empty() {
                conflicts.sort_by_cached_key(|(id, _)| id.sort_key());
                let conflicts = conflicts
                    .into_iter()
                    .flat_map(|(id, paths)| paths.into_iter().map(|path| Conflict { manager: id.clone(), path }));
                return Err(Failure::Conflicts(conflicts.collect()));
            }
        }
        if !changed.is_empty() || !comparison.removed.is_empty() {
            let gone = changed.union(&comparison.removed);
            for (_, owned) in managers.iter_mut().filter(|(id, _)| Some(*id) != except) {
                owned.set = owned.set.difference(&gone);
            }
        }
        managers.retain(|_, owned| !owned.set.is_empty());
        Ok(comparison)
    }

    /// Takes out of a merged object what its manager applied last and does not apply any more.
    fn prune(
        &self,
        merged: Map<String, Value>,
        managers: &Managers,
        last: Option<&Owned>,
    ) -> Result<Map<String, Value>, Failure> {
        let Some(last) = last.map(|owned| &owned.set).filter(|last| !last.is_empty()) else { return Ok(merged) };
        let members = |set: &Set| typed::named_fields_as_members(self.schema, set);
        let set_of = |object: &Map<String, Value>, of: &str| {
            let set = typed::field_set(self.schema, object);
            set.map(|set| members(&set)).map_err(|error| {
                Failure::error(&format!("failed to prune fields: failed to create field set from {of} object"), error)
            })
        };
        let last = members(last);
        let pruned = typed::remove(self.schema, &merged, &last);
        let in_merged = set_of(&merged, "merged")?;
        // What anybody owns comes back.
        let owned = managers.values().fold(Set::default(), |all, owned| all.union(&owned.set));
        let kept = set_of(&pruned, "pruned")?.union(&members(&owned));
        let pruned = typed::remove(self.schema, &merged, &in_merged.difference(&kept));
        // So does what was lost with what was around it, but never was this manager's.
        let lost = in_merged.difference(&set_of(&pruned, "pruned")?);
        Ok(typed::remove(self.schema, &merged, &lost.intersection(&last)))
    }

    /// Leaves out what is owned at other versions, and cuts short what leads into values that are atomic by now.
    fn reconcile(&self, managers: Managers) -> Result<Managers, String> {
        let mut reconciled = Managers::new();
        for (id, mut owned) in managers {
            if owned.api_version != self.api_version {
                if owned.api_version.matches('/').count() > 1 {
                    return Err(format!("unexpected GroupVersion string: {}", owned.api_version));
                }
                continue;
            }
            if let Some(set) = typed::reconcile(self.schema, &owned.set) {
                owned.set = set;
            }
            reconciled.insert(id, owned);
        }
        Ok(reconciled)
    }
}
