//! Reinvocation: the second round for plugins whose object was changed after their turn.

use std::{
    any::Any,
    collections::{HashMap, HashSet},
};

use stoa_meta::object::Object;

/// What plugins remember of a write between two rounds of changes.
///
/// A second round comes when a plugin changed the object, so that those before it see what it did; there is no third.
#[derive(Debug, Default)]
pub struct Reinvocation {
    /// Whether this is the second round.
    pub second: bool,
    /// Whether a plugin changed the object.
    pub changed: bool,
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

/// Who of a plugin's webhooks or policies is asked again; each has a key that stays the same.
///
/// Follows `webhookReinvokeContext` and `policyReinvokeContext` upstream.
#[derive(Debug, Default)]
pub struct Memory {
    /// Those asked so far that may be asked again, and those that are to be.
    asked: HashSet<String>,
    again: HashSet<String>,
    /// The object as the plugin left it.
    output: Option<Object>,
}

impl Memory {
    /// A round begins with this object.
    pub fn begin(&mut self, second: bool, object: Option<&Object>) {
        if second && self.output.as_ref() != object {
            // Another plugin changed the object after the last of these saw it.
            self.all_again();
        }
    }

    /// Whoever was asked before is asked again.
    pub fn all_again(&mut self) {
        self.again.extend(self.asked.drain());
    }

    /// This one was asked, and may be asked again.
    pub fn asked(&mut self, key: &str) {
        self.asked.insert(key.to_owned());
    }

    /// Whether this one is asked in the second round.
    pub fn is_again(&self, key: &str) -> bool {
        self.again.contains(key)
    }

    /// A round ends with this object.
    pub fn end(&mut self, object: Option<&Object>) {
        self.output = object.cloned();
    }
}
