//! Which functions there are: by their names and how many arguments they take, as one may tell without their types.
//!
//! Those of `environment.MustBaseEnvSet` in `k8s.io/apiserver/pkg/cel` at Kubernetes 1.36, and three more: `sign` of a
//! quantity is a method as well, as its documentation has it; strings are reversed like lists; and `jsonpatch.escapeKey`
//! is there for other expressions than those of mutations too.

use super::formats;

/// What stands behind a value, and how many arguments it takes.
const METHODS: &[(&str, &[usize])] = &[
    ("add", &[1]),
    ("allowed", &[0]),
    ("asApproximateFloat", &[0]),
    ("asInteger", &[0]),
    ("charAt", &[1]),
    ("check", &[1]),
    ("compareTo", &[1]),
    ("contains", &[1]),
    ("containsCIDR", &[1]),
    ("containsIP", &[1]),
    ("distinct", &[0]),
    ("endsWith", &[1]),
    ("error", &[0]),
    ("errored", &[0]),
    ("family", &[0]),
    ("fieldSelector", &[1]),
    ("find", &[1]),
    ("findAll", &[1, 2]),
    ("first", &[0]),
    ("flatten", &[0, 1]),
    ("format", &[1]),
    ("getDate", &[0, 1]),
    ("getDayOfMonth", &[0, 1]),
    ("getDayOfWeek", &[0, 1]),
    ("getDayOfYear", &[0, 1]),
    ("getEscapedPath", &[0]),
    ("getFullYear", &[0, 1]),
    ("getHost", &[0]),
    ("getHostname", &[0]),
    ("getHours", &[0, 1]),
    ("getMilliseconds", &[0, 1]),
    ("getMinutes", &[0, 1]),
    ("getMonth", &[0, 1]),
    ("getPort", &[0]),
    ("getQuery", &[0]),
    ("getScheme", &[0]),
    ("getSeconds", &[0, 1]),
    ("group", &[1]),
    ("hasValue", &[0]),
    ("indexOf", &[1, 2]),
    ("ip", &[0]),
    ("isGlobalUnicast", &[0]),
    ("isGreaterThan", &[1]),
    ("isInteger", &[0]),
    ("isLessThan", &[1]),
    ("isLinkLocalMulticast", &[0]),
    ("isLinkLocalUnicast", &[0]),
    ("isLoopback", &[0]),
    ("isSorted", &[0]),
    ("isUnspecified", &[0]),
    ("join", &[0, 1]),
    ("labelSelector", &[1]),
    ("last", &[0]),
    ("lastIndexOf", &[1, 2]),
    ("lowerAscii", &[0]),
    ("major", &[0]),
    ("masked", &[0]),
    ("matches", &[1]),
    ("max", &[0]),
    ("min", &[0]),
    ("minor", &[0]),
    ("name", &[1]),
    ("namespace", &[1]),
    ("or", &[1]),
    ("orValue", &[1]),
    ("patch", &[0]),
    ("path", &[1]),
    ("prefixLength", &[0]),
    ("reason", &[0]),
    ("replace", &[2, 3]),
    ("resource", &[1]),
    ("reverse", &[0]),
    ("serviceAccount", &[2]),
    ("sign", &[0]),
    ("size", &[0]),
    ("slice", &[2]),
    ("sort", &[0]),
    ("split", &[1, 2]),
    ("startsWith", &[1]),
    ("sub", &[1]),
    ("subresource", &[1]),
    ("substring", &[1, 2]),
    ("sum", &[0]),
    ("trim", &[0]),
    ("unwrapOpt", &[0]),
    ("upperAscii", &[0]),
    ("validate", &[1]),
    ("value", &[0]),
];

/// What stands alone or in a namespace, but for formats, and how many arguments it takes.
const FUNCTIONS: &[(&str, &[usize])] = &[
    ("bool", &[1]),
    ("bytes", &[1]),
    ("cidr", &[1]),
    ("double", &[1]),
    ("duration", &[1]),
    ("dyn", &[1]),
    ("format.named", &[1]),
    ("int", &[1]),
    ("ip", &[1]),
    ("ip.isCanonical", &[1]),
    ("isCIDR", &[1]),
    ("isIP", &[1]),
    ("isQuantity", &[1]),
    ("isSemver", &[1, 2]),
    ("isURL", &[1]),
    ("jsonpatch.escapeKey", &[1]),
    ("lists.range", &[1]),
    ("matches", &[2]),
    ("optional.none", &[0]),
    ("optional.of", &[1]),
    ("optional.ofNonZeroValue", &[1]),
    ("optional.unwrap", &[1]),
    ("quantity", &[1]),
    ("semver", &[1, 2]),
    ("sets.contains", &[2]),
    ("sets.equivalent", &[2]),
    ("sets.intersects", &[2]),
    ("sign", &[1]),
    ("size", &[1]),
    ("string", &[1]),
    ("strings.quote", &[1]),
    ("timestamp", &[1]),
    ("type", &[1]),
    ("uint", &[1]),
    ("url", &[1]),
];

/// The namespaces that functions are in.
const NAMESPACES: [&str; 7] = ["format", "ip", "jsonpatch", "lists", "optional", "sets", "strings"];

/// How many arguments a method takes; nothing where there is none of that name.
pub(in super::super) fn method(name: &str) -> Option<&'static [usize]> {
    find(METHODS, |known| known == name)
}

/// How many arguments a function takes that is in no namespace; nothing where there is none of that name.
pub(in super::super) fn function(name: &str) -> Option<&'static [usize]> {
    find(FUNCTIONS, |known| known == name)
}

/// How many arguments a function of a namespace takes; nothing where it has none of that name.
pub(in super::super) fn namespaced(namespace: &str, name: &str) -> Option<&'static [usize]> {
    // Most of what stands before a dot is none, and this is asked wherever something does.
    if !NAMESPACES.contains(&namespace) {
        return None;
    }
    let listed = || find(FUNCTIONS, |known| known.split_once('.') == Some((namespace, name)));
    if namespace == "format" && formats::named(name).is_some() { Some(&[0]) } else { listed() }
}

fn find(table: &'static [(&str, &[usize])], is_wanted: impl Fn(&str) -> bool) -> Option<&'static [usize]> {
    table.iter().find(|(known, _)| is_wanted(known)).map(|(_, counts)| *counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_those_that_functions_are_in() {
        let mut found: Vec<&str> =
            FUNCTIONS.iter().filter_map(|(name, _)| name.split_once('.')).map(|(namespace, _)| namespace).collect();
        found.dedup();
        assert_eq!(found, NAMESPACES);
        assert_eq!((namespaced("lists", "range"), namespaced("lists", "none")), (Some(&[1][..]), None));
    }
}
