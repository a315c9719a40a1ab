//! Control planes of any size: cluster types in regions, workloads that are on all of them, and configuration.

use std::fmt::Write as _;

use stoa_fleet::{Files, Sources};

/// The cluster types of a region.
pub(super) const OF_REGION: usize = 100;

/// The beginning of an object of Kalypso.
const OBJECT: &str = "---\napiVersion: scheduler.kalypso.io/v1alpha1\n";

/// The size of a control plane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dimensions {
    pub(super) cluster_types: usize,
    pub(super) workloads: usize,
}

impl Dimensions {
    pub(super) fn assignments(self) -> usize {
        self.cluster_types * self.workloads
    }

    pub(super) fn regions(self) -> usize {
        self.cluster_types.div_ceil(OF_REGION)
    }

    /// The cluster types of the region that [`edited`] is of.
    pub(super) fn of_edited_region(self) -> usize {
        (0..self.cluster_types).step_by(self.regions()).count()
    }
}

/// The name of a cluster type.
pub(super) fn cluster_type(number: usize) -> String {
    format!("type-{number:05}")
}

fn config_map(name: &str, labels: &str, data: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  labels: {{platform-config: 'true'{labels}}}\ndata:\n{data}"
    )
}

fn config_of_region(region: usize, value: &str) -> String {
    config_map(
        &format!("region-{region:03}"),
        &format!(", region: r{region}"),
        &format!("  REGION: r{region}\n  DATABASE_URL: 'mysql://{value}:3306/db'\n"),
    )
}

/// The path and the text of the configuration of the first region with another value.
pub(super) fn edited(value: &str) -> (String, String) {
    ("regions/000/config.yaml".to_owned(), config_of_region(0, value))
}

/// A control plane with two files for each region, and one for all.
pub(super) fn sources(environment: &str, dimensions: Dimensions) -> Sources {
    let mut branch = Files::new();
    let regions = dimensions.regions();
    for region in 0..regions {
        let mut text = String::new();
        for number in (region..dimensions.cluster_types).step_by(regions) {
            let (name, size) = (cluster_type(number), number % 10);
            let _ = writeln!(
                text,
                "{OBJECT}kind: ClusterType\nmetadata:\n  name: {name}\n  labels: {{region: r{region}, size: s{size}}}\n\
                 spec: {{reconciler: flux, namespaceService: default, configType: configMap}}"
            );
            text += &config_map(&name, &format!(", cluster-type: {name}"), &format!("  CLUSTER_NAME: {name}\n"));
        }
        branch.insert(format!("regions/{region:03}/types.yaml"), text.into());
        branch.insert(format!("regions/{region:03}/config.yaml"), config_of_region(region, "before").into());
    }
    branch.insert("common.yaml".to_owned(), common(environment, dimensions.workloads).into());
    Sources { environment: environment.to_owned(), branch, ..Sources::default() }
}

/// Configuration for all, templates, a policy, and workloads.
fn common(environment: &str, workloads: usize) -> String {
    let mut text = config_map("a-common", "", "  ENVIRONMENT: Prod\n  LIMITS: '{cpu: 1, memory: 2}'\n");
    for size in 0..10 {
        let data = format!("  LIMITS: |\n    cpu: {size}\n");
        text += &config_map(&format!("size-{size}"), &format!(", size: s{size}"), &data);
    }
    for (name, purpose, template) in [
        (
            "flux",
            "reconciler",
            "kind: Kustomization\nmetadata:\n  name: {{ .Workload }}\nspec:\n  targetNamespace: {{ .Namespace }}\n",
        ),
        ("default", "namespace", "kind: Namespace\nmetadata:\n  name: {{ .Namespace }}\n"),
    ] {
        let indented = template.trim_end().replace('\n', "\n      ");
        let _ = writeln!(
            text,
            "{OBJECT}kind: Template\nmetadata: {{name: {name}}}\nspec:\n  type: {purpose}\n  manifests:\n    - |\n      {indented}"
        );
    }
    text += &format!(
        "{OBJECT}kind: SchedulingPolicy\nmetadata: {{name: all}}\nspec: {{deploymentTargetSelector: {{labelSelector: {{}}}}, \
         clusterTypeSelector: {{labelSelector: {{}}}}}}\n"
    );
    for number in 0..workloads {
        let _ = writeln!(
            text,
            "{OBJECT}kind: Workload\nmetadata: {{name: app-{number:03}}}\nspec:\n  deploymentTargets:\n  - {{name: main, environment: \
             {environment}, manifests: {{repo: 'https://git.example.com/app-{number}', branch: prod, path: ./main}}}}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use stoa_fleet::{
        ControlPlane, Fleet,
        changed::changed,
        render::{Output, render, render_each},
    };

    use super::*;
    use crate::fleet::templates::Replacing;

    #[test]
    fn each_workload_is_on_each_cluster_type() {
        let dimensions = Dimensions { cluster_types: 250, workloads: 2 };
        let mut sources = sources("prod", dimensions);
        let plane = ControlPlane::read(&sources, None);
        assert!(plane.problems.is_empty(), "{}", plane.problems[0]);
        let old = Fleet::new(plane.inputs.clone());
        assert_eq!(old.schedule().assignments().count(), dimensions.assignments());
        let tree = render(&old, &Replacing).unwrap();
        assert!(tree.broken.is_empty());
        // Three files of each assignment, and one of each cluster type.
        assert_eq!(tree.files.len(), 250 * (2 * 3 + 1));
        let (path, text) = edited("after");
        assert!(sources.branch.insert(path, text.into()).is_some());
        let new = old.next(ControlPlane::read(&sources, Some(&plane)).inputs);
        let changes = changed(&old, &BTreeMap::new(), &new, &Replacing).unwrap();
        assert_eq!(changes.written.len(), dimensions.of_edited_region() * 2);
    }

    #[test]
    fn hundreds_of_workloads_are_on_hundreds_of_cluster_types() {
        let dimensions = Dimensions { cluster_types: 200, workloads: 200 };
        let mut sources = sources("prod", dimensions);
        let plane = ControlPlane::read(&sources, None);
        assert!(plane.problems.is_empty(), "{}", plane.problems[0]);
        let old = Fleet::new(plane.inputs.clone());
        assert_eq!(old.schedule().assignments().count(), 40_000);
        let mut files = 0;
        render_each(&old, &Replacing, &mut |output| match output {
            Output::File(..) => files += 1,
            Output::Broken(folder, broken) => panic!("{folder}: {:?}", broken.problems),
            Output::Warning(warning) => panic!("{warning}"),
        })
        .unwrap();
        assert_eq!(files, 3 * 40_000 + 200);
        // A region is half of this fleet. The files of the other half are not rendered again.
        let (path, text) = edited("after");
        sources.branch.insert(path, text.into());
        let new = old.next(ControlPlane::read(&sources, Some(&plane)).inputs);
        let changes = changed(&old, &BTreeMap::new(), &new, &Replacing).unwrap();
        assert_eq!((changes.written.len(), changes.deleted.len()), (20_000, 0));
        assert!(changes.written.keys().all(|path| path.ends_with("/platform-config.yaml")));
    }
}
