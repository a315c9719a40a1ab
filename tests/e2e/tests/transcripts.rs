//! What people type and what they see, with an old and a current kubectl, against both forms of the server.
//!
//! The scripts in `scripts/` are the tests; here is what they are played on.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::{Cluster, Kubectl, Server, Standalone, kubectl_versions, kubectls_of_interest, transcript, unique};

/// A server and an organization whose stack `web` was applied once: a Namespace and two ConfigMaps.
struct Stage {
    // Dropped before the server that it is on.
    organization: Organization,
    server: Box<dyn Server>,
    values: [(&'static str, &'static str); 2],
}

impl Stage {
    fn new(server: Box<dyn Server>, values: [(&'static str, &'static str); 2]) -> Self {
        let organization = Organization::create(&*server);
        let name = &organization.name;
        organization.stack("web", &config_maps(&format!("{name}-web"), 2, "a"));
        organization.succeed("web", "Apply", "");
        let kubectl = server.kubectl();
        let ready = |object: &str| {
            kubectl.run(&["wait", "--for=condition=Ready", "--timeout=120s", "--namespace", name, object]);
        };
        ready("stack/web");
        ready("source/config");
        ready(&format!("project/{name}"));
        ready(&format!("workspace/{name}"));
        kubectl.run(&["wait", "--for=jsonpath={.status.stacks}=1", "--timeout=120s", &format!("workspace/{name}")]);
        Self { organization, server, values }
    }

    /// The one that all scripts are played on, as long as one of them is at it.
    fn shared(at: &Mutex<Weak<Self>>, new: impl FnOnce() -> Self) -> Arc<Self> {
        let mut shared = at.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let stage = Arc::new(new());
            *shared = Arc::downgrade(&stage);
            stage
        })
    }

    fn standalone() -> Arc<Self> {
        static SHARED: Mutex<Weak<Stage>> = Mutex::new(Weak::new());
        let values = [("user", "stoa-admin"), ("target", "GitOps")];
        Self::shared(&SHARED, || Self::new(Box::new(Standalone::start()), values))
    }

    fn cluster() -> Arc<Self> {
        static SHARED: Mutex<Weak<Stage>> = Mutex::new(Weak::new());
        let values = [("user", "admin"), ("target", "Kubernetes")];
        Self::shared(&SHARED, || Self::new(Box::new(Cluster::shared()), values))
    }

    fn play(&self, script: &str) {
        for program in kubectls_of_interest() {
            self.play_with(script, Kubectl { program, ..self.server.kubectl() });
        }
    }

    fn play_with(&self, script: &str, kubectl: Kubectl) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(script).with_extension("txt");
        let name = unique("t");
        let own = [("org", self.organization.name.as_str()), ("name", name.as_str())];
        transcript::play(&path, &kubectl, &[&own[..], &self.values].concat());
    }
}

fn everywhere(script: &str) {
    Stage::standalone().play(script);
    Stage::cluster().play(script);
}

#[test]
fn tables_and_objects_match_built_in_kinds() {
    everywhere("get");
}

#[test]
fn kinds_short_names_and_the_category_are_discovered() {
    everywhere("discovery");
}

#[test]
fn describe_shows_everything_with_conditions_and_events() {
    everywhere("describe");
}

#[test]
fn explain_describes_every_field() {
    everywhere("explain");
}

#[test]
fn conditions_can_be_waited_for() {
    everywhere("wait");
}

#[test]
fn watch_shows_changes_as_they_happen() {
    everywhere("watch");
}

#[test]
fn edit_writes_what_holds_and_nothing_else() {
    everywhere("edit");
}

#[test]
fn write_commands_match_built_in_kinds() {
    everywhere("write");
}

#[test]
fn lists_are_selected_sorted_and_paged() {
    everywhere("select");
}

#[test]
fn logs_documents_and_subresources_are_reached_by_path() {
    everywhere("raw");
}

#[test]
fn permissions_are_asked_for_of_either_server() {
    everywhere("auth");
}

#[test]
fn every_version_of_kubectl_works_alike() {
    play_with_every_version("versions", &Stage::cluster());
}

#[test]
fn every_version_of_kubectl_creates_core_kinds_standalone() {
    play_with_every_version("core_kinds", &Stage::standalone());
}

fn play_with_every_version(script: &str, stage: &Stage) {
    thread::scope(|scope| {
        for program in kubectl_versions() {
            scope.spawn(move || {
                let kubectl = stage.server.kubectl();
                // Versions do not read each other's caches.
                let cache = tempfile::tempdir().expect("a folder");
                let kubeconfig = cache.path().join("kubeconfig");
                std::fs::copy(&kubectl.kubeconfig, &kubeconfig).expect("the kubeconfig can be read");
                stage.play_with(script, Kubectl { program, kubeconfig, ..kubectl });
            });
        }
    });
}
