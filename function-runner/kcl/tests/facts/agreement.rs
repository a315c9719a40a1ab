//! Programs that give the same result as KCL's library called directly: by Python, from the package as it is published.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use prost::Message;
use serde_json::Value as Json;
use stoa_kcl::{Parameter, Program};

use crate::support::{library, main_program, package, shown, written};

/// Calls the library's service: the folder of the package is the argument, and messages are the input and the output.
const CALL: &str = "
import importlib.util, pathlib, sys
[found] = pathlib.Path(sys.argv[1]).rglob('_kcl_lib*.so')
spec = importlib.util.spec_from_file_location('_kcl_lib', found)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.stdout.buffer.write(bytes(module.call(b'KclService.ExecProgram', sys.stdin.buffer.read())))
";

/// The fields of the message that are set here. Their numbers are those of KCL's `spec.proto`.
#[derive(Clone, PartialEq, Message)]
struct ExecProgramArgs {
    #[prost(string, tag = "1")]
    work_dir: String,
    #[prost(string, repeated, tag = "2")]
    k_filename_list: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    args: Vec<Argument>,
}

#[derive(Clone, PartialEq, Message)]
struct Argument {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct ExecProgramResult {
    #[prost(string, tag = "1")]
    json_result: String,
    #[prost(string, tag = "4")]
    err_message: String,
}

/// The documents of a result.
fn documents(text: &str) -> Vec<Json> {
    serde_json::Deserializer::from_str(text).into_iter().map(Result::unwrap).collect()
}

/// The result of a program by the library alone. A compiler's error is text instead of a message.
fn direct(package: &Path, root: &Path, options: &[(&str, &str)]) -> ExecProgramResult {
    let argument = |(name, value): &(&str, &str)| Argument { name: (*name).to_owned(), value: (*value).to_owned() };
    let request = ExecProgramArgs {
        work_dir: root.to_string_lossy().into_owned(),
        k_filename_list: vec![root.join("main.k").to_string_lossy().into_owned()],
        args: options.iter().map(argument).collect(),
    };
    let mut python = Command::new("python3");
    python.args(["-c", CALL]).arg(package).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().unwrap();
    python.stdin.take().unwrap().write_all(&request.encode_to_vec()).unwrap();
    let mut reply = Vec::new();
    python.stdout.take().unwrap().read_to_end(&mut reply).unwrap();
    assert!(python.wait().unwrap().success());
    match reply.strip_prefix(b"ERROR:") {
        Some(message) => {
            ExecProgramResult { json_result: String::new(), err_message: String::from_utf8_lossy(message).into_owned() }
        }
        None => ExecProgramResult::decode(reply.as_slice()).unwrap(),
    }
}

/// A name, the arguments, and the source.
type Case = (&'static str, &'static [(&'static str, &'static str)], &'static str);

const PROGRAMS: [Case; 16] = [
    ("values", &[], "a = 1\nb = 1.5\nc = \"text\"\nd = [1, True, None]\ne = {x = 1, \"y z\" = [2]}\n"),
    ("order", &[], "z = 1\na = {b = 1, a = 2}\nm = 3\n"),
    ("hidden", &[], "_a = 1\nb = _a + 1\n"),
    ("schema", &[], "schema App:\n    name: str\n    replicas: int = 2\napp = App {name = \"web\"}\n"),
    ("inheritance", &[], "schema A:\n    x: int = 1\nschema B(A):\n    y: int = x + 1\nb = B {}\n"),
    ("mixin", &[], "schema M:\n    if True:\n        z = 3\nschema A:\n    z?: int\na = A {z = 4}\n"),
    ("union", &[], "a: {str:} = {x.y = 1}\nb = a | {x.z = 2}\n"),
    ("comprehension", &[], "a = [x * 2 for x in range(4) if x > 0]\nb = {str(x) = x for x in [1, 2]}\n"),
    ("lambda", &[], "f = lambda x: int, y: int = 2 -> int { x + y }\na = f(1)\n"),
    ("text", &[], "n = \"web\"\na = \"${n}-1\"\nb = \"{}-2\".format(n)\nc = n.upper()\n"),
    ("units", &[], "a = 1Mi\nb = 2K\n"),
    ("modules", &[], "import base64\nimport math\na = base64.encode(\"x\")\nb = math.ceil(1.2)\n"),
    ("stream", &[], "import manifests\nmanifests.yaml_stream([{a = 1}, {b = 2}])\n"),
    (
        "options",
        &[("replicas", "3")],
        "a = option(\"replicas\", type=\"int\", default=1)\nb = option(\"x\", default=\"y\")\n",
    ),
    ("conditions", &[("stage", "\"prod\"")], "a = 3 if option(\"stage\") == \"prod\" else 1\n"),
    (
        "object",
        &[],
        "apiVersion = \"v1\"\nkind = \"ConfigMap\"\nmetadata = {name = \"a\", labels: {\"x.dev/y\" = \"1\"}}\ndata = {a = \"007\"}\n",
    ),
];

fn program(options: &[(&str, &str)]) -> Program {
    let parameter = |(name, value): &(&str, &str)| Parameter {
        name: (*name).to_owned(),
        value: serde_json::from_str(value).unwrap(),
        is_common: false,
        origin: None,
    };
    Program { options: options.iter().map(parameter).collect(), ..main_program() }
}

#[test]
fn results_are_those_of_the_library() {
    let (Some(mut compiler), Some(package)) = (library(), package()) else { return };
    for (name, options, text) in PROGRAMS {
        let root = written(&[("main.k", text)]);
        let direct = direct(package, root.path(), options);
        assert_eq!(direct.err_message, "", "{name}");
        let found = compiler.run(&program(options), root.path());
        let found = found.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(documents(&shown(&found)), documents(&direct.json_result), "{name}");
    }
}

#[test]
fn errors_are_those_of_the_library() {
    let (Some(mut compiler), Some(package)) = (library(), package()) else { return };
    for text in
        ["a = \n", "a: int = \"x\"\n", "a = b\n", "assert False, \"no\"\na = 1\n", "schema A:\n    x: int\na = A {}\n"]
    {
        let root = written(&[("main.k", text)]);
        let direct = direct(package, root.path(), &[]);
        assert_ne!(direct.err_message, "", "{text}");
        assert!(compiler.run(&program(&[]), root.path()).is_err(), "{text}");
    }
}
