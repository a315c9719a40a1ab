use k8s_openapi::apimachinery::pkg::apis::meta::v1::Preconditions;
use stoa_meta::authorizer::{Attributes, Authorizer, Decision};

use super::*;

const NOT_JSON: &str = "not JSON";
const NOT_TYPED: &str = r#"{"apiVersion":"test.dev/v1","kind":"Gadget","metadata":{"name":"b","namespace":"shop","uid":"u"},"spec":"hunter2"}"#;

/// The gadget `shop/a` of a size, as it is stored.
const REPAIRED: &str = r#"{"apiVersion":"test.dev/v1","kind":"Gadget","metadata":{"name":"a","namespace":"shop","uid":"u"},"spec":{"size":7}}"#;

impl Fixture {
    /// What the metrics say of gadgets that do not decode.
    fn counted(&self) -> f64 {
        let families = self.metrics.gather();
        let family = families.iter().find(|family| family.name() == "stoa_undecodable_objects").expect("registered");
        let is_of_gadgets = |metric: &&prometheus::proto::Metric| {
            let labels: Vec<_> = metric.get_label().iter().map(|label| (label.name(), label.value())).collect();
            labels == [("group", "test.dev"), ("resource", "gadgets")]
        };
        family.get_metric().iter().find(is_of_gadgets).expect("counted from the start").get_gauge().get_value()
    }

    /// Waits until everything that was written past the registry is known.
    async fn settled(&self) {
        self.list(&ListOptions::default()).await.expect("listed");
    }
}

fn ignoring() -> DeleteOptions {
    DeleteOptions { ignore_store_read_error_with_cluster_breaking_potential: Some(true), ..DeleteOptions::default() }
}

fn told(name: &str, version: u64) -> (u16, String, String) {
    let message = format!(
        "Internal error occurred: StorageError: corrupt object, Code: 7, Key: /registry/test.dev/gadgets/shop/{name}, \
         ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision={version}: what is stored does not decode as \
         a Gadget"
    );
    (500, "InternalError".to_owned(), message)
}

#[tokio::test]
async fn undecodable_object_fails_alone() {
    let fixture = Fixture::new().await;
    fixture.gadget("a", 1).await;
    fixture.gadget("c", 1).await;
    fixture.put_bytes("a", NOT_JSON).await;
    fixture.put_bytes("b", NOT_TYPED).await;
    let (gadgets, context) = (&fixture.gadgets, &fixture.context);
    for (name, version) in [("a", 3), ("b", 4)] {
        let told = || told(name, version);
        let error = gadgets.get("shop", name, None).await.expect_err("it does not decode");
        assert!(is_undecodable(&error));
        assert_eq!(failure(Err::<(), _>(error)), told());
        assert_eq!(failure(fixture.put(gadget(name, 2)).await), told());
        assert_eq!(failure(fixture.put_to(Target::Status, gadget(name, 2)).await), told());
        let transform = UpdateSource::transform(|_| panic!("there is nothing to change"));
        assert_eq!(failure(gadgets.update(context, "shop", name, Target::Main, transform).await), told());
        let configuration = object(gadget(name, 2));
        let apply = Apply { configuration, force: true, previous: None, finish: Box::new(Ok) };
        let applied = gadgets.update(context, "shop", name, Target::Main, UpdateSource::Apply(apply));
        assert_eq!(failure(tokio::time::timeout(Duration::from_secs(20), applied).await.expect("it ends")), told());
        for dry_run in [false, true] {
            let mut context = context.clone();
            context.dry_run = dry_run;
            let created = gadgets.create(&context, "shop", object(gadget(name, 2))).await;
            assert_eq!(failure(created).1, "AlreadyExists");
        }
        assert_eq!(failure(fixture.delete(name, &DeleteOptions::default()).await), told());
    }
    let missing = gadgets.get("shop", "none", None).await.expect_err("it is not there");
    assert!(!is_undecodable(&missing) && !is_undecodable(&ApiError::internal("something else")));

    assert_eq!(names(&fixture.list(&ListOptions::default()).await.expect("listed")), ["c"]);
    let options = DeleteOptions::default();
    let deleted = gadgets.delete_collection(context, Some("shop"), &ListOptions::default(), &options).await;
    assert_eq!(names(&deleted.expect("deleted")), ["c"]);
    assert_eq!(names(&fixture.list(&ListOptions::default()).await.expect("listed")), [""; 0]);
    let left = fixture.registry.log().scan("/registry/test.dev/gadgets/", None).await.expect("scanned");
    let left: Vec<_> = left.entries.iter().map(|entry| &entry.value[..]).collect();
    assert_eq!(left, [NOT_JSON.as_bytes(), NOT_TYPED.as_bytes()], "nothing is written over");
    assert_eq!(gadgets.undecodable_values(), [NOT_JSON, NOT_TYPED]);
}

