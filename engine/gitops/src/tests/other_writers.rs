//! Tests of other writers to the repository.

use std::path::PathBuf;

use futures_util::future::join_all;
use stoa_engine::FieldChange;
use stoa_engine::ignore::IGNORE_FIELDS;

use super::*;

#[tokio::test]
async fn concurrent_runs_all_succeed() {
    for repository in TestRepository::both() {
        let runs: Vec<_> = (0..6).map(|n| repository.run(&format!("u-{n}"))).collect();
        let written = join_all(runs.iter().enumerate().map(|(n, runtime)| async move {
            apply(runtime, &config_map(&format!("c{n}"), "1")).await;
            finish(runtime).await.unwrap()
        }))
        .await;
        let log = repository.log();
        assert_eq!(log.len(), 6, "{:?}", repository.server);
        assert!(written.iter().all(|commit| log.contains(commit)));
        assert_eq!(repository.files().len(), 6);
    }
}

#[tokio::test]
async fn concurrent_commit_is_base_of_next() {
    for repository in TestRepository::both() {
        let first = repository.run("u-1");
        apply(&first, &config_map("a", "1")).await;
        let commit = finish(&first).await.unwrap();
        let runtime = repository.run("u-2");
        let (git, head) = runtime.place.head().unwrap();
        assert_eq!(head, Some(commit));
        repository.foreign_push("README.md", "by hand\n");
        // What was made from the old head does not get in; the run does.
        let parent = git.find_commit(commit).unwrap();
        let me = git2::Signature::now("me", "me@example.com").unwrap();
        let late = git.commit(None, &me, &me, "late", &parent.tree().unwrap(), &[&parent]).unwrap();
        assert!(matches!(
            runtime.place.advance(&git, head, late, &Grant::unlimited()).unwrap(),
            branch::Advance::Raced(_)
        ));
        apply(&runtime, &config_map("b", "1")).await;
        finish(&runtime).await.unwrap();
        assert_eq!(repository.log().len(), 3);
        assert!(repository.files().contains(&"README.md".to_owned()));
    }
}

