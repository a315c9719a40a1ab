//! The states of providers in records: encrypted in all that is stored, and in clear for a function-runner.

use std::borrow::Cow;

use stoa_engine::{ProviderState, ResourceId, StateResource, record::Record};
use stoa_machinery::Log;
use stoa_types::reason;

use super::{Bodies, State};
use crate::StepError;

impl State {
    /// Encrypts the provider state of an entry. Every entry passes here before it is recorded, and a release has recorded
    /// entries only, so nothing stored has one in clear.
    pub(super) fn seal(&self, entry: &mut Record) -> Result<(), StepError> {
        let Some(StateResource { id, provider_state, .. }) = &mut entry.resource else { return Ok(()) };
        if let Some(state @ ProviderState::Open(_)) = provider_state {
            let Bodies { scope, encryption, .. } = self.keys(id)?;
            *state = encryption.seal_state(scope, id, state);
        }
        Ok(())
    }

    /// A recorded resource with its provider state in clear.
    ///
    /// # Errors
    ///
    /// Failed when it does not decrypt.
    pub(super) fn opened<'s>(&self, resource: &'s StateResource) -> Result<Cow<'s, StateResource>, StepError> {
        let StateResource { id, provider_state: Some(state), .. } = resource else {
            return Ok(Cow::Borrowed(resource));
        };
        let Bodies { scope, encryption, .. } = self.keys(id)?;
        let opened = encryption.open_state(scope, id, state).map_err(|error| {
            let (at, advice) = (self.entry_key(id), error.advice());
            let message = format!(
                "the provider state of {id} cannot be read: {error}. Nothing was changed; {advice}. The record is at {at}"
            );
            StepError::failed(reason::UNREADABLE_STATE, message)
        })?;
        Ok(Cow::Owned(StateResource { provider_state: Some(opened), ..resource.clone() }))
    }

    /// How many bytes have to be decrypted.
    pub(super) fn sealed_bytes(&self) -> usize {
        let states = self.entries().filter_map(|entry| entry.resource.as_ref()?.provider_state.as_ref());
        states.map(|state| if let ProviderState::Sealed(text) = state { text.len() } else { 0 }).sum()
    }

    /// All recorded resources, with their provider states in clear.
    ///
    /// # Errors
    ///
    /// Failed when one does not decrypt.
    pub fn in_clear(&self) -> Result<Vec<StateResource>, StepError> {
        let recorded = self.entries().filter_map(|entry| entry.resource.as_ref());
        recorded.map(|resource| Ok(self.opened(resource)?.into_owned())).collect()
    }

    /// The entries as people see them: without provider states.
    pub fn shown(&self) -> impl Iterator<Item = Cow<'_, Record>> {
        self.entries().map(|entry| {
            let mut shown = Cow::Borrowed(entry);
            if entry.resource.as_ref().is_some_and(|resource| resource.provider_state.is_some())
                && let Some(resource) = &mut shown.to_mut().resource
            {
                resource.provider_state = None;
            }
            shown
        })
    }

    /// Encrypts provider states again that have an earlier key, so that nothing deployed needs that key any more.
    ///
    /// # Errors
    ///
    /// Failed when one does not decrypt, and as [`record`](Self::record).
    pub(crate) async fn renew_keys(&mut self, log: &dyn Log) -> Result<(), StepError> {
        let mut entries = Vec::new();
        for record in self.entries() {
            let Some(resource) = &record.resource else { continue };
            let Some(state) = &resource.provider_state else { continue };
            if self.keys(&resource.id)?.encryption.is_of_old_key(state) {
                let resource = Some(self.opened(resource)?.into_owned());
                entries.push(Record { resource, document: None, ..self.entry(&record.id) });
            }
        }
        self.record(log, entries).await
    }

    fn keys(&self, of: &ResourceId) -> Result<&Bodies, StepError> {
        let missing = || {
            let message = format!("a defect of Stoa: the provider state of {of} is used without its keys; report it");
            StepError::failed(reason::UNREADABLE_STATE, message)
        };
        self.bodies.as_ref().ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests;
