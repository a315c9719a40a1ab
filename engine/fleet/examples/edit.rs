//! Measures one edit of a large fleet: `cargo run --release -p stoa-fleet --example edit [CLUSTER_TYPES] [WORKLOADS]`.
//!
//! 10,000 cluster types in 100 regions × 100 workloads are 1,000,000 assignments with three files each. One value of one region
//! changes. The files of this region's 100 cluster types differ, and only they are rendered. Templates are executed in
//! this process by a replacement of two variables, so the figure is that of this crate alone.

use std::{collections::BTreeMap, fmt::Write as _, time::Instant};

use bytes::Bytes;
use stoa_fleet::{
    ControlPlane, Files, Fleet, Sources,
    changed::changed,
    render::{Output, render_each},
    templates::{Batch, Executed, Execution, Renderer, RendererError, TemplateError},
};

const GROUP: &str = "---\napiVersion: scheduler.kalypso.io/v1alpha1\n";

/// Replaces the variables that the templates here have.
#[derive(Debug)]
struct Replacing;

impl Renderer for Replacing {
    fn execute(&self, batch: &Batch) -> Result<Vec<Result<Executed, TemplateError>>, RendererError> {
        let one = |it: &Execution| {
            let data = &batch.data[it.data];
            let texts = batch.templates[it.template].spec.manifests.iter();
            let text = |text: &String| {
                text.replace("{{ .Namespace }}", &data.namespace()).replace("{{ .Workload }}", data.target.workload())
            };
            Ok(Executed { manifests: texts.map(text).collect(), volatile: Vec::new() })
        };
        Ok(batch.executions.iter().map(one).collect())
    }
}

fn map(name: &str, labels: &str, data: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  labels: {{platform-config: 'true'{labels}}}\ndata:\n{data}"
    )
}

fn region(at: usize, value: &str) -> String {
    map(
        &format!("region-{at:03}"),
        &format!(", region: r{at}"),
        &format!("  REGION: r{at}\n  DATABASE_URL: 'mysql://{value}:3306/db'\n"),
    )
}

/// A control plane of a file per region, with its cluster types and their configuration.
fn sources(cluster_types: usize, workloads: usize) -> Sources {
    let mut branch = Files::new();
    let regions = cluster_types.div_ceil(100);
    for at in 0..regions {
        let mut text = String::new();
        for number in (at..cluster_types).step_by(regions) {
            let name = format!("type-{number:05}");
            let spec = "spec: {reconciler: flux, namespaceService: default, configType: configMap}";
            let _ = writeln!(
                text,
                "{GROUP}kind: ClusterType\nmetadata:\n  name: {name}\n  labels: {{region: r{at}, size: s{}}}\n{spec}",
                number % 10
            );
            text += &map(&name, &format!(", cluster-type: {name}"), &format!("  CLUSTER_NAME: {name}\n"));
        }
        branch.insert(format!("regions/{at:03}/types.yaml"), text.into());
        branch.insert(format!("regions/{at:03}/config.yaml"), region(at, "before").into());
    }
    let mut common = map("a-common", "", "  ENVIRONMENT: Prod\n  LIMITS: '{cpu: 1, memory: 2}'\n");
    for size in 0..10 {
        common +=
            &map(&format!("size-{size}"), &format!(", size: s{size}"), &format!("  LIMITS: |\n    cpu: {size}\n"));
    }
    for (name, text) in [
        (
            "flux",
            "kind: Kustomization\nmetadata:\n  name: {{ .Workload }}\nspec:\n  targetNamespace: {{ .Namespace }}\n",
        ),
        ("default", "kind: Namespace\nmetadata:\n  name: {{ .Namespace }}\n"),
    ] {
        let indented = text.replace('\n', "\n      ");
        let _ = writeln!(
            common,
            "{GROUP}kind: Template\nmetadata: {{name: {name}}}\nspec:\n  type: reconciler\n  manifests:\n    - |\n      {indented}"
        );
    }
    common += &format!(
        "{GROUP}kind: SchedulingPolicy\nmetadata: {{name: all}}\nspec: {{deploymentTargetSelector: {{labelSelector: {{}}}}, \
         clusterTypeSelector: {{labelSelector: {{}}}}}}\n"
    );
    for at in 0..workloads {
        let _ = writeln!(
            common,
            "{GROUP}kind: Workload\nmetadata: {{name: app-{at:03}}}\nspec:\n  deploymentTargets:\n  - {{name: main, environment: prod, \
             manifests: {{repo: 'https://git.example.com/app-{at}', branch: prod, path: ./main}}}}"
        );
    }
    branch.insert("common.yaml".to_owned(), common.into());
    Sources { environment: "prod".to_owned(), branch, ..Sources::default() }
}

#[expect(clippy::print_stdout, reason = "the figures are the result")]
fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let (cluster_types, workloads) = (arguments.next().unwrap_or(10_000), arguments.next().unwrap_or(100));
    let mut sources = sources(cluster_types, workloads);

    let begin = Instant::now();
    let plane = ControlPlane::read(&sources, None);
    assert!(plane.problems.is_empty(), "{}", plane.problems[0]);
    let read = begin.elapsed();
    let begin = Instant::now();
    let old = Fleet::new(plane.inputs.clone());
    println!("read {} files in {read:?}, scheduled in {:?}", sources.branch.len(), begin.elapsed());

    let edit = Bytes::from(region(7, "after"));
    sources.branch.insert("regions/007/config.yaml".to_owned(), edit);
    let begin = Instant::now();
    let after = ControlPlane::read(&sources, Some(&plane));
    let read = begin.elapsed();
    let new = old.next(after.inputs);
    let scheduled = begin.elapsed();
    let changes = changed(&old, &BTreeMap::new(), &new, &Replacing).expect("the renderer answers");
    println!(
        "one edit: {} files differ after {:?} (read {read:?}, indexed {:?}, compared {:?})",
        changes.written.len(),
        begin.elapsed(),
        scheduled - read,
        begin.elapsed() - scheduled
    );
    assert!(changes.deleted.is_empty() && changes.broken.is_empty());
    assert_eq!(changes.written.len(), cluster_types.min(100) * workloads);

    let begin = Instant::now();
    let (mut files, mut bytes) = (0_usize, 0_usize);
    render_each(&new, &Replacing, &mut |output| {
        if let Output::File(_, file) = output {
            (files, bytes) = (files + 1, bytes + file.content.len());
        }
    })
    .expect("the renderer answers");
    println!("all: {files} files of {bytes} bytes in {:?}", begin.elapsed());

    let mut many = Sources { environment: "dev".to_owned(), ..Sources::default() };
    for at in 0..100_000 {
        let text = map(&format!("map-{at}"), "", &format!("  KEY: value-{at}\n"));
        many.branch.insert(format!("folder-{}/{at}.yaml", at % 100), text.into());
    }
    let begin = Instant::now();
    let plane = ControlPlane::read(&many, None);
    assert_eq!(plane.inputs.config_maps.len(), 100_000);
    let read = begin.elapsed();
    many.branch.insert("folder-0/0.yaml".to_owned(), map("map-0", "", "  KEY: other\n").into());
    let begin = Instant::now();
    let after = ControlPlane::read(&many, Some(&plane));
    assert_ne!(after.inputs.config_maps["map-0"], plane.inputs.config_maps["map-0"]);
    println!("100,000 files: read in {read:?}, and once more after one edit in {:?}", begin.elapsed());
}
