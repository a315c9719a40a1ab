//! The first pages of the guide: a kustomization with overlays, then the same application by Helm and by KCL.

use std::path::Path;

use stoa_e2e::{Server as _, Standalone, guide};

#[test]
fn pages_of_the_guide_run_as_written() {
    let Some(server) = Standalone::start_with_tools() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    let pages = ["README.md", "helm-and-kcl.md"].map(|page| folder.join(page));
    let root = tempfile::tempdir().unwrap();
    guide::play(&[&pages[0], &pages[1]], &server.kubectl(), root.path());
}
