//! Patch strategies and merge keys of a schema (`x-kubernetes-patch-strategy`, `x-kubernetes-patch-merge-key`).

use serde_json::Value;

use super::Refusal;
use crate::{openapi::object_meta, schema::only_alternative};

/// A place in a schema.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'s> {
    /// What references are resolved in.
    document: &'s Value,
    /// The place; nothing where nothing is known.
    schema: Option<&'s Value>,
    is_root: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Strategy<'s> {
    /// `merge`, `replace` or empty.
    pub(super) name: &'s str,
    /// The field that tells items of a list apart; empty for lists of scalars.
    pub(super) merge_key: &'s str,
}

impl<'s> Lookup<'s> {
    pub(crate) fn of_object(schema: &'s Value) -> Self {
        Self { document: schema, schema: Some(schema), is_root: true }
    }

    pub(super) fn field(self, key: &str) -> Result<(Self, Strategy<'s>), Refusal> {
        if self.is_root && key == "metadata" {
            let meta = object_meta();
            return Ok((
                Self { document: meta, schema: Some(meta), is_root: false },
                Strategy { name: "", merge_key: "" },
            ));
        }
        let resolved = self.resolved();
        let found = resolved.and_then(|schema| {
            let field = schema.get("properties").and_then(|properties| properties.get(key));
            field.or_else(|| schema.get("additionalProperties").filter(|element| element.is_object()))
        });
        let has_fields = resolved.is_some_and(|schema| schema.get("properties").is_some_and(Value::is_object));
        let keeps = resolved.is_some_and(|schema| schema.get("x-kubernetes-preserve-unknown-fields").is_some());
        if found.is_none() && has_fields && !keeps {
            return Err(Refusal::Failed(format!("unable to find api field {key:?}")));
        }
        Ok((Self { schema: found, is_root: false, ..self }, found.map_or(Ok(NO_STRATEGY), strategy)?))
    }

    pub(super) fn items(self, key: &str) -> Result<(Self, Strategy<'s>), Refusal> {
        let (field, strategy) = self.field(key)?;
        let items = field.resolved().and_then(|schema| schema.get("items"));
        Ok((Self { schema: items, ..field }, strategy))
    }

    fn resolved(self) -> Option<&'s Value> {
        let mut schema = self.schema?;
        // A schema that refers to itself in a circle describes nothing.
        for _ in 0..32 {
            let wrapped = match schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
                Some([only]) => Some(only),
                _ => only_alternative(schema),
            };
            schema = match (schema.get("$ref").and_then(Value::as_str), wrapped) {
                (Some(reference), _) => self.document.pointer(reference.strip_prefix('#')?)?,
                (None, Some(inner)) => inner,
                (None, None) => return Some(schema),
            };
        }
        None
    }
}

const NO_STRATEGY: Strategy<'static> = Strategy { name: "", merge_key: "" };

fn strategy(schema: &Value) -> Result<Strategy<'_>, Refusal> {
    let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or("");
    let names: Vec<&str> = text("x-kubernetes-patch-strategy").split(',').collect();
    let name = match names.as_slice() {
        [] | ["retainKeys"] => "",
        ["retainKeys", other] | [other, "retainKeys"] | [other] => other,
        _ => return Err(Refusal::Failed(format!("unexpected patch strategy: {names:?}"))),
    };
    Ok(Strategy { name, merge_key: text("x-kubernetes-patch-merge-key") })
}
