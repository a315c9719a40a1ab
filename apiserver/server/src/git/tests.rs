//! The real strategies and controllers over a log in memory, the real `git` on the other side.

mod destroyed;
mod fence;
mod files;
mod fixture;
mod layout;
mod moved;
mod past;
mod recorded;
mod referred;
mod undecodable;

use kube::ResourceExt as _;
use serde_json::{Value, json};
use stoa_machinery::{
    Object, Version,
    auth::{Attributes, Authorizer, Decision},
    registry::{DeleteOptions, Target, UpdateSource, api::Change},
    request::UserInfo,
};
use stoa_types::{Organization, Project, Source, Stack, Workspace, common::condition, reason};

use super::*;
use fixture::{Fixture, organization, project, source, stack, workspace};

const ORGANIZATION: &str = "organizations/shop/organization.yaml";
const PROJECT: &str = "organizations/shop/projects/web/project.yaml";
const STACK: &str = "organizations/shop/projects/web/stacks/web-dev.yaml";
const SOURCE: &str = "organizations/shop/sources/config.yaml";
const WORKSPACE: &str = "platform/workspaces/dev.yaml";

#[tokio::test]
async fn api_writes_are_commits_by_whoever_made_them() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    fixture.create("bob", &workspace("dev")).await;
    let updated = fixture
        .update("bob", "platform.stoa.dev", "workspaces", "", "dev", |w| {
            w.0["spec"]["description"] = "for developers".into();
        })
        .await;
    fixture.delete("ann", "config.stoa.dev", "stacks", "shop", "web-dev").await;
    let last = fixture.projected().await;

    assert_eq!(
        fixture.log("%an <%ae> %cn: %s"),
        [
            "Stoa start the control repository",
            "ann create organization shop",
            "ann create source shop/config",
            "ann create project shop/web",
            "ann create stack shop/web-dev",
            "bob create workspace dev",
            "bob update workspace dev: spec.description",
            "ann delete stack shop/web-dev",
        ]
        .map(|line| {
            let (who, subject) = line.split_once(' ').expect("who and what");
            format!("{who} <{}@users.stoa.dev> Stoa: {subject}", who.to_lowercase())
        })
    );
    let versions: Vec<u64> = fixture
        .log("%(trailers:key=Resource-Version,valueonly,separator=)")
        .iter()
        .skip(1)
        .map(|version| version.parse().expect("a number"))
        .collect();
    assert!(versions.is_sorted() && versions.last().is_some_and(|version| *version <= last.0), "{versions:?}");
    assert!(versions.contains(&updated.version.0), "{versions:?} has {}", updated.version);
    assert_eq!(fixture.files(), [ORGANIZATION, PROJECT, SOURCE, WORKSPACE]);
    insta::assert_snapshot!(fixture.show(WORKSPACE), @r"
    apiVersion: platform.stoa.dev/v1alpha1
    kind: Workspace
    metadata:
      name: dev
    spec:
      description: for developers
      backend:
        name: default
      gitops:
        repository: file:///srv/deploy.git
        branch: main
        directory: dev
        mode: Commit
      requireApproval: false
    ");
    insta::assert_snapshot!(fixture.show(ORGANIZATION), @r"
    apiVersion: config.stoa.dev/v1alpha1
    kind: Organization
    metadata:
      name: shop
    spec:
      description: Web shop
    ");
}

#[tokio::test]
async fn status_only_write_makes_no_commit() {
    let fixture = Fixture::new().await;
    fixture.create("ann", &workspace("dev")).await;
    fixture.projected().await;
    let before = fixture.head();
    let workspaces = fixture.registry.api::<Workspace>();
    workspaces
        .update_status_with("", "dev", |w: &mut Workspace| w.status.get_or_insert_default().stacks = 7)
        .await
        .expect("written");
    fixture.projected().await;
    assert_eq!(fixture.head(), before);
}

#[tokio::test]
async fn push_becomes_objects_and_watch_events() {
    let fixture = Fixture::new().await;
    let mut stacks = fixture.registry.api::<Stack>().subscribe(None);
    let clone = fixture.clone_control().await;
    // In one push, though the namespace of the organization is made only after it.
    for (path, object) in [
        (ORGANIZATION, organization()),
        (PROJECT, project()),
        (STACK, stack("web-dev")),
        (SOURCE, source()),
        (WORKSPACE, workspace("dev")),
    ] {
        clone.write(path, &yaml(&object));
    }
    clone.write("README.md", "Ours.\n");
    let pushed = fixture.push(&clone, "add the shop").await;
    // It may take longer than the push is patient.
    fixture.wait(|status| status.invalid.is_empty()).await;

    let applied = fixture::next(&mut stacks, |change| match change {
        Change::Applied(stack) => Some(stack),
        // It was there before the stream was first asked.
        Change::Restarted(all) => all.into_iter().next(),
        Change::Deleted(_) => None,
    })
    .await;
    assert_eq!((applied.name_any(), applied.spec.desired_version.as_str()), ("web-dev".to_owned(), "latest"));
    assert_eq!(applied.spec.stack_name, "web-dev", "the strategy has prepared it");
    fixture.registry.api::<Project>().get("shop", "web").await.expect("there");
    fixture.registry.api::<Source>().get("shop", "config").await.expect("there");
    fixture.registry.api::<Workspace>().get("", "dev").await.expect("there");

    // What was pushed is in Git already, so the projection adds nothing to it.
    fixture.projected().await;
    assert_eq!(fixture.head(), pushed);
    let record = fixture.record_of("/registry/config.stoa.dev/stacks/shop/web-dev").await;
    assert_eq!(
        (record.origin.user.as_str(), record.origin.verb.as_str(), record.origin.message),
        ("stoa:git:control", "create", format!("commit {pushed}"))
    );
}

#[tokio::test]
async fn push_replaces_spec_and_preserves_rest() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    let before = fixture.registry.api::<Stack>().get("shop", "web-dev").await.expect("there");
    let clone = fixture.clone_control().await;
    let mut file = stack("web-dev");
    file["metadata"]["labels"] = json!({"env": "dev"});
    file["spec"]["desiredVersion"] = "v2".into();
    clone.write(STACK, &format!("# Ours.\n{}", yaml(&file)));
    let pushed = fixture.push(&clone, "v2").await;

    let after = fixture.registry.api::<Stack>().get("shop", "web-dev").await.expect("there");
    assert_eq!(after.spec.desired_version, "v2");
    assert_eq!(after.labels().get("env").map(String::as_str), Some("dev"));
    assert_eq!(after.spec.stack_name, before.spec.stack_name);
    assert_eq!((after.uid(), after.metadata.finalizers.clone()), (before.uid(), before.metadata.finalizers.clone()));
    assert_eq!(after.metadata.generation, before.metadata.generation.map(|g| g + 1));
    assert!(after.status.is_some());

    // The same again, with other comments, is no write.
    let written = fixture.record_of("/registry/config.stoa.dev/stacks/shop/web-dev").await.version;
    clone.write(STACK, &format!("# Theirs.\n{}", yaml(&file)));
    fixture.push(&clone, "another comment").await;
    assert_eq!(fixture.record_of("/registry/config.stoa.dev/stacks/shop/web-dev").await.version, written);
    assert_ne!(fixture.head(), pushed);
    assert!(fixture.show(STACK).starts_with("# Theirs."));

    // A write through the API changes what it changes, and nothing else of what they wrote.
    let to_v3 = |stack: &mut stoa_machinery::Object| stack.0["spec"]["desiredVersion"] = "v3".into();
    fixture.update("ann", "config.stoa.dev", "stacks", "shop", "web-dev", to_v3).await;
    fixture.projected().await;
    assert_eq!(fixture.show(STACK), format!("# Theirs.\n{}", yaml(&file).replace("v2", "v3")));
}

