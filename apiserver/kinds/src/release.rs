//! Release: an immutable record of one deployment, written by Stoa alone.

use std::cmp::Ordering;

use async_trait::async_trait;
use kube::ResourceExt as _;
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column, SelectableField},
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_types::{Release, Stack};

use super::records::Records;
use crate::{
    event_types,
    kind::Kind,
    rights::{READ, READERS, Role, right},
    validation,
};

/// The kind Release.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, surroundings| {
        builder.register(definition, ReleaseStrategy { records: Records(surroundings) })
    },
    events: &event_types::releases::ALL,
    rights: &[right(READERS, &["", "diff"], READ), right(&[Role::Owner], &["spec", "state"], READ)],
    ..Kind::of::<Release>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Release>()
        .columns(&[
            Column::new("Stack", Cell::Path(&["spec", "stack"]), "The stack."),
            Column::new("Workspace", Cell::Path(&["spec", "workspace"]), "The workspace."),
            Column::new("Revision", Cell::Path(&["spec", "revision"]), "The number of the release.").kind("integer"),
            Column::new(
                "Commit",
                Cell::Compute(|o| super::source::short(o.get_path(&["spec", "commit"]))),
                "The commit of the source.",
            ),
            Column::new("Run", Cell::Path(&["spec", "run"]), "The run that created the release."),
            Column::age(),
            Column::new(
                "Generator",
                Cell::Path(&["spec", "generator", "name"]),
                "The generator that rendered the Spec.",
            )
            .wide(),
            Column::new("Rollback-Of", Cell::Path(&["spec", "rollbackOf"]), "The release that a Rollback restored.")
                .kind("integer")
                .wide(),
            Column::new("Tombstone", Cell::Path(&["spec", "tombstone"]), "Whether all resources were removed.")
                .kind("boolean")
                .wide(),
        ])
        .selectable(&[
            SelectableField { name: "spec.stack", path: &["spec", "stack"] },
            SelectableField { name: "spec.workspace", path: &["spec", "workspace"] },
            SelectableField { name: "spec.run", path: &["spec", "run"] },
        ])
        .rows_by_name(by_number)
}

/// Orders names by the number at their end, `web.dev.2` before `web.dev.10`.
fn by_number(a: &str, b: &str) -> Ordering {
    let parts = |name: &str| {
        let (deployment, number) = name.rsplit_once('.')?;
        Some((deployment.to_owned(), number.parse::<u64>().ok()?))
    };
    match (parts(a), parts(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => a.cmp(b),
    }
}

/// The name of a Release: `<stack>.<workspace>.<number>`.
pub fn name(stack: &str, workspace: &str, number: i64) -> String {
    format!("{stack}.{workspace}.{number}")
}

/// Why a stack cannot go back to what was found as its release of this name, if it cannot.
pub fn obstacle(found: Option<&Release>, name: &str, stack: &Stack) -> Option<String> {
    let imported = || {
        found.filter(|release| release.spec.imported)?;
        Some(format!(
            "release {name} records an import whose Spec was never applied; apply its commit, or roll back to an \
             earlier release"
        ))
    };
    nothing_deployed(found, name, stack).or_else(imported)
}

/// Why nothing of what was found as a stack's release of this name is there, if that is so.
pub fn nothing_deployed(found: Option<&Release>, name: &str, stack: &Stack) -> Option<String> {
    match found {
        None => Some(format!("release {name} does not exist, or retention removed it")),
        Some(release) if Some(&release.spec.stack_uid) != stack.metadata.uid.as_ref() => {
            Some(format!("release {name} belongs to an earlier stack of the same name"))
        }
        Some(release) if release.spec.tombstone => {
            Some(format!("release {name} records that everything was removed; roll back to an earlier release"))
        }
        Some(_) => None,
    }
}

#[derive(Debug)]
pub(crate) struct ReleaseStrategy {
    pub records: Records,
}

#[async_trait]
impl Strategy for ReleaseStrategy {
    type Object = Release;

    fn validate_update(&self, new: &Release, old: &Release) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validation::immutable("spec", &new.spec, &old.spec, &mut errors);
        errors
    }

    async fn admit(&self, context: &RequestContext, change: Admission<'_, Release>) -> Result<(), ApiError> {
        match change {
            Admission::Create(new) => validation::written_by_server::<Release>(context, &new.name_any()),
            Admission::Update { .. } => Ok(()),
            Admission::Delete(old) => {
                let stack = (old.spec.stack.as_str(), Some(old.spec.stack_uid.as_str()));
                self.records.check_delete(context, old, stack).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_follow_the_number_of_the_release() {
        let mut names = ["web.dev.10", "web.dev.2", "web.prod.1", "db.dev.3", "web.dev.1"];
        names.sort_by(|a, b| by_number(a, b));
        assert_eq!(names, ["db.dev.3", "web.dev.1", "web.dev.2", "web.dev.10", "web.prod.1"]);
    }
}
