//! What people have the server do for them they may do themselves, and who they are is kept.

use super::*;

#[tokio::test]
async fn self_addressed_pull_requests_require_host_permission() {
    use stoa_types::Source;
    let world = World::new().await;
    let make = async |allowed: &[&'static str], name: &str, remote: &str, pulls: Value| {
        let source = json!({ "metadata": { "name": name }, "spec": { "remote": remote, "pullRequests": pulls } });
        world.make_as(&by("ann", allowed), "config.stoa.dev/v1alpha1", "Source", "shop", source).await
    };
    let gitea = json!({ "provider": "Gitea" });
    let named = json!({ "provider": "Gitea", "url": "https://127.0.0.1:6443" });
    for (remote, pulls) in [
        ("http://127.0.0.1:2379/shop/config.git", &gitea),
        ("https://localhost:6443/shop/config.git", &gitea),
        ("git@git.example.com:shop/config.git", &named),
    ] {
        let error = make(&[], "config", remote, pulls.clone()).await.unwrap_err();
        assert!(error.code() == 403 && error.message().contains("cannot use resource \"hookhosts\""), "{error}");
    }
    make(&["use hookhosts 127.0.0.1:2379"], "config", "http://127.0.0.1:2379/shop/config.git", gitea.clone())
        .await
        .unwrap();
    make(&[], "elsewhere", "https://git.example.com/shop/config.git", gitea).await.unwrap();
    let sources = |allowed: &[&'static str]| world.registry.api::<Source>().with_context(by("ann", allowed));
    let lead = |source: &mut Source| source.spec.remote = "http://127.0.0.1:2379/shop/other.git".to_owned();
    assert_eq!(sources(&[]).update_with("shop", "elsewhere", lead).await.unwrap_err().code(), 403);
    sources(&["use hookhosts 127.0.0.1:2379"]).update_with("shop", "elsewhere", lead).await.unwrap();
}

#[tokio::test]
async fn foreign_pull_request_host_requires_permission() {
    use stoa_types::Source;
    let world = World::new().await;
    let make = async |allowed: &[&'static str], name: &str, url: &str| {
        let pulls = json!({ "provider": "Gitea", "url": url });
        let remote = format!("git@git.example.com:shop/{name}.git");
        let spec = json!({ "remote": remote, "pullRequests": pulls });
        let source = json!({ "metadata": { "name": name }, "spec": spec });
        world.make_as(&by("ann", allowed), "config.stoa.dev/v1alpha1", "Source", "shop", source).await
    };
    make(&[], "same", "https://git.example.com:8443").await.unwrap();
    let elsewhere = "https://metadata.internal:8443";
    let error = make(&[], "other", elsewhere).await.unwrap_err();
    assert!(error.code() == 403 && error.message().contains("cannot use resource \"hookhosts\""), "{error}");
    make(&["use hookhosts metadata.internal:8443"], "other", elsewhere).await.unwrap();
    let sources = |allowed: &[&'static str]| world.registry.api::<Source>().with_context(by("ann", allowed));
    let lead = |source: &mut Source| source.spec.pull_requests.as_mut().unwrap().url = elsewhere.to_owned();
    assert_eq!(sources(&[]).update_with("shop", "same", lead).await.unwrap_err().code(), 403);
    // What leads there since before takes nothing more to be changed in other ways.
    let often = |source: &mut Source| source.spec.poll_interval = "1s".into();
    sources(&[]).update_with("shop", "other", often).await.unwrap();
}

#[tokio::test]
async fn source_secret_requires_use_permission() {
    use stoa_types::Source;
    let world = World::new().await;
    let make = async |allowed: &[&'static str], name: &str, spec: Value| {
        let source = json!({ "metadata": { "name": name }, "spec": spec });
        world.make_as(&by("ann", allowed), "config.stoa.dev/v1alpha1", "Source", "shop", source).await
    };
    let remote = "https://git.example.com/shop/config.git";
    let of_pulls = json!({ "remote": "https://git.example.com/shop/plans.git", "pullRequests": { "provider": "Gitea", "secretRef": { "name": "forge" } } });
    let of_keys = json!({ "remote": "https://git.example.com/shop/signed.git", "verify": { "configMapRef": { "name": "keys" } } });
    for (spec, use_of, refusal) in [
        (
            json!({ "remote": remote, "secretRef": { "name": "git" } }),
            "use secrets git",
            "cannot use resource \"secrets\"",
        ),
        (of_pulls, "use secrets forge", "cannot use resource \"secrets\""),
        (of_keys, "get configmaps keys", "cannot get resource \"configmaps\""),
    ] {
        let error = make(&[], "private", spec.clone()).await.unwrap_err();
        assert!(error.code() == 403 && error.message().contains(refusal), "{error}");
        make(&[use_of], use_of.rsplit(' ').next().unwrap(), spec).await.unwrap();
    }
    let sources = |allowed: &[&'static str]| world.registry.api::<Source>().with_context(by("ann", allowed));
    let elsewhere = |source: &mut Source| source.spec.remote = "https://elsewhere.example.com/a.git".to_owned();
    let often = |source: &mut Source| source.spec.poll_interval = "1s".into();
    assert_eq!(sources(&[]).update_with("shop", "git", elsewhere).await.unwrap_err().code(), 403);
    sources(&[]).update_with("shop", "git", often).await.unwrap();
    sources(&["use secrets git"]).update_with("shop", "git", elsewhere).await.unwrap();
    let open = |source: &mut Source| source.spec.secret_ref = None;
    sources(&[]).update_with("shop", "git", open).await.unwrap();
}

#[tokio::test]
async fn project_destroy_policy_requires_destroy_permission() {
    use stoa_types::{DeletionPolicy, Project, Stack};
    const ALL: [&str; 3] = ["create stacks/destroy web-dev", "use workspaces dev", "use backends default"];
    let world = World::with_stack().await;
    let deploy = deploying(json!([{ "workspace": "dev", "resources": 1 }]));
    world.registry.api::<Stack>().update_status_with("shop", "web-dev", deploy).await.unwrap();
    let projects = |allowed: &[&'static str]| world.registry.api::<Project>().with_context(by("ann", allowed));
    let orphan = |project: &mut Project| project.spec.deletion_policy = Some(DeletionPolicy::Orphan);
    let destroy = |project: &mut Project| project.spec.deletion_policy = Some(DeletionPolicy::Destroy);
    projects(&[]).update_with("shop", "web", orphan).await.unwrap();
    projects(&[]).delete("shop", "web", &Default::default()).await.unwrap();
    assert_eq!(projects(&[]).update_with("shop", "web", destroy).await.unwrap_err().code(), 403);
    projects(&ALL).update_with("shop", "web", destroy).await.unwrap();
    let late = json!({ "metadata": { "name": "late" }, "spec": { "project": "web" } });
    let error = world.make("config.stoa.dev/v1alpha1", "Stack", "shop", late).await.unwrap_err();
    assert!(error.code() == 403 && error.message().contains("project \"web\" is being deleted"), "{error}");
}

#[tokio::test]
async fn automatic_trigger_requires_start_permission() {
    use stoa_types::{Project, Source, Stack, config::Trigger};
    const ALL: [&str; 4] =
        ["create runs ", "create stacks/apply web-dev", "use workspaces dev", "use backends default"];
    let world = World::with_stack().await;
    let source = json!({ "metadata": { "name": "config" }, "spec": { "remote": "file:///config.git" } });
    world.make("config.stoa.dev/v1alpha1", "Source", "shop", source).await.unwrap();
    let stacks = |allowed: &[&'static str]| world.registry.api::<Stack>().with_context(by("ann", allowed));
    let apply = |stack: &mut Stack| stack.spec.trigger = Trigger::Apply;
    for count in 0..ALL.len() {
        let error = stacks(&ALL[..count]).update_with("shop", "web-dev", apply).await.unwrap_err();
        assert_eq!(error.code(), 403, "{error}");
    }
    let set = stacks(&ALL).update_with("shop", "web-dev", apply).await.unwrap();
    assert_eq!(set.status.unwrap().trigger.unwrap().set_by, "ann");

    // What the stack deploys is decided by whoever changes that.
    let describe = |stack: &mut Stack| stack.spec.description = Some("Web".to_owned());
    stacks(&[]).update_with("shop", "web-dev", describe).await.unwrap();
    let version = |stack: &mut Stack| stack.spec.desired_version = "v2".to_owned();
    assert_eq!(stacks(&ALL[..3]).update_with("shop", "web-dev", version).await.unwrap_err().code(), 403);
    let owned = |stack: &mut Stack| stack.status.get_or_insert_default().trigger = None;
    assert_eq!(stacks(&ALL).update_status_with("shop", "web-dev", owned).await.unwrap_err().code(), 403);
    let sources = |allowed: &[&'static str]| world.registry.api::<Source>().with_context(by("ann", allowed));
    let elsewhere = |source: &mut Source| source.spec.remote = "https://git.example.com/shop/other.git".to_owned();
    let planned = |source: &mut Source| source.spec.pull_requests = Some(Default::default());
    let often = |source: &mut Source| source.spec.poll_interval = "1s".into();
    sources(&[]).update_with("shop", "config", often).await.unwrap();
    assert_eq!(sources(&[]).update_with("shop", "config", elsewhere).await.unwrap_err().code(), 403);
    let led = world.registry.api::<Source>().with_context(by("eve", &ALL));
    led.update_with("shop", "config", elsewhere).await.unwrap();
    let forgotten = |source: &mut Source| source.status = None;
    assert_eq!(led.update_status_with("shop", "config", forgotten).await.unwrap_err().code(), 403);
    // Nobody of them is to approve alone what comes of it.
    let stack = world.registry.api::<Stack>().get("shop", "web-dev").await.unwrap();
    let of_project = |project: &mut Project| project.status.get_or_insert_default().set_by = "bob".to_owned();
    world.registry.api::<Project>().update_status_with("shop", "web", of_project).await.unwrap();
    let lookup = Lookup::of(&world.registry);
    assert_eq!(crate::trigger::Deciders::of(&lookup, &stack).await.unwrap().last, ["ann", "bob", "eve"]);
    assert_eq!(sources(&[]).update_with("shop", "config", planned).await.unwrap_err().code(), 403);
    sources(&ALL).update_with("shop", "config", planned).await.unwrap();
    let found = |source: &mut Source| source.status.get_or_insert_default().observed_commit = Some("a".repeat(40));
    assert_eq!(sources(&ALL).update_status_with("shop", "config", found).await.unwrap_err().code(), 403);
    world.lose("/registry/config.stoa.dev/sources/shop/config").await;
    let made_anew = json!({ "metadata": { "name": "config" }, "spec": { "remote": "file:///other.git" } });
    let make = |allowed: &[&'static str]| {
        let (context, source) = (by("ann", allowed), made_anew.clone());
        let world = &world;
        async move { world.make_as(&context, "config.stoa.dev/v1alpha1", "Source", "shop", source).await }
    };
    assert_eq!(make(&[]).await.unwrap_err().code(), 403);
    make(&ALL).await.unwrap();
    let anew = world.registry.api::<Source>().get("shop", "config").await.unwrap();
    assert_eq!(anew.status.unwrap().set_by, "ann");
    let projects = |allowed: &[&'static str]| world.registry.api::<Project>().with_context(by("ann", allowed));
    let path = |project: &mut Project| project.spec.path = "elsewhere".to_owned();
    assert_eq!(projects(&[]).update_with("shop", "web", path).await.unwrap_err().code(), 403);
    projects(&ALL).update_with("shop", "web", path).await.unwrap();

    // Nor does it take less to make anew what leads there.
    let orphan = |project: &mut Project| project.spec.deletion_policy = Some(stoa_types::DeletionPolicy::Orphan);
    projects(&[]).update_with("shop", "web", orphan).await.unwrap();
    projects(&[]).delete("shop", "web", &Default::default()).await.unwrap();
    let let_go = |project: &mut Project| project.metadata.finalizers = None;
    projects(&[]).update_with("shop", "web", let_go).await.unwrap();
    let made_anew = json!({ "metadata": { "name": "web" }, "spec": { "source": { "name": "elsewhere" } } });
    let make = |allowed: &[&'static str]| {
        let (context, project) = (by("ann", allowed), made_anew.clone());
        let world = &world;
        async move { world.make_as(&context, "config.stoa.dev/v1alpha1", "Project", "shop", project).await }
    };
    assert_eq!(make(&[]).await.unwrap_err().code(), 403);
    make(&ALL).await.unwrap();
    let anew = world.registry.api::<Project>().get("shop", "web").await.unwrap();
    assert_eq!(anew.status.unwrap().set_by, "ann");

    // To have it not started takes nothing.
    let manual = |stack: &mut Stack| stack.spec.trigger = Trigger::Manual;
    stacks(&[]).update_with("shop", "web-dev", manual).await.unwrap();
    projects(&[])
        .update_with("shop", "web", |project: &mut Project| project.spec.path = "apps".to_owned())
        .await
        .unwrap();
}

#[tokio::test]
async fn trigger_status_records_every_decider() {
    use stoa_types::{
        Project, Source, Stack,
        config::{SeenChanges, Trigger},
    };
    const ALL: [&str; 4] =
        ["create runs ", "create stacks/apply web-dev", "use workspaces dev", "use backends default"];
    let world = World::with_stack().await;
    let source = json!({ "metadata": { "name": "config" }, "spec": { "remote": "file:///config.git" } });
    world.make("config.stoa.dev/v1alpha1", "Source", "shop", source).await.unwrap();
    let stacks = |name: &str| world.registry.api::<Stack>().with_context(by(name, &ALL));
    let sources = |name: &str| world.registry.api::<Source>().with_context(by(name, &ALL));
    let projects = |name: &str| world.registry.api::<Project>().with_context(by(name, &ALL));
    let apply = |stack: &mut Stack| stack.spec.trigger = Trigger::Apply;
    stacks("eve").update_with("shop", "web-dev", apply).await.unwrap();
    let version = |stack: &mut Stack| stack.spec.desired_version = "v2".to_owned();
    let stack = stacks("ann").update_with("shop", "web-dev", version).await.unwrap();
    let trigger = stack.status.clone().unwrap().trigger.unwrap();
    assert_eq!(trigger.since.as_ref(), Some(&trigger.changed_by[0].time), "it was set once, by eve");
    for name in ["bob", "dan"] {
        let elsewhere = |source: &mut Source| source.spec.reference = format!("of-{name}");
        sources(name).update_with("shop", "config", elsewhere).await.unwrap();
        let path = |project: &mut Project| project.spec.path = format!("apps/of-{name}");
        projects(name).update_with("shop", "web", path).await.unwrap();
    }
    let lookup = Lookup::of(&world.registry);
    let deciders = crate::trigger::Deciders::of(&lookup, &stack).await.unwrap();
    assert_eq!(deciders.last, ["ann", "dan", "dan"]);
    assert_eq!(deciders.after(&SeenChanges::default()), ["ann", "eve", "dan", "bob", "dan", "bob"]);
    assert_eq!(deciders.after(&deciders.seen()), [""; 0]);
    // Nobody takes themselves out.
    let of_source = |source: &mut Source| source.status.get_or_insert_default().changed_by.clear();
    assert_eq!(sources("bob").update_status_with("shop", "config", of_source).await.unwrap_err().code(), 403);
    let of_project = |project: &mut Project| project.status.get_or_insert_default().changed_by.clear();
    assert_eq!(projects("bob").update_status_with("shop", "web", of_project).await.unwrap_err().code(), 403);
    let of_stack = |stack: &mut Stack| {
        stack.status.get_or_insert_default().trigger.get_or_insert_default().changed_by.clear();
    };
    assert_eq!(stacks("eve").update_status_with("shop", "web-dev", of_stack).await.unwrap_err().code(), 403);
}

#[tokio::test]
async fn deleted_stack_records_original_deleter() {
    let world = World::with_stack().await;
    let hold = |stack: &mut stoa_types::Stack| stack.metadata.finalizers = Some(vec!["example.com/held".to_owned()]);
    world.registry.api::<stoa_types::Stack>().update_with("shop", "web-dev", hold).await.unwrap();
    let on_behalf = crate::trigger::on_behalf_of("projects", vec!["eve".to_owned()]);
    let stacks = world.registry.api::<stoa_types::Stack>().with_context(on_behalf);
    stacks.delete("shop", "web-dev", &Default::default()).await.unwrap();
    let going = stacks.get("shop", "web-dev").await.unwrap();
    assert!(going.metadata.deletion_timestamp.is_some());
    assert_eq!(going.status.unwrap().deleted_by, "eve");
}
