//! Wanted content of a file, with the latest values of its ignored fields.

use std::borrow::Cow;

use serde_json::{Map, Value};
use stoa_engine::{Owner, Resource, ignore::Ignored};
use stoa_runtime::RuntimeError;

use crate::manifest::{self, Manifest};

/// The wanted content of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Content {
    /// The bytes for a new file.
    anew: Vec<u8>,
    left: Option<Box<Left>>,
}

/// A wanted object and its ignored fields.
#[derive(Clone, Debug, PartialEq)]
struct Left {
    desired: Resource,
    ignored: Ignored,
}

impl Content {
    /// The content for a wanted object with its owner annotation.
    pub(crate) fn of(desired: &Resource, object: &Map<String, Value>, ignored: Ignored) -> Result<Self, RuntimeError> {
        let anew = manifest::render(object)?;
        let left = (!ignored.is_empty()).then(|| Box::new(Left { desired: desired.clone(), ignored }));
        Ok(Self { anew, left })
    }

    /// The bytes in place of the object `found`, at the time of the write: others may have changed ignored fields until
    /// then.
    pub(crate) fn beside(
        &self,
        found: impl FnOnce() -> Option<Map<String, Value>>,
        owner: &Owner,
    ) -> Result<Cow<'_, [u8]>, RuntimeError> {
        let Some(left) = &self.left else { return Ok(Cow::Borrowed(&self.anew)) };
        let Some(found) = found() else { return Ok(Cow::Borrowed(&self.anew)) };
        let attributes = left.ignored.as_live(left.desired.attributes.clone(), &found);
        let manifest = Manifest::of(&Resource { attributes, ..left.desired.clone() }, owner)?;
        manifest::render(&manifest.object).map(Cow::Owned)
    }
}
