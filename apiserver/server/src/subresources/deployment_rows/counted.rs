//! The numbers of deployments of each workload in an environment, by state.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stoa_types::hub::DeploymentState;

/// The numbers of deployments in each state.
#[derive(Debug)]
pub(super) struct Counted {
    /// The wanted environment and workload; any without them.
    environment: Option<String>,
    workload: Option<String>,
    /// By workspace, application, workload and environment.
    found: BTreeMap<[String; 4], Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    succeeded: usize,
    failed: usize,
    in_progress: usize,
    unknown: usize,
}

impl Counted {
    /// No deployments of an environment and a workload, or of any.
    pub(super) fn new(environment: Option<String>, workload: Option<String>) -> Self {
        Self { environment, workload, found: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, state: DeploymentState) {
        let spec = state.spec;
        let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        if !is(&self.environment, &spec.environment) || !is(&self.workload, &spec.workload) {
            return;
        }
        let key = [spec.workspace, spec.application, spec.workload, spec.environment];
        let counts = self.found.entry(key).or_default();
        let count = match state.status.unwrap_or_default().state.as_str() {
            "success" => &mut counts.succeeded,
            "failure" => &mut counts.failed,
            "in_progress" => &mut counts.in_progress,
            _ => &mut counts.unknown,
        };
        *count += 1;
    }

    /// One row for each workload in an environment.
    pub(super) fn into_rows(self) -> Vec<Value> {
        let row = |([workspace, application, workload, environment], counts): ([String; 4], Counts)| {
            let Counts { succeeded, failed, in_progress, unknown } = counts;
            json!({
                "workspace": workspace,
                "application": application,
                "workload": workload,
                "environment": environment,
                "total": succeeded + failed + in_progress + unknown,
                "succeeded": succeeded,
                "failed": failed,
                "inProgress": in_progress,
                "unknown": unknown,
            })
        };
        self.found.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use stoa_types::hub::{DeploymentStateSpec, DeploymentStateStatus};

    use super::*;

    #[test]
    fn deployments_are_counted_by_state() {
        let state = |workload: &str, environment: &str, state: &str| DeploymentState {
            metadata: Default::default(),
            spec: DeploymentStateSpec {
                workload: workload.to_owned(),
                environment: environment.to_owned(),
                ..DeploymentStateSpec::default()
            },
            status: Some(DeploymentStateStatus { state: state.to_owned(), ..DeploymentStateStatus::default() }),
        };
        let count = |environment: Option<&str>, workload: Option<&str>| -> Vec<String> {
            let wanted = |text: Option<&str>| text.map(str::to_owned);
            let mut counted = Counted::new(wanted(environment), wanted(workload));
            for (workload, environment, of) in [
                ("web", "dev", "success"),
                ("web", "dev", "failure"),
                ("web", "dev", "in_progress"),
                ("web", "dev", "unknown"),
                ("web", "dev", "failure"),
                ("web", "prod", "success"),
                ("api", "dev", "success"),
            ] {
                counted.add(state(workload, environment, of));
            }
            let numbers = ["total", "succeeded", "failed", "inProgress", "unknown"];
            let shown = |row: &Value| {
                let numbers = numbers.map(|name| row[name].to_string()).join(" ");
                format!("{} {} {numbers}", row["workload"].as_str().unwrap(), row["environment"].as_str().unwrap())
            };
            counted.into_rows().iter().map(shown).collect()
        };
        assert_eq!(count(None, None), ["api dev 1 1 0 0 0", "web dev 5 1 2 1 1", "web prod 1 1 0 0 0"]);
        assert_eq!(count(Some("prod"), None), ["web prod 1 1 0 0 0"]);
        assert_eq!(count(Some("dev"), Some("api")), ["api dev 1 1 0 0 0"]);
    }
}
