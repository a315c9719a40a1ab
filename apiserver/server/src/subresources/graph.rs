//! `stacks/graph`, `projects/graph` and `organizations/graph`: the topology, as it is recorded.
//!
//! What is recorded are the Resources. Those that were removed are no part of the topology, and no edge leads to
//! them. Elsewhere: `drawing` writes DOT and Mermaid.

mod drawing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use serde::Serialize;
use stoa_machinery::{
    ApiError, content,
    definition::{SubresourceCall, SubresourceResponse},
    registry::ListOptions,
    status::FieldError,
};
use stoa_runs::Services;
use stoa_types::{
    Organization, Project, Resource, Stack, Workspace,
    delivery::{CloudIdentity, KubernetesIdentity, ResourcePhase},
};

use super::{
    format::{Format, PLAIN, bad_parameter},
    non_empty,
};

const DOT: &str = "text/vnd.graphviz";
const MERMAID: &str = "text/vnd.mermaid";
/// What graphs come in besides JSON and YAML. Plain text is both of the others, by `?format=`.
pub(super) const PRODUCES: &[&str] = &[DOT, MERMAID, PLAIN];
const FORMATS: &[Format<Graph>] = &[
    Format::Json,
    Format::Yaml,
    Format::Text(drawing::dot, "dot", DOT),
    Format::Text(drawing::mermaid, "mermaid", MERMAID),
];

/// Of what the graph is. Nodes are grouped by what is below it: projects, stacks, workspaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum Scope {
    Organization,
    Project,
    Stack,
}

/// The topology of an organization, a project or a stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Graph {
    /// Of what it is: `Organization`, `Project` or `Stack`.
    scope: Scope,
    /// What that is called.
    name: String,
    /// By project, stack, workspace and id.
    nodes: Vec<Node>,
    /// In the order of the nodes that they come from.
    edges: Vec<Edge>,
}

/// A piece of infrastructure: what its Resource says.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    /// The name of the Resource, which tells it from all others of the organization.
    name: String,
    project: String,
    stack: String,
    workspace: String,
    /// The engine's id.
    id: String,
    /// The runtime.
    #[serde(rename = "type")]
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    kubernetes: Option<KubernetesIdentity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cloud: Option<CloudIdentity>,
    phase: ResourcePhase,
    #[serde(skip_serializing_if = "String::is_empty")]
    health: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    release: Option<i64>,
}

/// That the one node depends on the other.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Edge {
    /// The name of the node that depends.
    from: String,
    /// The name of the node that it depends on.
    to: String,
}

impl Graph {
    /// The graph of these Resources; `project_of` has the stacks that it is of, with their projects.
    fn new(scope: Scope, name: &str, project_of: &BTreeMap<String, String>, resources: Vec<Resource>) -> Self {
        let mut entries: Vec<(Node, Vec<String>)> = resources
            .into_iter()
            .filter_map(|resource| {
                let project = project_of.get(&resource.spec.stack)?.clone();
                let status = resource.status.clone().unwrap_or_default();
                let name = resource.name_any();
                let spec = resource.spec;
                let node = Node {
                    name,
                    project,
                    stack: spec.stack,
                    workspace: spec.workspace,
                    id: spec.id,
                    kind: spec.kind,
                    kubernetes: spec.kubernetes,
                    cloud: spec.cloud,
                    phase: status.phase,
                    health: status.health,
                    release: spec.release,
                };
                (!status.phase.is_gone()).then_some((node, spec.depends_on))
            })
            .collect();
        entries.sort_by(|(a, _), (b, _)| a.key().cmp(&b.key()));
        let names: BTreeMap<_, &str> = entries.iter().map(|(node, _)| (node.key(), node.name.as_str())).collect();
        let edges_of = |(node, depends_on): &(Node, Vec<String>)| -> Vec<Edge> {
            let ids: BTreeSet<&str> = depends_on.iter().map(String::as_str).collect();
            let found = ids.into_iter().filter_map(|id| names.get(&Node::key_of(node, id)));
            found.map(|to| Edge { from: node.name.clone(), to: (*to).to_owned() }).collect()
        };
        let edges = entries.iter().flat_map(edges_of).collect();
        let nodes = entries.into_iter().map(|(node, _)| node).collect();
        Self { scope, name: name.to_owned(), nodes, edges }
    }
}

impl Node {
    fn key(&self) -> [&str; 4] {
        self.key_of(&self.id)
    }

    /// The key of a node of the same deployment.
    fn key_of<'a>(&'a self, id: &'a str) -> [&'a str; 4] {
        [&self.project, &self.stack, &self.workspace, id]
    }
}

/// Query parameters: `workspace` shows that one alone, and is 404 where neither it nor anything in it is; `format` is `json`, `yaml`, `dot` or `mermaid`.
pub(super) async fn graph(
    services: Services,
    scope: Scope,
    call: SubresourceCall,
) -> Result<SubresourceResponse, ApiError> {
    let format = Format::choose(&call, FORMATS)?;
    let workspace = non_empty(&call.query, "workspace");
    if let Some((name, wrong)) = workspace.and_then(|name| Some((name, content::dns_subdomain(name).pop()?))) {
        return Err(bad_parameter(&FieldError::invalid("workspace", name, wrong)));
    }
    let services = &services;
    let (namespace, project_of) = stacks(services, scope, &call).await?;
    let of_stack = (scope == Scope::Stack).then(|| format!("spec.stack={}", call.name));
    let in_workspace = workspace.map(|name| format!("spec.workspace={name}"));
    let selector: Vec<String> = of_stack.into_iter().chain(in_workspace).collect();
    let options = ListOptions { field_selector: Some(selector.join(",")), ..ListOptions::default() };
    let resources = services.lookup.api::<Resource>()?.list_with(Some(&namespace), &options).await?;
    // What was deployed to one that is gone is still recorded; of a name that was mistyped there is nothing.
    if let Some(name) = workspace.filter(|_| resources.is_empty()) {
        services.lookup.api::<Workspace>()?.get("", name).await?;
    }
    format.write(&call, &Graph::new(scope, &call.name, &project_of, resources))
}

/// The namespace that everything is in, and the stacks with their projects.
async fn stacks(
    services: &Services,
    scope: Scope,
    call: &SubresourceCall,
) -> Result<(String, BTreeMap<String, String>), ApiError> {
    let api = services.lookup.api::<Stack>()?;
    let (namespace, stacks) = match scope {
        Scope::Stack => (call.namespace.clone(), vec![api.get(&call.namespace, &call.name).await?]),
        Scope::Project => {
            services.lookup.api::<Project>()?.get(&call.namespace, &call.name).await?;
            let selector = Some(format!("spec.project={}", call.name));
            let options = ListOptions { field_selector: selector, ..ListOptions::default() };
            (call.namespace.clone(), api.list_with(Some(&call.namespace), &options).await?)
        }
        Scope::Organization => {
            services.lookup.api::<Organization>()?.get("", &call.name).await?;
            (call.name.clone(), api.list(Some(&call.name), "").await?)
        }
    };
    Ok((namespace, stacks.into_iter().map(|stack| (stack.name_any(), stack.spec.project)).collect()))
}
