//! The functions that expressions may call: CEL's own and those that Kubernetes adds.
//!
//! Each submodule has the functions of one subject. `signatures` has the names of all, so that an expression which calls
//! another is refused when its policy is read.

mod addresses;
mod collections;
mod convert;
mod formats;
mod kubernetes;
mod patterns;
mod signatures;
mod strings;
mod template;
mod time;
mod versions;

pub(super) use collections::sort;
pub(super) use convert::{DOTTED_TYPES, TYPES, display, duration, in_time, show, timestamp};
pub(super) use formats::Format;
pub(super) use patterns::{Patterns, is_pattern};
pub(super) use signatures::{function, method, namespaced};

use super::{
    budget::Budget,
    eval::{Error, Outcome},
    value::Value,
};

#[derive(Debug)]
pub(super) struct Invocation<'c, 'a> {
    /// The name before the dot when that is no value, such as `sets`.
    pub(super) namespace: Option<&'c str>,
    pub(super) name: &'c str,
    /// Whether the first argument stands before the dot.
    pub(super) receiver: bool,
    pub(super) args: &'c [Value<'a>],
}

pub(super) fn call<'a>(invocation: &Invocation<'_, 'a>, budget: &mut Budget, patterns: &mut Patterns) -> Outcome<'a> {
    convert::call(invocation, budget)
        .or_else(|| strings::call(invocation, budget, patterns))
        .or_else(|| collections::call(invocation, budget))
        .or_else(|| kubernetes::call(invocation))
        .or_else(|| addresses::call(invocation))
        .or_else(|| formats::call(invocation, budget))
        .or_else(|| time::call(invocation))
        .or_else(|| versions::call(invocation))
        .unwrap_or_else(|| Err(Error::no_such_overload()))
}

/// How many steps a call takes besides what it costs to go through its arguments.
pub(super) fn cost(invocation: &Invocation<'_, '_>) -> usize {
    collections::cost(invocation)
}
