//! `gitopsrepoes/diff` and `assignments/diff`: the files in which a GitOps branch differs from the rendered files, before any
//! pull request.
//!
//! With `revision`, a branch or a commit of the environment's control plane, the files are those of that revision.

use std::fmt::Write as _;

use serde::Serialize;
use stoa_fleet::{
    render::{File, Tree},
    results::problems,
};
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceResponse},
};
use stoa_proto::FileDifference;
use stoa_types::scheduler::{Assignment, GitOpsRepo};

use super::{
    format::{Format, PLAIN},
    non_empty,
};
use crate::fleet::{At, FleetService, Proposal};

/// The media types besides JSON and YAML.
pub(super) const PRODUCES: &[&str] = &[PLAIN];
const FORMATS: &[Format<Diff>] = &[Format::Json, Format::Yaml, Format::Text(text, "text", PLAIN)];
/// The lines around a change in a text.
const CONTEXT: usize = 3;

/// The differences.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Diff {
    /// The repository and branch that are compared.
    repository: String,
    branch: String,
    files: Vec<Changed>,
    /// The assignments that cannot be rendered. Their folders stay as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    broken: Vec<Broken>,
    /// The problems of files of the control plane.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Changed {
    path: String,
    /// Added, Modified or Deleted.
    change: String,
    before: String,
    after: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    template: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    policies: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    config_maps: Vec<String>,
    /// The schemas of the file's readers that it violates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    invalid: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Broken {
    assignment: String,
    folder: String,
    problems: Vec<String>,
}

/// The differences of a whole branch.
pub(super) async fn of_repository(
    fleets: FleetService,
    call: SubresourceCall,
) -> Result<SubresourceResponse, ApiError> {
    let format = Format::choose(&call, FORMATS)?;
    let repo = fleets.services().lookup.api::<GitOpsRepo>()?.get(&call.namespace, &call.name).await?;
    let diff = compare(&fleets, &call, &repo, "").await?;
    format.write(&call, &diff)
}

/// The differences of the folder of an assignment.
pub(super) async fn of_assignment(
    fleets: FleetService,
    call: SubresourceCall,
) -> Result<SubresourceResponse, ApiError> {
    let format = Format::choose(&call, FORMATS)?;
    let lookup = &fleets.services().lookup;
    let assignment = lookup.api::<Assignment>()?.get(&call.namespace, &call.name).await?;
    let folder = format!("{}/{}/", assignment.spec.cluster_type, assignment.spec.deployment_target);
    let mut repos = lookup.api::<GitOpsRepo>()?.list(Some(&call.namespace), "").await?;
    repos.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let repo = repos.into_iter().next().ok_or_else(|| {
        let message = format!("namespace {} has no GitOpsRepo to compare with; create one", call.namespace);
        ApiError::new(422, "Invalid", message)
    })?;
    let diff = compare(&fleets, &call, &repo, &folder).await?;
    format.write(&call, &diff)
}

async fn compare(
    fleets: &FleetService,
    call: &SubresourceCall,
    repo: &GitOpsRepo,
    folder: &str,
) -> Result<Diff, ApiError> {
    let namespace = call.namespace.as_str();
    let known = fleets.of(namespace, At { revision: non_empty(&call.query, "revision"), base: None }).await?;
    let tree = fleets.tree(namespace, &known).await?;
    let frozen = fleets.frozen(namespace, &known).await?;
    let proposal = Proposal { service: fleets, namespace, repo, known: &known, tree: &tree, frozen: &frozen };
    let changes = proposal.differences().await.map_err(|(_, message)| ApiError::service_unavailable(message))?;
    let is_inside = |path: &str| path.starts_with(folder);
    let files = changes.into_iter().filter(|change| is_inside(&change.path)).map(|change| changed(change, &tree));
    let broken = tree.broken.iter().filter(|(of, _)| is_inside(&format!("{of}/"))).map(|(of, broken)| Broken {
        assignment: broken.assignment.clone(),
        folder: of.clone(),
        problems: broken.problems.clone(),
    });
    Ok(Diff {
        repository: repo.spec.repo.clone(),
        branch: repo.spec.branch.clone(),
        files: files.collect(),
        broken: broken.collect(),
        problems: known.reading.plane.problems.iter().map(ToString::to_string).collect(),
    })
}

