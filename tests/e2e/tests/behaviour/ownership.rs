//! Two stacks that name one object: it is one's, until the other takes it over on purpose.

use stoa_e2e::fixture::{Organization, config_maps, config_maps_in};
use stoa_e2e::{Cluster, Server, Standalone, git};

/// A ConfigMap in the organization's namespace, with this value and extension.
fn shared(organization: &Organization, value: &str, extension: &str) -> String {
    let name = &organization.name;
    format!(
        "resources:
- id: v1:ConfigMap:{name}:shared
  type: Kubernetes
  attributes:
    apiVersion: v1
    kind: ConfigMap
    metadata: {{name: shared, namespace: {name}}}
    data: {{value: {value}}}
  extensions: {{{extension}}}
"
    )
}

/// `live` tells the value and the mark of the ConfigMap, or what is in its place.
fn an_object_is_one_stacks(server: &dyn Server, live: impl Fn(&Organization) -> String) {
    let organization = Organization::create(server);
    let name = &organization.name;
    organization.stack("one", &shared(&organization, "of-one", ""));
    organization.succeed("one", "Apply", "");
    let of_one = live(&organization);
    assert!(of_one.contains("of-one") && of_one.contains(&format!("{name}/one/{name}/")), "{of_one}");

    organization.stack("two", &shared(&organization, "of-two", ""));
    for operation in ["Preview", "Apply"] {
        let message = organization.fail("two", operation, "");
        let object = format!("v1:ConfigMap:{name}:shared");
        assert!(message.contains(&object) && message.contains(&format!("is owned by {name}/one/{name}")), "{message}");
    }
    organization.succeed("two", "Destroy", "");
    assert_eq!(live(&organization), of_one, "the second stack never had it");

    let take_over = format!("stoa.dev/take-over-from: {name}/one/{name}");
    organization.stack("two", &shared(&organization, "of-two", &take_over));
    organization.succeed("two", "Apply", "");
    let of_two = live(&organization);
    assert!(of_two.contains("of-two") && of_two.contains(&format!("{name}/two/{name}/")), "{of_two}");

    let message = organization.fail("one", "Apply", "");
    assert!(message.contains(&format!("is owned by {name}/two/{name}")), "{message}");
    let destroy = organization.succeed("one", "Destroy", "");
    let run = destroy["metadata"]["name"].as_str().unwrap();
    let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{name}/runs/{run}/log");
    let log = server.kubectl().raw(&path);
    assert!(log.contains(&format!("{name}/two/{name} owns it now, so it is not deleted")), "{log}");
    assert_eq!(live(&organization), of_two, "the first stack has it no more");

    organization.succeed("two", "Destroy", "");
    assert!(!live(&organization).contains("of-"), "{}", live(&organization));
}

#[test]
fn only_explicit_takeover_moves_object_standalone() {
    an_object_is_one_stacks(&*Standalone::shared(), |organization| {
        let files = git(&organization.deploy, &["ls-tree", "-r", "--name-only", "main"]);
        files.lines().map(|file| git(&organization.deploy, &["show", &format!("main:{file}")])).collect()
    });
}

#[test]
fn only_explicit_takeover_moves_object_in_cluster() {
    let cluster = Cluster::shared();
    an_object_is_one_stacks(&cluster, |organization| {
        cluster.kubectl().run(&[
            "get",
            "configmap/shared",
            "--namespace",
            &organization.name,
            "--ignore-not-found",
            "--output=yaml",
        ])
    });
}

/// `there` tells what is there of a Namespace and the ConfigMaps in it, by their names.
fn a_namespace_is_kept_for_what_others_own_in_it(server: &dyn Server, there: impl Fn(&Organization, &str) -> String) {
    let organization = Organization::create(server);
    let name = &organization.name;
    let namespace = format!("{name}-shared");
    let (alone, of_theirs) = (shared(&organization, "of-one", ""), theirs(&namespace));
    organization.stack("one", &alone);
    organization.succeed("one", "Apply", "");
    organization
        .stack("one", &format!("{}{}", config_maps(&namespace, 1, "of-one"), alone.replace("resources:\n", "")));
    organization.succeed("one", "Apply", "");
    organization.stack("two", &of_theirs);
    organization.succeed("two", "Apply", "");
    let before = there(&organization, &namespace);
    assert!(before.contains("c0") && before.contains("theirs"), "{before}");

    organization.stack("one", &alone);
    let told = format!("objects of other owners (ConfigMap theirs of {name}/two/{name});");
    for (operation, fields) in [("Preview", ""), ("Apply", ""), ("Rollback", "release: 1"), ("Destroy", "")] {
        let message = organization.fail("one", operation, fields);
        assert!(message.contains(&format!("v1:Namespace:{namespace}: ")) && message.contains(&told), "{message}");
    }
    assert_eq!(there(&organization, &namespace), before);

    organization.succeed("two", "Destroy", "");
    organization.succeed("one", "Apply", "");
    assert_eq!(there(&organization, &namespace), "");
}

