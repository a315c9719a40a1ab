//! Shared parameters of Swagger, which operations refer to.
//!
//! Follows `deduplicateParameters` in `k8s.io/kube-openapi/pkg/builder/parameters.go`.

use base64::{Engine, engine::general_purpose::URL_SAFE};
use serde_json::{Map, Value, json};

pub(super) fn share(swagger: &mut Value) {
    let mut shared = Map::new();
    for item in swagger["paths"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        for (name, value) in item.as_object_mut().into_iter().flatten() {
            let listed = if name == "parameters" { Some(value) } else { value.get_mut("parameters") };
            let listed = listed.and_then(Value::as_array_mut).into_iter().flatten();
            for parameter in listed.filter(|parameter| is_shared(parameter)) {
                let name = shared_name(parameter);
                let reference = json!({ "$ref": format!("#/parameters/{name}") });
                shared.insert(name, std::mem::replace(parameter, reference));
            }
        }
    }
    swagger["parameters"] = shared.into();
}

/// Whether a parameter is the same for all kinds. Two of those that are stay where they are: kubectl up to 1.27 looks for
/// them there to learn what the server can do.
fn is_shared(parameter: &Value) -> bool {
    const GENERIC: &str = "#/definitions/io.k8s.apimachinery";
    match parameter["name"].as_str() {
        Some("name" | "fieldValidation" | "dryRun") => false,
        _ if parameter["in"] == "body" => {
            parameter["schema"]["$ref"].as_str().is_some_and(|target| target.starts_with(GENERIC))
        }
        _ => true,
    }
}

/// The name of a parameter with a hash of all of it.
fn shared_name(parameter: &Value) -> String {
    format!("{}-{}", parameter["name"].as_str().unwrap_or("param"), hash(&parameter.to_string()))
}

/// Six bytes of FNV-1, which are eight characters.
fn hash(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| hash.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(byte));
    URL_SAFE.encode(&hash.to_be_bytes()[..6])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_for_all_kinds_stands_once() {
        let query = |name: &str| json!({ "in": "query", "name": name, "type": "string" });
        let body = |schema: &str| {
            let target = format!("#/definitions/{schema}");
            json!({ "in": "body", "name": "body", "schema": { "$ref": target } })
        };
        let options = body("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
        let mut swagger = json!({ "paths": {
            "/a": {
                "parameters": [query("pretty"), query("name")],
                "get": { "operationId": "g" },
                "post": { "parameters": [body("a.A"), query("dryRun"), query("force")] },
                "delete": { "parameters": [options] },
            },
            "/b": { "parameters": [query("pretty")] },
        } });
        share(&mut swagger);
        let names: Vec<&str> =
            swagger["parameters"].as_object().unwrap().keys().map(|name| &name[..name.len() - 9]).collect();
        assert_eq!(names, ["body", "force", "pretty"]);
        let item = &swagger["paths"]["/a"];
        let target = item["parameters"][0]["$ref"].as_str().unwrap();
        assert_eq!(swagger.pointer(&target[1..]), Some(&query("pretty")));
        assert_eq!(swagger["paths"]["/b"]["parameters"][0]["$ref"], target);
        assert_eq!(item["parameters"][1], query("name"));
        assert_eq!(item["post"]["parameters"].as_array().unwrap()[..2], [body("a.A"), query("dryRun")]);
        assert!(item["post"]["parameters"][2].get("$ref").is_some());
        assert!(item["delete"]["parameters"][0].get("$ref").is_some());
        assert_eq!(item["get"], json!({ "operationId": "g" }));
    }

    /// As Go has it of a parameter that it writes like this.
    #[test]
    fn hashes_are_those_of_upstream() {
        let target = "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
        let body = format!(r#"{{"name":"body","in":"body","schema":{{"$ref":"{target}"}}}}"#);
        assert_eq!(hash(&body), "2Y1dVQaQ");
    }
}
