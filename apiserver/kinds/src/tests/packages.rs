//! Package revisions and the view of their files, with repositories that remember calls.

use std::{
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicUsize, Ordering},
};

use futures_util::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use stoa_machinery::{
    auth::AllowAll,
    registry::{DeleteOptions, Event, ListOptions, Store, WatchOptions},
};
use stoa_types::porch::{EvalTask, Lifecycle, PackageContent, PackageRevision};

use super::*;
use crate::package_repositories::{Content, PackageRepositories, Packages};
use crate::{hub::memory::Hub, scheduler::fleets::Fleets};

/// Keeps the contents, and the names of the calls.
#[derive(Debug, Default)]
struct Remembering {
    contents: Mutex<HashMap<String, Content>>,
    digests: AtomicUsize,
    calls: Mutex<Vec<String>>,
    /// The digests of contents that cannot be read.
    lost: Mutex<Vec<String>>,
}

impl Remembering {
    fn store(&self, revision: &mut PackageRevision, content: Content) {
        let digest = format!("digest {}", self.digests.fetch_add(1, Ordering::SeqCst));
        self.contents.lock().insert(digest.clone(), content);
        revision.status.get_or_insert_default().content = Some(PackageContent { digest, files: None });
    }

    fn note(&self, call: impl Into<String>) {
        self.calls.lock().push(call.into());
    }
}

#[async_trait]
impl PackageRepositories for Remembering {
    async fn create(&self, _: &RequestContext, revision: &mut PackageRevision) -> Result<(), ApiError> {
        self.note("create");
        let resources = BTreeMap::from([("Kptfile".to_owned(), "kind: Kptfile\n".to_owned())]);
        self.store(revision, Content { resources, ..Content::default() });
        Ok(())
    }

    async fn content(&self, revision: &PackageRevision) -> Result<Content, ApiError> {
        let content = revision.status.as_ref().and_then(|status| status.content.clone()).unwrap_or_default();
        if self.lost.lock().contains(&content.digest) {
            return Err(ApiError::internal("the document is lost"));
        }
        Ok(self.contents.lock().get(&content.digest).cloned().unwrap_or_default())
    }

    async fn save(&self, _: &RequestContext, content: Content, revision: &mut PackageRevision) -> Result<(), ApiError> {
        self.note("save");
        self.store(revision, content);
        Ok(())
    }

    async fn evaluate(&self, _: &RequestContext, task: &EvalTask, _: &mut PackageRevision) -> Result<(), ApiError> {
        self.note(format!("evaluate {}", task.image));
        Ok(())
    }

    async fn change_lifecycle(
        &self,
        _: &RequestContext,
        new: &mut PackageRevision,
        old: &PackageRevision,
    ) -> Result<(), ApiError> {
        self.note(format!("{} to {}", old.spec.lifecycle.name(), new.spec.lifecycle.name()));
        new.spec.revision = 1;
        Ok(())
    }

    async fn remove(&self, _: &RequestContext, _: &PackageRevision) -> Result<(), ApiError> {
        self.note("remove");
        Ok(())
    }
}

struct Shop {
    registry: Arc<Registry>,
    packages: Arc<Remembering>,
}

const NAME: &str = "blueprints.network.basens.v1";

impl Shop {
    /// A registry with a repository in the namespace `shop`.
    async fn new() -> Self {
        let lookup = Lookup::default();
        let cluster: Arc<dyn crate::cluster::Cluster> = Arc::new(StandaloneCluster { lookup: lookup.clone() });
        let packages = Arc::<Remembering>::default();
        let surroundings = Surroundings {
            lookup: lookup.clone(),
            cluster,
            packages: Packages::of(packages.clone()),
            fleets: Fleets::default(),
            hub: Hub::default(),
        };
        let builder = Registry::builder(Arc::new(MemoryLog::default()));
        let builder = core_v1::register(register(builder, &surroundings, |_, definition| definition));
        let registry = lookup.build(builder).await.unwrap();
        let shop = Self { registry, packages };
        let namespace = json!({"metadata": {"name": "shop"}});
        shop.registry.store("", "v1", "namespaces").unwrap().create(&user(), "", object(namespace)).await.unwrap();
        let git = json!({"repo": "https://git.example.com/r.git", "branch": "main"});
        let repository =
            json!({"metadata": {"name": "blueprints"}, "spec": {"type": "git", "content": "Package", "git": git}});
        let store = shop.registry.store("config.porch.kpt.dev", "v1alpha1", "repositories").unwrap();
        store.create(&user(), "shop", object(repository)).await.unwrap();
        shop
    }

