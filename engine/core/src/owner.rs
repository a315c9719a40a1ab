//! Whose an object is: everything that is applied bears the mark of the deployment that applied it.
//!
//! A deployment is one stack in one workspace, since that is what has a state of its own. Its mark is the annotation
//! [`MARK`]. Runtimes write it with the object, so that it comes with whatever is read anyway, and look at it again
//! right before they change or delete something.
//!
//! **Invariant:** what bears the mark of another deployment is neither changed nor deleted, unless the resource says by
//! [`TAKE_OVER_FROM`] from whom it is to be taken. What an earlier deployment of the same name left behind is taken over,
//! which the plan shows; it is not deleted before that.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

use crate::object::{ObjectRef, uid_of};
use crate::spec::Resource;
use crate::state::StateResource;

/// The annotation that says whose an object is: `<organization>/<stack>/<workspace>/<uid of the stack>`.
pub const MARK: &str = "stoa.dev/owner";

/// The extension, or annotation, of a resource that names the deployment from which it is to be taken over:
/// `<organization>/<stack>/<workspace>`, or a whole mark.
///
/// It names whom, so that it means nothing any more once it was done.
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
    /// The stack's uid. A stack that was deleted and created anew has another, and another state: what the first
    /// left behind is not in it, and nothing is known of it but the name.
    pub stack_uid: String,
}

/// How a deployment stands to a live object that it is to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The object is its own, or nobody's.
    Free,
    /// Another deployment has it, whose readable name this is, and it is to be taken over from that one: the resource
    /// says so, or it is one of our name that is no more.
    TakesOver(String),
    /// Another deployment has it: a sentence for people.
    Refused(String),
}

/// Why an object that was to be removed is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftAlone {
    /// It bears the mark of another deployment, whose readable name this is.
    Owned(String),
    /// Somebody made it in place of the one that is recorded, which is gone.
    Recreated,
}

impl fmt::Display for LeftAlone {
    /// A sentence for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owned(owner) => write!(f, "it belongs to {owner} now, and is left alone"),
            Self::Recreated => {
                f.write_str("what was applied is gone; another that somebody made has its name, and is left alone")
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

    /// The object with our mark, whatever it says of one.
    #[must_use]
    pub fn marked(&self, object: &Map<String, Value>) -> Map<String, Value> {
        let mut object = object.clone();
        let metadata = object.entry("metadata").or_insert_with(|| Map::new().into());
        if let Some(metadata) = metadata.as_object_mut() {
            let annotations = metadata.entry("annotations").or_insert(Value::Null);
            if annotations.is_null() {
                *annotations = Map::new().into();
            }
            // What is no map is refused by whoever takes objects.
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.insert(MARK.to_owned(), self.mark().into());
            }
        }
        object
    }

    /// Whether the object bears our mark.
    pub fn has(&self, live: &Map<String, Value>) -> bool {
        mark_of(live).is_some_and(|mark| mark == self.mark())
    }

    /// The other deployment whose mark the object bears, as people name it. `None` when the mark is ours, or there is
    /// none.
    ///
    /// A mark that nobody here could have written is another's, too.
    pub fn other(&self, live: &Map<String, Value>) -> Option<String> {
        mark_of(live).filter(|mark| *mark != self.mark()).map(|mark| self.readable(&mark))
    }

    /// Whether a live object is another than the recorded one, and does not say that we made it: somebody removed that one and
    /// made this one, which is as little ours as anything that is not recorded.
    pub fn is_recreated(&self, prior: &StateResource, live: &Map<String, Value>) -> bool {
        matches!((prior.uid(), uid_of(live)), (Some(recorded), Some(uid)) if recorded != uid) && !self.has(live)
    }

    /// How we stand to a live object that is to be applied; `from` is what its resource says of taking over
    /// ([`taken_from`]).
    pub fn standing(&self, from: Option<&str>, live: &Map<String, Value>) -> Standing {
        let Some(mark) = mark_of(live).filter(|mark| *mark != self.mark()) else { return Standing::Free };
        let name = self.readable(&mark);
        let is_before_us = name_in(&mark).is_some_and(|name| name == self.to_string());
        if is_before_us || from.is_some_and(|from| from == mark || Some(from) == name_in(&mark)) {
            return Standing::TakesOver(name);
        }
        let object = ObjectRef::of(live).map_or_else(
            || "the object".to_owned(),
            |ObjectRef { kind, namespace, name, .. }| {
                let namespace = if namespace.is_empty() { namespace } else { format!(" in namespace {namespace}") };
                format!("{kind} {name}{namespace}")
            },
        );
        Standing::Refused(format!(
            "{object} belongs to {name}, and this is {self}; to take it over, set {TAKE_OVER_FROM}: {name} in the \
             resource's extensions or annotations"
        ))
    }

