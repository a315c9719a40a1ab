//! `audit.k8s.io/v1 Event`, its fields in the order in which Go servers write them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusDetails;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use stoa_meta::request::UserInfo;

use crate::auth::Impersonated;

/// How much of a request is recorded.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Level {
    None,
    /// Who, what, when and how it ended.
    Metadata,
    Request,
    RequestResponse,
}

impl Level {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// When an event is written.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum Stage {
    RequestReceived,
    /// The head of the response is sent; only for what goes on, such as watches.
    ResponseStarted,
    ResponseComplete,
    Panic,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event<'a> {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) level: Level,
    #[serde(rename = "auditID")]
    pub(super) audit_id: &'a str,
    pub(super) stage: Stage,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: &'a str,
    pub(super) verb: &'a str,
    pub(super) user: User<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) impersonated_user: Option<User<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) authentication_metadata: Option<AuthenticationMetadata<'a>>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[_]>::is_empty")]
    pub(super) source_ips: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<&'a ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_status: Option<&'a ResponseStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_object: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_object: Option<&'a Value>,
    #[serde(serialize_with = "micro_time")]
    pub(super) request_received_timestamp: Timestamp,
    #[serde(serialize_with = "micro_time")]
    pub(super) stage_timestamp: Timestamp,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: &'a BTreeMap<String, String>,
}

/// `metav1.MicroTime`: always six digits.
fn micro_time<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ"))
}

#[derive(Debug, Serialize)]
pub(super) struct User<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
}

impl<'a> From<&'a UserInfo> for User<'a> {
    fn from(user: &'a UserInfo) -> Self {
        Self { username: &user.name, uid: &user.uid, groups: &user.groups, extra: &user.extra }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuthenticationMetadata<'a> {
    impersonation_constraint: &'a str,
}

impl<'a> AuthenticationMetadata<'a> {
    pub(super) fn of(impersonated: &'a Impersonated) -> Option<Self> {
        let impersonation_constraint = impersonated.constraint.as_str();
        (!impersonation_constraint.is_empty()).then_some(Self { impersonation_constraint })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subresource: String,
}

/// `metav1.Status` without its type, as events have it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct ResponseStatus {
    #[serde(default)]
    pub(super) metadata: NoMetadata,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) details: Option<StatusDetails>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<i32>,
}

/// `{}`, whatever was there.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct NoMetadata {}
