//! The configuration of an assignment, composed of ConfigMaps.
//!
//! Start at [`Configuration::compose`]. Follows `getConfigData` and `isConfigForClusterTypeAndTarget` of Kalypso: maps in the
//! order of their names, then those for Azure's App Configuration; maps merge, lists of maps merge by `name`, other lists
//! grow, and of scalars the last one stands.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;

pub use crate::overrides::{Override, Replaced, replaced};
use crate::{
    objects::{
        CLUSTER_TYPE_LABEL, ClusterType, ConfigMap, DEPLOYMENT_TARGET_LABEL, DeploymentTarget, FLUX_NAME_LABEL,
        FLUX_NAMESPACE_LABEL, Labels, PLATFORM_CONFIG_LABEL, WORKLOAD_LABEL,
    },
    overrides::{Setters, names},
};

/// The names of ConfigMaps that Azure's App Configuration writes begin so.
const AZURE: &str = "azure-app-config";

/// The ConfigMaps of an environment, in the order in which they are composed.
#[derive(Debug)]
pub struct Configuration {
    layers: Vec<Layer>,
    all: Positions,
    /// Those of the layers with a key.
    of_key: HashMap<String, Positions>,
    /// Those of the layers with a value that a more general layer behind them may replace.
    at_risk: Positions,
}

/// The positions of layers, ascending.
#[derive(Debug, Default)]
struct Positions {
    /// Layers for one cluster type each.
    of_cluster_type: HashMap<String, Vec<usize>>,
    /// All other layers.
    of_any: Vec<usize>,
}

/// Values with the same condition: a ConfigMap, or one key of a map for Azure's App Configuration.
#[derive(Debug)]
pub(crate) struct Layer {
    /// The name of the ConfigMap.
    pub(crate) map: String,
    /// The labels that an assignment has to have.
    pub(crate) labels: Labels,
    values: Values,
}

#[derive(Debug)]
enum Values {
    /// All values of a ConfigMap.
    Map(Arc<ConfigMap>),
    One(String, Arc<Value>),
}

/// The configuration of an assignment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Composed {
    /// The values, by key.
    pub values: BTreeMap<String, Arc<Value>>,
    /// The ConfigMaps that have something for each key, in the order in which they count.
    pub maps: BTreeMap<String, Vec<String>>,
    /// The scalars of more specific maps that more general ones replace.
    pub overrides: Vec<Override>,
}

impl Configuration {
    pub(crate) fn new(maps: &BTreeMap<String, Arc<ConfigMap>>) -> Self {
        let platform = maps.values().flat_map(of_platform);
        let layers: Vec<Layer> = platform.chain(maps.values().flat_map(|map| of_azure(map))).collect();
        let (mut all, mut of_key) = (Positions::default(), HashMap::<String, Positions>::new());
        for (at, layer) in layers.iter().enumerate() {
            all.add(at, layer);
            for (key, _) in layer.values() {
                match of_key.get_mut(key) {
                    Some(positions) => positions.add(at, layer),
                    None => of_key.entry(key.to_owned()).or_default().add(at, layer),
                }
            }
        }
        let at_risk = at_risk(&layers, &of_key);
        Self { layers, all, of_key, at_risk }
    }

    /// Whether no assignment has a value that a more general layer replaces.
    pub(crate) fn is_in_order(&self) -> bool {
        self.at_risk.of_any.is_empty() && self.at_risk.of_cluster_type.is_empty()
    }

    /// Whether an assignment may have such a value.
    pub(crate) fn may_replace(&self, cluster_type: &ClusterType, target: &DeploymentTarget) -> bool {
        self.layers(&self.at_risk, cluster_type, target).next().is_some()
    }

