//! Files as Kusion writes them, and as they are after something went wrong.

use super::*;

/// What `kusion apply` leaves of a ConfigMap and a Secret.
const WHOLE: &str = r#"project: web
workspace: dev
revision: 2
stack: dev
spec:
    resources:
        - id: v1:Secret:web:db
          type: Kubernetes
          attributes: {apiVersion: v1, kind: Secret, metadata: {name: db, namespace: web}, data: {password: aHVudGVyMg==}}
    secretStore: null
    context: {}
state:
    resources:
        - id: v1:ConfigMap:web:a
          type: Kubernetes
          attributes:
            apiVersion: v1
            data:
                a: "1"
            kind: ConfigMap
            metadata:
                creationTimestamp: null
                name: a
                namespace: web
          extensions:
            GVK: /v1, Kind=ConfigMap
            kubeConfig: kubeconfig.yaml
        - id: v1:Secret:web:db
          type: Kubernetes
          attributes:
            apiVersion: v1
            data:
                password: aHVudGVyMg==
            kind: Secret
            metadata:
                name: db
                namespace: web
          dependsOn:
            - v1:ConfigMap:web:a
            - v1:Namespace:web
          extensions:
            GVK: /v1, Kind=Secret
            kusionstack.io/import-id: web/db
phase: succeeded
createTime: 2025-03-01T10:00:00.123456789+01:00
modifiedTime: 2025-03-01T10:00:05.123456789+01:00
"#;

fn expected() -> Expected {
    Expected { project: Some("web".to_owned()), workspace: Some("dev".to_owned()), revision: 2 }
}

fn refused(text: &str) -> String {
    let why = parse(text.as_bytes(), &expected()).expect_err(text);
    assert!(!why.contains("hunter2") && !why.contains("aHVudGVyMg"), "{why}");
    why
}

#[test]
fn a_release_is_its_resources_without_their_values() {
    let release = parse(WHOLE.as_bytes(), &expected()).unwrap();
    let ids: Vec<&str> = release.records.iter().map(|record| record.id.0.as_str()).collect();
    assert_eq!((release.phase.as_str(), ids), ("succeeded", vec!["v1:ConfigMap:web:a", "v1:Secret:web:db"]));
    assert!(release.records[0].extensions.is_empty(), "where a kubeconfig was is nobody's business");
    assert_eq!(release.records[1].depends_on, [ResourceId("v1:ConfigMap:web:a".to_owned())], "what is on record");
    assert_eq!(release.records[1].extensions[IMPORT_ID], "web/db");
    let shown = format!("{release:?}");
    assert!(!shown.contains("aHVudGVyMg") && !shown.contains("kubeConfig"), "{shown}");
}

#[test]
fn missing_and_variant_fields_are_read() {
    let end = "phase: failed\nmodifiedTime: 2025-03-01T10:00:05Z\n";
    let anywhere = Expected { project: None, workspace: None, revision: 3 };
    for state in ["", "state: null\n", "state: {}\n", "state: {resources: null}\n", "State: {Resources: []}\n"] {
        let release = parse(format!("Revision: 3\n{state}{end}").as_bytes(), &anywhere).unwrap();
        assert_eq!((release.phase.as_str(), release.records), ("failed", Vec::new()), "{state}");
    }
    let json = serde_json::json!({"project": "web", "workspace": "dev", "revision": 2, "phase": "succeeded",
        "modifiedTime": "2025-03-01T10:00:05Z"});
    assert!(parse(json.to_string().as_bytes(), &expected()).is_ok(), "JSON is YAML");
}

#[test]
fn truncated_file_is_refused() {
    for end in 1..WHOLE.len() {
        let Ok(release) = parse(&WHOLE.as_bytes()[..end], &expected()) else { continue };
        // All that can be missing then is the end of the last line.
        assert!(end > WHOLE.len() - 20 && release.records.len() == 2, "cut off at {end}: {}", &WHOLE[end - 20..end]);
    }
    assert!(refused("").contains("not a map"));
    let cut = &WHOLE[..WHOLE.find("phase:").unwrap()];
    assert!(refused(cut).contains("it is cut off"), "{}", refused(cut));
}

