//! Runs: creating one, following it to its end, and reading its log.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::kubectl::Kubectl;

/// How often a run is looked at.
const POLL: Duration = Duration::from_millis(300);
/// A dozen small objects take seconds.
const PATIENCE: Duration = Duration::from_secs(180);

/// Creates a Run of the sample's stack; returns its name.
pub(super) fn create(kubectl: &Kubectl, operation: &str, plan: Option<&str>) -> Result<String> {
    let plan = plan.map(|plan| format!("\n  plan: {plan}")).unwrap_or_default();
    let manifest = format!(
        "apiVersion: delivery.stoa.dev/v1alpha1
kind: Run
metadata:
  generateName: web-dev-
  namespace: shop
spec:
  stack: web-dev
  workspace: dev
  operation: {operation}{plan}
"
    );
    let created = kubectl.create(&manifest)?;
    let name = created.trim().rsplit('/').next().unwrap_or_default().to_owned();
    eprintln!("created run {name}");
    Ok(name)
}

/// Shows a run's progress until it has ended.
///
/// # Errors
///
/// When it does not succeed; the message is that of its condition.
pub(super) fn follow(kubectl: &Kubectl, name: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut shown = String::new();
    loop {
        let text = kubectl.run(&["get", "run", name, "--namespace=shop", "--output=json"])?;
        let run: Value = serde_json::from_str(&text).context("kubectl printed no JSON")?;
        let line = describe(&run["status"]);
        if line != shown {
            eprintln!("  {line}");
            shown = line;
        }
        match run["status"]["phase"].as_str() {
            Some("Succeeded") => return Ok(()),
            Some(phase @ ("Failed" | "Canceled")) => bail!("run {name} {phase}: {}", reason(&run["status"])),
            _ if Instant::now() >= deadline => bail!("run {name} has not ended after {PATIENCE:?}"),
            _ => thread::sleep(POLL),
        }
    }
}

/// `Applying 5/12`, or the phase alone.
fn describe(status: &Value) -> String {
    let mut line = status["phase"].as_str().unwrap_or("Pending").to_owned();
    let progress = &status["progress"];
    if let Some(total) = progress["total"].as_u64().filter(|total| *total > 0) {
        let _ = write!(line, " {}/{total}", progress["done"].as_u64().unwrap_or(0));
    }
    line
}

/// The message of the condition `Failed`.
fn reason(status: &Value) -> &str {
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let failed = conditions.iter().find(|condition| condition["type"] == "Failed");
    failed.and_then(|condition| condition["message"].as_str()).unwrap_or("no condition says why")
}

/// The run's log: for a preview, the plan as a table.
pub(super) fn log(kubectl: &Kubectl, name: &str) -> Result<String> {
    kubectl.run(&["get", "--raw", &log_path(name)])
}

/// Where a run's log is served.
pub(super) fn log_path(name: &str) -> String {
    format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/shop/runs/{name}/log")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn progress_is_shown_once_there_is_something_to_count() {
        assert_eq!(describe(&json!({})), "Pending");
        assert_eq!(describe(&json!({"phase": "Planning", "progress": {"total": 0}})), "Planning");
        assert_eq!(describe(&json!({"phase": "Applying", "progress": {"total": 12, "done": 5}})), "Applying 5/12");
    }

    #[test]
    fn failure_is_explained_by_its_condition() {
        let status = json!({"conditions": [
            {"type": "Complete", "message": "no"},
            {"type": "Failed", "message": "spec.yaml: cycle"},
        ]});
        assert_eq!(reason(&status), "spec.yaml: cycle");
    }
}
