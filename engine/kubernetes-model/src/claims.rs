//! Exclusive claims of objects: ports and addresses of Services, and hosts of Ingresses.
//!
//! The API server allocates ports and addresses (k8s.io/kubernetes/pkg/registry/core/service). The webhook of
//! ingress-nginx accepts one Ingress for a host and path; other controllers accept several.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use stoa_engine::object::ObjectRef;
use stoa_engine::plan::Action;
use stoa_engine::spec::Resource;
use stoa_engine::state::StateResource;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Claim {
    /// A port of every node.
    NodePort(i64),
    /// An IP address.
    Address(String),
    /// A host and a path.
    Host(String, String),
}

impl Claim {
    /// Whether a server never assigns it to two objects. For a host, only some webhooks check that.
    pub(crate) fn is_exclusive(&self) -> bool {
        matches!(self, Self::NodePort(_) | Self::Address(_))
    }
}

pub(crate) fn of(attributes: &Map<String, Value>) -> BTreeSet<Claim> {
    let Some(object) = ObjectRef::of(attributes) else { return BTreeSet::new() };
    let spec = attributes.get("spec").unwrap_or(&Value::Null);
    let list = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    match (object.group.as_str(), object.kind.as_str()) {
        ("", "Service") => {
            let ports = list(spec, "ports");
            let ports = ports.iter().map(|port| &port["nodePort"]).chain(spec.get("healthCheckNodePort"));
            let ports = ports.filter_map(Value::as_i64).filter(|port| *port > 0).map(Claim::NodePort);
            let addresses = list(spec, "clusterIPs");
            let single = ["clusterIP", "loadBalancerIP"].into_iter().filter_map(|key| spec.get(key));
            let addresses = addresses.iter().chain(single).filter_map(Value::as_str);
            let addresses = addresses.filter(|address| !matches!(*address, "" | "None"));
            ports.chain(addresses.map(|address| Claim::Address(address.to_owned()))).collect()
        }
        ("networking.k8s.io", "Ingress") => {
            let text = |value: &Value, key: &str| value.get(key)?.as_str().map(str::to_owned);
            let mut claims = BTreeSet::new();
            for rule in list(spec, "rules") {
                let Some(host) = text(&rule, "host") else { continue };
                for path in list(&rule["http"], "paths") {
                    claims.insert(Claim::Host(host.clone(), text(&path, "path").unwrap_or_default()));
                }
            }
            claims
        }
        _ => BTreeSet::new(),
    }
}

/// The claims that an action gives up.
pub(crate) fn freed(action: Action, record: &StateResource, wanted: Option<&Resource>) -> BTreeSet<Claim> {
    match (action, wanted) {
        // The server may have chosen them.
        (Action::Delete, _) => of(&record.attributes).into_iter().chain(of(&record.live)).collect(),
        (Action::Update | Action::Replace, Some(wanted)) => &of(&record.attributes) - &of(&wanted.attributes),
        _ => BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn services_and_ingresses_have_claims() {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {
            "ports": [{"port": 80, "nodePort": 30080}, {"port": 81}], "clusterIP": "10.0.0.1",
            "clusterIPs": ["10.0.0.1", "fd00::1"], "loadBalancerIP": "1.2.3.4"}});
        let address = |text: &str| Claim::Address(text.to_owned());
        let expected = [Claim::NodePort(30080), address("1.2.3.4"), address("10.0.0.1"), address("fd00::1")];
        assert_eq!(of(service.as_object().unwrap()), BTreeSet::from(expected));
        let headless =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"clusterIP": "None"}});
        assert!(of(headless.as_object().unwrap()).is_empty());
        let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "a"}, "spec": {
            "rules": [{"host": "shop.example.com", "http": {"paths": [{"path": "/"}, {"path": "/api"}]}}, {"http": {}}]}});
        let host = |path: &str| Claim::Host("shop.example.com".to_owned(), path.to_owned());
        assert_eq!(of(ingress.as_object().unwrap()), BTreeSet::from([host("/"), host("/api")]));
    }
}
