//! `AdmissionReview`: what a webhook is asked, and what may be made of its answer.
//!
//! Follows `pkg/admission/plugin/webhook/request`.

use std::{collections::BTreeMap, fmt};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    admission::Attributes,
    object::Object,
    request::UserInfo,
    schema::{self, Format},
};

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
pub(in crate::admission) fn request(attributes: &Attributes<'_>) -> Map<String, Value> {
    let definition = attributes.definition;
    let crate::ResourceDefinition { group, version, kind, .. } = attributes.kind;
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

/// The review to send.
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
    let review = json!({"kind": "AdmissionReview", "apiVersion": version.api_version(), "request": request});
    serde_json::to_vec(&review).expect("a JSON value serializes")
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    response: Option<Response>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Response {
    uid: String,
    allowed: bool,
    status: Option<Status>,
    patch: Option<String>,
    patch_type: Option<String>,
    audit_annotations: Option<BTreeMap<String, String>>,
    warnings: Option<Vec<String>>,
}

/// What a webhook answered.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) allowed: bool,
    pub(super) status: Option<Status>,
    /// The decoded patch, when there is one, and what type it says to have.
    pub(super) patch: Option<(Vec<u8>, String)>,
    pub(super) audit_annotations: BTreeMap<String, String>,
    pub(super) warnings: Vec<String>,
}

/// Reads an answer.
///
/// # Errors
///
/// Why it is none, as upstream says it.
pub(super) fn decode(version: ReviewVersion, uid: &str, mutates: bool, body: &[u8]) -> Result<Answer, String> {
    let invalid = |text: String| format!("received invalid webhook response: {text}");
    let malformed = |error: &dyn fmt::Display| {
        format!("failed to call webhook: couldn't get version/kind; json parse error: {error}")
    };
    // With what Go lets pass, such as halves of characters and fields that stand twice.
    let review = schema::parse(body, Format::Json).map_err(|error| malformed(&error))?;
    let review: Review = serde_json::from_value(review.value).map_err(|error| malformed(&error))?;
    let response = review.response.ok_or_else(|| invalid("webhook response was absent".to_owned()))?;
    let patch = response.patch.as_deref().filter(|patch| !patch.is_empty());
    let patch = patch.map(|patch| BASE64_STANDARD.decode(patch)).transpose();
    let patch = patch.map_err(|error| invalid(format!("illegal base64 data: {error}")))?;
    let patch_type = match version {
        ReviewVersion::V1Beta1 => patch.is_some().then(|| JSON_PATCH.to_owned()),
        ReviewVersion::V1 => {
            if response.uid != uid {
                return Err(invalid(format!("expected response.uid={uid:?}, got {:?}", response.uid)));
            }
            if (review.api_version.as_str(), review.kind.as_str()) != ("admission.k8s.io/v1", "AdmissionReview") {
                return Err(invalid(format!(
                    "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {}, Kind={}",
                    if review.api_version.is_empty() { "/" } else { &review.api_version },
                    review.kind
                )));
            }
            check_patch(mutates, patch.is_some(), response.patch_type.as_deref()).map_err(|e| invalid(e.to_owned()))?;
            response.patch_type
        }
    };
    Ok(Answer {
        allowed: response.allowed,
        status: response.status,
        patch: patch.filter(|_| mutates).map(|patch| (patch, patch_type.unwrap_or_default())),
        audit_annotations: response.audit_annotations.unwrap_or_default(),
        warnings: response.warnings.unwrap_or_default(),
    })
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
