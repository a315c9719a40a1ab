//! `kcl.mod`, the description of a module in TOML.

use toml_edit::{Document, Item, Value};

/// The name of the file.
pub(crate) const NAME: &str = "kcl.mod";

/// The parts of a `kcl.mod` that decide what a program reads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ModuleFile {
    /// The version of the package; empty without one.
    pub(crate) version: String,
    /// The entries of the profile, with paths from the module's folder.
    pub(crate) entries: Vec<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency of a module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The name in `kcl.mod`. Imports have underscores in the positions of hyphens.
    pub(crate) name: String,
    pub(crate) source: Source,
    pub(crate) line: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A folder, from the module's folder.
    Path(String),
    /// A package from elsewhere, such as `git`, and its version if it has one.
    Remote { kind: &'static str, version: Option<String> },
}

/// A `kcl.mod` that cannot be read: the line, and the reason.
pub(crate) type Wrong = (u32, String);

impl Dependency {
    /// The name that imports use.
    pub(crate) fn import_name(&self) -> String {
        self.name.replace('-', "_")
    }
}

/// Reads a `kcl.mod`.
pub(crate) fn read(text: &str) -> Result<ModuleFile, Wrong> {
    let line_of = |offset: usize| {
        let before = text.get(..offset).unwrap_or_default();
        u32::try_from(before.matches('\n').count() + 1).unwrap_or_default()
    };
    let line = |item: &Item| item.span().map_or(0, |span| line_of(span.start));
    let document = Document::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| line_of(span.start));
        (at, format!("is no TOML: {}", error.message()))
    })?;
    let version = document.get("package").and_then(|package| package.get("version")).and_then(Item::as_str);
    let mut file = ModuleFile { version: version.unwrap_or_default().to_owned(), ..ModuleFile::default() };
    if let Some(entries) = document.get("profile").and_then(|profile| profile.get("entries")) {
        let wrong = || (line(entries), "profile.entries must be a list of texts".to_owned());
        let list = entries.as_array().ok_or_else(wrong)?;
        let texts = list.iter().map(|entry| entry.as_str().map(str::to_owned));
        file.entries = texts.collect::<Option<_>>().ok_or_else(wrong)?;
    }
    let Some(dependencies) = document.get("dependencies") else { return Ok(file) };
    let wrong = || (line(dependencies), "dependencies must be a table".to_owned());
    for (name, item) in dependencies.as_table_like().ok_or_else(wrong)?.iter() {
        let Some(source) = source(item) else {
            let message = format!("dependency {name} has neither path, git, oci nor a version");
            return Err((line(item), message));
        };
        file.dependencies.push(Dependency { name: name.to_owned(), source, line: line(item) });
    }
    Ok(file)
}

fn source(item: &Item) -> Option<Source> {
    if let Some(Value::String(version)) = item.as_value() {
        return Some(Source::Remote { kind: "a registry", version: Some(version.value().clone()) });
    }
    let fields = item.as_table_like()?;
    let text = |field: &str| fields.get(field).and_then(Item::as_str).map(str::to_owned);
    if let Some(path) = text("path") {
        return Some(Source::Path(path));
    }
    let version = ["tag", "version", "commit", "branch"].into_iter().find_map(text);
    let kinds = [("git", "Git"), ("oci", "an OCI registry"), ("version", "a registry")];
    let (_, kind) = kinds.into_iter().find(|(field, _)| fields.contains_key(field))?;
    Some(Source::Remote { kind, version })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_dependencies_have_lines() {
        let text = "[package]\nname = \"prod\"\nversion = \"1.0\"\n[dependencies]\nkam = { git = \"https://git.example.com/kam\", tag = \"0.2.2\" }\n\
                    service-model = { oci = \"oci://registry.example.com/service\", tag = \"0.1.0\" }\nk8s = \"1.31\"\n\
                    local = { path = \"../../local\" }\n\n[profile]\nentries = [\"../base/base.k\", \"main.k\"]\n";
        let file = read(text).unwrap();
        assert_eq!(file.entries, ["../base/base.k", "main.k"]);
        assert_eq!(file.version, "1.0");
        let remote = |kind, version: &str| Source::Remote { kind, version: Some(version.to_owned()) };
        let expected = [
            ("kam", remote("Git", "0.2.2"), 5),
            ("service-model", remote("an OCI registry", "0.1.0"), 6),
            ("k8s", remote("a registry", "1.31"), 7),
            ("local", Source::Path("../../local".to_owned()), 8),
        ];
        let found = file.dependencies.iter().map(|it| (it.name.as_str(), it.line));
        assert_eq!(found.collect::<Vec<_>>(), expected.iter().map(|it| (it.0, it.2)).collect::<Vec<_>>());
        assert!(file.dependencies.iter().zip(expected).all(|(found, expected)| found.source == expected.1));
        assert_eq!(file.dependencies[1].import_name(), "service_model");
        assert_eq!(read("").unwrap(), ModuleFile::default());
    }

    #[test]
    fn wrong_files_name_the_line() {
        for (text, line, message) in [
            ("[package\n", 1, "is no TOML: "),
            ("[profile]\nentries = \"main.k\"\n", 2, "profile.entries must be a list of texts"),
            ("[dependencies]\nkam = {}\n", 2, "dependency kam has neither path, git, oci nor a version"),
        ] {
            let (at, found) = read(text).unwrap_err();
            assert!(at == line && found.starts_with(message), "{at}: {found}");
        }
    }
}
