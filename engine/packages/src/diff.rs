//! Compares two revisions of a package, by object and field.
//!
//! Start at [`diff`]. A [`Difference`] is data that serializes, and its text is for people. [`crate::update::update`] lists the
//! conflicts of a merge.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::files::{KPTFILE, Tree, file_name, resource_files};
use crate::identity::{ObjectId, matched};
use crate::merge::{Definitions, FieldDifference, ListTypes, differences};
use crate::resources::{Resource, read_file};
use crate::shown::{has_secrets, mask, shown};

/// The differences of two revisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Objects, by file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectDifference>,
    /// Files without objects, and files whose comments or form differ, by path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileDifference>,
}

/// The kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// Only the later revision has it.
    Added,
    /// Only the earlier revision has it.
    Removed,
    /// Both have it.
    Changed,
}

/// The difference of an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectDifference {
    /// The object; as it is in the later revision, if that has it.
    pub object: ObjectId,
    /// Its file in that revision.
    pub path: String,
    /// Its file in the earlier revision, if that is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_path: Option<String>,
    /// The kind of difference.
    pub change: Change,
    /// The fields that differ, of an object in both revisions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldDifference>,
}

/// The difference of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileDifference {
    /// The path.
    pub path: String,
    /// The kind of difference.
    pub change: Change,
}

impl Difference {
    /// Whether the revisions are the same, byte for byte.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.files.is_empty()
    }
}

/// The objects of one revision, and the other files.
struct Revision<'t> {
    tree: &'t Tree,
    objects: Vec<Resource>,
    /// The files of the objects.
    read: BTreeSet<&'t str>,
}

impl<'t> Revision<'t> {
    /// A file that cannot be read has no objects: a broken file has to be comparable, too.
    fn of(tree: &'t Tree) -> Self {
        let (mut objects, mut read) = (Vec::new(), BTreeSet::new());
        for file in resource_files(tree) {
            if let Ok(found) = read_file(tree, file.package, file.path) {
                objects.extend(found);
                read.insert(file.path);
            }
        }
        Self { tree, objects, read }
    }

    fn packages(&self) -> BTreeSet<&str> {
        self.objects.iter().map(|resource| resource.package.as_str()).collect()
    }

    fn of_package(&self, package: &str, of_kptfiles: bool) -> Vec<&Resource> {
        let is_wanted =
            |resource: &&Resource| resource.package == package && (file_name(&resource.path) == KPTFILE) == of_kptfiles;
        self.objects.iter().filter(is_wanted).collect()
    }
}

/// Compares two revisions of a package, or of two packages.
///
/// An object is found again by its identity in its package, whatever its file, and items of lists by their keys.
pub fn diff(before: &Tree, after: &Tree) -> Difference {
    let (before, after) = (Revision::of(before), Revision::of(after));
    let mut definitions = Definitions::default();
    after.objects.iter().chain(&before.objects).for_each(|resource| definitions.add(&resource.value));
    let mut difference = Difference::default();
    let mut changed_files = BTreeSet::new();
    let packages: BTreeSet<&str> = before.packages().union(&after.packages()).copied().collect();
    for package in packages {
        let kptfiles = [&before, &after].map(|revision| revision.of_package(package, true));
        let [one, other] = kptfiles.each_ref().map(|found| found.first().copied());
        let objects = [&before, &after].map(|revision| revision.of_package(package, false));
        let pairs = matched([&objects[0], &objects[1]]).into_iter();
        let pairs = pairs.map(|pair| pair.map(|found| found.map(|(_, resource)| resource)));
        for pair in pairs.chain([[one, other]]) {
            let Some(found) = object(pair, &mut definitions) else { continue };
            changed_files.extend([Some(found.path.clone()), found.old_path.clone()].into_iter().flatten());
            difference.objects.push(found);
        }
    }
    difference.objects.sort_by(|one, other| (&one.path, &one.object).cmp(&(&other.path, &other.object)));
    difference.files = files(&before, &after, &changed_files);
    difference
}

fn object(pair: [Option<&Resource>; 2], definitions: &mut Definitions) -> Option<ObjectDifference> {
    let (of, change) = match pair {
        [Some(_), Some(after)] => (after, Change::Changed),
        [Some(before), None] => (before, Change::Removed),
        [None, Some(after)] => (after, Change::Added),
        [None, None] => return None,
    };
    let mut found =
        ObjectDifference { object: ObjectId::of(of), path: of.file(), old_path: None, change, fields: Vec::new() };
    if let [Some(before), Some(after)] = pair {
        let lists = if after.is_kptfile() { ListTypes::of_kptfile() } else { definitions.lists(&after.value) };
        found.fields = differences(&lists, &before.value, &after.value);
        if [before, after].into_iter().any(has_secrets) {
            for FieldDifference { field, before, after } in &mut found.fields {
                [before, after].into_iter().flatten().for_each(|value| mask(field, value));
            }
        }
        found.old_path = Some(before.file()).filter(|path| *path != found.path);
        if found.fields.is_empty() && found.old_path.is_none() {
            return None;
        }
    }
    Some(found)
}

