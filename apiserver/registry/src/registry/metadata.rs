//! The rules of `metadata`: fields of the system, and validation of the others.
//!
//! The rules, paths and sentences are those of `k8s.io/apimachinery/pkg/api/validation`
//! (`objectmeta.go`) and of `k8s.io/apiserver/pkg/registry/rest`.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use rand::RngExt as _;
use serde::Deserialize as _;
use serde_json::Value;
use stoa_meta::{
    content,
    definition::Scope,
    object::Object,
    request::RequestContext,
    status::{ApiError, FieldError, FieldErrorKind, FieldErrors, is_printable},
};

/// The finalizer that keeps an object until the garbage collector has deleted its dependents.
pub const FOREGROUND_DELETION: &str = "foregroundDeletion";
/// The finalizer that keeps an object until the garbage collector has orphaned its dependents.
pub const ORPHAN_DEPENDENTS: &str = "orphan";

/// The characters that generated names end in: no vowels, nothing that looks like another.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
/// The longest beginning of a generated name, in bytes.
const GENERATE_NAME_MAX: usize = 63 - SUFFIX_LENGTH;

/// The longest name of a field manager, in bytes.
pub const FIELD_MANAGER_BYTES: usize = 128;
/// The longest name of a subresource in `managedFields`, in bytes.
const SUBRESOURCE_BYTES: usize = 256;

/// The names under which the system keeps what clients may not set.
const SYSTEM_FIELDS: &[&str] =
    &["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"];

/// What is left out of metadata when it is empty, as Go's types leave it out.
const OMITTED_EMPTY: &[&str] = &["generateName", "labels", "annotations", "ownerReferences", "finalizers"];

/// The time now, in whole seconds, as `2006-01-02T15:04:05Z`.
pub(super) fn now() -> Value {
    jiff::Timestamp::from_second(seconds_now()).unwrap_or_default().to_string().into()
}

/// The time now, in whole seconds since 1970.
pub(super) fn seconds_now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Takes out of a new object what clients may not set.
pub(super) fn clear_for_create(object: &mut Object) {
    let metadata = object.metadata_mut();
    omit_empty(metadata);
    for field in SYSTEM_FIELDS {
        metadata.remove(*field);
    }
}

/// The same for an object of which nothing is kept; what says nothing is taken out, too.
pub(super) fn clear_for_answer(object: &mut Object) {
    clear_for_create(object);
    object.metadata_mut().retain(|_, value| !is_empty(value) && value.as_i64() != Some(0));
}

