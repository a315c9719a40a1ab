//! The files of a fleet.
//!
//! Start at [`render`], or at [`render_each`] for fleets whose files do not fit into memory. An assignment has three files in
//! the folder `<cluster type>/<target>`: `reconciler.yaml`, `namespace.yaml` and `platform-config.yaml` or `.sh`. One that
//! cannot be rendered has none, and is reported; its folder stays as it is, and all others are rendered.

use std::{collections::BTreeMap, panic::resume_unwind, sync::Arc, thread};

use serde_json::Value;

use crate::{
    Fleet,
    builtin::Builtin,
    config::Composed,
    objects::{ClusterType, DeploymentTarget, Template},
    schedule::Assignment,
    schemas::Violation,
    templates::{
        Batch, Data, Executed, Execution, Reach, Renderer, RendererError, TemplateError, config_json, namespace,
    },
};

/// The file with the promoted commit.
pub const PROMOTED_COMMIT: &str = ".github/tracking/Promoted_Commit_Id";

/// The file in the folder of a cluster type, and its text.
const README: &str = "README.md";
const README_TEXT: &str = "This folder contains deployment targets scheduled on the cluster type";

/// The content type of a file of shell variables.
const SHELL: &str = "sh";

/// The number of assignments that are rendered at once.
const CHUNK: usize = 500;
/// Threads that do so: one works while the renderer of the other does.
const THREADS: usize = 2;

/// A file of the GitOps repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The content.
    pub content: String,
    /// The objects that it is made of.
    pub provenance: Provenance,
}

/// The objects that a file is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The cluster type; empty for files of the whole repository.
    pub cluster_type: String,
    /// The deployment target; empty for files of a cluster type.
    pub target: String,
    /// The policies that assign the target, sorted.
    pub policies: Vec<String>,
    /// The template; empty for built-in files.
    pub template: String,
    /// The ConfigMaps that the file may have values of, in the order in which they count.
    pub config_maps: Vec<String>,
}

/// An assignment without files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The name of the Assignment.
    pub assignment: String,
    /// The problems, each with the object and the field that prevents it.
    pub problems: Vec<String>,
}

/// All files of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The files, by path. Folders at the root whose name begins with a dot belong to others, except these files.
    pub files: BTreeMap<String, File>,
    /// The assignments without files, by folder. Such a folder stays as it is.
    pub broken: BTreeMap<String, Broken>,
    /// Results that may not be meant, each with the assignment.
    pub warnings: Vec<String>,
}

/// Renders all files.
///
/// # Errors
///
/// [`RendererError`] when the renderer gave no answer.
pub fn render(fleet: &Fleet, renderer: &dyn Renderer) -> Result<Tree, RendererError> {
    let mut tree = Tree::default();
    render_each(fleet, renderer, &mut |output| match output {
        Output::File(path, file) => {
            tree.files.insert(path, file);
        }
        Output::Broken(folder, broken) => {
            tree.broken.insert(folder, broken);
        }
        Output::Warning(warning) => tree.warnings.push(warning),
    })?;
    Ok(tree)
}

/// A part of a rendered fleet.
#[derive(Clone, Debug)]
pub enum Output {
    /// A file, with its path.
    File(String, File),
    /// An assignment without files, with its folder.
    Broken(String, Broken),
    /// A result that may not be meant, with the assignment.
    Warning(String),
}