    fn revisions(&self) -> &Arc<Store> {
        self.registry.store("porch.kpt.dev", "v1alpha1", "packagerevisions").unwrap()
    }

    fn resources(&self) -> &Arc<Store> {
        self.registry.store("porch.kpt.dev", "v1alpha1", "packagerevisionresources").unwrap()
    }

    async fn create(&self, spec: Value) -> Result<Object, ApiError> {
        self.create_as(&user(), spec).await
    }

    async fn create_as(&self, context: &RequestContext, spec: Value) -> Result<Object, ApiError> {
        let mut whole = json!({"repository": "blueprints", "packageName": "network/basens", "workspaceName": "v1"});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let sent = object(json!({"metadata": {"name": "any"}, "spec": whole}));
        Ok(self.revisions().create(context, "shop", sent).await?.object())
    }

    async fn set_lifecycle(&self, lifecycle: Lifecycle, target: Target) -> Result<Object, ApiError> {
        self.set_lifecycle_as(&user(), lifecycle, target).await
    }

    async fn set_lifecycle_as(
        &self,
        context: &RequestContext,
        lifecycle: Lifecycle,
        target: Target,
    ) -> Result<Object, ApiError> {
        let change = UpdateSource::transform(move |current| {
            let mut object = current.clone();
            object.0["spec"]["lifecycle"] = lifecycle.name().into();
            Ok(object)
        });
        Ok(self.revisions().update(context, "shop", NAME, target, change).await?.0.object())
    }

    async fn write(&self, path: &'static str, based_on: &str) -> Result<Object, ApiError> {
        self.write_as(&user(), path, based_on).await
    }

    async fn write_as(&self, context: &RequestContext, path: &'static str, based_on: &str) -> Result<Object, ApiError> {
        let mut sent = self.resources().get("shop", NAME, None).await?.object();
        sent.0["spec"]["resources"][path] = "text".into();
        sent.metadata_mut().insert("resourceVersion".to_owned(), based_on.into());
        let source = UpdateSource::Object(sent);
        Ok(self.resources().update(context, "shop", NAME, Target::Main, source).await?.0.object())
    }

    async fn register(&self, name: &str, spec: Value) -> Result<Object, ApiError> {
        let git = json!({"repo": format!("https://git.example.com/{name}.git"), "branch": "main"});
        let mut whole = json!({"type": "git", "content": "Package", "git": git});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let store = self.registry.store("config.porch.kpt.dev", "v1alpha1", "repositories").unwrap();
        let sent = object(json!({"metadata": {"name": name}, "spec": whole}));
        Ok(store.create(&user(), "shop", sent).await?.object())
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.packages.calls.lock())
    }
}

fn user() -> RequestContext {
    let user = UserInfo { name: "ann".to_owned(), ..UserInfo::default() };
    RequestContext::new(user, Arc::new(AllowAll))
}

fn object(value: Value) -> Object {
    let Value::Object(object) = value else { panic!("an object") };
    Object(object)
}

const APPROVAL: Target = Target::Part("approval");

#[tokio::test]
async fn revision_is_named_by_the_server() {
    let shop = Shop::new().await;
    let created = shop.create(json!({})).await.unwrap();
    assert_eq!(created.name(), NAME);
    assert_eq!(created.get_path(&["spec", "lifecycle"]), Some(&json!("Draft")));
    let again =
        shop.create(json!({"tasks": [{"type": "edit", "edit": {"sourceRef": {"name": NAME}}}]})).await.unwrap_err();
    assert_eq!((again.code(), again.reason()), (409, "AlreadyExists"));
    assert_eq!(shop.calls(), ["create"], "the name is checked before the task");
}

#[tokio::test]
async fn dry_run_makes_no_content() {
    let shop = Shop::new().await;
    let mut context = user();
    context.dry_run = true;
    let spec = json!({"repository": "blueprints", "packageName": "a", "workspaceName": "v1"});
    let sent = object(json!({"metadata": {}, "spec": spec}));
    shop.revisions().create(&context, "shop", sent).await.unwrap();
    assert!(shop.calls().is_empty());
    assert!(shop.revisions().list(None, &ListOptions::default()).await.unwrap().items.is_empty());
}

/// A revision that is cloned from an address.
fn cloned(repo: &str) -> Value {
    let git = json!({"repo": repo, "ref": "main", "directory": "a"});
    json!({"tasks": [{"type": "clone", "clone": {"upstreamRef": {"type": "git", "git": git}}}]})
}