/// Replaces what a client sent by what the system gives a new object.
pub(super) fn fill_for_create(object: &mut Object) {
    clear_for_create(object);
    let metadata = object.metadata_mut();
    metadata.insert("uid".to_owned(), uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".to_owned(), now());
    metadata.insert("generation".to_owned(), 1.into());
    drop_empty(metadata);
}

/// Keeps what the system gave an object when it is changed.
pub(super) fn keep_for_update(new: &mut Object, old: &Object) {
    let empty = serde_json::Map::new();
    let old = old.metadata().unwrap_or(&empty);
    let new = new.metadata_mut();
    omit_empty(new);
    for field in ["creationTimestamp", "generation"] {
        keep(new, old, field);
    }
    new.remove("selfLink");
    if is_absent(new.get("uid")) {
        keep(new, old, "uid");
    }
    // Neither can be taken back once it is there. One that is not there is refused by validation.
    if !is_absent(old.get("deletionTimestamp")) {
        keep(new, old, "deletionTimestamp");
    }
    if is_absent(new.get("deletionGracePeriodSeconds")) {
        keep(new, old, "deletionGracePeriodSeconds");
    }
    drop_empty(new);
}

fn omit_empty(metadata: &mut serde_json::Map<String, Value>) {
    metadata.retain(|field, value| !(OMITTED_EMPTY.contains(&field.as_str()) && is_empty(value)));
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn keep(new: &mut serde_json::Map<String, Value>, old: &serde_json::Map<String, Value>, field: &str) {
    match old.get(field) {
        Some(value) => new.insert(field.to_owned(), value.clone()),
        None => new.remove(field),
    };
}

fn is_absent(value: Option<&Value>) -> bool {
    value.is_none_or(|value| value.is_null() || value.as_str() == Some(""))
}

/// Gives the object the request's namespace.
/// Fails with 400 when it has another.
pub(super) fn set_namespace(object: &mut Object, scope: Scope, requested: &str) -> Result<(), ApiError> {
    let requested = match scope {
        Scope::Cluster => "",
        Scope::Namespaced => requested,
    };
    let found = object.namespace();
    if found != requested && !found.is_empty() && !requested.is_empty() {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if requested.is_empty() {
        object.metadata_mut().remove("namespace");
    } else if found != requested {
        object.metadata_mut().insert("namespace".to_owned(), requested.into());
    }
    Ok(())
}

/// A name that begins with `prefix` and ends at random.
pub(super) fn generate_name(prefix: &str) -> String {
    let mut end = prefix.len().min(GENERATE_NAME_MAX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    let mut rng = rand::rng();
    let suffix = (0..SUFFIX_LENGTH).map(|_| char::from(SUFFIX_ALPHABET[rng.random_range(0..SUFFIX_ALPHABET.len())]));
    prefix[..end].chars().chain(suffix).collect()
}

/// Reads `metadata` with its types.
/// Fails with 400 when a field has another type.
pub(super) fn typed(object: &Object, kind: &str) -> Result<ObjectMeta, ApiError> {
    let Some(metadata) = object.metadata() else { return Ok(ObjectMeta::default()) };
    ObjectMeta::deserialize(metadata)
        .map_err(|error| ApiError::bad_request(format!("{kind} cannot be handled as a {kind}: metadata: {error}")))
}

pub(super) fn validate(metadata: &ObjectMeta, scope: Scope, errors: &mut FieldErrors) {
    if let Some(prefix) = metadata.generate_name.as_deref().filter(|prefix| !prefix.is_empty()) {
        let complaints = content::dns_subdomain(&content::mask_trailing_dash(prefix));
        errors.extend(complaints.iter().map(|text| FieldError::invalid("metadata.generateName", prefix, text)));
    }
    match metadata.name.as_deref().unwrap_or("") {
        "" => errors.push(FieldError::required("metadata.name", "name or generateName is required")),
        name => {
            let complaints = content::dns_subdomain(name);
            errors.extend(complaints.iter().map(|text| FieldError::invalid("metadata.name", name, text)));
        }
    }
    if scope == Scope::Namespaced {
        match metadata.namespace.as_deref().unwrap_or("") {
            "" => errors.push(FieldError::required("metadata.namespace", "")),
            namespace => {
                let complaints = content::dns_label(namespace);
                errors.extend(complaints.iter().map(|text| FieldError::invalid("metadata.namespace", namespace, text)));
            }
        }
    }
    validate_labels(metadata, errors);
    validate_annotations(metadata, errors);
    validate_owners(metadata.owner_references.as_deref().unwrap_or_default(), errors);
    validate_finalizers(metadata.finalizers.as_deref().unwrap_or_default(), errors);
}

fn validate_labels(metadata: &ObjectMeta, errors: &mut FieldErrors) {
    const FIELD: &str = "metadata.labels";
    for (key, value) in metadata.labels.iter().flatten() {
        errors.extend(content::label_key(key).iter().map(|text| FieldError::invalid(FIELD, key, text)));
        errors.extend(content::label_value(value).iter().map(|text| FieldError::invalid(FIELD, value, text)));
    }
}

fn validate_annotations(metadata: &ObjectMeta, errors: &mut FieldErrors) {
    const FIELD: &str = "metadata.annotations";
    let mut size = 0;
    for (key, value) in metadata.annotations.iter().flatten() {
        let complaints = content::label_key(&lowercase(key));
        errors.extend(complaints.iter().map(|text| FieldError::invalid(FIELD, key, text)));
        size += key.len() + value.len();
    }
    if size > content::ANNOTATIONS_MAX {
        errors.push(too_long(FIELD.to_owned(), content::ANNOTATIONS_MAX));
    }
}

/// As Go does it, of which each letter stays one.
fn lowercase(text: &str) -> String {
    text.chars().flat_map(|letter| letter.to_lowercase().take(1)).collect()
}

fn validate_owners(owners: &[OwnerReference], errors: &mut FieldErrors) {
    const FIELD: &str = "metadata.ownerReferences";
    let mut controller: Option<String> = None;
    for owner in owners {
        let version = match owner.api_version.split('/').collect::<Vec<_>>().as_slice() {
            [version] | [_, version] => *version,
            _ => "",
        };
        for (field, value, empty) in [
            ("apiVersion", &owner.api_version, version.is_empty()),
            ("kind", &owner.kind, owner.kind.is_empty()),
            ("name", &owner.name, owner.name.is_empty()),
            ("uid", &owner.uid, owner.uid.is_empty()),
        ] {
            if empty {
                let detail = if field == "apiVersion" { "version must not be empty" } else { "must not be empty" };
                errors.push(FieldError::invalid(format!("{FIELD}.{field}"), value, detail));
            }
        }
        if matches!(owner.api_version.as_str(), "v1" | "/v1") && owner.kind == "Event" {
            let shown = OwnerInOrder::from(owner);
            errors.push(FieldError::invalid(FIELD, shown, "/v1, Kind=Event is disallowed from being an owner"));
        }
        if owner.controller == Some(true) {
            let current = format!("{}/{}", owner.kind, owner.name);
            match &controller {
                // Each says all there are, and so is made only if it is taken.
                Some(first) => errors.extend(std::iter::once_with(|| {
                    FieldError::invalid(
                        FIELD,
                        owners.iter().map(OwnerInOrder::from).collect::<Vec<_>>(),
                        format_args!(
                            "Only one reference can have Controller set to true. Found \"true\" in references for \
                             {first} and {current}"
                        ),
                    )
                })),
                None => controller = Some(current),
            }
        }
    }
}

/// An owner reference whose fields are written in Go's order.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct OwnerInOrder<'a> {
    api_version: &'a str,
    kind: &'a str,
    name: &'a str,
    uid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    controller: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_owner_deletion: Option<bool>,
}

impl<'a> From<&'a OwnerReference> for OwnerInOrder<'a> {
    fn from(owner: &'a OwnerReference) -> Self {
        let OwnerReference { api_version, kind, name, uid, controller, block_owner_deletion } = owner;
        Self { api_version, kind, name, uid, controller: *controller, block_owner_deletion: *block_owner_deletion }
    }
}

/// When references to owners are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionPhase {
    /// As they were sent.
    Before,
    /// As they are about to be stored.
    After,
}

/// Keeps the first of several references to the same owner, and warns the client of the others.
///
/// Follows `dedupOwnerReferencesAndAddWarning` in `k8s.io/apiserver/pkg/endpoints/handlers`.
pub fn dedup_owners(context: &RequestContext, object: &mut Object, phase: AdmissionPhase) {
    let owners = object.0.get_mut("metadata").and_then(|metadata| metadata.get_mut("ownerReferences"));
    // One alone, as most have, is not looked at.
    let Some(owners) = owners.and_then(Value::as_array_mut).filter(|owners| owners.len() > 1) else { return };
    let mut seen: HashSet<String> = HashSet::new();
    let mut duplicates: Vec<String> = Vec::new();
    owners.retain(|owner| {
        let is_new = seen.insert(match owner {
            // In the order of their names, whatever that of the map is.
            Value::Object(fields) => {
                serde_json::to_string(&fields.iter().collect::<BTreeMap<_, _>>()).unwrap_or_default()
            }
            other => other.to_string(),
        });
        if !is_new {
            duplicates.push(owner.get("uid").and_then(Value::as_str).unwrap_or("").to_owned());
        }
        is_new
    });
    if duplicates.is_empty() {
        return;
    }
    let after = match phase {
        AdmissionPhase::Before => "",
        AdmissionPhase::After => " after mutating admission happens",
    };
    context.warn(format!(
        ".metadata.ownerReferences contains duplicate entries{after}; API server dedups owner references in 1.20+, and may \
         reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        duplicates.join(", ")
    ));
}

/// Leaves out collections with nothing in them, as Go's types do when they are written.
fn drop_empty(metadata: &mut serde_json::Map<String, Value>) {
    for field in ["labels", "annotations", "finalizers", "ownerReferences", "managedFields"] {
        let is_empty = match metadata.get(field) {
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::Object(map)) => map.is_empty(),
            _ => false,
        };
        if is_empty {
            metadata.remove(field);
        }
    }
}

