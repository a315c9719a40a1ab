//! The lock file of a source: the versions and checksums of the providers that its resources need.

use serde_json::json;
use stoa_engine::provider::SOURCE_LOCK;
use stoa_engine::{ProviderReference, ResourceType, SourceLock, Spec};
use stoa_outbound::causes;
use stoa_proto::Problem;
use stoa_terraform_provider::package::{Address, Hash, LockFile as Locks, LockFileError};

use crate::failure::{Failure, problem, reason};
use crate::source::{LockFile, SourceFile};

/// Sets the lock of each resource of a provider by the lock file, if the source has one. A wrong file matters only if there
/// are such resources.
pub(super) fn record(spec: &mut Spec, lock: Option<&LockFile>) -> Result<(), Failure> {
    let mut resources = spec.resources.iter_mut().filter(|it| it.kind == ResourceType::Terraform).peekable();
    if resources.peek().is_none() {
        return Ok(());
    }
    let file = lock.map(|lock| lock.as_ref().map_err(|wrong| Failure::invalid(vec![wrong.clone()]))).transpose()?;
    let lock = file.map(|file| parse(file).map(|lock| (file, lock))).transpose()?;
    for resource in resources {
        // The file alone has it.
        resource.extensions.remove(SOURCE_LOCK);
        let Some((file, lock)) = &lock else { continue };
        // The runtime reports a wrong address.
        let address = ProviderReference::of(&resource.extensions).ok().map(|it| it.address.parse::<Address>());
        let Some(Ok(address)) = address else { continue };
        let locked = lock.providers.get(&address);
        let recorded = SourceLock {
            file: file.path.clone(),
            version: locked.map(|it| it.version.to_string()).unwrap_or_default(),
            hashes: locked.iter().flat_map(|it| &it.hashes).map(Hash::to_string).collect(),
        };
        resource.extensions.insert(SOURCE_LOCK.to_owned(), json!(recorded));
    }
    Ok(())
}

fn parse(file: &SourceFile) -> Result<Locks, Failure> {
    let wrong = |line: usize, message: String| {
        let line = line.try_into().unwrap_or_default();
        let file = file.path.clone();
        Failure::invalid(vec![Problem { file, line, ..problem(reason::NO_RUNTIME, message) }])
    };
    let text = std::str::from_utf8(&file.bytes).map_err(|_| wrong(0, "is not UTF-8".to_owned()))?;
    Locks::parse(text).map_err(|error| {
        let line = if let LockFileError::Syntax { line, .. } = &error { *line } else { 0 };
        wrong(line, format!("{}; write it by `terraform providers lock`", causes(&error)))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn spec() -> Spec {
        let resource = |id: &str, provider: &str| {
            json!({
                "id": id, "type": "Terraform", "attributes": {},
                "extensions": {"provider": provider, "resourceType": "x", SOURCE_LOCK: {"file": "forged"}},
            })
        };
        let config = json!({"id": "v1:ConfigMap:a:b", "type": "Kubernetes", "attributes": {}});
        let resources = [resource("a", "random"), resource("b", "hashicorp/tls/4.0.4"), config];
        serde_json::from_value(json!({"resources": resources})).unwrap()
    }

    fn file(text: &str) -> SourceFile {
        SourceFile { path: "apps/.terraform.lock.hcl".to_owned(), bytes: text.as_bytes().to_vec() }
    }

    fn locks(spec: &Spec) -> Vec<Option<&Value>> {
        spec.resources.iter().map(|resource| resource.extensions.get(SOURCE_LOCK)).collect()
    }

    #[test]
    fn lock_file_sets_the_lock_of_each_resource() {
        let zeros = "0".repeat(64);
        let text = format!(
            "provider \"registry.terraform.io/hashicorp/random\" {{\n  version = \"3.6.0\"\n  hashes = [\"zh:{zeros}\"]\n}}\n"
        );
        let mut locked = spec();
        record(&mut locked, Some(&Ok(file(&text)))).unwrap();
        let path = "apps/.terraform.lock.hcl";
        let random = json!({"file": path, "version": "3.6.0", "hashes": [format!("zh:{zeros}")]});
        assert_eq!(locks(&locked), [Some(&random), Some(&json!({"file": path})), None]);
        let mut unlocked = spec();
        record(&mut unlocked, None).unwrap();
        assert_eq!(locks(&unlocked), [None, None, None]);
    }

    #[test]
    fn wrong_lock_file_names_its_line() {
        let failure = record(&mut spec(), Some(&Ok(file("provider \"random\" {\n  version = 3\n}")))).unwrap_err();
        let found = &failure.problems()[0];
        assert_eq!((found.file.as_str(), found.line), ("apps/.terraform.lock.hcl", 2), "{found:?}");
        // Without such resources, nothing needs the file.
        record(&mut Spec::default(), Some(&Ok(file("?")))).unwrap();
        let unread = Err(Problem { file: "a/.terraform.lock.hcl".to_owned(), ..problem(reason::TOO_LARGE, "large") });
        assert_eq!(record(&mut spec(), Some(&unread)).unwrap_err().problems()[0].message, "large");
        record(&mut Spec::default(), Some(&unread)).unwrap();
    }
}
