//! Clones and new packages.

use super::*;
use crate::kptfile::GitLock;

fn tree(files: &[(&str, &str)]) -> Tree {
    let mut tree = Tree::default();
    for (path, text) in files {
        tree.write(path, text.as_bytes().to_vec()).unwrap();
    }
    tree
}

fn revision() -> UpstreamLock {
    let git = GitLock {
        repo: "https://example.com/r".to_owned(),
        directory: "/web".to_owned(),
        reference: "v1".to_owned(),
        commit: "0123456789012345678901234567890123456789".to_owned(),
    };
    UpstreamLock { kind: "git".to_owned(), git: Some(git) }
}

fn cloned(upstream: &Tree, context: Option<&[(&str, &str)]>) -> Tree {
    let strategy = UpdateStrategy::ResourceMerge;
    clone_package(&CloneRequest { upstream, name: "mine", revision: &revision(), strategy, context }).unwrap()
}

/// Compared with `kpt pkg get` of beta.56.
#[test]
fn clone_has_its_name_upstream_and_marks() {
    let upstream = tree(&[
        (
            "Kptfile",
            "# about us\napiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web # theirs\ninfo:\n  description: d\n",
        ),
        (
            "a.yaml",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  namespace: shop\nspec:\n  replicas: 1 # kpt-set: ${n}\n",
        ),
        ("sub/Kptfile", "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: sub\n"),
        ("sub/b.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: # kpt-merge: /first\n  name: second\n"),
        ("broken.yaml", "a: [\n"),
    ]);
    let cloned = cloned(&upstream, None);
    assert_eq!(
        cloned.text("a.yaml").unwrap(),
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: # kpt-merge: shop/web\n  name: web\n  namespace: shop\n  annotations:\n    \
         internal.kpt.dev/upstream-identifier: apps|Deployment|shop|web\nspec:\n  replicas: 1 # kpt-set: ${n}\n"
    );
    assert_eq!(
        cloned.text("sub/b.yaml").unwrap(),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: # kpt-merge: /first\n  name: second\n  annotations:\n    \
         internal.kpt.dev/upstream-identifier: \"|ConfigMap|default|first\"\n"
    );
    assert_eq!(cloned.text("sub/Kptfile"), upstream.text("sub/Kptfile"));
    assert_eq!(cloned.text("broken.yaml"), upstream.text("broken.yaml"));
    let text = cloned.text("Kptfile").unwrap();
    assert!(
        text.starts_with("# about us\napiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: mine # theirs\n"),
        "{text}"
    );
    let kptfile = Kptfile::parse(text).unwrap();
    assert_eq!(kptfile.upstream_lock, Some(revision()));
    let upstream = kptfile.upstream.unwrap();
    assert_eq!(upstream.update_strategy, "resource-merge");
    let git =
        Git { repo: "https://example.com/r".to_owned(), directory: "/web".to_owned(), reference: "v1".to_owned() };
    assert_eq!(upstream.git, Some(git));
}

#[test]
fn folder_without_kptfile_gets_one() {
    let cloned = cloned(&tree(&[("README.md", "1")]), None);
    assert_eq!(Kptfile::parse(cloned.text("Kptfile").unwrap()).unwrap().metadata.name, "mine");
}

#[test]
fn second_clone_changes_no_mark() {
    let once = cloned(
        &tree(&[("a.json", "{\"apiVersion\": \"v1\", \"kind\": \"Secret\", \"metadata\": {\"name\": \"s\"}}")]),
        None,
    );
    assert!(once.text("a.json").unwrap().contains("|Secret|default|s"));
    assert_eq!(cloned(&once, None), once);
}

#[test]
fn deployed_clone_has_its_context() {
    let context = Some([("package-path", "shop/mine")].as_slice());
    let added = cloned(&tree(&[]), context);
    assert_eq!(
        added.text(PACKAGE_CONTEXT_FILE).unwrap(),
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kptfile.kpt.dev\n  annotations:\n    \
         config.kubernetes.io/local-config: \"true\"\ndata:\n  name: mine\n  package-path: shop/mine\n"
    );
    let blueprint = init(&tree(&[]), &Init { name: "web", ..Init::default() }).unwrap();
    let changed = cloned(&blueprint, context);
    assert!(changed.text(PACKAGE_CONTEXT_FILE).unwrap().ends_with("data:\n  name: mine\n  package-path: shop/mine\n"));
}

/// As `kpt pkg init` of beta.56 writes it, byte for byte.
#[test]
fn new_package_has_three_files() {
    let package = init(&tree(&[]), &Init { name: "a", description: "sample description", ..Init::default() }).unwrap();
    let kptfile = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: a\n  annotations:\n    \
                   config.kubernetes.io/local-config: \"true\"\ninfo:\n  description: sample description\n";
    assert_eq!(package.text("Kptfile").unwrap(), kptfile);
    let context = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kptfile.kpt.dev\n  annotations:\n    \
                   config.kubernetes.io/local-config: \"true\"\ndata:\n  name: example\n";
    assert_eq!(package.text("package-context.yaml").unwrap(), context);
    assert_eq!(
        package.text("README.md").unwrap().lines().nth(8),
        Some("`kpt pkg get REPO_URI[.git]/PKG_PATH[@VERSION] a`")
    );
}

#[test]
fn files_that_are_there_stay() {
    let package = init(&tree(&[("README.md", "ours")]), &Init { name: "a", ..Init::default() }).unwrap();
    assert_eq!(package.text("README.md"), Some("ours"));
    assert_eq!(package.len(), 3);
}
