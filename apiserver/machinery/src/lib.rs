#![doc = include_str!("../README.md")]

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