#[tokio::test]
async fn ignored_field_keeps_latest_value() {
    for repository in TestRepository::both() {
        let mut desired = config_map("a", "1");
        desired.attributes["data"]["image"] = json!("v0");
        let first = repository.run("u-1");
        apply(&first, &desired).await;
        finish(&first).await.unwrap();
        desired.attributes["data"]["a"] = json!("2");
        desired.extensions.insert(IGNORE_FIELDS.to_owned(), json!(["data.image"]));
        let file = || {
            let repository = repository.repository();
            let head = repository.find_reference("refs/heads/main").unwrap().peel_to_tree().unwrap();
            let entry = head.get_path(Path::new("dev/shop/configmap-a.yaml")).unwrap();
            String::from_utf8(entry.to_object(&repository).unwrap().as_blob().unwrap().content().to_vec()).unwrap()
        };
        let second = repository.run("u-2");
        apply(&second, &desired).await;
        // Somebody brings the image up to date after it was read, and before it is written.
        repository.foreign_push("dev/shop/configmap-a.yaml", &file().replace("image: v0", "image: v1"));
        let commit = finish(&second).await;
        assert!(commit.is_some());
        assert_eq!([r#"a: "2""#, "image: v1"].map(|line| file().contains(line)), [true; 2], "{}", file());
        // A second try of the run finds what the first wrote, whatever became of it since.
        repository.foreign_push("dev/shop/configmap-a.yaml", &file().replace("image: v1", "image: v2"));
        let again = repository.run("u-2");
        apply(&again, &desired).await;
        assert_eq!(finish(&again).await, commit);
        assert!(file().contains("image: v2"), "{}", file());
    }
}

/// A plan that sets a field of `a`, which it found with a value.
fn planned(before: &str) -> [FieldChange; 1] {
    let (before, after) = (Some(json!(before)), Some(json!("2")));
    [FieldChange { path: "data.a".to_owned(), before, after, ..FieldChange::default() }]
}

/// Applies what was planned, and what comes of it.
async fn carry_out(
    runtime: &GitOpsRuntime,
    request: ApplyRequest<'_>,
    meanwhile: impl FnOnce(),
) -> Result<Finished, RuntimeError> {
    runtime.apply(&request).await.unwrap();
    meanwhile();
    runtime.finish(&Grant::unlimited()).await
}

const FILE: &str = "dev/shop/configmap-a.yaml";

/// The file of `a` with some data, as somebody may have edited it.
fn ours(data: &str) -> String {
    let mark = "metadata: {name: a, namespace: shop, annotations: {stoa.dev/owner: shop/web-dev/dev/uid-of-web-dev}}";
    format!("apiVersion: v1\nkind: ConfigMap\n{mark}\ndata: {data}\n")
}

#[tokio::test]
async fn edit_since_plan_is_not_overwritten() {
    for (found, told) in [
        // As it was found, in whatever way it is written, or as it is to be.
        (ours("{a: \"1\"}"), None),
        (format!("# by hand\n{}", ours("{a: '2'}")), None),
        (ours("{a: \"3\"}"), Some("was changed by others: data.a")),
        (ours("{a: \"1\", b: \"1\"}"), Some("was changed by others: data.b")),
        ("no object".to_owned(), Some("is no longer an object")),
    ] {
        for repository in TestRepository::both() {
            let first = repository.run("u-1");
            let prior = apply(&first, &config_map("a", "1")).await;
            finish(&first).await.unwrap();
            let (desired, changes) = (config_map("a", "2"), planned("1"));
            let request = ApplyRequest { changes: Some(&changes), ..ApplyRequest::new(&desired, Some(&prior)) };
            let second = repository.run("u-2");
            // Others are told of, and keep it from being written.
            apply(&second, &config_map("b", "1")).await;
            let done = carry_out(&second, request, || repository.foreign_push(FILE, &found)).await;
            match told {
                None => assert!(done.unwrap().commit.is_some()),
                Some(told) => {
                    let Err(RuntimeError::Stale(why)) = done else { panic!("{found}: {done:?}") };
                    let expected = format!("since the plan was made, {FILE} {told}; nothing was written, plan again");
                    assert_eq!((why, repository.log().len()), (expected, 2));
                }
            }
        }
    }
}

#[tokio::test]
async fn changed_reference_is_not_blamed_on_others() {
    let with = |data: serde_json::Value| {
        let mut desired = config_map("a", "");
        desired.attributes.insert("data".to_owned(), data);
        desired
    };
    let moved = "would change differently, because a value that it refers to has changed: data.b";
    for (is_edited, told) in [(false, moved.to_owned()), (true, format!("was changed by others: data.c, and {moved}"))]
    {
        let repository = TestRepository::local();
        let first = repository.run("u-1");
        let prior = apply(&first, &with(json!({"a": "1", "b": "1", "c": "1"}))).await;
        finish(&first).await.unwrap();
        // The plan leaves `b` alone, which refers to something.
        let (desired, changes) = (with(json!({"a": "2", "b": "2", "c": "1"})), planned("1"));
        let request = ApplyRequest { changes: Some(&changes), ..ApplyRequest::new(&desired, Some(&prior)) };
        let edit = || {
            if is_edited {
                repository.foreign_push(FILE, &ours("{a: '1', b: '1', c: '3'}"));
            }
        };
        let done = carry_out(&repository.run("u-2"), request, edit).await;
        let Err(RuntimeError::Stale(why)) = done else { panic!("{done:?}") };
        assert_eq!(why, format!("since the plan was made, {FILE} {told}; nothing was written, plan again"));
    }
}

#[tokio::test]
async fn creation_or_deletion_since_plan_is_reported() {
    let repository = TestRepository::local();
    let (desired, none): (Resource, [FieldChange; 0]) = (config_map("a", "2"), []);
    let new = || ApplyRequest { create: true, changes: Some(&none), ..ApplyRequest::new(&desired, None) };
    let first = repository.run("u-1");
    apply(&first, &config_map("other", "1")).await;
    finish(&first).await.unwrap();
    let theirs = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n";
    let come = carry_out(&repository.run("u-2"), new(), || repository.foreign_push(FILE, theirs)).await;
    assert!(matches!(&come, Err(RuntimeError::Stale(why)) if why.contains("was created by others")), "{come:?}");

    let changes = planned("1");
    let request = ApplyRequest { changes: Some(&changes), ..ApplyRequest::new(&desired, None) };
    let path = "dev/shop/configmap-gone.yaml";
    let gone = Resource { attributes: config_map("gone", "2").attributes, ..desired.clone() };
    let went = carry_out(&repository.run("u-3"), ApplyRequest { desired: &gone, ..request }, || {}).await;
    let told = format!("{path} is gone");
    assert!(matches!(&went, Err(RuntimeError::Stale(why)) if why.contains(&told)), "{went:?}");

    // A second try of a run finds what the first wrote, whatever became of it since.
    repository.foreign_push(FILE, "");
    let third = repository.run("u-4");
    apply(&third, &desired).await;
    let commit = finish(&third).await.map(|commit| commit.to_string());
    repository.foreign_push(FILE, theirs);
    assert_eq!(carry_out(&repository.run("u-4"), new(), || {}).await.unwrap().commit, commit);
}

/// Does something before the second connection of a run is made, which is the one that pushes.
struct BeforeThePush<F>(F, AtomicU64);

impl<F> fmt::Debug for BeforeThePush<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeThePush")
    }
}

