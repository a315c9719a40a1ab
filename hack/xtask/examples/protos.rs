//! The code of our protos, in Rust: `cargo run -p xtask --example protos` writes it anew after a change of a proto.
//!
//! It is committed, since its compiler takes longer to build than most crates. Compiled by `protox`, so that no `protoc` is needed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A proto, and where its code is.
struct Proto {
    /// The folder of a crate, from the root of the repository.
    folder: &'static str,
    /// The file, in the crate's folder `proto`.
    file: &'static str,
    /// The folder for the code, in the crate's.
    code: &'static str,
    /// Whether clients and servers are written beside the messages.
    with_services: bool,
}

const PROTOS: [Proto; 3] = [
    Proto {
        folder: "function-runner/proto",
        file: "stoa/runner/v1/runner.proto",
        code: "src/generated",
        with_services: true,
    },
    // One set of calls serves both protocols, so only their messages are written.
    Proto {
        folder: "engine/terraform-provider",
        file: "tfplugin5.proto",
        code: "src/generated/tfplugin5",
        with_services: false,
    },
    Proto {
        folder: "engine/terraform-provider",
        file: "tfplugin6.proto",
        code: "src/generated/tfplugin6",
        with_services: false,
    },
];

impl Proto {
    fn folder(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(self.folder)
    }

    fn code(&self) -> PathBuf {
        self.folder().join(self.code)
    }

    /// Writes the code into a folder.
    fn compile(&self, into: &Path) -> Result<()> {
        let mut descriptors = protox::compile([self.file], [self.folder().join("proto")])?;
        // The proto has the documentation.
        descriptors.file.iter_mut().for_each(|file| file.source_code_info = None);
        let compiler = tonic_prost_build::configure()
            .build_client(self.with_services)
            .build_server(self.with_services)
            .bytes(".")
            .out_dir(into);
        compiler.compile_fds(descriptors).with_context(|| format!("compiling {}", self.file))
    }
}

fn main() -> Result<()> {
    for proto in PROTOS {
        fs::create_dir_all(proto.code())?;
        proto.compile(&proto.code())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn files(folder: &Path) -> BTreeMap<String, String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        entries
            .map(|file| (file.file_name().into_string().unwrap(), fs::read_to_string(file.path()).unwrap()))
            .collect()
    }

    #[test]
    fn committed_code_is_that_of_the_protos() {
        for proto in PROTOS {
            let folder = tempfile::tempdir().unwrap();
            proto.compile(folder.path()).unwrap();
            assert!(files(folder.path()) == files(&proto.code()), "{}: run this example", proto.file);
        }
    }
}
