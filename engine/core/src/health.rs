//! What expressions of health policies are made of, for those who check and those who evaluate them.

/// The whole object as a variable, for fields that are none.
pub const OBJECT: &str = "object";

/// The variables of an expression: fields of the live object, and the whole.
pub const VARIABLES: &[&str] = &["apiVersion", "kind", "metadata", "spec", "status", "data", OBJECT];