#[tokio::test]
async fn bad_file_preserves_last_good_object() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    let clone = fixture.clone_control().await;
    let good = clone.read(STACK);
    clone.write(STACK, &good.replace("desiredVersion: latest", "desiredVersion: v2\n  desiredVersoin: v3"));
    let bad = fixture.push(&clone, "a typo").await;

    let kept = fixture.registry.api::<Stack>().get("shop", "web-dev").await.expect("there");
    assert_eq!(kept.spec.desired_version, "latest");
    let synced = synced(&kept.status.expect("status").conditions);
    let message = format!(
        "{STACK}: line 10: strict decoding error: unknown field \"spec.desiredVersoin\" (commit {})",
        &bad[..8]
    );
    assert_eq!(synced, ("False".to_owned(), reason::INVALID_FILE.to_owned(), message.clone()));
    let event = fixture.event(reason::INVALID_FILE).await;
    assert_eq!((event.type_.as_deref(), event.message), (Some("Warning"), Some(message)));
    assert_eq!(event.involved_object.uid, kept.metadata.uid);
    assert!(fixture.show(STACK).contains("desiredVersoin"), "the file is left to whoever pushed it");

    clone.write(STACK, &good.replace("desiredVersion: latest", "desiredVersion: v2"));
    fixture.push(&clone, "the typo is fixed").await;
    let fixed = fixture.registry.api::<Stack>().get("shop", "web-dev").await.expect("there");
    assert_eq!(fixed.spec.desired_version, "v2");
    let (status, why, _) = self::synced(&fixed.status.expect("status").conditions);
    assert_eq!((status.as_str(), why.as_str()), ("True", reason::AVAILABLE));
}

