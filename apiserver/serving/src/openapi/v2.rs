//! Swagger 2.0, which the aggregation layer still merges, made from the v3 document.
//!
//! Follows `k8s.io/kube-openapi/pkg/builder`. There are no defaults in it, as after `PruneDefaults` of `pkg/handler`.

use serde_json::{Map, Value, json};

use super::shared;

/// What a schema may say in Swagger as in v3, besides extensions. A word that Swagger does not have makes it no Swagger
/// for others: the aggregation layer, which puts the documents of all servers into one, would have no protobuf of it.
const KEPT: &[&str] = &[
    "description",
    "enum",
    "example",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "readOnly",
    "required",
    "type",
    "uniqueItems",
];

const TOKEN: &str = "BearerToken";

/// Turns a v3 document into Swagger. What Swagger cannot say, such as alternatives and null, is left out.
pub(super) fn swagger(v3: &Value) -> Value {
    let each = |value: &Value, turn: fn(&Value) -> Value| -> Map<String, Value> {
        value.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), turn(value))).collect()
    };
    let mut swagger = json!({
        "swagger": "2.0",
        "info": v3["info"],
        "paths": each(&v3["paths"], path_item),
        "definitions": each(&v3["components"]["schemas"], schema),
        // Those of a server that has the cluster say who somebody is (`DelegatingAuthenticatorConfig`).
        "securityDefinitions": { TOKEN: {
            "type": "apiKey",
            "name": "authorization",
            "in": "header",
            "description": "Bearer Token authentication",
        } },
        "security": [{ TOKEN: [] }],
    });
    shared::share(&mut swagger);
    swagger
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
    let answer =
        operation["responses"].as_object().and_then(|answers| answers.values().find(|one| one["content"].is_object()));
    let produces = answer.map(|answer| media(&answer["content"])).unwrap_or_default();
    let consumes = match turned.remove("requestBody") {
        Some(body) => {
            let first = body["content"].as_object().and_then(|content| content.values().next());
            if let Some(first) = first {
                let mut parameter = json!({ "name": "body", "in": "body", "schema": schema(&first["schema"]) });
                if body["required"] == true {
                    parameter["required"] = true.into();
                }
                all.push(parameter);
            }
            media(&body["content"])
        }
        // Routes of resources take whatever comes, others what they give.
        None if turned.contains_key("x-kubernetes-action") => vec!["*/*".to_owned()],
        None => produces.clone(),
    };
    turned.insert("consumes".to_owned(), consumes.into());
    turned.insert("produces".to_owned(), produces.into());
    turned.insert("schemes".to_owned(), json!(["https"]));
    if !all.is_empty() {
        all.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
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
    // What has security is told to refuse those whom nobody knows (`completeOpenAPI` of k8s.io/apiserver).
    let refused = ("401".to_owned(), json!({ "description": "Unauthorized" }));
    turned.insert("responses".to_owned(), Value::Object(answers.chain([refused]).collect()));
    turned.into()
}

/// What a body comes in, streams last.
fn media(content: &Value) -> Vec<String> {
    let mut media: Vec<String> = content.as_object().into_iter().flat_map(Map::keys).cloned().collect();
    media.sort_by_key(|name| name.contains(';'));
    media
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
    let mut turned = Map::new();
    for (key, value) in map {
        match key.as_str() {
            "$ref" => drop(turned.insert(key.clone(), local(value))),
            // A reference with something beside it, which is wrapped in v3.
            "allOf" => {
                if let Some([only]) = value.as_array().map(Vec::as_slice)
                    && let Some(target) = only.get("$ref")
                {
                    turned.insert("$ref".to_owned(), local(target));
                }
            }
            "properties" => {
                let each = value.as_object().into_iter().flatten();
                let each = each.map(|(name, property)| (name.clone(), schema(property))).collect();
                turned.insert(key.clone(), Value::Object(each));
            }
            "items" | "additionalProperties" => drop(turned.insert(key.clone(), schema(value))),
            other if KEPT.contains(&other) || other.starts_with("x-") => {
                drop(turned.insert(key.clone(), value.clone()))
            }
            _ => {}
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
                "c": { "type": "array", "items": { "type": "string", "nullable": true, "default": "" } },
                "d": {
                    "type": "object", "deprecated": true, "patternProperties": { "^a": {} }, "maxProperties": 1,
                    "x-kubernetes-map-type": "atomic",
                },
            } } } },
        });
        let v2 = swagger(&v3);
        let pretty = v2["paths"]["/a"]["parameters"][0]["$ref"].as_str().unwrap();
        let expected = json!({ "name": "pretty", "in": "query", "type": "string" });
        assert_eq!(v2.pointer(&pretty[1..]), Some(&expected));
        let body = json!({ "name": "body", "in": "body", "required": true, "schema": { "$ref": "#/definitions/A" } });
        assert_eq!(v2["paths"]["/a"]["post"]["parameters"], json!([body]));
        assert_eq!(v2["paths"]["/a"]["post"]["responses"]["200"]["schema"], json!({ "$ref": "#/definitions/A" }));
        let properties = &v2["definitions"]["A"]["properties"];
        assert_eq!(properties["b"], json!({ "$ref": "#/definitions/B", "description": "d" }));
        assert_eq!(properties["c"], json!({ "type": "array", "items": { "type": "string" } }));
        assert_eq!(properties["d"], json!({ "type": "object", "maxProperties": 1, "x-kubernetes-map-type": "atomic" }));
    }
    #[test]
    fn operations_list_media_types_and_unauthorized_response() {
        let answers = json!({ "200": { "description": "OK", "content": {
            "application/json": {}, "application/json;stream=watch": {}, "application/yaml": {} } } });
        let turned = operation(&json!({ "responses": answers, "x-kubernetes-action": "list" }));
        assert_eq!(turned["consumes"], json!(["*/*"]));
        assert_eq!(
            turned["produces"],
            json!(["application/json", "application/yaml", "application/json;stream=watch"])
        );
        assert_eq!(turned["responses"]["401"], json!({ "description": "Unauthorized" }));
        let discovery = operation(&json!({ "responses": answers }));
        assert_eq!(discovery["consumes"], discovery["produces"]);
    }
}
