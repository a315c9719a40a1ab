//! Properties of stored values.

use bytes::Bytes;
use serde_json::{Map, Value};
use stoa_log::{Key, Version};
use stoa_meta::{fuzzing::WIDGET, object::Object};

use super::Prepared;

/// A value of the log: it is left out, or shown as it is but for its version.
pub fn stored(data: &[u8]) {
    let value = Bytes::copy_from_slice(data);
    let Ok(prepared) = Prepared::parse(value, &WIDGET.selectable_fields) else { return };
    let mut object: Object = Object(serde_json::from_slice(data).expect("it was read before"));
    object.metadata_mut().remove("resourceVersion");
    assert_eq!(prepared.stored(Key::new("/k"), Version(0)).object(), object);
    let stored = prepared.stored(Key::new("/k"), Version(7)).at_version(Version(1 << 60));
    assert_eq!(stored.name(), object.name());
    assert_eq!(stored.namespace(), object.namespace());
    for (index, field) in WIDGET.selectable_fields.iter().enumerate() {
        if let Some(Value::String(text)) = object.get_path(field.path) {
            assert_eq!(stored.field(index), text);
        }
    }
    object.metadata_mut().insert("resourceVersion".to_owned(), (1_u64 << 60).to_string().into());
    assert_eq!(stored.object(), object);
    let metadata: Map<String, Value> = serde_json::from_slice(&stored.metadata().bytes()).expect("it is metadata");
    assert_eq!(Some(&metadata), object.metadata());
    stored.row(&WIDGET.columns);
}