fn validate_finalizers(finalizers: &[String], errors: &mut FieldErrors) {
    const FIELD: &str = "metadata.finalizers";
    for finalizer in finalizers {
        errors.extend(content::label_key(finalizer).iter().map(|text| FieldError::invalid(FIELD, finalizer, text)));
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has(FOREGROUND_DELETION) && has(ORPHAN_DEPENDENTS) {
        errors.push(FieldError::invalid(
            FIELD,
            finalizers,
            format_args!("finalizer {ORPHAN_DEPENDENTS} and {FOREGROUND_DELETION} cannot be both set"),
        ));
    }
}

/// Finds what is wrong with a change of metadata, besides what [`validate`] finds.
pub(super) fn validate_update(new: &ObjectMeta, old: &ObjectMeta, errors: &mut FieldErrors) {
    if old.deletion_timestamp.is_some() {
        let before: BTreeSet<&String> = old.finalizers.iter().flatten().collect();
        let after: BTreeSet<&String> = new.finalizers.iter().flatten().collect();
        let added: Vec<String> = after.difference(&before).map(|finalizer| format!("{finalizer:?}")).collect();
        if !added.is_empty() {
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format_args!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    added.join(", ")
                ),
            ));
        }
    }
    let mut immutable = |field: &str, new: Value, old: Value| {
        if new != old {
            errors.push(FieldError::invalid(format!("metadata.{field}"), new, "field is immutable"));
        }
    };
    let text = |value: &Option<String>| Value::from(value.as_deref().unwrap_or(""));
    immutable("name", text(&new.name), text(&old.name));
    immutable("namespace", text(&new.namespace), text(&old.namespace));
    immutable("uid", text(&new.uid), text(&old.uid));
    immutable(
        "deletionTimestamp",
        serde_json::json!(new.deletion_timestamp),
        serde_json::json!(old.deletion_timestamp),
    );
    immutable(
        "deletionGracePeriodSeconds",
        serde_json::json!(new.deletion_grace_period_seconds),
        serde_json::json!(old.deletion_grace_period_seconds),
    );
    // Upstream finds these once more when it looks at the change.
    validate_labels(new, errors);
    validate_annotations(new, errors);
    validate_owners(new.owner_references.as_deref().unwrap_or_default(), errors);
}

