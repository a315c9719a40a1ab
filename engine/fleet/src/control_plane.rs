//! The control plane of one environment: the objects of its branch, of its base repositories and of its workloads.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use serde_json::{Value, json};

use crate::{
    Inputs, Origin, Problem, Severity,
    objects::{
        AnyObject, BaseRepo, DeploymentTarget, FLUX_NAME_LABEL, FLUX_NAMESPACE, FLUX_NAMESPACE_LABEL, GitOpsRepo,
        KINDS, Object, WORKLOAD_LABEL, WORKSPACE_LABEL, Workload, WorkloadRegistration, check_name,
    },
    reading::{Files, Reading},
    schedule::Decision,
};

/// The BaseRepo with the promoted commit.
const MAIN: &str = "main";

/// The files that a control plane is made of. Each folder is the one that its object names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sources {
    /// The name of the environment, which is its namespace.
    pub environment: String,
    /// The objects that are written in no repository, each as a file. They are stronger than those of repositories.
    pub stored: Files,
    /// The folder of `Environment.spec.controlPlane`.
    pub branch: Files,
    /// The folders of BaseRepos, by their names.
    pub bases: BTreeMap<String, Files>,
    /// The folders of WorkloadRegistrations, by their names.
    pub workloads: BTreeMap<String, Files>,
    /// The last decisions of external schedulers, by SchedulingPolicy. They are in no file.
    pub decisions: BTreeMap<String, Arc<Vec<Decision>>>,
}