#[tokio::test]
async fn push_is_an_apply_by_manager_git() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    fixture
        .apply_stack("ops", json!({"project": "web", "description": "theirs", "path": "web"}))
        .await
        .expect("applied");
    let clone = fixture.clone_control().await;
    let before = clone.read(STACK);
    assert!(before.contains("description: theirs") && before.contains("path: web"), "{before}");

    // What is in the file and nowhere else is git's, and goes with its line.
    let with_label = before.replace("spec:\n", "  labels:\n    tier: front\nspec:\n");
    clone.write(STACK, &with_label.replace("desiredVersion: latest", "desiredVersion: v2"));
    fixture.push(&clone, "v2").await;
    let git = fixture.owned_by("git", "Apply").await;
    assert!(git["f:metadata"]["f:labels"]["f:tier"].is_object() && git["f:spec"]["f:desiredVersion"].is_object());
    assert_eq!(git["f:status"], Value::Null);
    let ops = fixture.owned_by("ops", "Apply").await;
    assert!(ops["f:spec"]["f:description"].is_object(), "it is both's: {ops}");

    // What the file had and has no more goes, whoever owns it; what it never had stays.
    fixture.annotate_unseen("web-dev").await;
    let without = clone.read(STACK).replace("  labels:\n    tier: front\n", "").replace("  description: theirs\n", "");
    clone.write(STACK, &without);
    fixture.push(&clone, "less").await;
    let stack = fixture.registry.api::<Stack>().get("shop", "web-dev").await.expect("there");
    assert_eq!((stack.labels().get("tier"), stack.spec.description.as_deref()), (None, None));
    assert_eq!((stack.spec.path.as_str(), stack.spec.desired_version.as_str()), ("web", "v2"));
    assert!(stack.annotations().contains_key("kubectl.kubernetes.io/last-applied-configuration"));
    assert!(stack.status.is_some());
    assert_eq!(fixture.owned_by("ops", "Apply").await["f:spec"]["f:description"], Value::Null);

    // What others set and the file does not mention stays, and comes into the file.
    fixture
        .apply_stack("ops", json!({"project": "web", "description": "again", "path": "web"}))
        .await
        .expect("applied");
    clone.write("README.md", "Ours.\n");
    clone.git(&["pull", "--quiet", "--rebase"]);
    fixture.projected().await;
    assert!(fixture.show(STACK).contains("description: again"));
}

#[tokio::test]
async fn invalid_file_blocks_writes_of_its_object() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    let clone = fixture.clone_control().await;
    let good = clone.read(STACK);
    let prod = STACK.replace("web-dev", "web-prod");
    clone.write(STACK, "spec: [\n");
    clone.write(&prod, "kind: Nothing\n");
    let bad = fixture.push(&clone, "oops").await;

    let (store, context) = fixture.stacks("ann", false);
    let (_, dry_run) = fixture.stacks("ann", true);
    let change = || UpdateSource::transform(|current| Ok(with_description(current)));
    for context in [&context, &dry_run] {
        let update = store.update(context, "shop", "web-dev", Target::Main, change()).await.map(|_| ());
        let delete = store.delete(context, "shop", "web-dev", &DeleteOptions::default()).await.map(|_| ());
        let create = store.create(context, "shop", object(stack("web-prod"))).await.map(|_| ());
        for (result, name, path) in
            [(update, "web-dev", STACK), (delete, "web-dev", STACK), (create, "web-prod", &prod)]
        {
            let error = result.expect_err("refused");
            assert_eq!((error.code(), error.is("Conflict")), (409, true), "{error}");
            let begins = format!(
                "Operation cannot be fulfilled on stacks.config.stoa.dev \"{name}\": its file {path} in the control \
                 repository is invalid since commit {}: ",
                &bad[..8]
            );
            assert!(error.message().starts_with(&begins), "{error}");
        }
    }
    let apply = fixture.apply_stack("ops", json!({"project": "web", "description": "x"})).await;
    assert_eq!(apply.expect_err("refused").code(), 409);
    // Others are not concerned, and neither is the status.
    fixture.create("ann", &stack("web-stage")).await;
    let status = |s: &mut Stack| s.status.get_or_insert_default().observed_commit = Some("abc".to_owned());
    fixture.registry.api::<Stack>().update_status_with("shop", "web-dev", status).await.expect("written");
    store.update(&context, "shop", "web-dev", Target::Status, change()).await.expect("written");
    fixture.projected().await;
    assert_eq!(fixture.show(STACK), "spec: [\n");

    // What the last good file had and the mended one has not goes.
    clone.git(&["pull", "--quiet", "--rebase"]);
    clone.write(STACK, &good.replace("  desiredVersion: latest\n", "  desiredVersion: v3\n"));
    clone.remove(&prod);
    fixture.push(&clone, "mended").await;
    store.update(&context, "shop", "web-dev", Target::Main, change()).await.expect("written");
    fixture.create("ann", &stack("web-prod")).await;
    let stack = fixture.registry.api::<Stack>().get("shop", "web-dev").await.expect("there");
    assert_eq!((stack.spec.desired_version.as_str(), stack.spec.description.as_deref()), ("v3", Some("by hand")));
}