    /// The other deployment by its name, and with the uid where it has the same name as ours.
    fn readable(&self, mark: &str) -> String {
        name_in(mark).filter(|name| *name != self.to_string()).unwrap_or(mark).to_owned()
    }
}

/// The deployment from which the resource says that it is to be taken over.
pub fn taken_from(resource: &Resource) -> Option<&str> {
    resource.setting(TAKE_OVER_FROM)?.as_str().filter(|from| !from.is_empty())
}

/// Whether the object bears the mark of any deployment.
pub fn is_marked(live: &Map<String, Value>) -> bool {
    mark_of(live).is_some()
}

/// The annotation as it stands, which may be empty and then marks nothing.
pub(crate) fn written_mark(object: &Map<String, Value>) -> Option<&Value> {
    object.get("metadata")?.get("annotations")?.get(MARK)
}

/// The mark of an object. One that is no text is told as JSON.
fn mark_of(object: &Map<String, Value>) -> Option<String> {
    match written_mark(object)? {
        Value::Null => None,
        Value::String(mark) => Some(mark.clone()).filter(|mark| !mark.is_empty()),
        other => Some(other.to_string()),
    }
}

/// The part of a mark that people read.
fn name_in(mark: &str) -> Option<&str> {
    mark.rsplit_once('/').map(|(name, _)| name).filter(|name| name.split('/').count() == 3)
}

/// The object without a mark, which is nothing that anybody wants or changes.
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

/// Takes the mark out of an object's metadata, and with it annotations that had nothing else.
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
    fn a_mark_is_readable_and_replaces_whatever_stands_there() {
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
    fn what_is_ours_or_nobodys_is_free() {
        let web = owner("web", "u-1");
        let bare = object(json!({"name": "a"}));
        for live in [&bare, &web.marked(&bare), &object(json!({"name": "a", "annotations": {MARK: ""}}))] {
            assert_eq!((web.standing(None, live), web.other(live)), (Standing::Free, None));
        }
        assert!(!web.has(&bare));
    }

    #[test]
    fn what_is_anothers_is_refused_by_name() {
        let web = owner("web", "u-1");
        let bare = object(json!({"name": "a", "namespace": "n"}));
        for (mark, named) in [("shop/api/dev/u-2", "shop/api/dev"), ("by hand", "by hand"), ("a/b", "a/b")] {
            let mut live = bare.clone();
            live["metadata"]["annotations"] = json!({ MARK: mark });
            assert_eq!(web.other(&live).as_deref(), Some(named));
            let Standing::Refused(message) = web.standing(None, &live) else { panic!("{mark} is taken") };
            let told = format!(
                "ConfigMap a in namespace n belongs to {named}, and this is shop/web/dev; to take it over, set \
                                stoa.dev/take-over-from: {named} in the resource's extensions or annotations"
            );
            assert_eq!(message, told);
            assert_eq!(web.standing(Some(named), &live), Standing::TakesOver(named.to_owned()), "as it was told");
            assert_eq!(web.standing(Some(mark), &live), Standing::TakesOver(named.to_owned()));
            assert!(matches!(web.standing(Some("shop/other/dev"), &live), Standing::Refused(_)));
        }
        let number = object(json!({"name": "a", "annotations": {MARK: 7}}));
        assert!(matches!(web.standing(None, &number), Standing::Refused(_)));
    }

    #[test]
    fn what_one_of_our_name_left_behind_is_taken_over_and_not_deleted() {
        let web = owner("web", "u-1");
        let live = owner("web", "u-0").marked(&object(json!({"name": "a"})));
        assert_eq!(web.standing(None, &live), Standing::TakesOver("shop/web/dev/u-0".to_owned()));
        assert_eq!(web.other(&live).as_deref(), Some("shop/web/dev/u-0"));
    }

    #[test]
    fn a_resource_says_from_whom_it_is_taken_in_its_extensions_or_annotations() {
        let resource = |extensions: Value, annotations: Value| -> Resource {
            serde_json::from_value(json!({"id": "v1:ConfigMap:a", "type": "Kubernetes", "extensions": extensions,
                "attributes": {"metadata": {"name": "a", "annotations": annotations}}}))
            .unwrap()
        };
        let (from, none) = (json!({TAKE_OVER_FROM: "shop/api/dev"}), json!({}));
        assert_eq!(taken_from(&resource(from.clone(), none.clone())), Some("shop/api/dev"));
        assert_eq!(taken_from(&resource(none.clone(), from)), Some("shop/api/dev"));
        assert_eq!(taken_from(&resource(none.clone(), none.clone())), None);
        assert_eq!(taken_from(&resource(json!({TAKE_OVER_FROM: ""}), none)), None);
    }
}
