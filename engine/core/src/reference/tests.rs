//! Tests of the syntax of references.

use proptest::prelude::*;

use super::*;

const KNOWN: [&str; 4] = ["v1:Namespace:a", "v1:Namespace:a.b", "apps/v1:Deployment:shop:web", "p"];

fn known(id: &str) -> bool {
    KNOWN.contains(&id)
}

/// Shows what was parsed: the id and the path of each reference, and the text between.
fn check(text: &str, expected: &str) {
    let told = match parse(text, &known) {
        Ok(None) => "text".to_owned(),
        Ok(Some(Template::Whole(reference))) => format!("<{} | {}>", reference.id, reference.path),
        Ok(Some(Template::Text(parts))) => parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => text.clone(),
                Part::Reference(reference) => format!("<{} | {}>", reference.id, reference.path),
            })
            .collect(),
        Err(err) => format!("error: {err}"),
    };
    assert_eq!(told, expected, "{text}");
}

#[test]
fn whole_value_is_one_reference() {
    check("$kusion_path.apps/v1:Deployment:shop:web.metadata.name", "<apps/v1:Deployment:shop:web | metadata.name>");
    check("$kusion_path.p.ports[0].port", "<p | ports[0].port>");
    check(r#"$kusion_path.p.metadata.annotations["a.b/c\"d"]"#, r#"<p | metadata.annotations["a.b/c\"d"]>"#);
    check(r#"$kusion_path.p["x"]"#, "<p | x>");
}

#[test]
fn longest_known_id_wins() {
    check("$kusion_path.v1:Namespace:a.b.metadata.name", "<v1:Namespace:a.b | metadata.name>");
    check("$kusion_path.v1:Namespace:a.metadata.name", "<v1:Namespace:a | metadata.name>");
}

#[test]
fn references_stand_inside_text() {
    check("http://${kusion_path.p.host}:${kusion_path.p.ports[0]}/", "http://<p | host>:<p | ports[0]>/");
    check(r#"${kusion_path.p.x["}"]}}"#, r#"<p | x["}"]>}"#);
    check("é${kusion_path.p.x}", "é<p | x>");
}

#[test]
fn other_text_is_left_alone() {
    for text in ["", "$HOME", "${HOME}", "kusion_path.p.x", "x $kusion_path.p.x", "$kusion_pathology.p"] {
        check(text, "text");
    }
    check("$${kusion_path.p.x} and ${kusion_path.p.x}", "${kusion_path.p.x} and <p | x>");
    check("$${kusion_path.p.x}", "${kusion_path.p.x}");
}

#[test]
fn errors_name_field_and_cause() {
    check("$kusion_path.q.x", "error: at character 1: `q.x` does not begin with the id of a resource");
    check(
        "é ${kusion_path.p.x} ${kusion_path.q.x}",
        "error: at character 22: `q.x` does not begin with the id of a resource",
    );
    check("$kusion_path.p", "error: at character 15: a path must follow the id, such as `.metadata.name`");
    check("$kusion_path.p.", "error: at character 16: a name must follow the dot");
    check("$kusion_path.p.a..b", "error: at character 18: a name must follow the dot");
    check(
        "$kusion_path.p.a[x]",
        "error: at character 18: brackets hold an index such as `[0]` or a quoted key such as `[\"a.b\"]`",
    );
    check("$kusion_path.p.a[0", "error: at character 19: the bracket is not closed with `]`");
    check("$kusion_path.p.a[0x]", "error: at character 19: the bracket must close here with `]`");
    check(r#"$kusion_path.p.a["x]"#, "error: at character 21: the quoted key is not closed with `\"`");
    check(
        "$kusion_path.p.a b",
        "error: at character 17: unexpected ` `; a path goes on with `.name`, `[n]` or `[\"key\"]`",
    );
    check("é ${kusion_path.p.x", "error: at character 20: the reference is not closed with `}`");
    check("$kusion_path.p.a[99999999999999999999999]", "error: at character 41: the index is too large");
}

fn path() -> impl Strategy<Value = FieldPath> {
    let segment = prop_oneof![
        "[a-z][a-zA-Z0-9_/-]{0,6}".prop_map(Segment::Key),
        any::<String>().prop_map(Segment::Key),
        (0..100_usize).prop_map(Segment::Index),
    ];
    prop::collection::vec(segment, 1..6).prop_map(FieldPath)
}

/// The path as a reference says it: as it is shown, but that a plain key begins with a dot.
fn written(path: &FieldPath) -> String {
    path.0
        .iter()
        .map(|segment| match segment {
            Segment::Key(key) => format!("[{}]", serde_json::Value::String(key.clone())),
            Segment::Index(index) => format!("[{index}]"),
            Segment::Item { .. } => unreachable!("references have no items"),
        })
        .collect()
}

proptest! {
    #[test]
    fn parsing_never_panics(text in any::<String>()) {
        let _ = parse(&text, &known);
        let _ = parse(&format!("$kusion_path.p{text}"), &known);
        let _ = parse(&format!("{text}${{kusion_path.p.{text}"), &known);
    }

    #[test]
    fn written_reference_is_parsed_back(path in path(), before in "[^$]*", after in "[^$]*") {
        let reference = Reference { id: "p".into(), path };
        let text = format!("$kusion_path.p{}", written(&reference.path));
        prop_assert_eq!(parse(&text, &known).unwrap(), Some(Template::Whole(reference.clone())));
        let shown = format!("$kusion_path.{reference}");
        prop_assert_eq!(parse(&shown, &known).unwrap(), Some(Template::Whole(reference.clone())));

        let text = format!("{before}${{kusion_path.p{}}}{after}", written(&reference.path));
        let Some(Template::Text(parts)) = parse(&text, &known).unwrap() else { panic!("{text}") };
        let around: String = parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Reference(_) => None,
        }).collect();
        prop_assert_eq!(around, format!("{before}{after}"));
        prop_assert!(parts.contains(&Part::Reference(reference)));
    }
}

/// Every dot may be where an id ends, so that texts of dots would take time without end.
#[test]
fn long_dotted_text_is_rejected_quickly() {
    let text = format!("$kusion_path.{}", ".".repeat(4 << 20));
    assert!(matches!(parse(&text, &|id| id == "a"), Err(ReferenceError::UnknownId { .. })));
    let id = "x.".repeat(100);
    let found = parse(&format!("$kusion_path.{id}.name"), &|known| known == id);
    assert!(found.is_ok_and(|found| found.is_some()));
}