/// Renders all files, one assignment after the other, and keeps none of them.
///
/// # Errors
///
/// As [`render`].
pub fn render_each(fleet: &Fleet, renderer: &dyn Renderer, take: &mut dyn FnMut(Output)) -> Result<(), RendererError> {
    shared(fleet).into_iter().for_each(|(path, file)| take(Output::File(path, file)));
    let mut assignments = fleet.schedule().assignments();
    loop {
        let chunk = |_| assignments.by_ref().take(CHUNK).collect();
        let chunks: Vec<Vec<Assignment<'_>>> = (0..THREADS).map(chunk).collect();
        let chunks: Vec<_> = chunks.into_iter().filter(|chunk| !chunk.is_empty()).collect();
        let rendered = match &chunks[..] {
            [] => return Ok(()),
            [chunk] => vec![render_chunk(fleet, chunk, renderer)],
            chunks => thread::scope(|scope| {
                let mut threads = Vec::new();
                for chunk in chunks {
                    threads.push(scope.spawn(move || render_chunk(fleet, chunk, renderer)));
                }
                threads.into_iter().map(|it| it.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
            }),
        };
        for outputs in rendered {
            outputs?.into_iter().for_each(&mut *take);
        }
    }
}

/// Renders assignments with one call of the renderer.
fn render_chunk(
    fleet: &Fleet,
    chunk: &[Assignment<'_>],
    renderer: &dyn Renderer,
) -> Result<Vec<Output>, RendererError> {
    let plans: Vec<Plan> = chunk.iter().map(|it| Plan::new(fleet, it)).collect();
    let jobs: Vec<Job<'_>> = plans.iter().map(Job::whole).collect();
    let outcomes = execute(&jobs.iter().collect::<Vec<_>>(), renderer)?;
    let mut outputs = Vec::new();
    for (plan, outcome) in plans.iter().zip(outcomes) {
        match outcome {
            Ok(outcome) => {
                outputs.extend(outcome.warnings.into_iter().map(Output::Warning));
                outputs.extend(outcome.files.into_iter().map(|(path, file)| Output::File(path, file)));
            }
            Err(broken) => outputs.push(Output::Broken(plan.folder.clone(), broken)),
        }
    }
    Ok(outputs)
}

/// The files of an assignment, or its problems; `None` where there is no such assignment.
pub type Rendered = Option<Result<BTreeMap<String, File>, Broken>>;

/// Renders the files of some assignments, each by its cluster type and target, in their order.
///
/// # Errors
///
/// As [`render`].
pub fn render_some(
    fleet: &Fleet,
    assignments: &[(String, String)],
    renderer: &dyn Renderer,
) -> Result<Vec<Rendered>, RendererError> {
    let found = assignments.iter().map(|(cluster_type, target)| fleet.schedule().assignment(cluster_type, target));
    let plans: Vec<Option<Plan>> = found.map(|it| it.map(|it| Plan::new(fleet, &it))).collect();
    let jobs: Vec<Job<'_>> = plans.iter().flatten().map(Job::whole).collect();
    let mut outcomes = execute(&jobs.iter().collect::<Vec<_>>(), renderer)?.into_iter();
    let files = |outcome: Outcome| outcome.files.into_iter().collect();
    Ok(plans.iter().map(|plan| plan.as_ref().and_then(|_| outcomes.next()).map(|it| it.map(files))).collect())
}

/// The files that are of no assignment.
pub(crate) fn shared(fleet: &Fleet) -> BTreeMap<String, File> {
    let inputs = fleet.inputs();
    let readme = |name: &String| {
        let provenance = Provenance { cluster_type: name.clone(), ..Provenance::default() };
        (format!("{name}/{README}"), File { content: README_TEXT.to_owned(), provenance })
    };
    let commit = inputs.promoted_commit.iter().map(|commit| {
        (PROMOTED_COMMIT.to_owned(), File { content: commit.clone(), provenance: Provenance::default() })
    });
    inputs.cluster_types.keys().map(readme).chain(commit).collect()
}

/// The objects and values that an assignment is made of.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The name of the Assignment.
    pub assignment: String,
    /// The policies that make it, sorted.
    pub policies: Vec<String>,
    /// The names of its files, each with its template; the template is empty for a built-in file.
    pub files: Vec<(String, String)>,
    /// The configuration, with the ConfigMaps of each value and the scalars that a more general map replaces.
    pub configuration: Composed,
    /// The violations of schemas.
    pub violations: Vec<Violation>,
}

/// Explains the assignment of a target to a cluster type; `None` when there is no such assignment.
pub fn explain(fleet: &Fleet, cluster_type: &str, target: &str) -> Option<Explanation> {
    let assignment = fleet.schedule().assignment(cluster_type, target)?;
    let plan = Plan::new(fleet, &assignment);
    let configuration = fleet.configuration().compose(assignment.cluster_type, assignment.target);
    let violations = fleet.schemas().check(assignment.cluster_type, assignment.target, &configuration.values);
    let files = plan.parts.iter().map(|part| (part.file.to_owned(), part.maker.template().to_owned()));
    let files = files.collect();
    Some(Explanation {
        assignment: assignment.name(),
        policies: assignment.policies(),
        files,
        configuration,
        violations,
    })
}

/// One file of an assignment before it is rendered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) file: &'static str,
    pub(crate) maker: Maker,
    /// Whether it may have values of the configuration.
    has_config: bool,
}

/// The maker of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Maker {
    Template(Arc<Template>),
    Builtin(Builtin),
}

impl Maker {
    fn template(&self) -> &str {
        match self {
            Self::Template(template) => &template.name,
            Self::Builtin(_) => "",
        }
    }
}

