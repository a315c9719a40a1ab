use std::collections::BTreeMap;

use proptest::{prop_oneof, proptest, strategy::Strategy, test_runner::Config};

use super::*;

fn page(limit: u64, token: Option<String>) -> ListOptions {
    ListOptions { limit: Some(limit), continue_token: token, ..ListOptions::default() }
}

fn at(version: impl ToString, wanted: &str) -> ListOptions {
    ListOptions {
        resource_version: Some(version.to_string()),
        resource_version_match: (!wanted.is_empty()).then(|| wanted.to_owned()),
        ..ListOptions::default()
    }
}

fn small_window() -> Window {
    Window { events: 4, age: Duration::ZERO, ..Window::default() }
}

#[tokio::test]
async fn lists_are_in_key_order_and_by_namespace() {
    let fixture = Fixture::new().await;
    for name in ["b", "a", "a-b", "c"] {
        fixture.gadget(name, 1).await;
    }
    fixture.gadgets.create(&fixture.context, "other", object(gadget("z", 1))).await.expect("created");
    let list = fixture.list(&ListOptions::default()).await.expect("listed");
    assert_eq!((names(&list), list.version), (vec!["a", "a-b", "b", "c"], Version(5)));
    let all = fixture.gadgets.list(None, &ListOptions::default()).await.expect("listed");
    assert_eq!(names(&all), ["z", "a", "a-b", "b", "c"]);
}

#[tokio::test]
async fn list_of_one_by_its_name_has_one_page() {
    let fixture = Fixture::new().await;
    for name in ["web", "web2", "web-3"] {
        fixture.gadget(name, 1).await;
        let widget = json!({"metadata": {"name": name}, "spec": {"size": 1}});
        fixture.widgets.create(&fixture.context, "", object(widget)).await.expect("created");
    }
    let options = ListOptions { field_selector: Some("metadata.name=web".to_owned()), ..page(1, None) };
    for (store, namespace) in [(&fixture.gadgets, Some("shop")), (&fixture.gadgets, None), (&fixture.widgets, None)] {
        let mut list = store.list(namespace, &options).await.expect("listed");
        assert_eq!(names(&list), ["web"]);
        // Across namespaces it is one of many, and there may be more of its name.
        while let Some(token) = list.continue_token {
            assert_eq!((store.definition().plural.as_str(), namespace), ("gadgets", None));
            let options = ListOptions { continue_token: Some(token), ..options.clone() };
            list = store.list(namespace, &options).await.expect("its own token is taken");
            assert!(list.items.is_empty());
        }
    }
}

#[tokio::test]
async fn continue_token_works_with_any_selector() {
    let fixture = Fixture::new().await;
    for name in ["a", "b", "c"] {
        fixture.gadget(name, 1).await;
    }
    let of_name =
        |name: &str, options| ListOptions { field_selector: Some(format!("metadata.name={name}")), ..options };
    let first = fixture.list(&page(1, None)).await.expect("listed");
    for (name, found) in [("a", vec![]), ("b", vec!["b"])] {
        let list = fixture.list(&of_name(name, page(1, first.continue_token.clone()))).await.expect("listed");
        assert_eq!((names(&list), list.version), (found, Version(3)));
    }
    let old = ListOptions { limit: Some(1), ..at(1, "") };
    assert_eq!(names(&fixture.list(&of_name("c", old)).await.expect("listed")), ["c"]);
    assert!(fixture.list(&of_name("c", at(1, "Exact"))).await.expect("listed").items.is_empty());
}

#[tokio::test]
async fn selectors_narrow_a_list() {
    let fixture = Fixture::new().await;
    for (name, project, env) in [("a", "p", "dev"), ("b", "p", "prod"), ("c", "q", "dev")] {
        let sent = json!({"metadata": {"name": name, "labels": {"env": env}}, "spec": {"project": project}});
        fixture.create(sent).await.expect("created");
    }
    for (labels, fields, expected) in [
        ("env=dev", "", vec!["a", "c"]),
        ("", "spec.project=p", vec!["a", "b"]),
        ("env!=dev", "spec.project=p", vec!["b"]),
        ("", "metadata.name=b", vec!["b"]),
        ("", "metadata.name!=b", vec!["a", "c"]),
        ("", "metadata.namespace=shop,metadata.name=c", vec!["c"]),
        ("", "metadata.namespace=other", vec![]),
    ] {
        let options = ListOptions {
            label_selector: Some(labels.to_owned()),
            field_selector: Some(fields.to_owned()),
            ..ListOptions::default()
        };
        for namespace in [Some("shop"), None] {
            let list = fixture.gadgets.list(namespace, &options).await.expect("listed");
            assert_eq!(names(&list), expected, "{labels} {fields} {namespace:?}");
        }
    }
    let bad = ListOptions { field_selector: Some("spec.size=1".to_owned()), ..ListOptions::default() };
    assert_eq!(
        failure(fixture.list(&bad).await),
        (400, "BadRequest".into(), "field label not supported: spec.size".into())
    );
}

