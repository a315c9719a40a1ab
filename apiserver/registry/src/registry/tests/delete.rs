use k8s_openapi::apimachinery::pkg::apis::meta::v1::Preconditions;

use super::*;

fn policy(policy: &str) -> DeleteOptions {
    DeleteOptions { propagation_policy: Some(policy.to_owned()), ..DeleteOptions::default() }
}

fn finalizers(stored: &Stored) -> Value {
    value(stored)["metadata"]["finalizers"].clone()
}

async fn with_finalizers(fixture: &Fixture, finalizers: &[&str]) -> Arc<Stored> {
    let sent = json!({"metadata": {"name": "a", "finalizers": finalizers}, "spec": {"size": 1}});
    fixture.create(sent).await.expect("created")
}

#[tokio::test]
async fn object_without_finalizers_goes_at_once() {
    let fixture = Fixture::new().await;
    let created = fixture.gadget("a", 1).await;
    let Deleted::Gone(last) = fixture.delete("a", &DeleteOptions::default()).await.expect("deleted") else {
        panic!("gone at once")
    };
    assert_eq!((last.uid(), last.version), (created.uid(), Version(2)));
    assert_eq!(failure(fixture.gadgets.get("shop", "a", None).await).0, 404);
    assert_eq!(failure(fixture.delete("a", &DeleteOptions::default()).await).0, 404);
}

#[tokio::test]
async fn object_with_finalizers_waits_for_the_last_one() {
    let fixture = Fixture::new().await;
    with_finalizers(&fixture, &["test.dev/one", "test.dev/two"]).await;
    let Deleted::Pending(pending) = fixture.delete("a", &DeleteOptions::default()).await.expect("deleted") else {
        panic!("it waits")
    };
    let metadata = &value(&pending)["metadata"];
    assert_eq!((metadata["deletionGracePeriodSeconds"].clone(), pending.generation()), (json!(0), 2));
    assert!(pending.is_deleting());
    let Deleted::Pending(again) = fixture.delete("a", &DeleteOptions::default()).await.expect("deleted") else {
        panic!("it still waits")
    };
    assert_eq!(again.json(), pending.json());

    let mut sent = gadget("a", 1);
    sent["metadata"]["finalizers"] = json!(["test.dev/two"]);
    let one_left = fixture.put(sent.clone()).await.expect("updated");
    assert_eq!(value(&one_left)["metadata"]["deletionTimestamp"], metadata["deletionTimestamp"]);
    sent["metadata"]["finalizers"] = json!(["test.dev/two", "test.dev/three"]);
    assert_eq!(
        failure(fixture.put(sent.clone()).await).2,
        "Gadget.test.dev \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object \
         is being deleted, found new finalizers []string{\"test.dev/three\"}"
    );
    sent["metadata"]["finalizers"] = json!([]);
    let last = fixture.put(sent).await.expect("updated");
    assert_eq!(last.uid(), pending.uid());
    assert_eq!(failure(fixture.gadgets.get("shop", "a", None).await).0, 404);
}

#[tokio::test]
async fn propagation_policies_are_finalizers() {
    for (options, before, after) in [
        (policy("Foreground"), json!([]), json!(["foregroundDeletion"])),
        (policy("Orphan"), json!(["a/b"]), json!(["a/b", "orphan"])),
        (policy("Background"), json!(["a/b", "orphan"]), json!(["a/b"])),
        (policy("Foreground"), json!(["orphan"]), json!(["foregroundDeletion"])),
        (DeleteOptions { orphan_dependents: Some(true), ..DeleteOptions::default() }, json!([]), json!(["orphan"])),
        (DeleteOptions::default(), json!(["orphan"]), json!(["orphan"])),
    ] {
        let fixture = Fixture::new().await;
        let sent = json!({"metadata": {"name": "a", "finalizers": before}, "spec": {}});
        fixture.create(sent).await.expect("created");
        let Deleted::Pending(pending) = fixture.delete("a", &options).await.expect("deleted") else {
            panic!("it waits: {options:?}")
        };
        assert_eq!(finalizers(&pending), after);
    }
    let fixture = Fixture::new().await;
    with_finalizers(&fixture, &["orphan"]).await;
    assert!(matches!(fixture.delete("a", &policy("Background")).await, Ok(Deleted::Gone(_))));
}

#[tokio::test]
async fn options_that_do_not_go_together_are_refused() {
    let fixture = Fixture::new().await;
    fixture.gadget("a", 1).await;
    let both = DeleteOptions { orphan_dependents: Some(true), ..policy("Orphan") };
    assert_eq!(
        failure(fixture.delete("a", &both).await).2,
        "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Orphan\": orphanDependents and \
         deletionPropagation cannot be both set"
    );
    assert_eq!(
        failure(fixture.delete("a", &policy("Never")).await).2,
        "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Never\": supported values: \
         \"Foreground\", \"Background\", \"Orphan\", \"nil\""
    );
}

