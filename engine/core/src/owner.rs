//! Ownership of objects: each applied object has an annotation that names its deployment.
//!
//! A deployment is one stack in one workspace, since each has a state of its own. The annotation is [`MARK`]. Runtimes
//! write it with the object, read it with the object, and check it again before they change or delete something.
//!
//! **Invariant:** Stoa never changes or deletes an object that another deployment owns, unless the resource names that
//! owner in [`TAKE_OVER_FROM`]. An object of an earlier deployment of the same name is taken over, which the plan
//! shows; it is not deleted before that.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

use crate::object::{ObjectRef, uid_of};
use crate::spec::Resource;
use crate::state::StateResource;

/// The owner annotation: `<organization>/<stack>/<workspace>/<uid of the stack>`.
pub const MARK: &str = "stoa.dev/owner";

/// The extension or annotation of a resource that names the owner to take it over from:
/// `<organization>/<stack>/<workspace>`, or a whole owner annotation.
///
/// It has no effect after the takeover, since the owner is another one then.
pub const TAKE_OVER_FROM: &str = "stoa.dev/take-over-from";

/// A deployment: one stack in one workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The organization's name.
    pub organization: String,
    /// The stack's name.
    pub stack: String,
    /// The workspace's name.
    pub workspace: String,
    /// The stack's uid. A stack that was deleted and created again has another uid and another state. Only its name is
    /// common with the first one.
    pub stack_uid: String,
}

/// How a deployment owns a live object that it is to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The object is its own, or has no owner.
    Free,
    /// Another deployment with this name owns it, and it is taken over: the resource says so, or the other one is a former
    /// deployment of the same name.
    TakesOver(String),
    /// Another deployment owns it, with a message for people.
    Refused(String),
}

/// Why an object that was to be removed is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftAlone {
    /// Another deployment with this name owns it.
    Owned(String),
    /// Others created it in place of the recorded one.
    Recreated,
}

impl fmt::Display for LeftAlone {
    /// A message for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owned(owner) => write!(f, "{owner} owns it now, so it is not deleted"),
            Self::Recreated => {
                f.write_str("the applied object no longer exists; another object has its name and is not deleted")
            }
        }
    }
}

impl fmt::Display for Owner {
    /// `<organization>/<stack>/<workspace>`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.organization, self.stack, self.workspace)
    }
}

impl Owner {
    /// The value of [`MARK`].
    pub fn mark(&self) -> String {
        format!("{self}/{}", self.stack_uid)
    }

    /// The object with our owner annotation in place of any other.
    #[must_use]
    pub fn marked(&self, object: &Map<String, Value>) -> Map<String, Value> {
        let mut object = object.clone();
        let metadata = object.entry("metadata").or_insert_with(|| Map::new().into());
        if let Some(metadata) = metadata.as_object_mut() {
            let annotations = metadata.entry("annotations").or_insert(Value::Null);
            if annotations.is_null() {
                *annotations = Map::new().into();
            }
            // A server rejects annotations that are not a map.
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.insert(MARK.to_owned(), self.mark().into());
            }
        }
        object
    }

    /// Whether the object has our owner annotation.
    pub fn has(&self, live: &Map<String, Value>) -> bool {
        mark_of(live).is_some_and(|mark| mark == self.mark())
    }

    /// The readable name of another owner. `None` when we own the object, or it has no owner.
    ///
    /// A malformed owner annotation counts as another owner.
    pub fn other(&self, live: &Map<String, Value>) -> Option<String> {
        mark_of(live).filter(|mark| *mark != self.mark()).map(|mark| self.readable(&mark))
    }

    /// Whether a live object differs from the recorded one and lacks our owner annotation: others deleted the recorded
    /// object and created this one.
    pub fn is_recreated(&self, prior: &StateResource, live: &Map<String, Value>) -> bool {
        matches!((prior.uid(), uid_of(live)), (Some(recorded), Some(uid)) if recorded != uid) && !self.has(live)
    }

    /// The ownership of a live object that is to be applied; `from` is the owner that its resource names ([`take_over_from`]).
    pub fn ownership(&self, from: Option<&str>, live: &Map<String, Value>) -> Ownership {
        let Some(mark) = mark_of(live).filter(|mark| *mark != self.mark()) else { return Ownership::Free };
        let name = self.readable(&mark);
        let is_before_us = name_in(&mark).is_some_and(|name| name == self.to_string());
        if is_before_us || from.is_some_and(|from| from == mark || Some(from) == name_in(&mark)) {
            return Ownership::TakesOver(name);
        }
        let object = ObjectRef::of(live).map_or_else(
            || "the object".to_owned(),
            |ObjectRef { kind, namespace, name, .. }| {
                let namespace = if namespace.is_empty() { namespace } else { format!(" in namespace {namespace}") };
                format!("{kind} {name}{namespace}")
            },
        );
        Ownership::Refused(format!(
            "{object} is owned by {name}, not by {self}; to take it over, set {TAKE_OVER_FROM}: {name} in the \
             resource's extensions or annotations"
        ))
    }

    /// The other deployment by its name, and with the uid where it has the same name as ours.
    fn readable(&self, mark: &str) -> String {
        name_in(mark).filter(|name| *name != self.to_string()).unwrap_or(mark).to_owned()
    }
}

/// The owner that a resource names to be taken over from.
pub fn take_over_from(resource: &Resource) -> Option<&str> {
    resource.setting(TAKE_OVER_FROM)?.as_str().filter(|from| !from.is_empty())
}

/// Whether the object has an owner annotation.
pub fn is_marked(live: &Map<String, Value>) -> bool {
    mark_of(live).is_some()
}

/// The annotation as it stands, which may be empty and then marks nothing.
pub(crate) fn written_mark(object: &Map<String, Value>) -> Option<&Value> {
    object.get("metadata")?.get("annotations")?.get(MARK)
}

