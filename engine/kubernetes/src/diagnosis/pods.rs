//! Description of a Pod: whether it can be scheduled, and the states of its containers.
//!
//! Text that a container can write is left out: with `terminationMessagePolicy: FallbackToLogsOnError` the termination
//! message is a part of its log, and may hold secrets of any origin. Readers of a Run may lack the permission to read
//! `pods/log`.

use serde::Deserialize;

/// One Pod, as far as its state is shown.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    metadata: Metadata,
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    uid: String,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    conditions: Vec<Condition>,
    init_container_statuses: Vec<Container>,
    container_statuses: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    name: String,
    ready: bool,
    state: State,
    last_state: State,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    waiting: Option<Waiting>,
    terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Waiting {
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Terminated {
    exit_code: i32,
    reason: Option<String>,
}

/// The Pods that are not ready and not on their way out, the newest first.
pub(super) fn unready_newest_first(mut pods: Vec<Pod>) -> Vec<Pod> {
    pods.retain(|pod| !pod.is_ready() && pod.metadata.deletion_timestamp.is_none());
    pods.sort_by(|a, b| b.metadata.creation_timestamp.cmp(&a.metadata.creation_timestamp));
    pods
}

/// The problems of Pods. Pods with the same problem share one message, which names the first one.
pub(super) fn sentences(pods: &[Pod]) -> Vec<String> {
    let mut troubles: Vec<(String, &str, usize)> = Vec::new();
    for pod in pods {
        for trouble in pod.troubles() {
            match troubles.iter_mut().find(|(known, ..)| *known == trouble) {
                Some((_, _, count)) => *count += 1,
                None => troubles.push((trouble, pod.name(), 1)),
            }
        }
    }
    let sentence = |(trouble, name, count): (String, &str, usize)| match count {
        1 => format!("Pod {name}: {trouble}"),
        count => format!("Pod {name} and {} more: {trouble}", count - 1),
    };
    troubles.into_iter().map(sentence).collect()
}

impl Pod {
    pub(super) fn name(&self) -> &str {
        &self.metadata.name
    }

    pub(super) fn uid(&self) -> &str {
        &self.metadata.uid
    }

    fn is_ready(&self) -> bool {
        let has_succeeded = self.status.phase.as_deref() == Some("Succeeded");
        has_succeeded || self.status.conditions.iter().any(|it| it.kind == "Ready" && it.status == "True")
    }

    fn troubles(&self) -> Vec<String> {
        let Status { phase, reason, message, conditions, .. } = &self.status;
        let unscheduled = conditions.iter().find(|it| it.kind == "PodScheduled" && it.status == "False");
        let unscheduled = unscheduled.map(|it| text(it.reason.as_deref(), it.message.as_deref()));
        // Such as an eviction: the containers do not mention it.
        let failed = phase.as_deref() == Some("Failed") && reason.is_some();
        let failed = failed.then(|| text(reason.as_deref(), message.as_deref()));
        let containers = self.status.init_container_statuses.iter().chain(&self.status.container_statuses);
        let containers = containers.filter_map(Container::trouble);
        unscheduled.into_iter().chain(failed).chain(containers).collect()
    }
}

impl Container {
    fn trouble(&self) -> Option<String> {
        let name = &self.name;
        let ended = [&self.state, &self.last_state].into_iter().find_map(|state| state.terminated.as_ref());
        let ended = ended.filter(|ended| ended.exit_code != 0).map(Terminated::text);
        match &self.state.waiting {
            Some(waiting) => match (waiting.reason.as_deref(), ended) {
                // It is on its way.
                (None | Some("ContainerCreating" | "PodInitializing"), None) => None,
                // The kubelet's own message has only the pause.
                (Some(reason @ "CrashLoopBackOff"), Some(ended)) => {
                    Some(format!("container {name}: {reason}, it {ended}"))
                }
                (None | Some("ContainerCreating" | "PodInitializing"), Some(ended)) => {
                    Some(format!("container {name} {ended}"))
                }
                // The message quotes the output of the hook, which is a command in the container.
                (Some(reason @ ("PostStartHookError" | "PreStopHookError")), _) => {
                    Some(format!("container {name}: {reason}"))
                }
                (reason, _) => Some(format!("container {name}: {}", text(reason, waiting.message.as_deref()))),
            },
            None if self.ready => None,
            None => ended.map(|ended| format!("container {name} {ended}")),
        }
    }
}

impl Terminated {
    fn text(&self) -> String {
        let Self { exit_code, reason } = self;
        let reason = reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        format!("ended with exit code {exit_code}{reason}")
    }
}

fn text(reason: Option<&str>, message: Option<&str>) -> String {
    let parts = [reason, message].into_iter().flatten().map(str::trim).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(": ")
}
