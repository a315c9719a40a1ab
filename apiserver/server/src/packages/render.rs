//! The functions of a package, at each save, and those of its repository.
//!
//! Functions that are built in run here, others on a function-runner. A render that fails leaves the files as they were sent,
//! and `status.renderStatus` has the reason. Functions of the repository run after those of the Kptfile, on all objects.
//!
//! A save waits for [`PATIENCE`]. A render that takes longer continues in [`Renders`], and `package_renders` writes its outcome.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use serde_json::json;
use stoa_controller::blocking::on_own_thread;
use stoa_packages::{
    FunctionError, Functions, Limits, Tree,
    function::{Call, ExecuteError, Executor, Output, Program},
    kptfile::Function,
    render::{self, RenderError, RenderFailure, Rendered},
    results::FunctionResultList,
};
use stoa_proto::evaluator::EvaluateFunctionRequest;
use stoa_runs::{Services, runner::Runner};
use stoa_types::porchconfig::{Repository, RepositoryFunction};
use tokio::{runtime::Handle, task::JoinHandle};

use super::{contents::Document, tasks::in_full};

/// How long a save waits for its functions.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The functions of a repository for all its packages.
#[derive(Clone, Debug, Default)]
pub(super) struct RepositoryFunctions {
    /// The organization that pays for the calls.
    organization: String,
    /// Each with its field in the Repository.
    mutators: Vec<(String, Function)>,
    validators: Vec<(String, Function)>,
}

impl RepositoryFunctions {
    pub(super) fn of(repository: &Repository) -> Self {
        let functions = |field: &str, functions: &[RepositoryFunction]| {
            let function = |(i, function): (usize, &RepositoryFunction)| {
                let RepositoryFunction { image, config_map } = function.clone();
                (format!("spec.{field}[{i}]"), Function { image, config_map, ..Function::default() })
            };
            functions.iter().enumerate().map(function).collect()
        };
        Self {
            organization: repository.namespace().unwrap_or_default(),
            mutators: functions("mutators", &repository.spec.mutators),
            validators: functions("validators", &repository.spec.validators),
        }
    }

    /// Runs the functions; returns the files that the mutators leave.
    fn run(
        &self,
        mut tree: Tree,
        functions: &Functions<'_>,
        results: &mut FunctionResultList,
    ) -> Result<Tree, serde_json::Value> {
        let mutators = self.mutators.iter().map(|function| (function, true));
        let validators = self.validators.iter().map(|function| (function, false));
        for ((field, function), is_mutator) in mutators.chain(validators) {
            match render::eval(&tree, function, functions, &Limits::default()) {
                Ok(Rendered { tree: changed, results: own, .. }) => {
                    results.items.extend(own.items);
                    // A validator changes nothing.
                    if is_mutator {
                        tree = changed;
                    }
                }
                Err(failure) => {
                    let RenderFailure { error, results: own } = *failure;
                    results.items.extend(own.items);
                    results.exit_code = 1;
                    return Err(results.to_render_status(&format!("{field} of the repository: {}", reason(&error))));
                }
            }
        }
        Ok(tree)
    }
}

/// The reason of a failure without the name of the package, which the caller knows.
fn reason(error: &RenderError) -> String {
    match error {
        RenderError::Function { function, source, .. } => format!("function {function} failed: {}", in_full(source)),
        other => in_full(other),
    }
}

/// The document after the functions of the package and of its repository, with the outcome.
pub(super) async fn render(
    services: &Services,
    of_repository: &RepositoryFunctions,
    mut document: Document,
) -> Document {
    let tree = match document.tree() {
        Ok(tree) => tree,
        Err(error) => {
            document.render_status = json!({ "error": error.to_string() });
            return document;
        }
    };
    let executor = OnRunner::new(services, &of_repository.organization);
    let of_repository = of_repository.clone();
    let rendered = on_own_thread(move || {
        let functions = Functions { executor: &executor, uses_builtins: true };
        let rendered = render::render(&tree, &functions, &Limits::default());
        let Rendered { tree, mut results, .. } = rendered.map_err(|failure| failure.to_render_status())?;
        let tree = of_repository.run(tree, &functions, &mut results)?;
        Ok::<_, serde_json::Value>((tree, results))
    });
    match rendered.await {
        Ok((tree, results)) => {
            document.set(&tree);
            document.render_status = match results.items.is_empty() {
                true => serde_json::Value::Null,
                false => results.to_render_status(""),
            };
        }
        Err(status) => document.render_status = status,
    }
    document
}

/// Why a function changed nothing.
#[derive(Debug)]
pub(super) enum Unevaluated {
    /// It failed, or its configuration or answer is rejected.
    Failed(String),
    /// The function-runner is out of reach.
    Unavailable(String),
}

