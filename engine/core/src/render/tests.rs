use insta::assert_snapshot;
use serde_json::json;

use super::*;
use crate::spec::ResourceType;

fn action(id: &str, action: Action, changes: Vec<FieldChange>) -> PlannedAction {
    PlannedAction { changes, ..PlannedAction::new(id.into(), ResourceType::Kubernetes, action) }
}

fn change(path: &str, before: Option<Value>, after: Option<Value>) -> FieldChange {
    FieldChange { path: path.to_owned(), before, after, ..FieldChange::default() }
}

fn plan(actions: Vec<PlannedAction>) -> Plan {
    Plan { actions, ..Plan::of("") }
}

#[test]
fn short_summary_shows_action_marks() {
    let summary = Summary { create: 12, update: 3, replace: 1, unchanged: 7, ..Summary::default() };
    assert_eq!(short_summary(&summary), "+12 ~3 -0 ±1");
    assert_eq!(short_summary(&Summary { forget: 2, ..Summary::default() }), "+0 ~0 -0 .2");
    assert_eq!(short_summary(&Summary { unchanged: 7, unverified: 1, ..Summary::default() }), "no changes");
}

#[test]
fn each_action_is_line_with_fields() {
    let plan = plan(vec![
        action("v1:Namespace:shop", Action::Unchanged, vec![]),
        PlannedAction {
            unverified: Some("its namespace is not there yet".to_owned()),
            ..action("v1:ConfigMap:shop:web", Action::Create, vec![])
        },
        PlannedAction { drift: true, ..action("v1:ConfigMap:shop:gone", Action::Create, vec![]) },
        action(
            "apps/v1:Deployment:shop:web",
            Action::Update,
            vec![
                FieldChange { drift: true, ..change("spec.replicas", Some(json!(3)), Some(json!(1))) },
                change("spec.paused", None, Some(json!(true))),
                change("metadata.labels.old", Some(json!("x")), None),
                change("spec.password", Some(json!(MASK)), Some(json!(UNKNOWN))),
                change("spec.list", None, Some(json!([{"a": "b"}]))),
            ],
        ),
        PlannedAction {
            taken: vec![
                FieldConflict { manager: "flux".to_owned(), applies: true, fields: vec![".data.a".to_owned()] },
                FieldConflict {
                    manager: "kubectl-edit".to_owned(),
                    applies: false,
                    fields: vec![".data.b".to_owned(), ".data.c".to_owned()],
                },
            ],
            ..action(
                "v1:ConfigMap:shop:both",
                Action::Update,
                vec![change("data.a", Some(json!("x")), Some(json!("y")))],
            )
        },
        action("batch/v1:Job:shop:once", Action::Replace, vec![]),
        PlannedAction {
            recorded_as: Some("apps/v1beta1:Deployment:shop:api".into()),
            ..action("apps/v1:Deployment:shop:api", Action::Adopt, vec![])
        },
        action("v1:Secret:shop:old", Action::Delete, vec![]),
        action("v1:Secret:shop:lost", Action::Forget, vec![]),
        PlannedAction {
            forgotten_clusters: vec!["old".to_owned()],
            ..action("v1:ConfigMap:shop:moved", Action::Create, vec![])
        },
        PlannedAction {
            owned_by: Some("shop/api/dev".to_owned()),
            ..action("v1:Service:shop:api", Action::Adopt, vec![])
        },
        PlannedAction {
            owned_by: Some("shop/api/dev".to_owned()),
            ..action("v1:Secret:shop:api", Action::Forget, vec![])
        },
        PlannedAction {
            kept_as: Some("apps/v1:Deployment:shop:api".into()),
            ..action("apps/v1beta1:Deployment:shop:api", Action::Forget, vec![])
        },
    ]);
    assert_snapshot!(render(&plan, Colour::Never), @r#"
    + create   v1:ConfigMap:shop:web  (unverified: its namespace is not there yet)
    + create   v1:ConfigMap:shop:gone  (it was recorded, but no longer exists)
    ~ update   apps/v1:Deployment:shop:web
        spec.replicas: 3 → 1  (drift)
        + spec.paused: true
        - metadata.labels.old: "x"
        spec.password: (sensitive) → (known after apply)
        + spec.list: [{"a":"b"}]
    ~ update   v1:ConfigMap:shop:both
        data.a: "x" → "y"
        ! taken from flux, which applies them: .data.a
        ! taken from kubectl-edit, which changes them: .data.b, .data.c
    ± replace  batch/v1:Job:shop:once
    > adopt    apps/v1:Deployment:shop:api  (recorded as apps/v1beta1:Deployment:shop:api)
    - delete   v1:Secret:shop:old
    . forget   v1:Secret:shop:lost
    + create   v1:ConfigMap:shop:moved  (forgotten in cluster old, where the object stays as it is)
    > adopt    v1:Service:shop:api  (taken over from shop/api/dev)
    . forget   v1:Secret:shop:api  (shop/api/dev owns it now, so it is not deleted)
    . forget   apps/v1beta1:Deployment:shop:api  (the Spec has the same object as apps/v1:Deployment:shop:api, so it is not deleted)

    Plan: 3 to create, 2 to update, 1 to delete, 1 to replace, 2 to adopt, 3 to forget; 1 unchanged; 1 unverified.
    "#);
}

#[test]
fn multiline_texts_show_changed_lines() {
    let plan = plan(vec![action(
        "v1:ConfigMap:shop:web",
        Action::Update,
        vec![change("data.conf", Some(json!("a\nb\nc\n")), Some(json!("a\nB\nB2\nc\n")))],
    )]);
    assert_snapshot!(render(&plan, Colour::Never), @r"
    ~ update   v1:ConfigMap:shop:web
        data.conf:
          - b
          + B
          + B2

    Plan: 1 to update.
    ");
}

#[test]
fn long_values_are_cut_between_characters() {
    let long = "é".repeat(200);
    let plan = plan(vec![action("x", Action::Update, vec![change("a", None, Some(json!(long)))])]);
    let table = render(&plan, Colour::Never);
    assert!(table.contains(&format!("+ a: \"{}…\n", "é".repeat(79))), "{table}");
}

#[test]
fn long_table_shows_all_resources() {
    let text = Value::from(vec!["x".repeat(70); BLOCK].join("\n"));
    let fields = || ["data.a", "data.b"].map(|path| change(path, None, Some(text.clone()))).into();
    let of = |number: usize| action(&format!("v1:ConfigMap:shop:{number}"), Action::Create, fields());
    let table = render(&plan((0..200).map(of).collect()), Colour::Never);
    assert!((LONGEST..LONGEST + 100_000).contains(&table.len()), "{} bytes", table.len());
    assert_eq!(table.matches("+ create   v1:ConfigMap:shop:").count(), 200);
    let shown = table.matches(": |\n").count();
    assert!(table.contains(&format!("\n… {} fields are omitted", 400 - shown)), "{shown} are shown");
    assert!(table.contains("v1:ConfigMap:shop:199\n    … 2 more fields\n"));
    assert!(table.ends_with("\n\nPlan: 200 to create.\n"));
}

#[test]
fn empty_plan_says_no_changes() {
    assert_eq!(render(&plan(vec![]), Colour::Never), "Plan: no changes; 0 unchanged.\n");
    let kept = plan(vec![action("a", Action::Unchanged, vec![])]);
    assert_eq!(render(&kept, Colour::Never), "Plan: no changes; 1 unchanged.\n");
}

#[test]
fn colours_change_no_text() {
    let changes = vec![
        change("spec.replicas", Some(json!(1)), Some(json!(2))),
        change("spec.paused", None, Some(json!(true))),
        change("data.conf", Some(json!("a\nb\n")), Some(json!("a\nc\n"))),
    ];
    let plan = plan(vec![
        action("a", Action::Create, vec![change("data", None, Some(json!({"a": "b"})))]),
        action("b", Action::Delete, vec![]),
        action("c", Action::Update, changes),
    ]);
    let coloured = render(&plan, Colour::Always);
    let (red, green, yellow, end) = ("\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m", "\u{1b}[0m");
    let expected = format!(
        "{green}+ create  {end} a
    {green}+ data: {{\"a\":\"b\"}}{end}
{red}- delete  {end} b
{yellow}~ update  {end} c
    spec.replicas: {red}1{end} → {green}2{end}
    {green}+ spec.paused: true{end}
    data.conf:
    {red}  - b{end}
    {green}  + c{end}
"
    );
    assert!(coloured.starts_with(&expected), "{coloured}");
    let plain = [red, green, yellow, end].into_iter().fold(coloured, |text, code| text.replace(code, ""));
    assert_eq!(plain, render(&plan, Colour::Never));
}

#[test]
fn control_characters_are_escaped() {
    let bad = "x\n\u{1b}[2A\u{1b}[2K\r\u{9b}1A\u{202e}y";
    let plan = plan(vec![action(
        &format!("v1:ConfigMap:shop:{bad}"),
        Action::Update,
        vec![
            change(&format!("data.{bad}"), Some(json!(bad)), Some(json!(format!("{bad}\n{bad}")))),
            change("data.new", None, Some(json!({bad: bad, "list": [bad]}))),
            change("data.short", Some(json!("\u{1b}[1m")), Some(json!(1))),
        ],
    )]);
    for colour in [Colour::Never, Colour::Always] {
        let mut table = render(&plan, colour);
        // What colours it is the table's own.
        for code in [RED, GREEN, YELLOW, 0] {
            table = table.replace(&format!("\u{1b}[{code}m"), "");
        }
        let is_plain = |c: char| c == '\n' || visible(c) == c;
        assert!(table.chars().all(is_plain), "{table:?}");
        assert!(table.starts_with("~ update   v1:ConfigMap:shop:x␊␛[2A␛[2K␍\u{fffd}1A\u{fffd}y\n"), "{table}");
        assert!(
            table.lines().skip(1).all(|line| line.is_empty() || line.starts_with(' ') || line.starts_with("Plan: "))
        );
    }
}

#[test]
fn warnings_precede_summary_outside_of_digest() {
    let quiet = plan(vec![action("v1:ConfigMap:shop:web", Action::Create, vec![])]);
    let warned = Plan { warnings: vec!["one\nline".to_owned(), "two".to_owned()], ..quiet.clone() };
    assert_eq!(warned.digest(), quiet.digest());
    let table = render(&warned, Colour::Never);
    let mut lines = table.lines().rev();
    assert_eq!(lines.next(), Some("Plan: 1 to create."));
    assert_eq!((lines.next(), lines.next()), (Some(""), Some("warning: two")));
    assert!(lines.next().is_some_and(|line| line.starts_with("warning: one")), "{table}");
}

#[test]
fn origin_is_below_the_resource() {
    let plan = plan(vec![
        action("v1:ConfigMap:shop:a", Action::Update, vec![change("data.a", None, Some(json!("b")))]),
        action("v1:ConfigMap:shop:b", Action::Delete, vec![]),
    ]);
    let origins = [(ResourceId::from("v1:ConfigMap:shop:a"), "web/a.yaml:3".to_owned())].into();
    let table = render_with_origins(&plan, Colour::Never, &origins);
    let expected =
        "~ update   v1:ConfigMap:shop:a\n    from web/a.yaml:3\n    + data.a: \"b\"\n- delete   v1:ConfigMap:shop:b\n";
    assert!(table.starts_with(expected), "{table}");
}
