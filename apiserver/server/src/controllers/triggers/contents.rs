//! What the folders of stacks are at commits. A task of its own asks the source for each, so that no look waits for that.

use std::collections::HashSet;

use kube::ResourceExt as _;
use parking_lot::Mutex;
use stoa_controller::{
    object::ObjectKey,
    probes::{NamespaceSlots, Questions, Requeue},
    queue,
};
use stoa_runs::{
    Services, StepError, contents,
    target::{self, Target},
};
use stoa_types::{Stack, reason};

/// What is known of stacks besides what is in the log: nothing that cannot be found out again.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) contents: Questions<Folder, String, StepError>,
    /// The stacks of which it is known that every run that was started is noted.
    pub(super) noted: Mutex<HashSet<ObjectKey>>,
}

/// A stack, a commit, the folder, and the values files of its chart.
type Folder = (ObjectKey, String, String, Vec<String>);

impl Memory {
    /// Has a stack looked at once an answer is there by `requeue`.
    pub(super) fn new(requeue: Requeue) -> Self {
        Self { contents: Questions::new(requeue), noted: Mutex::default() }
    }

    pub(super) fn forget(&self, stack: &ObjectKey) {
        self.noted.lock().remove(stack);
        self.contents.forget(stack);
    }
}

/// What the stack's folder is at a commit, once that is known.
pub(super) async fn content(
    services: &Services,
    memory: &Memory,
    stack: &Stack,
    commit: &str,
) -> Option<Result<String, StepError>> {
    let key = queue::key_of(stack);
    let path = match Target::path_of(services, stack).await {
        Ok(path) => path,
        Err(halt) => return Some(Err(halt)),
    };
    let folder: Folder = (key.clone(), commit.to_owned(), path, target::values_files(stack).to_vec());
    memory.contents.set(&key, [folder.clone()].into());
    memory.contents.answer(&key, &folder, &key.0, |turns| {
        let (services, stack) = (services.clone(), stack.clone());
        let (_, commit, path, values_files) = folder.clone();
        async move { Box::pin(ask(&services, &turns, &stack, (commit, path, values_files))).await }
    })
}

async fn ask(
    services: &Services,
    turns: &NamespaceSlots,
    stack: &Stack,
    (commit, path, values_files): (String, String, Vec<String>),
) -> Result<String, StepError> {
    let project = target::project_of(services, stack).await?;
    let folder = contents::Folder { source: project.spec.source.name, commit, path, values_files };
    let missing = format!("{}: does not exist at commit {}", folder.path, folder.commit);
    let namespace = stack.namespace().unwrap_or_default();
    let digest = services.contents.digest(services, turns, &namespace, folder).await?;
    digest.ok_or_else(|| StepError::failed(reason::SOURCE_NOT_FOUND, missing))
}
