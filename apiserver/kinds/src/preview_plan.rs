//! The copy of a Preview's plan in the status of the Run that carries it out, so that the Preview may be
//! deleted.

use stoa_types::{
    Run,
    delivery::{Operation, PreviewedPlan, RunPhase, RunSpec},
};

/// The largest import that a run keeps, in bytes of JSON. It is written again with every change of the run's status.
const LARGEST: usize = 128 << 10;

/// What a run with this spec keeps of the run that it names when it is made. Nothing where that has no plan that it may carry out
/// yet, or a larger import: it is read in its time then.
pub fn kept(preview: &Run, now: &RunSpec) -> Option<PreviewedPlan> {
    let plan = plan_of(preview, now).ok()?;
    let import = plan.import.as_ref().map(|import| serde_json::to_vec(import).expect("an import serializes"));
    import.is_none_or(|import| import.len() <= LARGEST).then_some(plan)
}

/// What a run with this spec carries out of a run that it names. Of an import that its own spec tells as well, which is the same,
/// there is no copy.
///
/// # Errors
///
/// Why it may not, or cannot yet: the end of a sentence about what it names.
pub fn plan_of(preview: &Run, now: &RunSpec) -> Result<PreviewedPlan, String> {
    let then = &preview.spec;
    if then.operation != Operation::Preview || (&then.stack, &then.workspace) != (&now.stack, &now.workspace) {
        return Err("is not a Preview of this stack in this workspace".to_owned());
    }
    if (then.planned(), then.release) != (now.planned(), now.release) {
        return Err(format!("is a Preview of {}, and this is {}", what(then), what(now)));
    }
    if then.skip_hooks != now.skip_hooks {
        return Err(format!("has skipHooks: {}; set the same", then.skip_hooks));
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
        generator: source.generator,
        values: done.values,
        import: if now.import.is_none() { then.import.clone() } else { None },
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
    fn plan_runs_only_as_its_operation() {
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

        let own = spec("Import", json!({"plan": "look", "import": import}));
        assert_eq!(carried_out(&preview, own).unwrap().import, None, "its spec says so");

        let refused = |preview: &Run, spec: Value| carried_out(preview, spec).unwrap_err();
        let another = "is not a Preview of this stack in this workspace";
        assert_eq!(refused(&preview, spec("Import", json!({"workspace": "prod"}))), another);
        assert_eq!(refused(&run(spec("Import", json!({})), &done), spec("Import", json!({}))), another);
        let rollback = spec("Rollback", json!({"release": 3}));
        assert_eq!(refused(&preview, rollback), "is a Preview of an Import, and this is a Rollback to release 3");
        let skipping = spec("Import", json!({"skipHooks": true}));
        assert_eq!(refused(&preview, skipping), "has skipHooks: false; set the same");
        let under_way = json!({"phase": "Planning", "source": {"commit": "c"}});
        assert_eq!(refused(&run(previewed, &under_way), spec("Import", json!({}))), "has no plan");
    }

    #[test]
    fn preview_plan_stores_no_large_import() {
        let of = |count: usize| {
            let resources: Vec<Value> = (0..count).map(|n| json!({"id": format!("{n:01000}")})).collect();
            json!({"resources": resources})
        };
        for (count, is_kept) in [(1, true), (120, true), (140, false)] {
            let spec = json!({"stack": "web", "workspace": "dev", "operation": "Preview", "of": "Import",
                "import": of(count)});
            let done = json!({"phase": "Succeeded", "source": {"commit": "c"},
                "plan": {"digest": "sha256:p", "document": "sha256:d"}});
            let preview = run(spec, &done);
            let mut now = json!({"stack": "web", "workspace": "dev", "operation": "Import", "plan": "look"});
            let told_nothing: RunSpec = serde_json::from_value(now.clone()).unwrap();
            let plan = plan_of(&preview, &told_nothing).unwrap();
            assert_eq!(plan.import, preview.spec.import, "it is read of the Preview");
            assert_eq!(kept(&preview, &told_nothing), is_kept.then_some(plan), "{count}");
            now["import"] = of(count);
            let told = kept(&preview, &serde_json::from_value(now).unwrap()).unwrap();
            assert_eq!((told.digest.as_str(), told.import), ("sha256:p", None), "{count}");
        }
    }
}
