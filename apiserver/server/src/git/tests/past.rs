//! Time travel: what was authored, at versions that the watch cache no longer has.

use stoa_machinery::registry::{List, ListOptions};

use super::*;

fn at(version: u64) -> ListOptions {
    ListOptions {
        resource_version: Some(version.to_string()),
        resource_version_match: Some("Exact".to_owned()),
        ..ListOptions::default()
    }
}

fn names(list: &List) -> Vec<&str> {
    list.items.iter().map(|item| item.name()).collect()
}

/// Writes until the watch cache of stacks begins after everything before.
async fn move_on(fixture: &Fixture) {
    for n in 0..20 {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        let describe = |stack: &mut Object| stack.0["spec"]["description"] = format!("{n}").into();
        fixture.update("ann", "config.stoa.dev", "stacks", "shop", "web-dev", describe).await;
    }
    fixture.projected().await;
}

#[tokio::test]
async fn every_version_of_what_was_authored_can_be_read() {
    let fixture = Fixture::forgetful().await;
    fixture.create_shop("ann").await;
    let (stacks, _) = fixture.stacks("ann", false);
    let before = fixture.registry.log().head().await.expect("head").0;
    let created = fixture.create("ann", &stack("web-a")).await.version.0;
    for name in ["web-b", "web-c", "web-d", "web-e"] {
        fixture.create("ann", &stack(name)).await;
    }
    let label = |stack: &mut Object| drop(stack.metadata_mut().insert("labels".to_owned(), json!({"tier": "front"})));
    let labelled = fixture.update("ann", "config.stoa.dev", "stacks", "shop", "web-a", label).await.version.0;
    fixture.update("ann", "config.stoa.dev", "stacks", "shop", "web-c", label).await;
    let full = fixture.registry.log().head().await.expect("head").0;
    fixture.delete("ann", "config.stoa.dev", "stacks", "shop", "web-a").await;
    fixture.gone::<Stack>("shop", "web-a").await;
    let gone = fixture.registry.log().head().await.expect("head").0;
    move_on(&fixture).await;

    // One object, also one that is no more.
    let get = async |version| stacks.get_at("shop", "web-a", Version(version)).await;
    assert_eq!(get(before).await.expect_err("not yet").code(), 404);
    let first = get(created).await.expect("there");
    assert_eq!((first.version.0, first.label("tier")), (created, None));
    let object = first.object();
    assert_eq!((object.0["kind"].as_str(), object.0["spec"]["project"].as_str()), (Some("Stack"), Some("web")));
    assert!(!object.0.contains_key("status"), "{object:?}");
    let second = get(labelled + 1).await.expect("there");
    assert_eq!((second.version.0, second.label("tier")), (labelled, Some("front")));
    assert_eq!(get(gone).await.expect_err("gone").code(), 404);

    // All of them, selected and in pages.
    let list = async |options: &ListOptions| stacks.list(Some("shop"), options).await.expect("a list");
    let all = list(&at(full)).await;
    assert_eq!(names(&all), ["web-a", "web-b", "web-c", "web-d", "web-dev", "web-e"]);
    assert_eq!((all.version.0, all.continue_token.as_ref()), (full, None));
    assert_eq!(names(&list(&at(created)).await), ["web-a", "web-dev"]);
    let front = ListOptions { label_selector: Some("tier=front".to_owned()), ..at(full) };
    assert_eq!(names(&list(&front).await), ["web-a", "web-c"]);
    let one = ListOptions { field_selector: Some("metadata.name=web-a".to_owned()), ..at(full) };
    assert_eq!(names(&list(&one).await), ["web-a"]);
    assert_eq!(names(&stacks.list(None, &at(full)).await.expect("a list")).len(), 6);
    let mut page = list(&ListOptions { limit: Some(4), ..at(full) }).await;
    assert_eq!(names(&page), ["web-a", "web-b", "web-c", "web-d"]);
    move_on(&fixture).await;
    let next = ListOptions { limit: Some(4), continue_token: page.continue_token.take(), ..ListOptions::default() };
    let page = list(&next).await;
    assert_eq!((names(&page), page.version.0, page.continue_token.as_ref()), (vec!["web-dev", "web-e"], full, None));

    // What does not say that it wants exactly that version hears that it is gone, as does what nobody keeps.
    let paged = ListOptions { limit: Some(4), resource_version_match: None, ..at(full) };
    assert_eq!(stacks.list(Some("shop"), &paged).await.expect_err("gone").code(), 410);
    let future = stacks.get_at("shop", "web-a", Version(u64::MAX)).await.expect_err("not yet");
    assert_eq!(future.code(), 504);
    let runs = fixture.registry.store("delivery.stoa.dev", "v1alpha1", "runs").expect("served");
    assert!(!runs.has_history() && stacks.has_history());
}

#[tokio::test]
async fn history_shows_served_objects_not_pushed_files() {
    let fixture = Fixture::forgetful().await;
    fixture.create_shop("ann").await;
    let (stacks, _) = fixture.stacks("ann", false);
    let clone = fixture.clone_control().await;
    let good = clone.read(STACK);
    clone.write(STACK, &good.replace("desiredVersion: latest", "desiredVersion: v2 # pushed"));
    fixture.push(&clone, "v2").await;
    let pushed = fixture.record_of("/registry/config.stoa.dev/stacks/shop/web-dev").await.version;
    clone.write(STACK, "spec: [\n");
    fixture.push(&clone, "oops").await;
    let invalid = fixture.registry.log().head().await.expect("head");
    clone.write(STACK, &good.replace("desiredVersion: latest", "desiredVersion: v3"));
    fixture.push(&clone, "mended").await;
    let mended = fixture.record_of("/registry/config.stoa.dev/stacks/shop/web-dev").await.version;
    move_on(&fixture).await;
    let desired = async |version| {
        let stack = stacks.get_at("shop", "web-dev", version).await.expect("there");
        (stack.version, stack.object().0["spec"]["desiredVersion"].as_str().map(str::to_owned))
    };
    assert_eq!(desired(Version(pushed.0 - 1)).await.1.as_deref(), Some("latest"));
    assert_eq!(desired(pushed).await, (pushed, Some("v2".to_owned())));
    assert_eq!(desired(invalid).await, (pushed, Some("v2".to_owned())));
    assert_eq!(desired(mended).await, (mended, Some("v3".to_owned())));
}
