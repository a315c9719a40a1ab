//! Properties of requests, headers and audit policies, as functions for a fuzzer to call; see [`stoa_meta::fuzzing`].

pub use stoa_meta::fuzzing::Target;

use crate::{audit, auth, http};

/// All targets of this crate.
pub const TARGETS: &[Target] = &[
    ("bodies", http::configuration::fuzzing::bodies),
    ("queries", http::query::fuzzing::queries),
    ("accept", http::negotiate::fuzzing::accept),
    ("websocket", http::websocket::fuzzing::websocket),
    ("gzip", http::segments::fuzzing::gzip),
    ("front_proxy", auth::fuzzing::front_proxy),
    ("audit_policies", audit::fuzzing::audit_policies),
];