fn object(value: Value) -> Object {
    let Value::Object(map) = value else { panic!("an object") };
    Object(map)
}

fn with_description(current: &Object) -> Object {
    let mut object = current.clone();
    object.0["spec"]["description"] = "by hand".into();
    object
}

#[tokio::test]
async fn organization_says_what_no_object_can() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    let clone = fixture.clone_control().await;
    let (wrong, elsewhere) = (stack("web-prod"), stack("web-dev"));
    clone.write("organizations/shop/projects/web/stacks/prod.yaml", &yaml(&wrong));
    clone.write(
        "organizations/shop/projects/api/stacks/web-dev.yaml",
        &yaml(&elsewhere).replace("project: web", "project: api"),
    );
    clone.write("platform/workspaces/dev.yaml", "- none\n");
    let commit = fixture.push(&clone, "two wrong stacks").await;

    let told = fixture.organization_synced().await;
    let short = &commit[..8];
    assert_eq!(
        told.2.lines().collect::<Vec<_>>(),
        [
            format!(
                "organizations/shop/projects/web/stacks/prod.yaml: line 4: metadata.name is \"web-prod\", but by the \
                 path of the file it is \"prod\" (commit {short})"
            ),
            // The other stack might have gone meanwhile.
            format!(
                "organizations/shop/projects/api/stacks/web-dev.yaml: stack shop/web-dev exists already, and its file \
                 is {STACK} (commit {short})"
            ),
        ]
    );
    let stack = fixture.registry.api::<Stack>().get("shop", "web-dev").await.expect("there");
    assert_eq!(condition(&stack.status.expect("status").conditions, reason::SYNCED), None);

    clone.remove("organizations/shop/projects/api/stacks/web-dev.yaml");
    fixture.push(&clone, "one less").await;
    assert_eq!(fixture.organization_synced().await.2.lines().count(), 1);
    clone.remove("organizations/shop/projects/web/stacks/prod.yaml");
    fixture.push(&clone, "none left").await;
    assert_eq!(fixture.organization_synced().await.0, "True");
    let event = fixture.event_about("Workspace").await;
    assert_eq!(event.involved_object.name.as_deref(), Some("dev"));
    assert_eq!(event.message, Some(format!("{WORKSPACE}: the file holds no object (commit {short})")));
}

#[tokio::test]
async fn removed_file_deletes_with_finalizers_honoured() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    let sources = fixture.registry.api::<Source>();
    let keep = |s: &mut Source| s.finalizers_mut().push("test.dev/keep".to_owned());
    sources.update_with("shop", "config", keep).await.expect("written");
    let clone = fixture.clone_control().await;
    clone.remove(STACK);
    clone.remove(PROJECT);
    clone.remove(SOURCE);
    let pushed = fixture.push(&clone, "no more").await;

    let kept = sources.get("shop", "config").await.expect("it has a finalizer");
    assert!(kept.metadata.deletion_timestamp.is_some());
    // The controller takes its own finalizer off the stack.
    fixture.gone::<Stack>("shop", "web-dev").await;
    fixture.projected().await;
    assert_eq!(fixture.head(), pushed);
}

