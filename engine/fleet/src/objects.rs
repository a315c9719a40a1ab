//! The objects of a control plane, as far as scheduling and rendering read them.
//!
//! `stoa_types::scheduler` has the same kinds for clients and servers. A crate that links it links a client of clusters too,
//! so the parts that count are read here once more.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{Origin, Selector, values};

/// The group and version of Kalypso's kinds.
pub const API_VERSION: &str = "scheduler.kalypso.io/v1alpha1";

/// The label with the ClusterType that a ConfigMap or ConfigSchema is for.
pub const CLUSTER_TYPE_LABEL: &str = "cluster-type";
/// The label with the DeploymentTarget that a ConfigMap or ConfigSchema is for.
pub const DEPLOYMENT_TARGET_LABEL: &str = "deployment-target";
/// The label with the Workload of a DeploymentTarget, or of a ConfigMap or ConfigSchema.
pub const WORKLOAD_LABEL: &str = "workload";
/// The label with the workspace of a DeploymentTarget.
pub const WORKSPACE_LABEL: &str = "workspace";
/// The label of ConfigMaps with configuration for assignments. Its value is `true`.
pub const PLATFORM_CONFIG_LABEL: &str = "platform-config";
/// The label of Flux with the Kustomization that an object comes from. Kalypso copies it to deployment targets.
pub const FLUX_NAME_LABEL: &str = "kustomize.toolkit.fluxcd.io/name";
/// The label of Flux with the namespace of that Kustomization.
pub const FLUX_NAMESPACE_LABEL: &str = "kustomize.toolkit.fluxcd.io/namespace";
/// The namespace of the Kustomizations that Kalypso makes.
pub const FLUX_NAMESPACE: &str = "flux-system";

/// The kinds that count.
pub const KINDS: [&str; 11] = [
    "Environment",
    "BaseRepo",
    "WorkloadRegistration",
    "Workload",
    "DeploymentTarget",
    "ClusterType",
    "SchedulingPolicy",
    "ConfigSchema",
    "Template",
    "GitOpsRepo",
    "ConfigMap",
];

/// The labels of an object.
pub type Labels = BTreeMap<String, String>;

