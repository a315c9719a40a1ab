//! Properties of patches.

use serde_json::Value;

use super::{Patch, PatchType, merging};
use crate::{
    fuzzing::{OBJECT, WIDGET, refused},
    object::Object,
    request::FieldValidation,
    schema::{Format, MAX_DEPTH, fuzzing::DECODER, height},
};

/// The first line names the kind of patch by a letter and may hold an object as JSON after it; the rest is the patch.
pub fn patches(data: &[u8]) {
    let (head, patch) = data.iter().position(|byte| *byte == b'\n').map_or((data, &[][..]), |at| data.split_at(at + 1));
    let kind = match head.first() {
        Some(b'j') => PatchType::Json,
        Some(b's') => PatchType::Strategic,
        _ => PatchType::Merge,
    };
    let own = head
        .get(1..)
        .and_then(|object| Some(DECODER.decode(object, Format::Json, FieldValidation::Ignore).ok()?.object));
    let object = own.as_ref().unwrap_or(&OBJECT);
    let patch = match Patch::parse(kind, patch, FieldValidation::Warn) {
        Ok(patch) => patch,
        Err(error) => return refused(&error, &[400, 413]),
    };
    let mut patched = match patch.apply(object, &WIDGET.schema) {
        Ok(patched) => patched,
        Err(error) => return refused(&error, &[400, 422, 500]),
    };
    if kind == PatchType::Merge {
        let again = patch.apply(&patched, &WIDGET.schema).expect("it applied once");
        // Nulls of a list that took the place of a map go the second time.
        assert_eq!(without_nulls(again), without_nulls(patched.clone()), "a merge is repeatable");
    }
    for validation in [FieldValidation::Strict, FieldValidation::Ignore] {
        if let Err(error) = patch.check_strictly(|| Ok(patched.clone()), vec!["x".to_owned()], validation) {
            refused(&error, &[422]);
        }
    }
    match DECODER.settle(&mut patched) {
        Ok(_) => {
            assert!(height(&Value::Object(patched.0.clone())) <= MAX_DEPTH);
            DECODER.structural_errors(&patched);
            // What came of it is an object like any other, once it has its type, which the registry sees to.
            patched.0.insert("apiVersion".to_owned(), WIDGET.api_version().into());
            patched.0.insert("kind".to_owned(), WIDGET.kind.clone().into());
            let json = serde_json::to_vec(&patched.0).expect("an object is written as JSON");
            let decoded = DECODER.decode(&json, Format::Json, FieldValidation::Strict);
            assert_eq!(decoded.unwrap_or_else(|error| panic!("{error:?}")).object, patched);
        }
        Err(type_error) => refused(&patch.refuse_type_error(&patched, &type_error), &[422]),
    }
}

fn without_nulls(object: Object) -> Value {
    let mut value = Value::Object(object.0);
    merging::prune(&mut value);
    value
}