#[tokio::test]
async fn reverted_deletion_brings_the_object_back() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    fixture.delete("ann", "config.stoa.dev", "stacks", "shop", "web-dev").await;
    let clone = fixture.clone_control().await;
    clone.git(&["revert", "--no-edit", "HEAD"]);
    fixture.push(&clone, "").await;
    let back = fixture.registry.api::<Stack>().get("shop", "web-dev").await.expect("back");
    assert_eq!((back.spec.project.as_str(), back.metadata.deletion_timestamp), ("web", None));
}

#[tokio::test]
async fn refused_deletion_is_told() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    let deployed = json!([{"workspace": "dev", "resources": 3, "drifted": false}]);
    fixture
        .registry
        .api::<Stack>()
        .update_status_with("shop", "web-dev", |s: &mut Stack| {
            s.status.as_mut().expect("status").deployments =
                serde_json::from_value(deployed.clone()).expect("deployments");
        })
        .await
        .expect("written");
    let clone = fixture.clone_control().await;
    clone.remove(STACK);
    fixture.push(&clone, "no more").await;
    let kept = fixture.registry.api::<Stack>().get("shop", "web-dev").await.expect("refused");
    assert_eq!(kept.metadata.deletion_timestamp, None);
    let (status, why, message) = synced(&kept.status.expect("status").conditions);
    assert_eq!((status.as_str(), why.as_str()), ("False", reason::PUSH_REFUSED));
    assert!(message.contains("its infrastructure is still live"), "{message}");
    assert_eq!(fixture.event(reason::PUSH_REFUSED).await.message, Some(message));
}

/// Lets the repository's user do nothing to stacks.
#[derive(Debug)]
struct NoStacks;

#[async_trait::async_trait]
impl Authorizer for NoStacks {
    async fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<Decision, stoa_machinery::ApiError> {
        let refused = user.name == "stoa:git:control" && attributes.resource == "stacks";
        Ok(if refused { Decision::Deny(String::new()) } else { Decision::Allow(String::new()) })
    }
}

#[tokio::test]
async fn push_may_do_only_what_its_user_may() {
    let fixture = Fixture::with_authorizer(Arc::new(NoStacks)).await;
    fixture.create_shop("ann").await;
    let clone = fixture.clone_control().await;
    clone.write(STACK, &clone.read(STACK).replace("desiredVersion: latest", "desiredVersion: v2"));
    clone.write(SOURCE, &clone.read(SOURCE).replace("ref: main", "ref: next"));
    fixture.push(&clone, "both").await;
    let source = fixture.registry.api::<Source>().get("shop", "config").await.expect("there");
    assert_eq!(source.spec.reference, "next");
    let stack = fixture.registry.api::<Stack>().get("shop", "web-dev").await.expect("there");
    assert_eq!(stack.spec.desired_version, "latest");
    let (_, why, message) = synced(&stack.status.expect("status").conditions);
    assert_eq!(why, reason::PUSH_REFUSED);
    let refusal = "User \"stoa:git:control\" cannot patch resource \"stacks\" in API group \"config.stoa.dev\" in the \
                   namespace \"shop\"";
    assert!(message.contains(refusal), "{message}");
}

/// Status, reason and message of the condition `Synced`.
fn synced(conditions: &[stoa_types::Condition]) -> (String, String, String) {
    let found = condition(conditions, reason::SYNCED).expect("the condition is there").clone();
    (found.status, found.reason, found.message)
}

fn yaml(object: &Value) -> String {
    serde_saphyr::to_string(object).expect("encodes")
}

impl Fixture {
    /// What a manager owns of the stack.
    async fn owned_by(&self, manager: &str, operation: &str) -> Value {
        let stack = self.registry.api::<Stack>().get("shop", "web-dev").await.expect("there");
        let entries = serde_json::to_value(stack.metadata.managed_fields).expect("encodes");
        let is_it = |entry: &&Value| entry["manager"] == manager && entry["operation"] == operation;
        let entry = entries.as_array().into_iter().flatten().find(is_it);
        entry.map_or(Value::Null, |entry| entry["fieldsV1"].clone())
    }

    /// Sets an annotation that is not in files.
    async fn annotate_unseen(&self, name: &str) {
        let unseen = |stack: &mut Object| {
            stack
                .metadata_mut()
                .insert("annotations".to_owned(), json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"}));
        };
        self.update("ann", "config.stoa.dev", "stacks", "shop", name, unseen).await;
    }

    async fn organization_synced(&self) -> (String, String, String) {
        let organization = self.registry.api::<Organization>().get("", "shop").await.expect("there");
        synced(&organization.status.expect("status").conditions)
    }
}
