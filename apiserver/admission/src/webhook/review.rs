//! `AdmissionReview`: the request to a webhook, and the reading of its answer.
//!
//! Follows `pkg/admission/plugin/webhook/request`, and what `pkg/util/webhook` reads answers with.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use stoa_meta::{
    object::Object,
    request::UserInfo,
    schema::{self, Format, binary},
    status::quote,
};
use stoa_registry::admission::Attributes;

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

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    status: Option<Status>,
    /// In base64; empty when there is none.
    patch: String,
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
    let mut review = parse(body).map_err(failed)?;
    let response = response(&mut review).map_err(failed)?.ok_or_else(|| invalid("webhook response was absent"))?;
    let said = |field: &str| review.get(field).and_then(Value::as_str).unwrap_or("");
    let (own, api_version, kind) = (version.api_version(), said("apiVersion"), said("kind"));
    let (is_own, patch_type) = match version {
        // Reviews of this version may omit both, the uid, and the type of the patch.
        ReviewVersion::V1Beta1 => {
            (["", own].contains(&api_version) && ["", KIND].contains(&kind), JSON_PATCH.to_owned())
        }
        ReviewVersion::V1 => {
            if response.uid != uid {
                let (expected, given) = (quote(uid), quote(&response.uid));
                return Err(invalid(&format!("expected response.uid={expected}, got {given}")));
            }
            ((api_version, kind) == (own, KIND), response.patch_type.clone().unwrap_or_default())
        }
    };
    if !is_own {
        let api_version = if api_version.is_empty() { "/" } else { api_version };
        return Err(invalid(&format!(
            "expected webhook response of {own}, Kind={KIND}, got {api_version}, Kind={kind}"
        )));
    }
    if version == ReviewVersion::V1 {
        check_patch(mutates, !response.patch.is_empty(), response.patch_type.as_deref()).map_err(invalid)?;
    }
    let patch = binary::STANDARD.decode(&response.patch).map_err(|error| failed(error.to_string()))?;
    Ok(Answer {
        allowed: response.allowed,
        status: response.status,
        patch: Some(patch).filter(|patch| mutates && !patch.is_empty()).map(|patch| (patch, patch_type)),
        audit_annotations: response.audit_annotations,
        warnings: response.warnings,
    })
}

/// The fields of an answer in JSON or YAML, with halves of characters and fields that occur twice, which Go accepts.
pub(super) fn parse(body: &[u8]) -> Result<Map<String, Value>, String> {
    let format = if body.trim_ascii_start().starts_with(b"{") { Format::Json } else { Format::Yaml };
    match schema::parse(body, format).map_err(|error| error.to_string())?.value {
        Value::Object(fields) => Ok(fields),
        Value::Null => Ok(Map::new()),
        _ => Err("the answer is not an object".to_owned()),
    }
}

fn response(review: &mut Map<String, Value>) -> Result<Option<Response>, String> {
    let mut response = review.remove("response").unwrap_or_default();
    if let Value::Object(fields) = &mut response {
        // Go writes null for an empty list or map.
        fields.retain(|_, value| !value.is_null());
    }
    serde_json::from_value(response).map_err(|error| format!("response: {error}"))
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
