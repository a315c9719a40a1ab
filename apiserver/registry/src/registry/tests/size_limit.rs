use stoa_log::{Entry, Lease, LogError, RecordStream, Snapshot};

use super::*;

/// A log in memory that takes no value of more than so many bytes.
#[derive(Debug)]
struct Limited {
    log: MemoryLog,
    most: usize,
}

#[async_trait]
impl Log for Limited {
    async fn append(&self, write: Write) -> Result<Version, LogError> {
        match &write.change {
            Change::Put(value) if value.len() > self.most => {
                Err(LogError::TooLarge { size: value.len(), limit: format!("{} are the limit", self.most) })
            }
            Change::Put(_) | Change::Delete => self.log.append(write).await,
        }
    }

    async fn head(&self) -> Result<Version, LogError> {
        self.log.head().await
    }

    async fn read(&self, key: &Key) -> Result<Option<Entry>, LogError> {
        self.log.read(key).await
    }

    async fn scan(&self, prefix: &str, at: Option<Version>) -> Result<Snapshot, LogError> {
        self.log.scan(prefix, at).await
    }

    async fn follow(&self, since: Version) -> Result<RecordStream, LogError> {
        self.log.follow(since).await
    }

    async fn compact(&self, before: Version) -> Result<(), LogError> {
        self.log.compact(before).await
    }

    async fn acquire(&self, name: &str, holder: &str, ttl: Duration) -> Result<Lease, LogError> {
        self.log.acquire(name, holder, ttl).await
    }

    async fn renew(&self, lease: &Lease) -> Result<(), LogError> {
        self.log.renew(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), LogError> {
        self.log.release(lease).await
    }
}

/// A gadget whose project has so many letters.
fn of_length(letters: usize) -> Value {
    let mut long = gadget("a", 1);
    long["spec"]["project"] = "p".repeat(letters).into();
    long
}

fn has_owners(stored: &Stored) -> bool {
    value(stored)["metadata"].get("managedFields").is_some()
}

async fn apply(fixture: &Fixture, configuration: Value) -> Result<Arc<Stored>, ApiError> {
    let apply = Apply { configuration: object(configuration), force: true, previous: None, finish: Box::new(Ok) };
    let change = UpdateSource::Apply(apply);
    fixture.gadgets.update(&fixture.context, "shop", "a", Target::Main, change).await.map(|(stored, _)| stored)
}

#[tokio::test]
async fn oversized_object_drops_managed_fields_unless_applied() {
    let fits = Fixture::new().await.create(of_length(100)).await.expect("created");
    let most = serde_json::to_vec(&value(&fits)).expect("it encodes").len();
    let mut fixture = Fixture::over(Arc::new(Limited { log: MemoryLog::new(), most }), Window::default()).await;
    fixture.context.field_manager = "kubectl".to_owned();
    let refused = |result| {
        let (code, reason, _) = failure::<Arc<Stored>>(result);
        assert_eq!((code, reason.as_str()), (413, "RequestEntityTooLarge"));
    };

    refused(apply(&fixture, of_length(180)).await);
    let created = fixture.create(of_length(180)).await.expect("created");
    assert!(!has_owners(&created));
    assert_eq!(created.object().0["spec"]["project"], "p".repeat(180));
    refused(fixture.create(json!({
        "apiVersion": "test.dev/v1", "kind": "Gadget", "metadata": {"name": "b"}, "spec": {"project": "p".repeat(most)},
    })).await);

    let mut labelled = of_length(180);
    labelled["metadata"]["labels"] = json!({"a": "b"});
    refused(apply(&fixture, labelled.clone()).await);
    let updated = fixture.put(labelled).await.expect("updated");
    assert!(!has_owners(&updated) && updated.label("a") == Some("b"));
}
