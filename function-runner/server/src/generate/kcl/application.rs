//! The Kubernetes objects of an AppConfiguration, with the names that Kusion gives them.
//!
//! Start at [`objects`]. A Service becomes a Deployment and Services for its ports, a Job becomes a Job or a CronJob. Accessories are for
//! modules of Kusion, and so are workloads whose module the Workspace has.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use stoa_kcl::Value;

use super::fields::{Fields, Read, Wrong, ordered_json};
use super::layout::Names;
use super::workload::{Pod, Port};
use crate::generate::modules::{self, Call, Part, Platform};

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

/// The objects of an application, and the calls of modules for the rest of it.
pub(super) fn objects(
    name: &str,
    value: &Value,
    names: &Names,
    platform: &Platform,
) -> Result<(Vec<Json>, Vec<Call>), Vec<Wrong>> {
    let alone = |wrong| vec![wrong];
    let app = Fields::of(name, value).map_err(alone)?;
    app.only(&FIELDS).map_err(alone)?;
    let workload = app.map("workload").and_then(|it| it.ok_or_else(|| app.wrong("workload", "is required")));
    let workload = workload.map_err(alone)?;
    let is_of_module = platform.has(workload.schema());
    let mut parts = accessories(&app).map_err(alone)?;
    let (objects, id) = if is_of_module {
        without_metadata(&app).map_err(alone)?;
        let (field, schema, json) = (app.at("workload"), workload.schema(), ordered_json(&workload.value()));
        parts.insert(0, Part { field, schema, json, is_workload: true });
        (Vec::new(), String::new())
    } else {
        let application = Application::of(name, &app, names).map_err(alone)?;
        let objects = application.objects(&app).map_err(alone)?;
        let id = objects.iter().find_map(|object| application.workload_id(object)).unwrap_or_default();
        (objects, id)
    };
    let workload = if parts.is_empty() { String::new() } else { ordered_json(&workload.value()) };
    let of = modules::Application {
        project: &names.project,
        stack: &names.stack,
        name,
        workload: &workload,
        workload_id: &id,
    };
    let (mut calls, mut problems) = (Vec::new(), Vec::new());
    for part in parts {
        let field = part.field.clone();
        match platform.call(&of, part) {
            Ok(call) => calls.push(call),
            Err(message) => problems.push(Wrong { field, message }),
        }
    }
    if problems.is_empty() { Ok((objects, calls)) } else { Err(problems) }
}

/// The accessories of an application, in the order of the program.
fn accessories<'a>(app: &Fields<'a>) -> Read<Vec<Part<'a>>> {
    let Some(accessories) = app.map("accessories")? else { return Ok(Vec::new()) };
    let part = |(name, value): (&str, &'a Value)| {
        let schema = Fields::of(&accessories.at(name), value)?.schema();
        if schema.is_empty() {
            return Err(accessories.wrong(name, "is no instance of a schema of a Kusion module"));
        }
        Ok(Part { field: accessories.at(name), schema, json: ordered_json(value), is_workload: false })
    };
    accessories.entries().map(part).collect()
}

/// Rejects labels and annotations of an application whose workload is of a module, which would not get them.
fn without_metadata(app: &Fields<'_>) -> Read<()> {
    let set = ["labels", "annotations"].into_iter().find(|field| app.get(field).is_some_and(|it| !it.is_empty()));
    match set {
        Some(field) => Err(app.wrong(field, "is not for a workload of a Kusion module; set it in the workload")),
        None => Ok(()),
    }
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

    /// The id of an object if it is the workload, which has the application's own name.
    fn workload_id(&self, object: &Json) -> Option<String> {
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let is_workload = object["metadata"]["name"] == self.unique.as_str() && object["kind"] != "ConfigMap";
        let names =
            [text(&object["apiVersion"]), text(&object["kind"]), self.names.namespace.clone(), self.unique.clone()];
        is_workload.then(|| names.join(":"))
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
                let message = format!(
                    "is of the Kusion module {module} ({schema}); use a Service or a Job, or add it to spec.modules of the Workspace"
                );
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
