//! Checks the imports inside `stoa-apiserver`: which of its modules may import which others.
//!
//! A module here is a top module of the crate, with its folder. The compiler checks imports between crates. This table
//! checks those between the modules of one crate, as `tidy` of rust-analyzer does. Tests may import any module.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result, bail};

use crate::paths;

/// The folder of the crate's modules.
const SOURCES: &str = "apiserver/server/src";

/// Each module with the modules that it may import, the lowest first.
const ROOMS: &[(&str, &[&str])] = &[
    ("storage", &[]),
    ("options", &["storage"]),
    ("compaction", &["options"]),
    ("git", &[]),
    ("packages", &[]),
    ("fleet", &[]),
    ("hub", &[]),
    ("services", &["fleet", "hub", "packages"]),
    ("subresources", &["controllers", "fleet", "hub", "packages", "services"]),
    ("controllers", &["fleet", "git", "hub", "packages", "subresources"]),
    ("behaviours", &["controllers", "services", "subresources"]),
    ("webhook", &[]),
    (
        "server",
        &[
            "behaviours",
            "compaction",
            "controllers",
            "git",
            "options",
            "services",
            "storage",
            "subresources",
            "webhook",
        ],
    ),
    ("delegated", &["options", "server"]),
    ("standalone", &["options", "server"]),
    ("main", &["options"]),
];

/// Crates and those that they never depend on.
const NEVER: &[(&str, &[&str])] = &[
    ("apiserver/machinery", &["stoa-types", "stoa-controller", "stoa-kinds"]),
    ("apiserver/controller", &["stoa-types", "stoa-kinds"]),
    ("apiserver/hub", &["stoa-types", "stoa-kinds", "stoa-meta", "tokio", "async-trait"]),
    ("apiserver/kinds", &["stoa-proto", "stoa-hub", "stoa-notifications", "stoa-control-repo"]),
    ("apiserver/control-repo", &["stoa-types", "stoa-kinds"]),
    ("apiserver/runs", &["stoa-notifications", "stoa-control-repo", "stoa-pulls"]),
    ("engine/core", &["stoa-kubernetes-model", "stoa-runtime", "stoa-apply"]),
    ("engine/kubernetes-model", &["stoa-runtime", "stoa-apply", "tokio", "futures-util", "async-trait"]),
    ("engine/fleet", &["stoa-types", "stoa-meta", "stoa-engine", "kube", "k8s-openapi", "git2", "async-trait"]),
    ("engine/terraform", &["stoa-kubernetes-model"]),
    ("engine/terraform-provider", &["stoa-kubernetes-model", "stoa-runtime"]),
];

/// Checks the imports of all modules and the dependencies of crates.
///
/// # Errors
///
/// Names every import and dependency that the tables do not allow.
pub(crate) fn check() -> Result<()> {
    let root = paths::repository();
    let mut faults = Vec::new();
    for (file, text) in sources(&root.join(SOURCES))? {
        faults.extend(faults_in(&file, &text));
    }
    for (folder, never) in NEVER {
        let path = root.join(folder).join("Cargo.toml");
        let manifest = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let found = dependencies(&manifest).filter(|name| never.contains(name));
        faults.extend(found.map(|name| format!("{folder} depends on {name}")));
    }
    if !faults.is_empty() {
        bail!("forbidden imports; move the item down, or change the table in hack/xtask:\n  {}", faults.join("\n  "));
    }
    eprintln!("{SOURCES}: {} modules import only what they may", ROOMS.len());
    Ok(())
}

/// The Rust files below a folder, by their paths in it.
fn sources(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("reading {}", next.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(folder)?.display().to_string();
                found.insert(name, fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?);
            }
        }
    }
    Ok(found)
}

/// The imports of a file that its module may not have.
fn faults_in(file: &str, text: &str) -> Vec<String> {
    let parts: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    if parts.iter().any(|part| matches!(*part, "tests" | "testing") || part.ends_with("_tests")) {
        return Vec::new();
    }
    let room = parts[0];
    let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| *name == room) else {
        return vec![format!("{file}: the module {room} is not in the table")];
    };
    let mut faults: Vec<String> = imports(text)
        .filter(|other| *other != room && !allowed.contains(other))
        .map(|other| format!("{file}: {room} may not import {other}"))
        .collect();
    faults.dedup();
    faults
}

/// The modules that a text names behind `crate::`, outside of comments and of the tests at its end.
fn imports(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().scan(None, |depth: &mut Option<usize>, line| {
        let line = line.split("//").next().unwrap_or_default();
        Some(rooms_in(line, depth))
    });
    lines.flatten()
}

/// The modules that a line names. `depth` counts the braces of a `use crate::{…}` that goes over several lines.
fn rooms_in<'t>(line: &'t str, depth: &mut Option<usize>) -> Vec<&'t str> {
    let mut found = Vec::new();
    let mut rest = line;
    loop {
        if let Some(open) = *depth {
            let mut at_start = true;
            let (mut open, mut end) = (open, rest.len());
            for (at, character) in rest.char_indices() {
                match character {
                    '{' => open += 1,
                    '}' => open -= 1,
                    ',' if open == 1 => at_start = true,
                    _ if open == 1 && at_start && is_word(character) => {
                        found.push(word(&rest[at..]));
                        at_start = false;
                    }
                    _ => {}
                }
                if open == 0 {
                    end = at + 1;
                    break;
                }
            }
            *depth = (open > 0).then_some(open);
            if depth.is_some() {
                return found;
            }
            rest = &rest[end..];
        }
        let Some((_, behind)) = rest.split_once("crate::") else { return found };
        rest = behind;
        match behind.strip_prefix('{') {
            Some(inner) => (rest, *depth) = (inner, Some(1)),
            None => found.push(word(behind)),
        }
    }
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The identifier that a text begins with.
fn word(text: &str) -> &str {
    text.split(|character| !is_word(character)).next().unwrap_or_default()
}

/// The names of a manifest's dependencies, without those of tests.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    section.lines().map(|line| line.split(['.', ' ', '=']).next().unwrap_or_default()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_found_in_all_forms() {
        let text = "use crate::{\n    aside,\n    runs::{Services, runner},\n};\nuse crate::options::Options;\n\
                    fn f() { crate::git::read(crate::webhook::x) } // crate::not\nuse crate::{server, storage::{A, B}};\n\
                    #[cfg(test)]\nmod tests {\n    use crate::testing;\n}\n";
        let found: Vec<&str> = imports(text).collect();
        assert_eq!(found, ["aside", "runs", "options", "git", "webhook", "server", "storage"]);
    }

    #[test]
    fn forbidden_import_is_named() {
        assert_eq!(faults_in("options/http.rs", "use crate::storage::Storage;\n"), Vec::<String>::new());
        let expected = "options/http.rs: options may not import controllers";
        assert_eq!(faults_in("options/http.rs", "use crate::controllers;\n"), [expected]);
        assert_eq!(faults_in("options/http/tests.rs", "use crate::controllers;\n"), Vec::<String>::new());
        assert_eq!(faults_in("news.rs", ""), ["news.rs: the module news is not in the table"]);
    }

    #[test]
    fn dependencies_of_tests_do_not_count() {
        let manifest = "[package]\nname = \"a\"\n\n[dependencies]\nb.workspace = true\nc = { path = \"c\" }\n\n\
                        [dev-dependencies]\nd.workspace = true\n";
        assert_eq!(dependencies(manifest).collect::<Vec<_>>(), ["b", "c"]);
    }
}