fn changed(change: FileDifference, tree: &Tree) -> Changed {
    let file = tree.files.get(&change.path).filter(|_| change.change != "Deleted");
    let provenance = file.map(|file| file.provenance.clone()).unwrap_or_default();
    let after = file.map(|File { content, .. }| content.clone()).unwrap_or_default();
    Changed {
        before: String::from_utf8_lossy(&change.before).into_owned(),
        invalid: problems(&change.path, &after),
        after,
        path: change.path,
        change: change.change,
        template: provenance.template,
        policies: provenance.policies,
        config_maps: provenance.config_maps,
    }
}

/// A text as of `diff -u`, with one hunk for each file.
fn text(diff: &Diff) -> String {
    let mut out = String::new();
    for file in &diff.files {
        hunk(&mut out, file);
    }
    for problem in diff.files.iter().flat_map(|file| &file.invalid) {
        let _ = writeln!(out, "# {problem}");
    }
    for broken in &diff.broken {
        let _ = writeln!(out, "# {} stays as it is: {}", broken.folder, broken.problems.join("; "));
    }
    out
}

fn hunk(out: &mut String, file: &Changed) {
    let name =
        |side: &str, is_there: bool| if is_there { format!("{side}/{}", file.path) } else { "/dev/null".to_owned() };
    let _ = writeln!(out, "--- {}", name("a", file.change != "Added"));
    let _ = writeln!(out, "+++ {}", name("b", file.change != "Deleted"));
    let (before, after): (Vec<&str>, Vec<&str>) = (file.before.lines().collect(), file.after.lines().collect());
    let common = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let left = before.len().min(after.len()) - common;
    let tail = before.iter().rev().zip(after.iter().rev()).take(left).take_while(|(a, b)| a == b).count();
    let start = common.saturating_sub(CONTEXT);
    let shown = tail.min(CONTEXT);
    let count = |lines: &[&str]| lines.len() - tail + shown - start;
    let first = |lines: &[&str]| if count(lines) == 0 { start } else { start + 1 };
    let (old, new) = (count(&before), count(&after));
    let _ = writeln!(out, "@@ -{},{old} +{},{new} @@", first(&before), first(&after));
    let mut lines = |sign: char, lines: &[&str]| {
        for line in lines {
            let _ = writeln!(out, "{sign}{line}");
        }
    };
    lines(' ', &before[start..common]);
    lines('-', &before[common..before.len() - tail]);
    lines('+', &after[common..after.len() - tail]);
    lines(' ', &before[before.len() - tail..before.len() - tail + shown]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(change: &str, before: &str, after: &str) -> String {
        let file = Changed {
            path: "drone/web/config.yaml".to_owned(),
            change: change.to_owned(),
            before: before.to_owned(),
            after: after.to_owned(),
            template: String::new(),
            policies: Vec::new(),
            config_maps: Vec::new(),
            invalid: Vec::new(),
        };
        let mut out = String::new();
        hunk(&mut out, &file);
        out
    }

    #[test]
    fn hunk_has_changed_lines_and_their_context() {
        assert_eq!(
            shown("Modified", "a\nb\nc\nd\ne\nf\ng\nh\ni\n", "a\nb\nc\nd\nE\nf\ng\nh\ni\n"),
            "--- a/drone/web/config.yaml\n+++ b/drone/web/config.yaml\n@@ -2,7 +2,7 @@\n b\n c\n d\n-e\n+E\n f\n g\n h\n"
        );
        assert_eq!(
            shown("Added", "", "a\nb\n"),
            "--- /dev/null\n+++ b/drone/web/config.yaml\n@@ -0,0 +1,2 @@\n+a\n+b\n"
        );
        assert_eq!(shown("Deleted", "a\n", ""), "--- a/drone/web/config.yaml\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-a\n");
        assert_eq!(
            shown("Modified", "a\na\n", "a\na\na\n"),
            "--- a/drone/web/config.yaml\n+++ b/drone/web/config.yaml\n@@ -1,2 +1,3 @@\n a\n a\n+a\n"
        );
    }
}