/// Finds what is wrong with `managedFields` that make sense otherwise.
pub(super) fn validate_managed_fields(entries: Option<&Value>, errors: &mut FieldErrors) {
    for (index, entry) in entries.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or("");
        let field = |name: &str| format!("metadata.managedFields[{index}].{name}");
        errors.extend(field_manager_errors(|| field("manager"), text("manager")));
        if text("subresource").len() > SUBRESOURCE_BYTES {
            errors.push(too_long(field("subresource"), SUBRESOURCE_BYTES));
        }
    }
}

/// Finds what is wrong with the name of a field manager: as much as the name is long, each time with all of it.
pub fn field_manager_errors(field: impl Fn() -> String, manager: &str) -> impl Iterator<Item = FieldError> {
    let long = (manager.len() > FIELD_MANAGER_BYTES).then(|| too_long(field(), FIELD_MANAGER_BYTES));
    let unprintable = manager.char_indices().filter(|(_, c)| !is_printable(*c));
    long.into_iter().chain(unprintable.map(move |(position, c)| {
        let detail = format!("invalid character U+{:04X} (at position {position})", u32::from(c));
        FieldError::invalid(field(), manager, detail)
    }))
}

fn too_long(field: String, bytes: usize) -> FieldError {
    let kind = FieldErrorKind::TooLong;
    let message = format!("{}: may not be more than {bytes} bytes", kind.prefix());
    FieldError { field, kind, message }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metadata(value: Value) -> ObjectMeta {
        ObjectMeta::deserialize(value).expect("metadata")
    }

    fn complaints(value: Value) -> Vec<String> {
        let mut base = json!({"name": "web", "namespace": "shop"});
        base.as_object_mut().expect("map").extend(value.as_object().expect("map").clone());
        let mut errors = FieldErrors::default();
        validate(&metadata(base), Scope::Namespaced, &mut errors);
        errors.into_vec().iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
    }

    fn complaints_of_update(new: &ObjectMeta, old: &ObjectMeta) -> Vec<FieldError> {
        let mut errors = FieldErrors::default();
        validate_update(new, old, &mut errors);
        errors.into_vec()
    }

    #[test]
    fn good_metadata_has_no_complaints() {
        let good = json!({
            "generateName": "web-", "labels": {"a": "", "b.c/d": "E_f"}, "annotations": {"UPPER.case/x": "any ÿ"},
            "finalizers": ["stoa.dev/x", "foregroundDeletion"],
            "ownerReferences": [
                {"apiVersion": "g/v1", "kind": "K", "name": "n", "uid": "u", "controller": true},
                {"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"},
            ],
        });
        assert_eq!(complaints(good), Vec::<String>::new());
    }

    #[test]
    fn bad_metadata_is_refused_with_its_path() {
        let owner = |name: &str| json!({"apiVersion": "v1", "kind": "K", "name": name, "uid": "u", "controller": true});
        for (bad, path) in [
            (json!({"name": ""}), "metadata.name: Required value: name or generateName is required"),
            (json!({"name": "A"}), "metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain"),
            (json!({"generateName": "-"}), "metadata.generateName: Invalid value: \"-\": a lowercase RFC 1123"),
            (json!({"namespace": "a.b"}), "metadata.namespace: Invalid value: \"a.b\": must not contain dots"),
            (json!({"labels": {"a/b/c": "x"}}), "metadata.labels: Invalid value: \"a/b/c\": a valid label key"),
            (json!({"labels": {"a": "-"}}), "metadata.labels: Invalid value: \"-\": a valid label must be"),
            (json!({"annotations": {"-": ""}}), "metadata.annotations: Invalid value: \"-\": name part must"),
            (
                json!({"annotations": {"a": "x".repeat(256 << 10)}}),
                "metadata.annotations: Too long: may not be more than 262144 bytes",
            ),
            (json!({"finalizers": ["a b"]}), "metadata.finalizers: Invalid value: \"a b\": name part must consist"),
            (
                json!({"finalizers": ["orphan", "foregroundDeletion"]}),
                "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and",
            ),
            (
                json!({"ownerReferences": [{"apiVersion": "g/", "kind": "K", "name": "n", "uid": "u"}]}),
                "metadata.ownerReferences.apiVersion: Invalid value: \"g/\": version must not be empty",
            ),
            (
                json!({"ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": ""}]}),
                "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
            ),
            (json!({"ownerReferences": [owner("a"), owner("b")]}), "metadata.ownerReferences: Invalid value: [{"),
        ] {
            let found = complaints(bad);
            assert!(found.len() == 1 && found[0].starts_with(path), "{path}\n{found:#?}");
        }
    }

    #[test]
    fn metadata_errors_limit_their_size() {
        let owner =
            |n: usize| json!({"apiVersion": "v1", "kind": "K", "name": n.to_string(), "uid": "u", "controller": true});
        let owners: Vec<Value> = (0..2_000).map(owner).collect();
        let labels: serde_json::Map<String, Value> = (0..100_000).map(|n| (format!("-{n}-"), "-".into())).collect();
        for bad in [json!({ "ownerReferences": owners }), json!({ "labels": labels })] {
            let found = complaints(bad);
            let bytes: usize = found.iter().map(String::len).sum();
            assert!(!found.is_empty() && bytes < 5 << 20, "{} complaints of {bytes} bytes", found.len());
        }
    }

    #[test]
    fn manager_errors_limit_their_size() {
        let mut errors = FieldErrors::default();
        validate_managed_fields(Some(&json!([{ "manager": "\n".repeat(1 << 20) }])), &mut errors);
        let bytes: usize = errors.into_vec().iter().map(|error| error.message.len()).sum();
        assert!(bytes < 8 << 20, "{bytes}");
    }

    /// To compare each with each would take minutes.
    #[test]
    fn server_stores_duplicate_owners_once() {
        let owner = |n: usize| json!({"apiVersion": "v1", "kind": "K", "name": n.to_string(), "uid": "u"});
        let owners: Vec<Value> = (0..100_000).map(owner).chain([owner(7), json!({"uid": "u", "name": "7"})]).collect();
        let metadata = json!({"metadata": {"ownerReferences": owners}});
        let mut object = Object(metadata.as_object().expect("a map").clone());
        let context = RequestContext::internal("test");
        dedup_owners(&context, &mut object, AdmissionPhase::Before);
        assert_eq!(object.0["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(100_001));
        let warnings = context.take_warnings();
        assert!(warnings.len() == 1 && warnings[0].ends_with("duplicate UID(s) observed: u"), "{warnings:?}");
    }

    #[test]
    fn generated_names_fit_and_use_the_alphabet() {
        let name = generate_name("web-");
        assert_eq!((name.len(), name.starts_with("web-")), (9, true));
        assert!(name[4..].bytes().all(|b| SUFFIX_ALPHABET.contains(&b)), "{name}");
        assert_eq!(generate_name(&"a".repeat(100)).len(), 63);
        assert_ne!(generate_name("web-"), generate_name("web-"));
    }

    #[test]
    fn finalizers_cannot_be_added_to_an_object_that_goes() {
        let old = metadata(json!({"finalizers": ["a/b"], "deletionTimestamp": "2026-01-01T00:00:00Z"}));
        let mut new = old.clone();
        new.finalizers = Some(Vec::new());
        assert_eq!(complaints_of_update(&new, &old), Vec::new());
        new.finalizers = Some(vec!["a/c".to_owned()]);
        let errors = complaints_of_update(&new, &old);
        assert_eq!(
            errors[0].message,
            "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers \
             []string{\"a/c\"}"
        );
    }

    #[test]
    fn empty_metadata_is_left_out() {
        let object = |metadata: Value| Object(json!({"metadata": metadata}).as_object().expect("map").clone());
        let empty = json!({
            "name": "web", "generateName": "", "labels": {}, "annotations": null, "finalizers": [],
            "ownerReferences": [],
        });
        let mut new = object(empty.clone());
        fill_for_create(&mut new);
        let fields: BTreeSet<&str> = new.metadata().expect("metadata").keys().map(String::as_str).collect();
        assert_eq!(fields, BTreeSet::from(["creationTimestamp", "generation", "name", "uid"]));

        let mut changed = object(empty);
        keep_for_update(&mut changed, &object(json!({"name": "web", "labels": {"a": "b"}, "finalizers": ["x/y"]})));
        assert_eq!(changed, object(json!({"name": "web"})));
        let mut kept = object(json!({"name": "web", "labels": {"a": ""}, "finalizers": ["x/y"]}));
        let before = kept.clone();
        keep_for_update(&mut kept, &before);
        assert_eq!(kept, before);
    }

    #[test]
    fn time_is_in_whole_seconds() {
        let now = now();
        let text = now.as_str().expect("text");
        assert_eq!((text.len(), &text[19..]), (20, "Z"), "{text}");
    }
}
