//! Greeting: a text for the users of the platform.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The desired state of a Greeting.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "platform.stoa.dev",
    version = "v1alpha1",
    kind = "Greeting",
    plural = "greetings",
    singular = "greeting",
    shortname = "greet",
    category = "stoa",
    derive = "Default",
    derive = "PartialEq",
    doc = "Greeting is a text for the users of the platform."
)]
#[serde(rename_all = "camelCase")]
pub struct GreetingSpec {
    /// The text.
    pub text: String,
}
