//! `AdmissionReview`: the request to a webhook, and the reading of its answer.
//!
//! Follows `pkg/admission/plugin/webhook/request`, and what `pkg/util/webhook` reads answers with.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde_json::{Map, Value, json};
use stoa_meta::{
    object::Object,
    request::UserInfo,
    schema::{self, Format, binary},
    status::quote,
};
use stoa_registry::admission::Attributes;

const GROUP: &str = "admission.k8s.io";
const KIND: &str = "AdmissionReview";

/// The versions of the review that are spoken, the preferred one of a webhook first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    /// The first of a webhook's versions that is spoken here.
    pub(super) fn choose(offered: &[String]) -> Option<Self> {
        offered.iter().find_map(|version| match version.as_str() {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        })
    }

    /// What Go calls the package of its types.
    fn package(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// The `request` of a review, without its uid; policies show the same to their expressions.
pub(crate) fn request(attributes: &Attributes<'_>) -> Map<String, Value> {
    let definition = attributes.definition;
    let stoa_meta::definition::ResourceDefinition { group, version, kind, .. } = attributes.kind;
    let kind = json!({"group": group, "version": version, "kind": kind});
    let resource = json!({"group": definition.group, "version": definition.version, "resource": definition.plural});
    let mut request = Map::new();
    let mut put = |name: &str, value: Value| {
        request.insert(name.to_owned(), value);
    };
    put("kind", kind.clone());
    put("resource", resource.clone());
    put("requestKind", kind);
    put("requestResource", resource);
    if !attributes.subresource.is_empty() {
        put("subResource", attributes.subresource.into());
        put("requestSubResource", attributes.subresource.into());
    }
    for (field, value) in [("name", attributes.name), ("namespace", attributes.namespace)] {
        if !value.is_empty() {
            put(field, value.into());
        }
    }
    put("operation", attributes.operation.as_str().into());
    put("userInfo", user_info(&attributes.context.user));
    put("dryRun", attributes.dry_run.into());
    put("options", attributes.options.clone());
    request
}

fn user_info(user: &UserInfo) -> Value {
    let mut info = Map::new();
    for (field, value) in [("username", &user.name), ("uid", &user.uid)] {
        if !value.is_empty() {
            info.insert(field.to_owned(), value.as_str().into());
        }
    }
    if !user.groups.is_empty() {
        info.insert("groups".to_owned(), user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        info.insert("extra".to_owned(), json!(user.extra));
    }
    Value::Object(info)
}

pub(super) fn encode(
    version: ReviewVersion,
    uid: &str,
    attributes: &Attributes<'_>,
    object: Option<&Object>,
) -> Vec<u8> {
    let mut request = request(attributes);
    let value = |object: Option<&Object>| object.map_or(Value::Null, |object| Value::Object(object.0.clone()));
    request.insert("uid".to_owned(), uid.into());
    request.insert("object".to_owned(), value(object));
    request.insert("oldObject".to_owned(), value(attributes.old_object));
    let review = json!({"kind": KIND, "apiVersion": version.api_version(), "request": request});
    serde_json::to_vec(&review).expect("a JSON value serializes")
}

#[derive(Debug, Default)]
struct Response {
    uid: String,
    allowed: bool,
    status: Option<Status>,
    /// Decoded; empty when there is none.
    patch: Vec<u8>,
    patch_type: Option<String>,
    audit_annotations: BTreeMap<String, String>,
    warnings: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) allowed: bool,
    pub(super) status: Option<Status>,
    /// The decoded patch, when there is one, and what type it says to have.
    pub(super) patch: Option<(Vec<u8>, String)>,
    pub(super) audit_annotations: BTreeMap<String, String>,
    pub(super) warnings: Vec<String>,
}

pub(super) fn decode(version: ReviewVersion, uid: &str, mutates: bool, body: &[u8]) -> Result<Answer, String> {
    let failed = |problem: String| format!("failed to call webhook: {problem}");
    let invalid = |problem: &str| format!("received invalid webhook response: {problem}");
    let review = parse(body).map_err(failed)?;
    let response = read(version, &review).map_err(failed)?;
    let response = response.ok_or_else(|| invalid("webhook response was absent"))?;
    let patch_type = match version {
        ReviewVersion::V1Beta1 => JSON_PATCH.to_owned(),
        ReviewVersion::V1 => {
            if response.uid != uid {
                let (expected, given) = (quote(uid), quote(&response.uid));
                return Err(invalid(&format!("expected response.uid={expected}, got {given}")));
            }
            // What the codec takes for granted has to be said here.
            let said = |field: &str| review.get(field).and_then(Value::as_str).unwrap_or("");
            let (own, api_version, kind) = (version.api_version(), said("apiVersion"), said("kind"));
            if (api_version, kind) != (own, KIND) {
                let api_version = if api_version.is_empty() { "/" } else { api_version };
                return Err(invalid(&format!(
                    "expected webhook response of {own}, Kind={KIND}, got {api_version}, Kind={kind}"
                )));
            }
            check_patch(mutates, !response.patch.is_empty(), response.patch_type.as_deref()).map_err(invalid)?;
            response.patch_type.unwrap_or_default()
        }
    };
    Ok(Answer {
        allowed: response.allowed,
        status: response.status,
        patch: Some(response.patch).filter(|patch| mutates && !patch.is_empty()).map(|patch| (patch, patch_type)),
        audit_annotations: response.audit_annotations,
        warnings: response.warnings,
    })
}

/// The fields of an answer in JSON or YAML, with what Go lets pass, such as halves of characters and fields that stand
/// twice.
pub(super) fn parse(body: &[u8]) -> Result<Map<String, Value>, String> {
    let parsed = if body.trim_ascii_start().starts_with(b"{") {
        schema::parse(body, Format::Json).map_err(no_kind)?
    } else {
        schema::parse(body, Format::Yaml).map_err(|error| error.to_string())?
    };
    match parsed.value {
        Value::Object(fields) => Ok(fields),
        Value::Null => Ok(Map::new()),
        other => Err(no_kind(schema::no_type(&other))),
    }
}

fn no_kind(problem: impl fmt::Display) -> String {
    format!("couldn't get version/kind; json parse error: {problem}")
}

/// The response in a review, which has to be one of this version.
///
/// Follows the codec of upstream's client, which knows both versions but does not convert between them.
fn read(version: ReviewVersion, review: &Map<String, Value>) -> Result<Option<Response>, String> {
    let said = |field: &str| schema::type_text(review, field).map_err(no_kind);
    let (package, kind) = go_type(version, said("apiVersion")?, said("kind")?)?;
    let response = match review.get("response").filter(|response| kind == KIND && !response.is_null()) {
        None => None,
        Some(Value::Object(fields)) => Some(Response::read(package, fields)?),
        Some(other) => {
            let expected = format!("{package}.AdmissionResponse");
            return Err(type_error(other, "AdmissionReview.response", &expected));
        }
    };
    let own = version.package();
    if (package, kind) != (own, KIND) {
        return Err(format!("converting ({package}.{kind}) to ({own}.{KIND}): unknown conversion"));
    }
    Ok(response)
}

/// The package and the name of the Go type of what says to be of this version and kind; what it does not say is that of
/// a review of `version`.
fn go_type<'a>(version: ReviewVersion, api_version: &'a str, kind: &'a str) -> Result<(&'a str, &'a str), String> {
    let kind = if kind.is_empty() { KIND } else { kind };
    let (group, given) = api_version.split_once('/').unwrap_or(("", api_version));
    if given.contains('/') {
        return Err(format!("unexpected GroupVersion string: {api_version}"));
    }
    let (group, given) = match (group, given) {
        ("" | GROUP, "") => (GROUP, version.package()),
        said => said,
    };
    match (group, given, kind) {
        (GROUP, "v1" | "v1beta1", KIND) => Ok((given, kind)),
        // What Go registers in every group, and what has no group at all.
        (
            GROUP,
            "v1" | "v1beta1",
            "WatchEvent" | "ListOptions" | "GetOptions" | "DeleteOptions" | "CreateOptions" | "UpdateOptions"
            | "PatchOptions",
        )
        | (_, _, "Status" | "APIVersions" | "APIGroup" | "APIGroupList" | "APIResourceList") => Ok(("v1", kind)),
        _ => Err(schema::unregistered(kind, &schema::group_version(group, given))),
    }
}

