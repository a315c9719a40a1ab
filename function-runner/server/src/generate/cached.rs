//! Rendered Specs, by all of their inputs.
//!
//! Memory only: a Spec may contain Secrets, which this process writes to no file.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message as _;
use sha2::{Digest as _, Sha256};
use stoa_kcl::VERSION;
use stoa_proto::{Source, Value};
use stoa_runtime_kubernetes::Capabilities;

use super::generator::{Generator, Profile, Provenance, named};
use super::job::Rendered;
use super::kpt;
use super::pipeline::Request;
use crate::source::{cache_name, normalized, verification_digest};

/// The size of all Specs together, in bytes.
const MOST: usize = 64 << 20;

/// The most commits whose stacks are known to have the content of another, and so on.
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
    /// The keys without capabilities of stacks that are charts, which were rendered with those of their targets.
    charts: HashSet<Key>,
    /// The ids of the contents of paths of commits, by [`files_key`].
    contents: HashMap<Key, String>,
    /// The generators that `Auto` detected, by the [`files_key`] of the content.
    detected: HashMap<Key, String>,
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

impl<'a> FilesOf<'a> {
    fn parts(self) -> (&'static str, &'a str) {
        match self {
            Self::Commit(id) => ("commit", id),
            Self::Content(id) => ("content", id),
        }
    }
}

/// The tools of this runner: another version may give another Spec.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tools {
    /// The digest of the renderer, if it is there.
    pub(super) renderer: Option<[u8; 32]>,
    pub(super) has_kcl: bool,
}

/// The key of the files at a path of a source, whatever they are rendered with. Files that others may read, or whose signature other
/// keys verify, have another key.
pub(super) fn files_key(source: &Source, files: FilesOf<'_>, path: &str, values_files: &[String]) -> Key {
    let mut hasher = Sha256::new();
    let mut part = |text: &str| {
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text);
    };
    let (kind, id) = files.parts();
    let verified = format!("{:?}", verification_digest(source));
    [cache_name(source).as_str(), verified.as_str(), kind, id, path].into_iter().for_each(&mut part);
    values_files.iter().for_each(|file| part(file));
    hasher.finalize().into()
}

