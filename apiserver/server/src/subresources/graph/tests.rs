use std::collections::BTreeSet;

use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::json;
use stoa_machinery::RequestContext;
use stoa_runs::testing::unreachable_runner;

use super::*;
use crate::testing::TestServer;

/// A Resource of `stack` in `workspace`, of a ConfigMap if nothing else is said.
fn resource(stack: &str, workspace: &str, id: &str, depends_on: &[&str]) -> Resource {
    let name = id.rsplit(':').next().unwrap_or_default();
    let object = json!({
        "metadata": {"name": format!("{stack}.{workspace}.{}", id.replace(':', "-")), "namespace": "shop"},
        "spec": {"stack": stack, "workspace": workspace, "id": id, "type": "Kubernetes", "dependsOn": depends_on,
            "kubernetes": {"cluster": "main", "version": "v1", "kind": "ConfigMap", "namespace": "web", "name": name}},
        "status": {"phase": "Applied", "health": "Current"},
    });
    serde_json::from_value(object).unwrap()
}

fn with_status(mut resource: Resource, phase: ResourcePhase, health: &str) -> Resource {
    let status = resource.status.as_mut().unwrap();
    (status.phase, status.health) = (phase, health.to_owned());
    resource
}

fn graph(scope: Scope, resources: Vec<Resource>) -> Graph {
    let projects = [("web", "shop"), ("db", "shop"), ("crm", "sales")];
    let project_of = projects.map(|(stack, project)| (stack.to_owned(), project.to_owned())).into();
    Graph::new(scope, "web", &project_of, resources)
}

/// Two stacks of one project and one of another, something of it unwell.
fn several() -> Vec<Resource> {
    vec![
        with_status(resource("web", "prod", "v1:ConfigMap:web:b", &[]), ResourcePhase::Applied, "InProgress"),
        with_status(resource("web", "dev", "v1:ConfigMap:web:b", &["v1:ConfigMap:web:a"]), ResourcePhase::Failed, ""),
        resource("web", "dev", "v1:ConfigMap:web:a", &[]),
        resource("db", "dev", "v1:ConfigMap:web:a", &[]),
        with_status(resource("crm", "dev", "v1:ConfigMap:web:a", &[]), ResourcePhase::Unknown, ""),
    ]
}

#[tokio::test]
async fn missing_workspace_graph_shows_only_recorded_resources() {
    let world = TestServer::with_runner(unreachable_runner()).await;
    let resource = json!({"stack": "web", "workspace": "gone", "id": "v1:ConfigMap:web:a", "type": "Kubernetes"});
    world.create("Resource", "web.gone.a", resource).await;
    let code_of = async |workspace: &str| {
        let call = SubresourceCall {
            context: RequestContext::internal("test"),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            method: http::Method::GET,
            query: vec![("workspace".to_owned(), workspace.to_owned())],
            headers: http::HeaderMap::new(),
            body: bytes::Bytes::new(),
        };
        match super::graph(world.services.clone(), Scope::Stack, call).await {
            Ok(response) => (response.status().as_u16(), String::new()),
            Err(error) => (error.code(), error.message().to_owned()),
        }
    };
    assert_eq!(code_of("dev").await, (200, String::new()), "there is nothing in it");
    assert_eq!(code_of("gone").await, (200, String::new()));
    let message = "workspaces.platform.stoa.dev \"nope\" not found".to_owned();
    assert_eq!(code_of("nope").await, (404, message));
}

#[test]
fn graph_orders_nodes_and_edges_by_id() {
    let two = |first, second| vec![resource("web", "dev", first, &["c", "b"]), resource("web", "dev", second, &["c"])];
    let mut resources = two("a", "b");
    resources.push(resource("web", "dev", "c", &[]));
    let expected = graph(Scope::Stack, resources.clone());
    resources.reverse();
    assert_eq!(graph(Scope::Stack, resources), expected);
    let edges: Vec<String> = expected.edges.iter().map(|edge| format!("{} {}", edge.from, edge.to)).collect();
    assert_eq!(edges, ["web.dev.a web.dev.b", "web.dev.a web.dev.c", "web.dev.b web.dev.c"]);
}

#[test]
fn edges_connect_live_resources_of_same_deployment() {
    let gone = with_status(resource("web", "dev", "gone", &[]), ResourcePhase::Destroyed, "");
    let resources = vec![
        resource("web", "dev", "a", &["b", "gone", "never"]),
        gone,
        resource("web", "prod", "b", &[]),
        resource("db", "dev", "b", &[]),
        resource("of-no-stack", "dev", "b", &[]),
    ];
    let graph = graph(Scope::Organization, resources);
    let nodes: Vec<&str> = graph.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(nodes, ["db.dev.b", "web.dev.a", "web.prod.b"]);
    assert_eq!(graph.edges, []);
}

