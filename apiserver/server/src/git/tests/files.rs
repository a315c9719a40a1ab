use proptest::{prelude::*, sample::select};
use serde_json::json;
use stoa_control_repo::{Complaint, GitPath, Layout as _, explain, read_file};
use stoa_kinds::GIT_PATHS;
use stoa_machinery::{ApiError, Object, http::body::MAX_REQUEST_BYTES, log::Key, schema::Decoder};

use super::super::layout::ControlLayout;

const STACK: &str = "organizations/shop/projects/web/stacks/web-dev.yaml";
const GOOD: &str = "\
apiVersion: config.stoa.dev/v1alpha1
kind: Stack
metadata:
  name: web-dev
  labels: {env: dev}
spec:
  project: web
  workspaces: [dev]
";

fn decoder(kind: &GitPath) -> Decoder {
    let mut definitions = stoa_kinds::kinds().map(|of| (of.definition)());
    let definition = definitions.find(|definition| definition.kind == kind.kind).expect("a kind in Git");
    Decoder::new(&definition).expect("a schema")
}

fn stack_decoder() -> Decoder {
    decoder(GIT_PATHS.of_path(STACK).expect("a path of an object").identity.kind)
}

fn read_as(path: &str, content: &str) -> Result<Object, String> {
    let path = GIT_PATHS.of_path(path).expect("a path of an object");
    read_file(&decoder(path.identity.kind), &path, content.as_bytes()).map_err(|complaint| complaint.0)
}

/// The complaint about the good stack with one text replaced.
fn complaint_about(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from:?} is in the file");
    read_as(STACK, &GOOD.replace(from, to)).expect_err("invalid")
}

#[test]
fn file_becomes_what_it_says_without_defaults() {
    let object = read_as(STACK, GOOD).expect("valid");
    assert_eq!(object.0["metadata"], json!({"name": "web-dev", "namespace": "shop", "labels": {"env": "dev"}}));
    assert_eq!(object.0["spec"], json!({"project": "web", "workspaces": ["dev"]}));
    let with_null = GOOD.replace("  workspaces: [dev]", "  description: null");
    assert_eq!(read_as(STACK, &with_null).expect("valid").0["spec"], json!({"project": "web"}));
}

#[test]
fn what_people_do_not_write_is_left_out() {
    let copy = format!(
        "{}  stackName: dev\nstatus: {{observedCommit: abc}}\n",
        GOOD.replace("  name: web-dev\n", "  name: web-dev\n  uid: x\n  resourceVersion: '7'\n  finalizers: [a/b]\n")
    );
    let object = read_as(STACK, &copy).expect("valid");
    assert_eq!(object.0["metadata"], json!({"name": "web-dev", "namespace": "shop", "labels": {"env": "dev"}}));
    assert_eq!(object.0.get("status"), None);
}

#[test]
fn file_that_disagrees_with_its_path_names_both() {
    let of_path = "by the path of the file it is";
    for (from, to, expected) in [
        ("kind: Stack", "kind: Project", format!("line 2: kind is \"Project\", but {of_path} \"Stack\"")),
        (
            "config.stoa.dev/v1alpha1",
            "config.stoa.dev/v1",
            format!("line 1: apiVersion is \"config.stoa.dev/v1\", but {of_path} \"config.stoa.dev/v1alpha1\""),
        ),
        (
            "name: web-dev",
            "name: web-prod",
            format!("line 4: metadata.name is \"web-prod\", but {of_path} \"web-dev\""),
        ),
        (
            "name: web-dev",
            "name: web-dev\n  namespace: other",
            format!("line 5: metadata.namespace is \"other\", but {of_path} \"shop\""),
        ),
        ("project: web", "project: api", format!("line 7: spec.project is \"api\", but {of_path} \"web\"")),
        ("  project: web\n", "", format!("line 6: spec.project is missing; {of_path} \"web\"")),
        ("kind: Stack\n", "", format!("kind is missing; {of_path} \"Stack\"")),
    ] {
        assert_eq!(complaint_about(from, to), expected);
    }
    let workspace =
        "apiVersion: platform.stoa.dev/v1alpha1\nkind: Workspace\nmetadata:\n  name: dev\n  namespace: shop\n";
    assert_eq!(
        read_as("platform/workspaces/dev.yaml", workspace).expect_err("invalid"),
        "line 5: metadata.namespace may not be set, since a Workspace is in no namespace"
    );
}

