//! Runs one function of a pipeline on objects.

use std::{collections::HashMap, fmt::Write as _};

use crate::{
    builtins,
    files::{Limits, Tree, TreeError},
    function::{Call, ExecuteError, Executor, Output, Program},
    kptfile::{Function, full_image},
    resource_list::{Answer, AnswerError, Request, encode},
    resources::{Resource, WriteError, check_paths},
    results::FunctionResult,
    selectors::{is_selective, selects},
    text::size,
};

/// How much of the end of a function's standard error a message repeats, in bytes.
const STDERR_TAIL: usize = 2048;

/// How many findings a message repeats.
const FINDINGS: usize = 10;

/// The programs that functions run as.
#[derive(Clone, Copy, Debug)]
pub struct Functions<'e> {
    /// Runs the functions that are not built in.
    pub executor: &'e dyn Executor,
    /// Whether the catalog's functions that are built in run without the executor.
    pub uses_builtins: bool,
}

/// Why a function of a pipeline failed.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// It ended with another exit code than 0.
    #[error("exit code {exit_code}{details}")]
    Failed {
        /// The exit code.
        exit_code: i32,
        /// Its findings and the end of its standard error, each after `; `.
        details: String,
    },
    /// It did not run to its end.
    #[error("it did not run")]
    Execute(#[from] ExecuteError),
    /// Its answer is rejected.
    #[error("its answer is rejected")]
    Answer(#[from] AnswerError),
    /// An object that a built-in function changed has a path or a size that is rejected.
    #[error("its answer is rejected")]
    Path(#[from] WriteError),
}

/// One run of a function.
#[derive(Debug)]
pub(crate) struct Job<'j> {
    pub(crate) tree: &'j Tree,
    pub(crate) limits: &'j Limits,
    pub(crate) package: &'j str,
    pub(crate) function: &'j Function,
    pub(crate) config: Option<Resource>,
    pub(crate) is_validator: bool,
}

impl Job<'_> {
    /// The objects after the function, and its result. A validator changes no objects.
    ///
    /// Of selected objects, those that the answer lacks are deleted and new ones come last.
    pub(crate) fn run(
        &self,
        functions: &Functions<'_>,
        items: Vec<Resource>,
    ) -> (FunctionResult, Result<Vec<Resource>, FunctionError>) {
        let image = if self.function.image.is_empty() { String::new() } else { full_image(&self.function.image) };
        let mut result = FunctionResult { image, exec: self.function.exec.clone(), ..FunctionResult::default() };
        let outcome = match (self.is_validator, is_selective(self.function)) {
            (false, false) => self.outcome(functions, &mut result, items),
            (true, _) => {
                let input = items.iter().filter(|item| selects(self.function, item)).cloned().collect();
                self.outcome(functions, &mut result, input).map(|_| items)
            }
            (false, true) => self.run_selected(functions, &mut result, items),
        };
        if outcome.is_err() && result.exit_code == 0 {
            result.exit_code = 1;
        }
        (result, outcome)
    }

    fn run_selected(
        &self,
        functions: &Functions<'_>,
        result: &mut FunctionResult,
        items: Vec<Resource>,
    ) -> Result<Vec<Resource>, FunctionError> {
        let (selected, others): (Vec<_>, Vec<_>) =
            items.into_iter().enumerate().partition(|(_, item)| selects(self.function, item));
        let positions: HashMap<usize, usize> = selected.iter().map(|(at, item)| (item.token(), *at)).collect();
        let output = self.outcome(functions, result, selected.into_iter().map(|(_, item)| item).collect())?;
        let merged = merge(positions, others, output);
        check_paths(self.tree, &merged)?;
        Ok(merged)
    }

    fn outcome(
        &self,
        functions: &Functions<'_>,
        result: &mut FunctionResult,
        input: Vec<Resource>,
    ) -> Result<Vec<Resource>, FunctionError> {
        match builtins::find(&result.image).filter(|_| functions.uses_builtins) {
            Some(builtin) => self.run_builtin(builtin, result, input),
            None => self.run_program(functions.executor, result, &input),
        }
    }

    fn run_builtin(
        &self,
        builtin: builtins::Builtin,
        result: &mut FunctionResult,
        mut items: Vec<Resource>,
    ) -> Result<Vec<Resource>, FunctionError> {
        match builtin(&mut items, self.config.as_ref(), self.limits) {
            Ok(findings) => {
                result.results = findings;
                check_paths(self.tree, &items)?;
                self.check_size(&items)?;
                Ok(items)
            }
            Err(failure) => {
                result.results = failure.findings;
                result.stderr = failure.message;
                result.exit_code = 1;
                Err(failed(result))
            }
        }
    }

    /// Checks the size of all objects, since each function of a long pipeline may add to them.
    fn check_size(&self, items: &[Resource]) -> Result<(), WriteError> {
        let bytes = items.iter().map(|item| size(&item.value)).fold(0, usize::saturating_add);
        let limit = self.limits.bytes;
        if bytes > limit { Err(TreeError::TooLarge { bytes, limit }.into()) } else { Ok(()) }
    }

    fn run_program(
        &self,
        executor: &dyn Executor,
        result: &mut FunctionResult,
        items: &[Resource],
    ) -> Result<Vec<Resource>, FunctionError> {
        let program = if result.image.is_empty() { Program::Exec(&result.exec) } else { Program::Image(&result.image) };
        let input = encode(items, self.config.as_ref());
        let Output { stdout, stderr, exit_code } = executor.execute(&Call { program, input: input.as_bytes() })?;
        result.stderr = stderr;
        result.exit_code = exit_code;
        let folder = self.folder();
        let is_read_only = self.is_validator || exit_code != 0;
        let request = Request { tree: self.tree, package: self.package, folder: &folder, items, is_read_only };
        let answer = request.decode(&stdout);
        if exit_code != 0 {
            // A function that fails need not answer; if it does, its findings say why.
            result.results = answer.map(|answer| answer.results).unwrap_or_default();
            return Err(failed(result));
        }
        let Answer { items, results } = answer?;
        result.results = results;
        Ok(items)
    }

    /// The folder of new objects: that of the file with the configuration, or the one above a folder `functions`.
    fn folder(&self) -> String {
        let folder = self.function.config_path.rsplit_once('/').map_or("", |(folder, _)| folder);
        match folder.rsplit_once('/') {
            Some((above, "functions")) => above.to_owned(),
            None if folder == "functions" => String::new(),
            Some(_) | None => folder.to_owned(),
        }
    }
}

