//! VariableSet: values of the platform, and the stacks that receive them.
//!
//! Start at [`values()`], which finds the values for the generator of a stack. Elsewhere: [`crate::values`] decides between
//! several origins of one value.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use kube::ResourceExt as _;
use serde_json::{Map, Value};
use stoa_machinery::{
    ApiError, Object, RequestContext, ResourceDefinition,
    definition::{Cell, Column},
    registry::ListOptions,
    selector::LabelSelector,
    status::FieldError,
    strategy::Strategy,
};
use stoa_types::{Organization, Project, Stack, VariableSet, Workspace, platform::VariableSetSpec};

use super::{
    lookup::{self, Lookup},
    values::{self, Chosen, Conflict, Given, Layer, Level, Origin},
};
use crate::{
    kind::{InGit, Kind},
    rights::PUSHED,
    validation,
};

/// The kind VariableSet.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, _| builder.register(definition, VariableSetStrategy),
    in_git: Some(InGit::at("platform/variablesets/{name}.yaml")),
    rights: &[PUSHED],
    ..Kind::of::<VariableSet>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<VariableSet>().columns(&[
        Column::new("Level", Cell::Compute(level), "The most specific selector; it decides between two sets."),
        Column::new("Values", Cell::Compute(|set| count(set, "values")), "The number of values.").kind("integer"),
        Column::new("Secrets", Cell::Compute(|set| count(set, "secrets")), "The number of values of Secrets.")
            .kind("integer"),
        Column::new("Final", Cell::Compute(finals), "The values that nothing may override."),
        Column::age(),
        Column::new("Description", Cell::Path(&["spec", "description"]), "The description.").wide(),
    ])
}

fn level(set: &Object) -> Value {
    let spec = set.get_path(&["spec"]).cloned().and_then(|spec| serde_json::from_value::<VariableSetSpec>(spec).ok());
    spec.map_or(Value::Null, |spec| level_of(&spec).to_string().into())
}

fn count(set: &Object, field: &str) -> Value {
    set.get_path(&["spec", field]).and_then(Value::as_object).map_or(0, Map::len).into()
}

fn finals(set: &Object) -> Value {
    let names = set.get_path(&["spec", "finalValues"]).and_then(Value::as_array);
    let names: Vec<&str> = names.into_iter().flatten().filter_map(Value::as_str).collect();
    names.join(",").into()
}

/// A criterion of a set: the names of objects, and the selector of their labels.
struct Criterion<'a> {
    level: Level,
    names: &'a [String],
    selector: Option<&'a v1::LabelSelector>,
}

impl Criterion<'_> {
    fn is_set(&self) -> bool {
        !self.names.is_empty() || self.selector.is_some()
    }

    /// Whether an object meets it.
    fn selects(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let is_named = self.names.is_empty() || self.names.iter().any(|of| of == name);
        let is_labeled = |selector: &v1::LabelSelector| {
            LabelSelector::structured(selector)
                .is_ok_and(|selector| selector.matches(|key| labels.get(key).map(String::as_str)))
        };
        is_named && self.selector.is_none_or(is_labeled)
    }
}

/// The criteria of a set, from the weakest level to the strongest.
fn criteria(spec: &VariableSetSpec) -> [Criterion<'_>; 4] {
    [
        (Level::Organization, &spec.organizations, &spec.organization_selector),
        (Level::Project, &spec.projects, &spec.project_selector),
        (Level::Stack, &spec.stacks, &spec.stack_selector),
        (Level::Workspace, &spec.workspaces, &spec.workspace_selector),
    ]
    .map(|(level, names, selector)| Criterion { level, names, selector: selector.as_ref() })
}

fn level_of(spec: &VariableSetSpec) -> Level {
    let set = criteria(spec).into_iter().filter(Criterion::is_set);
    set.map(|criterion| criterion.level).max().unwrap_or(Level::Platform)
}

/// The names and labels of the objects that a set selects by, in the order of [`criteria`].
type Subject = [(String, BTreeMap<String, String>); 4];

fn selects(spec: &VariableSetSpec, subject: &Subject) -> bool {
    criteria(spec).iter().zip(subject).all(|(criterion, (name, labels))| criterion.selects(name, labels))
}

async fn subject(
    lookup: &Lookup,
    stack: &Stack,
    workspace: &Workspace,
    project: Option<&Project>,
) -> Result<Subject, ApiError> {
    let namespace = stack.namespace().unwrap_or_default();
    let organization = lookup.api::<Organization>()?.get_opt("", &namespace).await?;
    let project = match project {
        Some(project) => Some(project.clone()),
        None => lookup.api::<Project>()?.get_opt(&namespace, &stack.spec.project).await?,
    };
    Ok([
        (namespace, organization.map(|it| it.labels().clone()).unwrap_or_default()),
        (stack.spec.project.clone(), project.map(|it| it.labels().clone()).unwrap_or_default()),
        (stack.name_any(), stack.labels().clone()),
        (workspace.name_any(), workspace.labels().clone()),
    ])
}

/// The values for the generator of a stack in a workspace, with the parameters of a Run, or the conflicts between them.
///
/// # Errors
///
/// When the objects cannot be read.
pub async fn values(
    lookup: &Lookup,
    of: (&Stack, &Workspace),
    parameters: &BTreeMap<String, String>,
) -> Result<Result<Vec<Chosen>, Vec<Conflict>>, ApiError> {
    Ok(merged(&sets_of(lookup, of, None).await?, of, parameters))
}