    /// The layers that are for an assignment, in order.
    fn layers<'c>(
        &'c self,
        positions: &'c Positions,
        cluster_type: &'c ClusterType,
        target: &'c DeploymentTarget,
    ) -> impl Iterator<Item = (usize, &'c Layer)> {
        let all = positions.on(cluster_type).map(|at| (at, &self.layers[at]));
        all.filter(|(_, layer)| is_for(&layer.labels, cluster_type, target))
    }

    /// The values of an assignment, and the names of the ConfigMaps that have them, in the order in which they count.
    pub(crate) fn values(
        &self,
        cluster_type: &ClusterType,
        target: &DeploymentTarget,
    ) -> (BTreeMap<String, Arc<Value>>, Vec<String>) {
        let (mut values, mut maps) = (BTreeMap::<String, Arc<Value>>::new(), Vec::<String>::new());
        for (_, layer) in self.layers(&self.all, cluster_type, target) {
            if maps.last() != Some(&layer.map) {
                maps.push(layer.map.clone());
            }
            for (key, value) in layer.values() {
                match values.get_mut(key) {
                    Some(existing) => merge(existing, value),
                    None => {
                        values.insert(key.to_owned(), Arc::clone(value));
                    }
                }
            }
        }
        (values, maps)
    }

    /// The value of one key of an assignment.
    pub(crate) fn value(&self, cluster_type: &ClusterType, target: &DeploymentTarget, key: &str) -> Option<Arc<Value>> {
        let mut found: Option<Arc<Value>> = None;
        for (_, layer) in self.layers(self.of_key.get(key)?, cluster_type, target) {
            if let Some(value) = layer.value(key) {
                match &mut found {
                    Some(existing) => merge(existing, value),
                    None => found = Some(Arc::clone(value)),
                }
            }
        }
        found
    }

    /// The configuration of an assignment with the origin of each value.
    pub fn compose(&self, cluster_type: &ClusterType, target: &DeploymentTarget) -> Composed {
        let mut composed = Composed { values: self.values(cluster_type, target).0, ..Composed::default() };
        let mut setters = Setters::new(&self.layers);
        let mut before: BTreeMap<&str, Arc<Value>> = BTreeMap::new();
        for (at, layer) in self.layers(&self.all, cluster_type, target) {
            for (key, value) in layer.values() {
                let maps = composed.maps.entry(key.to_owned()).or_default();
                if maps.last() != Some(&layer.map) {
                    maps.push(layer.map.clone());
                }
                match before.get_mut(key) {
                    Some(existing) => {
                        setters.merge(key, existing, value, at);
                        merge(existing, value);
                    }
                    None => {
                        setters.set(key, at);
                        before.insert(key, Arc::clone(value));
                    }
                }
            }
        }
        composed.overrides = setters.overrides;
        composed
    }
}

impl Layer {
    fn values(&self) -> impl Iterator<Item = (&str, &Arc<Value>)> {
        let (map, one) = match &self.values {
            Values::Map(map) => (Some(map.spec.values.iter().map(|(key, value)| (key.as_str(), value))), None),
            Values::One(key, value) => (None, Some((key.as_str(), value))),
        };
        map.into_iter().flatten().chain(one)
    }

    fn is_azure(&self) -> bool {
        matches!(self.values, Values::One(..))
    }

    fn value(&self, key: &str) -> Option<&Arc<Value>> {
        match &self.values {
            Values::Map(map) => map.spec.values.get(key),
            Values::One(own, value) => (own == key).then_some(value),
        }
    }
}

impl Positions {
    fn add(&mut self, at: usize, layer: &Layer) {
        let list = match layer.labels.get(CLUSTER_TYPE_LABEL) {
            Some(name) => self.of_cluster_type.entry(name.clone()).or_default(),
            None => &mut self.of_any,
        };
        // A layer has a key once only, and layers come in order.
        list.push(at);
    }

    fn on(&self, cluster_type: &ClusterType) -> impl Iterator<Item = usize> {
        merged(self.of_cluster_type.get(&cluster_type.name).map(Vec::as_slice).unwrap_or_default(), &self.of_any)
    }
}

