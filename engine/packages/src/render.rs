//! Renders a package: runs the functions of its pipeline, and of the packages in its folders.
//!
//! Start at [`render()`], or at [`eval`] for one function on all objects. A single function runs in `run`.
//!
//! Follows `internal/util/render/executor.go` of kpt 1.0.0-beta.61.

use std::collections::BTreeMap;

use crate::{
    files::{KPTFILE, Limits, Tree, TreeError, folders, join, packages},
    kptfile::{CheckError, Function, Kptfile, KptfileError, config_file},
    resources::{self, Double, ReadError, Resource, WriteError, clean_path, doubles},
    results::FunctionResultList,
    run::{FunctionError, Functions, Job},
    text::with_causes,
};

/// A rendered package.
#[derive(Debug)]
pub struct Rendered {
    /// The files.
    pub tree: Tree,
    /// The outcome of each function.
    pub results: FunctionResultList,
    /// The objects that another one equals by name.
    pub doubles: Vec<Double>,
    /// The number of packages.
    pub packages: usize,
}

/// A render that failed. Nothing of the package has changed.
#[derive(Debug, thiserror::Error)]
#[error("the package is not rendered")]
pub struct RenderFailure {
    /// The reason.
    #[source]
    pub error: RenderError,
    /// The outcome of each function that ran.
    pub results: FunctionResultList,
}

impl RenderFailure {
    /// Porch's `status.renderStatus`, with the whole reason as `error`.
    pub fn to_render_status(&self) -> serde_json::Value {
        self.results.to_render_status(&with_causes(&self.error))
    }
}

/// Why a package cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The tree is too large.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A Kptfile is rejected.
    #[error("Kptfile of package {package:?} is rejected")]
    Kptfile {
        /// The folder of the package; empty for the root.
        package: String,
        /// The reason.
        source: KptfileError,
    },
    /// A function of a Kptfile is rejected.
    #[error("pipeline of package {package:?} is rejected")]
    Pipeline {
        /// The folder of the package; empty for the root.
        package: String,
        /// The reason.
        source: CheckError,
    },
    /// The objects cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A function failed.
    #[error("function {function} of package {package:?} (pipeline.{field}) failed")]
    Function {
        /// The folder of the package; empty for the root.
        package: String,
        /// The image or the command.
        function: String,
        /// The field in the pipeline, such as `mutators[0]`.
        field: String,
        /// The reason.
        source: Box<FunctionError>,
    },
    /// The objects cannot be written.
    #[error("the result cannot be written")]
    Write(#[from] WriteError),
}

/// Renders the package in the root of a tree, and all packages in its folders.
///
/// Packages in folders come before the package around them, siblings by path; the annotation `kpt.dev/bfs-rendering` of the
/// root turns that round. In each package all mutators run, then all validators, whose changes are dropped. The first
/// function that fails ends the render.
///
/// # Errors
///
/// [`RenderFailure`]; nothing has changed then.
pub fn render(tree: &Tree, functions: &Functions<'_>, limits: &Limits) -> Result<Rendered, Box<RenderFailure>> {
    let mut results = FunctionResultList::default();
    match rendered(tree, functions, limits, &mut results) {
        Ok((tree, doubles, packages)) => Ok(Rendered { tree, results, doubles, packages }),
        Err(error) => {
            results.exit_code = 1;
            Err(Box::new(RenderFailure { error, results }))
        }
    }
}

fn rendered(
    tree: &Tree,
    functions: &Functions<'_>,
    limits: &Limits,
    results: &mut FunctionResultList,
) -> Result<(Tree, Vec<Double>, usize), RenderError> {
    tree.check(limits)?;
    let kptfiles = read_kptfiles(tree)?;
    let before = resources::read(tree)?;
    let doubles = doubles(&before);
    let is_parents_first = kptfiles.get("").is_some_and(Kptfile::renders_parents_first);
    let children = children(&kptfiles);
    let mut render = Render { tree, limits, functions, kptfiles, children, results, objects: BTreeMap::new() };
    for resource in before.iter().cloned() {
        render.objects.entry(resource.package.clone()).or_default().push(resource);
    }
    let order = if is_parents_first { render.parents_first() } else { render.children_first("") };
    for package in order {
        render.package(package, is_parents_first)?;
    }
    let after: Vec<Resource> = render.objects.into_values().flatten().collect();
    Ok((written(tree, &before, &after, limits)?, doubles, render.kptfiles.len()))
}

