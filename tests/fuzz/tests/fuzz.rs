//! Every target on its kept inputs and on random changes to them.

use std::{collections::BTreeSet, env, fs, path::Path, time::Duration};

use stoa_fuzz::{
    Target,
    run::{self, Options},
    targets,
};

/// Targets that are tests of programs.
const ELSEWHERE: [&str; 6] =
    ["spec_files", "pushed_files", "webhooks", "flux_events", "kusion_releases", "wasm_modules"];

macro_rules! tests {
    ($($name:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];

        mod fuzz {
            $(
                #[test]
                fn $name() {
                    let name = stringify!($name);
                    let target = super::targets().into_iter().find(|target| target.name == name);
                    super::run::test(name, target.expect("there is such a target").check);
                }
            )*
        }
    };
}

tests! {
    json yaml kinds bodies patches apply managed_fields selectors continue_tokens queries accept front_proxy websocket
    gzip cel cel_texts admission_reviews audit_policies stored log_records log_tails etcd_notes git_edits git_comments
    specs references schemas health_policies custom_resources terraform_values terraform_locks terraform_archives
    kcl_sources kcl_errors
    artifact_names artifact_manifests artifact_challenges chart_indexes tar_archives
    signing_keys signed_objects age_files sops_files
    resource_lists kptfiles function_descriptions
    control_planes
}

#[test]
fn fuzz_corpus_covers_every_target_within_limits() {
    let names: BTreeSet<_> = targets().iter().map(|target| target.name).collect();
    assert_eq!(names, TESTED.iter().copied().collect());
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let folders: BTreeSet<_> =
        fs::read_dir(&corpus).unwrap().map(|folder| folder.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(folders, names.into_iter().chain(ELSEWHERE).map(str::to_owned).collect());
    let files = |folder: &String| fs::read_dir(corpus.join(folder)).unwrap().map(|file| file.unwrap().metadata());
    let (mut bytes, mut count) = (0, 0);
    for file in folders.iter().flat_map(files) {
        (bytes, count) = (bytes + file.unwrap().len(), count + 1);
    }
    assert!(bytes < 500_000 && count < 60 * folders.len(), "{count} files of {bytes} bytes");
}

#[test]
fn fuzzer_saves_and_repeats_failing_input() {
    let found = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    let options = Options { seed: 1, inputs: 10_000, time: Duration::MAX, found };
    let find = |check: fn(&[u8])| {
        // What `accept` keeps is short and has no such letters.
        let target = Target { name: "accept", check };
        let outcome = std::panic::catch_unwind(|| run::run(target, options.clone()));
        outcome.expect_err("something does not hold");
        fs::read(options.found.join("accept")).unwrap()
    };
    let with_tilde: fn(&[u8]) = |input| assert!(!input.contains(&b'~'), "there is a tilde");
    let first = find(with_tilde);
    assert!(first.contains(&b'~'));
    assert_eq!(find(with_tilde), first);
    assert_ne!(find(|input| assert!(!input.contains(&b'|'), "there is a bar")), first);
}
