//! Jobs for tests of workers: generators named `Trial:…`. Release builds have none, and other builds only where
//! `STOA_WORKER_TRIALS` is set.

use std::io;
use std::path::Path;

use stoa_engine::Spec;

use super::generator::{At, Files, Generated, Generator, Input, Profile};
use crate::failure::Failure;
use crate::source::Content;

/// A generator of [`Profile::Tree`] for tests: lists its tree, and reaches for all that is outside.
#[derive(Debug)]
struct TreeTrial;

const TREE: &str = "Trial:tree";

impl Generator for TreeTrial {
    fn name(&self) -> &'static str {
        TREE
    }

    fn detects(&self, _: &Content, _: At<'_>) -> Option<String> {
        None
    }

    fn profile(&self) -> Profile {
        Profile::Tree
    }

    fn takes_values(&self) -> bool {
        true
    }

    fn generate(&self, input: &Input<'_>) -> Result<Generated, Failure> {
        let Files::Tree { root, path } = input.files else { return Err(Failure::internal(&"no tree")) };
        let mut warnings = list(root, root);
        warnings.sort();
        warnings.push(format!("path: {path}"));
        warnings.extend(input.values.parameters.iter().map(|(name, value)| format!("{name}: {value}")));
        warnings
            .push(format!("write to the tree: {:?}", std::fs::write(root.join("new"), "x").map_err(|err| err.kind())));
        warnings.extend(reach());
        Ok(Generated { warnings, ..Generated::from(Spec::default()) })
    }
}

/// The files of a folder with their texts; an error where one cannot be read.
fn list(root: &Path, folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![format!("{}: unreadable", folder.display())] };
    let of_entry = |entry: std::fs::DirEntry| {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            return list(root, &path);
        }
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        vec![format!("{name}: {:?}", std::fs::read_to_string(&path).map_err(|err| err.kind()))]
    };
    entries.filter_map(Result::ok).flat_map(of_entry).collect()
}

/// The generator of that name, for tests.
pub(super) fn generator(name: &str) -> Option<&'static dyn Generator> {
    std::env::var_os(VARIABLE)?;
    (name == TREE).then_some(&TreeTrial as &dyn Generator)
}

/// The variable without which there are no trials.
pub(crate) const VARIABLE: &str = "STOA_WORKER_TRIALS";

/// Does what is asked for by the name of a generator, if it is a trial. Says what it came to.
pub(super) fn run(generator: &str) -> Option<Vec<String>> {
    let trial = generator.strip_prefix("Trial:")?;
    std::env::var_os(VARIABLE)?;
    Some(match trial {
        // Never ends, and takes all of a processor.
        "spin" => loop {
            std::hint::spin_loop();
        },
        // Never ends, and takes nothing.
        "wait" => loop {
            std::thread::park();
        },
        "memory" => vec![take_memory().to_string()],
        "abort" => std::process::abort(),
        "panic" => panic!("as a test wants"),
        "reach" => reach(),
        "environment" => std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect(),
        _ => return None,
    })
}

/// Takes memory until there is no more.
fn take_memory() -> usize {
    let mut all = Vec::new();
    loop {
        all.push(vec![1_u8; 1 << 20]);
        if all.len() > 1 << 20 {
            return all.len();
        }
    }
}

/// Reaches for all that is outside, and says what came of it.
fn reach() -> Vec<String> {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    let said = |what: &str, done: io::Result<()>| match done {
        Ok(()) => format!("{what}: done"),
        Err(err) => format!("{what}: {:?}", err.kind()),
    };
    vec![
        said("read", std::fs::read("/etc/passwd").map(drop)),
        said("read of its own", std::fs::read("/proc/self/environ").map(drop)),
        said("write", std::fs::write("/tmp/stoa-worker-trial", "x")),
        said("list", std::fs::read_dir("/").map(drop)),
        said("connect", TcpStream::connect(("127.0.0.1", 80)).map(drop)),
        said("listen", TcpListener::bind(("127.0.0.1", 0)).map(drop)),
        said("send", UdpSocket::bind(("127.0.0.1", 0)).map(drop)),
        said("pipe", std::io::pipe().map(drop)),
        said("program", std::process::Command::new("/bin/true").spawn().map(drop)),
        said("itself", std::process::Command::new("/proc/self/exe").spawn().map(drop)),
        said("thread", std::thread::Builder::new().spawn(|| {}).map(drop)),
    ]
}
