//! The first changes of a plan as short lines, hooks last, which `kubectl describe` shows at the beginning of a Run's status.
//!
//! A line has the action's mark, the resource's id and the paths of the fields that an update changes. Values are in
//! runs/plan alone, which masks those that are sensitive.

use kube::ResourceExt as _;
use stoa_engine::{Action, Plan, PlannedAction, PlannedHook};
use stoa_kinds::text::cut;
use stoa_types::Run;

/// The most lines, so that the status stays small.
const LINES: usize = 20;
/// The most characters of a line.
const LENGTH: usize = 160;
/// The most paths of a line.
const PATHS: usize = 3;

/// The changes of a plan as lines, deletions and replacements first; the last line counts the others.
pub(super) fn lines(plan: &Plan, run: &Run) -> Vec<String> {
    let mut changing: Vec<&PlannedAction> = plan.actions.iter().filter(|planned| planned.is_shown()).collect();
    changing.sort_by_key(|planned| !matches!(planned.action, Action::Delete | Action::Replace));
    let all = changing.len() + plan.hooks.len();
    let shown = if all > LINES { LINES - 1 } else { LINES };
    let (actions_shown, more) = (changing.len().min(shown), all.saturating_sub(shown));
    let more = (more > 0).then(|| {
        let (namespace, name) = (run.namespace().unwrap_or_default(), run.name_any());
        let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{namespace}/runs/{name}/plan?format=table");
        format!("and {more} more: kubectl get --raw \"{path}\"")
    });
    let actions = changing.into_iter().take(shown).map(line);
    let hooks = plan.hooks.iter().take(shown - actions_shown).map(hook);
    actions.chain(hooks).chain(more).collect()
}

fn hook(hook: &PlannedHook) -> String {
    cut(&format!("* {} {}", hook.resource, hook.event), LENGTH)
}

fn line(planned: &PlannedAction) -> String {
    let mut line = format!("{} {}", planned.action.mark(), planned.id);
    let paths: Vec<&str> = planned.changes.iter().map(|change| change.path.as_str()).collect();
    if planned.action == Action::Create || paths.is_empty() {
        return cut(&line, LENGTH);
    }
    let (first, more) = paths.split_at(paths.len().min(PATHS));
    line.push(' ');
    line.push_str(&first.join(", "));
    if !more.is_empty() {
        line.push_str(&format!(" and {} more", more.len()));
    }
    cut(&line, LENGTH)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use stoa_engine::document;
    use stoa_types::delivery::{Operation, RunSpec};

    use super::*;

    fn plan(actions: impl IntoIterator<Item = (String, &'static str, Value)>) -> Plan {
        let actions: Vec<Value> = actions
            .into_iter()
            .map(|(id, action, changes)| json!({"id": id, "type": "Kubernetes", "action": action, "changes": changes}))
            .collect();
        let plan = json!({"schemaVersion": 1, "specDigest": "", "actions": actions});
        document::decode(plan.to_string().as_bytes()).unwrap()
    }

    fn run() -> Run {
        let mut run = Run::new("web-1", RunSpec::new("web", "dev", Operation::Apply));
        run.metadata.namespace = Some("shop".to_owned());
        run
    }

    #[test]
    fn lines_show_deletions_first_and_no_values() {
        let field = |path: &str| json!({"path": path, "before": "old", "after": "hunter2"});
        let many: Vec<Value> = ["a", "b", "c", "d", "e"].map(field).to_vec();
        let plan = plan([
            ("v1:Namespace:shop".to_owned(), "Unchanged", json!([])),
            ("apps/v1:Deployment:shop:web".to_owned(), "Create", json!([field("spec")])),
            ("v1:Service:shop:web".to_owned(), "Update", json!([field("spec.ports")])),
            ("v1:ConfigMap:shop:web".to_owned(), "Update", json!(many)),
            ("v1:Secret:shop:web".to_owned(), "Delete", json!([])),
            ("batch/v1:Job:shop:once".to_owned(), "Replace", json!([field("spec.template")])),
        ]);
        let expected = [
            "- v1:Secret:shop:web",
            "± batch/v1:Job:shop:once spec.template",
            "+ apps/v1:Deployment:shop:web",
            "~ v1:Service:shop:web spec.ports",
            "~ v1:ConfigMap:shop:web a, b, c and 2 more",
        ];
        assert_eq!(lines(&plan, &run()), expected);
    }

    #[test]
    fn hooks_are_the_last_lines() {
        let hook =
            |name: &str| json!({"resource": format!("batch/v1:Job:shop:{name}"), "event": "pre-install", "delete": []});
        let with = |creates: usize, hooks: usize| {
            let plan = plan((0..creates).map(|n| (format!("v1:ConfigMap:shop:c{n}"), "Create", json!([]))));
            let hooks: Vec<Value> = (0..hooks).map(|n| hook(&format!("h{n}"))).collect();
            lines(&Plan { hooks: serde_json::from_value(json!(hooks)).unwrap(), ..plan }, &run())
        };
        assert_eq!(with(1, 1), ["+ v1:ConfigMap:shop:c0", "* batch/v1:Job:shop:h0 pre-install"]);
        let many = with(15, 15);
        assert_eq!((many.len(), many[15].as_str()), (LINES, "* batch/v1:Job:shop:h0 pre-install"));
        assert!(many[LINES - 1].starts_with("and 11 more: "), "{many:?}");
        assert!(with(LINES + 5, 3)[LINES - 1].starts_with("and 9 more: "));
    }

    #[test]
    fn lines_are_bounded_and_name_the_rest() {
        let creates = |count: usize| plan((0..count).map(|n| (format!("v1:ConfigMap:shop:c{n}"), "Create", json!([]))));
        assert_eq!(lines(&creates(LINES), &run()).len(), LINES);
        let cut_off = lines(&creates(1000), &run());
        assert_eq!(cut_off.len(), LINES);
        let more = "and 981 more: kubectl get --raw \
                    \"/apis/delivery.stoa.dev/v1alpha1/namespaces/shop/runs/web-1/plan?format=table\"";
        assert_eq!(cut_off[LINES - 1], more);
        let long = plan([(format!("v1:ConfigMap:shop:{}", "x".repeat(500)), "Create", json!([]))]);
        assert_eq!(lines(&long, &run())[0].chars().count(), LENGTH + 1);
    }
}
