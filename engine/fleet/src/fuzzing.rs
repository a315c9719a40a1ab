//! The properties of what reads repositories, for fuzzers.

use bytes::Bytes;

use crate::{ControlPlane, Fleet, Sources, config::Configuration, reading::Files};

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

/// The targets of this crate.
pub const TARGETS: &[Target] = &[("control_planes", control_planes)];

/// The most bytes that are looked at.
const LARGEST: usize = 64 << 10;

/// A repository of one file for each text between `%%%` lines: the first is the branch of the environment, the second the base
/// repository `main`, the third the registration `app`. Reading it twice gives the same, problems name a file and have words,
/// unreadable files are problems, and all assignments have folders of two names.
fn control_planes(data: &[u8]) {
    let mut parts = data[..data.len().min(LARGEST)].split(|byte| *byte == b'%').filter(|part| !part.is_empty());
    let mut files = || {
        let content = parts.next().unwrap_or_default();
        Files::from([("objects.yaml".to_owned(), Bytes::copy_from_slice(content))])
    };
    let (branch, main, app) = (files(), files(), files());
    let sources = Sources {
        environment: "dev".to_owned(),
        stored: Files::new(),
        branch,
        bases: [("main".to_owned(), main)].into(),
        workloads: [("app".to_owned(), app)].into(),
        ..Sources::default()
    };
    let plane = ControlPlane::read(&sources, None);
    let again = ControlPlane::read(&sources, Some(&plane));
    assert_eq!(plane.inputs, again.inputs);
    assert_eq!(plane.problems, again.problems);
    for problem in &plane.problems {
        assert!(!problem.message.is_empty() && !problem.origin.source.is_empty(), "{problem:?}");
    }
    let fleet = Fleet::new(plane.inputs);
    let configuration: &Configuration = fleet.configuration();
    for assignment in fleet.schedule().assignments().take(50) {
        assert_eq!(assignment.folder().split('/').count(), 2);
        assert!(!assignment.policies().is_empty());
        let composed = configuration.compose(assignment.cluster_type, assignment.target);
        assert!(composed.values.keys().eq(composed.maps.keys()));
    }
}