#[tokio::test]
async fn addresses_with_tokens_are_not_registered() {
    let shop = Shop::new().await;
    let store = shop.registry.store("config.porch.kpt.dev", "v1alpha1", "repositories").unwrap();
    for (name, repo, is_valid) in [
        ("token", "https://token@git.example.com/other.git", false),
        ("query", "https://git.example.com/other.git?token=a", false),
        ("ssh", "ssh://git@git.example.com/other.git", true),
    ] {
        let git = json!({"repo": repo, "branch": "main"});
        let sent = json!({"metadata": {"name": name}, "spec": {"type": "git", "content": "Package", "git": git}});
        let created = store.create(&user(), "shop", object(sent)).await.map_err(|error| error.code());
        assert_eq!(created.map(drop), if is_valid { Ok(()) } else { Err(422) }, "{repo}");
    }
}

#[tokio::test]
async fn invalid_revisions_are_rejected() {
    let shop = Shop::new().await;
    for (spec, code) in [
        (json!({"repository": "missing"}), 404),
        (json!({"packageName": "../a"}), 422),
        (json!({"workspaceName": ""}), 422),
        (json!({"lifecycle": "Published"}), 422),
        (json!({"tasks": [{"type": "init"}, {"type": "init"}]}), 422),
        (json!({"tasks": [{"type": "eval"}]}), 422),
        (json!({"tasks": [{"type": "clone", "clone": {"upstreamRef": {}}}]}), 422),
        (cloned("https://token@git.example.com/r.git"), 422),
        (cloned("https://git.example.com/r.git?token=a"), 422),
        (cloned(""), 422),
    ] {
        assert_eq!(shop.create(spec.clone()).await.unwrap_err().code(), code, "{spec}");
    }
    shop.create(json!({})).await.unwrap();
    let second = shop.create(json!({"workspaceName": "v2", "tasks": [{"type": "init"}]})).await.unwrap_err();
    assert!(second.message().contains("use a task of type edit or upgrade"), "{}", second.message());
}

#[tokio::test]
async fn lifecycle_follows_the_rules_of_porch() {
    use Lifecycle::{DeletionProposed, Draft, Proposed, Published};
    let shop = Shop::new().await;
    shop.create(json!({})).await.unwrap();
    assert_eq!(shop.set_lifecycle(Published, APPROVAL).await.unwrap_err().code(), 422);
    shop.set_lifecycle(Proposed, Target::Main).await.unwrap();
    assert_eq!(shop.set_lifecycle(Published, Target::Main).await.unwrap_err().code(), 422);
    shop.set_lifecycle(Draft, APPROVAL).await.unwrap();
    shop.set_lifecycle(Proposed, Target::Main).await.unwrap();
    assert_eq!(shop.calls(), ["create"], "drafts are pushed later");
    let published = shop.set_lifecycle(Published, APPROVAL).await.unwrap();
    assert_eq!(published.get_path(&["spec", "revision"]), Some(&json!(1)));
    assert_eq!(shop.set_lifecycle(Draft, APPROVAL).await.unwrap_err().code(), 422);
    let options = DeleteOptions::default();
    let refused = shop.revisions().delete(&user(), "shop", NAME, &options).await.unwrap_err();
    assert_eq!(refused.code(), 403, "{}", refused.message());
    shop.set_lifecycle(DeletionProposed, Target::Main).await.unwrap();
    shop.set_lifecycle(Published, Target::Main).await.unwrap();
    shop.set_lifecycle(DeletionProposed, APPROVAL).await.unwrap();
    shop.revisions().delete(&user(), "shop", NAME, &options).await.unwrap();
    let calls = shop.calls();
    assert_eq!(calls[0], "Proposed to Published");
    assert_eq!(
        calls[1..],
        ["Published to DeletionProposed", "DeletionProposed to Published", "Published to DeletionProposed", "remove"]
    );
}

#[tokio::test]
async fn users_write_no_field_of_the_server() {
    let shop = Shop::new().await;
    shop.create(json!({})).await.unwrap();
    for (field, value) in [
        ("revision", json!(7)),
        ("packageName", json!("other")),
        ("readinessGates", json!([{"conditionType": "A"}])),
        ("tasks", json!([{"type": "init"}])),
    ] {
        let change = UpdateSource::transform(|current| {
            let mut object = current.clone();
            object.0["spec"][field] = value.clone();
            Ok(object)
        });
        let refused = shop.revisions().update(&user(), "shop", NAME, Target::Main, change).await;
        assert_eq!(refused.unwrap_err().code(), 422, "{field}");
    }
    let label = UpdateSource::transform(|current| {
        let mut object = current.clone();
        object.metadata_mut().insert("labels".to_owned(), json!({"kpt.dev/latest-revision": "true"}));
        Ok(object)
    });
    let refused = shop.revisions().update(&user(), "shop", NAME, Target::Main, label).await;
    assert_eq!(refused.unwrap_err().code(), 422);
}