/// The key of a request. The name of a source's cache covers its credentials: a Spec is for those who could read its source.
///
/// `capabilities` are those of the target, for charts.
pub(super) fn key(
    source: &Source,
    request: &Request<'_>,
    files: FilesOf<'_>,
    tools: &Tools,
    capabilities: Option<&Capabilities>,
) -> Key {
    let mut hasher = Sha256::new();
    let mut part = |text: &str| {
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text);
    };
    let values = request.values;
    let stack = [&values.organization, &values.project, &values.stack, &values.workspace];
    let (kind, id) = files.parts();
    [cache_name(source).as_str(), kind, id, request.path, request.generator].into_iter().for_each(&mut part);
    part(&format!("{:?} {} {VERSION}", tools.renderer, tools.has_kcl));
    // Other keys may refuse the commit.
    part(&format!("{:?}", verification_digest(source)));
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
    // Other keys may not open the files.
    let mut age_keys: Vec<_> = values.age_keys.iter().collect();
    age_keys.sort_unstable();
    part(&age_keys.len().to_string());
    for (name, key) in age_keys {
        part(name);
        part(&format!("{:?}", Sha256::digest(key)));
    }
    for Value { name, json, origin, sensitive, is_final } in &values.platform {
        let flags = format!("{sensitive} {is_final}");
        [name, json, origin, &flags].into_iter().for_each(|text| part(text));
    }
    if let Some(Capabilities { version, apis }) = capabilities {
        part(version);
        apis.iter().for_each(|api| part(api));
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
    let reads_around = |generator: &dyn Generator| match generator.profile() {
        Profile::Kcl => true,
        Profile::Tree => generator.name() != kpt::NAME,
        Profile::Nothing | Profile::Renderer(_) => false,
    };
    named(generator).is_some_and(|generator| !reads_around(generator)) && files.iter().all(is_inside)
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

    /// The id of the content of a path at a commit, which never changes.
    pub(super) fn content(&self, key: &Key) -> Option<String> {
        self.lock().contents.get(key).cloned()
    }

    /// Notes the id of a content.
    pub(super) fn note_content(&self, key: Key, id: &str) {
        note(&mut self.lock().contents, key, id);
    }

    /// The generator that `Auto` detected for a content.
    pub(super) fn detected(&self, key: &Key) -> Option<String> {
        self.lock().detected.get(key).cloned()
    }

    /// Notes a detected generator.
    pub(super) fn note_detected(&self, key: Key, generator: &str) {
        note(&mut self.lock().detected, key, generator);
    }

    /// Notes that the stack of a key without capabilities is a chart.
    pub(super) fn note_chart(&self, key: Key) {
        let mut specs = self.lock();
        if specs.charts.len() >= MOST_SAME {
            specs.charts.clear();
        }
        specs.charts.insert(key);
    }

    /// Whether the stack of a key without capabilities is known to be a chart.
    pub(super) fn is_chart(&self, key: &Key) -> bool {
        self.lock().charts.contains(key)
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

/// Adds a text, and begins anew when there are too many.
fn note(texts: &mut HashMap<Key, String>, key: Key, text: &str) {
    if texts.len() >= MOST_SAME {
        texts.clear();
    }
    texts.insert(key, text.to_owned());
}

#[cfg(test)]
mod tests {
    use stoa_proto::{HelmOptions, Verification};

    use super::*;
    use crate::capabilities::TargetCapabilities;
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
    fn files_are_known_by_source_keys_and_path() {
        let source = |remote: &str| Source { remote: remote.to_owned(), ..Source::default() };
        let verified = Source { verify: Some(Verification::default()), ..source("r") };
        let of = |source: &Source, id: &str, path: &str, values: &[String]| {
            files_key(source, FilesOf::Commit(id), path, values)
        };
        let mut keys = vec![
            of(&source("r"), "c", "p", &[]),
            of(&source("s"), "c", "p", &[]),
            of(&verified, "c", "p", &[]),
            of(&source("r"), "d", "p", &[]),
            of(&source("r"), "c", "q", &[]),
            of(&source("r"), "c", "p", &["v".to_owned()]),
            files_key(&source("r"), FilesOf::Content("c"), "p", &[]),
        ];
        let cached = Cached::default();
        cached.note_content(keys[0], "id");
        cached.note_detected(keys[0], "Helm");
        assert_eq!(
            (cached.content(&keys[0]).as_deref(), cached.detected(&keys[0]).as_deref()),
            (Some("id"), Some("Helm"))
        );
        assert_eq!((cached.content(&keys[1]), cached.detected(&keys[1])), (None, None));
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }

    #[test]
    fn every_input_changes_the_key() {
        let key = |source: &Source, request: &Request<'_>| {
            key(source, request, FilesOf::Commit(request.commit), &Tools::default(), None)
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
        let target = TargetCapabilities::none();
        let module_credentials = &HashMap::new();
        let (values, target) = (&values, &target);
        let request =
            Request { commit: "c", path: "p", generator: "g", values, helm: &helm, target, module_credentials };
        let of = |change: fn(&mut Values)| {
            let mut changed = values.clone();
            change(&mut changed);
            key(&source("r", "t"), &Request { values: &changed, ..request })
        };
        let for_target = |version: &str, apis: &[&str]| {
            let apis = apis.iter().map(ToString::to_string).collect();
            let capabilities = Capabilities { version: version.to_owned(), apis };
            super::key(&source("r", "t"), &request, FilesOf::Commit("c"), &Tools::default(), Some(&capabilities))
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
            super::key(&source("r", "t"), &request, FilesOf::Content("c"), &Tools::default(), None),
            super::key(
                &source("r", "t"),
                &request,
                FilesOf::Commit("c"),
                &Tools { renderer: Some([0; 32]), has_kcl: false },
                None,
            ),
            super::key(
                &source("r", "t"),
                &request,
                FilesOf::Commit("c"),
                &Tools { renderer: Some([1; 32]), has_kcl: false },
                None,
            ),
            super::key(
                &source("r", "t"),
                &request,
                FilesOf::Commit("c"),
                &Tools { renderer: None, has_kcl: true },
                None,
            ),
            for_target("v1.34.0", &[]),
            for_target("v1.35.0", &[]),
            for_target("v1.35.0", &["apps/v1"]),
            // The number of files and that of parameters are apart.
            key(&source("r", "t"), &Request { helm: &of_helm("", &["1", "a", "b"]), ..request }),
            of(|values| values.platform = vec![value("a", false)]),
            of(|values| values.platform = vec![value("b", false)]),
            of(|values| values.platform = vec![value("a", true)]),
            of(|values| values.age_keys = [("a.agekey".to_owned(), "x".into())].into()),
            key(&Source { verify: Some(Verification::default()), ..source("r", "t") }, &request),
        ];
        assert_eq!(keys[0], key(&source("r", "t"), &request));
        keys.sort_unstable();
        let all = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }
}
