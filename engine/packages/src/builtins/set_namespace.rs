//! `set-namespace`: sets the namespace of all objects that have one, and the fields that refer to it.
//!
//! Versions up to 0.2 go by the fields of kustomize; they change objects of local configuration, and add a namespace to every
//! object that is not known to be cluster-scoped. Later ones leave both, and know the namespace that an object had upstream.

use std::collections::BTreeSet;

use serde_json::Value;
use stoa_kubernetes_model::kinds::{is_cluster_scoped, is_namespaced};

use super::{
    Failure,
    config::{Config, additional_fields, config, is_local, package_name},
    fields::FieldSpec,
};
use crate::{
    files::Limits,
    resources::Resource,
    results::{Finding, scalar_text},
};

const DEPENDS_ON: &str = "config.kubernetes.io/depends-on";

/// The annotation with `<group>|<kind>|<namespace>|<name>` of the object upstream.
const UPSTREAM: &str = "internal.kpt.dev/upstream-identifier";

/// Group, version, kind and path of the fields that hold a namespace, and whether they are added.
const FIELDS: &[([&str; 4], bool)] = &[
    (["", "", "Namespace", "metadata/name"], true),
    (["apiregistration.k8s.io", "", "APIService", "spec/service/namespace"], true),
    (
        [
            "apiextensions.k8s.io",
            "",
            "CustomResourceDefinition",
            "spec/conversion/webhook/clientConfig/service/namespace",
        ],
        false,
    ),
];

/// The configuration of either version.
struct Settings {
    namespace: String,
    /// The only namespace that changes; empty for all.
    matcher: String,
    additional: Vec<FieldSpec>,
}

fn settings(source: Option<&Resource>) -> Result<Settings, Failure> {
    let settings = match config(source, "SetNamespace")? {
        Config::Data(mut data) => Settings {
            namespace: match data.remove("namespace").filter(|namespace| !namespace.is_empty()) {
                Some(namespace) => namespace,
                None => source.and_then(package_name).unwrap_or_default(),
            },
            matcher: data.remove("namespaceMatcher").unwrap_or_default(),
            additional: Vec::new(),
        },
        Config::Object(object) => {
            let text = |name: &str| object.value.get(name).map(scalar_text).unwrap_or_default();
            let additional = additional_fields(object, "additionalNamespaceFields")?;
            Settings { namespace: text("namespace"), matcher: text("namespaceMatcher"), additional }
        }
    };
    match settings.namespace.is_empty() {
        true => {
            Err(Failure::new("input namespace cannot be empty; set `data.namespace` of the ConfigMap, or `namespace`"))
        }
        false => Ok(settings),
    }
}

/// Runs a version up to 0.2.
pub(super) fn run_by_fields(
    items: &mut [Resource],
    source: Option<&Resource>,
    _: &Limits,
) -> Result<Vec<Finding>, Failure> {
    let settings = settings(source)?;
    let accounts: BTreeSet<String> =
        items.iter().filter(|it| it.kind() == "ServiceAccount").map(|it| it.name().to_owned()).collect();
    let mut specs = settings.additional;
    specs.extend(FIELDS.iter().map(|(spec, create)| FieldSpec::of(*spec, *create)));
    let new = Value::from(settings.namespace.as_str());
    for resource in items.iter_mut() {
        if !is_cluster_scoped(resource.group(), resource.kind()) {
            FieldSpec::of(["", "", "", "metadata/namespace"], true).visit(&mut resource.value, &new, &mut |field| {
                *field = new.clone();
            });
        }
        let specs: Vec<&FieldSpec> = specs.iter().filter(|spec| spec.matches(resource)).collect();
        for spec in specs {
            spec.visit(&mut resource.value, &new, &mut |field| *field = new.clone());
        }
        let is_of_package = |subject: &Value| {
            let name = subject.get("name").and_then(Value::as_str).unwrap_or_default();
            name == "default" || accounts.contains(name)
        };
        for subject in service_accounts(resource).into_iter().filter(|subject| is_of_package(subject)) {
            subject["namespace"] = new.clone();
        }
    }
    Ok(Vec::new())
}

/// The subjects of a binding that are service accounts.
fn service_accounts(resource: &mut Resource) -> Vec<&mut Value> {
    if !matches!(resource.kind(), "RoleBinding" | "ClusterRoleBinding") {
        return Vec::new();
    }
    let subjects = resource.value.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten();
    subjects.filter(|subject| subject.get("kind").and_then(Value::as_str) == Some("ServiceAccount")).collect()
}

/// Runs a version from 0.3.
pub(super) fn run(items: &mut [Resource], source: Option<&Resource>, _: &Limits) -> Result<Vec<Finding>, Failure> {
    let settings = settings(source)?;
    check_upstream_namespaces(items, &settings)?;
    let mut findings = Vec::new();
    let before: BTreeSet<String> = items.iter().filter(|it| !is_local(it)).filter_map(dependency).collect();
    let mut changes = Changes { settings: &settings, count: 0, old: BTreeSet::new() };
    for resource in items.iter_mut().filter(|resource| !is_local(resource)) {
        changes.resource(resource);
    }
    findings.push(changes.summary("all matching namespaces are already", "namespace"));
    let mut changes = Changes { settings: &settings, count: 0, old: BTreeSet::new() };
    for resource in items.iter_mut().filter(|resource| !is_local(resource)) {
        changes.depends_on(resource, &before);
    }
    findings.push(changes.summary("all `depends-on` annotations are already", "`depends-on` annotation namespace"));
    Ok(findings)
}

