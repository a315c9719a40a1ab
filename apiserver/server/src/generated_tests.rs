//! The files that follow from the kinds: rules of ClusterRoles, APIServices, the list of kinds for tests, and a document.
//!
//! `STOA_TEST_UPDATE=1 cargo test -p stoa-apiserver generated` writes them. Without the variable, the test fails while a file
//! differs. A line with [`BEGIN`] and a name begins a generated part of a file, and a line with [`END`] ends it.

use std::{collections::BTreeMap, env, fs, path::Path, sync::Arc};

use serde_json::{Value, json};
use stoa_kinds::{
    GROUPS,
    kind::{Group, Kind},
    rights::Role,
};
use stoa_machinery::{ResourceDefinition, definition::Scope};

use crate::testing::TestServer;

const BEGIN: &str = "Generated from the kinds: ";
const END: &str = "End of the generated part";

/// The verbs of the role that owns a group, on all its resources.
const ALL_VERBS: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "use"];

/// The head of the table of kinds.
const TABLE: &str = "
| kind | group | scope | short name | file in Git | subresources | events | written by |
|---|---|---|---|---|---|---|---|
";

/// A kind with its group, and with its definition as served.
struct Served {
    group: &'static Group,
    kind: &'static Kind,
    definition: Arc<ResourceDefinition>,
}

impl Served {
    /// Subresources with their sorted verbs, in the order of discovery; `""` is the objects themselves.
    fn resources(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        let definition = &self.definition;
        let parts = definition.has_status.then_some("status").into_iter();
        let parts = parts.chain(definition.parts.iter().map(|part| part.name));
        let parts = parts.map(|name| (name, vec!["get", "patch", "update"]));
        let others = definition.subresources.iter().map(|of| (of.name, of.verbs.to_vec()));
        let mut all: Vec<_> = [("", definition.verbs.clone())].into_iter().chain(parts).chain(others).collect();
        all.iter_mut().for_each(|(_, verbs)| verbs.sort_unstable());
        all
    }

    /// The verbs of a role by subresource.
    fn verbs_of(&self, role: Role) -> BTreeMap<&'static str, Vec<&'static str>> {
        if self.group.owner == Some(role) {
            return self.resources().into_iter().map(|(subresource, _)| (subresource, ALL_VERBS.to_vec())).collect();
        }
        let mut found = BTreeMap::<_, Vec<_>>::new();
        for right in self.kind.rights.iter().filter(|right| right.roles.contains(&role)) {
            right.on.iter().for_each(|subresource| found.entry(*subresource).or_default().extend(right.verbs));
        }
        found
    }

    fn as_json(&self) -> Value {
        let ResourceDefinition { group, version, kind, plural, singular, short_names, categories, .. } =
            &*self.definition;
        let subresources: BTreeMap<_, _> = self.resources().into_iter().skip(1).collect();
        let rights = Role::ALL.into_iter().map(|role| (role.name(), self.verbs_of(role)));
        let rights: BTreeMap<_, _> = rights.filter(|(_, verbs)| !verbs.is_empty()).collect();
        json!({
            "group": group, "version": version, "kind": kind, "plural": plural, "singular": singular,
            "shortNames": short_names, "categories": categories, "verbs": self.resources()[0].1,
            "namespaced": self.definition.scope == Scope::Namespaced, "subresources": subresources, "rights": rights,
        })
    }

    fn as_row(&self) -> String {
        let definition = &self.definition;
        let may_create = |role: &Role| self.verbs_of(*role).get("").is_some_and(|verbs| verbs.contains(&"create"));
        let events = self.kind.events.iter().map(|event_type| event_type.trim_start_matches("dev.stoa."));
        let cells = [
            definition.short_names.iter().map(String::as_str).collect(),
            self.kind.in_git.iter().map(|in_git| in_git.pattern).collect(),
            self.resources().iter().skip(1).map(|(name, _)| *name).collect(),
            events.collect(),
            Role::ALL.into_iter().filter(may_create).map(Role::name).collect(),
        ];
        let shown = |names: Vec<&str>| match names.as_slice() {
            [] => "–".to_owned(),
            names => format!("`{}`", names.join("`, `")),
        };
        let scope = if definition.scope == Scope::Namespaced { "namespace" } else { "cluster" };
        format!("| {} | `{}` | {scope} | {} |\n", definition.kind, definition.group, cells.map(shown).join(" | "))
    }
}

/// The kinds, group by group, as a server has them.
async fn served() -> Vec<Served> {
    let server = TestServer::new().await;
    let of_kind = |group: &'static Group, kind: &'static Kind| {
        let ResourceDefinition { group: name, version, plural, .. } = (kind.definition)();
        let store = server.registry.store(&name, &version, &plural).expect("every kind is registered");
        Served { group, kind, definition: store.definition().clone() }
    };
    GROUPS
        .into_iter()
        .flat_map(|group| group.kinds.iter().map(|kind| of_kind(group, kind)).collect::<Vec<_>>())
        .collect()
}

