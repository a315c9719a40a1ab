//! A Backend without room: the run says so, and what was acknowledged is kept.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::Command,
};

use stoa_git::testing::skipped;
use stoa_runs::testing::runner_at;

use super::fenced_runners::Scripted;
use super::*;

const ID: &str = "v1:ConfigMap:shop:a";

/// A small file system, which only root may make. It goes with the value. Documents leave 512 KiB of it free, and those that a
/// run owes 64 KiB.
struct Small(TempDir);

/// Room for what a run owes, and for nothing else.
const OWED: u64 = 256 << 10;

impl Small {
    fn mount() -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(folder.path()).output();
        mount.is_ok_and(|made| made.status.success()).then(|| Self(folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Takes all the room that there is but for so many bytes.
    fn fill_but(&self, left: u64) {
        let mut filler = File::create(self.filler()).unwrap();
        let full = loop {
            if let Err(error) = filler.write_all(&[0; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::StorageFull, "{full}");
        filler.set_len(filler.metadata().unwrap().len() - left).unwrap();
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
async fn full_backend_fails_run_without_loss() {
    let Some(disk) = Small::mount() else {
        skipped("what is about a full Backend: the mount of a small file system to fill takes root");
        return;
    };
    let (runner, mut conversations) = Scripted::start(&[ID]).await;
    let world = TestServer::with_runner(runner_at(runner)).await;
    let local = json!({"type": "Local", "local": {"directory": disk.path()}});
    world.create("Backend", "small", local).await;
    let gitops = json!({"backend": {"name": "small"}, "gitops": {"repository": "file:///deploy.git"}});
    world.create("Workspace", "full", gitops).await;
    let destroy = json!({"stack": "web", "workspace": "full", "operation": "Destroy"});
    let world = world.controlled();

    disk.fill_but(0);
    world.create("Run", "one", destroy.clone()).await;
    let ended = world.ended("one").await;
    assert_eq!((ended.phase, why(&ended.conditions)), (RunPhase::Failed, reason::BACKEND_FULL));
    let failed = condition(&ended.conditions, reason::FAILED).unwrap();
    assert!(failed.message.contains("the document store is full"), "{}", failed.message);

    // It gets full after the plan was made: what the runner was told is recorded stays so.
    fs::remove_file(disk.filler()).unwrap();
    world.create("Run", "two", destroy.clone()).await;
    let mut conversation = tokio::time::timeout(PATIENCE, conversations.recv()).await.unwrap().unwrap();
    conversation.begin("first").await;
    disk.fill_but(0);
    conversation.carry_out(&[ID]).await;
    let ended = world.ended("two").await;
    assert_eq!((ended.phase, why(&ended.conditions)), (RunPhase::Failed, reason::BACKEND_FULL));

    // Others have no room; what it takes to destroy, and to tell that it was, has some.
    disk.fill_but(OWED);
    world.create("Run", "three", destroy).await;
    let mut conversation = tokio::time::timeout(PATIENCE, conversations.recv()).await.unwrap().unwrap();
    conversation.begin("first").await;
    conversation.carry_out(&[ID]).await;
    let ended = world.ended("three").await;
    assert_eq!((ended.phase, ended.release), (RunPhase::Succeeded, Some(1)));
}