#[tokio::test]
async fn preconditions_must_hold() {
    let fixture = Fixture::new().await;
    let created = fixture.gadget("a", 1).await;
    let options = |uid: Option<&str>, version: Option<&str>| DeleteOptions {
        preconditions: Some(Preconditions {
            uid: uid.map(str::to_owned),
            resource_version: version.map(str::to_owned),
        }),
        ..DeleteOptions::default()
    };
    let (code, reason, message) = failure(fixture.delete("a", &options(Some("other"), None)).await);
    assert_eq!((code, reason.as_str()), (409, "Conflict"));
    assert!(message.contains("the UID in the precondition (other) does not match the UID in record"), "{message}");
    let (code, _, message) = failure(fixture.delete("a", &options(None, Some("7"))).await);
    assert_eq!(code, 409);
    assert!(message.contains("the ResourceVersion in the precondition (7) does not match"), "{message}");
    fixture.delete("a", &options(Some(created.uid()), Some("1"))).await.expect("both hold");
}

#[tokio::test]
async fn dry_run_and_refused_deletes_keep_the_object() {
    let fixture = Fixture::new().await;
    fixture.create(json!({"metadata": {"name": "a"}, "spec": {"project": "kept"}})).await.expect("created");
    assert_eq!(failure(fixture.delete("a", &DeleteOptions::default()).await).0, 403);
    fixture.gadget("b", 1).await;
    let dry_run = DeleteOptions { dry_run: Some(vec!["All".to_owned()]), ..policy("Foreground") };
    let Deleted::Pending(pending) = fixture.delete("b", &dry_run).await.expect("fine") else { panic!("it would wait") };
    assert!(pending.is_deleting());
    let dry_run = DeleteOptions { dry_run: Some(vec!["All".to_owned()]), ..DeleteOptions::default() };
    assert!(matches!(fixture.delete("b", &dry_run).await, Ok(Deleted::Gone(_))));
    assert_eq!(names(&fixture.list(&ListOptions::default()).await.expect("listed")), ["a", "b"]);
    assert_eq!(fixture.head().await, Version(2));
}

#[tokio::test]
async fn collection_is_deleted_as_selected() {
    let fixture = Fixture::new().await;
    for i in 0..50 {
        let sent = json!({
            "metadata": {"name": format!("g{i:02}"), "labels": {"odd": (i % 2).to_string()}}, "spec": {},
        });
        fixture.create(sent).await.expect("created");
    }
    let odd = ListOptions { label_selector: Some("odd=1".to_owned()), ..ListOptions::default() };
    let options = DeleteOptions::default();
    let deleted =
        fixture.gadgets.delete_collection(&fixture.context, Some("shop"), &odd, &options).await.expect("done");
    assert_eq!(deleted.items.len(), 25);
    assert_eq!(fixture.list(&odd).await.expect("listed").items.len(), 0);
    assert_eq!(fixture.list(&ListOptions::default()).await.expect("listed").items.len(), 25);
}

#[tokio::test]
async fn exact_version_delete_removes_only_listed_objects() {
    let fixture = Fixture::new().await;
    fixture.gadget("a", 1).await;
    let then = fixture.head().await.to_string();
    fixture.gadget("b", 1).await;
    let exact = ListOptions { resource_version: Some(then), ..ListOptions::default() };
    let options = DeleteOptions::default();
    let deleted = fixture.gadgets.delete_collection(&fixture.context, Some("shop"), &exact, &options).await.unwrap();
    assert_eq!(names(&deleted), ["a"]);
    assert_eq!(names(&fixture.list(&ListOptions::default()).await.unwrap()), ["b"]);
}

#[tokio::test]
async fn collection_delete_stops_at_rejected_object() {
    let fixture = Fixture::new().await;
    for name in ["a", "b", "c", "e", "f"] {
        fixture.gadget(name, 1).await;
    }
    for name in ["d", "g"] {
        fixture.create(json!({"metadata": {"name": name}, "spec": {"project": "kept"}})).await.unwrap();
    }
    let since = fixture.head().await.0;
    let all = ListOptions::default();
    let refused =
        fixture.gadgets.delete_collection(&fixture.context, Some("shop"), &all, &DeleteOptions::default()).await;
    assert_eq!(failure(refused).0, 403);
    assert_eq!(names(&fixture.list(&all).await.unwrap()), ["d", "e", "f", "g"]);
    assert_eq!(fixture.head().await.0, since + 3);
    // A namespace that goes takes with it what it can.
    let each = fixture.gadgets.delete_each(&fixture.context, "shop", &DeleteOptions::default()).await;
    assert_eq!(each.unwrap().iter().map(ApiError::code).collect::<Vec<_>>(), [403, 403], "each that is kept is told");
    assert_eq!(names(&fixture.list(&all).await.unwrap()), ["d", "g"]);
}