#[tokio::test]
async fn view_shares_the_version_of_its_revision() {
    let shop = Shop::new().await;
    let created = shop.create(json!({})).await.unwrap();
    let viewed = shop.resources().get("shop", NAME, None).await.unwrap().object();
    assert_eq!(viewed.meta_str("resourceVersion"), created.meta_str("resourceVersion"));
    assert_eq!(viewed.meta_str("uid"), created.meta_str("uid"));
    assert_eq!(viewed.get_path(&["spec", "resources", "Kptfile"]), Some(&json!("kind: Kptfile\n")));
    let written = shop.write("a.yaml", viewed.meta_str("resourceVersion")).await.unwrap();
    let revision = shop.revisions().get("shop", NAME, None).await.unwrap().object();
    assert_eq!(written.meta_str("resourceVersion"), revision.meta_str("resourceVersion"));
    assert_eq!(written.get_path(&["spec", "resources", "a.yaml"]), Some(&json!("text")));
    let options = ListOptions { field_selector: Some("spec.lifecycle=Draft".to_owned()), ..ListOptions::default() };
    assert_eq!(shop.resources().list(Some("shop"), &options).await.unwrap().items.len(), 1);
    assert_eq!(shop.resources().get("shop", "missing", None).await.unwrap_err().code(), 404);
}

#[tokio::test]
async fn save_conflicts_only_with_another_save() {
    let shop = Shop::new().await;
    let version = shop.create(json!({})).await.unwrap().meta_str("resourceVersion").to_owned();
    let label = UpdateSource::transform(|current| {
        let mut object = current.clone();
        object.metadata_mut().insert("annotations".to_owned(), json!({"a": "b"}));
        Ok(object)
    });
    shop.revisions().update(&user(), "shop", NAME, Target::Main, label).await.unwrap();
    shop.write("a.yaml", &version).await.unwrap();
    assert_eq!(shop.write("b.yaml", &version).await.unwrap_err().code(), 409);
}

#[tokio::test]
async fn view_of_a_proposal_is_immutable() {
    let shop = Shop::new().await;
    shop.create(json!({})).await.unwrap();
    shop.set_lifecycle(Lifecycle::Proposed, Target::Main).await.unwrap();
    assert_eq!(shop.write("a.yaml", "").await.unwrap_err().code(), 403);
}

#[tokio::test]
async fn watch_of_the_view_reports_changed_files() {
    let shop = Shop::new().await;
    shop.create(json!({})).await.unwrap();
    let mut events = shop.resources().watch(Some("shop"), &WatchOptions::default()).await.unwrap();
    assert!(matches!(events.next().await, Some(Event::Added(_))));
    shop.write("a.yaml", "").await.unwrap();
    shop.set_lifecycle(Lifecycle::Proposed, Target::Main).await.unwrap();
    let Some(Event::Modified(seen)) = events.next().await else { panic!("a change") };
    assert_eq!(seen.object().get_path(&["spec", "resources", "a.yaml"]), Some(&json!("text")));
    assert!(events.next().now_or_never().is_none(), "a proposal changes no file");
}

#[tokio::test]
async fn unreadable_revision_hides_no_other() {
    let shop = Shop::new().await;
    shop.create(json!({})).await.unwrap();
    shop.create(json!({"packageName": "other"})).await.unwrap();
    shop.packages.lost.lock().push("digest 0".to_owned());
    let error = json!("Internal error occurred: the document is lost");
    let listed = shop.resources().list(Some("shop"), &ListOptions::default()).await.unwrap().items;
    let errors: Vec<_> =
        listed.iter().map(|item| item.object().get_path(&["status", "renderStatus", "error"]).cloned()).collect();
    assert_eq!(errors, [Some(error.clone()), None]);
    let mut events = shop.resources().watch(Some("shop"), &WatchOptions::default()).await.unwrap();
    for expected in [Some(&error), None] {
        let Some(Event::Added(seen)) = events.next().await else { panic!("an object") };
        assert_eq!(seen.object().get_path(&["status", "renderStatus", "error"]), expected);
    }
    assert_eq!(shop.resources().get("shop", NAME, None).await.unwrap_err().code(), 500);
    let written = UpdateSource::transform(|current| Ok(current.clone()));
    let refused = shop.resources().update(&user(), "shop", NAME, Target::Main, written).await.unwrap_err();
    assert_eq!(refused.code(), 500);
}