/// The layers with a key that a later layer has too, which names less or has fewer labels. Only these can lose a value to a more
/// general one.
fn at_risk(layers: &[Layer], of_key: &HashMap<String, Positions>) -> Positions {
    let mut found: BTreeSet<usize> = BTreeSet::new();
    for Positions { of_cluster_type, of_any } in of_key.values() {
        let mut all: Vec<usize> = of_cluster_type.values().flatten().chain(of_any).copied().collect();
        all.sort_unstable();
        let mut fewest: Option<(usize, usize)> = None;
        for at in all.into_iter().rev() {
            let labels = &layers[at].labels;
            let own = (names(labels), labels.len());
            if fewest.is_some_and(|fewest| fewest.0 < own.0 || fewest.1 < own.1) {
                found.insert(at);
            }
            fewest = Some(fewest.map_or(own, |fewest| (fewest.0.min(own.0), fewest.1.min(own.1))));
        }
    }
    let mut positions = Positions::default();
    found.into_iter().for_each(|at| positions.add(at, &layers[at]));
    positions
}

/// The values that differ between two versions of a ConfigMap, by the labels that they are for.
pub(crate) fn changed_keys(old: Option<&Arc<ConfigMap>>, new: Option<&Arc<ConfigMap>>) -> Vec<(Labels, Vec<String>)> {
    let layers = |map: Option<&Arc<ConfigMap>>| -> Vec<Layer> {
        map.into_iter().flat_map(|map| of_platform(map).into_iter().chain(of_azure(map))).collect()
    };
    let (old, new) = (layers(old), layers(new));
    let mut changes: BTreeMap<Labels, BTreeSet<String>> = BTreeMap::new();
    for (layers, others) in [(&old, &new), (&new, &old)] {
        for layer in layers {
            for (key, value) in layer.values() {
                let is_same = |other: &Layer| {
                    other.is_azure() == layer.is_azure()
                        && other.labels == layer.labels
                        && other.value(key) == Some(value)
                };
                if !others.iter().any(is_same) {
                    changes.entry(layer.labels.clone()).or_default().insert(key.to_owned());
                }
            }
        }
    }
    changes.into_iter().map(|(labels, keys)| (labels, keys.into_iter().collect())).collect()
}

/// The positions of two ascending lists, ascending.
fn merged<'l>(a: &'l [usize], b: &'l [usize]) -> impl Iterator<Item = usize> + 'l {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    std::iter::from_fn(move || match (a.peek(), b.peek()) {
        (Some(left), Some(right)) if left < right => a.next().copied(),
        (_, Some(_)) => b.next().copied(),
        (_, None) => a.next().copied(),
    })
}

