//! Properties of field ownership, for any `managedFields` and any order of writes.

use std::sync::LazyLock;

use serde_json::Value;

use super::{ApplyOptions, FieldManagers, entries, set::Set};
use crate::{
    definition::Target,
    fuzzing::{WIDGET, lines},
    object::Object,
    request::FieldValidation,
    schema::{self, Format, fuzzing::DECODER},
};

/// `fieldsV1`, and whole `managedFields`: what was read is the same once it is written and read again, and sets of
/// paths are sets.
pub fn managed_fields(data: &[u8]) {
    let Ok(parsed) = schema::parse(data, Format::Json) else { return };
    if let Ok(set) = Set::decode(&parsed.value) {
        let encoded = Value::Object(set.encode());
        assert_eq!(Set::decode(&encoded).as_ref(), Ok(&set), "{encoded}");
        assert_eq!(Value::Object(Set::decode(&encoded).expect("it was written here").encode()), encoded);
        algebra(&set);
    }
    if let Ok(managers) = entries::decode(Some(&parsed.value)) {
        let encoded = entries::encode(&managers);
        assert_eq!(entries::decode(encoded.as_ref()).as_ref(), Ok(&managers), "{encoded:?}");
        assert!(entries::same_but_for_times(encoded.as_ref(), encoded.as_ref()));
    }
    entries::is_reset(Some(&parsed.value));
}

fn algebra(set: &Set) {
    let paths = set.paths();
    let (mut one, mut other) = (Set::default(), Set::default());
    for (index, path) in paths.iter().enumerate() {
        assert!(set.has(path), "{path:?}");
        if index % 2 == 0 { one.insert(path) } else { other.insert(path) }
    }
    assert_eq!(&one.union(&other), set);
    assert_eq!(one.union(&other), other.union(&one));
    assert_eq!(&set.union(set), set);
    assert_eq!(&set.intersection(set), set);
    assert!(set.difference(set).is_empty());
    assert_eq!(set.intersection(&one), one);
    assert_eq!(set.difference(&one), other);
    assert!(one.intersection(&other).is_empty());
    let rest = set.recursive_difference(&one);
    assert!(rest.paths().iter().all(|path| set.has(path) && !one.has(path)));
}

/// Lines, each a write: the letter of a manager, `a` for an applied configuration, `f` for one that is forced or
/// anything else for an update, and the object as JSON. What was applied is there, is owned, and changes nothing when
/// it is applied again.
pub fn apply(data: &[u8]) {
    static MANAGERS: LazyLock<FieldManagers> = LazyLock::new(|| FieldManagers::new(&WIDGET));
    let mut live: Option<Object> = None;
    for (now, line) in lines(data).into_iter().take(12).enumerate() {
        let Some((manager, rest)) = line.split_at_checked(1) else { continue };
        let Some((verb, body)) = rest.split_at_checked(1) else { continue };
        let (now, manager) = (now as i64 + 1, if manager == "k" { "kubectl" } else { manager });
        let target = if verb == "s" && live.is_some() { Target::Status } else { Target::Main };
        let managers = MANAGERS.of(target);
        let next = if matches!(verb, "a" | "f") {
            let Ok(parsed) = schema::parse(body.as_bytes(), Format::Json) else { continue };
            let Value::Object(mut configuration) = parsed.value else { continue };
            configuration.insert("apiVersion".to_owned(), WIDGET.api_version().into());
            configuration.insert("kind".to_owned(), WIDGET.kind.clone().into());
            let configuration = Object(configuration);
            let options = ApplyOptions { manager, force: verb == "f", previous: None, now };
            let mut applied = match managers.apply(live.as_ref(), &configuration, options) {
                Ok(applied) => applied,
                Err(error) => {
                    assert!(matches!(error.code(), 400 | 409 | 500) && !error.message().is_empty(), "{error:?}");
                    continue;
                }
            };
            if DECODER.settle(&mut applied).is_err() {
                continue;
            }
            let again = managers.apply(Some(&applied), &configuration, ApplyOptions { force: false, ..options });
            let mut again = again.unwrap_or_else(|error| panic!("{error:?}"));
            DECODER.settle(&mut again).expect("it fitted before");
            assert_eq!(again, applied, "it was applied already");
            applied
        } else {
            let decoded = DECODER.decode(body.as_bytes(), Format::Json, FieldValidation::Ignore);
            let Ok(mut new) = decoded.map(|decoded| decoded.object) else { continue };
            let written = new.metadata_mut().remove("managedFields");
            let before = live.clone().map(|mut live| (live.metadata_mut().remove("managedFields"), live));
            let before = before.as_ref().map(|(entries, live)| (live, entries.as_ref()));
            if let Some(entries) = managers.update(before, (&new, written.as_ref()), manager, now) {
                new.metadata_mut().insert("managedFields".to_owned(), entries);
            }
            new
        };
        let entries = next.metadata().and_then(|metadata| metadata.get("managedFields"));
        let owners = entries::decode(entries).expect("they were written here");
        assert!(owners.values().all(|owned| !owned.set.is_empty()), "{entries:?}");
        live = Some(next);
    }
}
