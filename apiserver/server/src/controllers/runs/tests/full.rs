//! A Backend without room: the run says so, and what was acknowledged is kept.

use std::{fs, path::Path, process::Command};

use stoa_git::testing::skipped;

use super::{fenced::Scripted, *};

const ID: &str = "v1:ConfigMap:shop:a";

/// A file system with little more than what is left to others, which only root may make. It goes with the value.
struct Small(TempDir);

/// More than what there is beside that.
const FILLER: usize = 2 << 20;

impl Small {
    fn mount() -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=257m", "tmpfs"]).arg(folder.path()).output();
        mount.is_ok_and(|made| made.status.success()).then(|| Self(folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // The folder cannot go before; a mount that stays is worth a word and no more.
        if !Command::new("umount").arg(self.path()).status().is_ok_and(|status| status.success()) {
            eprintln!("{} stays mounted", self.path().display());
        }
    }
}

#[tokio::test]
async fn run_fails_when_its_backend_is_full_and_loses_nothing() {
    let Some(disk) = Small::mount() else {
        skipped("what is about a full Backend: the mount of a small file system to fill takes root");
        return;
    };
    let (runner, mut conversations) = Scripted::start(&[ID]).await;
    let world = World::with_runner(runner::at(runner)).await;
    let local = json!({"type": "Local", "local": {"directory": disk.path()}});
    world.create("Backend", "small", local).await;
    let gitops = json!({"backend": {"name": "small"}, "gitops": {"repository": "file:///deploy.git"}});
    world.create("Workspace", "full", gitops).await;
    let destroy = json!({"stack": "web", "workspace": "full", "operation": "Destroy"});
    let world = world.controlled();

    let filler = disk.path().join("filler");
    fs::write(&filler, vec![0; FILLER]).unwrap();
    world.create("Run", "one", destroy.clone()).await;
    let ended = world.ended("one").await;
    assert_eq!((ended.phase, why(&ended.conditions)), (RunPhase::Failed, reason::BACKEND_FULL));
    let failed = condition(&ended.conditions, reason::FAILED).unwrap();
    assert!(failed.message.contains("the document store is full"), "{}", failed.message);

    // It gets full after the plan was made: what the runner was told is recorded stays so.
    fs::remove_file(&filler).unwrap();
    world.create("Run", "two", destroy.clone()).await;
    let mut conversation = tokio::time::timeout(PATIENCE, conversations.recv()).await.unwrap().unwrap();
    conversation.begin("first").await;
    fs::write(&filler, vec![0; FILLER]).unwrap();
    conversation.carry_out(&[ID]).await;
    let ended = world.ended("two").await;
    assert_eq!((ended.phase, why(&ended.conditions)), (RunPhase::Failed, reason::BACKEND_FULL));

    fs::remove_file(&filler).unwrap();
    world.create("Run", "three", destroy).await;
    let mut conversation = tokio::time::timeout(PATIENCE, conversations.recv()).await.unwrap().unwrap();
    conversation.begin("first").await;
    conversation.carry_out(&[ID]).await;
    let ended = world.ended("three").await;
    assert_eq!((ended.phase, ended.release), (RunPhase::Succeeded, Some(1)));
}