/// The names of the VariableSets that decide values of a stack in a workspace. While sets conflict, all that select the
/// stack, as any of them may decide later. `project` is the Project as it is to be, if it changes.
///
/// # Errors
///
/// When the objects cannot be read.
pub(crate) async fn deciding(
    lookup: &Lookup,
    of: (&Stack, &Workspace),
    project: Option<&Project>,
) -> Result<Vec<String>, ApiError> {
    let sets = sets_of(lookup, of, project).await?;
    Ok(match merged(&sets, of, &BTreeMap::new()) {
        Ok(chosen) => values::variable_sets(&chosen).into_iter().map(str::to_owned).collect(),
        Err(_) => sets.iter().map(VariableSet::name_any).collect(),
    })
}

fn merged(
    sets: &[VariableSet],
    (stack, workspace): (&Stack, &Workspace),
    parameters: &BTreeMap<String, String>,
) -> Result<Vec<Chosen>, Vec<Conflict>> {
    let mut layers: Vec<Layer> = sets.iter().map(layer).collect();
    layers.push(Layer {
        origin: Origin::Workspace(workspace.name_any()),
        values: plain(&workspace.spec.values),
        final_values: workspace.spec.final_values.iter().cloned().collect(),
    });
    layers.push(Layer::of_parameters(Origin::Stack(stack.name_any()), &stack.spec.generator.parameters));
    layers.push(Layer::of_parameters(Origin::Run, parameters));
    values::merge(&layers)
}

async fn sets_of(
    lookup: &Lookup,
    (stack, workspace): (&Stack, &Workspace),
    project: Option<&Project>,
) -> Result<Vec<VariableSet>, ApiError> {
    let mut sets = lookup.api::<VariableSet>()?.list_with(None, &ListOptions::default()).await?;
    if !sets.is_empty() {
        let subject = subject(lookup, stack, workspace, project).await?;
        sets.retain(|set| selects(&set.spec, &subject));
    }
    Ok(sets)
}

fn plain(values: &Map<String, Value>) -> BTreeMap<String, Given> {
    values.iter().map(|(name, value)| (name.clone(), Given::Plain(value.clone()))).collect()
}

fn layer(set: &VariableSet) -> Layer {
    let mut values = plain(&set.spec.values);
    values.extend(set.spec.secrets.iter().map(|(name, secret)| (name.clone(), Given::Secret(secret.clone()))));
    Layer {
        origin: Origin::VariableSet { name: set.name_any(), level: level_of(&set.spec) },
        values,
        final_values: set.spec.final_values.iter().cloned().collect(),
    }
}

/// Requires the verb `use` on all VariableSets of some names.
///
/// # Errors
///
/// 403 that names the verb and the set.
pub async fn require_use<'a>(
    context: &RequestContext,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<(), ApiError> {
    for name in names {
        lookup::require_use::<VariableSet>(context, name).await?;
    }
    Ok(())
}

/// Checks the names of values, and that each final one is among them.
pub(crate) fn validate_values(
    (path, values): (&str, impl Iterator<Item = impl AsRef<str>>),
    finals: &[String],
    errors: &mut Vec<FieldError>,
) {
    let names: BTreeSet<String> = values.map(|name| name.as_ref().to_owned()).collect();
    for name in &names {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !begins || !name.chars().all(is_part) || name.len() > LONGEST_NAME {
            let message =
                format!("must be at most {LONGEST_NAME} letters, digits, '-' and '_', and begin with a letter or '_'");
            errors.push(FieldError::invalid(format!("{path}[{name}]"), name, message));
        }
    }
    for (i, name) in finals.iter().enumerate() {
        let path = format!("spec.finalValues[{i}]");
        if finals[..i].contains(name) {
            errors.push(FieldError::duplicate(path, name));
        } else if !names.contains(name) {
            errors.push(FieldError::not_found(path, name));
        }
    }
}

/// The most characters of the name of a value.
const LONGEST_NAME: usize = 128;

#[derive(Debug)]
struct VariableSetStrategy;

#[async_trait]
impl Strategy for VariableSetStrategy {
    type Object = VariableSet;

    fn validate(&self, object: &VariableSet) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let spec = &object.spec;
        validation::subjects("spec.owners", &spec.owners, &mut errors);
        let names = spec.values.keys().chain(spec.secrets.keys());
        validate_values(("spec.values", names), &spec.final_values, &mut errors);
        for (name, secret) in &spec.secrets {
            let path = format!("spec.secrets[{name}]");
            validation::secret_key(&path, secret, &mut errors);
            if spec.values.contains_key(name) {
                errors.push(FieldError::duplicate(path, name));
            }
        }
        let fields = [
            ("organizations", "organizationSelector"),
            ("projects", "projectSelector"),
            ("stacks", "stackSelector"),
            ("workspaces", "workspaceSelector"),
        ];
        for ((names, selector), criterion) in fields.into_iter().zip(criteria(spec)) {
            validation::names(&format!("spec.{names}"), criterion.names, &mut errors);
            if let Some(of) = criterion.selector {
                errors.extend(LabelSelector::validate(&format!("spec.{selector}"), of));
            }
        }
        errors
    }
}
