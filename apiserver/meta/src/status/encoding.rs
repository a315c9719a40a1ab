//! A `Status` as Go writes it: its fields have the order of the type in `k8s.io/apimachinery/pkg/apis/meta/v1`, and those
//! that are empty are left out.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, Status, StatusCause, StatusDetails};
use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::json;

/// Encodes a `Status`.
pub fn encode(status: &Status) -> Vec<u8> {
    json::to_vec(&Go(status)).expect("a Status is texts and numbers")
}

/// A type as Go writes it.
struct Go<'a, T>(&'a T);

impl Serialize for Go<'_, Status> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Status { code, details, message, metadata, reason, status } = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", "Status")?;
        map.serialize_entry("apiVersion", "v1")?;
        map.serialize_entry("metadata", &Go(metadata))?;
        text(&mut map, "status", status.as_deref())?;
        text(&mut map, "message", message.as_deref())?;
        text(&mut map, "reason", reason.as_deref())?;
        some(&mut map, "details", details.as_ref().map(Go))?;
        some(&mut map, "code", code.filter(|code| *code != 0))?;
        map.end()
    }
}

impl Serialize for Go<'_, ListMeta> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ListMeta { continue_, remaining_item_count, resource_version, self_link, shard_info } = self.0;
        let mut map = serializer.serialize_map(None)?;
        text(&mut map, "selfLink", self_link.as_deref())?;
        text(&mut map, "resourceVersion", resource_version.as_deref())?;
        text(&mut map, "continue", continue_.as_deref())?;
        some(&mut map, "remainingItemCount", *remaining_item_count)?;
        some(&mut map, "shardInfo", shard_info.as_ref())?;
        map.end()
    }
}

impl Serialize for Go<'_, StatusDetails> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let StatusDetails { causes, group, kind, name, retry_after_seconds, uid } = self.0;
        let causes: Vec<_> = causes.iter().flatten().map(Go).collect();
        let mut map = serializer.serialize_map(None)?;
        text(&mut map, "name", name.as_deref())?;
        text(&mut map, "group", group.as_deref())?;
        text(&mut map, "kind", kind.as_deref())?;
        text(&mut map, "uid", uid.as_deref())?;
        some(&mut map, "causes", Some(causes).filter(|causes| !causes.is_empty()))?;
        some(&mut map, "retryAfterSeconds", retry_after_seconds.filter(|seconds| *seconds != 0))?;
        map.end()
    }
}

impl Serialize for Go<'_, StatusCause> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let StatusCause { field, message, reason } = self.0;
        let mut map = serializer.serialize_map(None)?;
        text(&mut map, "reason", reason.as_deref())?;
        text(&mut map, "message", message.as_deref())?;
        text(&mut map, "field", field.as_deref())?;
        map.end()
    }
}

fn text<M: SerializeMap>(map: &mut M, name: &'static str, text: Option<&str>) -> Result<(), M::Error> {
    some(map, name, text.filter(|text| !text.is_empty()))
}

fn some<M: SerializeMap>(map: &mut M, name: &'static str, value: Option<impl Serialize>) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| map.serialize_entry(name, &value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::ApiError;

    #[test]
    fn a_status_has_its_fields_as_go_writes_them() {
        let mut error = ApiError::not_found("test.example", "widgets", "a<b");
        error.0.details.as_mut().unwrap().causes = Some(vec![StatusCause {
            field: Some("spec".to_owned()),
            message: Some("m".to_owned()),
            reason: Some("r".to_owned()),
        }]);
        let expected = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"widgets.test.example \"a\u003cb\" not found","reason":"NotFound","details":{"name":"a\u003cb","group":"test.example","kind":"widgets","causes":[{"reason":"r","message":"m","field":"spec"}]},"code":404}"#;
        assert_eq!(String::from_utf8(encode(&error.0)).unwrap(), expected);
        assert_eq!(serde_json::from_slice::<Status>(&encode(&error.0)).unwrap(), *error.0);
    }
}
