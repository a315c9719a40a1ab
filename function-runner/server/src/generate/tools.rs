//! Finds kustomizations and charts among files.
//!
//! Their files are patches, templates and values beside manifests. The generator `Manifests` deploys none of them, since the manifests
//! are incomplete until the tool has built them.

use serde_json::Value;
use stoa_proto::Problem;
use stoa_yaml::Document;

use super::generator::Tool;
use super::yaml;
use crate::failure::{problem, reason};
use crate::source::SourceFile;

/// The names by which kustomize finds a kustomization.
pub(crate) const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// The name by which Helm finds a chart.
pub(super) const CHART: &str = "Chart.yaml";
/// The group of kustomize's own kinds.
const GROUP: &str = "kustomize.config.k8s.io/";

/// The first file of a kustomization or a chart among some files, with what to do instead of reading them as manifests.
pub(super) fn find(files: &[SourceFile]) -> Option<Problem> {
    files.iter().find_map(|file| {
        let (is, generator) = match of(file)? {
            Tool::Kustomize => ("a kustomization", "Kustomize"),
            Tool::Helm => ("a chart", "Helm"),
        };
        let message = format!(
            "is {is}, which generator Manifests does not deploy in part; set spec.path of a Stack to its folder, and \
             spec.generator.type to {generator} or Auto"
        );
        Some(Problem { file: file.path.clone(), ..problem(reason::NOT_AVAILABLE, message) })
    })
}

/// The tool that a file is for, if it is a kustomization or a chart's first file.
pub(super) fn of(file: &SourceFile) -> Option<Tool> {
    let name = file.path.rsplit('/').next().unwrap_or(&file.path);
    // The file that decides is small; the whole folder is read later.
    let may_be = KUSTOMIZATIONS.contains(&name) || name == CHART || mentions_kustomize(file);
    let documents = may_be.then(|| yaml::documents(file).unwrap_or_default())?;
    if is_kustomization(name, &documents) {
        Some(Tool::Kustomize)
    } else if is_chart(name, &documents) {
        Some(Tool::Helm)
    } else {
        None
    }
}

fn mentions_kustomize(file: &SourceFile) -> bool {
    std::str::from_utf8(&file.bytes).is_ok_and(|text| text.contains(GROUP))
}

/// Whether a document is a Kubernetes object, whatever the name of its file.
fn is_manifest(document: &Document) -> bool {
    let has = |field: &str| document.value.get(field).is_some_and(|value| !value.is_null());
    has("apiVersion") && has("kind") && !is_of_kustomize(document)
}

fn is_of_kustomize(document: &Document) -> bool {
    document.value.get("apiVersion").and_then(Value::as_str).is_some_and(|version| version.starts_with(GROUP))
}

fn is_kustomization(name: &str, documents: &[Document]) -> bool {
    let are_manifests = !documents.is_empty() && documents.iter().all(is_manifest);
    documents.iter().any(is_of_kustomize) || (KUSTOMIZATIONS.contains(&name) && !are_manifests)
}

fn is_chart(name: &str, documents: &[Document]) -> bool {
    name == CHART && !documents.iter().any(is_manifest)
}
