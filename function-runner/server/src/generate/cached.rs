//! Rendered Specs, by all of their inputs.
//!
//! Memory only: a Spec may contain Secrets, which this process writes to no file.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};
use stoa_proto::{Source, Value};

use super::job::Rendered;
use super::pipeline::Request;
use crate::source::cache_name;

/// The size of all Specs together, in bytes.
const MOST: usize = 64 << 20;

/// The digest of by all of their inputs.
pub(super) type Key = [u8; 32];

/// The Specs that were rendered last. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Cached(Arc<Mutex<Specs>>);

#[derive(Debug, Default)]
struct Specs {
    specs: HashMap<Key, Entry>,
    bytes: usize,
    /// Counts uses.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    rendered: Rendered,
    used: u64,
}

/// The key of a request. A commit never changes, and the name of a source's cache covers its credentials: a Spec is for those who
/// could read its source.
pub(super) fn key(source: &Source, request: &Request<'_>) -> Key {
    let mut hasher = Sha256::new();
    let mut part = |text: &str| {
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text);
    };
    let values = request.values;
    let stack = [&values.organization, &values.project, &values.stack, &values.workspace];
    [cache_name(source).as_str(), request.commit, request.path, request.generator].into_iter().for_each(&mut part);
    stack.into_iter().chain([&values.modules, &values.module_digests]).for_each(|text| part(text));
    let helm = request.helm;
    [&helm.release_name, &helm.namespace].into_iter().chain(&helm.values_files).for_each(|text| part(text));
    let mut sorted: Vec<_> = values.parameters.iter().collect();
    sorted.sort_unstable();
    part(&sorted.len().to_string());
    sorted.into_iter().for_each(|(name, value)| {
        part(name);
        part(value);
    });
    for Value { name, json, origin, sensitive, is_final } in &values.platform {
        let flags = format!("{sensitive} {is_final}");
        [name, json, origin, &flags].into_iter().for_each(|text| part(text));
    }
    hasher.finalize().into()
}

impl Cached {
    pub(super) fn get(&self, key: &Key) -> Option<Rendered> {
        let mut specs = self.lock();
        specs.clock += 1;
        let used = specs.clock;
        let entry = specs.specs.get_mut(key)?;
        entry.used = used;
        Some(entry.rendered.clone())
    }

    /// Adds a Spec, and removes those that were not used for the longest time, while all are too large together.
    pub(super) fn put(&self, key: Key, rendered: Rendered) {
        if rendered.spec.len() > MOST / 2 {
            return;
        }
        let mut specs = self.lock();
        specs.clock += 1;
        let used = specs.clock;
        specs.bytes += rendered.spec.len();
        if let Some(before) = specs.specs.insert(key, Entry { rendered, used }) {
            specs.bytes -= before.rendered.spec.len();
        }
        while specs.bytes > MOST {
            let Some(oldest) = specs.specs.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key) else {
                break;
            };
            if let Some(removed) = specs.specs.remove(&oldest) {
                specs.bytes -= removed.rendered.spec.len();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Specs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use stoa_proto::HelmOptions;

    use super::*;
    use crate::generate::Values;

    fn rendered(bytes: usize) -> Rendered {
        let (spec, provenance) = (vec![b' '; bytes].into(), Default::default());
        Rendered { spec, warnings: Vec::new(), provenance, is_volatile: false }
    }

    #[test]
    fn least_recently_used_specs_make_room() {
        let cached = Cached::default();
        let keys = [1, 2, 3, 4].map(|number| [number; 32]);
        for key in &keys[..3] {
            cached.put(*key, rendered(MOST / 3));
        }
        assert!(cached.get(&keys[0]).is_some());
        cached.put(keys[3], rendered(MOST / 3));
        assert_eq!(keys.map(|key| cached.get(&key).is_some()), [true, false, true, true]);
        cached.put(keys[3], rendered(1));
        cached.put(keys[1], rendered(MOST / 3));
        assert_eq!(keys.map(|key| cached.get(&key).is_some()), [true, true, true, true]);
        cached.put([9; 32], rendered(MOST));
        assert!(cached.get(&[9; 32]).is_none(), "one Spec does not fill it");
    }

    #[test]
    fn every_input_changes_the_key() {
        let source = |remote: &str, token: &str| Source {
            remote: remote.to_owned(),
            credentials: [("token".to_owned(), token.to_owned().into())].into(),
            ..Source::default()
        };
        fn value(name: &str, is_final: bool) -> Value {
            Value { name: name.to_owned(), is_final, ..Value::default() }
        }
        let map = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into();
        let values = Values { parameters: map("a", "b"), ..Values::default() };
        let of_helm = |name: &str, files: &[&str]| HelmOptions {
            release_name: name.to_owned(),
            values_files: files.iter().map(ToString::to_string).collect(),
            ..HelmOptions::default()
        };
        let helm = HelmOptions::default();
        let request = Request { commit: "c", path: "p", generator: "g", values: &values, helm: &helm };
        let of = |change: fn(&mut Values)| {
            let mut changed = values.clone();
            change(&mut changed);
            key(&source("r", "t"), &Request { values: &changed, ..request })
        };
        let mut keys = vec![
            key(&source("r", "t"), &request),
            key(&source("s", "t"), &request),
            key(&source("r", "u"), &request),
            key(&source("r", "t"), &Request { commit: "d", ..request }),
            key(&source("r", "t"), &Request { path: "q", ..request }),
            key(&source("r", "t"), &Request { generator: "h", ..request }),
            of(|values| values.organization = "x".to_owned()),
            of(|values| values.project = "x".to_owned()),
            of(|values| values.stack = "x".to_owned()),
            of(|values| values.workspace = "x".to_owned()),
            of(|values| values.modules = "x".to_owned()),
            of(|values| values.module_digests = "x".to_owned()),
            of(|values| values.parameters = [("a".to_owned(), "c".to_owned())].into()),
            of(|values| values.parameters = [("ab".to_owned(), String::new())].into()),
            key(&source("r", "t"), &Request { helm: &of_helm("a", &[]), ..request }),
            key(&source("r", "t"), &Request { helm: &of_helm("", &["a"]), ..request }),
            key(&source("r", "t"), &Request { helm: &of_helm("", &["a", "b"]), ..request }),
            of(|values| values.platform = vec![value("a", false)]),
            of(|values| values.platform = vec![value("b", false)]),
            of(|values| values.platform = vec![value("a", true)]),
        ];
        assert_eq!(keys[0], key(&source("r", "t"), &request));
        keys.sort_unstable();
        let all = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }
}
