//! The code of our protos, in Rust: `cargo run -p xtask --example protos` writes it anew after a change of a proto.
//!
//! It is committed, since its compiler takes longer to build than most crates. Compiled by `protox`, so that no `protoc` is needed.
//! The code of the renderer's proto is written in Go too, by the generators that its module pins.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use prost_types::compiler::{CodeGeneratorRequest, CodeGeneratorResponse};

/// A proto, and where its code is.
struct Proto {
    /// The folder of a crate, from the root of the repository.
    folder: &'static str,
    /// The files, in the crate's folder `proto`.
    files: &'static [&'static str],
    /// The folder for the code, in the crate's.
    code: &'static str,
    /// Whether clients and servers are written beside the messages.
    with_services: bool,
    /// The folder for code in Go, in the crate's.
    go: Option<&'static str>,
}

const PROTOS: [Proto; 7] = [
    Proto {
        folder: "function-runner/proto",
        files: &["stoa/runner/v1/runner.proto", "stoa/runner/v1/packages.proto", "stoa/runner/v1/fleet.proto"],
        code: "src/generated",
        with_services: true,
        go: None,
    },
    Proto {
        folder: "function-runner/proto",
        files: &["evaluator/evaluator.proto"],
        code: "src/evaluator",
        with_services: true,
        go: None,
    },
    Proto {
        folder: "function-runner/proto",
        files: &["stoa/scheduler/v1/scheduler.proto"],
        code: "src/scheduler",
        with_services: true,
        go: None,
    },
    Proto {
        folder: "function-runner/renderer",
        files: &["renderer.proto"],
        code: "../proto/src/renderer",
        with_services: true,
        go: Some("rendererpb"),
    },
    Proto {
        folder: "function-runner/kusion-module",
        files: &["module.proto"],
        code: "src/generated",
        with_services: true,
        go: None,
    },
    // One set of calls serves both protocols, so only their messages are written.
    Proto {
        folder: "engine/terraform-provider",
        files: &["tfplugin5.proto"],
        code: "src/generated/tfplugin5",
        with_services: false,
        go: None,
    },
    Proto {
        folder: "engine/terraform-provider",
        files: &["tfplugin6.proto"],
        code: "src/generated/tfplugin6",
        with_services: false,
        go: None,
    },
];

impl Proto {
    fn folder(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(self.folder)
    }

    fn code(&self) -> PathBuf {
        self.folder().join(self.code)
    }

    fn descriptors(&self) -> Result<FileDescriptorSet> {
        let mut descriptors = protox::compile(self.files, [self.folder().join("proto")])?;
        // The proto has the documentation.
        descriptors.file.iter_mut().for_each(|file| file.source_code_info = None);
        Ok(descriptors)
    }

    /// Writes the code into a folder.
    fn compile(&self, into: &Path) -> Result<()> {
        let compiler = tonic_prost_build::configure()
            .build_client(self.with_services)
            .build_server(self.with_services)
            .bytes(".")
            .out_dir(into);
        compiler.compile_fds(self.descriptors()?).with_context(|| format!("compiling {}", self.files.join(" ")))
    }

    /// The code in Go, by the names of its files.
    fn compile_go(&self) -> Result<BTreeMap<String, String>> {
        let request = CodeGeneratorRequest {
            file_to_generate: self.files.iter().map(|file| (*file).to_owned()).collect(),
            parameter: Some("paths=source_relative".to_owned()),
            proto_file: self.descriptors()?.file,
            compiler_version: None,
        };
        let mut files = BTreeMap::new();
        for generator in ["protoc-gen-go", "protoc-gen-go-grpc"] {
            let mut go = Command::new("go");
            go.current_dir(self.folder()).args(["tool", generator]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut go = go.spawn().context("running go; Go 1.26 is needed")?;
            go.stdin.take().context("no pipe")?.write_all(&request.encode_to_vec())?;
            let output = go.wait_with_output()?;
            ensure!(output.status.success(), "go tool {generator} failed");
            let response = CodeGeneratorResponse::decode(output.stdout.as_slice())?;
            ensure!(response.error.is_none(), "{generator}: {}", response.error());
            files.extend(response.file.into_iter().map(|file| (file.name().to_owned(), file.content().to_owned())));
        }
        Ok(files)
    }
}

fn main() -> Result<()> {
    for proto in PROTOS {
        fs::create_dir_all(proto.code())?;
        proto.compile(&proto.code())?;
        let Some(go) = proto.go else { continue };
        let folder = proto.folder().join(go);
        fs::create_dir_all(&folder)?;
        for (name, content) in proto.compile_go()? {
            fs::write(folder.join(name), content)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
            assert!(files(folder.path()) == files(&proto.code()), "{}: run this example", proto.files.join(" "));
            let Some(go) = proto.go else { continue };
            assert!(
                proto.compile_go().unwrap() == files(&proto.folder().join(go)),
                "{}: run this example",
                proto.files.join(" ")
            );
        }
    }
}
