//! Objects for tests, and a renderer without a program.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Inputs, Origin,
    objects::{
        ClusterType, ClusterTypeSpec, ConfigMap, ConfigMapData, ConfigSchema, ConfigSchemaSpec, DeploymentTarget,
        DeploymentTargetSpec, ExternalScheduler, Labels, Object, SchedulingPolicy, Template, TemplateSpec,
        TemplateType,
    },
    schedule::Decision,
    templates::{Batch, Executed, Renderer, RendererError, TemplateError},
    values,
};

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn object<S>(name: &str, pairs: &[(&str, &str)], spec: S) -> Object<S> {
    Object { name: name.to_owned(), labels: labels(pairs), spec, origin: Origin::default() }
}

pub(crate) fn cluster_type(name: &str, pairs: &[(&str, &str)]) -> ClusterType {
    object(name, pairs, ClusterTypeSpec::default())
}

pub(crate) fn target(name: &str, pairs: &[(&str, &str)]) -> DeploymentTarget {
    object(name, pairs, DeploymentTargetSpec::default())
}

pub(crate) fn config_schema(name: &str, pairs: &[(&str, &str)], schema: &str) -> ConfigSchema {
    object(name, pairs, ConfigSchemaSpec { schema: schema.to_owned() })
}

pub(crate) fn config_map(name: &str, pairs: &[(&str, &str)], data: &[(&str, &str)]) -> ConfigMap {
    let value = |text: &str| Arc::new(values::typed(text.to_owned()));
    let values = data.iter().map(|(key, text)| ((*key).to_owned(), value(text))).collect();
    object(name, pairs, ConfigMapData { values })
}

/// Replaces `{{ .Namespace }}`, `{{ .Workload }}`, `{{ .Manifests.path }}` and `{{ .ConfigData.KEY }}` with one space around
/// each. A text with `{{ fail }}` fails.
#[derive(Debug, Default)]
pub(crate) struct FakeRenderer;

impl Renderer for FakeRenderer {
    fn execute(&self, batch: &Batch) -> Result<Vec<Result<Executed, TemplateError>>, RendererError> {
        let one = |execution: &crate::templates::Execution| {
            let data = &batch.data[execution.data];
            let config: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&data.config_data).unwrap();
            let mut manifests = Vec::new();
            for (at, text) in batch.templates[execution.template].spec.manifests.iter().enumerate() {
                let mut text = text.replace("{{ .Namespace }}", &data.namespace());
                text = text.replace("{{ .Workload }}", data.target.workload());
                text = text.replace("{{ .Manifests.path }}", data.manifests().get("path").map_or("", String::as_str));
                for (key, value) in &config {
                    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    text = text.replace(&format!("{{{{ .ConfigData.{key} }}}}"), &value);
                }
                if text.contains("{{ fail }}") {
                    return Err(TemplateError { manifest: at, line: 1, message: "failed".to_owned() });
                }
                if !text.is_empty() {
                    manifests.push(text);
                }
            }
            Ok(Executed { manifests, volatile: Vec::new() })
        };
        Ok(batch.executions.iter().map(one).collect())
    }
}

/// A policy of JSON selectors for targets and cluster types.
pub(crate) fn policy(name: &str, targets: serde_json::Value, cluster_types: serde_json::Value) -> SchedulingPolicy {
    let spec = serde_json::json!({
        "deploymentTargetSelector": {"labelSelector": targets},
        "clusterTypeSelector": {"labelSelector": cluster_types},
    });
    object(name, &[], serde_json::from_value(spec).unwrap())
}

/// The policy with an external scheduler.
pub(crate) fn externally(mut policy: SchedulingPolicy) -> SchedulingPolicy {
    policy.spec.scheduler = Some(ExternalScheduler { name: "ocm".to_owned(), parameters: BTreeMap::new() });
    policy
}

/// A decision; without targets it is about all.
pub(crate) fn decision(cluster_types: &[&str], targets: Option<&[&str]>) -> Decision {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Decision { cluster_types: names(cluster_types), deployment_targets: targets.map(names) }
}

/// Sets the decisions about a policy.
pub(crate) fn decided(inputs: &mut Inputs, policy: &str, decisions: &[Decision]) {
    inputs.decisions.insert(policy.to_owned(), Arc::new(decisions.to_vec()));
}

/// A template of one text.
pub(crate) fn template(name: &str, text: &str) -> Template {
    let manifests = vec![text.to_owned()];
    object(name, &[], TemplateSpec { type_: TemplateType::Config, content_type: String::new(), manifests })
}

/// Objects by their names.
pub(crate) fn named<S>(objects: impl IntoIterator<Item = Object<S>>) -> BTreeMap<String, Arc<Object<S>>> {
    objects.into_iter().map(|it| (it.name.clone(), Arc::new(it))).collect()
}

/// A fleet of two cluster types, one target on both, and configuration.
pub(crate) fn inputs() -> Inputs {
    let mut types = [cluster_type("drone", &[("region", "east")]), cluster_type("large", &[("region", "west")])];
    for it in &mut types {
        it.spec.reconciler = "flux".to_owned();
        it.spec.namespace_service = "default".to_owned();
    }
    let mut edge = target("hello-edge", &[("workload", "hello")]);
    edge.spec.manifests.insert("path".to_owned(), "./edge".to_owned());
    let config = ("platform-config", "true");
    Inputs {
        environment: "dev".to_owned(),
        cluster_types: named(types),
        targets: named([edge]),
        policies: named([policy("all", serde_json::json!({}), serde_json::json!({}))]),
        config_maps: named([
            config_map("common", &[config], &[("ENVIRONMENT", "Dev")]),
            config_map("east", &[config, ("region", "east")], &[("REGION", "East US"), ("LIST", "[1, 2]")]),
        ]),
        templates: named([
            template("flux", "path: {{ .Manifests.path }}\n"),
            template("default", "name: {{ .Namespace }}\n"),
        ]),
        promoted_commit: Some("abc".to_owned()),
        ..Inputs::default()
    }
}