/// Runs one function on all objects of a tree, as `kpt fn eval` does. Paths of objects and of the configuration are those in
/// the tree, so there need not be a Kptfile.
///
/// # Errors
///
/// [`RenderFailure`]; nothing has changed then.
pub fn eval(
    tree: &Tree,
    function: &Function,
    functions: &Functions<'_>,
    limits: &Limits,
) -> Result<Rendered, Box<RenderFailure>> {
    let mut results = FunctionResultList::default();
    match evaluated(tree, function, functions, limits, &mut results) {
        Ok((tree, doubles)) => Ok(Rendered { tree, results, doubles, packages: 1 }),
        Err(error) => {
            results.exit_code = 1;
            Err(Box::new(RenderFailure { error, results }))
        }
    }
}

fn evaluated(
    tree: &Tree,
    function: &Function,
    functions: &Functions<'_>,
    limits: &Limits,
    results: &mut FunctionResultList,
) -> Result<(Tree, Vec<Double>), RenderError> {
    tree.check(limits)?;
    let mut before = resources::read(tree)?;
    let doubles = doubles(&before);
    for resource in &mut before {
        resource.path = resource.file();
        resource.package = String::new();
    }
    let rejected = |problem| {
        let source = CheckError { field: "configPath".to_owned(), problem };
        RenderError::Pipeline { package: String::new(), source }
    };
    let config = match function.config_path.as_str() {
        "" => function.config(),
        path => {
            let path = clean_path(path);
            let current = before.iter().find(|resource| resource.path == path).cloned();
            Some(current.ok_or_else(|| rejected(format!("functionConfig {path:?} must exist in the package")))?)
        }
    };
    let job = Job { tree, limits, package: "", function, config, is_validator: false };
    let (result, outcome) = job.run(functions, before.clone());
    results.items.push(result);
    let after = outcome.map_err(|source| RenderError::Function {
        package: String::new(),
        function: function.command().to_owned(),
        field: "eval".to_owned(),
        source: Box::new(source),
    })?;
    Ok((written(tree, &before, &after, limits)?, doubles))
}

/// The tree with the objects as they are now, which is within the limits, too.
fn written(tree: &Tree, before: &[Resource], after: &[Resource], limits: &Limits) -> Result<Tree, RenderError> {
    let tree = resources::write(tree, before, after)?;
    tree.check(limits)?;
    Ok(tree)
}

/// The Kptfiles of all packages, by folder.
fn read_kptfiles(tree: &Tree) -> Result<BTreeMap<&str, Kptfile>, RenderError> {
    let mut kptfiles = BTreeMap::new();
    // Without a Kptfile in the root there is no package to render.
    for package in std::iter::once("").chain(packages(tree).into_iter().filter(|package| !package.is_empty())) {
        let rejected = |source| RenderError::Kptfile { package: package.to_owned(), source };
        let path = join(package, KPTFILE);
        if tree.get(&path).is_none() {
            return Err(rejected(KptfileError::Missing));
        }
        let text = tree.text(&path).ok_or_else(|| rejected(KptfileError::NotText))?;
        let kptfile = Kptfile::parse(text).map_err(rejected)?;
        let checked = kptfile.check(tree, package);
        checked.map_err(|source| RenderError::Pipeline { package: package.to_owned(), source })?;
        kptfiles.insert(package, kptfile);
    }
    Ok(kptfiles)
}

/// The packages directly in each package, by path.
fn children<'t>(kptfiles: &BTreeMap<&'t str, Kptfile>) -> BTreeMap<&'t str, Vec<&'t str>> {
    let mut children: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in kptfiles.keys().filter(|package| !package.is_empty()) {
        let around = folders(package).filter(|folder| kptfiles.contains_key(folder)).last().unwrap_or("");
        children.entry(around).or_default().push(package);
    }
    children
}

