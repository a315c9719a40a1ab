//! The fields of a PackageRevision that follow from its content: readiness gates, labels, conditions and the upstream of its
//! Kptfile, and the outcome of its functions.

use serde_json::Value;
use stoa_packages::{KPTFILE, kptfile::Kptfile};
use stoa_types::{
    porch::{
        GitLock, Locator, PackageCondition, PackageMetadata, PackageRevision, PackageRevisionSpec,
        PackageRevisionStatus, ReadinessGate,
    },
    reason,
};

use super::contents::Document;

/// Sets everything that follows from a content. `is_rendering`: its functions still run.
pub(crate) fn set(revision: &mut PackageRevision, document: &Document, is_rendering: bool) {
    let kptfile = document.resources.get(KPTFILE).map(|text| Kptfile::parse(text).map_err(|error| error.to_string()));
    let (spec, status) = (&mut revision.spec, revision.status.get_or_insert_default());
    // The render names the error of another.
    if let Some(Ok(kptfile)) = kptfile {
        of_kptfile(spec, status, &kptfile);
    }
    let error = document.render_status.get("error").and_then(Value::as_str).unwrap_or_default();
    let (is_rendered, why, message) = match (is_rendering, error) {
        (true, _) => ("Unknown", reason::PROGRESSING, "the functions of the package still run"),
        (false, "") => ("True", reason::SUCCEEDED, "the functions of the package succeeded"),
        (false, error) => ("False", reason::GENERATE_FAILED, error),
    };
    let rendered = Some(PackageCondition {
        type_: reason::RENDERED.to_owned(),
        status: is_rendered.to_owned(),
        reason: why.to_owned(),
        message: message.to_owned(),
    });
    set_condition(&mut status.conditions, reason::RENDERED, rendered);
}

/// Sets everything that follows from a Kptfile. Conditions of the server stay.
pub(crate) fn of_kptfile(spec: &mut PackageRevisionSpec, status: &mut PackageRevisionStatus, kptfile: &Kptfile) {
    let gates = kptfile.info.iter().flat_map(|info| &info.readiness_gates);
    spec.readiness_gates = gates.map(|gate| ReadinessGate { condition_type: gate.condition_type.clone() }).collect();
    let metadata =
        PackageMetadata { labels: kptfile.metadata.labels.clone(), annotations: kptfile.metadata.annotations.clone() };
    spec.package_metadata = Some(metadata).filter(|metadata| *metadata != PackageMetadata::default());
    status.upstream_lock = kptfile.upstream_lock.as_ref().map(|lock| Locator {
        kind: lock.kind.clone(),
        git: lock.git.as_ref().map(|git| GitLock {
            repo: git.repo.clone(),
            directory: git.directory.clone(),
            reference: git.reference.clone(),
            commit: git.commit.clone(),
        }),
    });
    let is_own = |condition: &PackageCondition| [reason::PUSHED, reason::RENDERED].contains(&&*condition.type_);
    let own: Vec<_> = status.conditions.iter().filter(|condition| is_own(condition)).cloned().collect();
    let of_package = kptfile.status.iter().flat_map(|status| &status.conditions);
    let of_package = of_package.map(|condition| PackageCondition {
        type_: condition.kind.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
    });
    status.conditions = of_package.filter(|condition| !is_own(condition)).chain(own).collect();
}

/// Sets or removes a condition; whether anything changed.
pub(crate) fn set_condition(
    conditions: &mut Vec<PackageCondition>,
    type_: &str,
    condition: Option<PackageCondition>,
) -> bool {
    let before = conditions.iter().position(|found| found.type_ == type_);
    match (before, condition) {
        (Some(at), Some(condition)) => {
            let is_other = conditions[at] != condition;
            conditions[at] = condition;
            is_other
        }
        (Some(at), None) => {
            conditions.remove(at);
            true
        }
        (None, Some(condition)) => {
            conditions.push(condition);
            true
        }
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KPTFILE_TEXT: &str = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n  labels:\n    tier: gold\ninfo:\n  \
                                readinessGates:\n  - conditionType: Checked\nstatus:\n  conditions:\n  - type: Checked\n    \
                                status: \"True\"\n";

    #[test]
    fn revision_shows_what_its_kptfile_says() {
        let mut revision = PackageRevision::default();
        let mut document = Document::default();
        document.resources.insert(KPTFILE.to_owned(), KPTFILE_TEXT.to_owned());
        document.render_status = serde_json::json!({"error": "function set-labels failed"});
        set(&mut revision, &document, false);
        assert_eq!(revision.spec.readiness_gates[0].condition_type, "Checked");
        assert_eq!(revision.spec.package_metadata.as_ref().unwrap().labels["tier"], "gold");
        let status = revision.status.clone().unwrap();
        let found: Vec<_> = status.conditions.iter().map(|found| (&*found.type_, &*found.status)).collect();
        assert_eq!(found, [("Checked", "True"), ("Rendered", "False")]);
        document.render_status = Value::Null;
        for (is_rendering, expected) in [(true, "Unknown"), (false, "True")] {
            set(&mut revision, &document, is_rendering);
            let conditions = &revision.status.as_ref().unwrap().conditions;
            assert_eq!((conditions.len(), conditions[1].status.as_str()), (2, expected));
        }
    }
}
