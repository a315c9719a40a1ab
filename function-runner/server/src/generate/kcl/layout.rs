//! The files of a stack: its entries, its packages, and the project around it.
//!
//! Start at [`Layout::read`]. A stack lists its entries in the profile of its `kcl.mod`, in a `kcl.yaml` of older trees, or not at all: then
//! all sources of its folder are entries. The library itself ignores all of these files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use stoa_kcl::{Package, Parameter, Program, Settings, normalized};
use stoa_proto::{Problem, SourceModule, ValueOrigin};

use super::module_file::{self, ModuleFile, Source};
use crate::failure::{Failure, problem, reason};
use crate::generate::field_lines::{FieldLines, line};
use crate::generate::{Values, join, placeholders, yaml};
use crate::source::SourceFile;

/// The files of a project and of a stack, as Kusion names them.
pub(crate) const PROJECT: &str = "project.yaml";
pub(crate) const STACK: &str = "stack.yaml";
/// The settings of older stacks, and their options.
pub(crate) const SETTINGS: &str = "kcl.yaml";
const OPTIONS: &str = "ci-test/settings.yaml";
/// The folder of a project with the entries of all of its stacks.
pub(crate) const BASE: &str = "base";
/// The folder of a module with packages from elsewhere.
const VENDOR: &str = "vendor";
/// The module's folder in entries of `kcl.yaml`.
pub(crate) const MODULE: &str = "${KCL_MOD}";
/// The suffix of sources, and of those that are tests.
pub(crate) const K: &str = ".k";
const TEST: &str = "_test.k";

/// A stack, ready to run.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) program: Program,
    /// The names of Kusion, if the stack has a `stack.yaml`.
    pub(super) kusion: Option<Names>,
    /// The files that were read, from the root.
    pub(super) files: BTreeSet<String>,
    /// The folder with the project's base, if it has sources.
    pub(super) base: Option<String>,
    /// The files with options, sorted by the name of the option.
    pub(super) origins: Vec<ValueOrigin>,
    /// The packages, with their versions.
    pub(super) modules: Vec<SourceModule>,
}

/// The names that Kusion gives to resources.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) project: String,
    pub(super) stack: String,
    pub(super) namespace: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// A `project.yaml` or `stack.yaml`.
