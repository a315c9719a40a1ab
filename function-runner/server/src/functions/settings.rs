//! The configuration of functions: the file of `--functions`.
//!
//! Start at [`Settings::read`]. An image names a program or a module, which runs only if the file has the SHA-256.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use stoa_packages::builtins;
use stoa_packages::function_metadata::{FunctionDescription, TypeName};
use stoa_packages::kptfile::full_image;
use stoa_yaml::Limits;

/// The limits of the file.
const LIMITS: Limits = Limits { depth: 20, values: 100_000, documents: 1, copied: 1 << 20 };

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    functions: Vec<Entry>,
}

/// A function in the file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    /// The images that name it. One without a tag stands for all tags.
    images: Vec<String>,
    /// The executable, from the folder of the file.
    #[serde(default)]
    program: Option<PathBuf>,
    /// Or the WebAssembly module.
    #[serde(default)]
    wasm: Option<PathBuf>,
    /// The SHA-256 of the executable or module.
    sha256: String,
    /// The arguments of the executable.
    #[serde(default)]
    arguments: Vec<String>,
    #[serde(default)]
    types: Vec<String>,
    #[serde(default)]
    description: String,
    #[serde(default)]
    documentation_url: String,
    #[serde(default)]
    keywords: Vec<String>,
    #[serde(default)]
    function_configs: Vec<TypeName>,
    #[serde(default)]
    input_types: Vec<TypeName>,
    #[serde(default)]
    idempotent: Option<bool>,
}

/// A file that may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Allowed {
    pub(super) path: PathBuf,
    pub(super) sha256: [u8; 32],
    pub(super) arguments: Vec<String>,
}

/// Functions by their images.
#[derive(Debug)]
pub(super) struct Images<T>(Vec<Function<T>>);

#[derive(Debug)]
struct Function<T> {
    images: Vec<String>,
    description: FunctionDescription,
    of: T,
}

impl<T> Default for Images<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Images<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The function of an image: by its whole name, or else by its name without tag.
    pub(super) fn find(&self, image: &str) -> Option<&T> {
        let of = |name: &str| self.0.iter().find(|function| function.images.iter().any(|own| own == name));
        let found = of(image).or_else(|| of(without_tag(image).filter(|_| !image.contains('@'))?));
        found.map(|function| &function.of)
    }

    /// The functions with their first images.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|function| (function.description.image.as_str(), &function.of))
    }

    /// One description for each image.
    pub(super) fn described(&self) -> Vec<FunctionDescription> {
        let images = |function: &Function<T>| {
            let description = function.description.clone();
            let of = move |image: &String| FunctionDescription { image: image.clone(), ..description.clone() };
            function.images.iter().map(of).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(images).collect()
    }

    pub(super) fn map<U>(self, of: impl Fn(T) -> U) -> Images<U> {
        let function = |it: Function<T>| Function { images: it.images, description: it.description, of: of(it.of) };
        Images(self.0.into_iter().map(function).collect())
    }
}

/// An image without its tag; a port is no tag.
fn without_tag(image: &str) -> Option<&str> {
    let (name, tag) = image.rsplit_once(':')?;
    (!tag.contains('/')).then_some(name)
}

/// The functions that are allowed.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    programs: Images<Allowed>,
    modules: Images<Allowed>,
}

