//! Processes that end in the middle of runs with objects of a provider beside those of Kubernetes: the provider's folder
//! says what really exists, which is every wanted object once. A create whose answer is lost is Unknown, and the
//! documented remedy works; an update or a deletion is found out by a read.
//!
//! Each change crashes at one boundary per round ([`stoa_e2e::repeat`]), and at every moment of the provider's calls.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::thread;

use serde_json::{Value, json};
use stoa_e2e::Cluster;
use stoa_e2e::crashes::{PATIENCE, crash_in};
use stoa_e2e::fixture::condition;
use stoa_e2e::repeat::{Random, repeat, seed};

use crate::harness::{Bed, id, of, resource};

const KIND: &str = "frame_object";
const PROVIDERS: [(&str, &str); 1] = [("frame", "1.0.0")];

/// What a run does to the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Create,
    Update,
    Replace,
    Delete,
    Destroy,
}

const CHANGES: [Change; 5] = [Change::Create, Change::Update, Change::Replace, Change::Delete, Change::Destroy];

impl Change {
    fn operation(self) -> &'static str {
        if self == Self::Destroy { "Destroy" } else { "Apply" }
    }

    /// Whether a lost call of it may have created an object that nobody can find.
    fn creates(self) -> bool {
        matches!(self, Self::Create | Self::Replace)
    }

    fn comes_to(self, point: &str) -> bool {
        // What is gone has no health.
        !(matches!(self, Self::Delete | Self::Destroy) && stoa_failpoint::OF_HEALTH.contains(&point))
    }

    /// The application before and after it.
    fn applications(self) -> [Option<Application>; 2] {
        let first = Application { names: "old", value: "1", has_second: true };
        match self {
            Self::Create => [None, Some(first)],
            Self::Update => [Some(first), Some(Application { value: "2", ..first })],
            Self::Replace => [Some(first), Some(Application { names: "new", ..first })],
            Self::Delete => [Some(first), Some(Application { has_second: false, ..first })],
            Self::Destroy => [Some(first), None],
        }
    }
}

/// Two objects of the provider with a ConfigMap in between: references lead from it to the first, and from the second to
/// it.
#[derive(Clone, Copy, Debug)]
struct Application {
    /// A part of the objects' names, which cannot change.
    names: &'static str,
    value: &'static str,
    has_second: bool,
}

impl Application {
    fn names(self) -> impl Iterator<Item = &'static str> {
        ["first", "second"].into_iter().take(if self.has_second { 2 } else { 1 })
    }

    fn resources(self, stack: &str, namespace: &str) -> Value {
        let map = format!("v1:ConfigMap:{namespace}:names");
        let object = |name: &str, value: &str| {
            resource(KIND, name, &json!({"name": format!("{stack}-{}-{name}", self.names), "value": value}))
        };
        let mut resources = vec![
            json!({"id": format!("v1:Namespace:{namespace}"), "type": "Kubernetes", "attributes": {
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}}),
            object("first", self.value),
            json!({"id": map, "type": "Kubernetes", "attributes": {
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "names", "namespace": namespace},
                "data": {"first": of(KIND, "first", "id"), "value": self.value}}}),
        ];
        if self.has_second {
            resources.push(object("second", &format!("$kusion_path.{map}.data.value")));
        }
        resources.into()
    }

    /// The values of the objects that really exist, by their names.
    fn objects(self, stack: &str) -> BTreeMap<String, Vec<String>> {
        let of = |name: &str| (format!("{stack}-{}-{name}", self.names), vec![self.value.to_owned()]);
        self.names().map(of).collect()
    }
}

/// A cluster with an organization whose provider has a folder of its own for objects.
struct Scene {
    bed: Bed,
    folder: PathBuf,
}

impl Scene {
    fn new(cluster: &Cluster) -> Self {
        let bed = Bed::new(cluster, &PROVIDERS);
        let folder = cluster.provider_objects().join(&bed.organization.name);
        fs::create_dir_all(&folder).unwrap();
        let provider = format!(
            "    network: Deny\n    providers:\n    - name: frame\n      source: hashicorp/frame\n      \
             configuration: {{folder: {}}}\n",
            folder.display()
        );
        bed.use_lock(&bed.mirror.lock(&PROVIDERS), &provider);
        Self { bed, folder }
    }