impl<F: Fn() + Send + Sync + 'static> Connect for BeforeThePush<F> {
    fn callbacks(&self) -> git2::RemoteCallbacks<'_> {
        if self.1.fetch_add(1, Ordering::Relaxed) == 1 {
            (self.0)();
        }
        git2::RemoteCallbacks::new()
    }

    fn credentials(&self) -> Credentials {
        Credentials::default()
    }
}

#[tokio::test]
async fn edit_before_push_is_not_overwritten() {
    for (path, is_stale) in [(FILE, true), ("README.md", false)] {
        let repository = Arc::new(TestRepository::remote());
        let first = repository.run("u-1");
        let prior = apply(&first, &config_map("a", "1")).await;
        finish(&first).await.unwrap();
        let theirs = Arc::clone(&repository);
        let edit = move || theirs.foreign_push(path, "apiVersion: v1\nkind: ConfigMap\ndata: {a: \"3\"}\n");
        let connect = Arc::new(BeforeThePush(edit, AtomicU64::default()));
        let second = GitOpsRuntime::new(repository.config("u-2"), connect.clone()).unwrap();
        let (desired, changes) = (config_map("a", "2"), planned("1"));
        let request = ApplyRequest { changes: Some(&changes), ..ApplyRequest::new(&desired, Some(&prior)) };
        let done = carry_out(&second, request, || {}).await;
        assert!(connect.1.load(Ordering::Relaxed) > 2, "it is tried again where the branch is by then");
        assert_eq!(matches!(&done, Err(RuntimeError::Stale(why)) if why.contains("data.a")), is_stale, "{done:?}");
        assert_eq!(repository.log().len(), if is_stale { 2 } else { 3 });
    }
}

/// Does something whenever a reference of a copy has been fetched, before it is read.
struct Meanwhile<F>(F);

impl<F> fmt::Debug for Meanwhile<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl<F: Fn() + Send + Sync + 'static> Connect for Meanwhile<F> {
    fn callbacks(&self) -> git2::RemoteCallbacks<'_> {
        let mut callbacks = git2::RemoteCallbacks::new();
        callbacks.update_tips(move |_, _, _| {
            (self.0)();
            true
        });
        callbacks
    }

    fn credentials(&self) -> Credentials {
        Credentials::default()
    }
}

/// Notes how far pushes are, and how many objects the repository has by then.
#[derive(Debug)]
struct Notes {
    repository: PathBuf,
    told: Mutex<Vec<(Pushing, usize)>>,
}

impl Connect for Notes {
    fn callbacks(&self) -> git2::RemoteCallbacks<'_> {
        git2::RemoteCallbacks::new()
    }

    fn credentials(&self) -> Credentials {
        Credentials::default()
    }

    fn pushing(&self, pushing: Pushing) {
        let mut objects = 0;
        let count = |_: &Oid| {
            objects += 1;
            true
        };
        Repository::open(&self.repository).unwrap().odb().unwrap().foreach(count).unwrap();
        self.told.lock().unwrap().push((pushing, objects));
    }
}

#[tokio::test]
async fn push_start_is_reported_before_data() {
    let repository = TestRepository::remote();
    let path = repository.directory.path().join("deploy.git");
    let notes = Arc::new(Notes { repository: path, told: Mutex::default() });
    let runtime = GitOpsRuntime::new(repository.config("u-1"), notes.clone()).unwrap();
    apply(&runtime, &config_map("a", "1")).await;
    let commit = finish(&runtime).await.unwrap();
    assert_eq!(repository.log(), [commit]);
    let told = std::mem::take(&mut *notes.told.lock().unwrap());
    assert_eq!(told, [(Pushing::Prepares, 0), (Pushing::Sends, 0)]);

    // Where all is there already, nobody is told that nothing has been sent.
    let (copy, _) = runtime.place.head().unwrap();
    copy.reference("refs/stoa/again", commit, true, "again").unwrap();
    let task = Task::Push { own: "refs/stoa/again".to_owned(), from: Oid::ZERO_SHA1 };
    let request = Request { url: repository.config("u-1").repository, branch: "refs/heads/again".to_owned(), task };
    reach(&*notes, &copy, &request, &Grant::unlimited()).unwrap();
    assert_eq!(repository.repository().refname_to_id("refs/heads/again").unwrap(), commit);
    assert!(notes.told.lock().unwrap().is_empty());
}

