//! `kubeconform` and `kubeval`: validate objects by the schemas of Kubernetes' own kinds.
//!
//! The schemas are shipped, so nothing is downloaded. Custom kinds have none, unless `ignore_missing_schemas` is set.

use std::collections::{BTreeMap, BTreeSet};

use stoa_engine::validation::{KUBERNETES_VERSIONS, NEWEST_KUBERNETES};
use stoa_schemas::{Catalogue, UNKNOWN_FIELD};

use super::{
    Failure,
    config::{data, is_local},
    validation::{about, outcome},
};
use crate::{files::Limits, resources::Resource, results::Finding};

/// The settings that have no effect here: the schemas and their version are shipped.
const REFUSED: [&str; 2] = ["schema_location", "additional_schema_locations"];

struct Settings {
    catalogue: std::sync::Arc<Catalogue>,
    version: String,
    is_strict: bool,
    ignores_missing: bool,
    skipped: Vec<String>,
}

impl Settings {
    fn of(config: Option<&Resource>) -> Result<Self, Failure> {
        let data: BTreeMap<String, String> = config.map(data).unwrap_or_default();
        if let Some(key) = REFUSED.iter().find(|key| data.contains_key(**key)) {
            return Err(Failure::new(format!(
                "functionConfig: {key} is not supported, since schemas are not downloaded; remove it"
            )));
        }
        let flag = |key: &str| match data.get(key).map_or("false", String::as_str) {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(Failure::new(format!("functionConfig: {key} is {other:?}; it must be \"true\" or \"false\""))),
        };
        let version = data.get("kubernetes_version").map_or(NEWEST_KUBERNETES, String::as_str);
        let version = version.trim_start_matches('v');
        // 1.35.2 has the schemas of 1.35.
        let minor: Vec<&str> = version.split('.').take(2).collect();
        let minor = if version == "master" { NEWEST_KUBERNETES.to_owned() } else { minor.join(".") };
        let catalogue = Catalogue::of(&minor).ok_or_else(|| {
            Failure::new(format!(
                "functionConfig: there are no schemas of Kubernetes {version}; use one of {}",
                KUBERNETES_VERSIONS.join(", ")
            ))
        })?;
        let kinds = data.get("skip_kinds").map_or("", String::as_str);
        Ok(Self {
            catalogue,
            version: minor,
            is_strict: flag("strict")?,
            ignores_missing: flag("ignore_missing_schemas")?,
            skipped: kinds.split(',').map(|kind| kind.trim().to_owned()).filter(|kind| !kind.is_empty()).collect(),
        })
    }

    fn skips(&self, item: &Resource) -> bool {
        let full = format!("{}/{}", item.api_version(), item.kind());
        self.skipped.iter().any(|kind| kind == item.kind() || *kind == full)
    }
}

/// Runs the function.
pub(super) fn run(items: &mut [Resource], source: Option<&Resource>, _: &Limits) -> Result<Vec<Finding>, Failure> {
    let settings = Settings::of(source)?;
    let mut findings = Vec::new();
    for item in items.iter().filter(|item| !is_local(item) && !item.is_kptfile() && !settings.skips(item)) {
        let Some(object) = item.value.as_object() else { continue };
        let has_schema = settings.catalogue.has(item.api_version(), item.kind());
        for found in settings.catalogue.check(object, &BTreeSet::new()) {
            let is_unknown = found.message.starts_with(UNKNOWN_FIELD);
            if (is_unknown && !settings.is_strict) || (!has_schema && settings.ignores_missing) {
                continue;
            }
            findings.push(about(item, &found.field.to_string(), found.message));
        }
        let is_custom = !has_schema && !stoa_kubernetes_model::kinds::is_built_in(item.group());
        if is_custom && !settings.ignores_missing {
            let message = format!(
                "there is no schema of {} {} in Kubernetes {}; set ignore_missing_schemas or skip_kinds",
                item.api_version(),
                item.kind(),
                settings.version
            );
            findings.push(about(item, "", message));
        }
    }
    outcome(findings)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn run_on(object: Value, config: &Value) -> Result<(), Vec<String>> {
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "f"}, "data": config});
        let config = Resource::new("", "", config, None);
        let done = run(&mut [Resource::new("", "a.yaml", object, None)], Some(&config), &Limits::default());
        let texts = |findings: Vec<Finding>| findings.iter().map(ToString::to_string).collect();
        done.map(drop).map_err(|failure| {
            if failure.findings.is_empty() { vec![failure.message] } else { texts(failure.findings) }
        })
    }

    fn deployment(replicas: Value) -> Value {
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "web", "image": "nginx"}]},
                },
            },
        })
    }

    #[test]
    fn objects_are_validated_by_shipped_schemas() {
        assert_eq!(run_on(deployment(json!(2)), &json!({})), Ok(()));
        let failed = run_on(deployment(json!("two")), &json!({})).unwrap_err();
        assert!(failed[0].starts_with("[error] apps/v1/Deployment/web spec.replicas: "), "{failed:?}");
        let old = json!({"apiVersion": "extensions/v1beta1", "kind": "Deployment", "metadata": {"name": "web"}});
        let failed = run_on(old, &json!({"kubernetes_version": "1.35.2"})).unwrap_err();
        assert!(failed[0].contains("write it as apps/v1"), "{failed:?}");
    }

    #[test]
    fn unknown_fields_fail_if_strict() {
        let mut object = deployment(json!(2));
        object["spec"]["replica"] = json!(1);
        assert_eq!(run_on(object.clone(), &json!({})), Ok(()));
        assert!(run_on(object.clone(), &json!({"strict": "true"})).unwrap_err()[0].contains("spec.replica"));
        assert_eq!(run_on(object, &json!({"strict": "true", "skip_kinds": "Service, Deployment"})), Ok(()));
    }

    #[test]
    fn custom_kinds_need_a_setting() {
        let custom = json!({"apiVersion": "acme.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
        assert!(
            run_on(custom.clone(), &json!({})).unwrap_err()[0].contains("there is no schema of acme.com/v1 Widget")
        );
        assert_eq!(run_on(custom, &json!({"ignore_missing_schemas": "true"})), Ok(()));
        for config in [
            json!({"strict": "yes"}),
            json!({"schema_location": "https://example.com"}),
            json!({"kubernetes_version": "1.2"}),
        ] {
            assert!(run_on(deployment(json!(1)), &config).unwrap_err()[0].contains("functionConfig"), "{config}");
        }
    }
}
