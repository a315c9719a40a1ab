//! Functions of the API as a Kptfile has them.

use stoa_packages::kptfile;
use stoa_types::{
    porch::EvalTask,
    porchconfig::{Function, Selector},
};

/// A function as a Kptfile has it.
pub(crate) fn function(of: &Function) -> kptfile::Function {
    let Function { name, image, exec, config_path, config_map, selectors, exclude } = of.clone();
    let selected = |selectors: Vec<Selector>| selectors.into_iter().map(selector).collect();
    kptfile::Function {
        image,
        exec,
        config_path,
        config_map,
        name,
        selectors: selected(selectors),
        exclude: selected(exclude),
    }
}

fn selector(of: Selector) -> kptfile::Selector {
    let Selector { api_version, kind, name, namespace, labels, annotations } = of;
    kptfile::Selector { api_version, kind, name, namespace, labels, annotations }
}

/// The function of a task.
pub(super) fn of_task(task: &EvalTask) -> kptfile::Function {
    let EvalTask { image, config_path, config_map, selector } = task.clone();
    let selectors = selector.into_iter().collect();
    function(&Function { image, config_path, config_map, selectors, ..Function::default() })
}