#[test]
fn mistakes_are_told_with_their_line() {
    for (from, to, expected) in [
        ("workspaces:", "workspace:", "line 8: strict decoding error: unknown field \"spec.workspace\""),
        (
            "workspaces: [dev]",
            "requireApproval: maybe",
            "line 8: json: cannot unmarshal string into Go struct field StackSpec.spec.requireApproval of type bool",
        ),
        (
            "workspaces: [dev]",
            "trigger: Sometimes",
            "line 8: spec.trigger: Unsupported value: \"Sometimes\": supported values: \"Manual\", \"Preview\", \"Apply\", \"Workflow\"",
        ),
        (
            "project: web",
            "project: web\n  project: web",
            "strict decoding error: yaml: unmarshal errors: line 8: key \"project\" already set in map",
        ),
    ] {
        assert_eq!(complaint_about(from, to), expected);
    }
    assert!(complaint_about("[dev]", "[dev").starts_with("line "));
    assert_eq!(read_as(STACK, "").expect_err("invalid"), "the file holds no object");
    assert_eq!(read_as(STACK, "- a\n").expect_err("invalid"), "the file holds no object");
    let large = format!("{GOOD}# {}\n", "x".repeat(MAX_REQUEST_BYTES));
    assert_eq!(read_as(STACK, &large).expect_err("invalid"), "the file is larger than 3145728 bytes");
}

#[test]
fn file_stands_for_one_object() {
    let line = GOOD.lines().count() + 2;
    let told = format!("line {line}: a file stands for one object, and this comes after its first document");
    assert_eq!(read_as(STACK, &format!("{GOOD}---\n{GOOD}")).expect_err("invalid"), told);
    assert_eq!(read_as(STACK, &format!("{GOOD}---\nanything\n")).expect_err("invalid"), told);
    for valid in [format!("---\n{GOOD}"), format!("{GOOD}...\n"), format!("# a\n---\n{GOOD}# b\n---\n# c\n")] {
        read_as(STACK, &valid).expect("valid");
    }
}

/// Finding a line takes a reading of the file.
#[test]
fn error_lists_some_mistakes_and_counts_others() {
    use stoa_machinery::status::FieldError;
    let errors: Vec<_> =
        (0..50_000).map(|n| FieldError::required(format!("spec.workspaces[{n}]"), "is missing")).collect();
    let content = format!("{GOOD}# {}\n", "x\n# ".repeat(2_000));
    let error = ApiError::invalid("config.stoa.dev", "Stack", "web-dev", &errors);
    let Complaint(told) = explain("Stack", &error, content.as_bytes());
    assert!(told.starts_with("line 8: spec.workspaces[0]: "), "{told}");
    assert!(told.ends_with("; and 49990 more"), "{told}");
}

/// Lines that stacks have, and others.
const LINES: &[&str] = &[
    "apiVersion: config.stoa.dev/v1alpha1",
    "kind: Stack",
    "metadata:",
    "  name: web-dev",
    "  labels: {env: dev}",
    "  namespace: shop",
    "  annotations: {note: \"first\\nsecond\", on: 'yes'}",
    "spec:",
    "  project: web",
    "  workspaces: [dev]",
    "  workspaces:",
    "  - prod # later",
    "  description: |",
    "    some",
    "    text",
    "  trigger: Manual",
    "  trigger: &t Sometimes",
    "  stackName: *t",
    "  driftInterval: 5m",
    "  generator: {type: Auto, parameters: {a: 0x10, b: [~, 1.0, .inf]}}",
    "  requireApproval: yes",
    "status: {}",
    "# a comment",
    "",
    "---",
    "? x",
    "\t",
    "{",
    "]",
    "- a",
    "\"",
    "<<: {spec: {project: web}}",
    "!!binary x: y",
];

/// Whatever is pushed, it is an object or told about; and what an object is written as is read and written the same.
fn any_file_is_read_or_told_about(decoder: &Decoder, content: &[u8]) {
    let path = GIT_PATHS.of_path(STACK).expect("a path of an object");
    let read = |content: &[u8]| read_file(decoder, &path, content).map_err(|complaint| complaint.0);
    let key = Key::new("/registry/config.stoa.dev/stacks/shop/web-dev");
    let render =
        |object: &Object| ControlLayout.read(&key, &serde_json::to_vec(&object.0).unwrap()).unwrap().yaml().unwrap();
    match read(content) {
        Ok(object) => {
            let written = render(&object);
            let again = read(written.as_bytes()).unwrap_or_else(|complaint| panic!("{complaint}: {written}"));
            assert_eq!(render(&again), written);
        }
        Err(complaint) => assert!(!complaint.is_empty() && !complaint.contains('\n'), "{complaint:?}"),
    }
}

mod fuzz {
    use std::sync::LazyLock;

    use super::*;

    static DECODER: LazyLock<Decoder> = LazyLock::new(stack_decoder);

    #[test]
    fn pushed_files() {
        stoa_fuzz::run::test("pushed_files", |content| any_file_is_read_or_told_about(&DECODER, content));
    }
}

proptest! {
    #[test]
    fn files_of_any_lines_are_read_or_told_about(
        good in any::<bool>(),
        lines in prop::collection::vec(prop_oneof![9 => select(LINES).prop_map(str::to_owned), 1 => ".{0,12}"], 0..12),
        at: prop::sample::Index,
    ) {
        let mut file: Vec<&str> = if good { GOOD.lines().collect() } else { Vec::new() };
        let at = at.index(file.len() + 1);
        file.splice(at..at, lines.iter().map(String::as_str));
        any_file_is_read_or_told_about(&stack_decoder(), file.join("\n").as_bytes());
    }
}