/// A ConfigMap in a Namespace that another stack has.
fn theirs(namespace: &str) -> String {
    format!(
        "resources:
- id: v1:ConfigMap:{namespace}:theirs
  type: Kubernetes
  attributes:
    apiVersion: v1
    kind: ConfigMap
    metadata: {{name: theirs, namespace: {namespace}}}
"
    )
}

#[test]
fn foreign_objects_preserve_namespace_standalone() {
    a_namespace_is_kept_for_what_others_own_in_it(&*Standalone::shared(), |organization, namespace| {
        let files = git(&organization.deploy, &["ls-tree", "-r", "--name-only", "main"]);
        let mut files: Vec<&str> = files.lines().filter(|file| file.contains(namespace)).collect();
        files.sort_unstable();
        files.join(" ")
    });
}

#[test]
fn foreign_objects_preserve_namespace_in_cluster() {
    let cluster = Cluster::shared();
    a_namespace_is_kept_for_what_others_own_in_it(&cluster, |_, namespace| {
        let kubectl = cluster.kubectl();
        let found = kubectl.run(&["get", "namespace", namespace, "--ignore-not-found", "--output=name"]);
        let maps: Vec<String> = config_maps_in(&kubectl, namespace).into_keys().collect();
        format!("{found}{}", maps.join(" "))
    });
}

#[test]
fn annotation_permits_deletion_of_shared_namespace() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-shared", organization.name);
    organization.stack("one", &config_maps(&namespace, 1, "of-one"));
    organization.succeed("one", "Apply", "");
    organization.stack("two", &theirs(&namespace));
    organization.succeed("two", "Apply", "");
    let message = organization.fail("one", "Destroy", "");
    let leave = "stoa.dev/delete-contents: \"true\"";
    assert!(message.contains(leave), "{message}");
    cluster.kubectl().run(&["annotate", "namespace", &namespace, "stoa.dev/delete-contents=true"]);
    organization.succeed("one", "Destroy", "");
    assert_eq!(cluster.kubectl().run(&["get", "namespace", &namespace, "--ignore-not-found"]), "");
}

#[test]
fn conflict_error_names_manager_until_forced() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    organization.stack("one", &shared(&organization, "ours", ""));
    organization.succeed("one", "Apply", "");
    let value = || {
        let get = ["get", "configmap/shared", "--namespace", name, "--output", "jsonpath={.data.value}"];
        cluster.kubectl().run(&get)
    };
    let patch = |manager: &str, value: &str| {
        let patch = format!(r#"{{"data":{{"value":"{value}"}}}}"#);
        let manager = format!("--field-manager={manager}");
        let patch = ["patch", "configmap/shared", "--namespace", name, "--type=merge", "--patch", &patch, &manager];
        cluster.kubectl().run(&patch)
    };
    // An edit is drift: the plan shows whose it is, and takes it back.
    patch("hand", "edited");
    let preview = organization.succeed("one", "Preview", "");
    let run = preview["metadata"]["name"].as_str().unwrap();
    let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{name}/runs/{run}/log");
    let plan = cluster.kubectl().raw(&path);
    assert!(plan.contains("taken from hand, which changes them: .data.value"), "{plan}");
    organization.succeed("one", "Apply", "");
    assert_eq!(value(), "ours");

    let object = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: shared, namespace: {name}}}\ndata: {{value: claimed}}\n"
    );
    cluster.kubectl().claim("flux", &object);
    for operation in ["Preview", "Apply"] {
        let message = organization.fail("one", operation, "");
        let told = ["\"flux\"", ".data.value", "stoa.dev/force-conflicts"];
        assert!(told.iter().all(|part| message.contains(part)), "{message}");
    }
    assert_eq!(value(), "claimed");
    organization.stack("one", &shared(&organization, "ours", "stoa.dev/force-conflicts: \"true\""));
    organization.succeed("one", "Apply", "");
    assert_eq!(value(), "ours");
}
