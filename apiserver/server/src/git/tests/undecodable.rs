//! An object that does not decode keeps its file as it is, and keeps nobody else's waiting.

use stoa_machinery::log::{Change, Expect, Key, Write};

use super::*;

const KEY: &str = "/registry/config.stoa.dev/projects/shop/web";
const STACK_KEY: &str = "/registry/config.stoa.dev/stacks/shop/web-dev";

/// Puts bytes where an object is, as another writer of the log might.
async fn put(fixture: &Fixture, key: &str, value: Vec<u8>) {
    let write = Write::new(Key::new(key), Expect::Any, Change::Put(value.into()));
    fixture.registry.log().append(write).await.expect("written");
}

#[tokio::test]
async fn undecodable_object_retains_file_and_blocks_no_push() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    let clone = fixture.clone_control().await;
    let file = clone.read(PROJECT);
    let good = fixture.registry.log().read(&Key::new(KEY)).await.expect("read").expect("there").value;
    let stack = clone.read(STACK);
    put(&fixture, KEY, b"not JSON".to_vec()).await;
    put(&fixture, STACK_KEY, b"not JSON".to_vec()).await;
    fixture.projected().await;
    assert_eq!(fixture.show(PROJECT), file);
    assert_eq!(fixture.show(STACK), stack, "though only the stack itself says where that is");

    clone.write(PROJECT, &file.replace("path: apps/web", "path: apps/other"));
    clone.write(WORKSPACE, &yaml(&workspace("dev")));
    fixture.push(&clone, "a change of what does not decode, and a workspace").await;
    fixture.registry.api::<Workspace>().get("", "dev").await.expect("it is applied");
    let (status, why, message) = fixture.organization_synced().await;
    assert_eq!((status.as_str(), why.as_str()), ("False", reason::PUSH_REFUSED));
    assert!(message.contains("object not decodable"), "{message}");
    let kept = fixture.registry.log().read(&Key::new(KEY)).await.expect("read").expect("there");
    assert_eq!(kept.value, "not JSON", "nothing is written over it");

    put(&fixture, KEY, good.to_vec()).await;
    fixture.projected().await;
    assert_eq!(fixture.show(PROJECT), file, "it is what is served again");
    assert_eq!(fixture.organization_synced().await.0, "True");
    let clone = fixture.clone_control().await;
    clone.write(PROJECT, &file.replace("path: apps/web", "path: apps/other"));
    fixture.push(&clone, "the change once more").await;
    let project = fixture.registry.api::<Project>().get("shop", "web").await.expect("repaired");
    assert_eq!(project.spec.path, "apps/other");
}