const EDIT: &str = "edit repositories blueprints";

#[tokio::test]
async fn edit_and_clone_are_verbs_on_the_repository() {
    let shop = Shop::new().await;
    shop.create(json!({})).await.unwrap();
    let own = json!({"packageName": "own"});
    let copy = json!({
        "packageName": "copy",
        "tasks": [{"type": "clone", "clone": {"upstreamRef": {"upstreamRef": {"name": NAME}}}}],
    });
    let code = |allowed: &'static [&'static str], spec: &Value| {
        let (shop, spec) = (&shop, spec.clone());
        async move { shop.create_as(&by("ann", allowed), spec).await.map(drop).map_err(|error| error.code()) }
    };
    assert_eq!(code(&[], &own).await, Err(403));
    assert_eq!(code(&["edit repositories other"], &own).await, Err(403));
    assert_eq!(code(&[EDIT], &own).await, Ok(()));
    assert_eq!(code(&[EDIT], &copy).await, Err(403));
    assert_eq!(code(&[EDIT, "clone repositories blueprints"], &copy).await, Ok(()));
    let reference = json!({"name": NAME});
    let upgrade = json!({"newUpstreamRef": reference, "localPackageRevisionRef": reference});
    let next = json!({"workspaceName": "v2", "tasks": [{"type": "upgrade", "upgrade": upgrade}]});
    assert_eq!(code(&[EDIT], &next).await, Ok(()), "a newer revision of the package itself");
    let saved = shop.write_as(&by("ann", &[]), "a.yaml", "").await;
    assert_eq!(saved.unwrap_err().code(), 403);
    shop.write_as(&by("ann", &[EDIT]), "a.yaml", "").await.unwrap();
}

#[tokio::test]
async fn function_is_evaluated_for_users_who_may_edit_files() {
    const UPDATE: &str = "update packagerevisionresources blueprints.network.basens.v1";
    let shop = Shop::new().await;
    shop.create(json!({})).await.unwrap();
    shop.calls();
    let evaluate = |allowed: &'static [&'static str], dry_run: bool| {
        let change = UpdateSource::transform(|current| {
            let mut object = current.clone();
            object.0["spec"]["tasks"] = json!([{"type": "eval", "eval": {"image": "set-labels:v0.2.0"}}]);
            Ok(object)
        });
        let mut context = by("bob", allowed);
        context.dry_run = dry_run;
        let revisions = shop.revisions();
        async move {
            let updated = revisions.update(&context, "shop", NAME, Target::Main, change).await;
            updated.map(|(stored, _)| stored.object()).map_err(|error| error.code())
        }
    };
    assert_eq!(evaluate(&[EDIT], false).await, Err(403));
    assert_eq!(evaluate(&[UPDATE], false).await, Err(403));
    evaluate(&[EDIT, UPDATE], true).await.unwrap();
    assert!(shop.calls().is_empty(), "neither a rejected update nor a dry run calls a function");
    let evaluated = evaluate(&[EDIT, UPDATE], false).await.unwrap();
    assert_eq!(shop.calls(), ["evaluate set-labels:v0.2.0"]);
    assert_eq!(evaluated.get_path(&["status", "changedBy"]).unwrap()[1]["name"], "bob", "an author");
    // A later write is no further run.
    shop.set_lifecycle(Lifecycle::Proposed, Target::Main).await.unwrap();
    assert!(shop.calls().is_empty());
}

#[tokio::test]
async fn another_server_gets_a_secret_only_by_leave() {
    let shop = Shop::new().await;
    let secret = json!({"name": "registry"});
    let store = shop.registry.store("config.porch.kpt.dev", "v1alpha1", "repositories").unwrap();
    let oci = json!({"registry": "registry.example.com/functions", "secretRef": secret});
    let functions = json!({"type": "oci", "content": "Function", "oci": oci});
    let functions = object(json!({"metadata": {"name": "functions"}, "spec": functions}));
    store.create(&user(), "shop", functions).await.unwrap();
    let upstream = json!({"git": {"repo": "https://git.example.com/u.git", "branch": "main", "secretRef": secret}});
    shop.register("copies", json!({ "upstream": upstream })).await.unwrap();
    let lead = |allowed: &'static [&'static str], name: &'static str, pointer: &'static str, address: &'static str| {
        let change = UpdateSource::transform(move |current| {
            let mut whole = Value::Object(current.0.clone());
            *whole.pointer_mut(pointer).unwrap() = address.into();
            Ok(object(whole))
        });
        async move {
            let updated = store.update(&by("bob", allowed), "shop", name, Target::Main, change).await;
            updated.map(drop).map_err(|error| error.code())
        }
    };
    for (name, pointer, address) in [
        ("functions", "/spec/oci/registry", "registry.example.net/functions"),
        ("copies", "/spec/upstream/git/repo", "https://git.example.net/u.git"),
    ] {
        assert_eq!(lead(&[], name, pointer, address).await, Err(403), "{name}");
        assert_eq!(lead(&["use secrets registry"], name, pointer, address).await, Ok(()), "{name}");
    }
}

