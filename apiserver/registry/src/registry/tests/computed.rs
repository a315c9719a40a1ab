//! Computed resources: parts of gadgets, as many as a gadget is large.

use super::*;
use crate::strategy::DefaultStrategy;

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "test.dev", version = "v1", kind = "Part", namespaced)]
struct PartSpec {
    #[serde(default)]
    number: i64,
}

/// Parts have the names `<gadget>-<number>`.
#[derive(Debug, Default)]
struct Parts {
    gadgets: OnceLock<Arc<Store>>,
    /// The parts of a list, which its further pages have too.
    remembered: std::sync::Mutex<Option<(Version, Vec<Object>)>>,
}

impl Parts {
    async fn all(&self, namespace: Option<&str>) -> Result<Vec<Object>, ApiError> {
        let gadgets = self.gadgets.get().expect("set").list(namespace, &ListOptions::default()).await?;
        let mut all = Vec::new();
        for gadget in &gadgets.items {
            let size = gadget.object().0["spec"]["size"].as_i64().unwrap_or_default();
            for number in 0..size {
                let name = format!("{}-{number}", gadget.name());
                let metadata = json!({"name": name, "namespace": gadget.namespace(), "labels": {"of": gadget.name()}});
                all.push(object(json!({
                    "apiVersion": "test.dev/v1", "kind": "Part", "metadata": metadata, "spec": {"number": number},
                })));
            }
        }
        all.sort_by_key(|object| (object.namespace().to_owned(), object.name().to_owned()));
        Ok(all)
    }
}

#[async_trait]
impl Computed for Parts {
    fn bases(&self) -> Vec<(&'static str, &'static str, &'static str)> {
        vec![("test.dev", "v1", "gadgets")]
    }

    async fn get(&self, namespace: &str, name: &str) -> Result<Option<Object>, ApiError> {
        Ok(self.all(Some(namespace)).await?.into_iter().find(|object| object.name() == name))
    }

    async fn page(&self, request: PageRequest<'_>) -> Result<Vec<Object>, ApiError> {
        let PageRequest { namespace, after, most, version } = request;
        let remembered = self.remembered.lock().expect("no panic").clone().filter(|(of, _)| *of == version);
        let all = match remembered {
            Some((_, all)) => all,
            None => self.all(namespace).await?,
        };
        let is_after = |object: &Object| after.is_none_or(|after| (object.namespace(), object.name()) > after);
        Ok(all.into_iter().filter(is_after).take(most).collect())
    }

    async fn remembers(&self, _: Option<&str>, version: Version) -> bool {
        self.remembered.lock().expect("no panic").as_ref().is_some_and(|(of, _)| *of == version)
    }
}

