//! Runs programs, and checks what the library does not.

use std::collections::HashSet;
use std::path::Path;

use prost::Message as _;

use crate::diagnostics;
use crate::imports::{Source, sources};
use crate::library::{Library, LoadError};
use crate::messages::{
    ExecProgramArgs, ExecProgramResult, ExternalPackage, ListOptionsResult, Method, ParseProgramArgs,
};
use crate::options;
use crate::outcome::{Error, Export, Output, Problem, code};
use crate::program::{Package, Program};
use crate::scan::Literal;
use crate::value::{Step, Value, joined};

/// A text by which configurations ask their users for a value.
const NO_VALUE: &str = "<no value>";

/// The loaded library. It runs one program at a time, and must be in a sandbox before it runs the first.
#[derive(Debug)]
pub struct Compiler {
    library: Library,
}

impl Compiler {
    /// Loads an object of [`without_python`](crate::without_python). It stays loaded until the process ends.
    ///
    /// # Errors
    ///
    /// If the object is not KCL's library, or cannot be loaded.
    pub fn load(object: &Path) -> Result<Self, LoadError> {
        Ok(Self { library: Library::load(object)? })
    }

    /// Runs a program whose files are below a folder.
    ///
    /// # Errors
    ///
    /// If the program is wrong, with file and line where they are known.
    pub fn run(&mut self, program: &Program, root: &Path) -> Result<Output, Error> {
        let entries = program.check(root)?;
        let facts = Facts(sources(root, &entries, &program.packages));
        let packages = packages(&program.packages, root);
        let settings = &program.settings;
        let mut request = ExecProgramArgs {
            work_dir: text(&root.join(&program.folder)),
            k_filename_list: entries.iter().map(|entry| text(&root.join(entry))).collect(),
            args: Vec::new(),
            overrides: settings.overrides.clone(),
            strict_range_check: settings.strict_range_check,
            disable_none: settings.disable_none,
            sort_keys: settings.sort_keys,
            external_pkgs: packages,
            include_schema_type_path: settings.include_schema_type_path,
            show_hidden: settings.show_hidden,
            path_selector: settings.path_selector.clone(),
            error_format: "sarif".to_owned(),
            format: "json".to_owned(),
        };
        let mut warnings = self.give_options(program, &mut request, root)?;
        let result = self.evaluate(&request, root)?;
        let documents = documents(&result.json_result)?;
        facts.check(&documents)?;
        warnings.extend(facts.warnings(&documents));
        if facts.is_volatile() && self.evaluate(&request, root)?.json_result != result.json_result {
            let message =
                "the result differs from run to run, because the program reads a clock or draws random numbers";
            warnings.push(Problem::new(code::VOLATILE, message));
        }
        let exports =
            facts.exports().map(|(file, name, line)| Export { name: name.to_owned(), file: file.to_owned(), line });
        let exports = exports.collect();
        let is_volatile = facts.is_volatile();
        let defaults = facts.defaults().collect();
        let files = facts.0.into_iter().map(|source| source.path).collect();
        Ok(Output { documents, log: result.log_message, warnings, files, exports, defaults, is_volatile })
    }

    /// Adds the values of options to a request, and returns warnings.
    fn give_options(
        &mut self,
        program: &Program,
        request: &mut ExecProgramArgs,
        root: &Path,
    ) -> Result<Vec<Problem>, Error> {
        if program.options.is_empty() {
            return Ok(Vec::new());
        }
        let (paths, external_pkgs) = (request.k_filename_list.clone(), request.external_pkgs.clone());
        let listed = self.call(&ParseProgramArgs { paths, external_pkgs }, root);
        let ListOptionsResult { options } = match listed {
            Ok(listed) => listed,
            Err(error) => {
                // An evaluation reports the errors of the program better.
                self.evaluate(request, root)?;
                return Err(error);
            }
        };
        let (arguments, warnings) = options::arguments(&program.options, &options).map_err(Error::Program)?;
        request.args = arguments;
        Ok(warnings)
    }

    fn evaluate(&mut self, request: &ExecProgramArgs, root: &Path) -> Result<ExecProgramResult, Error> {
        let result = self.call(request, root)?;
        if result.err_message.is_empty() {
            return Ok(result);
        }
        Err(Error::Program(diagnostics::of_evaluation(&result.err_message, root)))
    }

