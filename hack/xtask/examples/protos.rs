//! The code of the proto of runners, in Rust: `cargo run -p xtask --example protos` writes it anew after a change of the proto.
//!
//! It is committed, since its compiler takes longer to build than most crates. Compiled by `protox`, so that no `protoc` is needed.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The file, in the crate's folder `proto`.
const PROTO: &str = "stoa/runner/v1/runner.proto";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../function-runner/proto")
}

/// Writes the code into a folder.
fn compile(into: &Path) -> Result<()> {
    let mut descriptors = protox::compile([PROTO], [folder().join("proto")])?;
    // The proto has the documentation.
    descriptors.file.iter_mut().for_each(|file| file.source_code_info = None);
    let compiler = tonic_prost_build::configure().bytes(".").out_dir(into);
    compiler.compile_fds(descriptors).with_context(|| format!("compiling {PROTO}"))
}

fn main() -> Result<()> {
    compile(&folder().join("src/generated"))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use super::*;

    fn files(folder: &Path) -> BTreeMap<String, String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        entries
            .map(|file| (file.file_name().into_string().unwrap(), fs::read_to_string(file.path()).unwrap()))
            .collect()
    }

    #[test]
    fn committed_code_is_that_of_the_protos() {
        let compiled = tempfile::tempdir().unwrap();
        compile(compiled.path()).unwrap();
        assert!(files(compiled.path()) == files(&folder().join("src/generated")), "{PROTO}: run this example");
    }
}
