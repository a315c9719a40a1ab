//! Updates beside kpt's: each case has our result, and kpt's where it differs.
//!
//! `STOA_TEST_PACKAGES_ORACLE` names a program with kpt's library, made of the folder `oracle`. Without it, the comparisons
//! with kpt are skipped.

mod inputs;
mod kptfiles;
mod oracle;
mod packages;
mod properties;
mod rows;
mod strategies;

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Update, UpdateError, Updated, update};
use crate::Tree;
use crate::kptfile::UpdateStrategy;

/// The Kptfile of a package without anything.
const KPTFILE: &str = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: pkg\n";

/// Files by path; a Kptfile is added where there is none.
type Files<'f> = &'f [(&'f str, &'f str)];

fn tree(files: Files<'_>) -> Tree {
    let mut tree = Tree::default();
    tree.write("Kptfile", KPTFILE.as_bytes()).unwrap();
    for (path, text) in files {
        tree.write(path, text.as_bytes().to_vec()).unwrap();
    }
    tree
}

/// The texts of a tree.
fn texts(tree: &Tree) -> BTreeMap<String, String> {
    tree.paths().map(|path| (path.to_owned(), tree.text(path).unwrap().to_owned())).collect()
}

/// The values of a tree, without null ones; texts for files without objects.
fn values(texts: &BTreeMap<String, String>) -> BTreeMap<String, Vec<Value>> {
    let limits = stoa_yaml::Limits { depth: 100, values: 100_000, documents: 100, copied: 1 << 20 };
    let read = |path: &str, text: &str| match crate::has_objects(path) {
        true => {
            let documents = stoa_yaml::documents(text, &limits, false).unwrap();
            documents.into_iter().map(|it| without_marks(it.value)).filter(|value| !value.is_null()).collect()
        }
        false => vec![Value::from(text)],
    };
    texts.iter().map(|(path, text)| (path.clone(), read(path, text))).collect()
}

fn without_marks(mut value: Value) -> Value {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
        let is_empty = annotations.is_some_and(|it| {
            it.remove("internal.kpt.dev/upstream-identifier");
            it.is_empty()
        });
        if is_empty {
            metadata.remove("annotations");
        }
    }
    value
}

/// The result of kpt.
enum Kpt<'f> {
    /// The same values.
    Same,
    /// These files.
    Files(Files<'f>),
    /// An error with this text.
    Error(&'f str),
}

/// One case.
struct Case<'f> {
    strategy: UpdateStrategy,
    origin: Files<'f>,
    upstream: Files<'f>,
    local: Files<'f>,
    expected: Files<'f>,
    /// The conflicts as people see them.
    conflicts: &'f [&'f str],
    kpt: Kpt<'f>,
}

impl Default for Case<'_> {
    fn default() -> Self {
        Self {
            strategy: UpdateStrategy::ResourceMerge,
            origin: &[],
            upstream: &[],
            local: &[],
            expected: &[],
            conflicts: &[],
            kpt: Kpt::Same,
        }
    }
}

fn run(strategy: UpdateStrategy, origin: &Tree, upstream: &Tree, local: &Tree) -> Result<Updated, UpdateError> {
    update(&Update { origin, upstream, local, strategy: Some(strategy), revision: None })
}

impl Case<'_> {
    /// Checks both results. Texts have to be equal, apart from marks of objects that upstream added.
    #[track_caller]
    fn check(&self) {
        self.check_ours();
        self.check_kpt([self.origin, self.upstream, self.local].map(tree).each_ref());
    }

    /// Checks our result.
    #[track_caller]
    fn check_ours(&self) {
        let [origin, upstream, local] = [self.origin, self.upstream, self.local].map(tree);
        let updated = update(&Update {
            origin: &origin,
            upstream: &upstream,
            local: &with_strategy(&local, self.strategy),
            strategy: None,
            revision: None,
        });
        let updated = updated.unwrap_or_else(|error| panic!("{error}"));
        let expected = texts(&with_strategy(&tree(self.expected), self.strategy));
        assert_eq!(texts(&updated.tree), expected);
        let conflicts: Vec<String> = updated.conflicts.iter().map(ToString::to_string).collect();
        assert_eq!(conflicts, self.conflicts);
    }

    #[track_caller]
    fn check_kpt(&self, [origin, upstream, local]: [&Tree; 3]) {
        let Some(answer) = oracle::ask(self.strategy, origin, upstream, local) else { return };
        let expected = match (&self.kpt, answer) {
            (Kpt::Error(expected), Err(error)) => {
                assert!(error.contains(expected), "{error}");
                return;
            }
            (Kpt::Error(expected), Ok(_)) => panic!("kpt gives no error {expected:?}"),
            (_, Err(error)) => panic!("kpt: {error}"),
            (Kpt::Same, Ok(files)) => (self.expected, files),
            (Kpt::Files(files), Ok(answer)) => (*files, answer),
        };
        assert_eq!(values(&expected.1), values(&texts(&tree(expected.0))), "kpt");
    }
}

/// The tree with the strategy in its Kptfile, which is the default unless one is set.
fn with_strategy(tree: &Tree, strategy: UpdateStrategy) -> Tree {
    let mut tree = tree.clone();
    if strategy != UpdateStrategy::ResourceMerge {
        let text = format!("{}upstream:\n  updateStrategy: {}\n", tree.text("Kptfile").unwrap(), strategy.name());
        tree.write("Kptfile", text).unwrap();
    }
    tree
}
