//! Folders that need a tool for which there is no generator yet: kustomizations and charts.
//!
//! Their files are patches, templates and values beside manifests. Stoa deploys none of them, since the manifests are incomplete until
//! the tool has built them.

use serde_json::Value;
use stoa_proto::Problem;
use stoa_yaml::Document;

use super::yaml;
use crate::failure::{problem, reason};
use crate::source::SourceFile;

/// The names by which kustomize finds a kustomization.
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// The name by which Helm finds a chart.
const CHART: &str = "Chart.yaml";
/// The group of kustomize's own kinds.
const GROUP: &str = "kustomize.config.k8s.io/";

/// The first file of a kustomization or a chart among some files, with what to do instead.
pub(super) fn find(files: &[SourceFile]) -> Option<Problem> {
    files.iter().find_map(|file| {
        let name = file.path.rsplit('/').next().unwrap_or(&file.path);
        // The file that decides is small; the whole folder is read later.
        let may_be = KUSTOMIZATIONS.contains(&name) || name == CHART || mentions_kustomize(file);
        let documents = may_be.then(|| yaml::documents(file).unwrap_or_default())?;
        let message = if is_kustomization(name, &documents) {
            "is a kustomization, which Stoa cannot build yet; commit the output of `kubectl kustomize` instead"
        } else if is_chart(name, &documents) {
            "is a chart, which Stoa cannot build yet; commit the output of `helm template` instead"
        } else {
            return None;
        };
        Some(Problem { file: file.path.clone(), ..problem(reason::NOT_AVAILABLE, message) })
    })
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