struct Render<'r> {
    tree: &'r Tree,
    limits: &'r Limits,
    functions: &'r Functions<'r>,
    kptfiles: BTreeMap<&'r str, Kptfile>,
    /// The packages directly in each package, by path.
    children: BTreeMap<&'r str, Vec<&'r str>>,
    results: &'r mut FunctionResultList,
    /// The objects of each package, as they are now.
    objects: BTreeMap<String, Vec<Resource>>,
}

impl<'r> Render<'r> {
    /// The packages directly in a package, by path.
    fn children(&self, package: &str) -> &[&'r str] {
        self.children.get(package).map_or(&[], Vec::as_slice)
    }

    /// A package and all in it, the inner ones first.
    fn children_first(&self, package: &'r str) -> Vec<&'r str> {
        let inner = self.children(package).iter().flat_map(|child| self.children_first(child));
        inner.chain(std::iter::once(package)).collect()
    }

    /// A package and all in it, the outer ones first.
    fn below(&self, package: &'r str) -> Vec<&'r str> {
        let inner = self.children(package).iter().flat_map(|child| self.below(child));
        std::iter::once(package).chain(inner).collect()
    }

    /// All packages, level by level.
    fn parents_first(&self) -> Vec<&'r str> {
        let (mut order, mut level) = (Vec::new(), vec![""]);
        while !level.is_empty() {
            order.extend(level.iter().copied());
            level = level.into_iter().flat_map(|package| self.children(package)).copied().collect();
        }
        order
    }

    /// Runs the pipeline of a package on its objects and those of the packages in it.
    fn package(&mut self, package: &'r str, is_parents_first: bool) -> Result<(), RenderError> {
        let Some(pipeline) = self.kptfiles.get(package).and_then(|kptfile| kptfile.pipeline.clone()) else {
            return Ok(());
        };
        let order = if is_parents_first { self.below(package) } else { self.children_first(package) };
        let mut items: Vec<Resource> =
            order.iter().flat_map(|package| self.objects.remove(*package).unwrap_or_default()).collect();
        let mutators = pipeline.mutators.iter().map(|function| ("mutators", function)).enumerate();
        let validators = pipeline.validators.iter().map(|function| ("validators", function)).enumerate();
        for (position, (list, function)) in mutators.chain(validators) {
            items = self.function(package, function, items, (list, position))?;
        }
        for resource in items {
            self.objects.entry(resource.package.clone()).or_default().push(resource);
        }
        Ok(())
    }

    fn function(
        &mut self,
        package: &str,
        function: &Function,
        items: Vec<Resource>,
        (list, position): (&str, usize),
    ) -> Result<Vec<Resource>, RenderError> {
        let config = self.config(package, function, &items, (list, position))?;
        let is_validator = list == "validators";
        let job = Job { tree: self.tree, limits: self.limits, package, function, config, is_validator };
        let (result, outcome) = job.run(self.functions, items);
        self.results.items.push(result);
        outcome.map_err(|source| RenderError::Function {
            package: package.to_owned(),
            function: function.command().to_owned(),
            field: format!("{list}[{position}]"),
            source: Box::new(source),
        })
    }

    /// The configuration of a function: the object in its file as earlier functions changed it, or the one in the Kptfile.
    fn config(
        &self,
        package: &str,
        function: &Function,
        items: &[Resource],
        (list, position): (&str, usize),
    ) -> Result<Option<Resource>, RenderError> {
        if function.config_path.is_empty() {
            return Ok(function.config());
        }
        let path = clean_path(&function.config_path);
        if let Some(current) = items.iter().find(|item| item.package == package && item.path == path) {
            return Ok(Some(current.clone()));
        }
        let file = config_file(self.tree, package, &function.config_path);
        file.map(Some).map_err(|problem| RenderError::Pipeline {
            package: package.to_owned(),
            source: CheckError { field: format!("pipeline.{list}[{position}].configPath"), problem },
        })
    }
}

#[cfg(test)]
mod tests;