/// An assignment before it is rendered: all that its files depend on.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) folder: String,
    pub(crate) parts: Vec<Part>,
    /// The problems that prevent a rendering.
    problems: Vec<String>,
    assignment: String,
    environment: String,
    cluster_type: Arc<ClusterType>,
    target: Arc<DeploymentTarget>,
    policies: Vec<String>,
    config_maps: Vec<String>,
    /// The configuration, if a file may have values of it.
    values: BTreeMap<String, Arc<Value>>,
}

impl Plan {
    pub(crate) fn new(fleet: &Fleet, assignment: &Assignment<'_>) -> Self {
        let (cluster_type, target) = (assignment.cluster_type, assignment.target);
        let mut plan = Self {
            folder: assignment.folder(),
            parts: Vec::with_capacity(3),
            problems: Vec::new(),
            assignment: assignment.name(),
            environment: fleet.inputs().environment.clone(),
            cluster_type: Arc::clone(cluster_type),
            target: Arc::clone(target),
            policies: assignment.policies(),
            config_maps: Vec::new(),
            values: BTreeMap::new(),
        };
        let spec = &cluster_type.spec;
        plan.add(fleet, "reconciler", &spec.reconciler, None, |_| "reconciler.yaml");
        plan.add(fleet, "namespaceService", &spec.namespace_service, None, |_| "namespace.yaml");
        let config_file = |content_type: &str| match content_type {
            SHELL => "platform-config.sh",
            _ => "platform-config.yaml",
        };
        plan.add(fleet, "configType", &spec.config_type, Builtin::of(&spec.config_type), config_file);
        let has_schemas = fleet.schemas().applies(cluster_type, target);
        if has_schemas || plan.parts.iter().any(|part| part.has_config) {
            (plan.values, plan.config_maps) = fleet.configuration().values(cluster_type, target);
        }
        if has_schemas {
            let violations = fleet.schemas().check(cluster_type, target, &plan.values);
            plan.problems.extend(violations.iter().map(ToString::to_string));
        }
        plan
    }

    /// Adds the file of a template that the cluster type names in a field.
    fn add(
        &mut self,
        fleet: &Fleet,
        field: &str,
        name: &str,
        builtin: Option<Builtin>,
        file: impl Fn(&str) -> &'static str,
    ) {
        let part = match (fleet.inputs().templates.get(name), builtin) {
            (Some(template), _) => Part {
                file: file(&template.spec.content_type),
                has_config: fleet.reach(name).on(&self.target) == Reach::Everything,
                maker: Maker::Template(Arc::clone(template)),
            },
            (None, Some(builtin)) => {
                let content_type = if builtin == Builtin::EnvFile { SHELL } else { "" };
                Part { file: file(content_type), has_config: true, maker: Maker::Builtin(builtin) }
            }
            (None, None) => {
                let problem = format!(
                    "ClusterType {}, spec.{field}: there is no Template {name:?}; create it or name another one",
                    self.cluster_type.name
                );
                return self.problems.push(problem);
            }
        };
        self.parts.push(part);
    }

    /// Whether a file of another plan of the same assignment is made of the same things.
    pub(crate) fn has_same(&self, part: &Part, other: &Self) -> bool {
        let (own, others) = (&self.target, &other.target);
        other.parts.contains(part)
            && self.environment == other.environment
            && (Arc::ptr_eq(own, others) || own.labels == others.labels && own.spec.manifests == others.spec.manifests)
            && (!part.has_config || self.values == other.values)
    }

    pub(crate) fn is_broken(&self) -> bool {
        !self.problems.is_empty()
    }

    fn broken(&self, problems: Vec<String>) -> Broken {
        Broken { assignment: self.assignment.clone(), problems }
    }

    fn file(&self, part: &Part, content: String) -> (String, File) {
        let provenance = Provenance {
            cluster_type: self.cluster_type.name.clone(),
            target: self.target.name.clone(),
            policies: self.policies.clone(),
            template: part.maker.template().to_owned(),
            config_maps: if part.has_config { self.config_maps.clone() } else { Vec::new() },
        };
        (format!("{}/{}", self.folder, part.file), File { content, provenance })
    }
}

/// The parts of a plan that are rendered.
#[derive(Debug)]
pub(crate) struct Job<'p> {
    plan: &'p Plan,
    parts: Vec<&'p Part>,
}

impl<'p> Job<'p> {
    pub(crate) fn whole(plan: &'p Plan) -> Self {
        Self { plan, parts: plan.parts.iter().collect() }
    }

    pub(crate) fn of(plan: &'p Plan, parts: Vec<&'p Part>) -> Self {
        Self { plan, parts }
    }
}

