//! NotificationSink: who is told of what happens.

use k8s_openapi::{
    ByteString,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, Time},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Condition, DurationString, SecretKeyReference, Subject, bytes_schema, conditions_schema};

/// What a NotificationSink is to be.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "platform.stoa.dev",
    version = "v1alpha1",
    kind = "NotificationSink",
    plural = "notificationsinks",
    singular = "notificationsink",
    shortname = "nsink",
    category = "stoa",
    status = "NotificationSinkStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "NotificationSink is an HTTP endpoint that is told of what happens to runs, workflows, releases, stacks and workspaces: CloudEvents, signed as in Standard Webhooks, delivered at least once and in order for each stack. What is given up is kept and can be delivered again."
)]
#[serde(rename_all = "camelCase")]
pub struct NotificationSinkSpec {
    /// What the sink is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Who is responsible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// Where events are posted: https, or http of a loopback address. Whoever reads the sink reads it; redirects are not
    /// followed.
    pub url: String,
    /// The key of a Secret that holds what events are signed with: a key on each line, `whsec_` and base64 or any other text of
    /// at least 24 bytes. All of them sign, so that one can be exchanged for another without a gap.
    pub secret_ref: SecretKeyReference,
    /// The certificate authorities that the endpoint's certificate is checked with, PEM; absent: those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bytes_schema")]
    pub ca_bundle: Option<ByteString>,
    /// What the source of events begins with, such as `https://stoa.example.com`; absent: it is an API path.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// The types of events, such as dev.stoa.run.failed, or all with the same beginning, such as dev.stoa.run.*; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub events: Vec<String>,
    /// The organizations whose events are told; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub organizations: Vec<String>,
    /// The same by the labels of the Organization, as they are when the event happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub organization_selector: Option<LabelSelector>,
    /// The projects whose events are told; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub projects: Vec<String>,
    /// The stacks whose events are told; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub stacks: Vec<String>,
    /// The workspaces whose events are told; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub workspaces: Vec<String>,
    /// How long an answer may take, as a duration such as 10s.
    #[serde(default = "default_timeout")]
    pub timeout: DurationString,
    /// How often and how long an event is tried.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// Whether nothing is sent for now. Events are sent later, as far back as the history reaches.
    #[serde(default)]
    pub suspend: bool,
}

fn default_timeout() -> DurationString {
    "10s".into()
}

/// How often and how long an event is tried. Whichever limit comes first, it is kept as a dead letter then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetryPolicy {
    /// How many times at most; absent: as many as maxAge allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i64>,
    /// How old an event may be for another try, as a duration such as 24h.
    #[serde(default = "default_max_age")]
    pub max_age: DurationString,
    /// How long to wait after the first try. It doubles with each, less a random part of up to a half; an answer's
    /// Retry-After counts when it is longer.
    #[serde(default = "default_min_backoff")]
    pub min_backoff: DurationString,
    /// How long to wait at most.
    #[serde(default = "default_max_backoff")]
    pub max_backoff: DurationString,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: None,
            max_age: default_max_age(),
            min_backoff: default_min_backoff(),
            max_backoff: default_max_backoff(),
        }
    }
}

fn default_max_age() -> DurationString {
    "24h".into()
}

fn default_min_backoff() -> DurationString {
    "1s".into()
}

fn default_max_backoff() -> DurationString {
    "5m".into()
}

/// How a NotificationSink is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotificationSinkStatus {
    /// How many events were given up and are kept; GET notificationsinks/deadletters shows them.
    #[serde(default)]
    pub dead_letters: i64,
    /// How many of them were dropped for newer ones.
    #[serde(default)]
    pub dropped_dead_letters: i64,
    /// How many times history was gone before it was told.
    #[serde(default)]
    pub gaps: i64,
    /// The last of those times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_gap: Option<Gap>,
    /// Ready: the last event was taken, or none had to be sent yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// A stretch of history that was gone before it was told. Of what happened in it, the sink was told what the objects still
/// said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// The resourceVersion that everything was told up to.
    pub from: String,
    /// The resourceVersion from which on everything is told again.
    pub to: String,
    /// When it was found.
    pub time: Time,
}
