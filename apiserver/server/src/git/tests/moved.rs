//! A stack that goes to another project: its file does, and it is made anew.

use super::*;

fn stack_in(project: &str) -> String {
    format!("organizations/shop/projects/{project}/stacks/web-dev.yaml")
}

impl Fixture {
    async fn create_project(&self, name: &str) {
        let mut project = project();
        project["metadata"]["name"] = name.into();
        self.create("ann", &project).await;
    }
}

/// Moves the file of the stack, which says so.
fn move_stack(clone: &fixture::Clone, from: &str, to: &str) {
    let file = clone.read(&stack_in(from)).replace(&format!("project: {from}\n"), &format!("project: {to}\n"));
    clone.remove(&stack_in(from));
    clone.write(&stack_in(to), &file);
}

#[tokio::test]
async fn stack_moves_with_its_file_whichever_path_comes_first() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    fixture.create_project("api").await;
    fixture.create_project("zoo").await;
    let clone = fixture.clone_control().await;
    for (from, to) in [("web", "api"), ("api", "zoo")] {
        move_stack(&clone, from, to);
        let pushed = fixture.push(&clone, "another project").await;
        // The one in the other project may be on its way out for longer than the push is patient.
        fixture.wait(|status| status.invalid.is_empty()).await;
        let moved = fixture.registry.api::<Stack>().get("shop", "web-dev").await.expect("there");
        assert_eq!((moved.spec.project.as_str(), moved.metadata.deletion_timestamp), (to, None));
        fixture.projected().await;
        assert_eq!(fixture.head(), pushed);
    }
}

#[tokio::test]
async fn undeletable_stack_delays_only_its_new_file() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    fixture.create_project("api").await;
    let stacks = fixture.registry.api::<Stack>();
    let keep = |stack: &mut Stack| stack.finalizers_mut().push("test.dev/keep".to_owned());
    stacks.update_with("shop", "web-dev", keep).await.expect("written");
    let clone = fixture.clone_control().await;
    move_stack(&clone, "web", "api");
    clone.write(WORKSPACE, &yaml(&workspace("dev")));
    fixture.push(&clone, "another project, and a workspace").await;

    fixture.registry.api::<Workspace>().get("", "dev").await.expect("it waits for no stack");
    let waiting = fixture.status.borrow().invalid.clone();
    assert_eq!(
        waiting.iter().map(|(path, file)| (path.clone(), file.waits)).collect::<Vec<_>>(),
        [(stack_in("api"), true)]
    );
    let (status, _, message) = fixture.organization_synced().await;
    assert_eq!(status, "False");
    assert!(message.contains("stack shop/web-dev is still being deleted"), "{message}");

    let let_go = |stack: &mut Stack| stack.finalizers_mut().retain(|finalizer| finalizer != "test.dev/keep");
    stacks.update_with("shop", "web-dev", let_go).await.expect("written");
    fixture.wait(|status| status.invalid.is_empty()).await;
    let moved = stacks.get("shop", "web-dev").await.expect("made anew");
    assert_eq!((moved.spec.project.as_str(), moved.metadata.deletion_timestamp), ("api", None));
    assert_eq!(fixture.organization_synced().await.0, "True");
}

#[tokio::test]
async fn stack_file_waits_for_project_and_reserves_name() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    let clone = fixture.clone_control().await;
    let early = stack_in("api").replace("web-dev", "api-dev");
    clone.write(&early, &yaml(&stack("api-dev")).replace("project: web", "project: api"));
    let commit = fixture.push(&clone, "too early").await;
    let mut sent = stack("api-dev");
    sent["spec"]["project"] = "api".into();
    let (store, context) = fixture.stacks("ann", false);
    let error = store.create(&context, "shop", object(sent)).await.map(|_| ()).expect_err("decided by the file");
    let told = format!(
        "its file {early} in the control repository waits since commit {}, and is applied as soon as that is possible: ",
        &commit[..8]
    );
    assert!(error.code() == 409 && error.message().contains(&told), "{error}");

    fixture.create_project("api").await;
    fixture.wait(|status| status.invalid.is_empty()).await;
    let stack = fixture.registry.api::<Stack>().get("shop", "api-dev").await.expect("made by its file");
    assert_eq!(stack.spec.project, "api");
}