impl Response {
    /// Reads its fields in the words of Go's decoder.
    fn read(package: &str, fields: &Map<String, Value>) -> Result<Self, String> {
        let mut response = Self::default();
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            let wrong = |value: &Value, expected: &str| {
                let field = format!("AdmissionResponse.response.{name}");
                type_error(value, &field, expected)
            };
            let text = |value: &Value| match value {
                Value::Null => Ok(String::new()),
                Value::String(text) => Ok(text.clone()),
                other => Err(wrong(other, "string")),
            };
            match (name.as_str(), value) {
                ("uid", Value::String(uid)) => response.uid.clone_from(uid),
                ("uid", other) => return Err(wrong(other, "types.UID")),
                ("allowed", Value::Bool(allowed)) => response.allowed = *allowed,
                ("allowed", other) => return Err(wrong(other, "bool")),
                ("status", Value::Object(_)) => {
                    let status = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
                    response.status = Some(status);
                }
                ("status", other) => return Err(wrong(other, "v1.Status")),
                ("patch", Value::String(patch)) => {
                    response.patch = binary::STANDARD.decode(patch).map_err(|error| error.to_string())?;
                }
                ("patch", other) => return Err(wrong(other, "[]uint8")),
                ("patchType", Value::String(patch_type)) => response.patch_type = Some(patch_type.clone()),
                ("patchType", other) => return Err(wrong(other, &format!("{package}.PatchType"))),
                ("auditAnnotations", Value::Object(annotations)) => {
                    for (key, value) in annotations {
                        response.audit_annotations.insert(key.clone(), text(value)?);
                    }
                }
                ("auditAnnotations", other) => return Err(wrong(other, "map[string]string")),
                ("warnings", Value::Array(warnings)) => {
                    response.warnings = warnings.iter().map(text).collect::<Result<_, _>>()?;
                }
                ("warnings", other) => return Err(wrong(other, "[]string")),
                _ => {}
            }
        }
        Ok(response)
    }
}

fn type_error(value: &Value, field: &str, expected: &str) -> String {
    let given = schema::json_type(value);
    format!("json: cannot unmarshal {given} into Go struct field {field} of type {expected}")
}

/// The one type of patches that webhooks may answer.
pub(super) const JSON_PATCH: &str = "JSONPatch";

fn check_patch(mutates: bool, has_patch: bool, patch_type: Option<&str>) -> Result<(), &'static str> {
    match (mutates, has_patch, patch_type) {
        (true, true, None) => Err("webhook returned response.patch but not response.patchType"),
        (true, false, Some(_)) => Err("webhook returned response.patchType but not response.patch"),
        (true, true, Some("")) => Err("webhook returned invalid response.patchType of \"\""),
        (false, true, _) => Err("validating webhook may not return response.patch"),
        (false, false, Some(_)) => Err("validating webhook may not return response.patchType"),
        (true | false, _, _) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