/// The objects of an environment.
#[derive(Clone, Debug, Default)]
pub struct ControlPlane {
    /// The objects that are scheduled and rendered.
    pub inputs: Inputs,
    /// The base repositories. Their files belong into [`Sources::bases`].
    pub base_repos: BTreeMap<String, Arc<BaseRepo>>,
    /// The registrations. Their files belong into [`Sources::workloads`].
    pub registrations: BTreeMap<String, Arc<WorkloadRegistration>>,
    /// The Workloads of all registrations.
    pub workloads: BTreeMap<String, Arc<Workload>>,
    /// The repositories for the result, by the name of their objects.
    pub gitops_repos: BTreeMap<String, Arc<GitOpsRepo>>,
    /// All problems: of files first, then of objects.
    pub problems: Vec<Problem>,
    readings: BTreeMap<String, Reading>,
    /// The locations of the objects that count, by kind and name.
    origins: BTreeMap<(&'static str, String), Origin>,
}

/// The source of [`Sources::stored`].
const STORED: &str = "namespace";

impl ControlPlane {
    /// Reads all sources.
    ///
    /// Stored objects are stronger than the environment's branch, and that is stronger than base repositories, which are
    /// ordered by name. `previous` is the last control plane of the environment: unreadable files keep the objects that they
    /// had there.
    pub fn read(sources: &Sources, previous: Option<&Self>) -> Self {
        let mut plane = Self::default();
        plane.inputs.environment.clone_from(&sources.environment);
        let stored = plane.add_reading(&format!("{STORED} {}", sources.environment), &sources.stored, previous);
        let mut objects = Merged::default();
        plane.merge(&mut objects, &stored);
        let of_branch = plane.add_reading(&format!("environment {}", sources.environment), &sources.branch, previous);
        plane.merge(&mut objects, &of_branch);
        // A base repository may name others.
        let mut read = Vec::new();
        while let Some(base) = objects.names("BaseRepo").into_iter().find(|name| !read.contains(name)) {
            match sources.bases.get(&base) {
                Some(files) => {
                    let reading = plane.add_reading(&format!("BaseRepo {base}"), files, previous);
                    plane.merge(&mut objects, &reading);
                }
                None => plane.lacks(&objects, "BaseRepo", &base),
            }
            read.push(base);
        }
        for registration in objects.names("WorkloadRegistration") {
            match sources.workloads.get(&registration) {
                Some(files) => {
                    let source = format!("WorkloadRegistration {registration}");
                    let reading = plane.add_reading(&source, files, previous);
                    plane.admit(&mut objects, &registration, &reading);
                }
                None => plane.lacks(&objects, "WorkloadRegistration", &registration),
            }
        }
        let origin = |(key, object): (&(&'static str, String), &AnyObject)| (key.clone(), object.origin().clone());
        plane.origins = objects.0.iter().map(origin).collect();
        plane.file(objects);
        plane.decide(&sources.decisions);
        plane
    }

    /// The location of an object that counts; `None` where no source has one of this kind and name.
    pub fn origin(&self, kind: &str, name: &str) -> Option<&Origin> {
        if kind == "DeploymentTarget" {
            return self.inputs.targets.get(name).map(|target| &target.origin);
        }
        let kind = KINDS.iter().find(|it| **it == kind)?;
        self.origins.get(&(*kind, name.to_owned()))
    }

    /// The objects of repositories that count, as they are written there, and the deployment targets of Workloads.
    ///
    /// A file that cannot be read has none, though its earlier objects still count.
    pub fn documents(&self) -> Vec<Served> {
        let mut served = Vec::new();
        for reading in self.readings.iter().filter(|(source, _)| !source.starts_with(STORED)).map(|(_, it)| it) {
            for (object, mut value) in reading.documents() {
                if self.origins.get(&(object.kind(), object.name().to_owned())) != Some(object.origin()) {
                    continue;
                }
                if let AnyObject::Workload(workload) = &object
                    && let Some(admitted) = self.workloads.get(&workload.name)
                {
                    value["metadata"]["labels"] = json!(admitted.labels);
                }
                let (kind, name) = (object.kind(), object.name().to_owned());
                if kind == "DeploymentTarget" && !self.inputs.targets.contains_key(&name) {
                    // It is one of another environment.
                    continue;
                }
                served.push(Served { kind, name, origin: object.origin().clone(), value });
            }
        }
        let is_derived = |name: &str| !self.origins.contains_key(&("DeploymentTarget", name.to_owned()));
        for (name, target) in self.inputs.targets.iter().filter(|(name, _)| is_derived(name)) {
            let mut spec = json!({ "environment": target.spec.environment, "manifests": target.spec.manifests });
            if !target.spec.config_schemas.is_empty() {
                spec["configSchemas"] = json!(target.spec.config_schemas);
            }
            let value = json!({ "metadata": { "name": name, "labels": target.labels }, "spec": spec });
            let origin = target.origin.clone();
            served.push(Served { kind: "DeploymentTarget", name: name.clone(), origin, value });
        }
        served
    }

    fn add_reading(&mut self, source: &str, files: &Files, previous: Option<&Self>) -> Vec<AnyObject> {
        let reading = Reading::read(source, files, previous.and_then(|previous| previous.readings.get(source)));
        self.problems.extend(reading.problems().cloned());
        self.inputs.is_incomplete |= reading.lacks_objects;
        let objects = reading.objects().cloned().collect();
        self.readings.insert(source.to_owned(), reading);
        objects
    }

    fn lacks(&mut self, objects: &Merged, kind: &'static str, name: &str) {
        let origin = objects.0.get(&(kind, name.to_owned())).map(|object| object.origin().clone()).unwrap_or_default();
        let message = format!("{kind} {name}: its repository was not read; check its repo, branch and path");
        self.problems.push(Problem::new(Severity::Unreadable, &origin, message));
        self.inputs.is_incomplete = true;
    }

    /// Adds objects to those of stronger sources.
    fn merge(&mut self, merged: &mut Merged, objects: &[AnyObject]) {
        for object in objects {
            if let Some(earlier) = merged.add(object) {
                self.problems.push(duplicate(object, earlier.origin()));
            }
        }
    }

    /// Adds the Workloads of a registration. An application team decides about nothing else.
    fn admit(&mut self, merged: &mut Merged, registration: &str, objects: &[AnyObject]) {
        for object in objects {
            let AnyObject::Workload(workload) = object else {
                let message = format!("{object} is ignored: a registered repository has only Workloads");
                self.problems.push(Problem::new(Severity::Warning, object.origin(), message));
                continue;
            };
            let mut admitted = Workload::clone(workload);
            let kustomization = format!("{}-{registration}", self.inputs.environment);
            admitted.labels.insert(FLUX_NAME_LABEL.to_owned(), kustomization);
            admitted.labels.insert(FLUX_NAMESPACE_LABEL.to_owned(), FLUX_NAMESPACE.to_owned());
            if let Some(earlier) = merged.add(&AnyObject::Workload(Arc::new(admitted))) {
                self.problems.push(duplicate(object, earlier.origin()));
            }
        }
    }

    /// Adds the decisions about policies that have a scheduler.
    fn decide(&mut self, decisions: &BTreeMap<String, Arc<Vec<Decision>>>) {
        let policies = &self.inputs.policies;
        let counts = |name: &String| policies.get(name).is_some_and(|policy| policy.spec.scheduler.is_some());
        let counting = decisions.iter().filter(|(name, _)| counts(name));
        self.inputs.decisions = counting.map(|(name, decisions)| (name.clone(), decisions.clone())).collect();
    }

    /// Sorts the objects by kind, and expands Workloads.
    fn file(&mut self, objects: Merged) {
        let inputs = &mut self.inputs;
        for ((_, name), object) in objects.0 {
            match object {
                AnyObject::Environment(_) => {}
                AnyObject::BaseRepo(it) => {
                    self.base_repos.insert(name, it);
                }
                AnyObject::WorkloadRegistration(it) => {
                    self.registrations.insert(name, it);
                }
                AnyObject::Workload(it) => {
                    self.workloads.insert(name, it);
                }
                AnyObject::DeploymentTarget(it) => {
                    if it.spec.environment == inputs.environment {
                        inputs.targets.insert(name, it);
                    }
                }
                AnyObject::ClusterType(it) => {
                    inputs.cluster_types.insert(name, it);
                }
                AnyObject::SchedulingPolicy(it) => {
                    inputs.policies.insert(name, it);
                }
                AnyObject::ConfigSchema(it) => {
                    inputs.config_schemas.insert(name, it);
                }
                AnyObject::Template(it) => {
                    inputs.templates.insert(name, it);
                }
                AnyObject::GitOpsRepo(it) => {
                    self.gitops_repos.insert(name, it);
                }
                AnyObject::ConfigMap(it) => {
                    inputs.config_maps.insert(name, it);
                }
            }
        }
        let main = self.base_repos.get(MAIN).map(|main| &main.spec.commit);
        self.inputs.promoted_commit = main.filter(|commit| !commit.is_empty()).cloned();
        for workload in self.workloads.values() {
            let workspace = workspace(workload, &self.registrations, &self.inputs.environment);
            expand(workload, workspace, &mut self.inputs, &mut self.problems);
        }
    }
}

/// An object of a repository, for those who serve it.
#[derive(Clone, Debug, PartialEq)]
pub struct Served {
    /// The kind.
    pub kind: &'static str,
    /// The name.
    pub name: String,
    /// The file that has it. That of a deployment target may be the file of its Workload.
    pub origin: Origin,
    /// The object: its metadata and its spec or data.
    pub value: Value,
}

/// The objects of all sources, by kind and name.
#[derive(Debug, Default)]
struct Merged(BTreeMap<(&'static str, String), AnyObject>);

impl Merged {
    /// Adds an object. Returns the one of its name that counts instead.
    fn add(&mut self, object: &AnyObject) -> Option<&AnyObject> {
        match self.0.entry((object.kind(), object.name().to_owned())) {
            Entry::Vacant(entry) => {
                entry.insert(object.clone());
                None
            }
            Entry::Occupied(entry) => Some(entry.into_mut()),
        }
    }

    fn names(&self, kind: &str) -> Vec<String> {
        self.0.keys().filter(|(of, _)| *of == kind).map(|(_, name)| name.clone()).collect()
    }
}

fn duplicate(object: &AnyObject, earlier: &Origin) -> Problem {
    let origin = object.origin();
    let severity = if earlier.source == origin.source { Severity::Error } else { Severity::Warning };
    let message = format!("{object} is ignored: {earlier} has one too, which counts; remove or rename one");
    Problem::new(severity, origin, message)
}

fn workspace<'r>(
    workload: &Workload,
    registrations: &'r BTreeMap<String, Arc<WorkloadRegistration>>,
    environment: &str,
) -> &'r str {
    let kustomization = workload.labels.get(FLUX_NAME_LABEL);
    let name = kustomization.and_then(|name| name.strip_prefix(environment)?.strip_prefix('-'));
    name.and_then(|name| registrations.get(name)).map_or("", |registration| &registration.spec.workspace)
}

/// Adds the targets of a Workload for the environment. Follows `WorkloadReconciler`.
fn expand(workload: &Workload, workspace: &str, inputs: &mut Inputs, problems: &mut Vec<Problem>) {
    for target in workload.spec.deployment_targets.iter().filter(|it| it.spec.environment == inputs.environment) {
        let name = format!("{}-{}", workload.name, target.name);
        let mut problem = |message: String| problems.push(Problem::new(Severity::Error, &workload.origin, message));
        if let Err(message) = check_name(&name) {
            problem(format!("Workload {}: target {:?}: {message}", workload.name, target.name));
            continue;
        }
        let mut labels = target.labels.clone();
        labels.extend(workload.labels.clone());
        labels.insert(WORKLOAD_LABEL.to_owned(), workload.name.clone());
        labels.insert(WORKSPACE_LABEL.to_owned(), workspace.to_owned());
        let mut spec = target.spec.clone();
        spec.config_schemas.extend(workload.spec.config_schemas.iter().cloned());
        match inputs.targets.entry(name) {
            Entry::Vacant(entry) => {
                let object: DeploymentTarget =
                    Object { name: entry.key().clone(), labels, spec, origin: workload.origin.clone() };
                entry.insert(Arc::new(object));
            }
            Entry::Occupied(entry) => problem(format!(
                "Workload {}: target {:?} is ignored: {} has the DeploymentTarget {} too; rename one",
                workload.name,
                target.name,
                entry.get().origin,
                entry.key()
            )),
        }
    }
}

/// A folder as objects write it (`./workloads`, `workload/`, `.`) as a path from the root: `workloads`, and empty for the root.
///
/// `None` for a path that leads out of the repository.
pub fn folder(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The files of a repository that are below a [`folder`], by their paths in it.
pub fn within(files: &Files, folder: &str) -> Files {
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let below = files.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
    below.map(|(path, content)| (path[prefix.len()..].to_owned(), content.clone())).collect()
}

#[cfg(test)]
mod tests;
