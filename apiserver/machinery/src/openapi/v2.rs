//! Swagger 2.0, which the aggregation layer still merges, made from the v3 document.

use serde_json::{Map, Value, json};

/// Turns a v3 document into Swagger. What Swagger cannot say, such as alternatives and null, is left out.
pub(super) fn swagger(v3: &Value) -> Value {
    let each = |value: &Value, turn: fn(&Value) -> Value| -> Map<String, Value> {
        value.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), turn(value))).collect()
    };
    json!({
        "swagger": "2.0",
        "info": v3["info"],
        "paths": each(&v3["paths"], path_item),
        "definitions": each(&v3["components"]["schemas"], schema),
    })
}

fn path_item(item: &Value) -> Value {
    let turned = item.as_object().into_iter().flatten().map(|(key, value)| {
        let value = if key == "parameters" { parameters(value).into() } else { operation(value) };
        (key.clone(), value)
    });
    Value::Object(turned.collect())
}

fn operation(operation: &Value) -> Value {
    let Some(mut turned) = operation.as_object().cloned() else { return Value::Null };
    let mut all = parameters(&operation["parameters"]);
    turned.remove("parameters");
    if let Some(body) = turned.remove("requestBody") {
        let content = body["content"].as_object().cloned().unwrap_or_default();
        let required = body["required"].clone();
        if let Some(first) = content.values().next() {
            all.push(json!({ "name": "body", "in": "body", "required": required, "schema": schema(&first["schema"]) }));
        }
        let media: Vec<&String> = content.keys().collect();
        turned.insert("consumes".to_owned(), json!(media));
    }
    turned.insert("produces".to_owned(), json!(["application/json", "application/yaml"]));
    if !all.is_empty() {
        turned.insert("parameters".to_owned(), all.into());
    }
    let answers = operation["responses"].as_object().into_iter().flatten().map(|(code, answer)| {
        let mut turned = json!({ "description": answer["description"] });
        let first = answer["content"].as_object().and_then(|content| content.values().next());
        if let Some(first) = first {
            turned["schema"] = schema(&first["schema"]);
        }
        (code.clone(), turned)
    });
    turned.insert("responses".to_owned(), Value::Object(answers.collect()));
    turned.into()
}

/// Parameters have their type beside their name rather than in a schema.
fn parameters(list: &Value) -> Vec<Value> {
    let turn = |parameter: &Value| {
        let mut turned = parameter.as_object().cloned().unwrap_or_default();
        if let Some(Value::Object(schema)) = turned.remove("schema") {
            turned.extend(schema);
        }
        Value::Object(turned)
    };
    list.as_array().into_iter().flatten().map(turn).collect()
}

/// A schema in Swagger's dialect.
fn schema(v3: &Value) -> Value {
    let Some(map) = v3.as_object() else { return v3.clone() };
    if let Some([only]) = map.get("allOf").and_then(Value::as_array).map(Vec::as_slice)
        && let Some(target) = only.get("$ref")
    {
        let mut turned = json!({ "$ref": local(target) });
        if let Some(description) = map.get("description") {
            turned["description"] = description.clone();
        }
        return turned;
    }
    let mut turned = Map::new();
    for (key, value) in map {
        match key.as_str() {
            "nullable" | "oneOf" | "anyOf" | "allOf" | "not" => {}
            "$ref" => drop(turned.insert(key.clone(), local(value))),
            "properties" => {
                let each = value.as_object().into_iter().flatten();
                let each = each.map(|(name, property)| (name.clone(), schema(property))).collect();
                turned.insert(key.clone(), Value::Object(each));
            }
            "items" | "additionalProperties" => drop(turned.insert(key.clone(), schema(value))),
            _ => drop(turned.insert(key.clone(), value.clone())),
        }
    }
    turned.into()
}

fn local(target: &Value) -> Value {
    target.as_str().map_or(Value::Null, |t| t.replace("#/components/schemas/", "#/definitions/").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_lead_to_definitions_and_bodies_become_parameters() {
        let v3 = json!({
            "info": { "title": "t" },
            "paths": { "/a": {
                "parameters": [{ "name": "pretty", "in": "query", "schema": { "type": "string" } }],
                "post": {
                    "requestBody": { "required": true, "content": { "application/json": {
                        "schema": { "$ref": "#/components/schemas/A" } } } },
                    "responses": { "200": { "description": "OK", "content": { "application/json": {
                        "schema": { "$ref": "#/components/schemas/A" } } } } },
                },
            } },
            "components": { "schemas": { "A": { "type": "object", "properties": {
                "b": { "allOf": [{ "$ref": "#/components/schemas/B" }], "default": {}, "description": "d" },
                "c": { "type": "string", "nullable": true },
            } } } },
        });
        let v2 = swagger(&v3);
        assert_eq!(v2["paths"]["/a"]["parameters"][0], json!({ "name": "pretty", "in": "query", "type": "string" }));
        let body = &v2["paths"]["/a"]["post"]["parameters"][0];
        assert_eq!(body["schema"], json!({ "$ref": "#/definitions/A" }));
        assert_eq!(v2["paths"]["/a"]["post"]["responses"]["200"]["schema"], json!({ "$ref": "#/definitions/A" }));
        let properties = &v2["definitions"]["A"]["properties"];
        assert_eq!(properties["b"], json!({ "$ref": "#/definitions/B", "description": "d" }));
        assert_eq!(properties["c"], json!({ "type": "string" }));
    }
}