#[derive(Debug, Default, Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
    #[serde(default)]
    extensions: Vec<Extension>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Extension {
    kubernetes_namespace: Option<NamespaceExtension>,
    kubernetes_metadata: Option<MetadataExtension>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamespaceExtension {
    namespace: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MetadataExtension {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

/// A `kcl.yaml`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SettingsFile {
    kcl_cli_configs: CliConfigs,
    kcl_options: Vec<OptionValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CliConfigs {
    file: Vec<String>,
    files: Vec<String>,
    disable_none: bool,
    show_hidden: bool,
    sort_keys: bool,
    strict_range_check: bool,
    overrides: Vec<String>,
    path_selector: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct OptionValue {
    key: String,
    value: Value,
}

impl Layout {
    /// Reads the layout of a stack, whose folder is below a root.
    pub(super) fn read(root: &Path, folder: &str, values: &Values) -> Result<Self, Failure> {
        let mut reader = Reader { root, files: BTreeSet::new() };
        let own = reader.module_file(folder)?;
        let kusion = reader.names(folder, values)?;
        let settings_file: Option<SettingsFile> = reader.yaml(&join(folder, SETTINGS))?;
        let options: Option<SettingsFile> = match settings_file {
            Some(_) => reader.yaml(&join(folder, OPTIONS))?,
            None => None,
        };
        let module = reader.module_of(folder);
        let settings = settings_file.as_ref().map(|file| &file.kcl_cli_configs);
        let entries = match (own.as_ref().map(|file| file.entries.as_slice()), settings) {
            (Some(entries @ [_, ..]), _) => reader.entries(folder, module.as_deref(), entries)?,
            (_, Some(settings)) if !settings.file.is_empty() || !settings.files.is_empty() => {
                let entries = [settings.file.as_slice(), settings.files.as_slice()].concat();
                reader.entries(folder, module.as_deref(), &entries)?
            }
            _ => reader.sources(folder),
        };
        if entries.is_empty() {
            let message = "the folder has no KCL files; add main.k, or [profile] entries to kcl.mod";
            return Err(wrong(folder, 0, message));
        }
        let mut origins = Vec::new();
        for (file, name) in [(&settings_file, SETTINGS), (&options, OPTIONS)] {
            let options = file.iter().flat_map(|file| &file.kcl_options);
            origins.extend(reader.origins(&join(folder, name), options)?);
        }
        origins.sort_by(|a, b| a.name.cmp(&b.name));
        let files = settings_file.iter().chain(&options);
        let given = files.flat_map(|file| &file.kcl_options).map(|it| (it.key.clone(), it.value.clone()));
        let modules = match &module {
            Some(module) => reader.packages(module)?,
            None => Vec::new(),
        };
        let package = |of: &SourceModule| Package { name: of.name.clone(), path: of.path.clone() };
        let program = Program {
            folder: folder.to_owned(),
            entries,
            packages: modules.iter().map(package).collect(),
            options: parameters(given, values),
            settings: all_settings(settings, kusion.is_some()),
        };
        let parent = folder.rsplit_once('/').map(|(parent, _)| parent).or((!folder.is_empty()).then_some(""));
        let base = parent.map(|parent| join(parent, BASE)).filter(|base| *base != folder);
        let base = base.filter(|base| !reader.sources(base).is_empty());
        Ok(Self { program, kusion, files: reader.files, base, origins, modules })
    }
}

/// The options of the files, those of the platform, and the parameters of the stack. The last one of a name counts, and a parameter
/// such as `image.tag` changes a part of it.
fn parameters(files: impl Iterator<Item = (String, Value)>, values: &Values) -> Vec<Parameter> {
    let files = files.map(|(name, value)| Parameter { name, value, is_common: true, origin: None });
    let platform = values.platform.iter().map(|value| Parameter {
        name: value.name.clone(),
        value: serde_json::from_str(&value.json).unwrap_or_else(|_| Value::String(value.json.clone())),
        is_common: true,
        origin: Some(value.origin.clone()),
    });
    let mut options: Vec<Parameter> = files.chain(platform).collect();
    let parameters: BTreeMap<_, _> = values.parameters.iter().collect();
    let mut whole = Vec::new();
    for (name, text) in &parameters {
        let part = placeholders::part_of(name).filter(|(word, _)| !parameters.contains_key(word));
        let part = part.and_then(|(word, path)| {
            let option = options.iter_mut().rev().find(|option| option.name == word)?;
            Some((&mut option.value, path))
        });
        match part {
            Some((value, path)) => {
                // An option of a file may be a text in JSON.
                if let Some(parsed) = value.as_str().and_then(|text| serde_json::from_str(text).ok()) {
                    *value = parsed;
                }
                placeholders::set(value, &path, placeholders::typed(text));
            }
            None => whole.push(Parameter {
                name: (*name).clone(),
                value: Value::String((*text).clone()),
                is_common: false,
                origin: None,
            }),
        }
    }
    options.extend(whole);
    options
}

/// Kusion compiles without None. The types of instances tell what they are, and are removed from manifests.
fn all_settings(settings: Option<&CliConfigs>, is_kusion: bool) -> Settings {
    let include_schema_type_path = true;
    match settings {
        Some(it) => Settings {
            disable_none: it.disable_none || is_kusion,
            include_schema_type_path,
            show_hidden: it.show_hidden,
            sort_keys: it.sort_keys,
            strict_range_check: it.strict_range_check,
            overrides: it.overrides.clone(),
            path_selector: it.path_selector.clone(),
        },
        None => Settings { disable_none: is_kusion, include_schema_type_path, ..Settings::default() },
    }
}

struct Reader<'a> {
    root: &'a Path,
    files: BTreeSet<String>,
}

impl Reader<'_> {
    /// The text of a file, if it is there.
    fn text(&mut self, path: &str) -> Result<Option<String>, Failure> {
        match fs::read(self.root.join(path)) {
            Ok(bytes) => {
                self.files.insert(path.to_owned());
                let text = String::from_utf8(bytes).map_err(|_| wrong(path, 0, "is not UTF-8"))?;
                Ok(Some(text))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(wrong(path, 0, &format!("cannot be read: {error}"))),
        }
    }

    fn yaml<T: for<'de> Deserialize<'de> + Default>(&mut self, path: &str) -> Result<Option<T>, Failure> {
        let Some(text) = self.text(path)? else { return Ok(None) };
        let file = SourceFile { path: path.to_owned(), bytes: text.into_bytes() };
        let documents = yaml::documents(&file).map_err(|problem| Failure::invalid(vec![*problem]))?;
        let Some(document) = documents.into_iter().next() else { return Ok(Some(T::default())) };
        let line = yaml::narrow(document.line);
        serde_json::from_value(document.value).map(Some).map_err(|error| wrong(path, line, &error.to_string()))
    }

    fn module_file(&mut self, folder: &str) -> Result<Option<ModuleFile>, Failure> {
        let path = join(folder, module_file::NAME);
        let Some(text) = self.text(&path)? else { return Ok(None) };
        module_file::read(&text).map(Some).map_err(|(line, message)| wrong(&path, line, &message))
    }

    /// The nearest folder upwards with a `kcl.mod`.
    fn module_of(&self, folder: &str) -> Option<String> {
        upwards(folder).find(|folder| self.root.join(folder).join(module_file::NAME).is_file()).map(str::to_owned)
    }

    /// The names of a Kusion project, if the folder is one of its stacks.
    fn names(&mut self, folder: &str, values: &Values) -> Result<Option<Names>, Failure> {
        let Some(stack) = self.yaml::<Named>(&join(folder, STACK))? else { return Ok(None) };
        let mut project = Named::default();
        for folder in upwards(folder) {
            if let Some(found) = self.yaml::<Named>(&join(folder, PROJECT))? {
                project = found;
                break;
            }
        }
        let or = |name: &str, other: &str| if name.is_empty() { other.to_owned() } else { name.to_owned() };
        let name = or(&project.name, &values.project);
        let mut names = Names {
            namespace: name.clone(),
            stack: or(&stack.name, &values.stack),
            project: name,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        };
        // Those of the stack are stronger.
        for extension in project.extensions.into_iter().chain(stack.extensions) {
            if let Some(NamespaceExtension { namespace }) = extension.kubernetes_namespace {
                names.namespace = namespace;
            }
            let metadata = extension.kubernetes_metadata.unwrap_or_default();
            names.labels.extend(metadata.labels);
            names.annotations.extend(metadata.annotations);
        }
        Ok(Some(names))
    }

    /// Entries as files, in order. A folder stands for its sources.
    fn entries(&self, folder: &str, module: Option<&str>, listed: &[String]) -> Result<Vec<String>, Failure> {
        let mut entries = Vec::new();
        for entry in listed {
            let (start, path) = match entry.strip_prefix(MODULE) {
                Some(rest) => (module.unwrap_or(folder), rest.trim_start_matches('/')),
                None => (folder, entry.as_str()),
            };
            let place = normalized(start, path).filter(|path| !path.contains("${"));
            let Some(place) = place else {
                return Err(wrong(
                    folder,
                    0,
                    &format!("entry {entry:?} leads out of the repository, or has a variable"),
                ));
            };
            let relative = |path: &str| relative(folder, path);
            match self.root.join(&place).is_dir() {
                true => entries.extend(self.sources(&place).iter().map(|source| relative(&join(&place, source)))),
                false => entries.push(relative(&place)),
            }
        }
        Ok(entries)
    }

    /// The sources right in a folder, sorted.
    fn sources(&self, folder: &str) -> Vec<String> {
        let names = fs::read_dir(self.root.join(folder)).into_iter().flatten();
        let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut sources: Vec<String> = names.filter(|name| name.ends_with(K) && !name.ends_with(TEST)).collect();
        sources.sort();
        sources
    }

    /// The lines of options in a file.
    fn origins<'a>(
        &mut self,
        path: &str,
        options: impl Iterator<Item = &'a OptionValue>,
    ) -> Result<Vec<ValueOrigin>, Failure> {
        let mut options = options.peekable();
        if options.peek().is_none() {
            return Ok(Vec::new());
        }
        let bytes = self.text(path)?.unwrap_or_default().into_bytes();
        let lines = FieldLines::of(&SourceFile { path: path.to_owned(), bytes });
        let line = |at: usize| line(lines.first()?, &format!("kcl_options[{at}].key"));
        let origin = |(at, option): (usize, &OptionValue)| ValueOrigin {
            name: option.key.clone(),
            kind: "File".to_owned(),
            file: path.to_owned(),
            line: line(at).unwrap_or_default(),
            is_stronger: false,
        };
        Ok(options.enumerate().map(origin).collect())
    }

    /// The packages of a module, and those of its packages. A package has the version that its first user names.
    fn packages(&mut self, module: &str) -> Result<Vec<SourceModule>, Failure> {
        let mut found: BTreeMap<String, String> = BTreeMap::new();
        let mut versions: BTreeMap<String, String> = BTreeMap::new();
        let mut waiting = vec![module.to_owned()];
        let mut seen = BTreeSet::new();
        while let Some(folder) = waiting.pop() {
            if !seen.insert(folder.clone()) {
                continue;
            }
            let Some(file) = self.module_file(&folder)? else { continue };
            versions.insert(folder.clone(), file.version);
            for dependency in file.dependencies {
                let place = join(&folder, module_file::NAME);
                let path = match &dependency.source {
                    Source::Path(path) => normalized(&folder, path).ok_or_else(|| {
                        let message = format!("dependency {} leads out of the repository", dependency.name);
                        wrong(&place, dependency.line, &message)
                    })?,
                    Source::Remote { kind, version } => {
                        let own = self.vendored(&folder, &dependency.name, version.as_deref());
                        let of_stack = || self.vendored(module, &dependency.name, version.as_deref());
                        own.or_else(of_stack).ok_or_else(|| {
                            let name = &dependency.name;
                            let vendored = join(module, &vendored_name(name, version.as_deref()));
                            let message = format!(
                                "dependency {name} is of {kind}, and Stoa downloads no packages; copy it to {vendored}, as `kcl mod vendor` does, use a path, or register it as a Module"
                            );
                            wrong(&place, dependency.line, &message)
                        })?
                    }
                };
                if !self.root.join(&path).is_dir() {
                    let message = format!("dependency {} has no folder {path}", dependency.name);
                    return Err(wrong(&place, dependency.line, &message));
                }
                match found.insert(dependency.import_name(), path.clone()) {
                    Some(other) if other != path => {
                        let message = format!(
                            "dependency {} is in {other} and in {path}; use one version of it",
                            dependency.name
                        );
                        return Err(wrong(&place, dependency.line, &message));
                    }
                    _ => waiting.push(path),
                }
            }
        }
        let module = |(name, path): (String, String)| {
            let version = versions.get(&path).cloned().unwrap_or_default();
            SourceModule { name, version, path }
        };
        Ok(found.into_iter().map(module).collect())
    }

    /// The folder of a vendored package.
    fn vendored(&self, module: &str, name: &str, version: Option<&str>) -> Option<String> {
        // Packages of registered modules are at the root.
        let registered = vendored_name(name, version);
        let candidates = [join(module, &registered), join(module, &vendored_name(name, None)), registered];
        candidates.into_iter().find(|path| self.root.join(path).is_dir())
    }
}

/// The folder of a package from elsewhere, from its module.
pub(crate) fn vendored_name(name: &str, version: Option<&str>) -> String {
    match version {
        Some(version) => format!("{VENDOR}/{name}_{version}"),
        None => format!("{VENDOR}/{name}"),
    }
}

/// A folder, and those around it up to the root.
fn upwards(folder: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(folder), |folder| match folder.rsplit_once('/') {
        Some((parent, _)) => Some(parent),
        None => (!folder.is_empty()).then_some(""),
    })
}

/// A path from the root as a path from a folder.
fn relative(folder: &str, path: &str) -> String {
    let (from, to): (Vec<&str>, Vec<&str>) = (parts(folder), parts(path));
    let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = from[shared..].iter().map(|_| "..");
    up.chain(to[shared..].iter().copied()).collect::<Vec<_>>().join("/")
}

fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

pub(super) fn wrong(file: &str, line: u32, message: &str) -> Failure {
    Failure::invalid(vec![Problem { file: file.to_owned(), line, ..problem(reason::INVALID_KCL, message) }])
}
