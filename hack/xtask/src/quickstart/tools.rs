//! The programs that Kustomize, Helm and KCL need: the renderer, which Go builds, and KCL's library, which pip downloads.
//!
//! Without them everything else works, so that none of this ever fails a quickstart.

use std::fs;
use std::path::PathBuf;

use crate::kcl;
use crate::renderer;

/// The files; nothing where one is not there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tools {
    renderer: Option<PathBuf>,
    kcl: Option<PathBuf>,
}

impl Tools {
    /// Those that are there already.
    pub(super) fn there() -> Self {
        Self { renderer: renderer::built(), kcl: kcl::downloaded() }
    }

    /// Makes those that are missing, which takes a minute or two the first time, and reports what it cannot make.
    pub(super) fn made() -> Self {
        let renderer = renderer::binary().inspect_err(|error| {
            eprintln!("no Kustomize and Helm: {error:#}; solve that, and run hack/quickstart again")
        });
        let kcl =
            kcl::wheel().inspect_err(|error| eprintln!("no KCL: {error:#}; solve that, and run hack/quickstart again"));
        let tools = Self { renderer: renderer.ok(), kcl: kcl.ok().flatten() };
        for (tool, file) in [("Kustomize and Helm", &tools.renderer), ("KCL", &tools.kcl)] {
            if let Some(file) = file {
                eprintln!("{tool}: {}", file.display());
            }
        }
        tools
    }

    /// The flags of `stoa-apiserver standalone`.
    pub(super) fn flags(&self) -> Vec<String> {
        let flags = [("renderer", &self.renderer), ("kcl-library", &self.kcl)];
        flags.into_iter().filter_map(|(flag, file)| Some(format!("--{flag}={}", file.as_ref()?.display()))).collect()
    }

    /// Whether a process was started with them.
    pub(super) fn are_used_by(&self, pid: u32) -> bool {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let arguments: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        self.flags().iter().all(|flag| arguments.contains(&flag.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn server_without_a_new_tool_is_restarted() {
        let tools = Tools { renderer: Some(PathBuf::from("/bin/r-1")), kcl: None };
        assert_eq!(tools.flags(), ["--renderer=/bin/r-1"]);
        // It reads its standard input until that ends, and its command line has the flag.
        let mut command = Command::new("sh");
        command.args(["-c", "echo started; read line", "sh"]).args(tools.flags());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // The kernel shows no command line before the program runs, and `spawn` returns a moment earlier.
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        assert!(tools.are_used_by(process.id()) && Tools::default().are_used_by(process.id()));
        let more = Tools { kcl: Some(PathBuf::from("/bin/kcl.whl")), ..tools };
        assert!(!more.are_used_by(process.id()));
        drop(process.stdin.take());
        process.wait().unwrap();
    }
}
