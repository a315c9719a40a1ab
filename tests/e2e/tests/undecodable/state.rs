//! What is recorded of a deployment, in etcd and in the Backend's directory, and is corrupt or of a later version: every
//! run is refused with what to do about it, nothing is written over, and once it is put right the next run goes on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stoa_e2e::fixture::{ConfigMap, Organization, condition, config_maps_in, spec_of};
use stoa_e2e::{Cluster, Etcd, Server as _};
use tokio::task::block_in_place;

use super::PATIENCE;

const OBJECTS: usize = 2;
/// So many bytes that the body of its record is a document in the Backend.
const LARGE: usize = 300 << 10;

/// The files below a folder, by their paths.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let of = |path: PathBuf| match path.is_dir() {
        true => files(&path),
        false => BTreeMap::from([(path.clone(), fs::read(&path).unwrap())]),
    };
    fs::read_dir(folder).unwrap().flat_map(|entry| of(entry.unwrap().path())).collect()
}

/// The same bytes but for some.
fn edited(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|part| part == from.as_bytes());
    let at = at.unwrap_or_else(|| panic!("there is no {from:?} in {}", String::from_utf8_lossy(bytes)));
    [&bytes[..at], to.as_bytes(), &bytes[at + from.len()..]].concat()
}

/// Where something is kept.
enum Location {
    Key(String),
    File(PathBuf),
}

/// A stack that is deployed, and all that is recorded of it.
struct Deployed {
    cluster: Cluster,
    etcd: Etcd,
    organization: Organization,
    namespace: String,
    prefix: String,
    documents: PathBuf,
}

impl Deployed {
    fn new() -> Self {
        let cluster = Cluster::replicated(1);
        let organization = Organization::create(&cluster);
        let name = &organization.name;
        let namespace = format!("{name}-web");
        organization.stack("web", &Self::spec(&namespace, "a"));
        organization.succeed("web", "Apply", "");
        let stack = cluster.kubectl().get(&["stack", "web", "--namespace", name]);
        let prefix = format!("/stoa/state/{}/{name}/", stack["metadata"]["uid"].as_str().unwrap());
        let of_backend = files(&cluster.data())
            .into_keys()
            .find_map(|file| file.ancestors().find(|folder| folder.ends_with(name)).map(Path::to_owned));
        let documents = of_backend.expect("the Backend has documents");
        Self { etcd: cluster.etcd(), organization, namespace, prefix, documents, cluster }
    }

    /// A Spec of which one object is large.
    fn spec(namespace: &str, value: &str) -> String {
        let large = "x".repeat(LARGE);
        let object = |number, value| ConfigMap { number, value, is_immutable: false };
        let objects: Vec<_> = (0..OBJECTS).map(|number| object(number, value)).collect();
        spec_of(namespace, [&objects[..], &[object(OBJECTS, &large)]].concat())
    }

    fn record(&self, number: usize) -> String {
        format!("{}resources/v1:ConfigMap:{}:c{number}", self.prefix, self.namespace)
    }

    async fn read(&self, place: &Location) -> Vec<u8> {
        match place {
            Location::Key(key) => self.etcd.get(key).await.unwrap_or_else(|| panic!("there is no {key}")),
            Location::File(file) => fs::read(file).unwrap(),
        }
    }

    async fn write(&self, place: &Location, bytes: &[u8]) {
        match place {
            Location::Key(key) => self.etcd.put(key, bytes).await,
            Location::File(file) => fs::write(file, bytes).unwrap(),
        }
    }

    /// The file of the body that is too large for its record.
    async fn body(&self) -> PathBuf {
        let record: Value = serde_json::from_slice(&self.read(&Location::Key(self.record(OBJECTS))).await).unwrap();
        let digest = record["document"].as_str().expect("the body is a document");
        let hex = digest.rsplit(':').next().unwrap();
        let found = files(&self.documents).into_keys().find(|file| file.ends_with(hex));
        found.unwrap_or_else(|| panic!("{digest} is not in {}", self.documents.display()))
    }

    /// Runs an operation over what was edited, which is refused for this reason and with these words, and changes nothing.
    async fn refuses(&self, operation: &str, reason: &str, says: &[&str]) {
        let recorded = self.etcd.below(&self.prefix).await;
        let (documents, objects) = (files(&self.documents), config_maps_in(&self.cluster.kubectl(), &self.namespace));
        let ended =
            block_in_place(|| self.organization.ended(&self.organization.start("web", operation, ""), PATIENCE));
        let failed = condition(&ended, "Failed");
        assert_eq!((&ended["status"]["phase"], &failed["reason"]), (&"Failed".into(), &reason.into()), "{ended:#}");
        let message = failed["message"].as_str().unwrap();
        for part in says {
            assert!(message.contains(part), "{message:?} says nothing of {part:?}");
        }
        assert!(self.etcd.below(&self.prefix).await == recorded, "what is recorded was written over by {operation}");
        let after = files(&self.documents);
        let is_kept = |(path, bytes): (&PathBuf, &Vec<u8>)| after.get(path) == Some(bytes);
        assert!(documents.iter().all(is_kept), "a document was written over by {operation}");
        assert_eq!(config_maps_in(&self.cluster.kubectl(), &self.namespace), objects, "{operation}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_state_fails_run_without_overwrite() {
    let deployed = block_in_place(Deployed::new);
    let organization = &deployed.organization;
    let head = || Location::Key(format!("{}head", deployed.prefix));
    let record = |number| Location::Key(deployed.record(number));
    let body = Location::File(deployed.body().await);
    let (newer, later) = (r#""schemaVersion":1"#, r#""schemaVersion":9"#);
    let (unreadable, damaged) = ("UnreadableState", "UnreadableDocument");
    let (upgrade, restore) = ("run the version of Stoa that wrote it, or a later one", "restore it from a backup");
    let key = |place: &Location| match place {
        Location::Key(key) => key.clone(),
        Location::File(file) => file.file_name().unwrap().to_str().unwrap().to_owned(),
    };
    let cases = [
        ("Apply", head(), [newer, later], unreadable, ["schemaVersion 9 is newer than 1", upgrade]),
        ("Destroy", head(), ["{", "["], unreadable, ["does not decode", restore]),
        ("Preview", record(0), [newer, later], unreadable, ["schemaVersion 9 is newer than 1", upgrade]),
        ("Apply", record(1), [r#""id":"#, r#""is":"#], unreadable, ["does not decode", restore]),
        ("Destroy", body, ["xxxx", "xxyx"], damaged, ["Restore the document", "leaves the backend as it is"]),
    ];
    for (operation, place, [from, to], reason, says) in cases {
        let whole = deployed.read(&place).await;
        deployed.write(&place, &edited(&whole, from, to)).await;
        let at = key(&place);
        deployed.refuses(operation, reason, &[&says[..], &[at.as_str()]].concat()).await;
        deployed.write(&place, &whole).await;
        block_in_place(|| organization.nothing_is_left("web", "Preview"));
    }
    block_in_place(|| {
        organization.stack("web", &Deployed::spec(&deployed.namespace, "b"));
        let ended = organization.succeed("web", "Apply", "");
        assert_eq!(ended["status"]["plan"]["summary"]["update"], OBJECTS, "{ended:#}");
        assert_eq!(organization.revisions("web"), [1, 2]);
    });
    let after = config_maps_in(&deployed.cluster.kubectl(), &deployed.namespace);
    assert_eq!(after.values().filter(|(_, value)| value == "b").count(), OBJECTS);
}
