//! A whole API server for one kind: flunders of `wardle.example.com/v1alpha1`, as Go's `k8s.io/sample-apiserver` has them.
//!
//! It stands behind a cluster, which knows its users, what they may do and which namespaces there are. It needs a certificate
//! to serve with, a kubeconfig for the cluster, and an APIService that leads to it; the README says how to try it on the test
//! bed. Flunders live as long as the process: a `Log` on files or on etcd in place of `MemoryLog` keeps them.

use std::{error::Error, sync::Arc};

use clap::Parser;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stoa_machinery::{
    ResourceDefinition, Strategy,
    log::MemoryLog,
    options::RecommendedOptions,
    serve::{self, ExtensionServer},
    status::FieldError,
};

/// A flunder refers to another one, or to a fischer.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "wardle.example.com", version = "v1alpha1", kind = "Flunder", namespaced, status = "FlunderStatus")]
#[kube(printcolumn(name = "Reference", type_ = "string", json_path = ".spec.reference"))]
#[kube(printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"))]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FlunderSpec {
    /// A name of another flunder or fischer, depending on the reference type.
    #[serde(skip_serializing_if = "String::is_empty")]
    reference: String,
    /// The reference type, defaults to "Flunder" if reference is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    reference_type: Option<String>,
}

/// What is known of a flunder: nothing yet. It is written through the subresource `status` alone.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FlunderStatus {}

/// What a write of a flunder means.
#[derive(Debug)]
struct FlunderStrategy;

impl Strategy for FlunderStrategy {
    type Object = Flunder;

    fn set_defaults(&self, flunder: &mut Flunder) {
        flunder.spec.set_defaults();
    }

    fn validate(&self, flunder: &Flunder) -> Vec<FieldError> {
        flunder.spec.validate()
    }

    /// Whoever updates a flunder says which version they have seen.
    fn allow_unconditional_update(&self) -> bool {
        false
    }
}

impl FlunderSpec {
    pub(crate) fn set_defaults(&mut self) {
        if !self.reference.is_empty() && self.reference_type.as_deref().is_none_or(str::is_empty) {
            self.reference_type = Some("Flunder".to_owned());
        }
        // A reference of no known type means nothing, and goes.
        if !matches!(self.reference_type.as_deref(), Some("Flunder" | "Fischer")) {
            *self = Self::default();
        }
    }

    pub(crate) fn validate(&self) -> Vec<FieldError> {
        let empty = |field, kind| {
            let detail = format!("cannot be empty if referenceType is {kind}");
            vec![FieldError::invalid(field, "", detail)]
        };
        match (self.reference.as_str(), self.reference_type.as_deref()) {
            ("", Some("Flunder")) => empty("spec.flunderReference", "Flunder"),
            ("", Some("Fischer")) => empty("spec.fischerReference", "Fischer"),
            _ => Vec::new(),
        }
    }
}

/// Serves flunders behind a cluster.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    server: RecommendedOptions,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_env_filter("info").with_writer(std::io::stderr).init();
    let options = Options::parse();
    let server = ExtensionServer::connect(&options.server).await?;
    let registry = server
        .registry(Arc::new(MemoryLog::new()))
        .register(ResourceDefinition::of::<Flunder>(), FlunderStrategy)
        .build()
        .await?;
    server.run(&registry, serve::shutdown_signal()?).await?;
    Ok(())
}