/// The failure of a function that ended with an exit code other than 0.
pub(crate) fn failed(result: &FunctionResult) -> FunctionError {
    let mut details = String::new();
    for finding in result.results.iter().take(FINDINGS) {
        let _ = write!(details, "; {finding}");
    }
    if result.results.len() > FINDINGS {
        let _ = write!(details, "; and {} more results", result.results.len() - FINDINGS);
    }
    let stderr = result.stderr.trim();
    if !stderr.is_empty() {
        let _ = write!(details, "; stderr: {}", tail(stderr));
    }
    FunctionError::Failed { exit_code: result.exit_code, details }
}

/// The end of a text.
fn tail(text: &str) -> &str {
    let start = text.len().saturating_sub(STDERR_TAIL);
    let start = (start..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    &text[start..]
}

/// All objects in their order after those at some positions, by token, became the objects of an answer.
fn merge(mut positions: HashMap<usize, usize>, others: Vec<(usize, Resource)>, output: Vec<Resource>) -> Vec<Resource> {
    let (mut merged, mut new) = (others, Vec::new());
    for resource in output {
        match positions.remove(&resource.token()) {
            Some(at) => merged.push((at, resource)),
            None => new.push(resource),
        }
    }
    merged.sort_by_key(|(at, _)| *at);
    merged.into_iter().map(|(_, resource)| resource).chain(new).collect()
}