/// An object. Two are equal when they mean the same, wherever they are written.
#[derive(Clone, Debug)]
pub struct Object<S> {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.labels`.
    pub labels: Labels,
    /// The part of the object that is its kind's own.
    pub spec: S,
    /// The file that has it.
    pub origin: Origin,
}

impl<S: PartialEq> PartialEq for Object<S> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.labels == other.labels && self.spec == other.spec
    }
}

/// An Environment.
pub type Environment = Object<EnvironmentSpec>;
/// A BaseRepo.
pub type BaseRepo = Object<BaseRepoSpec>;
/// A WorkloadRegistration.
pub type WorkloadRegistration = Object<WorkloadRegistrationSpec>;
/// A Workload.
pub type Workload = Object<WorkloadSpec>;
/// A DeploymentTarget.
pub type DeploymentTarget = Object<DeploymentTargetSpec>;
/// A ClusterType.
pub type ClusterType = Object<ClusterTypeSpec>;
/// A SchedulingPolicy.
pub type SchedulingPolicy = Object<SchedulingPolicySpec>;
/// A ConfigSchema.
pub type ConfigSchema = Object<ConfigSchemaSpec>;
/// A Template.
pub type Template = Object<TemplateSpec>;
/// A GitOpsRepo.
pub type GitOpsRepo = Object<Repository>;
/// A ConfigMap.
pub type ConfigMap = Object<ConfigMapData>;

/// A folder in a branch of a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Repository {
    /// The URL of the repository.
    pub repo: String,
    /// The branch.
    pub branch: String,
    /// The folder, from the root of the repository.
    pub path: String,
}

/// The spec of an Environment.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentSpec {
    /// The branch with the objects of the environment.
    pub control_plane: Repository,
}

/// The spec of a BaseRepo.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct BaseRepoSpec {
    /// The folder with the objects.
    #[serde(flatten)]
    pub repository: Repository,
    /// The commit; empty for the head of the branch.
    #[serde(default)]
    pub commit: String,
}

/// The spec of a WorkloadRegistration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct WorkloadRegistrationSpec {
    /// The folder with the Workloads.
    pub workload: Repository,
    /// The workspace of the team; empty for none.
    #[serde(default)]
    pub workspace: String,
}

/// The spec of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSpec {
    /// The targets for all environments.
    #[serde(deserialize_with = "or_default")]
    pub deployment_targets: Vec<WorkloadTarget>,
    /// JSON Schemas that the configuration of every target has to match.
    #[serde(deserialize_with = "or_default")]
    pub config_schemas: Vec<String>,
}

/// A target of a Workload.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct WorkloadTarget {
    /// The name, without that of the Workload.
    pub name: String,
    /// The labels.
    #[serde(default, deserialize_with = "or_default")]
    pub labels: Labels,
    /// The spec of the DeploymentTarget.
    #[serde(flatten)]
    pub spec: DeploymentTargetSpec,
}

/// The spec of a DeploymentTarget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentTargetSpec {
    /// The environment.
    pub environment: String,
    /// The location of the manifests, for templates.
    pub manifests: BTreeMap<String, String>,
    /// JSON Schemas that the configuration has to match.
    #[serde(default, deserialize_with = "or_default")]
    pub config_schemas: Vec<String>,
}

/// The spec of a ClusterType.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTypeSpec {
    /// The Template of the reconciler.
    pub reconciler: String,
    /// The Template of the namespace.
    pub namespace_service: String,
    /// The Template of the configuration, or a built-in type.
    #[serde(default)]
    pub config_type: String,
}

/// The spec of a SchedulingPolicy.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingPolicySpec {
    /// The deployment targets.
    pub deployment_target_selector: DeploymentTargetSelector,
    /// The cluster types.
    pub cluster_type_selector: ClusterTypeSelector,
    /// The scheduler that decides about the selected objects; none: all of them are assigned.
    #[serde(default)]
    pub scheduler: Option<ExternalScheduler>,
}

/// An external scheduler, as a policy names it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ExternalScheduler {
    /// The name in the server's configuration.
    pub name: String,
    /// Values for the scheduler.
    #[serde(default, deserialize_with = "or_default")]
    pub parameters: BTreeMap<String, String>,
}

/// The deployment targets of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentTargetSelector {
    /// The workspace of the targets; empty for any.
    #[serde(default)]
    pub workspace: String,
    /// Their labels.
    pub label_selector: Selector,
}

/// The cluster types of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTypeSelector {
    /// Their labels.
    pub label_selector: Selector,
}

/// The spec of a ConfigSchema.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ConfigSchemaSpec {
    /// The JSON Schema.
    pub schema: String,
}

/// The purpose of a Template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TemplateType {
    /// Points a reconciler to the manifests of a workload.
    Reconciler,
    /// The namespace of a workload.
    Namespace,
    /// The configuration of a workload.
    Config,
}

/// The spec of a Template.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateSpec {
    /// The purpose.
    #[serde(rename = "type")]
    pub type_: TemplateType,
    /// The type of the result: `sh` for a file of shell variables, else YAML.
    #[serde(default)]
    pub content_type: String,
    /// The texts.
    #[serde(deserialize_with = "texts")]
    pub manifests: Vec<String>,
}

/// The data of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ConfigMapData {
    /// The values as Kalypso reads them, by key: a text, or the map or list that the text has in YAML.
    #[serde(default, rename = "data", deserialize_with = "typed")]
    pub values: BTreeMap<String, Arc<Value>>,
}

impl DeploymentTarget {
    /// The Workload that the target is of; empty for none.
    pub fn workload(&self) -> &str {
        self.labels.get(WORKLOAD_LABEL).map_or("", String::as_str)
    }

    /// The workspace of the target; empty for none.
    pub fn workspace(&self) -> &str {
        self.labels.get(WORKSPACE_LABEL).map_or("", String::as_str)
    }
}

impl SchedulingPolicy {
    /// Whether the policy selects a cluster type.
    pub fn selects_cluster_type(&self, cluster_type: &ClusterType) -> bool {
        self.spec.cluster_type_selector.label_selector.matches(&cluster_type.labels)
    }

    /// Whether the policy selects a deployment target.
    pub fn selects_target(&self, target: &DeploymentTarget) -> bool {
        let DeploymentTargetSelector { workspace, label_selector } = &self.spec.deployment_target_selector;
        (workspace.is_empty() || workspace == target.workspace()) && label_selector.matches(&target.labels)
    }
}

/// An object of any kind that counts.
#[derive(Clone, Debug, PartialEq)]
pub enum AnyObject {
    /// An Environment.
    Environment(Arc<Environment>),
    /// A BaseRepo.
    BaseRepo(Arc<BaseRepo>),
    /// A WorkloadRegistration.
    WorkloadRegistration(Arc<WorkloadRegistration>),
    /// A Workload.
    Workload(Arc<Workload>),
    /// A DeploymentTarget.
    DeploymentTarget(Arc<DeploymentTarget>),
    /// A ClusterType.
    ClusterType(Arc<ClusterType>),
    /// A SchedulingPolicy.
    SchedulingPolicy(Arc<SchedulingPolicy>),
    /// A ConfigSchema.
    ConfigSchema(Arc<ConfigSchema>),
    /// A Template.
    Template(Arc<Template>),
    /// A GitOpsRepo.
    GitOpsRepo(Arc<GitOpsRepo>),
    /// A ConfigMap.
    ConfigMap(Arc<ConfigMap>),
}

macro_rules! each {
    ($object:expr, $it:ident => $value:expr) => {
        match $object {
            AnyObject::Environment($it) => $value,
            AnyObject::BaseRepo($it) => $value,
            AnyObject::WorkloadRegistration($it) => $value,
            AnyObject::Workload($it) => $value,
            AnyObject::DeploymentTarget($it) => $value,
            AnyObject::ClusterType($it) => $value,
            AnyObject::SchedulingPolicy($it) => $value,
            AnyObject::ConfigSchema($it) => $value,
            AnyObject::Template($it) => $value,
            AnyObject::GitOpsRepo($it) => $value,
            AnyObject::ConfigMap($it) => $value,
        }
    };
}

impl AnyObject {
    /// The kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Environment(_) => "Environment",
            Self::BaseRepo(_) => "BaseRepo",
            Self::WorkloadRegistration(_) => "WorkloadRegistration",
            Self::Workload(_) => "Workload",
            Self::DeploymentTarget(_) => "DeploymentTarget",
            Self::ClusterType(_) => "ClusterType",
            Self::SchedulingPolicy(_) => "SchedulingPolicy",
            Self::ConfigSchema(_) => "ConfigSchema",
            Self::Template(_) => "Template",
            Self::GitOpsRepo(_) => "GitOpsRepo",
            Self::ConfigMap(_) => "ConfigMap",
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        each!(self, it => &it.name)
    }

    /// The file that has it.
    pub fn origin(&self) -> &Origin {
        each!(self, it => &it.origin)
    }

    /// Reads an object of a kind that counts; `None` for any other.
    ///
    /// # Errors
    ///
    /// The field that is wrong, and the reason.
    pub fn read(value: &Value, origin: Origin) -> Option<Result<Self, String>> {
        let (version, kind) = (value["apiVersion"].as_str()?, value["kind"].as_str()?);
        let is_config_map = (version, kind) == ("v1", "ConfigMap");
        if version != API_VERSION && !is_config_map {
            return None;
        }
        Some(match kind {
            "ConfigMap" if is_config_map => object(value, value, origin).map(Self::ConfigMap),
            "Environment" => own(value, origin).map(Self::Environment),
            "BaseRepo" => own(value, origin).map(Self::BaseRepo),
            "WorkloadRegistration" => own(value, origin).map(Self::WorkloadRegistration),
            "Workload" => own(value, origin).map(Self::Workload),
            "DeploymentTarget" => own(value, origin).map(Self::DeploymentTarget),
            "ClusterType" => own(value, origin).map(Self::ClusterType),
            "SchedulingPolicy" => own(value, origin).map(Self::SchedulingPolicy),
            "ConfigSchema" => own(value, origin).map(Self::ConfigSchema),
            "Template" => own(value, origin).map(Self::Template),
            "GitOpsRepo" => own(value, origin).map(Self::GitOpsRepo),
            _ => return None,
        })
    }
}

impl fmt::Display for AnyObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}

fn own<S: for<'d> Deserialize<'d>>(value: &Value, origin: Origin) -> Result<Arc<Object<S>>, String> {
    let empty = Value::Object(serde_json::Map::new());
    object(value, value.get("spec").filter(|spec| !spec.is_null()).unwrap_or(&empty), origin)
}

fn object<S: for<'d> Deserialize<'d>>(value: &Value, spec: &Value, origin: Origin) -> Result<Arc<Object<S>>, String> {
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default)]
        name: String,
        #[serde(default, deserialize_with = "or_default")]
        labels: Labels,
    }
    let metadata = Metadata::deserialize(&value["metadata"]).map_err(|error| format!("metadata: {error}"))?;
    check_name(&metadata.name)?;
    let spec = S::deserialize(spec).map_err(|error| format!("spec: {error}"))?;
    Ok(Arc::new(Object { name: metadata.name, labels: metadata.labels, spec, origin }))
}

/// Checks a name as Kubernetes does: it becomes a folder, too.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_part = |part: &str| {
        let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !part.is_empty() && part.bytes().all(is_inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    if name.len() <= 253 && name.split('.').all(is_part) {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    Err(format!("name {shown:?} is invalid; use at most 253 lower case letters, digits, `-` and `.`"))
}

/// Null is the default, as in Go.
fn or_default<'d, T: Default + Deserialize<'d>, D: Deserializer<'d>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The texts of a template. Kalypso before March 2023 had objects, which are written as YAML here.
fn texts<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let items = Vec::<Value>::deserialize(deserializer)?;
    items
        .into_iter()
        .map(|item| match item {
            Value::String(text) => Ok(text),
            Value::Object(_) => Ok(format!("{}\n", values::yaml(&item))),
            _ => Err(serde::de::Error::custom("manifests: expected texts")),
        })
        .collect()
}

fn typed<'d, D: Deserializer<'d>>(deserializer: D) -> Result<BTreeMap<String, Arc<Value>>, D::Error> {
    let data = Option::<BTreeMap<String, Option<String>>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(data.into_iter().map(|(key, text)| (key, Arc::new(values::typed(text.unwrap_or_default())))).collect())
}
