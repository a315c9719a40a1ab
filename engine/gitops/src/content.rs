//! What a file is to hold, with those fields as they are there that are left to others.

use std::borrow::Cow;

use serde_json::{Map, Value};
use stoa_engine::{Owner, Resource, ignore::Ignored};
use stoa_runtime::RuntimeError;

use crate::manifest::{self, Manifest};

/// What a file is to hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Content {
    /// The bytes, where nothing is there yet.
    anew: Vec<u8>,
    left: Option<Box<Left>>,
}

/// What is wanted of an object, and which of its fields are left to others.
#[derive(Clone, Debug, PartialEq)]
struct Left {
    desired: Resource,
    ignored: Ignored,
}

impl Content {
    /// The file of an object, which is what is desired with the mark of its owner.
    pub(crate) fn of(desired: &Resource, object: &Map<String, Value>, ignored: Ignored) -> Result<Self, RuntimeError> {
        let anew = manifest::render(object)?;
        let left = (!ignored.is_empty()).then(|| Box::new(Left { desired: desired.clone(), ignored }));
        Ok(Self { anew, left })
    }

    /// The bytes where the object is `found`, for whoever writes it: others may have changed what is left to them until then.
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
