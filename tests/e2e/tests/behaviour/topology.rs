//! What was deployed, drawn as a graph.

use serde_json::Value;
use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::{Cluster, Server, Standalone};

fn raw(server: &dyn Server, path: &str) -> String {
    server.kubectl().raw(path)
}

fn texts<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|item| item[field].as_str().unwrap()).collect()
}

fn what_was_deployed_is_drawn(server: &dyn Server) {
    let organization = Organization::create(server);
    let name = &organization.name;
    let namespace = format!("{name}-web");
    organization.stack("web", &config_maps(&namespace, 2, "a"));
    let config = "/apis/config.stoa.dev/v1alpha1";
    let stack = format!("{config}/namespaces/{name}/stacks/web/graph");
    let graph = |path: &str| -> Value { serde_json::from_str(&raw(server, path)).unwrap() };
    let before = graph(&stack);
    assert_eq!(
        (&before["scope"], &before["nodes"], &before["edges"]),
        (&"Stack".into(), &Value::Array(vec![]), &Value::Array(vec![]))
    );

    organization.succeed("web", "Apply", "");
    let after = graph(&stack);
    let ids = ["c0", "c1"].map(|map| format!("v1:ConfigMap:{namespace}:{map}"));
    let root = format!("v1:Namespace:{namespace}");
    assert_eq!(texts(&after["nodes"], "id"), [&ids[0], &ids[1], &root], "{after:#}");
    assert_eq!(texts(&after["nodes"], "phase"), ["Applied"; 3]);
    let kubernetes = &after["nodes"][0]["kubernetes"];
    assert_eq!((&kubernetes["kind"], &kubernetes["name"]), (&"ConfigMap".into(), &"c0".into()));
    let names = texts(&after["nodes"], "name");
    assert_eq!(
        (texts(&after["edges"], "from"), texts(&after["edges"], "to")),
        (names[..2].to_vec(), vec![names[2]; 2])
    );
    assert_eq!(graph(&format!("{stack}?workspace={name}")), after);
    let elsewhere = server.kubectl().refused(&["get", "--raw", &format!("{stack}?workspace=elsewhere")]);
    assert!(elsewhere.contains("workspaces.platform.stoa.dev \"elsewhere\" not found"), "{elsewhere}");

    let dot = raw(server, &format!("{stack}?format=dot"));
    assert!(dot.starts_with("digraph \"Stack web\" {\n"), "{dot}");
    assert!(dot.contains(&format!("n0 [label=\"ConfigMap\\n{namespace}/c0\", tooltip=\"{}\"];", ids[0])), "{dot}");
    assert!(dot.contains("  n0 -> n2;\n  n1 -> n2;\n}"), "{dot}");
    let mermaid = raw(server, &format!("{stack}?format=mermaid"));
    assert!(mermaid.starts_with("flowchart LR\n") && mermaid.contains("  n0 --> n2\n  n1 --> n2\n"), "{mermaid}");

    // The project and the organization have the same, and where it belongs.
    for (path, scope) in [
        (format!("{config}/namespaces/{name}/projects/{name}/graph"), "Project"),
        (format!("{config}/organizations/{name}/graph"), "Organization"),
    ] {
        let whole = graph(&path);
        assert_eq!(
            (&whole["scope"], &whole["nodes"], &whole["edges"]),
            (&scope.into(), &after["nodes"], &after["edges"])
        );
        assert!(raw(server, &format!("{path}?format=dot")).contains("label=\"stack web\";"));
    }

    let refused = |path: &str| server.kubectl().refused(&["get", "--raw", path]);
    let unknown = refused(&format!("{stack}?format=svg"));
    assert!(unknown.contains("format: Unsupported value: \"svg\""), "{unknown}");
    let malformed = refused(&format!("{stack}?workspace=No,Where"));
    assert!(malformed.contains("workspace: Invalid value: \"No,Where\""), "{malformed}");
    let missing = refused(&format!("{config}/namespaces/{name}/stacks/nobody/graph"));
    assert!(missing.contains("stacks.config.stoa.dev \"nobody\" not found"), "{missing}");

    // What a resource depends on is nothing that has to be changed, and is told all the same.
    let (first, last) =
        config_maps(&namespace, 2, "a").split_once("c1\n").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let last = last.replace(&format!("dependsOn: [\"{root}\"]"), &format!("dependsOn: [\"{}\"]", ids[0]));
    organization.stack("web", &format!("{first}c1\n{last}"));
    let run = organization.succeed("web", "Apply", "");
    assert_eq!(run["status"]["release"], Value::Null, "{run:#}");
    let edges = graph(&stack)["edges"].clone();
    let pairs: Vec<_> = texts(&edges, "from").into_iter().zip(texts(&edges, "to")).collect();
    assert!(pairs.contains(&(names[1], names[0])), "{pairs:?}");

    organization.succeed("web", "Destroy", "");
    assert_eq!(graph(&stack)["nodes"], Value::Array(vec![]), "what was removed is no part of it");
}

#[test]
fn graph_draws_deployed_resources_standalone() {
    what_was_deployed_is_drawn(&*Standalone::shared());
}

#[test]
fn graph_draws_deployed_resources_in_cluster() {
    what_was_deployed_is_drawn(&Cluster::shared());
}

#[tokio::test]
async fn a_graph_comes_in_the_form_that_is_accepted() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    organization.stack("web", &config_maps(&format!("{}-web", organization.name), 1, "a"));
    let path = format!("/apis/config.stoa.dev/v1alpha1/namespaces/{}/stacks/web/graph", organization.name);
    for caller in [cluster.front_door(), cluster.directly(Some("admin"))] {
        let code = async |query: &str, accept: &str| {
            caller.code("GET", &format!("{path}{query}"), &[("Accept", accept)], &Value::Null).await
        };
        for accept in ["application/json", "application/yaml", "text/vnd.graphviz", "text/vnd.mermaid", "*/*"] {
            assert_eq!(code("", accept).await, 200, "{accept}");
        }
        for (query, accept, expected) in [
            ("?format=dot", "text/plain", 200),
            ("", "text/plain", 406),
            ("", "image/png", 406),
            ("?format=svg", "*/*", 400),
        ] {
            assert_eq!(code(query, accept).await, expected, "{query} {accept}");
        }
    }
}