/// The rendered parts of an assignment.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) files: Vec<(String, File)>,
    pub(crate) warnings: Vec<String>,
}

/// Renders parts of plans, with one call of the renderer.
pub(crate) fn execute(
    jobs: &[&Job<'_>],
    renderer: &dyn Renderer,
) -> Result<Vec<Result<Outcome, Broken>>, RendererError> {
    let mut batch = Batch::default();
    let mut positions: BTreeMap<*const Template, usize> = BTreeMap::new();
    for Job { plan, parts } in jobs.iter().filter(|job| !job.plan.is_broken()) {
        let mut data = None;
        for part in parts {
            let Maker::Template(template) = &part.maker else { continue };
            let template = *positions.entry(Arc::as_ptr(template)).or_insert_with(|| {
                batch.templates.push(Arc::clone(template));
                batch.templates.len() - 1
            });
            let data = *data.get_or_insert_with(|| {
                batch.data.push(Data {
                    environment: plan.environment.clone(),
                    cluster_type: Arc::clone(&plan.cluster_type),
                    target: Arc::clone(&plan.target),
                    config_data: config_json(&plan.values),
                });
                batch.data.len() - 1
            });
            batch.executions.push(Execution { template, data });
        }
    }
    let results = if batch.executions.is_empty() { Vec::new() } else { renderer.execute(&batch)? };
    if results.len() != batch.executions.len() {
        let counts = format!("{} results for {} executions", results.len(), batch.executions.len());
        return Err(RendererError(counts));
    }
    let mut results = results.into_iter();
    Ok(jobs.iter().map(|job| assemble(job, &mut results)).collect())
}

type ExecutionResult = Result<Executed, TemplateError>;

fn assemble(job: &Job<'_>, results: &mut impl Iterator<Item = ExecutionResult>) -> Result<Outcome, Broken> {
    let plan = job.plan;
    if plan.is_broken() {
        return Err(plan.broken(plan.problems.clone()));
    }
    let (mut outcome, mut problems) = (Outcome::default(), Vec::new());
    for part in &job.parts {
        let content = match &part.maker {
            Maker::Builtin(builtin) => {
                builtin.render(&namespace(&plan.environment, &plan.cluster_type, &plan.target), &plan.values)
            }
            Maker::Template(template) => match results.next() {
                Some(Ok(executed)) => {
                    outcome.warnings.extend(volatile(plan, template, &executed.volatile));
                    joined(executed.manifests)
                }
                Some(Err(error)) => {
                    problems.push(format!("Template {}, {error}", template.name));
                    continue;
                }
                None => continue,
            },
        };
        // Kalypso leaves out an empty configuration, and no other file.
        if !content.is_empty() || !part.file.starts_with("platform-config") {
            outcome.files.push(plan.file(part, content));
        }
    }
    if problems.is_empty() { Ok(outcome) } else { Err(plan.broken(problems)) }
}

fn volatile(plan: &Plan, template: &Template, functions: &[String]) -> Option<String> {
    (!functions.is_empty()).then(|| {
        format!(
            "Assignment {}: Template {} calls {}, so that each rendering gives another file; use values of the data instead",
            plan.assignment,
            template.name,
            functions.join(", ")
        )
    })
}

/// Documents with `---` in between, each on a line of its own.
fn joined(manifests: Vec<String>) -> String {
    let mut all = String::new();
    for manifest in manifests {
        if !all.is_empty() {
            if !all.ends_with('\n') {
                all.push('\n');
            }
            all.push_str("---\n");
        }
        all.push_str(&manifest);
    }
    all
}

/// Finds an error of YAML in a file; `None` for a good one, and for a file that is not YAML by its name.
///
/// Templates may write anything. Flux and kubectl read the result by the rules of `sigs.k8s.io/yaml`.
pub fn unreadable(path: &str, content: &str) -> Option<String> {
    if !path.ends_with(".yaml") {
        return None;
    }
    parsed(path, content).err()
}

/// The documents of a file, or an error that names it.
pub(crate) fn parsed(path: &str, content: &str) -> Result<Vec<stoa_yaml::Document>, String> {
    const LIMITS: stoa_yaml::Limits =
        stoa_yaml::Limits { depth: 100, values: 1_000_000, documents: 10_000, copied: 16 << 20 };
    let invalid = |error: stoa_yaml::Error| format!("{path}:{}: is not valid YAML: {}", error.line, error.kind);
    stoa_yaml::documents(content, &LIMITS, false).map_err(invalid)
}

#[cfg(test)]
mod tests;
