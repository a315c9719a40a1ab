//! One case: its inputs, and the stack that deploys them folder by folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use stoa_e2e::fixture::{Organization, condition};
use stoa_e2e::{Cluster, Kubectl, Server as _};

/// The stack that deploys the inputs.
pub(crate) const STACK: &str = "case";

/// The inputs of one folder of `tests/data/cases`, and an organization with one stack for them.
#[derive(Debug)]
pub(crate) struct Case {
    /// The organization, whose workspace leads to the test bed's cluster.
    pub(crate) organization: Organization,
    cluster: Cluster,
    inputs: PathBuf,
}

impl Case {
    /// Creates an organization for the case of this name.
    pub(crate) fn new(name: &str) -> Self {
        let cluster = Cluster::shared();
        let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/cases").join(name);
        assert!(inputs.is_dir(), "{} has no inputs", inputs.display());
        Self { organization: Organization::create(&cluster), cluster, inputs }
    }

    /// The path of an input.
    pub(crate) fn input(&self, path: &str) -> PathBuf {
        self.inputs.join(path)
    }

    /// kubectl as the administrator of the cluster.
    pub(crate) fn kubectl(&self) -> Kubectl {
        self.cluster.kubectl()
    }

    /// Applies an input by kubectl, as the administrator.
    pub(crate) fn prepare(&self, path: &str) {
        let file = self.input(path);
        self.kubectl().run(&["apply", "--filename", file.to_str().unwrap()]);
    }

    /// Makes an input folder the whole source of the stack.
    pub(crate) fn commit(&self, folder: &str) {
        self.organization.stack_of_files(STACK, &self.input(folder));
    }

    /// Commits an input folder and previews it, which has to succeed; returns the Run.
    pub(crate) fn preview(&self, folder: &str) -> Value {
        self.commit(folder);
        self.organization.succeed(STACK, "Preview", "")
    }

    /// Commits an input folder and applies it, which has to succeed; returns the Run.
    pub(crate) fn apply(&self, folder: &str) -> Value {
        self.commit(folder);
        self.organization.succeed(STACK, "Apply", "")
    }

    /// Runs an operation on what is committed, which has to fail within a time; returns the Run and the message of its
    /// condition Failed.
    pub(crate) fn fails_within(&self, operation: &str, patience: Duration) -> (Value, String) {
        let run = self.organization.ended(&self.organization.start(STACK, operation, ""), patience);
        assert_eq!(run["status"]["phase"], "Failed", "{run:#}");
        let message = condition(&run, "Failed")["message"].as_str().unwrap_or_default().to_owned();
        (run, message)
    }

    /// Asserts that the end of every call of a Run is known.
    pub(crate) fn assert_none_unknown(&self, run: &Value) {
        let resources = self.organization.of_stack("resources", STACK);
        let of_run = run["status"]["resources"].as_array().cloned().unwrap_or_default();
        let phases = resources.iter().map(|resource| &resource["status"]["phase"]);
        let unknown =
            phases.chain(of_run.iter().map(|resource| &resource["phase"])).filter(|phase| *phase == "Unknown");
        assert_eq!(unknown.count(), 0, "{run:#}");
    }

    /// Asserts that neither a Preview nor a Refresh finds anything to do.
    pub(crate) fn assert_settled(&self) {
        for operation in ["Preview", "Refresh"] {
            self.organization.nothing_is_left(STACK, operation);
        }
    }

    /// The counts of a Run's plan by action, those that are not zero: `create 2, update 1`.
    pub(crate) fn summary(run: &Value) -> String {
        let summary = run["status"]["plan"]["summary"].as_object().cloned().unwrap_or_default();
        let counts = summary.iter().filter(|(_, count)| count.as_u64() != Some(0));
        counts.map(|(action, count)| format!("{action} {count}")).collect::<Vec<_>>().join(", ")
    }

    /// How many resources get this action in a Run's plan.
    pub(crate) fn count(run: &Value, action: &str) -> u64 {
        run["status"]["plan"]["summary"][action].as_u64().unwrap_or_default()
    }

    /// The text of a subresource of a Run: `log` or `plan`.
    pub(crate) fn document(&self, run: &Value, subresource: &str) -> String {
        let (namespace, name) = (&self.organization.name, run["metadata"]["name"].as_str().unwrap());
        let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{namespace}/runs/{name}/{subresource}");
        self.kubectl().raw(&path)
    }

    /// Destroys what the stack deployed.
    pub(crate) fn destroy(&self) {
        self.organization.succeed(STACK, "Destroy", "");
    }
}
