//! The objects that are scheduled and rendered, and the indexes over them.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    config::Configuration,
    objects::{ClusterType, ConfigMap, ConfigSchema, DeploymentTarget, SchedulingPolicy, Template},
    schedule::{Decision, Schedule},
    schemas::Schemas,
    templates::Reach,
};

/// The objects of one environment that decide about its files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    /// The name of the environment.
    pub environment: String,
    /// The cluster types, by name.
    pub cluster_types: BTreeMap<String, Arc<ClusterType>>,
    /// The deployment targets of this environment, by name.
    pub targets: BTreeMap<String, Arc<DeploymentTarget>>,
    /// The policies, by name.
    pub policies: BTreeMap<String, Arc<SchedulingPolicy>>,
    /// The last decisions of external schedulers, by policy. A policy without a scheduler needs none.
    pub decisions: BTreeMap<String, Arc<Vec<Decision>>>,
    /// The ConfigMaps, by name, with those that are no configuration of assignments.
    pub config_maps: BTreeMap<String, Arc<ConfigMap>>,
    /// The schemas, by name.
    pub config_schemas: BTreeMap<String, Arc<ConfigSchema>>,
    /// The templates, by name.
    pub templates: BTreeMap<String, Arc<Template>>,
    /// The commit of the BaseRepo `main`.
    pub promoted_commit: Option<String>,
    /// Whether objects may be missing, so that nothing may be deleted for the lack of one.
    pub is_incomplete: bool,
}

impl Inputs {
    /// Whether a policy has an external scheduler that has not decided yet.
    pub fn is_undecided(&self, policy: &SchedulingPolicy) -> bool {
        policy.spec.scheduler.is_some() && !self.decisions.contains_key(&policy.name)
    }

    /// Whether files stay that nothing renders: an object or a decision may be missing.
    pub fn keeps_files(&self) -> bool {
        self.is_incomplete || self.policies.values().any(|policy| self.is_undecided(policy))
    }
}

/// The objects of one environment, ready for questions about assignments and files.
///
/// It is cheap to clone.
#[derive(Clone, Debug)]
pub struct Fleet {
    inputs: Arc<Inputs>,
    schedule: Arc<Schedule>,
    configuration: Arc<Configuration>,
    schemas: Arc<Schemas>,
    reach: Arc<BTreeMap<String, Reach>>,
}

impl Fleet {
    /// Schedules the targets of an environment and indexes its configuration.
    pub fn new(inputs: Inputs) -> Self {
        Self::build(inputs, None)
    }

    /// The fleet after a change of its inputs. Indexes over objects that did not change are those of this fleet.
    pub fn next(&self, inputs: Inputs) -> Self {
        Self::build(inputs, Some(self))
    }

    fn build(inputs: Inputs, previous: Option<&Self>) -> Self {
        let same = |are_equal: fn(&Inputs, &Inputs) -> bool| previous.filter(|it| are_equal(&it.inputs, &inputs));
        let is_scheduled_alike = |a: &Inputs, b: &Inputs| {
            same_objects(&a.cluster_types, &b.cluster_types)
                && same_objects(&a.targets, &b.targets)
                && same_objects(&a.policies, &b.policies)
                && same_objects(&a.decisions, &b.decisions)
        };
        let schedule = match same(is_scheduled_alike) {
            Some(previous) => Arc::clone(&previous.schedule),
            None => Arc::new(Schedule::new(&inputs)),
        };
        let configuration = match same(|a, b| same_objects(&a.config_maps, &b.config_maps)) {
            Some(previous) => Arc::clone(&previous.configuration),
            None => Arc::new(Configuration::new(&inputs.config_maps)),
        };
        let schemas = match same(|a, b| {
            same_objects(&a.config_schemas, &b.config_schemas) && same_objects(&a.targets, &b.targets)
        }) {
            Some(previous) => Arc::clone(&previous.schemas),
            None => Arc::new(Schemas::new(&inputs, previous.map(|previous| &*previous.schemas))),
        };
        let reach = match same(|a, b| same_objects(&a.templates, &b.templates)) {
            Some(previous) => Arc::clone(&previous.reach),
            None => {
                let reach =
                    |(name, template): (&String, &Arc<Template>)| (name.clone(), Reach::of(&template.spec.manifests));
                Arc::new(inputs.templates.iter().map(reach).collect())
            }
        };
        Self { inputs: Arc::new(inputs), schedule, configuration, schemas, reach }
    }

    /// The objects.
    pub fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// The assignments.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The values for assignments.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    pub(crate) fn schemas(&self) -> &Schemas {
        &self.schemas
    }

    /// The part of its data that a template can read.
    pub(crate) fn reach(&self, template: &str) -> Reach {
        self.reach.get(template).copied().unwrap_or(Reach::Everything)
    }
}

/// Whether two maps have equal objects. Those that both share are not compared.
pub(crate) fn same_objects<T: PartialEq>(a: &BTreeMap<String, Arc<T>>, b: &BTreeMap<String, Arc<T>>) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|((n, a), (m, b))| n == m && (Arc::ptr_eq(a, b) || a == b))
}

/// The names of the objects that differ between two maps, with those that only one of them has.
pub(crate) fn different<'m, T: PartialEq>(
    old: &'m BTreeMap<String, Arc<T>>,
    new: &'m BTreeMap<String, Arc<T>>,
) -> Vec<&'m str> {
    let mut names: Vec<&str> = Vec::new();
    for (name, object) in old {
        if !new.get(name).is_some_and(|it| Arc::ptr_eq(it, object) || it == object) {
            names.push(name);
        }
    }
    names.extend(new.keys().filter(|name| !old.contains_key(*name)).map(String::as_str));
    names
}