#[tokio::test]
async fn pages_show_one_version_and_count_what_is_left() {
    let fixture = Fixture::new().await;
    for i in 0..5 {
        fixture.gadget(&format!("g{i}"), 1).await;
    }
    let first = fixture.list(&page(2, None)).await.expect("listed");
    assert_eq!((names(&first), first.remaining_item_count), (vec!["g0", "g1"], Some(3)));
    fixture.gadget("g1x", 1).await;
    fixture.resize("g2", 7).await;
    fixture.delete("g4", &DeleteOptions::default()).await.expect("deleted");
    let second = fixture.list(&page(2, first.continue_token.clone())).await.expect("listed");
    assert_eq!((names(&second), second.remaining_item_count), (vec!["g2", "g3"], Some(1)));
    assert_eq!(second.items[0].object().0["spec"]["size"], 1);
    let third = fixture.list(&page(2, second.continue_token.clone())).await.expect("listed");
    assert_eq!((names(&third), third.remaining_item_count), (vec!["g4"], None));
    assert_eq!(third.continue_token, None);
    assert!([first.version, second.version, third.version].iter().all(|version| *version == Version(5)));
    let selected = ListOptions { label_selector: Some("!none".to_owned()), ..page(2, None) };
    let selected = fixture.list(&selected).await.expect("listed");
    assert_eq!((selected.remaining_item_count, selected.continue_token.is_some()), (None, true));
}

#[tokio::test]
async fn reads_are_as_fresh_as_asked_for() {
    let fixture = Fixture::new().await;
    fixture.gadget("a", 1).await;
    fixture.resize("a", 2).await;
    fixture.gadget("b", 1).await;
    assert_eq!(names(&fixture.list(&at(1, "Exact")).await.expect("listed")), ["a"]);
    let exact = fixture.list(&at(1, "Exact")).await.expect("listed");
    assert_eq!((exact.version, exact.items[0].object().0["spec"]["size"].clone()), (Version(1), json!(1)));
    for options in [at(1, ""), at(1, "NotOlderThan"), at(0, ""), at("", "")] {
        let list = fixture.list(&options).await.expect("listed");
        assert_eq!((names(&list), list.version), (vec!["a", "b"], Version(3)), "{options:?}");
    }
    let legacy = ListOptions { limit: Some(5), ..at(2, "") };
    assert_eq!(fixture.list(&legacy).await.expect("listed").version, Version(2));
    let got = fixture.gadgets.get("shop", "a", Some("1")).await.expect("there");
    assert_eq!(got.version, Version(2));
}

