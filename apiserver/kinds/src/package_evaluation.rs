//! Tasks of type eval: a function that runs once on a draft. An update appends one task, and the other tasks are immutable.

use stoa_machinery::status::FieldError;
use stoa_types::porch::{EvalTask, Lifecycle, PackageRevision, Task};

/// The type of the tasks.
const EVAL: &str = "eval";

/// The most tasks of a revision.
const MOST: usize = 64;

/// The function that an update runs: that of a further task at the end.
pub(crate) fn appended(new: &[Task], old: &[Task]) -> Option<EvalTask> {
    let (last, before) = new.split_last()?;
    (before == old && last.kind == EVAL).then(|| last.eval.clone().unwrap_or_default())
}

/// Finds errors in a change of the tasks.
pub(crate) fn validate(new: &PackageRevision, old: &PackageRevision, errors: &mut Vec<FieldError>) {
    let (tasks, before) = (&new.spec.tasks, &old.spec.tasks);
    if tasks == before {
        return;
    }
    let Some(task) = appended(tasks, before) else {
        let detail = "field is immutable, except that an update may append one task of type eval";
        errors.push(FieldError::forbidden("spec.tasks", detail));
        return;
    };
    if [new.spec.lifecycle, old.spec.lifecycle] != [Lifecycle::Draft; 2] {
        errors.push(FieldError::forbidden("spec.tasks", "only a Draft takes tasks of type eval"));
    }
    if tasks.len() > MOST {
        let detail = format!("must have at most {MOST} tasks; publish the draft, and continue with its next revision");
        errors.push(FieldError::invalid("spec.tasks", tasks.len(), detail));
    }
    let path = format!("spec.tasks[{}].eval", before.len());
    if task.image.is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), "must name the image of a function"));
    }
    if !task.config_path.is_empty() && !task.config_map.is_empty() {
        errors.push(FieldError::forbidden(format!("{path}.configPath"), "may not be set together with configMap"));
    }
}

/// Whether tasks are equal as far as a client has fields for them. The types of Porch 1.5 have no field `eval`.
pub(crate) fn are_equal_but_for_eval(new: &[Task], old: &[Task]) -> bool {
    let is_equal = |(new, old): (&Task, &Task)| match new.eval {
        Some(_) => new == old,
        None => *new == Task { eval: None, ..old.clone() },
    };
    new.len() == old.len() && new.iter().zip(old).all(is_equal)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn revision(lifecycle: &str, tasks: &Value) -> PackageRevision {
        let spec = json!({"lifecycle": lifecycle, "tasks": tasks});
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap()
    }

    fn eval(task: Value) -> Value {
        json!({"type": "eval", "eval": task})
    }

    #[test]
    fn update_appends_one_evaluation_to_a_draft() {
        let init = json!({"type": "init", "init": {}});
        let namespace = eval(json!({"image": "set-namespace:v0.4.1", "configMap": {"namespace": "shop"}}));
        let old = revision("Draft", &json!([init]));
        let fields = |lifecycle: &str, tasks: Value| {
            let mut errors = Vec::new();
            validate(&revision(lifecycle, &tasks), &old, &mut errors);
            errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        assert_eq!(fields("Draft", json!([init])), [""; 0]);
        assert_eq!(fields("Draft", json!([init, namespace])), [""; 0]);
        for (lifecycle, tasks, field) in [
            ("Proposed", json!([init, namespace]), "spec.tasks"),
            ("Draft", json!([init, namespace, namespace]), "spec.tasks"),
            ("Draft", json!([namespace]), "spec.tasks"),
            ("Draft", json!([]), "spec.tasks"),
            ("Draft", json!([init, init]), "spec.tasks"),
            ("Draft", json!([init, eval(json!({}))]), "spec.tasks[1].eval.image"),
            (
                "Draft",
                json!([init, eval(json!({"image": "a", "configPath": "a.yaml", "configMap": {"a": "b"}}))]),
                "spec.tasks[1].eval.configPath",
            ),
        ] {
            assert_eq!(fields(lifecycle, tasks.clone()), [field], "{lifecycle} {tasks}");
        }
        let full = vec![namespace.clone(); MOST];
        let mut more = full.clone();
        more.push(namespace);
        let mut errors = Vec::new();
        validate(&revision("Draft", &more.into()), &revision("Draft", &full.into()), &mut errors);
        assert_eq!(errors.len(), 1, "{errors:?}");
    }

    #[test]
    fn client_without_the_field_leaves_tasks_equal() {
        let tasks = |tasks: Value| revision("Draft", &tasks).spec.tasks;
        let old = tasks(json!([{"type": "init"}, eval(json!({"image": "a"}))]));
        assert!(are_equal_but_for_eval(&tasks(json!([{"type": "init"}, {"type": "eval"}])), &old));
        assert!(!are_equal_but_for_eval(&tasks(json!([{"type": "init"}, eval(json!({"image": "b"}))])), &old));
        assert!(!are_equal_but_for_eval(&tasks(json!([{"type": "init"}])), &old));
    }
}
