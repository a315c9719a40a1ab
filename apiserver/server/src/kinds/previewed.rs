//! The Preview whose plan a run carries out: what the run keeps of it when it is made, so that the Preview may go.

use stoa_types::{
    Run,
    delivery::{Operation, PreviewedPlan, RunPhase, RunSpec},
};

/// What a run with this spec carries out of a run that it names.
///
/// # Errors
///
/// Why it may not, or cannot yet: the end of a sentence about what it names.
pub(crate) fn plan_of(preview: &Run, now: &RunSpec) -> Result<PreviewedPlan, String> {
    let then = &preview.spec;
    if then.operation != Operation::Preview || (&then.stack, &then.workspace) != (&now.stack, &now.workspace) {
        return Err("is not a Preview of this stack in this workspace".to_owned());
    }
    if (then.planned(), then.release) != (now.planned(), now.release) {
        return Err(format!("is a Preview of {}, and this is {}", what(then), what(now)));
    }
    let done = preview.status.clone().unwrap_or_default();
    let (RunPhase::Succeeded, Some(source), Some(plan)) = (done.phase, done.source, done.plan) else {
        return Err("has no plan".to_owned());
    };
    Ok(PreviewedPlan {
        digest: plan.digest,
        document: plan.document,
        commit: source.commit,
        spec_digest: source.spec_digest,
        import: then.import.clone(),
    })
}

/// What a run is about, for sentences: `a Rollback to release 3`.
fn what(spec: &RunSpec) -> String {
    let release = spec.release.map(|number| format!(" to release {number}")).unwrap_or_default();
    format!("{}{release}", spec.planned().named())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn run(spec: Value, status: &Value) -> Run {
        let run = json!({"apiVersion": "delivery.stoa.dev/v1alpha1", "kind": "Run", "metadata": {"name": "look"},
            "spec": spec, "status": status});
        serde_json::from_value(run).unwrap()
    }

    #[test]
    fn a_plan_is_carried_out_as_what_it_was_made_for() {
        let spec = |operation: &str, more: Value| {
            let mut spec = json!({"stack": "web", "workspace": "dev", "operation": operation});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spec
        };
        let import = json!({"resources": [{"id": "v1:ConfigMap:shop:a"}]});
        let previewed = spec("Preview", json!({"of": "Import", "import": import}));
        let done = json!({"phase": "Succeeded", "source": {"commit": "c", "specDigest": "sha256:s"},
            "plan": {"digest": "sha256:p", "document": "sha256:d"}});
        let carried_out = |preview: &Run, spec: Value| plan_of(preview, &serde_json::from_value(spec).unwrap());
        let kept = json!({"digest": "sha256:p", "document": "sha256:d", "commit": "c", "specDigest": "sha256:s",
            "import": import});
        let preview = run(previewed.clone(), &done);
        let found = carried_out(&preview, spec("Import", json!({"plan": "look"}))).unwrap();
        assert_eq!(serde_json::to_value(found).unwrap(), kept);

        let refused = |preview: &Run, spec: Value| carried_out(preview, spec).unwrap_err();
        let another = "is not a Preview of this stack in this workspace";
        assert_eq!(refused(&preview, spec("Import", json!({"workspace": "prod"}))), another);
        assert_eq!(refused(&run(spec("Import", json!({})), &done), spec("Import", json!({}))), another);
        let rollback = spec("Rollback", json!({"release": 3}));
        assert_eq!(refused(&preview, rollback), "is a Preview of an Import, and this is a Rollback to release 3");
        let under_way = json!({"phase": "Planning", "source": {"commit": "c"}});
        assert_eq!(refused(&run(previewed, &under_way), spec("Import", json!({}))), "has no plan");
    }
}