#[test]
fn error_about_a_release_names_a_remedy() {
    let with = |from: &str, to: &str| {
        assert!(WHOLE.contains(from), "{from}");
        refused(&WHOLE.replacen(from, to, 1))
    };
    for phase in ["generating", "previewing", "applying", "rollbacking", "destroying"] {
        let why = with("phase: succeeded", &format!("phase: {phase}"));
        assert!(why.contains(&format!("it is {phase}: ")) && why.contains("release unlock"), "{why}");
    }
    for (from, to, why) in [
        ("phase: succeeded", "phase: hunter2", "its phase is unknown"),
        ("stack: dev", "stack: dev\nhunter2: true", "the release has a field that is none of project, workspace"),
        ("stack: dev", "stack: dev\nStack: dev", "the release has the field stack twice"),
        ("stack: dev", "stack: dev\nstack: hunter2", "it has a key twice"),
        ("project: web", "project: hunter2", "it is of another project"),
        ("workspace: dev", "workspace: hunter2", "it is of another workspace"),
        ("revision: 2", "revision: 3", "its revision differs"),
        ("revision: 2", "revision: hunter2", "its revision differs"),
        ("          extensions:\n", "          hunter2:\n", "state.resources[0] has a field that is none of id, type"),
        (
            "          dependsOn:\n            - v1:ConfigMap:web:a\n            - v1:Namespace:web\n",
            "          dependsOn: 7\n",
            "dependsOn is not a list",
        ),
        (
            "state:\n    resources:",
            "state:\n    resources: hunter2\n    other:",
            "the state has a field that is none of",
        ),
        ("modifiedTime: 2025", "modifiedTime: hunter2", "it is cut off"),
        ("                a: \"1\"", "\t- hunter2: [", "it cannot be read"),
    ] {
        let told = with(from, to);
        assert!(told.contains(why), "{told:?} instead of {why:?}");
    }
    let state = &WHOLE[WHOLE.find("state:").unwrap()..];
    let in_state = |from: &str, to: &str| {
        assert!(state.contains(from), "{from}");
        refused(&WHOLE.replace(state, &state.replacen(from, to, 1)))
    };
    for (from, to, why) in [
        ("type: Kubernetes", "type: Terraform", "extensions.provider is missing"),
        ("type: Kubernetes", "type: hunter2", "v1:ConfigMap:web:a has an unknown type"),
        ("type: Kubernetes", "type:", "v1:ConfigMap:web:a has no type"),
        ("name: a\n", "name: hunter2\n", "v1:ConfigMap:web:a is not the object that it says: attributes.metadata.name"),
        ("- id: v1:ConfigMap:web:a", "- id: ", "state.resources[0] has no id"),
        ("            kind: ConfigMap\n", "", "v1:ConfigMap:web:a is not the object that it says: attributes"),
    ] {
        let told = in_state(from, to);
        assert!(told.contains(why), "{told:?} instead of {why:?}");
    }
    let twice = WHOLE.replace("v1:Secret:web:db", "v1:ConfigMap:web:a").replace("kind: Secret", "kind: ConfigMap");
    assert!(refused(&twice.replace("name: db", "name: a")).contains("it has v1:ConfigMap:web:a twice"));
}

#[test]
fn small_file_cannot_expand() {
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (name, before) in ('b'..='j').zip('a'..='i') {
        bomb += &format!("{name}: &{name} [{}]\n", vec![format!("*{before}"); 10].join(", "));
    }
    assert!(refused(&bomb).contains("expands beyond the size limit"));
    assert!(refused(&"[".repeat(100_000)).starts_with("it cannot be read"));
    assert!(parse(b"\xff\xfe", &expected()).unwrap_err().contains("not YAML in UTF-8"));
}

#[test]
fn the_latest_release_is_what_its_metadata_say() {
    let metadata = "latestRevision: 7\nreleaseMetaDatas:\n- revision: 6\n  stack: dev\n- revision: 7\n  stack: dev\n";
    assert_eq!(latest(metadata.as_bytes()), Ok(7));
    assert_eq!(latest(b"LatestRevision: 1\nReleaseMetaDatas: []\n"), Ok(1));
    for bad in ["", "latestRevision: 0", "latestRevision: hunter2", "latestRevision: -1", "releaseMetaDatas: []"] {
        assert!(!latest(bad.as_bytes()).unwrap_err().contains("hunter2"), "{bad}");
    }
    assert!(latest(b"latestRevision: 1\nschema: 2\n").unwrap_err().contains("of a later Kusion"));
}

/// Whatever is in a file: it is taken over as objects that are named, or refused without a word of its values.
fn any_file_is_taken_over_or_told_about(bytes: &[u8]) {
    let anywhere = Expected { project: None, workspace: None, revision: 2 };
    if let Err(why) = latest(bytes) {
        assert!(!why.is_empty());
    }
    match parse(bytes, &anywhere) {
        Ok(Release { phase, records }) => {
            assert!(["succeeded", "failed"].contains(&phase.as_str()));
            let ids: BTreeSet<&ResourceId> = records.iter().map(|record| &record.id).collect();
            assert_eq!(ids.len(), records.len());
            for record in &records {
                assert!(stoa_engine::StateResource::named_by(&record.id).is_some(), "{}", record.id);
                assert!(record.depends_on.iter().all(|id| ids.contains(id)));
                assert!(record.extensions.keys().all(|key| key == IMPORT_ID));
            }
        }
        Err(why) => assert!(!why.is_empty() && why.len() < 8 << 10, "{why}"),
    }
}

mod fuzz {
    #[test]
    fn kusion_releases() {
        stoa_fuzz::run::test("kusion_releases", super::any_file_is_taken_over_or_told_about);
    }
}