struct World {
    gadgets: Arc<Store>,
    parts: Arc<Store>,
    computed: Arc<Parts>,
    context: RequestContext,
    end: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl World {
    async fn new() -> Self {
        let (end, computed) = (CancellationToken::new(), Arc::new(Parts::default()));
        let registry = Registry::builder(Arc::new(MemoryLog::new()))
            .register(ResourceDefinition::from_crd(&Gadget::crd()).selectable(FIELDS), Gadgets)
            .register_computed(
                ResourceDefinition::from_crd(&Part::crd()),
                DefaultStrategy::<Part>::default(),
                computed.clone(),
            )
            .bookmark_interval(Duration::from_secs(60))
            .end_with(end.clone())
            .build()
            .await
            .expect("the log reads");
        let store = |plural| registry.store("test.dev", "v1", plural).expect("registered").clone();
        computed.gadgets.get_or_init(|| store("gadgets"));
        let context = RequestContext::internal("test");
        Self { gadgets: store("gadgets"), parts: store("parts"), computed, context, end }
    }

    async fn gadget(&self, namespace: &str, name: &str, size: i64) {
        self.gadgets.create(&self.context, namespace, object(gadget(name, size))).await.expect("created");
    }

    async fn resize(&self, name: &str, size: i64) {
        let change = UpdateSource::Object(object(gadget(name, size)));
        self.gadgets.update(&self.context, "shop", name, Target::Main, change).await.expect("updated");
    }

    async fn list(&self, options: ListOptions) -> List {
        self.parts.list(Some("shop"), &options).await.expect("a list")
    }
}

#[tokio::test]
async fn computed_objects_are_read_and_selected() {
    let world = World::new().await;
    world.gadget("shop", "a", 2).await;
    world.gadget("shop", "b", 1).await;
    world.gadget("other", "c", 1).await;
    assert_eq!(names(&world.list(ListOptions::default()).await), ["a-0", "a-1", "b-0"]);
    let all = world.parts.list(None, &ListOptions::default()).await.expect("a list");
    assert_eq!(names(&all), ["c-0", "a-0", "a-1", "b-0"], "other comes before shop");
    let of_b = ListOptions { label_selector: Some("of=b".to_owned()), ..ListOptions::default() };
    assert_eq!(names(&world.list(of_b).await), ["b-0"]);
    let found = world.parts.get("shop", "a-1", None).await.expect("found");
    assert_eq!(found.object().0["spec"]["number"], 1);
    assert_eq!(failure(world.parts.get("shop", "a-2", None).await).0, 404);
}

#[tokio::test]
async fn store_knows_its_namespaces() {
    let world = World::new().await;
    assert_eq!(world.gadgets.namespaces(), [] as [&str; 0]);
    for (namespace, name) in [("shop", "b"), ("a-b", "a"), ("shop", "a"), ("a", "z"), ("shop0", "a")] {
        world.gadget(namespace, name, 1).await;
    }
    assert_eq!(world.gadgets.namespaces(), ["a", "a-b", "shop", "shop0"]);
}

#[tokio::test]
async fn pages_of_computed_objects_join_up() {
    let world = World::new().await;
    world.gadget("shop", "a", 7).await;
    let mut options = ListOptions { limit: Some(3), ..ListOptions::default() };
    let mut found = Vec::new();
    loop {
        let page = world.list(options.clone()).await;
        found.push(names(&page).into_iter().map(str::to_owned).collect::<Vec<_>>());
        options.continue_token = page.continue_token;
        if options.continue_token.is_none() {
            break;
        }
    }
    assert_eq!(found, [vec!["a-0", "a-1", "a-2"], vec!["a-3", "a-4", "a-5"], vec!["a-6"]]);
    // The objects of an earlier page may be others by now.
    let page = world.list(ListOptions { limit: Some(3), ..ListOptions::default() }).await;
    world.resize("a", 9).await;
    options.continue_token = page.continue_token;
    assert_eq!(failure(world.parts.list(Some("shop"), &options).await).0, 410);
}

#[tokio::test]
async fn remembered_list_goes_on_after_a_change() {
    let world = World::new().await;
    world.gadget("shop", "a", 4).await;
    let page = world.list(ListOptions { limit: Some(3), ..ListOptions::default() }).await;
    let all = world.computed.all(Some("shop")).await.expect("all");
    *world.computed.remembered.lock().expect("no panic") = Some((page.version, all));
    world.resize("a", 5).await;
    let options = ListOptions { limit: Some(3), continue_token: page.continue_token, ..ListOptions::default() };
    let last = world.list(options).await;
    assert_eq!((names(&last), last.version), (vec!["a-3"], page.version), "as the list began");
    // A watch from the list gets the changes after it.
    let options = WatchOptions { resource_version: Some(page.version.to_string()), ..WatchOptions::default() };
    let mut events = world.parts.watch(Some("shop"), &options).await.expect("a watch");
    assert!(matches!(next(&mut events).await, Some(Event::Added(part)) if part.name() == "a-4"));
}

#[tokio::test]
async fn watch_reports_differences_of_computed_objects() {
    let world = World::new().await;
    world.gadget("shop", "a", 1).await;
    let list = world.list(ListOptions::default()).await;
    let options = WatchOptions { resource_version: Some(list.version.to_string()), ..WatchOptions::default() };
    let mut events = world.parts.watch(Some("shop"), &options).await.expect("a watch");
    world.resize("a", 3).await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        match next(&mut events).await.expect("an event") {
            Event::Added(part) => seen.push(part.name().to_owned()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, ["a-1", "a-2"]);
    world.gadgets.delete(&world.context, "shop", "a", &DeleteOptions::default()).await.expect("deleted");
    let mut gone = Vec::new();
    for _ in 0..3 {
        match next(&mut events).await.expect("an event") {
            Event::Deleted(part) => gone.push(part.name().to_owned()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(gone, ["a-0", "a-1", "a-2"]);
    // A watch from before a change cannot tell what has changed.
    let mut events = world.parts.watch(Some("shop"), &options).await.expect("a watch");
    assert!(matches!(next(&mut events).await, Some(Event::Error(error)) if error.code() == 410));
    let initial = WatchOptions::default();
    world.gadget("shop", "b", 1).await;
    let mut events = world.parts.watch(Some("shop"), &initial).await.expect("a watch");
    assert!(matches!(next(&mut events).await, Some(Event::Added(part)) if part.name() == "b-0"));
}
