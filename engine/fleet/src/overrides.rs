//! Scalars that a more general ConfigMap takes from a more specific one.
//!
//! Kalypso composes maps by their names, so the map of a whole region can replace the value of one cluster type. It does so here
//! too, and it is reported.

use std::{collections::BTreeMap, fmt};

use serde_json::Value;

use crate::{
    Fleet,
    config::{Layer, is_same_item},
    objects::{CLUSTER_TYPE_LABEL, DEPLOYMENT_TARGET_LABEL, Labels, WORKLOAD_LABEL},
};

/// A scalar of a more specific ConfigMap that a more general one replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The path of the scalar, such as `DATABASE.port`.
    pub path: String,
    /// The ConfigMap whose value counts.
    pub general: String,
    /// The labels by which it is chosen.
    pub general_labels: Labels,
    /// The ConfigMap whose value is lost.
    pub specific: String,
    /// The labels by which it is chosen.
    pub specific_labels: Labels,
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |labels: &Labels| match labels.is_empty() {
            true => "all assignments".to_owned(),
            false => labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", "),
        };
        let Self { path, general, specific, .. } = self;
        write!(
            f,
            "ConfigMap {general} ({}) replaces {path} of the more specific ConfigMap {specific} ({}), since its name sorts \
             later; rename one of them",
            shown(&self.general_labels),
            shown(&self.specific_labels)
        )
    }
}

/// An assignment with scalars of specific ConfigMaps that more general ones replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The name of the Assignment.
    pub assignment: String,
    /// The scalars.
    pub overrides: Vec<Override>,
}

/// The most assignments whose values one search composes.
const COMPOSED: usize = 20_000;

/// The first assignments with replaced scalars, by cluster type and then by target: at most this many, of 20,000 that may have
/// some.
pub fn replaced(fleet: &Fleet, most: usize) -> Vec<Replaced> {
    let configuration = fleet.configuration();
    if configuration.is_in_order() {
        return Vec::new();
    }
    let assignments = fleet.schedule().assignments();
    let at_risk = assignments.filter(|it| configuration.may_replace(it.cluster_type, it.target)).take(COMPOSED);
    let composed = at_risk.map(|it| Replaced {
        assignment: it.name(),
        overrides: configuration.compose(it.cluster_type, it.target).overrides,
    });
    composed.filter(|it| !it.overrides.is_empty()).take(most).collect()
}

/// The layer that set each value so far, by its path. A collection without an entry of its own is of the layer above it.
pub(crate) struct Setters<'l> {
    layers: &'l [Layer],
    set: BTreeMap<String, usize>,
    pub(crate) overrides: Vec<Override>,
}

impl<'l> Setters<'l> {
    pub(crate) fn new(layers: &'l [Layer]) -> Self {
        Self { layers, set: BTreeMap::new(), overrides: Vec::new() }
    }

    /// Records the first layer of a path.
    pub(crate) fn set(&mut self, path: &str, layer: usize) {
        self.set.insert(path.to_owned(), layer);
    }

    /// Records what a layer changes at a path where `existing` is.
    pub(crate) fn merge(&mut self, path: &str, existing: &Value, new: &Value, layer: usize) {
        match (existing, new) {
            (Value::Object(map), Value::Object(new)) => {
                for (key, value) in new {
                    let path = format!("{path}.{key}");
                    match map.get(key) {
                        Some(earlier) => self.merge(&path, earlier, value, layer),
                        None => self.set(&path, layer),
                    }
                }
            }
            (Value::Array(items), Value::Array(new)) => {
                for item in new {
                    let same = items.iter().enumerate().filter(|(_, earlier)| is_same_item(earlier, item));
                    let same: Vec<(usize, &Value)> = same.collect();
                    for (at, earlier) in same {
                        self.merge(&format!("{path}[{at}]"), earlier, item, layer);
                    }
                }
            }
            (existing, new) => self.replace(path, existing != new, layer),
        }
    }

    fn replace(&mut self, path: &str, is_changed: bool, layer: usize) {
        let inner: Vec<String> = self.below(path);
        let earlier = inner.iter().map(|path| self.set[path]).chain(self.at_or_above(path));
        let specific = earlier.filter(|it| is_more_general(&self.layers[layer].labels, &self.layers[*it].labels)).max();
        if let Some(specific) = specific.filter(|_| is_changed) {
            let (general, specific) = (&self.layers[layer], &self.layers[specific]);
            self.overrides.push(Override {
                path: path.to_owned(),
                general: general.map.clone(),
                general_labels: general.labels.clone(),
                specific: specific.map.clone(),
                specific_labels: specific.labels.clone(),
            });
        }
        for path in inner {
            self.set.remove(&path);
        }
        self.set(path, layer);
    }

    /// The paths inside a path that have an entry of their own.
    fn below(&self, path: &str) -> Vec<String> {
        let is_below = |other: &str| other[path.len()..].starts_with(['.', '[']);
        let after = self.set.range(path.to_owned()..).take_while(|(other, _)| other.starts_with(path));
        after.filter(|(other, _)| is_below(other)).map(|(other, _)| other.clone()).collect()
    }

    /// The layer of the nearest entry at or around a path.
    fn at_or_above(&self, path: &str) -> Option<usize> {
        let mut path = path;
        loop {
            if let Some(layer) = self.set.get(path) {
                return Some(*layer);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }
}

/// Whether labels choose a wider set of assignments than others, as a person sees it: those of a whole group rather than those
/// of one cluster type, target or workload, or a part of the labels.
fn is_more_general(general: &Labels, specific: &Labels) -> bool {
    let is_part = general.len() < specific.len() && general.iter().all(|(key, value)| specific.get(key) == Some(value));
    names(general) < names(specific) || is_part
}

/// How many of cluster type, target and workload the labels name.
pub(crate) fn names(labels: &Labels) -> usize {
    [CLUSTER_TYPE_LABEL, DEPLOYMENT_TARGET_LABEL, WORKLOAD_LABEL].iter().filter(|it| labels.contains_key(**it)).count()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::{config_map, inputs};

    #[test]
    fn assignments_with_replaced_scalars_are_found() {
        let with = |name: &str, value: &str| {
            let labels = [("platform-config", "true"), ("cluster-type", "drone")];
            let mut inputs = inputs();
            let map = config_map(name, &labels, &[("REGION", value), ("OWN", "x")]);
            inputs.config_maps.insert(name.to_owned(), Arc::new(map));
            Fleet::new(inputs)
        };
        assert!(replaced(&Fleet::new(inputs()), 10).is_empty());
        let found = replaced(&with("a", "here"), 10);
        let [Replaced { assignment, overrides }] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(assignment, "hello-hello-edge-drone");
        let paths: Vec<_> = overrides.iter().map(|it| (it.path.as_str(), it.general.as_str())).collect();
        assert_eq!(paths, [("REGION", "east")]);
        assert!(replaced(&with("a", "here"), 0).is_empty());
        assert!(replaced(&with("a", "East US"), 10).is_empty(), "both have the same value");
        assert!(replaced(&with("z", "here"), 10).is_empty(), "the specific one comes last");
    }
}