/// The rules of a role. Resources of a group with the same verbs share one.
fn rules(role: Role, kinds: &[Served]) -> String {
    let mut found: Vec<(&str, &[&str], &str, Vec<String>)> = Vec::new();
    for Served { group, kind, definition } in kinds {
        let mut add = |verbs, note, resources: Vec<String>| match found
            .iter_mut()
            .find(|rule| (rule.0, rule.1, rule.2) == (&*definition.group, verbs, note))
        {
            Some(rule) => rule.3.extend(resources),
            None => found.push((&definition.group, verbs, note, resources)),
        };
        if group.owner == Some(role) {
            // One rule for the group.
            if std::ptr::eq(*kind, group.kinds[0]) {
                add(ALL_VERBS, "", vec!["\"*\"".to_owned()]);
            }
            continue;
        }
        for right in kind.rights.iter().filter(|right| right.roles.contains(&role)) {
            let name = |subresource: &&str| format!("{}/{subresource}", definition.plural);
            let names = right.on.iter().map(|subresource| name(subresource).trim_end_matches('/').to_owned());
            add(right.verbs, right.note, names.collect());
        }
    }
    let rule = |(group, verbs, note, resources): (&str, &[&str], &str, Vec<String>)| {
        let note = if note.is_empty() { String::new() } else { format!("# {note}\n") };
        let resources = resources.chunks(5).map(|names| names.join(", ")).collect::<Vec<_>>().join(",\n    ");
        format!("{note}- apiGroups: [{group}]\n  resources: [{resources}]\n  verbs: [{}]\n", verbs.join(", "))
    };
    found.into_iter().map(rule).collect()
}

fn api_services(kinds: &[Served]) -> String {
    let service = |of: &Served| {
        let ResourceDefinition { group, version, .. } = &*of.definition;
        format!(
            "---\napiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata:\n  name: {version}.{group}\nspec:\n  \
             group: {group}\n  version: {version}\n  groupPriorityMinimum: {}\n  versionPriority: 15\n  service: {{name: \
             stoa-apiserver, namespace: stoa-system}}\n",
            of.group.priority
        )
    };
    let version = |of: &Served| (of.definition.group.clone(), of.definition.version.clone());
    let is_first = |(at, of): &(usize, &Served)| !kinds[..*at].iter().any(|other| version(other) == version(of));
    kinds.iter().enumerate().filter(is_first).map(|(_, of)| service(of)).collect()
}

/// A text with its generated parts made anew.
fn renewed(text: &str, part: impl Fn(&str) -> String) -> String {
    let mut renewed = String::new();
    let mut is_generated = false;
    for line in text.lines() {
        is_generated &= !line.contains(END);
        if !is_generated {
            renewed += &format!("{line}\n");
        }
        if let Some((_, name)) = line.split_once(BEGIN) {
            is_generated = true;
            renewed += &part(name.trim_end_matches(" -->"));
        }
    }
    renewed
}

#[tokio::test]
async fn generated_files_match_the_kinds() {
    let kinds = served().await;
    let part = |name: &str| match name {
        "APIServices" => api_services(&kinds),
        "table" => format!("{TABLE}{}\n", kinds.iter().map(Served::as_row).collect::<String>()),
        role => rules(Role::ALL.into_iter().find(|found| found.name() == role).expect("a role"), &kinds),
    };
    let list: Vec<Value> = kinds.iter().map(Served::as_json).collect();
    let list = serde_json::to_string_pretty(&list).unwrap() + "\n";
    let mut stale = Vec::new();
    for name in [
        "manifests/base/apiservices.yaml",
        "manifests/base/rbac-collector.yaml",
        "manifests/base/rbac-roles.yaml",
        "docs/kinds.md",
        "tests/data/kinds.json",
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
        let found = fs::read_to_string(&path).unwrap();
        let text = if name.ends_with(".json") { list.clone() } else { renewed(&found, part) };
        if env::var_os("STOA_TEST_UPDATE").is_some() {
            fs::write(&path, text).unwrap();
        } else if found != text {
            stale.push(name);
        }
    }
    let remedy = "run STOA_TEST_UPDATE=1 cargo test -p stoa-apiserver generated";
    assert!(stale.is_empty(), "{stale:?} differ from the kinds: {remedy}");
}

#[tokio::test]
async fn rights_name_served_subresources() {
    for of in served().await {
        let resources = of.resources();
        for subresource in of.kind.rights.iter().flat_map(|right| right.on) {
            let is_served = resources.iter().any(|(name, _)| name == subresource);
            assert!(is_served, "{} has no subresource {subresource:?}", of.definition.plural);
        }
    }
}
