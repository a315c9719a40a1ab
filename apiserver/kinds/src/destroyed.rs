//! The record of each destroyed deployment: the stack, the workspace, the release and the ids of the resources.
//!
//! A Destroy that succeeds writes it to the log ([`record`]). The projection commits it to the control repository, at
//! `organizations/<organization>/destroyed/<stack>/<workspace>.yaml`, where it outlives the stack and its namespace. There is
//! one file per stack and workspace: a later Destroy replaces it, and earlier ones stay in the history of the file. It
//! stands for no object, so a push to it changes nothing here.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stoa_machinery::{
    Key,
    log::{Change, Expect, Fence, Log, LogError, Origin, Write},
};

const PREFIX: &str = "/stoa/destroyed/";
const FOLDER: &str = "destroyed";
const SUFFIX: &str = ".yaml";
/// The most bytes that the ids of one record have: etcd takes records of little more than a megabyte.
const LARGEST: usize = 256 << 10;

/// One destroyed deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Destroyed {
    /// The name of the stack.
    pub stack: String,
    /// The uid of the stack.
    #[serde(rename = "stackUID")]
    pub stack_uid: String,
    /// The project of the stack.
    pub project: String,
    /// The workspace.
    pub workspace: String,
    /// The number of the release that records the end.
    pub release: i64,
    /// The name of the Run that destroyed it.
    pub run: String,
    /// The uid of the Run.
    #[serde(rename = "runUID")]
    pub run_uid: String,
    /// The user who asked for the run.
    pub requested_by: String,
    /// The users whose deletion of the stack, its project or organization started the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caused_by: Vec<String>,
    /// The end of the Run.
    pub time: Timestamp,
    /// The ids of the resources, in their order.
    pub resources: Vec<String>,
    /// The number of resources that the list has no room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<usize>,
}

impl Destroyed {
    /// Fills in the resources, as far as there is room for their ids.
    pub fn set_resources(&mut self, ids: BTreeSet<String>) {
        let (all, mut bytes) = (ids.len(), 0);
        let fits = |id: &String| {
            bytes += id.len();
            bytes <= LARGEST
        };
        self.resources = ids.into_iter().take_while(fits).collect();
        self.more = Some(all - self.resources.len()).filter(|more| *more > 0);
    }

    /// The first line of the commit.
    pub fn subject(&self, organization: &str) -> String {
        let Self { stack, workspace, release, .. } = self;
        let count = self.resources.len() + self.more.unwrap_or_default();
        let resources = if count == 1 { "resource" } else { "resources" };
        format!("destroy stack {organization}/{stack} in workspace {workspace}: release {release}, {count} {resources}")
    }

    /// The lines of the commit's message after the first, by which `git log --grep` finds it.
    fn message(&self, organization: &str) -> String {
        let Self { stack, stack_uid, workspace, release, run, requested_by, caused_by, .. } = self;
        let mut lines = format!(
            "Stack: {organization}/{stack}\nStack-UID: {stack_uid}\nWorkspace: {workspace}\nRelease: {release}\nRun: {run}\n\
             Requested-By: {requested_by}\n"
        );
        for user in caused_by {
            lines += &format!("Caused-By: {user}\n");
        }
        lines
    }
}

/// The names of a deployment, by which its record is found in the log and in the control repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The organization.
    pub organization: String,
    stack: String,
    workspace: String,
}

impl Names {
    /// Splits `organization/stack/workspace`.
    fn of(text: &str) -> Option<Self> {
        let mut parts = text.split('/').map(str::to_owned);
        let names = Self { organization: parts.next()?, stack: parts.next()?, workspace: parts.next()? };
        let is_name = |part: &String| !part.is_empty() && !part.starts_with('.');
        let are_names = [&names.organization, &names.stack, &names.workspace].into_iter().all(is_name);
        (are_names && parts.next().is_none()).then_some(names)
    }

    /// The names in a key of the log; nothing for keys of others.
    pub fn of_key(key: &Key) -> Option<Self> {
        Self::of(key.as_str().strip_prefix(PREFIX)?)
    }

    /// The names in the path of a file; nothing for other files.
    pub fn of_path(path: &str) -> Option<Self> {
        let rest = path.strip_prefix("organizations/")?.strip_suffix(SUFFIX)?;
        let (organization, rest) = rest.split_once('/')?;
        let (folder, rest) = rest.split_once('/')?;
        if folder == FOLDER { Self::of(&format!("{organization}/{rest}")) } else { None }
    }

