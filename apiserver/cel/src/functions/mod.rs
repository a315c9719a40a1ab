//! The functions that expressions may call: CEL's own and those that Kubernetes adds.
//!
//! Each submodule has the functions of one subject and says which names it knows, so that an expression which calls
//! another is refused when its policy is read.

mod collections;
mod convert;
mod kubernetes;
mod patterns;
mod strings;
mod time;
mod versions;

pub(super) use convert::{TYPES, display, show};
pub(super) use patterns::Patterns;

use super::{
    budget::Budget,
    eval::{Error, Outcome},
    value::Value,
};

/// A call of a function.
#[derive(Debug)]
pub(super) struct Invocation<'c, 'a> {
    /// The name before the dot when that is no value, such as `sets`.
    pub(super) namespace: Option<&'c str>,
    pub(super) name: &'c str,
    /// Whether the first argument stands before the dot.
    pub(super) receiver: bool,
    pub(super) args: &'c [Value<'a>],
}

/// Calls a function.
pub(super) fn call<'a>(invocation: &Invocation<'_, 'a>, budget: &mut Budget, patterns: &mut Patterns) -> Outcome<'a> {
    convert::call(invocation, budget)
        .or_else(|| strings::call(invocation, budget, patterns))
        .or_else(|| collections::call(invocation, budget))
        .or_else(|| kubernetes::call(invocation, budget))
        .or_else(|| time::call(invocation))
        .or_else(|| versions::call(invocation))
        .unwrap_or_else(|| Err(Error::no_such_overload()))
}

/// How many steps a call takes besides what it costs to go through its arguments.
pub(super) fn cost(invocation: &Invocation<'_, '_>) -> usize {
    collections::cost(invocation)
}

/// Whether there is a function of that name.
pub(super) fn is_known(name: &str) -> bool {
    [convert::NAMES, strings::NAMES, collections::NAMES, kubernetes::NAMES, time::NAMES, versions::NAMES, SPECIAL]
        .iter()
        .any(|names| names.contains(&name))
}

/// Whether functions are found under that name, which is no value then.
pub(super) fn is_namespace(name: &str) -> bool {
    ["optional", "sets", "lists", "ip", "cidr", "cel", "strings", "jsonpatch"].contains(&name)
}

/// The names that are no functions of values alone.
const SPECIAL: &[&str] = &[
    "optMap",
    "optFlatMap",
    "bind", // The authorizer's.
    "path",
    "group",
    "serviceAccount",
    "resource",
    "subresource",
    "namespace",
    "name",
    "fieldSelector",
    "labelSelector",
    "check",
    "allowed",
    "reason",
    "errored",
    "error",
];