#[test]
fn json_says_what_the_resource_says() {
    let graph = graph(Scope::Stack, several().split_off(1)[..2].to_vec());
    assert_eq!(
        serde_json::to_value(&graph).unwrap(),
        json!({
            "scope": "Stack",
            "name": "web",
            "nodes": [
                {"name": "web.dev.v1-ConfigMap-web-a", "project": "shop", "stack": "web", "workspace": "dev",
                 "id": "v1:ConfigMap:web:a", "type": "Kubernetes", "phase": "Applied", "health": "Current",
                 "kubernetes": {"cluster": "main", "version": "v1", "kind": "ConfigMap", "namespace": "web", "name": "a"}},
                {"name": "web.dev.v1-ConfigMap-web-b", "project": "shop", "stack": "web", "workspace": "dev",
                 "id": "v1:ConfigMap:web:b", "type": "Kubernetes", "phase": "Failed",
                 "kubernetes": {"cluster": "main", "version": "v1", "kind": "ConfigMap", "namespace": "web", "name": "b"}},
            ],
            "edges": [{"from": "web.dev.v1-ConfigMap-web-b", "to": "web.dev.v1-ConfigMap-web-a"}],
        })
    );
}

#[test]
fn dot_drawing_groups_projects_stacks_and_workspaces() {
    assert_snapshot!(drawing::dot(&graph(Scope::Organization, several())), @r#"
    digraph "Organization web" {
      label="Organization web";
      rankdir=LR;
      node [shape=box];
      subgraph cluster_0 {
        label="project sales";
        subgraph cluster_1 {
          label="stack crm";
          subgraph cluster_2 {
            label="workspace dev";
            n0 [label="ConfigMap\nweb/a\nUnknown", tooltip="v1:ConfigMap:web:a", color=gray];
          }
        }
      }
      subgraph cluster_3 {
        label="project shop";
        subgraph cluster_4 {
          label="stack db";
          subgraph cluster_5 {
            label="workspace dev";
            n1 [label="ConfigMap\nweb/a", tooltip="v1:ConfigMap:web:a"];
          }
        }
        subgraph cluster_6 {
          label="stack web";
          subgraph cluster_7 {
            label="workspace dev";
            n2 [label="ConfigMap\nweb/a", tooltip="v1:ConfigMap:web:a"];
            n3 [label="ConfigMap\nweb/b\nFailed", tooltip="v1:ConfigMap:web:b", color=red];
          }
          subgraph cluster_8 {
            label="workspace prod";
            n4 [label="ConfigMap\nweb/b\nInProgress", tooltip="v1:ConfigMap:web:b", color=orange];
          }
        }
      }
      n3 -> n2;
    }
    "#);
}

#[test]
fn mermaid_drawing_groups_stack_by_workspace() {
    let of_web: Vec<Resource> = several().into_iter().filter(|resource| resource.spec.stack == "web").collect();
    assert_snapshot!(drawing::mermaid(&graph(Scope::Stack, of_web)), @r#"
    flowchart LR
      accTitle: Stack web
      classDef failed stroke:red
      classDef progressing stroke:orange
      classDef unknown stroke:gray
      subgraph g0["workspace dev"]
        n0["ConfigMap<br/>web/a"]
        n1["ConfigMap<br/>web/b<br/>Failed"]:::failed
      end
      subgraph g1["workspace prod"]
        n2["ConfigMap<br/>web/b<br/>InProgress"]:::progressing
      end
      n1 --> n0
    "#);
}

#[test]
fn what_means_something_to_graphviz_or_mermaid_is_escaped() {
    let mut odd = resource("web", "dev", "say \"hi\"\\N &amp; <b>\n#1;`é`", &[]);
    odd.spec.kubernetes = None;
    let graph = graph(Scope::Stack, vec![odd]);
    let line = |text: String| {
        text.lines()
            .find(|line| line.trim().starts_with("n0[") || line.contains("n0 ["))
            .map(str::trim)
            .map(str::to_owned)
    };
    assert_snapshot!(line(drawing::dot(&graph)).unwrap(), @r###"n0 [label="say \"hi\"\\N &amp;amp; <b>�#1;`é`", tooltip="say \"hi\"\\N &amp;amp; <b>�#1;`é`"];"###);
    assert_snapshot!(line(drawing::mermaid(&graph)).unwrap(), @r###"n0["say #34;hi#34;#92;N #38;amp#59; #60;b#62;�#35;1#59;#96;é#96;"]"###);
}

/// What a drawing says, as far as a reader of the language's grammar makes it out.
#[derive(Clone, Debug, Default, PartialEq)]
struct Read {
    labels: Vec<String>,
    edges: BTreeSet<(String, String)>,
    groups: usize,
}

/// The text of a quoted string that begins at the first byte, and what comes after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.strip_prefix('"')?.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((out, &text[at + 2..])),
            '\\' => out.push(chars.next()?.1),
            c => out.push(c),
        }
    }
    None
}

/// Reads the part of DOT that is written here, statement by statement; nothing when it is none.
fn read_dot(text: &str) -> Option<Read> {
    let mut read = Read::default();
    let mut depth = 0;
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("digraph ") {
            assert_eq!(quoted(rest)?.1, " {");
            depth += 1;
        } else if line.starts_with("subgraph cluster_") && line.ends_with('{') {
            (depth, read.groups) = (depth + 1, read.groups + 1);
        } else if line == "}" {
            depth -= 1;
        } else if let Some(rest) = line.strip_prefix("label=") {
            assert_eq!(quoted(rest)?.1, ";");
        } else if let Some((from, to)) = line.strip_suffix(';').and_then(|edge| edge.split_once(" -> ")) {
            read.edges.insert((from.to_owned(), to.to_owned()));
        } else if let Some((name, rest)) = line.split_once(" [label=") {
            assert!(name[1..].parse::<usize>().is_ok(), "{name}");
            let (label, rest) = quoted(rest)?;
            let rest = quoted(rest.strip_prefix(", tooltip=")?)?.1;
            assert!(rest == "];" || (rest.starts_with(", color=") && rest.ends_with("];")), "{rest}");
            read.labels.push(label.replace("&amp;", "&"));
        } else {
            assert!(["rankdir=LR;", "node [shape=box];"].contains(&line), "{line}");
        }
    }
    (depth == 0).then_some(read)
}

