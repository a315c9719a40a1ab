//! Admission as the cluster configures it: kube-apiserver runs none for the servers behind it, so Stoa has to.

mod policies;
mod webhooks;

use serde_json::{Value, json};
use stoa_e2e::{Kubectl, eventually, unique};

use crate::PATIENCE;

/// A namespace, and what a test configures in the cluster for it; the cluster is all tests', so that both go with the
/// value.
pub(crate) struct Scene {
    kubectl: Kubectl,
    pub(crate) namespace: String,
    configured: Vec<String>,
}

impl Scene {
    pub(crate) fn new(kubectl: Kubectl) -> Self {
        let namespace = unique("admission");
        kubectl.run(&["create", "namespace", &namespace]);
        Self::of(kubectl, &namespace)
    }

    /// That of a namespace that is there; it goes with the scene, too.
    fn of(kubectl: Kubectl, namespace: &str) -> Self {
        Self { kubectl, namespace: namespace.to_owned(), configured: Vec::new() }
    }

    /// Applies an object of `admissionregistration.k8s.io/v1`; its name is the namespace's.
    pub(crate) fn configure(&mut self, kind: &str, fields: Value) {
        let mut object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": self.namespace},
        });
        object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.kubectl.apply(&object.to_string());
        self.configured.push(format!("{}/{}", kind.to_lowercase(), self.namespace));
    }

    /// Selects the namespace of this test.
    pub(crate) fn selector(&self) -> Value {
        json!({"matchLabels": {"kubernetes.io/metadata.name": self.namespace}})
    }

    /// A Source with these labels.
    fn source(&self, name: &str, labels: Value) -> String {
        json!({
            "apiVersion": "config.stoa.dev/v1alpha1", "kind": "Source",
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels},
            "spec": {"remote": format!("file:///{name}.git")},
        })
        .to_string()
    }

    fn read(&self, name: &str) -> Value {
        self.kubectl.get(&["sources.config.stoa.dev", name, "--namespace", &self.namespace])
    }

    fn would_create(&self, name: &str, labels: Value) -> Result<String, String> {
        self.kubectl.would_create(&self.source(name, labels))
    }

    fn create(&self, name: &str, labels: Value) {
        self.kubectl.create(&self.source(name, labels));
    }

    /// Waits until a dry run is refused: configurations take effect when the server's watch shows them.
    fn refusal(&self, name: &str, labels: &Value) -> String {
        eventually("it is refused", PATIENCE, || self.would_create(name, labels.clone()).err())
    }

    /// Waits until a dry run passes.
    fn acceptance(&self, name: &str, labels: &Value) {
        eventually("it is accepted", PATIENCE, || self.would_create(name, labels.clone()).ok());
    }

    /// The object that a dry run would create.
    fn dry(&self, name: &str, labels: Value) -> Value {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), self.source(name, labels)).unwrap();
        let path = file.path().to_str().unwrap();
        let made = self.kubectl.run(&["create", "--dry-run=server", "--output=json", "--filename", path]);
        serde_json::from_str(&made).unwrap()
    }
}

impl Scene {
    /// Takes what was configured away.
    fn lift(&mut self) {
        for object in self.configured.drain(..) {
            self.kubectl.succeeds(&["delete", &object, "--ignore-not-found"]);
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.lift();
        self.kubectl.succeeds(&["delete", "namespace", &self.namespace, "--wait=false"]);
    }
}

/// The rules of what is asked about Sources.
fn rules(operations: &[&str]) -> Value {
    json!([{
        "apiGroups": ["config.stoa.dev"], "apiVersions": ["*"], "resources": ["sources"], "operations": operations,
    }])
}