/// The files that differ, apart from those with other objects.
fn files(before: &Revision<'_>, after: &Revision<'_>, changed: &BTreeSet<String>) -> Vec<FileDifference> {
    let paths: BTreeSet<&str> = before.tree.paths().chain(after.tree.paths()).collect();
    let difference = |path: &str| {
        let change = match (before.tree.get(path), after.tree.get(path)) {
            (Some(one), Some(other)) if one == other => return None,
            (Some(_), Some(_)) => Change::Changed,
            (Some(_), None) => Change::Removed,
            (None, _) => Change::Added,
        };
        let has_objects = before.read.contains(path) || after.read.contains(path);
        (!has_objects || !changed.contains(path)).then(|| FileDifference { path: path.to_owned(), change })
    };
    paths.into_iter().filter_map(difference).collect()
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ObjectDifference { object, path, old_path, change, fields } in &self.objects {
            let moved = old_path.as_ref().map(|old| format!(" (moved from {old})")).unwrap_or_default();
            writeln!(f, "{} {path}: {object}{moved}", change.sign())?;
            for FieldDifference { field, before, after } in fields {
                match (before, after) {
                    (Some(before), Some(after)) => writeln!(f, "    ~ {field}: {} -> {}", shown(before), shown(after))?,
                    (Some(before), None) => writeln!(f, "    - {field}: {}", shown(before))?,
                    (None, after) => writeln!(f, "    + {field}: {}", shown(after.as_ref().unwrap_or(&Value::Null)))?,
                }
            }
        }
        self.files.iter().try_for_each(|file| writeln!(f, "{} {}", file.change.sign(), file.path))
    }
}

impl Change {
    fn sign(self) -> char {
        match self {
            Self::Added => '+',
            Self::Removed => '-',
            Self::Changed => '~',
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_engine::FieldPath;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.write(path, text.as_bytes().to_vec()).unwrap();
        }
        tree
    }

    const KPTFILE: &str = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: pkg\n";

    fn pod(containers: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  namespace: shop\nspec:\n  containers:\n{containers}"
        )
    }

    #[test]
    fn differences_are_for_people_and_programs() {
        let config = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n";
        let before = tree(&[
            ("Kptfile", KPTFILE),
            ("README.md", "1"),
            ("old.yaml", config),
            ("p.yaml", &pod("  - name: web\n    image: web:1\n  - name: log\n    image: log:1\n")),
            ("same.yaml", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n"),
        ]);
        let after = tree(&[
            ("Kptfile", &format!("{KPTFILE}pipeline:\n  mutators:\n  - image: a:v1\n")),
            ("README.md", "2"),
            ("in/new.yaml", config),
            ("p.yaml", &pod("  - name: new\n    image: new:1\n  - name: web\n    image: web:2\n    args: [a]\n")),
            ("same.yaml", "# only a comment\napiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n"),
        ]);
        let difference = diff(&before, &after);
        let expected = [
            "~ Kptfile: Kptfile pkg",
            "    + pipeline: {\"mutators\":[{\"image\":\"a:v1\"}]}",
            "~ in/new.yaml: ConfigMap c (moved from old.yaml)",
            "~ p.yaml: Pod shop/p",
            "    - spec.containers[name=log]: {\"image\":\"log:1\",\"name\":\"log\"}",
            "    + spec.containers[name=new]: {\"image\":\"new:1\",\"name\":\"new\"}",
            "    + spec.containers[name=web].args: [\"a\"]",
            "    ~ spec.containers[name=web].image: \"web:1\" -> \"web:2\"",
            "~ README.md",
            "~ same.yaml",
        ];
        assert_eq!(difference.to_string().lines().collect::<Vec<_>>(), expected);
        let data = serde_json::to_value(&difference).unwrap();
        assert_eq!(data["objects"][1]["oldPath"], "old.yaml");
        assert_eq!(
            data["objects"][2]["fields"][3],
            json!({"field": "spec.containers[name=web].image", "before": "web:1", "after": "web:2"})
        );
    }

    #[test]
    fn equal_revisions_have_no_difference() {
        let tree = tree(&[("Kptfile", KPTFILE), ("a", "1"), ("broken.yaml", "a: [\n")]);
        assert!(diff(&tree, &tree).is_empty());
        assert_eq!(diff(&tree, &tree).to_string(), "");
    }

    #[test]
    fn objects_come_and_go() {
        let package = tree(&[("sub/Kptfile", KPTFILE), ("sub/p.yaml", &pod("  - name: web\n"))]);
        let empty = Tree::default();
        assert_eq!(diff(&empty, &package).to_string(), "+ sub/Kptfile: Kptfile pkg\n+ sub/p.yaml: Pod shop/p\n");
        assert_eq!(diff(&package, &empty).to_string(), "- sub/Kptfile: Kptfile pkg\n- sub/p.yaml: Pod shop/p\n");
    }

    #[test]
    fn order_of_items_is_a_difference() {
        let [one, other] = ["  - name: a\n  - name: b\n", "  - name: b\n  - name: a\n"].map(pod);
        let difference = diff(&tree(&[("p.yaml", &one)]), &tree(&[("p.yaml", &other)]));
        assert_eq!(difference.objects[0].fields[0].field, FieldPath::of_keys(["spec", "containers"]));
    }

    #[test]
    fn values_of_secrets_are_masked() {
        let secret = |fields: &str| format!("apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n{fields}");
        let before = tree(&[("s.yaml", &secret("type: a\nstringData:\n  a: one\n  b: two\n"))]);
        let after = tree(&[("s.yaml", &secret("type: b\nstringData:\n  a: three\ndata:\n  c: Zm91cg==\n"))]);
        let expected = "~ s.yaml: Secret s\n    + data: {\"c\":\"(sensitive)\"}\n    \
             ~ stringData.a: \"(sensitive)\" -> \"(sensitive)\"\n    - stringData.b: \"(sensitive)\"\n    \
             ~ type: \"a\" -> \"b\"\n";
        let difference = diff(&before, &after);
        assert_eq!(difference.to_string(), expected);
        let data = serde_json::to_string(&difference).unwrap();
        assert!(["one", "two", "three", "Zm91cg=="].iter().all(|secret| !data.contains(secret)), "{data}");
    }
}
