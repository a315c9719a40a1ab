//! Writes of a Scale: its number becomes the object's, as do its owners.

use super::*;
use crate::testing::{Rack, Racks};

/// A rack, which is `shop/a`, and writes to it.
struct Shop {
    racks: Arc<Store>,
    end: CancellationToken,
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl Shop {
    async fn with(shelves: i64) -> Self {
        let end = CancellationToken::new();
        let registry = Registry::builder(Arc::new(MemoryLog::new()))
            .register(ResourceDefinition::from_crd(&Rack::crd()), Racks::default())
            .end_with(end.clone())
            .build()
            .await
            .expect("the log reads");
        let racks = registry.store("test.dev", "v1", "racks").expect("registered").clone();
        let rack = json!({"metadata": {"name": "a"}, "spec": {"shelves": shelves}});
        racks.create(&by("maker"), "shop", object(rack)).await.expect("created");
        Self { racks, end }
    }

    async fn update(&self, manager: &str, target: Target, change: UpdateSource<'_>) -> Result<Arc<Stored>, ApiError> {
        let updated = self.racks.update(&by(manager), "shop", "a", target, change).await;
        updated.map(|(stored, created)| {
            assert!(!created);
            stored
        })
    }

    /// Puts a Scale that is based on a version, or on none.
    async fn scale(&self, manager: &str, replicas: i64, version: Option<&str>) -> Result<Arc<Stored>, ApiError> {
        let scale = json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": replicas},
            "metadata": {"name": "a", "namespace": "shop", "resourceVersion": version.unwrap_or_default()},
        });
        self.update(manager, Target::Scale, UpdateSource::Object(object(scale))).await
    }
}

fn by(manager: &str) -> RequestContext {
    let mut context = RequestContext::new(UserInfo::default(), Arc::new(AllowAll));
    context.field_manager = manager.to_owned();
    context
}

/// Who owns the number, and through which subresource.
fn owners(stored: &Stored) -> Vec<(String, String)> {
    let entries = value(stored)["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let owns = |entry: &&Value| entry["fieldsV1"]["f:spec"].get("f:shelves").is_some();
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    entries.iter().filter(owns).map(|entry| (text(&entry["manager"]), text(&entry["subresource"]))).collect()
}

fn owner(manager: &str, subresource: &str) -> Vec<(String, String)> {
    vec![(manager.to_owned(), subresource.to_owned())]
}

#[tokio::test]
async fn scale_sets_replicas_and_field_owner() {
    let shop = Shop::with(3).await;
    let before = shop.racks.get("shop", "a", None).await.expect("there");
    assert_eq!(owners(&before), owner("maker", ""));
    let scaled = shop.scale("scaler", 5, None).await.expect("scaled");
    assert_eq!((&value(&scaled)["spec"]["shelves"], scaled.generation()), (&json!(5), 2));
    assert_eq!(owners(&scaled), owner("scaler", "scale"));
    // Whoever does not change the number leaves it to its owner.
    let put = json!({"metadata": {"name": "a", "labels": {"k": "v"}}, "spec": {"shelves": 5}});
    let put = shop.update("scaler", Target::Main, UpdateSource::Object(object(put))).await.expect("updated");
    assert!(owners(&put).contains(&owner("scaler", "scale")[0]), "{:?}", owners(&put));
}

#[tokio::test]
async fn a_scale_that_changes_nothing_writes_nothing() {
    let shop = Shop::with(3).await;
    let scaled = shop.scale("scaler", 5, None).await.expect("scaled");
    let again = shop.scale("scaler", 5, Some(&scaled.version.to_string())).await.expect("the same");
    assert_eq!((again.version, again.json()), (scaled.version, scaled.json()));
}

#[tokio::test]
async fn a_scale_of_another_version_is_stale() {
    let shop = Shop::with(3).await;
    let first = shop.racks.get("shop", "a", None).await.expect("there").version.to_string();
    shop.scale("scaler", 5, Some(&first)).await.expect("current");
    let (code, reason, message) = failure(shop.scale("scaler", 6, Some(&first)).await);
    assert_eq!((code, reason.as_str()), (409, "Conflict"), "{message}");
    assert!(message.starts_with("Operation cannot be fulfilled on racks.test.dev \"a\": "), "{message}");
}

#[tokio::test]
async fn numbers_that_no_scale_has_are_refused() {
    let shop = Shop::with(3).await;
    for (number, detail) in
        [(-1, "should be a non-negative integer"), (1 << 31, "should be less than or equal to 2147483647")]
    {
        let message = format!("Rack.test.dev \"a\" is invalid: .spec.shelves: Invalid value: {number}: {detail}");
        assert_eq!(failure(shop.scale("scaler", number, None).await), (422, "Invalid".into(), message));
        let status = json!({"metadata": {"name": "a"}, "spec": {"shelves": 3}, "status": {"shelves": number}});
        let message = format!("Rack.test.dev \"a\" is invalid: .status.shelves: Invalid value: {number}: {detail}");
        let status = shop.update("scaler", Target::Status, UpdateSource::Object(object(status))).await;
        assert_eq!(failure(status), (422, "Invalid".into(), message));
    }
}

#[tokio::test]
async fn a_number_that_is_missing_has_to_be_given() {
    let shop = Shop::with(0).await;
    let same = UpdateSource::transform(|scale: &Object| Ok(scale.clone()));
    let message = "the spec replicas field \".spec.shelves\" cannot be empty".to_owned();
    let unchanged = shop.update("scaler", Target::Scale, same).await;
    assert_eq!(failure(unchanged), (400, "BadRequest".into(), message));
    let given = shop.scale("scaler", 2, None).await.expect("scaled");
    assert_eq!(value(&given)["spec"]["shelves"], 2);
}

#[tokio::test]
async fn what_has_no_scale_is_not_found_there() {
    let fixture = Fixture::new().await;
    fixture.gadget("a", 1).await;
    let scale = json!({"metadata": {"name": "a"}, "spec": {"replicas": 5}});
    let message = "gadgets.test.dev \"a\" not found".to_owned();
    assert_eq!(failure(fixture.put_to(Target::Scale, scale).await), (404, "NotFound".into(), message));
}