impl Unevaluated {
    fn of(failure: &RenderFailure) -> Self {
        let why = reason(&failure.error);
        match &failure.error {
            RenderError::Function { source, .. }
                if matches!(**source, FunctionError::Execute(ExecuteError::Unavailable(_))) =>
            {
                Self::Unavailable(why)
            }
            _ => Self::Failed(why),
        }
    }
}

/// The files of a document after one function on its objects. Functions of the package and of its repository do not run.
///
/// # Errors
///
/// [`Unevaluated`].
pub(super) async fn evaluate(
    services: &Services,
    organization: &str,
    document: &Document,
    function: Function,
) -> Result<Tree, Unevaluated> {
    let tree = document.tree().map_err(|error| Unevaluated::Failed(error.to_string()))?;
    let executor = OnRunner::new(services, organization);
    on_own_thread(move || {
        let functions = Functions { executor: &executor, uses_builtins: true };
        let evaluated = render::eval(&tree, &function, &functions, &Limits::default());
        evaluated.map(|evaluated| evaluated.tree).map_err(|failure| Unevaluated::of(&failure))
    })
    .await
}

/// Checks that the functions of a repository succeed on a document and change nothing.
///
/// # Errors
///
/// The reason for people.
pub(super) async fn check(
    services: &Services,
    of_repository: &RepositoryFunctions,
    document: &Document,
) -> Result<(), String> {
    if of_repository.mutators.is_empty() && of_repository.validators.is_empty() {
        return Ok(());
    }
    let tree = document.tree().map_err(|error| error.to_string())?;
    let executor = OnRunner::new(services, &of_repository.organization);
    let of_repository = of_repository.clone();
    let checked = on_own_thread(move || {
        let functions = Functions { executor: &executor, uses_builtins: true };
        let changed = of_repository.run(tree.clone(), &functions, &mut FunctionResultList::default());
        let changed = changed.map_err(|status| status["error"].as_str().unwrap_or("a function failed").to_owned())?;
        let is_other =
            |path: &&str| tree.get(path).map(|file| &file.content) != changed.get(path).map(|file| &file.content);
        let mut files: Vec<&str> = tree.paths().chain(changed.paths()).filter(is_other).collect();
        files.sort_unstable();
        files.dedup();
        match files.is_empty() {
            true => Ok(()),
            false => Err(format!("the mutators of the repository change {}; save the package again", files.join(", "))),
        }
    });
    match tokio::time::timeout(PATIENCE, checked).await {
        Ok(checked) => checked,
        Err(_) => Err(format!("the functions of the repository take longer than {} s", PATIENCE.as_secs())),
    }
}

/// The renders that last longer than their requests.
#[derive(Debug, Default)]
pub(super) struct Renders(Mutex<HashMap<String, JoinHandle<Document>>>);

impl Renders {
    /// Keeps a render for the controller, by the name of the document that it began with.
    pub(super) fn keep(&self, name: String, render: JoinHandle<Document>) {
        let mut renders = self.0.lock();
        // Another replica leads, and its controller rendered these anew.
        renders.retain(|_, render| !render.is_finished());
        renders.insert(name, render);
    }

    /// Takes a render, if it began in this process.
    pub(super) fn take(&self, name: &str) -> Option<JoinHandle<Document>> {
        self.0.lock().remove(name)
    }
}

/// Runs functions on a function-runner. Its calls are on a thread that may wait.
#[derive(Debug)]
struct OnRunner {
    runner: Runner,
    /// The organization that pays for the calls.
    organization: String,
    runtime: Handle,
}

impl OnRunner {
    fn new(services: &Services, organization: &str) -> Self {
        Self { runner: services.runner.clone(), organization: organization.to_owned(), runtime: Handle::current() }
    }
}

impl Executor for OnRunner {
    fn execute(&self, call: &Call<'_>) -> Result<Output, ExecuteError> {
        let image = match call.program {
            Program::Image(image) => image,
            Program::Exec(command) => return Err(ExecuteError::ExecNotAllowed(command.to_owned())),
        };
        let request =
            EvaluateFunctionRequest { resource_list: Bytes::copy_from_slice(call.input), image: image.to_owned() };
        match self.runtime.block_on(self.runner.evaluate_function(&self.organization, request)) {
            Ok(evaluated) => Ok(Output {
                stdout: evaluated.resource_list.to_vec(),
                stderr: String::from_utf8_lossy(&evaluated.log).into_owned(),
                exit_code: evaluated.exit_code,
            }),
            Err(status) if status.code() == tonic::Code::FailedPrecondition => {
                Ok(Output { stdout: Vec::new(), stderr: status.message().to_owned(), exit_code: 1 })
            }
            Err(status) if status.code() == tonic::Code::NotFound => Err(ExecuteError::NotFound(image.to_owned())),
            Err(status) => Err(ExecuteError::Unavailable(status.message().to_owned())),
        }
    }
}
