//! The encrypted files of a source that are secret stores: read at the commit of a Run, and sent to the runner as they are.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use kube::ResourceExt as _;
use serde_json::Value;
use stoa_proto::ReadFileRequest;
use stoa_types::{platform::WorkspaceSpec, reason};

use crate::{Services, StepError, runner, target::Target};

/// The largest file, in bytes.
const LARGEST: u32 = 1 << 20;

/// The files of some stores of a workspace, by the names of the stores; empty is the name of the default one.
///
/// # Errors
///
/// Failed when a file does not exist, and when the Run has no commit.
pub(crate) async fn read(
    services: &Services,
    target: &Target,
    commit: &str,
    stores: &BTreeSet<String>,
) -> Result<HashMap<String, Bytes>, StepError> {
    let mut files = HashMap::new();
    for (store, path) in paths(&target.workspace.spec).filter(|(store, _)| stores.contains(*store)) {
        let what = format!("file {path} of the secret store of workspace {}", target.workspace.name_any());
        if commit.is_empty() {
            let message = format!("{what}: the Run has no commit; name another store in the Workspace");
            return Err(StepError::failed(reason::REFERENCE_NOT_FOUND, message));
        }
        let request = ReadFileRequest {
            source: Some(target.proto_source(services).await?),
            commit: commit.to_owned(),
            path: path.to_owned(),
            max_bytes: LARGEST,
        };
        let answer = services.runner.read_file(request).await;
        let answer = answer.map_err(|status| match runner::halt(&status, reason::REFERENCE_NOT_FOUND) {
            StepError::Failed { reason, message } => StepError::failed(reason, format!("{what}: {message}")),
            halt => halt,
        })?;
        files.insert(store.to_owned(), Bytes::from(answer.into_inner().text));
    }
    Ok(files)
}

/// The paths of the files by the names of the stores.
fn paths(workspace: &WorkspaceSpec) -> impl Iterator<Item = (&str, &str)> {
    let default = workspace.secret_store.get("provider").and_then(|provider| provider.get("file"));
    let default = default.and_then(|file| file.get("path")).and_then(Value::as_str).map(|path| ("", path));
    let named = workspace.secret_stores.iter();
    let named = named.filter_map(|store| Some((store.name.as_str(), store.provider.file.as_ref()?.path.as_str())));
    default.into_iter().chain(named)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn default_and_named_stores_have_files() {
        let file = |path: &str| json!({"file": {"path": path}});
        let spec = json!({"backend": {"name": "b"}, "secretStore": {"provider": file("a.age")},
            "secretStores": [{"name": "team", "provider": file("b.age")}, {"name": "k", "provider": {"kubernetes": {}}}]});
        let spec: WorkspaceSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(paths(&spec).collect::<Vec<_>>(), [("", "a.age"), ("team", "b.age")]);
        assert_eq!(paths(&WorkspaceSpec::default()).count(), 0);
    }
}