#[tokio::test]
async fn new_owner_of_a_revision_needs_the_verb_edit() {
    let shop = Shop::new().await;
    shop.create(json!({})).await.unwrap();
    let label = |allowed: &'static [&'static str], key: &'static str| {
        let revisions = shop.registry.api::<PackageRevision>().with_context(by("bob", allowed));
        let change = move |revision: &mut PackageRevision| {
            revision.metadata.labels.get_or_insert_default().insert(key.to_owned(), "7".to_owned());
        };
        async move { revisions.update_with("shop", NAME, change).await.map(drop).map_err(|error| error.code()) }
    };
    assert_eq!(label(&[], "team").await, Ok(()));
    let owner = crate::package_variant::OWNER_LABEL;
    assert_eq!(label(&[], owner).await, Err(403), "the controller of variants deletes what it owns");
    assert_eq!(label(&[EDIT], owner).await, Ok(()));
}

#[tokio::test]
async fn authors_cannot_approve_without_approve_own() {
    let shop = Shop::new().await;
    let approver: &[&str] = &["approve repositories blueprints"];
    shop.create_as(&by("ann", &[EDIT]), json!({})).await.unwrap();
    shop.write_as(&by("bob", &[EDIT]), "a.yaml", "").await.unwrap();
    let proposed = shop.set_lifecycle_as(&by("ann", &[EDIT]), Lifecycle::Proposed, Target::Main).await.unwrap();
    let authors = proposed.get_path(&["status", "changedBy"]).and_then(Value::as_array).unwrap();
    assert_eq!(authors.iter().map(|author| &author["name"]).collect::<Vec<_>>(), ["bob", "ann"]);
    for author in ["ann", "bob"] {
        let refused = shop.set_lifecycle_as(&by(author, approver), Lifecycle::Published, APPROVAL).await.unwrap_err();
        assert!(refused.code() == 403 && refused.message().contains("\"approve-own\""), "{}", refused.message());
    }
    let refused = shop.set_lifecycle_as(&by("eve", &[EDIT]), Lifecycle::Published, APPROVAL).await.unwrap_err();
    assert_eq!(refused.code(), 403, "{}", refused.message());
    shop.set_lifecycle_as(&by("eve", approver), Lifecycle::Published, APPROVAL).await.unwrap();
    // The deletion waits for somebody else than its author, too.
    shop.set_lifecycle_as(&by("eve", &[EDIT]), Lifecycle::DeletionProposed, Target::Main).await.unwrap();
    let delete = |allowed: &'static [&'static str], user: &'static str| {
        let shop = &shop;
        async move {
            let options = DeleteOptions::default();
            shop.revisions().delete(&by(user, allowed), "shop", NAME, &options).await.map(drop)
        }
    };
    assert_eq!(delete(&[EDIT], "eve").await.unwrap_err().code(), 403);
    delete(&[EDIT], "ann").await.unwrap();
}

#[tokio::test]
async fn unrendered_package_is_not_published() {
    let shop = Shop::new().await;
    shop.create(json!({})).await.unwrap();
    shop.set_lifecycle(Lifecycle::Proposed, Target::Main).await.unwrap();
    let revisions = shop.registry.api::<PackageRevision>();
    let set = |status: &'static str| {
        let revisions = revisions.clone();
        async move {
            let change = |revision: &mut PackageRevision| {
                let rendered = stoa_types::porch::PackageCondition {
                    type_: "Rendered".to_owned(),
                    status: status.to_owned(),
                    ..Default::default()
                };
                revision.status.get_or_insert_default().conditions = vec![rendered];
            };
            revisions.update_status_with("shop", NAME, change).await.unwrap();
        }
    };
    for status in ["Unknown", "False"] {
        set(status).await;
        let refused = shop.set_lifecycle(Lifecycle::Published, APPROVAL).await.unwrap_err();
        assert!(refused.code() == 409 && refused.message().contains("functions"), "{}", refused.message());
    }
    set("True").await;
    shop.set_lifecycle(Lifecycle::Published, APPROVAL).await.unwrap();
}

