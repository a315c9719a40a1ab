//! The names of kinds, as their types have them.

use std::borrow::Cow;

use kube::Resource;

fn literal(name: Cow<'static, str>) -> &'static str {
    match name {
        Cow::Borrowed(name) => name,
        Cow::Owned(name) => unreachable!("{name}: a derived name is a literal"),
    }
}

/// The API group, such as `config.stoa.dev`.
pub fn group<K: Resource<DynamicType = ()>>() -> &'static str {
    literal(K::group(&()))
}

/// The version, such as `v1alpha1`.
pub fn version<K: Resource<DynamicType = ()>>() -> &'static str {
    literal(K::version(&()))
}

/// The kind, such as `Stack`.
pub fn kind<K: Resource<DynamicType = ()>>() -> &'static str {
    literal(K::kind(&()))
}

/// The resource, such as `stacks`.
pub fn plural<K: Resource<DynamicType = ()>>() -> &'static str {
    literal(K::plural(&()))
}

/// Group, version and kind of a body in the group of `K`.
pub fn sibling<K: Resource<DynamicType = ()>>(kind: &'static str) -> (&'static str, &'static str, &'static str) {
    (group::<K>(), version::<K>(), kind)
}