/// The same of Mermaid, whose strings have entities.
fn read_mermaid(text: &str) -> Option<Read> {
    let decoded = |text: &str| {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('#') {
            let (code, after) = after.split_once(';')?;
            out += before;
            out.push(char::from_u32(code.parse().ok()?)?);
            rest = after;
        }
        Some(out + rest)
    };
    let mut read = Read::default();
    let mut depth = 0;
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("subgraph g") {
            assert!(rest.ends_with("\"]") && rest.matches('"').count() == 2, "{rest}");
            (depth, read.groups) = (depth + 1, read.groups + 1);
        } else if line == "end" {
            depth -= 1;
        } else if let Some((from, to)) = line.split_once(" --> ") {
            read.edges.insert((from.to_owned(), to.to_owned()));
        } else if let Some((name, rest)) = line.split_once("[\"") {
            assert!(name[1..].parse::<usize>().is_ok(), "{name}");
            let (label, rest) = rest.split_once("\"]")?;
            assert!(rest.is_empty() || rest.starts_with(":::"), "{rest}");
            read.labels.push(decoded(&label.replace("<br/>", "#10;"))?);
        } else {
            let known = ["flowchart LR", "accTitle: ", "classDef "];
            assert!(known.iter().any(|known| line.starts_with(known)), "{line}");
        }
    }
    (depth == 0).then_some(read)
}

proptest! {
    /// Whatever ids, kinds and names are, both drawings have a node for each, and nothing else.
    #[test]
    fn drawings_say_what_the_graph_says(
        ids in prop::collection::btree_set("\\PC{0,12}|[\"\\\\#;:<>&\\[\\]{}`%\n\t ]{0,8}", 1..6),
        workspace in "[a-c]",
    ) {
        let all: Vec<&str> = ids.iter().map(String::as_str).collect();
        let resources = ids.iter().enumerate().map(|(number, id)| {
            let mut resource = resource("web", &workspace, id, &all[..number]);
            resource.metadata.name = Some(number.to_string());
            resource.spec.kubernetes = None;
            resource
        });
        let graph = graph(Scope::Project, resources.collect());
        let printable = |id: &String| {
            id.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect::<String>()
        };
        let number = |name: &String| format!("n{}", graph.nodes.iter().position(|node| node.name == *name).unwrap());
        let expected = Read {
            labels: ids.iter().map(printable).collect(),
            edges: graph.edges.iter().map(|edge| (number(&edge.from), number(&edge.to))).collect(),
            groups: 2,
        };
        prop_assert_eq!(expected.edges.len(), ids.len() * (ids.len() - 1) / 2);
        prop_assert_eq!(read_mermaid(&drawing::mermaid(&graph)), Some(expected.clone()));
        prop_assert_eq!(read_dot(&drawing::dot(&graph)), Some(expected));
    }
}
