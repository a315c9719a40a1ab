//! Rendered Specs, by all of their inputs.
//!
//! Memory only: a Spec may contain Secrets, which this process writes to no file.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message as _;
use sha2::{Digest as _, Sha256};
use stoa_kcl::VERSION;
use stoa_proto::{Source, Value};

use super::generator::{Profile, Provenance, named};
use super::job::Rendered;
use super::pipeline::Request;
use crate::source::{cache_name, normalized};

/// The size of all Specs together, in bytes.
const MOST: usize = 64 << 20;

/// The most commits whose stacks are known to have the content of another.
const MOST_SAME: usize = 50_000;

/// The digest of all inputs.
pub(super) type Key = [u8; 32];

/// The Specs that were rendered last. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Cached(Arc<Mutex<Specs>>);

#[derive(Debug, Default)]
struct Specs {
    specs: HashMap<Key, Entry>,
    /// The keys by the content of the stack, by those by its commit.
    same: HashMap<Key, Key>,
    bytes: usize,
    /// Counts uses.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    rendered: Rendered,
    bytes: usize,
    used: u64,
}

/// The files of a stack, as the key has them.
#[derive(Clone, Copy, Debug)]
pub(super) enum FilesOf<'a> {
    /// All of a commit, which never changes.
    Commit(&'a str),
    /// Those of the stack's folder, by the id of the content.
    Content(&'a str),
}

/// The tools of this runner: another version may give another Spec.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tools {
    /// The digest of the renderer, if it is there.
    pub(super) renderer: Option<[u8; 32]>,
    pub(super) has_kcl: bool,
}

/// The key of a request. The name of a source's cache covers its credentials: a Spec is for those who could read its source.
pub(super) fn key(source: &Source, request: &Request<'_>, files: FilesOf<'_>, tools: &Tools) -> Key {
    let mut hasher = Sha256::new();
    let mut part = |text: &str| {
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text);
    };
    let values = request.values;
    let stack = [&values.organization, &values.project, &values.stack, &values.workspace];
    let (kind, id) = match files {
        FilesOf::Commit(id) => ("commit", id),
        FilesOf::Content(id) => ("content", id),
    };
    [cache_name(source).as_str(), kind, id, request.path, request.generator].into_iter().for_each(&mut part);
    part(&format!("{:?} {} {VERSION}", tools.renderer, tools.has_kcl));
    stack.into_iter().chain([&values.modules, &values.module_digests]).for_each(|text| part(text));
    let helm = request.helm;
    [&helm.release_name, &helm.namespace].into_iter().for_each(|text| part(text));
    part(&helm.values_files.len().to_string());
    helm.values_files.iter().for_each(|text| part(text));
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

/// Whether the files in a stack's folder decided a Spec alone, so that the id of its content identifies them. A program in KCL also
/// looks for files in the folders around it, whether they are there or not.
pub(super) fn is_of_content(rendered: &Rendered, path: &str) -> bool {
    let Ok(folder) = normalized(path) else { return false };
    let is_inside =
        |file: &String| folder.is_empty() || file.strip_prefix(&folder).is_some_and(|rest| rest.starts_with('/'));
    let Provenance { generator, files, .. } = &rendered.provenance;
    named(generator).is_some_and(|generator| !matches!(generator.profile(), Profile::Kcl | Profile::Tree))
        && files.iter().all(is_inside)
}

/// How many bytes something has in memory, about.
fn size(rendered: &Rendered) -> usize {
    let Rendered { spec, warnings, provenance, .. } = rendered;
    let texts = warnings.iter().map(|text| size_of::<String>() + text.len()).sum::<usize>();
    size_of::<(Key, Entry)>() + spec.len() + texts + provenance.encoded_len()
}

impl Cached {
    pub(super) fn get(&self, key: &Key) -> Option<Rendered> {
        let mut specs = self.lock();
        specs.clock += 1;
        let used = specs.clock;
        let key = specs.same.get(key).copied().unwrap_or(*key);
        let entry = specs.specs.get_mut(&key)?;
        entry.used = used;
        Some(entry.rendered.clone())
    }

