//! Templates on a function-runner, and the files of a fleet after a change.

use std::{collections::BTreeMap, sync::Arc};

use stoa_fleet::{
    Fleet,
    changed::{Changes, changed},
    config::replaced,
    render::{Tree, render as render_all},
    results::InvalidResults,
    templates::{Batch, Executed, Renderer, RendererError, TemplateError},
};
use stoa_proto::{ExecuteTemplatesRequest, TemplateExecution, TemplateResult, TemplateTexts, TemplateVariables};
use stoa_runs::runner::Runner;
use tokio::runtime::Handle;

use super::Known;

/// The most assignments with replaced values that are reported.
const REPLACED: usize = 1000;

/// Executes templates on a function-runner. Its calls are on a thread that may wait.
#[derive(Debug)]
pub(super) struct OnRunner {
    pub(super) runner: Runner,
    pub(super) runtime: Handle,
    /// Whose templates they are.
    pub(super) organization: String,
}

impl OnRunner {
    fn request(&self, batch: &Batch) -> ExecuteTemplatesRequest {
        let position = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let templates = batch.templates.iter().map(|it| TemplateTexts { manifests: it.spec.manifests.clone() });
        let variables = batch.data.iter().map(|it| TemplateVariables {
            deployment_target_name: it.target.name.clone(),
            namespace: it.namespace(),
            environment: it.environment.clone(),
            workspace: it.target.workspace().to_owned(),
            workload: it.target.workload().to_owned(),
            labels: it.labels().clone().into_iter().collect(),
            manifests: it.manifests().clone().into_iter().collect(),
            cluster_type: it.cluster_type.name.clone(),
            config_data: it.config_data.clone().into(),
        });
        let executions = batch
            .executions
            .iter()
            .map(|it| TemplateExecution { template: position(it.template), variables: position(it.data) });
        ExecuteTemplatesRequest {
            organization: self.organization.clone(),
            templates: templates.collect(),
            variables: variables.collect(),
            executions: executions.collect(),
        }
    }
}

fn result(of: TemplateResult) -> Result<Executed, TemplateError> {
    match of.failure {
        None => Ok(Executed { manifests: of.manifests, volatile: of.volatile }),
        Some(failure) => Err(TemplateError {
            manifest: failure.manifest as usize,
            line: failure.line as usize,
            message: failure.message,
        }),
    }
}

impl Renderer for OnRunner {
    fn execute(&self, batch: &Batch) -> Result<Vec<Result<Executed, TemplateError>>, RendererError> {
        let answer = self.runtime.block_on(self.runner.execute_templates(self.request(batch)));
        let answer = answer.map_err(|status| RendererError(status.message().to_owned()))?;
        Ok(answer.results.into_iter().map(result).collect())
    }
}

/// Renders a fleet that was read: all of it, or the files that differ from those of before.
pub(super) fn render(before: Option<&Known>, read: Known, renderer: &dyn Renderer) -> Result<Known, RendererError> {
    // Once nothing can be missing any more, the files that stayed may have to go: a comparison does not find them.
    let is_whole = |before: &&Known| !before.fleet.inputs().keeps_files() || read.fleet.inputs().keeps_files();
    let comparable = before.filter(is_whole);
    let (tree, invalid) = match comparable.and_then(|before| Some((before, before.tree.clone()?))) {
        None => {
            let tree = render_all(&read.fleet, renderer)?;
            let invalid = InvalidResults::of(&tree.files);
            (Arc::new(tree), Arc::new(invalid))
        }
        Some((before, tree)) => {
            let changes = changed(&before.fleet, &tree.broken, &read.fleet, renderer)?;
            if changes.is_empty() && changes.broken == tree.broken {
                (tree, before.invalid.clone())
            } else {
                let touched = changes.written.keys().chain(&changes.deleted).cloned().collect();
                let tree = applied(&tree, changes);
                let invalid = before.invalid.after(&tree.files, &touched);
                (Arc::new(tree), Arc::new(invalid))
            }
        }
    };
    let is_composed_alike = |before: &&Known| before.tree.is_some() && has_same_values(&before.fleet, &read.fleet);
    let replaced = match before.filter(is_composed_alike) {
        Some(before) => before.replaced.clone(),
        None => replaced(&read.fleet, REPLACED).into(),
    };
    Ok(Known { tree: Some(tree), invalid, replaced, ..read })
}

