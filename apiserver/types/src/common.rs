//! Shapes that several kinds share.

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// Reads an empty text as none, since clients write the one for the other.
pub(crate) fn non_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.is_empty()))
}

/// Whether a number is 0, which JSON leaves out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
pub(crate) fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// A user, group or service account, as in `rbac.authorization.k8s.io/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// The kind of the subject: User, Group or ServiceAccount.
    pub kind: String,
    /// The name of the subject.
    pub name: String,
    /// The API group of the subject. Defaults to `rbac.authorization.k8s.io` for User and Group; empty for
    /// ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// The namespace of a ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// A user who changed an object that decides about automatic runs, and the time of the last change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedBy {
    /// The user name. `system:stoa:others` stands for users whom the list has no room for; any user may be one of them.
    pub name: String,
    /// The time of the user's last change, always later than the times recorded before.
    pub time: MicroTime,
}

/// A folder or file that a Source lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingFolder {
    /// The path of the folder or file, from the root of the Source.
    pub path: String,
    /// The commit of the Source that lacks it.
    pub commit: String,
}

/// A reference to an object of another kind, in the same namespace or cluster-scoped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LocalReference {
    /// The name of the object.
    pub name: String,
}

/// A reference to a Secret. All of its keys are used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretReference {
    /// The namespace of the Secret. An object in a namespace may only name a Secret of that namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the Secret.
    pub name: String,
}

/// A reference to one key of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretKeyReference {
    /// The namespace of the Secret.
    pub namespace: String,
    /// The name of the Secret.
    pub name: String,
    /// The key in the Secret's data.
    pub key: String,
}

/// A reference to one key of a Secret in the namespace of the object that names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LocalSecretKeyReference {
    /// The name of the Secret.
    pub name: String,
    /// The key in the Secret's data.
    pub key: String,
}

/// The policy for live infrastructure when the object that stands for it is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// The deletion is refused while infrastructure is live.
    #[default]
    Refuse,
    /// The infrastructure is destroyed first.
    Destroy,
    /// The infrastructure stays and is no longer known to Stoa.
    Orphan,
}

/// A duration as Go writes it, such as `30s`, `1h30m` or `0s`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct DurationString(pub String);

impl DurationString {
    /// A duration of `COUNT` seconds.
    pub fn seconds<const COUNT: u32>() -> Self {
        Self(format!("{COUNT}s"))
    }

    /// A duration of `COUNT` minutes.
    pub fn minutes<const COUNT: u32>() -> Self {
        Self(format!("{COUNT}m"))
    }

    /// A duration of `COUNT` hours.
    pub fn hours<const COUNT: u32>() -> Self {
        Self(format!("{COUNT}h"))
    }

    /// The length.
    ///
    /// # Errors
    ///
    /// When the text is not a sequence of numbers with units `ns`, `us`, `ms`, `s`, `m` or `h`.
    pub fn parse(&self) -> Result<Duration, InvalidDuration> {
        let invalid = || InvalidDuration(self.0.clone());
        if self.0 == "0" {
            return Ok(Duration::ZERO);
        }
        let mut rest = self.0.as_str();
        let mut total = 0.0_f64;
        if rest.is_empty() {
            return Err(invalid());
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(invalid)?;
            let (number, tail) = rest.split_at(digits);
            let unit_len = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_len);
            let number: f64 = number.parse().map_err(|_| invalid())?;
            let seconds = match unit {
                "ns" => 1e-9,
                "us" | "µs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return Err(invalid()),
            };
            total += number * seconds;
            rest = tail;
        }
        Duration::try_from_secs_f64(total).map_err(|_| invalid())
    }
}

impl From<&str> for DurationString {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for DurationString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration such as 30s or 1h30m")]
pub struct InvalidDuration(String);

/// Returns the condition of a type, if it exists.
pub fn condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// The schema of a list of conditions, keyed by type.
pub(crate) fn conditions_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut schema = generator.subschema_for::<Vec<Condition>>();
    schema.insert("x-kubernetes-list-type".to_owned(), "map".into());
    schema.insert("x-kubernetes-list-map-keys".to_owned(), serde_json::json!(["type"]));
    schema
}

/// The schema of an optional policy. The description is that of the field, not of the type.
pub(crate) fn deletion_policy_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "enum": ["Refuse", "Destroy", "Orphan"], "nullable": true })
}

/// The schema of an object of any shape, with all of its fields.
pub(crate) fn any_object_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// The schema of bytes, which are base64 in JSON.
pub(crate) fn bytes_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "format": "byte" })
}
