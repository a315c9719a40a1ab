//! Admission: what is asked about a write besides the kind's own rules, by plugins in one order.
//!
//! Start at [`AdmissionPlugin`]. A [`Chain`] has the plugins of one server; the registry asks it twice for each write,
//! once for changes before the object is validated and once for objections after. Both happen outside any lock and
//! before the compare-and-swap, so a write that lost a race is admitted again. Follows `k8s.io/apiserver/pkg/admission`.
//!
//! Submodules: `webhook` asks servers that a cluster configures, `policy` evaluates rules in CEL (`cel`), and `cluster`
//! keeps what both are configured with.

use std::{any::Any, collections::HashMap, fmt::Debug, sync::Arc};

use async_trait::async_trait;
pub use lifecycle::NamespaceLifecycle;
pub use plugins::{PLUGINS, UnknownPlugin, of_cluster};
use serde_json::Value;

use crate::{
    definition::ResourceDefinition, object::Object, request::RequestContext, schema::Decoder, status::ApiError,
};

mod cel;
pub mod cluster;
mod lifecycle;
mod plugins;
pub mod policy;
mod rules;
mod selector;
pub mod webhook;

/// What a write does, in the words of `admission.k8s.io/v1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change of an object; also by patch and apply.
    Update,
    /// A removal.
    Delete,
}

impl Operation {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// A write on its way through admission; the object itself travels beside it, since it may change.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    /// Who asks, and how.
    pub context: &'a RequestContext,
    /// What is written.
    pub definition: &'a ResourceDefinition,
    /// What the write does.
    pub operation: Operation,
    /// The namespace; empty for resources of the cluster.
    pub namespace: &'a str,
    /// The name; empty while it is still to be generated.
    pub name: &'a str,
    /// `status`, or empty.
    pub subresource: &'a str,
    /// The object as it is, for updates and deletes.
    pub old_object: Option<&'a Object>,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions` of `meta.k8s.io/v1`.
    pub options: &'a Value,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// Reads the object anew after it was changed.
    pub decoder: &'a Decoder,
}

impl Debug for Attributes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attributes")
            .field("operation", &self.operation)
            .field("resource", &self.definition.plural)
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .field("subresource", &self.subresource)
            .finish_non_exhaustive()
    }
}

impl Attributes<'_> {
    /// 403 that names the object, as `admission.NewForbidden` upstream.
    pub fn forbidden(&self, object: Option<&Object>, detail: impl std::fmt::Display) -> ApiError {
        let given = object.map(|object| [object.name(), object.meta_str("generateName")]).unwrap_or_default();
        let name = [self.name, given[0], given[1]].into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
        ApiError::forbidden(&self.definition.group, &self.definition.plural, name, detail)
    }
}

/// What plugins remember of a write between two rounds of changes.
///
/// A second round comes when a webhook changed the object, so that those before it see what it did; there is no third.
#[derive(Debug, Default)]
pub struct Reinvocation {
    second: bool,
    changed: bool,
    memory: HashMap<&'static str, Box<dyn Any + Send + Sync>>,
}

impl Reinvocation {
    /// Whether this is the second round.
    pub fn is_second(&self) -> bool {
        self.second
    }

    /// Says that the plugin changed the object, which is what a second round is for.
    pub fn changed(&mut self) {
        self.changed = true;
    }

    /// What the plugin of that name keeps about this write.
    pub fn memory<T: Any + Default + Send + Sync>(&mut self, plugin: &'static str) -> &mut T {
        let slot = self.memory.entry(plugin).or_insert_with(|| Box::new(T::default()));
        if !slot.is::<T>() {
            *slot = Box::new(T::default());
        }
        slot.downcast_mut().expect("made of this type above")
    }
}

/// Something that has a say in writes.
#[async_trait]
pub trait AdmissionPlugin: Debug + Send + Sync + 'static {
    /// Its name, such as `NamespaceLifecycle`.
    fn name(&self) -> &'static str;

    /// Whether [`admit`](Self::admit) may do something about such writes. Cheap, for it is asked about each.
    fn admits(&self, _attributes: &Attributes<'_>) -> bool {
        false
    }

    /// Whether [`validate`](Self::validate) may do something about such writes. Cheap: the object is copied if so.
    fn validates(&self, _attributes: &Attributes<'_>) -> bool {
        false
    }

    /// Changes the object, or refuses the write. Comes before validation; there is no object when one is deleted.
    ///
    /// # Errors
    ///
    /// The [`ApiError`] that the client gets.
    async fn admit(
        &self,
        _attributes: &Attributes<'_>,
        _object: Option<&mut Object>,
        _reinvocation: &mut Reinvocation,
    ) -> Result<(), ApiError> {
        Ok(())
    }

    /// Refuses the write, or lets it pass. The object is as it will be stored.
    ///
    /// # Errors
    ///
    /// The [`ApiError`] that the client gets.
    async fn validate(&self, _attributes: &Attributes<'_>, _object: Option<&Object>) -> Result<(), ApiError> {
        Ok(())
    }
}

/// The plugins of a server, in the order in which they are asked.
#[derive(Clone, Debug, Default)]
pub struct Chain(Vec<Arc<dyn AdmissionPlugin>>);

impl Chain {
    /// These plugins, in this order.
    pub fn new(plugins: Vec<Arc<dyn AdmissionPlugin>>) -> Self {
        Self(plugins)
    }

    /// The names of the plugins, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|plugin| plugin.name())
    }

    /// Puts a plugin before all others.
    pub(crate) fn prepend(&mut self, plugin: Arc<dyn AdmissionPlugin>) {
        self.0.insert(0, plugin);
    }

    /// Whether any plugin may object to such writes.
    pub fn validates(&self, attributes: &Attributes<'_>) -> bool {
        self.0.iter().any(|plugin| plugin.validates(attributes))
    }

    /// Lets every plugin change the object, and once more when one does. Says whether it was changed.
    ///
    /// # Errors
    ///
    /// The first refusal.
    pub async fn admit(&self, attributes: &Attributes<'_>, mut object: Option<&mut Object>) -> Result<bool, ApiError> {
        let mut reinvocation = Reinvocation::default();
        loop {
            for plugin in self.0.iter().filter(|plugin| plugin.admits(attributes)) {
                plugin.admit(attributes, object.as_deref_mut(), &mut reinvocation).await?;
            }
            if reinvocation.second || !reinvocation.changed {
                return Ok(reinvocation.changed);
            }
            reinvocation.second = true;
        }
    }

    /// Asks every plugin for its objections.
    ///
    /// # Errors
    ///
    /// The first refusal.
    pub async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Object>) -> Result<(), ApiError> {
        for plugin in self.0.iter().filter(|plugin| plugin.validates(attributes)) {
            plugin.validate(attributes, object).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