    /// The key in the log.
    pub fn key(&self) -> Key {
        let Self { organization, stack, workspace } = self;
        Key::new(format!("{PREFIX}{organization}/{stack}/{workspace}"))
    }

    /// The path of the file in the control repository.
    pub fn path(&self) -> String {
        let Self { organization, stack, workspace } = self;
        format!("organizations/{organization}/{FOLDER}/{stack}/{workspace}{SUFFIX}")
    }
}

/// Whether a folder of the control repository may have such files, or folders that do.
pub fn may_be_under(folder: &str) -> bool {
    let is_name = |part: &str| !part.is_empty() && !part.starts_with('.');
    match folder.split('/').collect::<Vec<_>>().as_slice() {
        ["organizations", organization, FOLDER] => is_name(organization),
        ["organizations", organization, FOLDER, stack] => is_name(organization) && is_name(stack),
        _ => false,
    }
}

/// Writes the record of a destroyed deployment, under the lease of its run. A second call for the same run changes nothing.
///
/// # Errors
///
/// Those of the log.
pub async fn record(
    log: &dyn Log,
    organization: &str,
    destroyed: &Destroyed,
    fence: Option<Fence>,
) -> Result<(), LogError> {
    let (stack, workspace) = (destroyed.stack.clone(), destroyed.workspace.clone());
    let key = Names { organization: organization.to_owned(), stack, workspace }.key();
    let there = log.read(&key).await?;
    let is_recorded = there.as_ref().is_some_and(|entry| {
        serde_json::from_slice::<Destroyed>(&entry.value).is_ok_and(|there| there.run_uid == destroyed.run_uid)
    });
    if is_recorded {
        return Ok(());
    }
    let value = serde_json::to_vec(destroyed).expect("a record serializes");
    let write = Write {
        key,
        expect: there.map_or(Expect::Absent, |entry| Expect::At(entry.version)),
        change: Change::Put(value.into()),
        fence,
        origin: Origin {
            user: "system:stoa:runs".to_owned(),
            verb: String::new(),
            message: destroyed.message(organization),
        },
    };
    log.append(write).await.map(drop)
}

#[cfg(test)]
mod tests {
    use stoa_machinery::log::MemoryLog;

    use super::*;
    use crate::testing::destroyed;

    #[test]
    fn record_has_a_key_and_a_file() {
        let key = Key::new("/stoa/destroyed/shop/web.eu/dev");
        let names = Names::of_key(&key).unwrap();
        assert_eq!(names.path(), "organizations/shop/destroyed/web.eu/dev.yaml");
        assert_eq!(Names::of_path(&names.path()), Some(names.clone()));
        assert_eq!(names.key(), key);
        for path in ["organizations/shop/destroyed/web.yaml", "organizations/shop/sources/web/dev.yaml", "dev.yaml"] {
            assert_eq!(Names::of_path(path), None, "{path}");
        }
        assert_eq!(Names::of_key(&Key::new("/stoa/state/u/dev/head")), None);
    }

    #[tokio::test]
    async fn record_is_written_once_for_a_run() {
        let log = MemoryLog::new();
        let versions = async |run: &str, ids: &[&str]| {
            record(&log, "shop", &destroyed(run, ids), None).await.unwrap();
            let entry = log.read(&Key::new("/stoa/destroyed/shop/web/dev")).await.unwrap().unwrap();
            (entry.version, serde_json::from_slice::<Destroyed>(&entry.value).unwrap().resources)
        };
        let first = versions("one", &["a", "b"]).await;
        assert_eq!(first.1, ["a", "b"]);
        assert_eq!(versions("one", &[]).await, first, "it is recorded already");
        assert_eq!(versions("two", &["c"]).await.1, ["c"]);
    }

    #[test]
    fn record_counts_resources_without_room() {
        let ids: Vec<String> = (0..10).map(|number| format!("{number}{}", "x".repeat(LARGEST / 4))).collect();
        let destroyed = destroyed("one", &ids.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((destroyed.resources.len(), destroyed.more), (3, Some(7)));
        let subject = "destroy stack shop/web in workspace dev: release 3, 10 resources";
        assert_eq!(destroyed.subject("shop"), subject);
    }
}
