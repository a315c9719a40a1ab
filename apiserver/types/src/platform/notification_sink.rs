//! NotificationSink: an endpoint that receives events.

use k8s_openapi::{
    ByteString,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, Time},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Condition, DurationString, SecretKeyReference, Subject, bytes_schema, conditions_schema};

/// The desired state of a NotificationSink.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "platform.stoa.dev",
    version = "v1alpha1",
    kind = "NotificationSink",
    shortname = "nsink",
    category = "stoa",
    status = "NotificationSinkStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "NotificationSink is an HTTP endpoint that receives events about runs, workflows, releases, stacks and workspaces. Events are CloudEvents, signed as in Standard Webhooks, and delivered at least once and in order for each stack. Undelivered events become dead letters, which can be delivered again."
)]
#[serde(rename_all = "camelCase")]
pub struct NotificationSinkSpec {
    /// A description of the sink for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The owners of the sink.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// The URL to which events are posted: https, or http of a loopback address. Every reader of the sink can read it.
    /// Redirects are not followed.
    pub url: String,
    /// The key of a Secret that holds the signing keys, one a line: `whsec_` and base64, or any other text of at least
    /// 24 bytes. All of them sign, so that a key can be exchanged without a gap.
    pub secret_ref: SecretKeyReference,
    /// The certificate authorities that verify the endpoint's certificate, PEM. Absent: those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bytes_schema")]
    pub ca_bundle: Option<ByteString>,
    /// The prefix of the events' source, such as `https://stoa.example.com`. Empty: the source is an API path.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// The types of events to send, such as dev.stoa.run.failed, or dev.stoa.run.* for all with that prefix. Empty: all
    /// types.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub events: Vec<String>,
    /// The organizations whose events are sent. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub organizations: Vec<String>,
    /// The selector of organizations by the labels of the Organization, as of the time of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub organization_selector: Option<LabelSelector>,
    /// The projects whose events are sent. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub projects: Vec<String>,
    /// The stacks whose events are sent. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub stacks: Vec<String>,
    /// The workspaces whose events are sent. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub workspaces: Vec<String>,
    /// The time allowed for an answer, as a duration such as 10s. Defaults to 10s.
    #[serde(default = "DurationString::seconds::<10>")]
    pub timeout: DurationString,
    /// The limits on attempts for an event.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// Whether delivery is suspended. Events are sent later, as far back as the history reaches.
    #[serde(default)]
    pub suspend: bool,
}

/// The limits on attempts for an event. The event becomes a dead letter at the first limit that it reaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetryPolicy {
    /// The maximum number of attempts. Absent: maxAge alone limits them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i64>,
    /// The maximum age of an event for another attempt, as a duration such as 24h. Defaults to 24h.
    #[serde(default = "DurationString::hours::<24>")]
    pub max_age: DurationString,
    /// The wait after the first attempt. It doubles with each attempt, less a random part of up to a half. A longer
    /// Retry-After of the answer takes precedence. Defaults to 1s.
    #[serde(default = "DurationString::seconds::<1>")]
    pub min_backoff: DurationString,
    /// The maximum wait between two attempts. Defaults to 5m.
    #[serde(default = "DurationString::minutes::<5>")]
    pub max_backoff: DurationString,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: None,
            max_age: DurationString::hours::<24>(),
            min_backoff: DurationString::seconds::<1>(),
            max_backoff: DurationString::minutes::<5>(),
        }
    }
}

/// The observed state of a NotificationSink.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NotificationSinkStatus {
    /// The number of dead letters: undelivered events that are recorded. GET notificationsinks/deadletters shows them.
    pub dead_letters: i64,
    /// The number of dead letters that were dropped for newer ones.
    pub dropped_dead_letters: i64,
    /// The number of times that history expired before it was delivered.
    pub gaps: i64,
    /// The last of those times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_gap: Option<Gap>,
    /// The conditions of the sink. Ready: the endpoint accepted the last event, or no event was due yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// A part of history that expired before it was delivered. Of its events, the sink received those that the objects
/// still showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// The resourceVersion up to which all events were sent.
    pub from: String,
    /// The resourceVersion from which all events are sent again.
    pub to: String,
    /// The time at which the gap was found.
    pub time: Time,
}