/// Whether an object is in a namespace. A custom one is if it says so.
fn has_namespace(resource: &Resource) -> bool {
    is_namespaced(resource.group(), resource.kind())
        || (!resource.namespace().is_empty() && !is_cluster_scoped(resource.group(), resource.kind()))
}

/// The namespace of an object upstream.
fn upstream_namespace(resource: &Resource) -> Option<&str> {
    resource.annotation(UPSTREAM)?.split('|').nth(2)
}

/// Without a matcher, all objects must be of one namespace upstream.
fn check_upstream_namespaces(items: &[Resource], settings: &Settings) -> Result<(), Failure> {
    let namespaced = items.iter().filter(|resource| !is_local(resource) && has_namespace(resource));
    let namespaces: BTreeSet<&str> = namespaced.filter_map(upstream_namespace).collect();
    if settings.matcher.is_empty() && namespaces.len() > 1 {
        return Err(Failure::new(format!(
            "the objects are of {} namespaces upstream ({}); set `namespaceMatcher` to the one that changes",
            namespaces.len(),
            namespaces.into_iter().collect::<Vec<_>>().join(", ")
        )));
    }
    Ok(())
}

/// An object as an annotation `depends-on` names it.
fn dependency(resource: &Resource) -> Option<String> {
    let namespace = if resource.namespace().is_empty() { "default" } else { resource.namespace() };
    let (group, kind, name) = (resource.group(), resource.kind(), resource.name());
    has_namespace(resource).then(|| format!("{group}/namespaces/{namespace}/{kind}/{name}"))
}

struct Changes<'s> {
    settings: &'s Settings,
    count: usize,
    old: BTreeSet<String>,
}

impl Changes<'_> {
    fn resource(&mut self, resource: &mut Resource) {
        match (resource.group(), resource.kind()) {
            ("", "Namespace") => {
                // The namespace upstream of a Namespace is its name.
                let upstream = resource.annotation(UPSTREAM).and_then(|id| id.rsplit('|').next()).map(str::to_owned);
                self.field(&mut resource.value, &["metadata", "name"], upstream.as_deref());
            }
            ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                let path = ["spec", "conversion", "webhook", "clientConfig", "service", "namespace"];
                self.field(&mut resource.value, &path, None);
            }
            ("apiregistration.k8s.io", "APIService") => {
                self.field(&mut resource.value, &["spec", "service", "namespace"], None);
            }
            _ => {}
        }
        for subject in service_accounts(resource) {
            self.field(subject, &["namespace"], None);
        }
        if has_namespace(resource) {
            if resource.namespace().is_empty() {
                resource.value["metadata"]["namespace"] = "default".into();
            }
            let upstream = upstream_namespace(resource).map(str::to_owned);
            self.field(&mut resource.value, &["metadata", "namespace"], upstream.as_deref());
        }
    }

    /// Sets a field that exists.
    fn field(&mut self, value: &mut Value, path: &[&str], upstream: Option<&str>) {
        let field = path.iter().try_fold(value, |value, key| value.get_mut(*key));
        let Some(field) = field.filter(|field| field.is_string()) else { return };
        let current = field.as_str().unwrap_or_default();
        let matcher = self.settings.matcher.as_str();
        if (matcher.is_empty() || matcher == current || Some(matcher) == upstream) && current != self.settings.namespace
        {
            self.count += 1;
            self.old.insert(current.to_owned());
            *field = self.settings.namespace.as_str().into();
        }
    }

    /// Sets the namespace in the annotation about an object of the package.
    fn depends_on(&mut self, resource: &mut Resource, before: &BTreeSet<String>) {
        let Some(dependency) = resource.annotation(DEPENDS_ON).filter(|it| before.contains(*it)) else { return };
        let segments: Vec<&str> = dependency.split('/').collect();
        let [group, literal, namespace, kind, name] = segments.as_slice() else { return };
        let (matcher, new) = (self.settings.matcher.as_str(), self.settings.namespace.as_str());
        if *namespace == new || !(matcher.is_empty() || matcher == *namespace) {
            return;
        }
        self.count += 1;
        self.old.insert((*namespace).to_owned());
        let changed = [group, literal, new, kind, name].join("/");
        resource.value["metadata"]["annotations"][DEPENDS_ON] = changed.into();
    }

    fn summary(&self, unchanged: &str, changed: &str) -> Finding {
        let new = &self.settings.namespace;
        match self.count {
            0 => Finding::info(format!("{unchanged} {new:?}. no value changed")),
            count => {
                let old: Vec<&str> = self.old.iter().map(String::as_str).collect();
                Finding::info(format!("{changed} [{}] updated to {new:?}, {count} value(s) changed", old.join(" ")))
            }
        }
    }
}