    fn call<M: Method>(&mut self, request: &M, root: &Path) -> Result<M::Reply, Error> {
        let reply = self.library.call(M::NAME, &request.encode_to_vec());
        if let Some(problems) = diagnostics::of_reply(&reply, root) {
            return Err(Error::Program(problems));
        }
        let broken = |error| Problem::new(code::LIBRARY, format!("KCL's library answers in another form: {error}"));
        Ok(M::Reply::decode(reply.as_slice()).map_err(broken)?)
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().trim_end_matches('/').to_owned()
}

fn packages(packages: &[Package], root: &Path) -> Vec<ExternalPackage> {
    let mut packages = packages.to_vec();
    packages.sort();
    packages.dedup();
    let package = |Package { name, path }| ExternalPackage { pkg_name: name, pkg_path: text(&root.join(path)) };
    packages.into_iter().map(package).collect()
}

/// The documents of a result. A stream has one on each line.
fn documents(result: &str) -> Result<Vec<Value>, Error> {
    let values = serde_json::Deserializer::from_str(result).into_iter::<Value>();
    let unread = |error| Problem::new(code::LIBRARY, format!("the result cannot be read: {error}"));
    let documents: Vec<Value> = values.collect::<Result<_, _>>().map_err(unread)?;
    if documents.iter().all(Value::is_empty) {
        let message =
            "the result is empty; export a name without an underscore, and check the keys that the program reads";
        return Err(Problem::new(code::EMPTY, message).into());
    }
    Ok(documents)
}

/// The sources of a program, and what the library does not report of them.
struct Facts(Vec<Source>);

impl Facts {
    fn is_volatile(&self) -> bool {
        self.0.iter().any(|source| source.scan.is_volatile)
    }

    fn literals(&self) -> impl Iterator<Item = (&str, &Literal)> {
        self.0.iter().flat_map(|source| source.scan.literals.iter().map(|literal| (source.path.as_str(), literal)))
    }

    /// The files, names and lines of exported names.
    fn exports(&self) -> impl Iterator<Item = (&str, &str, u32)> {
        let entries = self.0.iter().filter(|source| source.is_entry);
        entries.flat_map(|source| {
            source.scan.exports.iter().map(|(name, line)| (source.path.as_str(), name.as_str(), *line))
        })
    }

    /// The options with defaults.
    fn defaults(&self) -> impl Iterator<Item = Export> {
        self.0.iter().flat_map(|source| {
            let of_source = source.scan.defaults.iter();
            of_source.map(|(name, line)| Export { name: name.clone(), file: source.path.clone(), line: *line })
        })
    }

    /// Rejects placeholders, and numbers that a literal wraps to.
    fn check(&self, documents: &[Value]) -> Result<(), Error> {
        let wrapped: HashSet<i64> = self.literals().filter_map(|(_, literal)| literal.wrapped).collect();
        let mut problems = Vec::new();
        for document in documents {
            document.walk(&mut Vec::new(), &mut |path, value| match value {
                Value::Text(text) if text == NO_VALUE => problems.push(self.no_value(path)),
                Value::Number(number) => {
                    let number = number.as_i64().filter(|number| wrapped.contains(number));
                    problems.extend(number.and_then(|number| self.wrapped(number, path)));
                }
                _ => {}
            });
        }
        if problems.is_empty() { Ok(()) } else { Err(Error::Program(problems)) }
    }

    fn wrapped(&self, number: i64, path: &[Step<'_>]) -> Option<Problem> {
        let (file, literal) = self.literals().find(|(_, literal)| literal.wrapped == Some(number))?;
        let message = format!(
            "{} is {number}, because the integer {} has more than 64 bits; use a text or a float",
            joined(path),
            literal.text
        );
        Some(Problem::new(code::LITERAL, message).in_file(file).at(literal.line, literal.column))
    }

    /// A placeholder in the result. Its source is named where it is the only one.
    fn no_value(&self, path: &[Step<'_>]) -> Problem {
        let message = format!("{} is {NO_VALUE:?}, a placeholder; set a value in the stack", joined(path));
        let problem = Problem::new(code::NO_VALUE, message);
        let mut lines = self.0.iter().flat_map(|source| {
            let lines = (1..).zip(source.text.lines()).filter(|(_, line)| line.contains(NO_VALUE));
            lines.map(|(number, _)| (&source.path, number))
        });
        match (lines.next(), lines.next()) {
            (Some((file, line)), None) => problem.in_file(file).at(line, 0),
            _ => problem,
        }
    }

    fn warnings(&self, documents: &[Value]) -> Vec<Problem> {
        let literal = |(file, literal): (&str, &Literal)| {
            let message = format!("the integer {} has more than 64 bits, and KCL changes it silently", literal.text);
            Problem::new(code::LITERAL, message).in_file(file).at(literal.line, literal.column)
        };
        self.literals().map(literal).chain(self.replaced(documents)).collect()
    }

    /// The exported names that a stream replaces.
    fn replaced(&self, documents: &[Value]) -> Option<Problem> {
        let is_exported = |name: &str| match documents {
            [Value::Map(map)] => map.get(name).is_some(),
            _ => false,
        };
        if !self.0.iter().any(|source| source.scan.has_stream) {
            return None;
        }
        let replaced: Vec<_> = self.exports().filter(|(_, name, _)| !is_exported(name)).collect();
        let (file, _, line) = replaced.first()?;
        let names = replaced.iter().map(|(_, name, _)| *name).collect::<Vec<_>>().join(", ");
        let message = format!("manifests.yaml_stream replaces all other results: {names}; begin their names with _");
        Some(Problem::new(code::STREAM, message).in_file(file).at(*line, 1))
    }
}
