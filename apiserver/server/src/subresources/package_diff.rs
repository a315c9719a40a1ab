//! `packagerevisions/diff`: the differences of two revisions by object and field; `packageoperations/plan`: those that an operation
//! makes, package by package.
//!
//! Values of Secrets are masked.

use kube::ResourceExt as _;
use serde::Serialize;
use stoa_kinds::lookup::require;
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceResponse},
    registry::ListOptions,
    status::FieldError,
};
use stoa_packages::diff::{Difference, diff};
use stoa_types::{
    delivery::{PackageChange, PackageOperation, PackageOperationType, PackagePhase},
    porch::{PackageRevision, PackageRevisionResources},
};

use super::{
    format::{Format, PLAIN, bad_parameter},
    non_empty,
};
use crate::{controllers::package_operations::planned, packages::PackageService};

/// What both come in besides JSON and YAML.
pub(super) const PRODUCES: &[&str] = &[PLAIN];
const DIFFS: &[Format<Compared>] = &[Format::Json, Format::Yaml, Format::Text(Compared::text, "text", PLAIN)];
const PLANS: &[Format<Plan>] = &[Format::Json, Format::Yaml, Format::Text(Plan::text, "text", PLAIN)];

/// The most packages in one answer.
const MOST_PACKAGES: usize = 100;

/// Two revisions with their differences.
#[derive(Debug, Serialize)]
struct Compared {
    /// The earlier revision; absent for the first one, in which everything is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    to: String,
    #[serde(flatten)]
    difference: Difference,
}

impl Compared {
    fn text(&self) -> String {
        let from = self.from.as_deref().unwrap_or("nothing");
        format!("{from} -> {}\n{}", self.to, self.difference)
    }
}

/// The changes of an operation.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Plan {
    operation: String,
    plan_digest: String,
    packages: Vec<PlannedPackage>,
    /// The number of packages that the answer leaves out.
    #[serde(skip_serializing_if = "is_zero")]
    left_out: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The change of one package.
#[derive(Debug, Serialize)]
struct PlannedPackage {
    repository: String,
    package: String,
    from: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    to: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conflicts: Vec<String>,
    #[serde(flatten)]
    difference: Difference,
}

impl Plan {
    fn text(&self) -> String {
        let mut text = format!("{} {}\n", self.operation, self.plan_digest);
        for PlannedPackage { repository, package, from, to, conflicts, difference } in &self.packages {
            let to = if to.is_empty() { String::new() } else { format!(" -> {to}") };
            text += &format!("\n{repository}/{package}: {from}{to}\n{difference}");
            conflicts.iter().for_each(|conflict| text += &format!("! {conflict}\n"));
        }
        if self.left_out > 0 {
            text += &format!("\n{} more packages\n", self.left_out);
        }
        text
    }
}

/// Query parameters: `with` is the other revision, by its name, else the published one before is meant; `format` is `json`, `yaml`
/// or `text`.
pub(super) async fn revision_diff(
    packages: PackageService,
    call: SubresourceCall,
) -> Result<SubresourceResponse, ApiError> {
    let format = Format::choose(&call, DIFFS)?;
    let revisions = packages.services().lookup.api::<PackageRevision>()?;
    let revision = revisions.get(&call.namespace, &call.name).await?;
    let other = match non_empty(&call.query, "with") {
        Some(name) => Some(name.to_owned()),
        None => before(&packages, &revision).await?,
    };
    for name in other.iter().chain([&call.name]) {
        require::<PackageRevisionResources>(&call.context, "get", "", &call.namespace, name).await?;
    }
    let after = packages.tree(&revision).await?;
    let before = match &other {
        None => stoa_packages::Tree::default(),
        Some(name) => {
            let found = revisions.get_opt(&call.namespace, name).await?;
            let found = found.ok_or_else(|| bad_parameter(&FieldError::not_found("with", name)))?;
            packages.tree(&found).await?
        }
    };
    let to = call.name.clone();
    let compare = move || Compared { from: other, to, difference: diff(&before, &after) };
    let compared = stoa_controller::blocking::on_own_thread(compare).await;
    format.write(&call, &compared)
}

/// The name of the published revision before another one of its package; of a draft, the newest.
async fn before(packages: &PackageService, revision: &PackageRevision) -> Result<Option<String>, ApiError> {
    let spec = &revision.spec;
    let selector = format!("spec.repository={},spec.packageName={}", spec.repository_name, spec.package_name);
    let options = ListOptions { field_selector: Some(selector), ..ListOptions::default() };
    let is_earlier = |number: i64| number > 0 && (!spec.lifecycle.is_published() || number < spec.revision);
    let of = |other: PackageRevision| {
        let number = other.spec.revision;
        (other.spec.lifecycle.is_published() && is_earlier(number)).then(|| (number, other.name_any()))
    };
    let namespace = revision.namespace().unwrap_or_default();
    let all = packages.services().lookup.api::<PackageRevision>()?;
    let earlier = all.list_of(Some(&namespace), &options, of).await?;
    Ok(earlier.into_iter().max().map(|(_, name)| name))
}

/// Query parameters: `package` is a package by `REPOSITORY/PATH`, else all are meant; `format` is `json`, `yaml` or `text`.
pub(super) async fn operation_plan(
    packages: PackageService,
    call: SubresourceCall,
) -> Result<SubresourceResponse, ApiError> {
    let format = Format::choose(&call, PLANS)?;
    let operation = packages.services().lookup.api::<PackageOperation>()?.get(&call.namespace, &call.name).await?;
    require::<PackageRevisionResources>(&call.context, "get", "", &call.namespace, "").await?;
    let status = operation.status.clone().unwrap_or_default();
    let wanted = non_empty(&call.query, "package");
    let is_wanted = |change: &&PackageChange| {
        let name = format!("{}/{}", change.repository, change.package);
        wanted.is_none_or(|wanted| wanted == name) && change.phase != PackagePhase::Skipped
    };
    let changes: Vec<&PackageChange> = match operation.spec.operation {
        PackageOperationType::Validate => Vec::new(),
        _ => status.packages.iter().filter(is_wanted).collect(),
    };
    let mut found = Vec::new();
    for change in changes.iter().take(MOST_PACKAGES) {
        let planned = planned(&packages, &operation, change).await?;
        let compare = move || (planned.difference(), planned.conflicts);
        let (difference, conflicts) = stoa_controller::blocking::on_own_thread(compare).await;
        found.push(PlannedPackage {
            repository: change.repository.clone(),
            package: change.package.clone(),
            from: change.from.clone(),
            to: change.to.clone(),
            conflicts,
            difference,
        });
    }
    let plan = Plan {
        operation: format!("{:?}", operation.spec.operation),
        plan_digest: status.plan_digest,
        packages: found,
        left_out: changes.len().saturating_sub(MOST_PACKAGES),
    };
    format.write(&call, &plan)
}