#[tokio::test]
async fn shared_copy_keeps_branches_apart() {
    let repository = TestRepository::remote();
    let first = repository.run("u-1");
    apply(&first, &config_map("a", "1")).await;
    let main = finish(&first).await.unwrap();
    repository.foreign_push("README.md", "by hand\n");
    let git = repository.repository();
    let theirs = git.refname_to_id("refs/heads/main").unwrap();
    git.reference("refs/heads/other", theirs, true, "theirs").unwrap();
    git.reference("refs/heads/main", main, true, "as before").unwrap();
    let copies = Folders::new(repository.directory.path().to_owned()).take("caches", "fresh");
    let at = |branch: &str, remotes: Arc<dyn Remotes>| {
        let config = GitOpsConfig { branch: branch.to_owned(), cache: copies.clone(), ..repository.config("look") };
        GitOpsRuntime::new(config, remotes).unwrap()
    };
    let other = at("other", Arc::new(Anonymous));
    let place = Arc::clone(&other.place);
    let mine = at("main", Arc::new(Meanwhile(move || assert_eq!(place.head().unwrap().1, Some(theirs)))));
    let (copy, head) = mine.place.head().unwrap();
    assert_eq!(head, Some(main));

    // What is left of both is one reference for each branch, which a server is told.
    let mut left: Vec<Oid> = copy.references().unwrap().map(|it| it.unwrap().target().unwrap()).collect();
    let mut expected = [main, theirs];
    left.sort_unstable();
    expected.sort_unstable();
    assert_eq!(left, expected);
    apply(&mine, &config_map("b", "1")).await;
    let written = finish(&mine).await.unwrap();
    let left: Vec<Oid> = copy.references().unwrap().map(|it| it.unwrap().target().unwrap()).collect();
    assert!(left.len() == 2 && left.contains(&written), "{left:?}");
    git.find_reference("refs/heads/main").unwrap().delete().unwrap();
    assert_eq!(mine.place.head().unwrap().1, None);
    assert_eq!(copy.references().unwrap().count(), 1, "the branch is gone");
}

/// The same ConfigMap as a file, by whoever is marked.
fn file(name: &str, mark: &str) -> String {
    let annotations =
        if mark.is_empty() { String::new() } else { format!(", annotations: {{stoa.dev/owner: {mark}}}") };
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: shop{annotations}}}\ndata: {{a: theirs}}\n"
    )
}

#[tokio::test]
async fn new_owner_of_one_file_stops_commit() {
    for repository in TestRepository::both() {
        let first = repository.run("u-1");
        apply(&first, &config_map("a", "1")).await;
        finish(&first).await;
        let second = repository.run("u-2");
        apply(&second, &config_map("a", "2")).await;
        apply(&second, &config_map("b", "2")).await;
        repository.foreign_push("dev/shop/configmap-b.yaml", &file("b", "shop/api/dev/u"));
        let (retryable, message) = told(second.finish(&Grant::unlimited()).await);
        assert!(
            !retryable && message.starts_with("ConfigMap b in namespace shop is owned by shop/api/dev"),
            "{message}"
        );
        assert_eq!(repository.log().len(), 2, "nothing was written");
    }
}

#[tokio::test]
async fn file_with_new_owner_is_not_deleted() {
    for repository in TestRepository::both() {
        let first = repository.run("u-1");
        let priors = [apply(&first, &config_map("a", "1")).await, apply(&first, &config_map("b", "1")).await];
        finish(&first).await;
        let second = repository.run("u-2");
        for prior in &priors {
            assert_eq!(second.delete(prior).await.unwrap(), Deleted::Gone, "nobody knows yet");
        }
        repository.foreign_push("dev/shop/configmap-b.yaml", &file("b", "shop/api/dev/u"));
        let finished = second.finish(&Grant::unlimited()).await.unwrap();
        let left = BTreeMap::from([(priors[1].id.clone(), "shop/api/dev".to_owned())]);
        assert_eq!(finished.left, left);
        assert_eq!(repository.files(), ["dev/shop/configmap-b.yaml"]);
        let again = repository.run("u-2");
        for prior in &priors {
            again.delete(prior).await.unwrap();
        }
        assert_eq!(
            again.finish(&Grant::unlimited()).await.unwrap(),
            finished,
            "a second try finds the commit of the first"
        );
    }
}

#[tokio::test]
async fn unmarked_file_is_foreign_until_it_is_applied() {
    for repository in TestRepository::both() {
        let first = repository.run("u-1");
        let prior = apply(&first, &config_map("a", "1")).await;
        finish(&first).await;
        repository.foreign_push("dev/shop/configmap-a.yaml", &file("a", ""));
        let look = async || repository.run("u-2").inspect(&[&prior]).await.unwrap().remove(0).unwrap();
        assert_eq!(look().await, Found::Foreign);
        assert_eq!(repository.run("u-2").delete(&prior).await.unwrap(), Deleted::Gone);
        // What has no mark yet gets one with its next change.
        let second = repository.run("u-2");
        apply(&second, &config_map("a", "2")).await;
        finish(&second).await.unwrap();
        assert!(matches!(look().await, Found::Ours(_)));
    }
}