    /// The ids of the objects of a stack that really exist.
    fn ids(&self, stack: &str) -> Vec<String> {
        let entries =
            fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut ids: Vec<String> = entries.filter(|name| name.starts_with(&format!("{stack}-"))).collect();
        ids.sort();
        ids
    }

    /// The values of the objects of a stack that really exist, by their names.
    fn objects(&self, stack: &str) -> BTreeMap<String, Vec<String>> {
        let mut objects: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for id in self.ids(stack) {
            let value = fs::read_to_string(self.folder.join(&id)).unwrap();
            objects.entry(id.split_once('.').unwrap().0.to_owned()).or_default().push(value);
        }
        objects
    }

    fn resources(&self, stack: &str) -> Vec<Value> {
        self.bed.organization.of_stack("resources", stack)
    }

    /// The provider's resources of a stack whose last call has no known result.
    fn unknown(&self, stack: &str) -> BTreeSet<String> {
        let resources = self.resources(stack);
        let unknown = resources.iter().filter(|resource| resource["status"]["phase"] == "Unknown");
        let ids = unknown.map(|resource| resource["spec"]["id"].as_str().unwrap().to_owned());
        ids.filter(|of| of.starts_with(&id(KIND, ""))).collect()
    }

    fn declare(&self, case: &Case, application: Application) {
        let resources = application.resources(&case.stack, &case.namespace);
        self.bed.organization.stack(&case.stack, &json!({ "resources": resources }).to_string());
    }

    /// Follows an interrupted run to a good end, as people would: they run it again, and decide about what is Unknown.
    /// Returns what they had to decide about.
    fn see_through(&self, case: &Case, interrupted: &str) -> BTreeSet<String> {
        let (organization, stack, operation) = (&self.bed.organization, &case.stack, case.change.operation());
        if organization.ended(interrupted, PATIENCE)["status"]["phase"] == "Succeeded" {
            return BTreeSet::new();
        }
        // What can be found out is found out by the next run.
        let again = organization.ended(&organization.start(stack, operation, ""), PATIENCE);
        if again["status"]["phase"] == "Succeeded" {
            return BTreeSet::new();
        }
        let failed = condition(&again, "Failed");
        assert_eq!(failed["reason"], "UnknownState", "{case:?}: {again:#}");
        let unknown = self.unknown(stack);
        assert!(!unknown.is_empty(), "{case:?}: {again:#}");
        let (mut existing, mut missing) = (Vec::new(), Vec::new());
        for id in &unknown {
            match self.made(case, id).as_slice() {
                [] => missing.push(id),
                [made] => existing.push(json!({"id": id, "infrastructureId": made})),
                several => panic!("{case:?}: {id} exists {several:?}"),
            }
        }
        if !existing.is_empty() {
            organization.succeed(stack, "Import", &format!("import: {{resources: {}}}", Value::from(existing)));
        }
        let retry = format!("retry: {}", json!(missing));
        organization.succeed(stack, operation, if missing.is_empty() { "" } else { &retry });
        unknown
    }

    /// The objects that really exist for a resource, other than the one that it has on record.
    fn made(&self, case: &Case, id: &str) -> Vec<String> {
        let recorded = self.resources(&case.stack).into_iter().find(|resource| resource["spec"]["id"] == id);
        let recorded = recorded.map(|resource| resource["spec"]["cloud"]["id"].clone()).unwrap_or_default();
        let name = id.rsplit(':').next().unwrap();
        let mut ids = self.ids(&case.stack);
        ids.retain(|it| it.split_once('.').unwrap().0.ends_with(&format!("-{name}")) && recorded != **it);
        ids
    }

    /// Checks that what exists, what is recorded and what is wanted are the same.
    fn check(&self, case: &Case) {
        let organization = &self.bed.organization;
        let Case { change, stack, namespace, .. } = case;
        let [_, after] = change.applications();
        let wanted = after.map(|it| it.objects(stack)).unwrap_or_default();
        assert_eq!(self.objects(stack), wanted, "{case:?}");
        let resources = self.resources(stack);
        let of_provider = resources.iter().filter(|it| it["spec"]["type"] == "Terraform");
        let mut recorded: Vec<&str> = of_provider
            .filter(|resource| resource["status"]["phase"] != "Destroyed")
            .map(|resource| resource["spec"]["cloud"]["id"].as_str().unwrap_or_default())
            .collect();
        recorded.sort_unstable();
        assert_eq!(recorded, self.ids(stack), "{case:?}: {resources:#?}");
        assert!(self.unknown(stack).is_empty(), "{case:?}: {resources:#?}");
        let map = self.bed.kubectl.try_get(&["configmap", "names", "--namespace", namespace]);
        let Some(after) = after else { return assert!(map.is_none(), "{case:?}") };
        let first = self.ids(stack).into_iter().find(|id| id.split_once('.').unwrap().0.ends_with("-first")).unwrap();
        assert_eq!(map.unwrap()["data"], json!({"first": first, "value": after.value}), "{case:?}");
        organization.nothing_is_left(stack, "Preview");
        organization.nothing_is_left(stack, "Refresh");
    }
}