/// The owner annotation; one that is not text, as JSON.
fn mark_of(object: &Map<String, Value>) -> Option<String> {
    match written_mark(object)? {
        Value::Null => None,
        Value::String(mark) => Some(mark.clone()).filter(|mark| !mark.is_empty()),
        other => Some(other.to_string()),
    }
}

/// The readable part of an owner annotation.
fn name_in(mark: &str) -> Option<&str> {
    mark.rsplit_once('/').map(|(name, _)| name).filter(|name| name.split('/').count() == 3)
}

/// The object without its owner annotation, which is never compared.
pub(crate) fn without_mark(object: Cow<'_, Map<String, Value>>) -> Cow<'_, Map<String, Value>> {
    if written_mark(&object).is_none() {
        return object;
    }
    let mut object = object.into_owned();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        remove_mark(metadata);
    }
    Cow::Owned(object)
}

/// Removes the owner annotation from metadata, and the annotations if they are empty then.
pub(crate) fn remove_mark(metadata: &mut Map<String, Value>) {
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
        && annotations.remove(MARK).is_some()
        && annotations.is_empty()
    {
        metadata.remove("annotations");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owner(stack: &str, uid: &str) -> Owner {
        Owner {
            organization: "shop".to_owned(),
            stack: stack.to_owned(),
            workspace: "dev".to_owned(),
            stack_uid: uid.to_owned(),
        }
    }

    fn object(metadata: Value) -> Map<String, Value> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        object.as_object().cloned().unwrap()
    }

    #[test]
    fn owner_annotation_replaces_any_other() {
        let web = owner("web", "u-1");
        for annotations in [json!(null), json!({}), json!({MARK: "made/up/by/hand"})] {
            let marked = web.marked(&object(json!({"name": "a", "annotations": annotations})));
            assert_eq!(marked["metadata"]["annotations"], json!({MARK: "shop/web/dev/u-1"}));
            assert!(web.has(&marked));
        }
        let marked = web.marked(&object(json!({"name": "a", "annotations": {"a": "b"}})));
        assert_eq!(marked["metadata"]["annotations"], json!({"a": "b", MARK: "shop/web/dev/u-1"}));
        let unmarked = object(json!({"name": "a", "annotations": {"a": "b"}}));
        assert_eq!(*without_mark(Cow::Owned(marked)), unmarked);
        assert!(matches!(without_mark(Cow::Borrowed(&unmarked)), Cow::Borrowed(_)));
        let broken = object(json!({"name": "a", "annotations": "none"}));
        assert_eq!(web.marked(&broken), broken, "its server says what is wrong with it");
    }

    #[test]
    fn own_and_unowned_objects_are_free() {
        let web = owner("web", "u-1");
        let bare = object(json!({"name": "a"}));
        for live in [&bare, &web.marked(&bare), &object(json!({"name": "a", "annotations": {MARK: ""}}))] {
            assert_eq!((web.ownership(None, live), web.other(live)), (Ownership::Free, None));
        }
        assert!(!web.has(&bare));
    }

    #[test]
    fn object_of_another_owner_is_rejected() {
        let web = owner("web", "u-1");
        let bare = object(json!({"name": "a", "namespace": "n"}));
        for (mark, named) in [("shop/api/dev/u-2", "shop/api/dev"), ("by hand", "by hand"), ("a/b", "a/b")] {
            let mut live = bare.clone();
            live["metadata"]["annotations"] = json!({ MARK: mark });
            assert_eq!(web.other(&live).as_deref(), Some(named));
            let Ownership::Refused(message) = web.ownership(None, &live) else { panic!("{mark} is taken") };
            let told = format!(
                "ConfigMap a in namespace n is owned by {named}, not by shop/web/dev; to take it over, set \
                 stoa.dev/take-over-from: {named} in the resource's extensions or annotations"
            );
            assert_eq!(message, told);
            assert_eq!(web.ownership(Some(named), &live), Ownership::TakesOver(named.to_owned()), "as it was told");
            assert_eq!(web.ownership(Some(mark), &live), Ownership::TakesOver(named.to_owned()));
            assert!(matches!(web.ownership(Some("shop/other/dev"), &live), Ownership::Refused(_)));
        }
        let number = object(json!({"name": "a", "annotations": {MARK: 7}}));
        assert!(matches!(web.ownership(None, &number), Ownership::Refused(_)));
    }

    #[test]
    fn object_of_former_stack_is_taken_over() {
        let web = owner("web", "u-1");
        let live = owner("web", "u-0").marked(&object(json!({"name": "a"})));
        assert_eq!(web.ownership(None, &live), Ownership::TakesOver("shop/web/dev/u-0".to_owned()));
        assert_eq!(web.other(&live).as_deref(), Some("shop/web/dev/u-0"));
    }

    #[test]
    fn resource_names_owner_to_take_over_from() {
        let resource = |extensions: Value, annotations: Value| -> Resource {
            serde_json::from_value(json!({"id": "v1:ConfigMap:a", "type": "Kubernetes", "extensions": extensions,
                "attributes": {"metadata": {"name": "a", "annotations": annotations}}}))
            .unwrap()
        };
        let (from, none) = (json!({TAKE_OVER_FROM: "shop/api/dev"}), json!({}));
        assert_eq!(take_over_from(&resource(from.clone(), none.clone())), Some("shop/api/dev"));
        assert_eq!(take_over_from(&resource(none.clone(), from)), Some("shop/api/dev"));
        assert_eq!(take_over_from(&resource(none.clone(), none.clone())), None);
        assert_eq!(take_over_from(&resource(json!({TAKE_OVER_FROM: ""}), none)), None);
    }
}