#[tokio::test(start_paused = true)]
async fn future_versions_time_out() {
    let fixture = Fixture::new().await;
    fixture.gadget("a", 1).await;
    let error = fixture.gadgets.get("shop", "a", Some("99")).await.expect_err("the future");
    assert_eq!((error.code(), error.reason()), (504, "Timeout"));
    assert_eq!(error.message(), "Timeout: Too large resource version: 99, current: 1");
    let details = error.0.details.expect("details");
    assert_eq!(details.retry_after_seconds, Some(1));
    assert_eq!(details.causes.expect("causes")[0].reason.as_deref(), Some("ResourceVersionTooLarge"));
    // A list of one name at a version is told so at once, and not to come back.
    let one = ListOptions { field_selector: Some("metadata.name=a".to_owned()), ..at(99, "") };
    for options in [
        ListOptions { resource_version_match: Some("Exact".to_owned()), ..one.clone() },
        ListOptions { limit: Some(1), ..one.clone() },
    ] {
        let began = tokio::time::Instant::now();
        let error = fixture.list(&options).await.expect_err("the future");
        assert_eq!(error.message(), "Timeout: Too large resource version: 99, current: 1");
        assert_eq!(error.0.details.expect("details").retry_after_seconds, Some(0));
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
    let error = fixture.list(&one).await.expect_err("the future");
    assert_eq!(error.0.details.expect("details").retry_after_seconds, Some(1));
}

#[tokio::test]
async fn options_that_do_not_go_together_are_refused() {
    let fixture = Fixture::new().await;
    fixture.gadget("a", 1).await;
    fixture.gadget("b", 1).await;
    let token = fixture.list(&page(1, None)).await.expect("listed").continue_token.expect("a second page");
    for (options, code, message) in [
        (
            ListOptions { resource_version_match: Some("Exact".to_owned()), ..ListOptions::default() },
            422,
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden \
             unless resourceVersion is provided",
        ),
        (
            at(0, "Exact"),
            422,
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is \
             forbidden for resourceVersion \"0\"",
        ),
        (
            at(1, "Newer"),
            422,
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Unsupported value: \"Newer\": supported \
             values: \"Exact\", \"NotOlderThan\", \"\"",
        ),
        (
            ListOptions { send_initial_events: Some(true), ..ListOptions::default() },
            422,
            "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for \
             list",
        ),
        (
            ListOptions { resource_version: Some("1".to_owned()), ..page(1, Some(token)) },
            400,
            "specifying resource version is not allowed when using continue",
        ),
        (
            at("x", ""),
            400,
            "invalid resource version: resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax",
        ),
    ] {
        let (found, _, text) = failure(fixture.list(&options).await);
        assert_eq!((found, text.as_str()), (code, message));
    }
    for token in ["!", "e30", "bm90IEpTT04"] {
        let (code, reason, message) = failure(fixture.list(&page(1, Some(token.to_owned()))).await);
        assert_eq!((code, reason.as_str()), (400, "BadRequest"), "{message}");
    }
}

#[tokio::test]
async fn versions_outside_the_window_are_gone() {
    let fixture = Fixture::over(Arc::new(MemoryLog::new()), small_window()).await;
    for name in ["a", "b", "c"] {
        fixture.gadget(name, 1).await;
    }
    let first = fixture.list(&page(1, None)).await.expect("listed");
    for size in 2..20 {
        fixture.resize("b", size).await;
    }
    assert_eq!(
        failure(fixture.list(&at(3, "Exact")).await),
        (410, "Expired".into(), "The resourceVersion for the provided list is too old.".into())
    );
    let error = fixture.list(&page(1, first.continue_token)).await.expect_err("gone");
    assert_eq!((error.code(), error.reason()), (410, "Expired"));
    let rest = fixture.list(&page(5, error.0.metadata.continue_.clone())).await.expect("goes on in the present");
    assert_eq!((names(&rest), rest.version), (vec!["b", "c"], fixture.head().await));
    assert_eq!(rest.items[0].object().0["spec"]["size"], 19);
}

#[tokio::test]
async fn new_server_serves_history_from_log() {
    let log = Arc::new(MemoryLog::new());
    let first = Fixture::over(log.clone(), Window::default()).await;
    first.gadget("a", 1).await;
    first.resize("a", 2).await;
    let second = Fixture::over(log, Window::default()).await;
    let old = second.list(&at(1, "Exact")).await.expect("listed");
    assert_eq!(old.items[0].object().0["spec"]["size"], 1);
    assert_eq!(second.gadgets.get("shop", "a", None).await.expect("there").version, Version(2));
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, i64),
    Delete(u8),
    Page(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..12_u8, 1..100_i64).prop_map(|(key, size)| Step::Put(key, size)),
        2 => (0..12_u8).prop_map(Step::Delete),
        2 => (1..4_u64).prop_map(Step::Page),
    ];
    proptest::collection::vec(step, 1..60)
}

/// What a list should show: sizes by name.
type Model = BTreeMap<String, i64>;

async fn run(steps: Vec<Step>) {
    let fixture = Fixture::new().await;
    let mut model = Model::new();
    // The state of every version, and the pages of the list that is under way.
    let mut states: BTreeMap<Version, Model> = BTreeMap::from([(Version(0), Model::new())]);
    let mut reading: Option<(Version, String)> = None;
    let mut shown = Model::new();
    for step in steps {
        match step {
            Step::Put(key, size) => {
                let name = format!("g{key}");
                if model.insert(name.clone(), size).is_some() {
                    fixture.resize(&name, size).await;
                } else {
                    fixture.gadget(&name, size).await;
                }
            }
            Step::Delete(key) => {
                let name = format!("g{key}");
                let gone = fixture.delete(&name, &DeleteOptions::default()).await.is_ok();
                assert_eq!(gone, model.remove(&name).is_some());
            }
            Step::Page(limit) => {
                let (version, token) = reading.take().unzip();
                let list = fixture.list(&page(limit, token)).await.expect("listed");
                let size = |item: &Stored| item.object().0["spec"]["size"].as_i64().expect("a number");
                shown.extend(list.items.iter().map(|item| (item.name().to_owned(), size(item))));
                assert!(version.is_none_or(|version| version == list.version));
                let whole = &states[&list.version];
                let left = list.remaining_item_count.unwrap_or(0);
                assert_eq!(shown.len() + usize::try_from(left).expect("not negative"), whole.len());
                match list.continue_token {
                    Some(token) => reading = Some((list.version, token)),
                    None => assert_eq!(std::mem::take(&mut shown), *whole),
                }
            }
        }
        states.insert(fixture.head().await, model.clone());
    }
    for (version, state) in states.into_iter().filter(|(version, _)| *version > Version(0)) {
        let list = fixture.list(&at(version, "Exact")).await.expect("listed");
        assert_eq!(names(&list), state.keys().map(String::as_str).collect::<Vec<_>>(), "at {version}");
    }
}

proptest! {
    #![proptest_config(Config { cases: 48, ..Config::default() })]

    #[test]
    fn pages_are_snapshots_whatever_is_written_meanwhile(steps in steps()) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime").block_on(run(steps));
    }
}