    /// Adds a Spec, and removes those that were not used for the longest time, while all are too large together.
    pub(super) fn put(&self, key: Key, rendered: Rendered) {
        let bytes = size(&rendered);
        if bytes > MOST / 2 {
            return;
        }
        let mut specs = self.lock();
        specs.clock += 1;
        let used = specs.clock;
        specs.bytes += bytes;
        if let Some(before) = specs.specs.insert(key, Entry { rendered, bytes, used }) {
            specs.bytes -= before.bytes;
        }
        while specs.bytes > MOST {
            let Some(oldest) = specs.specs.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key) else {
                break;
            };
            if let Some(removed) = specs.specs.remove(&oldest) {
                specs.bytes -= removed.bytes;
            }
        }
    }

    /// Notes that the Spec of a commit's key is that of a content's key.
    pub(super) fn same(&self, commit: Key, content: Key) {
        let mut specs = self.lock();
        if specs.same.len() >= MOST_SAME {
            specs.same.clear();
        }
        specs.same.insert(commit, content);
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
        let third = MOST / 3 - size(&rendered(0));
        for key in &keys[..3] {
            cached.put(*key, rendered(third));
        }
        assert!(cached.get(&keys[0]).is_some());
        cached.put(keys[3], rendered(third));
        assert_eq!(keys.map(|key| cached.get(&key).is_some()), [true, false, true, true]);
        cached.put(keys[3], rendered(1));
        cached.put(keys[1], rendered(third - size(&rendered(1))));
        assert_eq!(keys.map(|key| cached.get(&key).is_some()), [true, true, true, true]);
        cached.put([9; 32], rendered(MOST));
        assert!(cached.get(&[9; 32]).is_none(), "one Spec does not fill it");
    }

    #[test]
    fn warnings_and_files_count_as_bytes() {
        let cached = Cached::default();
        let many = |bytes: usize| {
            let provenance = Provenance { files: vec!["x".repeat(bytes)], ..Provenance::default() };
            Rendered { warnings: vec!["x".repeat(bytes)], provenance, ..rendered(1) }
        };
        cached.put([1; 32], many(MOST / 4));
        assert!(cached.get(&[1; 32]).is_none(), "one Spec does not fill it");
        (2..9).for_each(|key| cached.put([key; 32], many(MOST / 8)));
        assert_eq!((2..9).filter(|key| cached.get(&[*key; 32]).is_some()).count(), 3);
    }

    #[test]
    fn commits_of_one_content_share_a_spec() {
        let cached = Cached::default();
        cached.put([1; 32], rendered(7));
        cached.same([2; 32], [1; 32]);
        assert_eq!(cached.get(&[2; 32]).map(|rendered| rendered.spec.len()), Some(7));
        assert!(cached.get(&[3; 32]).is_none());
        let of = |generator: &str, files: &[&str]| {
            let files = files.iter().map(ToString::to_string).collect();
            let provenance = Provenance { generator: generator.to_owned(), files, ..Provenance::default() };
            is_of_content(&Rendered { provenance, ..rendered(0) }, "./apps/web/")
        };
        assert!(of("Manifests", &[]) && of("Kustomize", &["apps/web/kustomization.yaml"]));
        assert!(!of("KCL", &["apps/web/main.k"]), "it looks for a project around it");
        assert!(!of("Helm", &["apps/web/Chart.yaml", "apps/web-values.yaml"]));
    }

    #[test]
    fn every_input_changes_the_key() {
        let key = |source: &Source, request: &Request<'_>| {
            key(source, request, FilesOf::Commit(request.commit), &Tools::default())
        };
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
            super::key(&source("r", "t"), &request, FilesOf::Content("c"), &Tools::default()),
            super::key(
                &source("r", "t"),
                &request,
                FilesOf::Commit("c"),
                &Tools { renderer: Some([0; 32]), has_kcl: false },
            ),
            super::key(
                &source("r", "t"),
                &request,
                FilesOf::Commit("c"),
                &Tools { renderer: Some([1; 32]), has_kcl: false },
            ),
            super::key(&source("r", "t"), &request, FilesOf::Commit("c"), &Tools { renderer: None, has_kcl: true }),
            // The number of files and that of parameters are apart.
            key(&source("r", "t"), &Request { helm: &of_helm("", &["1", "a", "b"]), ..request }),
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