/// The labels of a ConfigMap or ConfigSchema that an assignment has to have.
pub(crate) fn conditions(labels: &Labels) -> Labels {
    let is_condition = |key: &str| ![FLUX_NAME_LABEL, FLUX_NAMESPACE_LABEL, PLATFORM_CONFIG_LABEL].contains(&key);
    labels.iter().filter(|(key, _)| is_condition(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The layer of a ConfigMap with the label of configuration.
fn of_platform(map: &Arc<ConfigMap>) -> Option<Layer> {
    let is_configuration = map.labels.get(PLATFORM_CONFIG_LABEL).is_some_and(|value| value == "true");
    let labels = conditions(&map.labels);
    is_configuration.then(|| Layer { map: map.name.clone(), labels, values: Values::Map(Arc::clone(map)) })
}

/// The layers of a map for Azure's App Configuration: one for each key, such as `region.west.size.large.NAME`, the shortest key
/// first.
fn of_azure(map: &ConfigMap) -> Vec<Layer> {
    if !map.name.starts_with(AZURE) {
        return Vec::new();
    }
    let mut keys: Vec<_> = map.spec.values.iter().collect();
    keys.sort_by_key(|(key, _)| (key.len(), *key));
    let layer = |(key, value): (&String, &Arc<Value>)| {
        let parts: Vec<&str> = key.split('.').collect();
        let (name, labels) = parts.split_last().unwrap_or((&"", &[]));
        let labels = labels.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect();
        let values = Values::One((*name).to_owned(), Arc::clone(value));
        Layer { map: map.name.clone(), labels: conditions(&labels), values }
    };
    keys.into_iter().map(layer).collect()
}

/// The labels that the cluster type does not have, so that the target has to; `None` when no target can.
pub(crate) fn left_to_target<'l>(labels: &'l Labels, cluster_type: &ClusterType) -> Option<Vec<(&'l str, &'l str)>> {
    let mut left = Vec::new();
    for (key, value) in labels {
        match key.as_str() {
            CLUSTER_TYPE_LABEL if *value != cluster_type.name => return None,
            CLUSTER_TYPE_LABEL => {}
            DEPLOYMENT_TARGET_LABEL | WORKLOAD_LABEL => left.push((key.as_str(), value.as_str())),
            // A missing label is the empty text to Kalypso.
            _ if cluster_type.labels.get(key).map_or("", String::as_str) == value => {}
            _ => left.push((key.as_str(), value.as_str())),
        }
    }
    Some(left)
}

/// Whether a target has the labels that a cluster type left to it.
pub(crate) fn has_rest(target: &DeploymentTarget, left: &[(&str, &str)]) -> bool {
    left.iter().all(|(key, value)| match *key {
        DEPLOYMENT_TARGET_LABEL => target.name == *value,
        WORKLOAD_LABEL => target.workload() == *value,
        key => target.labels.get(key).map_or("", String::as_str) == *value,
    })
}

/// Whether values with these conditions are for an assignment.
pub(crate) fn is_for(conditions: &Labels, cluster_type: &ClusterType, target: &DeploymentTarget) -> bool {
    left_to_target(conditions, cluster_type).is_some_and(|left| has_rest(target, &left))
}

fn merge(existing: &mut Arc<Value>, new: &Arc<Value>) {
    match (&**existing, &**new) {
        (Value::Object(_), Value::Object(_)) | (Value::Array(_), Value::Array(_)) => {
            merge_values(Arc::make_mut(existing), new);
        }
        _ => *existing = Arc::clone(new),
    }
}

/// Merges a value into another one. Follows `mergeObjects`, by which maps without a name are maps of the same name.
fn merge_values(existing: &mut Value, new: &Value) {
    match (existing, new) {
        (Value::Array(items), Value::Array(new)) => {
            for item in new {
                let mut is_merged = false;
                for earlier in items.iter_mut().filter(|it| is_same_item(it, item)) {
                    merge_values(earlier, item);
                    is_merged = true;
                }
                if !is_merged {
                    items.push(item.clone());
                }
            }
        }
        (Value::Object(map), Value::Object(new)) => {
            for (key, value) in new {
                match map.get_mut(key) {
                    Some(earlier) => merge_values(earlier, value),
                    None => {
                        map.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        (existing, new) => existing.clone_from(new),
    }
}

/// Whether two items of lists are maps of the same name.
pub(crate) fn is_same_item(a: &Value, b: &Value) -> bool {
    a.is_object() && b.is_object() && a.get("name") == b.get("name")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{cluster_type, config_map, target};

    fn composed(maps: &[ConfigMap], labels: &[(&str, &str)]) -> Composed {
        let maps = maps.iter().map(|map| (map.name.clone(), Arc::new(map.clone()))).collect();
        let target = target("hello-edge", &[("workload", "hello"), ("ring", "1")]);
        Configuration::new(&maps).compose(&cluster_type("drone", labels), &target)
    }

    fn values(maps: &[ConfigMap], labels: &[(&str, &str)]) -> Value {
        serde_json::to_value(
            composed(maps, labels)
                .values
                .into_iter()
                .map(|(key, value)| (key, (*value).clone()))
                .collect::<serde_json::Map<_, _>>(),
        )
        .unwrap()
    }

    const CONFIG: (&str, &str) = ("platform-config", "true");

    #[test]
    fn every_label_of_a_map_has_to_match() {
        let region = ("region", "east");
        for (labels, expected) in [
            (vec![], true),
            (vec![region], true),
            (vec![("region", "west")], false),
            (vec![("cluster-type", "drone")], true),
            (vec![("cluster-type", "large")], false),
            (vec![("deployment-target", "hello-edge")], true),
            (vec![("deployment-target", "hello-cloud")], false),
            (vec![("workload", "hello")], true),
            (vec![("workload", "other")], false),
            // A label of the target counts as one of the cluster type does.
            (vec![("ring", "1"), region], true),
            (vec![("ring", "2")], false),
            (vec![("nope", "")], true),
            (vec![("kustomize.toolkit.fluxcd.io/name", "dev")], true),
        ] {
            let all: Vec<_> = labels.iter().copied().chain([CONFIG]).collect();
            let found = values(&[config_map("a", &all, &[("KEY", "x")])], &[region]);
            assert_eq!(found, if expected { json!({"KEY": "x"}) } else { json!({}) }, "{labels:?}");
        }
        assert_eq!(values(&[config_map("a", &[], &[("KEY", "x")])], &[]), json!({}));
        assert_eq!(values(&[config_map("a", &[("platform-config", "yes")], &[("KEY", "x")])], &[]), json!({}));
    }

    #[test]
    fn last_name_wins_and_collections_merge() {
        let a = "m: {x: 1, d: {p: 1}, l: [1]}\nitems: [{name: a, v: 1}, {name: b, v: 1}, 7]\n";
        let b = "m: {x: 2, d: {q: 2}, l: [2]}\nitems: [{name: b, w: 2}, 7, {name: c}]\n";
        let maps = [
            config_map("b", &[CONFIG], &[("S", "from b"), ("V", b), ("L", "[{a: 1}]")]),
            config_map("a", &[CONFIG], &[("S", "from a"), ("V", a), ("L", "[{b: 2}, {c: 3}]")]),
        ];
        assert_eq!(
            values(&maps, &[]),
            json!({
                "S": "from b",
                // Maps without a name are of the same name.
                "L": [{"a": 1, "b": 2}, {"a": 1, "c": 3}],
                "V": {
                    "m": {"x": 2, "d": {"p": 1, "q": 2}, "l": [1, 2]},
                    "items": [{"name": "a", "v": 1}, {"name": "b", "v": 1, "w": 2}, 7, 7, {"name": "c"}],
                },
            })
        );
    }

    #[test]
    fn keys_of_azure_have_their_labels_and_come_last() {
        let azure = config_map(
            "azure-app-config-1",
            &[],
            &[
                ("region.east.REGION", "azure"),
                ("region.west.REGION", "other"),
                ("cluster-type.drone.region.east.REGION", "most labels"),
                ("PLAIN", "x"),
                ("odd.PLAIN", "y"),
            ],
        );
        let maps = [azure, config_map("zzz", &[CONFIG], &[("REGION", "map")])];
        assert_eq!(values(&maps, &[("region", "east")]), json!({"PLAIN": "y", "REGION": "most labels"}));
        let found = composed(&maps, &[("region", "east")]);
        assert_eq!(found.maps["REGION"], ["zzz", "azure-app-config-1"]);
    }

    #[test]
    fn general_scalar_over_a_specific_one_is_reported() {
        let specific = [CONFIG, ("cluster-type", "drone")];
        let of_region = [CONFIG, ("region", "east")];
        let found = |maps: &[ConfigMap]| -> Vec<String> {
            composed(maps, &[("region", "east"), ("size", "s")]).overrides.iter().map(ToString::to_string).collect()
        };
        let general = config_map("z", &[CONFIG], &[("A", "1"), ("B", "same"), ("M", "{x: {d: 1, z: 1}}")]);
        let drone = config_map("a", &specific, &[("A", "2"), ("B", "same"), ("M", "{x: {d: 2, w: 2}}"), ("C", "3")]);
        assert_eq!(
            found(&[general.clone(), drone]),
            [
                "ConfigMap z (all assignments) replaces A of the more specific ConfigMap a (cluster-type=drone), since its name sorts later; rename one of them",
                "ConfigMap z (all assignments) replaces M.x.d of the more specific ConfigMap a (cluster-type=drone), since its name sorts later; rename one of them",
            ]
        );
        // The specific one comes last, or neither is more specific.
        assert!(found(&[general, config_map("zz", &specific, &[("A", "2")])]).is_empty());
        let by_size = config_map("a", &[CONFIG, ("size", "s")], &[("A", "1")]);
        assert!(found(&[by_size, config_map("b", &of_region, &[("A", "2")])]).is_empty());
        let both = config_map("a", &[CONFIG, ("size", "s"), ("region", "east")], &[("A", "1")]);
        assert_eq!(found(&[both, config_map("b", &of_region, &[("A", "2")])]).len(), 1);
    }
}