/// Whether two fleets share their assignments and their configuration.
fn has_same_values(a: &Fleet, b: &Fleet) -> bool {
    std::ptr::eq(a.schedule(), b.schedule()) && std::ptr::eq(a.configuration(), b.configuration())
}

/// A tree after changes.
fn applied(tree: &Tree, changes: Changes) -> Tree {
    let mut files: BTreeMap<_, _> = tree.files.clone();
    for path in &changes.deleted {
        files.remove(path);
    }
    files.extend(changes.written);
    Tree { files, broken: changes.broken, warnings: tree.warnings.clone() }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use stoa_fleet::{ControlPlane, Files, Sources, objects::API_VERSION, schedule::Decision};

    use super::*;
    use crate::fleet::Reading;

    /// Answers with the texts of the templates.
    #[derive(Debug)]
    struct Plain;

    impl Renderer for Plain {
        fn execute(&self, batch: &Batch) -> Result<Vec<Result<Executed, TemplateError>>, RendererError> {
            let texts = |at: usize| batch.templates[at].spec.manifests.clone();
            let one = |at: usize| Ok(Executed { manifests: texts(at), volatile: Vec::new() });
            Ok(batch.executions.iter().map(|it| one(it.template)).collect())
        }
    }

    /// A fleet of two cluster types and one target. `decided` has the cluster types that a scheduler chooses, if it is external.
    fn read(scheduler: &str, decided: Option<&[&str]>) -> Known {
        let object = |kind: &str, name: &str, spec: &str| {
            let metadata = format!("{{name: {name}, labels: {{workload: app}}}}");
            let text = format!("apiVersion: {API_VERSION}\nkind: {kind}\nmetadata: {metadata}\nspec: {spec}\n");
            (format!("{kind}/{name}.yaml"), Bytes::from(text))
        };
        let cluster_type = "{reconciler: flux, namespaceService: flux}";
        let any = "{labelSelector: {}}";
        let policy = format!("{{deploymentTargetSelector: {any}, clusterTypeSelector: {any}{scheduler}}}");
        let stored: Files = [
            object("ClusterType", "drone", cluster_type),
            object("ClusterType", "large", cluster_type),
            object("DeploymentTarget", "web", "{environment: dev, manifests: {}}"),
            object("Template", "flux", "{type: reconciler, manifests: ['kind: A']}"),
            object("SchedulingPolicy", "all", &policy),
        ]
        .into();
        let decision = |names: &[&str]| {
            let cluster_types = names.iter().map(|name| (*name).to_owned()).collect();
            Arc::new(vec![Decision { cluster_types, deployment_targets: None }])
        };
        let decisions = decided.map(|names| ("all".to_owned(), decision(names))).into_iter().collect();
        let sources = Sources { environment: "dev".to_owned(), stored, decisions, ..Sources::default() };
        let plane = Arc::new(ControlPlane::read(&sources, None));
        let fleet = Fleet::new(plane.inputs.clone());
        let reading = Reading {
            environment: None,
            plane,
            sources: Arc::new(sources),
            folders: BTreeMap::new(),
            failed: BTreeMap::new(),
        };
        Known { reading, fleet, tree: None, replaced: Arc::default(), invalid: Arc::default() }
    }

    fn folders(known: &Known) -> Vec<&str> {
        let tree = known.tree.as_ref().unwrap();
        let mut folders: Vec<&str> =
            tree.files.keys().filter_map(|path| path.strip_suffix("/web/reconciler.yaml")).collect();
        folders.dedup();
        folders
    }

    #[test]
    fn files_stay_until_an_external_scheduler_decides() {
        let external = ", scheduler: {name: ocm}";
        let by_labels = render(None, read("", None), &Plain).unwrap();
        assert_eq!(folders(&by_labels), ["drone", "large"]);
        let undecided = render(Some(&by_labels), read(external, None), &Plain).unwrap();
        assert_eq!(folders(&undecided), ["drone", "large"]);
        assert!(undecided.fleet.inputs().keeps_files());
        let decided = render(Some(&undecided), read(external, Some(&["drone"])), &Plain).unwrap();
        assert_eq!(folders(&decided), ["drone"]);
        // After a restart, the proposal keeps what the fleet does not have.
        let restarted = render(None, read(external, None), &Plain).unwrap();
        assert_eq!(folders(&restarted), [] as [&str; 0]);
        assert!(restarted.fleet.inputs().keeps_files());
    }
}