#[tokio::test]
async fn readers_repository_takes_no_changes() {
    let shop = Shop::new().await;
    shop.register("catalog", json!({"readOnly": true})).await.unwrap();
    let refused = shop.create(json!({"repository": "catalog"})).await.unwrap_err();
    assert!(refused.code() == 403 && refused.message().contains("spec.readOnly"), "{}", refused.message());
    let both = json!({"readOnly": true, "git": {"repo": "https://git.example.com/a.git", "createBranch": true}});
    assert_eq!(shop.register("both", both).await.unwrap_err().code(), 422);
}

#[tokio::test]
async fn registry_takes_changes_of_packages_unless_it_is_for_reading() {
    let shop = Shop::new().await;
    let store = shop.registry.store("config.porch.kpt.dev", "v1alpha1", "repositories").unwrap();
    let register = |name: &'static str, read_only: bool| {
        let oci = json!({"registry": format!("registry.example.com/{name}")});
        let spec = json!({"type": "oci", "content": "Package", "readOnly": read_only, "oci": oci});
        object(json!({"metadata": {"name": name}, "spec": spec}))
    };
    for (name, read_only) in [("catalog", true), ("own", false)] {
        store.create(&user(), "shop", register(name, read_only)).await.unwrap();
    }
    shop.create(json!({"repository": "own"})).await.unwrap();
    let created = shop.create(json!({"repository": "catalog"})).await.unwrap_err();
    let context = RequestContext::internal("test").with_status();
    let found = json!({
        "metadata": {"name": "catalog.web.v1", "namespace": "shop"},
        "spec": {"repository": "catalog", "packageName": "web", "workspaceName": "v1", "revision": 1, "lifecycle": "Published"},
    });
    let found: PackageRevision = serde_json::from_value(found).unwrap();
    shop.registry.api::<PackageRevision>().with_context(context).create(&found).await.unwrap();
    let users = shop.registry.api::<PackageRevision>().with_context(user());
    let deleted = users.delete("shop", "catalog.web.v1", &DeleteOptions::default()).await.unwrap_err();
    let propose = |revision: &mut PackageRevision| revision.spec.lifecycle = Lifecycle::DeletionProposed;
    let proposed = users.update_with("shop", "catalog.web.v1", propose).await.unwrap_err();
    for refused in [created, deleted, proposed] {
        assert!(refused.code() == 403 && refused.message().contains("spec.readOnly"), "{}", refused.message());
    }
}

#[tokio::test]
async fn clone_without_upstream_uses_that_of_the_repository() {
    let shop = Shop::new().await;
    shop.create(json!({})).await.unwrap();
    shop.set_lifecycle(Lifecycle::Proposed, Target::Main).await.unwrap();
    shop.set_lifecycle(Lifecycle::Published, APPROVAL).await.unwrap();
    shop.register("named", json!({"upstream": {"repositoryRef": {"name": "blueprints"}}})).await.unwrap();
    let repo = "https://git.example.com/upstream.git";
    let git = json!({"repo": repo, "branch": "trunk", "directory": "catalog"});
    shop.register("addressed", json!({"upstream": {"git": git}})).await.unwrap();
    let upstream = |created: Object| created.0["spec"]["tasks"][0]["clone"]["upstreamRef"].clone();
    let clone = |clone: Value| json!([{"type": "clone", "clone": clone}]);
    let created = shop.create(json!({"repository": "named", "tasks": clone(json!({}))})).await.unwrap();
    assert_eq!(upstream(created)["upstreamRef"]["name"], NAME);
    let folder = clone(json!({"upstreamRef": {"git": {"directory": "/network/basens"}}}));
    let created = shop.create(json!({"repository": "named", "packageName": "other", "tasks": folder})).await.unwrap();
    assert_eq!(upstream(created)["upstreamRef"]["name"], NAME);
    let missing = json!({"repository": "named", "packageName": "missing", "tasks": clone(json!({}))});
    assert_eq!(shop.create(missing).await.unwrap_err().code(), 422);
    let created = shop.create(json!({"repository": "addressed", "tasks": clone(json!({}))})).await.unwrap();
    let expected = json!({"repo": repo, "ref": "trunk", "directory": "catalog/network/basens"});
    assert_eq!(upstream(created)["git"], expected);
    for (upstream, name) in [
        (json!({}), "none"),
        (json!({"repositoryRef": {"name": "self"}}), "self"),
        (json!({"git": {"repo": ""}}), "empty"),
    ] {
        assert_eq!(shop.register(name, json!({ "upstream": upstream })).await.unwrap_err().code(), 422, "{name}");
    }
}