/// A change that is interrupted.
#[derive(Debug)]
struct Case {
    change: Change,
    stack: String,
    namespace: String,
}

impl Case {
    /// Deploys what the run is to change.
    fn prepare(scene: &Scene, change: Change, at: &str) -> Self {
        let stack = format!("{change:?}-{at}").to_lowercase().replace(':', "-");
        let case = Self { change, namespace: format!("{}-{stack}", scene.bed.organization.name), stack };
        let [before, after] = change.applications();
        if let Some(before) = before {
            scene.declare(&case, before);
            scene.bed.organization.succeed(&case.stack, "Apply", "");
        }
        if let Some(after) = after {
            scene.declare(&case, after);
        }
        case
    }
}

#[test]
fn boundary_crash_loses_and_repeats_no_object() {
    let mut cluster = Cluster::start();
    let scene = Scene::new(&cluster);
    let seed = seed();
    eprintln!("STOA_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let mut cases = Vec::new();
    for change in CHANGES {
        let mut points = stoa_failpoint::of_clusters();
        points.retain(|point| change.comes_to(point));
        random.shuffle(&mut points);
        cases.extend(points.into_iter().take(repeat()).map(|point| (change, point)));
    }
    eprintln!("{cases:?}");
    let prepared: Vec<(Case, &str)> = thread::scope(|scope| {
        let prepare = |(change, point)| (Case::prepare(&scene, change, point), point);
        let begun: Vec<_> = cases.chunks(repeat()).map(|cases| cases.to_vec()).collect();
        let begun: Vec<_> = begun
            .into_iter()
            .map(|cases| scope.spawn(move || cases.into_iter().map(prepare).collect::<Vec<_>>()))
            .collect();
        begun.into_iter().flat_map(|prepared| prepared.join().unwrap()).collect()
    });
    for (case, point) in &prepared {
        let organization = &scene.bed.organization;
        let start = || organization.try_to_start(&case.stack, case.change.operation(), "");
        let run = crash_in(&mut cluster, organization, &case.stack, point, &start, &|_| ());
        let decided = scene.see_through(case, &run);
        eprintln!("{case:?}, {point}: decided about {decided:?}");
        assert!(decided.is_empty() || case.change.creates(), "{case:?}, {point}: {decided:?}");
        scene.check(case);
    }
}

#[test]
fn provider_crash_is_unknown_until_it_is_found_out() {
    let cluster = Cluster::shared();
    let scene = Scene::new(&cluster);
    for (change, at) in [
        (Change::Create, "create:before"),
        (Change::Create, "create:after"),
        (Change::Update, "update:before"),
        (Change::Update, "update:after"),
        (Change::Replace, "delete:before"),
        (Change::Replace, "delete:after"),
        (Change::Replace, "create:before"),
        (Change::Replace, "create:after"),
        (Change::Destroy, "delete:before"),
        (Change::Destroy, "delete:after"),
    ] {
        let case = Case::prepare(&scene, change, at);
        fs::write(scene.folder.join("fault"), at).unwrap();
        let organization = &scene.bed.organization;
        let run = organization.start(&case.stack, change.operation(), "");
        let ended = organization.ended(&run, PATIENCE);
        assert_eq!(ended["status"]["phase"], "Failed", "{case:?}: {ended:#}");
        assert!(!scene.folder.join("fault").exists(), "{case:?}: the provider did not crash");
        let unknown = scene.unknown(&case.stack);
        assert_eq!(unknown.len(), 1, "{case:?}: {unknown:?}");
        let decided = scene.see_through(&case, &run);
        // The object of a replacement that was deleted may have been followed by another one.
        let is_undecided = at.starts_with("create") || (change, at) == (Change::Replace, "delete:after");
        assert_eq!(!decided.is_empty(), is_undecided, "{case:?}, {at}: {decided:?}");
        scene.check(&case);
    }
}
