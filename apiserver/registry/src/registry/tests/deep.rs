//! Objects that are nested about as deeply as can be read back: whatever is stored can be.

use stoa_meta::{
    patch::{Patch, PatchType},
    request::FieldValidation,
    schema::{Format, MAX_DEPTH},
};

use super::*;
use crate::strategy::DefaultStrategy;

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "test.dev", version = "v1", kind = "Bin", namespaced)]
struct BinSpec {
    #[serde(default)]
    #[schemars(schema_with = "anything")]
    content: Value,
}

fn anything(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Another server over a log.
async fn server(log: &Arc<dyn Log>, end: &CancellationToken) -> Arc<Store> {
    let registry = Registry::builder(log.clone())
        .register(ResourceDefinition::from_crd(&Bin::crd()), DefaultStrategy::<Bin>::default())
        .end_with(end.clone())
        .build()
        .await
        .expect("the log reads");
    registry.store("test.dev", "v1", "bins").expect("registered").clone()
}

/// What the levels are of: lists, which are owned whole, or maps, whose fields have owners that are as deep.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
    Lists,
    Maps,
}

impl Of {
    fn nested(self, levels: usize) -> Value {
        (0..levels).fold(json!(1), |inner, _| match self {
            Self::Lists => json!([inner]),
            Self::Maps => json!({ "a": inner }),
        })
    }

    /// As much of a field that has to be a map.
    fn content(self, levels: usize) -> Value {
        json!({ "a": self.nested(levels - 1) })
    }
}

/// How an object comes in.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Body(Format),
    Patch,
}

/// Makes the object `a`, which waits for a finalizer, with a field of so many levels.
async fn send(
    bins: &Store,
    context: &RequestContext,
    way: Way,
    of: Of,
    levels: usize,
) -> Result<Arc<Stored>, ApiError> {
    let decode = |content: Value, format| {
        let metadata = json!({ "name": "a", "finalizers": ["test.dev/f"] });
        let bin = json!({
            "apiVersion": "test.dev/v1", "kind": "Bin", "metadata": metadata, "spec": { "content": content },
        });
        let decoded = bins.decoder().decode(bin.to_string().as_bytes(), format, FieldValidation::Strict);
        decoded.map(|decoded| decoded.object)
    };
    match way {
        Way::Body(format) => bins.create(context, "shop", decode(of.content(levels), format)?).await,
        Way::Patch => {
            bins.create(context, "shop", decode(json!({}), Format::Json)?).await.expect("created");
            // Each of the two values can be read.
            let half = levels / 2;
            let below = if of == Of::Lists { "/0" } else { "/a" }.repeat(half - 1);
            let patch = json!([
                { "op": "add", "path": "/spec/content", "value": of.content(half) },
                { "op": "replace", "path": format!("/spec/content/a{below}"), "value": of.nested(levels - half) },
            ]);
            let patch = Patch::parse(PatchType::Json, patch.to_string().as_bytes(), FieldValidation::Warn)?;
            let source = UpdateSource::transform(|current| patch.apply(current, &Value::Null));
            bins.update(context, "shop", "a", Target::Main, source).await.map(|(stored, _)| stored)
        }
    }
}

#[tokio::test]
async fn stored_objects_of_any_depth_stay_usable() {
    let user = UserInfo { name: "ann".to_owned(), ..UserInfo::default() };
    let context = RequestContext::new(user, Arc::new(AllowAll));
    for way in [Way::Body(Format::Json), Way::Body(Format::Yaml), Way::Patch] {
        for of in [Of::Lists, Of::Maps] {
            let mut kept = Vec::new();
            for levels in MAX_DEPTH - 10..MAX_DEPTH + 8 {
                let told = format!("{levels} levels of {of:?} by {way:?}");
                let (log, end): (Arc<dyn Log>, _) = (Arc::new(MemoryLog::new()), CancellationToken::new());
                let _end = end.clone().drop_guard();
                let (bins, replica) = (server(&log, &end).await, server(&log, &end).await);
                // The object and its spec are two of them.
                let stored = match send(&bins, &context, way, of, levels - 2).await {
                    Ok(stored) => stored,
                    Err(error) => {
                        assert_eq!((error.code(), error.reason()), (400, "BadRequest"), "{told}: {error:?}");
                        continue;
                    }
                };
                kept.push(levels);
                assert_eq!(stored.object().name(), "a", "{told}");
                for server in [&replica, &server(&log, &end).await] {
                    let found = server.get("shop", "a", None).await.expect(&told);
                    assert_eq!(found.object(), stored.object(), "{told}");
                }
                let label = UpdateSource::transform(|current| {
                    let mut new = current.clone();
                    new.metadata_mut().insert("labels".to_owned(), json!({ "a": "b" }));
                    Ok(new)
                });
                replica.update(&context, "shop", "a", Target::Main, label).await.expect(&told);
                let deleted = bins.delete(&context, "shop", "a", &DeleteOptions::default()).await.expect(&told);
                assert!(matches!(deleted, Deleted::Pending(_)), "{told}");
            }
            // Who owns a field is kept five levels further down than the field.
            let most = if of == Of::Lists { MAX_DEPTH } else { MAX_DEPTH - 5 };
            assert_eq!(kept, (MAX_DEPTH - 10..=most).collect::<Vec<_>>(), "{of:?} by {way:?}");
        }
    }
}