#[tokio::test]
async fn update_by_types_of_porch_keeps_other_fields() {
    let shop = Shop::new().await;
    shop.create(cloned("https://git.example.com/r.git")).await.unwrap();
    let revisions = shop.registry.api::<PackageRevision>();
    let context = RequestContext::internal("test").with_status();
    let change = |revision: &mut PackageRevision| {
        let labels = BTreeMap::from([("tier".to_owned(), "gold".to_owned())]);
        revision.spec.package_metadata = Some(stoa_types::porch::PackageMetadata { labels, ..Default::default() });
    };
    revisions.with_context(context).update_with("shop", NAME, change).await.unwrap();
    let update = UpdateSource::transform(|current| {
        let mut object = current.clone();
        let spec = object.0["spec"].as_object_mut().unwrap();
        spec.remove("packageMetadata");
        spec["tasks"][0]["clone"]["upstreamRef"]["git"]["secretRef"] = json!({"name": ""});
        spec["lifecycle"] = "Proposed".into();
        Ok(object)
    });
    let updated = shop.revisions().update(&user(), "shop", NAME, Target::Main, update).await.unwrap().0.object();
    assert_eq!(updated.0["spec"]["packageMetadata"]["labels"]["tier"], "gold");
    assert_eq!(updated.0["spec"]["lifecycle"], "Proposed");
}

#[tokio::test]
async fn authors_read_the_objects_that_their_sets_select() {
    let shop = Shop::new().await;
    let sets = shop.registry.store("config.porch.kpt.dev", "v1alpha2", "packagevariantsets").unwrap();
    let allowed = [
        "create packagevariants ",
        "create packagerevisions ",
        "clone repositories blueprints",
        "edit repositories ",
        "get configmaps ",
    ];
    for (name, api_version, kind, expected) in [
        ("secrets", "v1", "Secret", Err(403)),
        ("repositories", "config.porch.kpt.dev/v1alpha1", "Repository", Err(403)),
        ("unknown", "example.com/v1", "Network", Err(404)),
        ("config-maps", "v1", "ConfigMap", Ok(())),
    ] {
        let targets = json!([{"objectSelector": {"apiVersion": api_version, "kind": kind}}]);
        let upstream = json!({"repo": "blueprints", "package": "basens", "revision": 1});
        let set = json!({"metadata": {"name": name}, "spec": {"upstream": upstream, "targets": targets}});
        let created = sets.create(&by("ann", &allowed), "shop", object(set)).await;
        assert_eq!(created.map(drop).map_err(|error| error.code()), expected, "{kind}");
    }
}

#[tokio::test]
async fn authors_read_the_objects_that_their_variants_inject() {
    let shop = Shop::new().await;
    let variants = shop.registry.store("config.porch.kpt.dev", "v1alpha1", "packagevariants").unwrap();
    let allowed = [
        "create packagerevisions ",
        "clone repositories blueprints",
        "edit repositories deployments",
        "get configmaps ",
    ];
    let variant = |name: &str, downstream: &str, injector: Value| {
        let spec = json!({
            "upstream": {"repo": "blueprints", "package": "basens", "revision": 1},
            "downstream": {"repo": downstream, "package": "web"},
            "injectors": [injector],
        });
        object(json!({"metadata": {"name": name}, "spec": spec}))
    };
    let stack = json!({"group": "config.stoa.dev", "version": "v1alpha1", "kind": "Stack", "name": "web"});
    let secret = json!({"group": "", "version": "v1", "kind": "Secret", "name": "web"});
    for (name, injector, expected) in
        [("stack", stack, Err(403)), ("secret", secret, Err(403)), ("config-map", json!({"name": "web"}), Ok(()))]
    {
        let created = variants.create(&by("ann", &allowed), "shop", variant(name, "deployments", injector)).await;
        assert_eq!(created.map(drop).map_err(|error| error.code()), expected, "{name}");
    }
    // The server deletes the drafts of a downstream package that is no longer wanted.
    let elsewhere = UpdateSource::transform(|current| {
        let mut object = current.clone();
        object.0["spec"]["downstream"]["repo"] = "other".into();
        Ok(object)
    });
    let rights =
        ["create packagerevisions ", "clone repositories blueprints", "edit repositories other", "get configmaps "];
    let moved = variants.update(&by("bob", &rights), "shop", "config-map", Target::Main, elsewhere).await;
    let error = moved.map(drop).unwrap_err();
    assert!(error.code() == 403 && error.message().contains("deployments"), "{}", error.message());
}
