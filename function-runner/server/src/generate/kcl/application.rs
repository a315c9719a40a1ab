//! The Kubernetes objects of an AppConfiguration, with the names that Kusion gives them.
//!
//! Start at [`objects`]. A Service becomes a Deployment and Services for its ports, a Job becomes a Job or a CronJob. Accessories are for
//! modules of Kusion.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use stoa_kcl::Value;

use super::fields::{Fields, Read, Wrong};
use super::layout::Names;
use super::workload::{Pod, Port};

/// The name of the schema.
pub(super) const SCHEMA: &str = "AppConfiguration";
/// The fields of the schema.
const FIELDS: [&str; 4] = ["workload", "accessories", "labels", "annotations"];
/// The fields of all workloads.
const OF_WORKLOADS: [&str; 4] = ["containers", "replicas", "labels", "annotations"];

/// The Namespace of all applications of a stack.
pub(super) fn namespace(names: &Names) -> Json {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.namespace}})
}

/// The objects of an application.
pub(super) fn objects(name: &str, value: &Value, names: &Names) -> Result<Vec<Json>, Vec<Wrong>> {
    let app = Fields::of(name, value).map_err(|wrong| vec![wrong])?;
    let accessories = accessories(&app).map_err(|wrong| vec![wrong])?;
    if !accessories.is_empty() {
        return Err(accessories);
    }
    Application::of(name, &app, names).and_then(|application| application.objects(&app)).map_err(|wrong| vec![wrong])
}

/// The accessories of an application, each with the reason why it is not deployed.
fn accessories(app: &Fields<'_>) -> Read<Vec<Wrong>> {
    app.only(&FIELDS)?;
    let Some(accessories) = app.map("accessories")? else { return Ok(Vec::new()) };
    let each = accessories.entries().map(|(name, value)| {
        let schema = Fields::of(name, value).map(|fields| fields.schema().to_owned()).unwrap_or_default();
        let module = schema.split('.').next().filter(|module| !module.is_empty()).unwrap_or(name);
        let message = format!("is of the Kusion module {module} ({schema}), and Stoa runs no modules yet; remove it");
        accessories.wrong(name, message)
    });
    Ok(each.collect())
}

struct Application<'a> {
    names: &'a Names,
    /// The project, the stack and the application, which is the name of most objects.
    unique: String,
    /// The labels that select the Pods.
    selector: Json,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl<'a> Application<'a> {
    fn of(name: &str, app: &Fields<'_>, names: &'a Names) -> Read<Self> {
        let selector = [("app.kubernetes.io/name", name), ("app.kubernetes.io/part-of", names.project.as_str())];
        let workload = app.map("workload")?.ok_or_else(|| app.wrong("workload", "is required"))?;
        let all = |field: &str, first: &BTreeMap<String, String>| -> Read<BTreeMap<String, String>> {
            let of_app = app.texts(field)?.into_iter().chain(workload.texts(field)?);
            Ok(first
                .clone()
                .into_iter()
                .chain(of_app.map(|(name, value)| (name.to_owned(), value.to_owned())))
                .collect())
        };
        let mut labels = all("labels", &names.labels)?;
        labels.extend(selector.map(|(name, value)| (name.to_owned(), value.to_owned())));
        Ok(Self {
            names,
            unique: format!("{}-{}-{name}", names.project, names.stack),
            selector: selector.into_iter().map(|(name, value)| (name.to_owned(), Json::from(value))).collect(),
            labels,
            annotations: all("annotations", &names.annotations)?,
        })
    }

    /// Labels and annotations, with a name if the object has one.
    fn metadata(&self, name: Option<&str>) -> Json {
        let mut metadata = json!({"labels": self.labels});
        if !self.annotations.is_empty() {
            metadata["annotations"] = json!(self.annotations);
        }
        if let Some(name) = name {
            metadata["name"] = name.into();
            metadata["namespace"] = self.names.namespace.clone().into();
        }
        metadata
    }

    fn objects(&self, app: &Fields<'_>) -> Read<Vec<Json>> {
        let workload = app.map("workload")?.ok_or_else(|| app.wrong("workload", "is required"))?;
        match workload.kind() {
            "Service" => self.service(&workload),
            "Job" => self.job(&workload),
            _ => {
                let schema = workload.schema();
                let module = schema.split('.').next().unwrap_or_default();
                let message = format!("is of the Kusion module {module} ({schema}); use a Service or a Job");
                Err(workload.wrong("", message))
            }
        }
    }

    fn config_maps(&self, pod: &Pod) -> Vec<Json> {
        let config_map = |(name, data): &(String, Json)| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": self.metadata(Some(name)), "data": data});
        pod.config_maps.iter().map(config_map).collect()
    }

    fn service(&self, workload: &Fields<'_>) -> Read<Vec<Json>> {
        workload.only(&[OF_WORKLOADS.as_slice(), &["type", "ports"]].concat())?;
        let api_version = match workload.text("type")?.unwrap_or("Deployment") {
            "Deployment" => "apps/v1",
            "CollaSet" => "apps.kusionstack.io/v1alpha1",
            _ => return Err(workload.wrong("type", "must be Deployment or CollaSet")),
        };
        let pod = Pod::of(workload, &self.unique)?;
        let mut spec = json!({
            "selector": {"matchLabels": self.selector},
            "template": pod.template(&self.metadata(None), None),
        });
        if let Some(replicas) = workload.integer("replicas")? {
            spec["replicas"] = replicas.into();
        }
        let mut objects = self.config_maps(&pod);
        objects.push(json!({
            "apiVersion": api_version,
            "kind": workload.text("type")?.unwrap_or("Deployment"),
            "metadata": self.metadata(Some(&self.unique)),
            "spec": spec,
        }));
        let (public, private): (Vec<_>, Vec<_>) = Port::all(workload)?.into_iter().partition(|port| port.is_public);
        for (ports, suffix, kind) in [(private, "private", "ClusterIP"), (public, "public", "LoadBalancer")] {
            if ports.is_empty() {
                continue;
            }
            let name = format!("{}-{suffix}", self.unique);
            let ports: Vec<Json> = ports.iter().map(|port| port.of_service(&name)).collect();
            objects.push(json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": self.metadata(Some(&name)),
                "spec": {"type": kind, "selector": self.selector, "ports": ports},
            }));
        }
        Ok(objects)
    }

    fn job(&self, workload: &Fields<'_>) -> Read<Vec<Json>> {
        workload.only(&[OF_WORKLOADS.as_slice(), &["schedule"]].concat())?;
        let pod = Pod::of(workload, &self.unique)?;
        let spec = json!({"template": pod.template(&self.metadata(None), Some("Never"))});
        let metadata = self.metadata(Some(&self.unique));
        let mut objects = self.config_maps(&pod);
        objects.push(match workload.text("schedule")?.filter(|schedule| !schedule.is_empty()) {
            None => json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}),
            Some(schedule) => json!({
                "apiVersion": "batch/v1",
                "kind": "CronJob",
                "metadata": metadata,
                "spec": {"schedule": schedule, "jobTemplate": {"spec": spec}},
            }),
        });
        Ok(objects)
    }
}
