//! Serves the Kubernetes API for any resource definition, the way Go's `k8s.io/apiserver` does.
//!
//! A server is made of [`ResourceDefinition`]s (what a resource looks like), a [`Strategy`] for
//! each (what its writes mean), and one [`Log`] (where every write is ordered and kept). The
//! [`registry`] joins the three and is what controllers in the same process call; [`http`] puts
//! it on the wire; [`serve`] puts that behind TLS with authentication and authorization.
//!
//! This crate knows no kind: everything it serves is described to it. It is a facade: the code is in `stoa-log`, `stoa-meta`,
//! `stoa-registry`, `stoa-admission` and `stoa-serving`, of which each depends on those before it alone.
//!
//! # A kind
//!
//! A kind is a Rust type with kube's derive `CustomResource`, as its clients have it, and a strategy. Everything that all
//! kinds share is the registry's: versions, generations, finalizers, conflicts, server-side apply, watches.
//!
//! ```
//! use std::sync::Arc;
//!
//! use kube::CustomResource;
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//! use stoa_machinery::{Registry, ResourceDefinition, Strategy, log::MemoryLog, status::FieldError};
//!
//! /// What a flunder is to be.
//! #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! #[kube(group = "wardle.example.com", version = "v1alpha1", kind = "Flunder", namespaced)]
//! struct FlunderSpec {
//!     /// The name of another flunder.
//!     reference: String,
//! }
//!
//! /// What a write of a flunder means.
//! #[derive(Debug)]
//! struct FlunderStrategy;
//!
//! impl Strategy for FlunderStrategy {
//!     type Object = Flunder;
//!
//!     fn validate(&self, flunder: &Flunder) -> Vec<FieldError> {
//!         match flunder.spec.reference.as_str() {
//!             "" => vec![FieldError::required("spec.reference", "a flunder refers to another one")],
//!             _ => Vec::new(),
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = Registry::builder(Arc::new(MemoryLog::new()))
//!     .register(ResourceDefinition::of::<Flunder>(), FlunderStrategy)
//!     .build()
//!     .await?;
//!
//! // What controllers in the same process call; clients elsewhere get the same by HTTP.
//! let flunders = registry.api::<Flunder>();
//! let mut flunder = Flunder::new("a", FlunderSpec { reference: String::new() });
//! flunder.metadata.namespace = Some("shop".to_owned());
//! let refused = flunders.create(&flunder).await.unwrap_err();
//! assert_eq!(
//!     refused.message(),
//!     r#"Flunder.wardle.example.com "a" is invalid: spec.reference: Required value: a flunder refers to another one"#
//! );
//!
//! flunder.spec.reference = "b".to_owned();
//! let created = flunders.create(&flunder).await?;
//! assert_eq!(created.metadata.generation, Some(1));
//! assert!(created.metadata.resource_version.is_some());
//! # Ok(())
//! # }
//! ```
//!
//! # A server
//!
//! [`serve::ExtensionServer`] puts a registry behind a cluster's aggregation layer, from the flags that every such server
//! has. With the kind from above, this is the whole program; `examples/flunders.rs` is the same with a little more of a kind.
//!
//! ```no_run
//! # use kube::CustomResource;
//! # use schemars::JsonSchema;
//! # use serde::{Deserialize, Serialize};
//! # use stoa_machinery::{ResourceDefinition, Strategy};
//! # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! # #[kube(group = "wardle.example.com", version = "v1alpha1", kind = "Flunder", namespaced)]
//! # struct FlunderSpec {}
//! # #[derive(Debug)]
//! # struct FlunderStrategy;
//! # impl Strategy for FlunderStrategy {
//! #     type Object = Flunder;
//! # }
//! use std::sync::Arc;
//!
//! use clap::Parser;
//! use stoa_machinery::{log::MemoryLog, options::RecommendedOptions, serve::{self, ExtensionServer}};
//!
//! #[derive(Parser)]
//! struct Options {
//!     #[command(flatten)]
//!     server: RecommendedOptions,
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let server = ExtensionServer::connect(&Options::parse().server).await?;
//!     let registry = server
//!         .registry(Arc::new(MemoryLog::new()))
//!         .register(ResourceDefinition::of::<Flunder>(), FlunderStrategy)
//!         .build()
//!         .await?;
//!     server.run(&registry, serve::shutdown_signal()?).await?;
//!     Ok(())
//! }
//! ```

#[cfg(feature = "fuzzing")]
pub mod fuzzing;

pub use stoa_backoff as backoff;
pub use stoa_log as log;
#[cfg(feature = "conformance")]
pub use stoa_log::log_conformance_tests;
pub use stoa_log::{Key, Log, Version};
pub use stoa_meta::{
    content,
    definition::{self, ResourceDefinition, Scope},
    object::{self, Object},
    request::{self, RequestContext},
    schema, selector,
    status::ApiError,
};
pub use stoa_outbound as outbound;
pub use stoa_registry::{
    metrics,
    registry::Registry,
    strategy::{self, Strategy},
};
pub use stoa_serving::{audit, auth, discovery, http, openapi, options, profile};

/// Admission: the chain of plugins, and the plugins that a cluster configures.
pub mod admission {
    pub use stoa_admission::{PLUGINS, UnknownPlugin, cluster, of_cluster, policy, webhook};
    pub use stoa_registry::admission::{
        AdmissionPlugin, Attributes, Chain, Metrics, NamespaceLifecycle, Operation, Reinvocation, Visibility,
    };
}

/// The resources of one server over one log.
pub mod registry {
    pub use stoa_admission::ClusterNamespaces;
    pub use stoa_registry::registry::*;
}

/// The server: TLS, the filters in front of the API, health, metrics, and an orderly end.
pub mod serve {
    pub use stoa_serving::{extension::ExtensionServer, serve::*};
}

/// Errors as clients get them: `Status` of `meta.k8s.io/v1`.
pub mod status {
    pub use stoa_admission::cluster::api_error;
    pub use stoa_meta::status::*;
}

/// The example of the README, which is compiled with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
