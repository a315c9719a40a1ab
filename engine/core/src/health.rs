//! Names of health policies: the extension, the annotations and the expressions, for checks and evaluation.

/// The extension with a policy.
pub const POLICY: &str = "healthPolicy";

/// The annotation with the expression for what is in progress.
pub const IN_PROGRESS: &str = "stoa.dev/health-in-progress";

/// The annotation with the expression for what has failed.
pub const FAILED: &str = "stoa.dev/health-failed";

/// The annotation with the expression for what is as it should be.
pub const CURRENT: &str = "stoa.dev/health-current";

/// The whole object as a variable, for fields that are none.
pub const OBJECT: &str = "object";

/// The variables of an expression: fields of the live object, and the whole.
pub const VARIABLES: &[&str] = &["apiVersion", "kind", "metadata", "spec", "status", "data", OBJECT];