impl Settings {
    /// Reads a file.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let folder = file.parent().unwrap_or(Path::new("."));
        Self::parse(&text, folder).with_context(|| format!("the functions in {}", file.display()))
    }

    fn parse(text: &str, folder: &Path) -> Result<Self> {
        let documents = stoa_yaml::documents(text, &LIMITS, false)?;
        let value = documents.into_iter().next().map(|document| document.value).unwrap_or_default();
        let File { functions } = serde_json::from_value(value).context("the file has another form")?;
        let (mut settings, mut seen) = (Self::default(), Vec::<String>::new());
        for entry in functions {
            let images: Vec<String> = entry.images.iter().map(|image| full_image(image)).collect();
            let Some(first) = images.first().cloned() else { bail!("a function has no images") };
            for image in &images {
                ensure!(!seen.contains(image), "image {image} is in the file twice; remove one of them");
                let is_built_in = builtins::find(image).is_some()
                    || builtins::catalog_name(image).is_some_and(|(name, _)| name == "starlark");
                ensure!(!is_built_in, "image {image} is built in; name the function by another image or by its digest");
            }
            seen.extend(images.iter().cloned());
            let sha256 = digest(&entry.sha256).with_context(|| format!("sha256 of {first}"))?;
            let (list, path) = match (entry.program, entry.wasm) {
                (Some(program), None) => (&mut settings.programs, program),
                (None, Some(wasm)) => {
                    ensure!(entry.arguments.is_empty(), "{first}: a module gets no arguments; remove them");
                    (&mut settings.modules, wasm)
                }
                _ => bail!("{first}: set either program or wasm"),
            };
            let description = FunctionDescription {
                image: first,
                types: entry.types,
                description: entry.description,
                documentation_url: entry.documentation_url,
                keywords: entry.keywords,
                configs: entry.function_configs,
                inputs: entry.input_types,
                idempotent: entry.idempotent,
            };
            let of = Allowed { path: folder.join(path), sha256, arguments: entry.arguments };
            list.0.push(Function { images, description, of });
        }
        Ok(settings)
    }

    pub(super) fn into_parts(self) -> (Images<Allowed>, Images<Allowed>) {
        (self.programs, self.modules)
    }
}

/// A digest of 64 hexadecimal digits.
fn digest(text: &str) -> Result<[u8; 32]> {
    ensure!(text.len() == 64 && text.is_ascii(), "64 hexadecimal digits are expected");
    let mut digest = [0; 32];
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).context("64 hexadecimal digits are expected")?;
    }
    Ok(digest)
}

/// The hexadecimal digits of a digest.
pub(super) fn hex(digest: &[u8; 32]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings> {
        Settings::parse(text, Path::new("/functions"))
    }

    fn of(fields: &str) -> String {
        format!("functions:\n- {{sha256: '{}', {fields}}}\n", "0f".repeat(32))
    }

    #[test]
    fn image_names_a_program() {
        let text = of("images: ['example.com:5000/check:v1', 'example.com/any'], program: check, arguments: [-v]");
        let (programs, modules) = parse(&text).unwrap().into_parts();
        assert!(modules.is_empty());
        let allowed = Allowed { path: "/functions/check".into(), sha256: [15; 32], arguments: vec!["-v".to_owned()] };
        for image in ["example.com:5000/check:v1", "example.com/any", "example.com/any:v7"] {
            assert_eq!(programs.find(image), Some(&allowed), "{image}");
        }
        for image in ["example.com:5000/check", "example.com:5000/check:v2", "example.com/any@sha256:00", "example.com"]
        {
            assert_eq!(programs.find(image), None, "{image}");
        }
        assert_eq!(programs.described().len(), 2);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, message) in [
            (of("images: [example.com/a]"), "set either program or wasm"),
            (of("images: [example.com/a], program: a, wasm: b"), "set either program or wasm"),
            (of("images: [], program: a"), "has no images"),
            (of("images: [set-image], program: a"), "is built in"),
            (of("images: ['starlark:v0.4'], program: a"), "is built in"),
            (of("images: [example.com/a, example.com/a], wasm: a, arguments: [b]"), "gets no arguments"),
            (of("images: [example.com/a], program: a, other: b"), "unknown field"),
            (of("images: [example.com/a], program: a").replace("0f0f", "0g0f"), "64 hexadecimal digits"),
            (of("images: [example.com/a], program: a").repeat(2).replacen("\nfunctions:", "", 1), "twice"),
            ("a: [".to_owned(), ""),
        ] {
            let error = format!("{:#}", parse(&text).unwrap_err());
            assert!(error.contains(message), "{text}: {error}");
        }
        assert!(parse(&of("images: ['set-image@sha256:00'], program: a")).is_ok(), "a digest names other bytes");
    }
}