#[tokio::test]
async fn pages_and_their_counts_go_on_without_it() {
    let fixture = Fixture::new().await;
    for name in ["b", "d", "e", "g"] {
        fixture.gadget(name, 1).await;
    }
    for name in ["a", "c", "f", "h", "i"] {
        fixture.put_bytes(name, NOT_JSON).await;
    }
    for (limit, expected) in
        [(1, vec![("b", Some(3)), ("d", Some(2)), ("e", Some(1)), ("g", None)]), (4, vec![("b d e g", None)])]
    {
        let (mut pages, mut token) = (Vec::new(), None);
        loop {
            let options = ListOptions { limit: Some(limit), continue_token: token, ..ListOptions::default() };
            let page = fixture.list(&options).await.expect("listed");
            pages.push((names(&page).join(" "), page.remaining_item_count));
            token = page.continue_token;
            if token.is_none() {
                break;
            }
            // What is broken or repaired meanwhile changes no further page.
            fixture.put_bytes("g", NOT_JSON).await;
            fixture.put_bytes("a", REPAIRED).await;
        }
        let pages: Vec<_> = pages.iter().map(|(names, remaining)| (names.as_str(), *remaining)).collect();
        assert_eq!(pages, expected);
        fixture.put_bytes("a", NOT_JSON).await;
        let repaired = REPAIRED.replace("\"a\"", "\"g\"").leak();
        fixture.put_bytes("g", repaired).await;
    }
}

#[tokio::test]
async fn watch_reports_undecodable_object_as_deleted_until_repair() {
    let fixture = Fixture::new().await;
    let mut events = fixture.gadgets.watch(Some("shop"), &WatchOptions::default()).await.expect("a watch");
    fixture.gadget("a", 1).await;
    fixture.put_bytes("a", NOT_JSON).await;
    fixture.put_bytes("a", NOT_TYPED).await;
    fixture.put_bytes("b", NOT_TYPED).await;
    fixture.settled().await;
    assert!(matches!(fixture.delete("b", &ignoring()).await, Ok(Deleted::Undecodable)));
    fixture.put_bytes("a", REPAIRED).await;
    fixture.resize("a", 8).await;
    let all = ["added a size 1 at 1", "deleted a size 1 at 2", "added a size 7 at 6", "modified a size 8 at 7"];
    assert_eq!(lines(&mut events, 4).await, all);
    // From any version on it is the same.
    for (since, expected) in [(1, &all[1..]), (2, &all[2..]), (4, &all[2..]), (6, &all[3..])] {
        let options = WatchOptions { resource_version: Some(since.to_string()), ..WatchOptions::default() };
        let mut events = fixture.gadgets.watch(Some("shop"), &options).await.expect("a watch");
        assert_eq!(lines(&mut events, expected.len()).await, expected);
    }
}

#[tokio::test]
async fn historical_read_reports_only_undecodable_versions() {
    let fixture = Fixture::new().await;
    fixture.gadget("a", 1).await;
    fixture.put_bytes("a", NOT_JSON).await;
    fixture.put_bytes("a", REPAIRED).await;
    fixture.settled().await;
    let at = async |version| {
        fixture.gadgets.get_at("shop", "a", Version(version)).await.map(|found| value(&found)["spec"]["size"].clone())
    };
    assert_eq!(at(1).await, Ok(json!(1)));
    assert_eq!(failure(at(2).await), told("a", 2));
    assert_eq!(at(3).await, Ok(json!(7)));
}

/// Allows everything but to ignore what cannot be read.
#[derive(Debug)]
struct OnlyReadable;

#[async_trait]
impl Authorizer for OnlyReadable {
    async fn authorize(&self, _: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        let is_unsafe = attributes.verb == "unsafe-delete-ignore-read-errors";
        Ok(if is_unsafe { Decision::Deny(String::new()) } else { Decision::Allow(String::new()) })
    }
}

#[tokio::test]
async fn only_who_may_ignore_the_error_deletes_it() {
    let fixture = Fixture::new().await;
    fixture.put_bytes("a", NOT_JSON).await;
    fixture.gadget("b", 1).await;
    let user = UserInfo { name: "bob".to_owned(), ..UserInfo::default() };
    let bob = RequestContext::new(user, Arc::new(OnlyReadable));
    let refused = fixture.gadgets.delete(&bob, "shop", "a", &ignoring()).await;
    let message = "gadgets.test.dev \"a\" is forbidden: User \"bob\" cannot unsafe-delete-ignore-read-errors resource \"gadgets\" in API group \"test.dev\" in the namespace \"shop\"";
    assert_eq!(failure(refused), (403, "Forbidden".to_owned(), message.to_owned()));

    let others = DeleteOptions {
        dry_run: Some(vec!["All".to_owned()]),
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions::default()),
        ..ignoring()
    };
    let field = "ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true";
    let (code, _, message) = failure(fixture.delete("a", &others).await);
    assert_eq!(
        (code, message),
        (
            422,
            format!(
                "DeleteOptions.meta.k8s.io \"\" is invalid: [{field}: cannot be set together with .dryRun, {field}: cannot be \
                 set together with .gracePeriodSeconds, {field}: cannot be set together with .preconditions]"
            )
        )
    );
    // It says nothing to a collection, which has only what can be read.
    let others = DeleteOptions { dry_run: Some(vec!["All".to_owned()]), ..ignoring() };
    let collection =
        fixture.gadgets.delete_collection(&fixture.context, Some("shop"), &ListOptions::default(), &others).await;
    assert_eq!(collection.unwrap().items.len(), 1);
    let mut dry_run = fixture.context.clone();
    dry_run.dry_run = true;
    let deleted = fixture.gadgets.delete(&dry_run, "shop", "a", &ignoring()).await;
    assert!(matches!(deleted, Ok(Deleted::Undecodable)));
    assert_eq!(fixture.head().await, Version(2), "nothing was written");

    // What can be read is deleted by whoever may delete it.
    assert!(matches!(fixture.gadgets.delete(&bob, "shop", "b", &ignoring()).await, Ok(Deleted::Gone(_))));
    assert!(matches!(fixture.delete("a", &ignoring()).await, Ok(Deleted::Undecodable)));
    assert_eq!(failure(fixture.gadgets.get("shop", "a", None).await).0, 404);
    assert_eq!(failure(fixture.delete("a", &ignoring()).await).0, 404);
    fixture.gadget("a", 2).await;
}

#[tokio::test]
async fn it_is_counted_until_it_is_repaired_or_gone() {
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let fixture = Fixture::over(log.clone(), Window::default()).await;
    assert_eq!(fixture.counted(), 0.0);
    fixture.gadget("a", 1).await;
    for (name, bytes) in [("a", NOT_JSON), ("a", NOT_TYPED), ("b", NOT_TYPED), ("c", NOT_JSON)] {
        fixture.put_bytes(name, bytes).await;
    }
    fixture.settled().await;
    assert_eq!(fixture.counted(), 3.0);
    fixture.put_bytes("a", REPAIRED).await;
    fixture.settled().await;
    assert_eq!(fixture.counted(), 2.0);
    fixture.delete("b", &ignoring()).await.expect("deleted");
    assert_eq!(fixture.counted(), 1.0);

    let restarted = Fixture::over(log, Window::default()).await;
    assert_eq!(restarted.counted(), 1.0);
    assert_eq!(names(&restarted.list(&ListOptions::default()).await.expect("listed")), ["a"]);
    assert_eq!(failure(restarted.gadgets.get("shop", "c", None).await), told("c", 5));
    restarted.delete("c", &ignoring()).await.expect("deleted");
    assert_eq!(restarted.counted(), 0.0);
    fixture.settled().await;
    assert_eq!(fixture.counted(), 0.0, "the other replica hears of it");
}

/// Components of the server are told of the error, too, rather than that there is no such object.
#[tokio::test]
async fn components_distinguish_undecodable_from_missing_objects() {
    let fixture = Fixture::new().await;
    fixture.put_bytes("b", NOT_TYPED).await;
    let api = fixture.registry.api::<Gadget>();
    assert_eq!(failure(api.get_opt("shop", "b").await), told("b", 1));
    assert_eq!(api.get_opt("shop", "none").await, Ok(None));
    assert_eq!(api.list(None, "").await, Ok(vec![]));
}
