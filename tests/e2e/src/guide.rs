//! Pages of the guide, played: their commands in one shell, from the first block to the last, and what they print.
//!
//! A block `sh` has commands, whose output is the block `text` right after it, if there is one. A block `console` has
//! commands after `$ ` and their output. Names, commits and ages that are another each time are not compared.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use regex::Regex;

use crate::kubectl::Kubectl;

/// How long what is only read may take to become what the page shows.
const PATIENCE: Duration = Duration::from_secs(60);
/// The folder of the pages.
const FOLDER: &str = "/srv/acme";
/// The line after what a command prints, before its status.
const END: &str = "@end of a command@";

/// Plays pages in a shell whose `kubectl` is this one. Folders are made below `root` instead of in `/srv`.
///
/// # Panics
///
/// At the first command that fails, or prints something else than the page shows.
pub fn play(pages: &[&Path], kubectl: &Kubectl, root: &Path) {
    let folder = format!("{}{FOLDER}", root.display());
    std::fs::create_dir_all(Path::new(&folder).parent().unwrap()).unwrap();
    let mut shell = Shell::start(kubectl, root);
    for page in pages {
        let text = std::fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        let steps = steps(&text);
        assert!(!steps.is_empty(), "{} has no commands", page.display());
        for step in steps {
            // The quickstart's server is another one here.
            let command = step.command.replace("export KUBECONFIG=", "true ").replace(FOLDER, &folder);
            let position = format!("{}:{}", page.display(), step.line);
            let deadline = Instant::now() + PATIENCE;
            loop {
                let (printed, succeeded) = shell.run(&command);
                let printed = printed.replace(root.to_str().unwrap(), "");
                let fits = step.expected.as_ref().is_none_or(|expected| same(expected, &printed));
                let fails = step.expected.as_ref().is_some_and(|expected| expected.starts_with("Error"));
                if fits && succeeded != fails {
                    break;
                }
                assert!(
                    step.is_read() && Instant::now() < deadline,
                    "{position}\n{command}\n--- expected\n{}\n--- printed\n{printed}",
                    step.expected.unwrap_or_default()
                );
                std::thread::sleep(Duration::from_millis(300));
            }
        }
    }
}

#[derive(Debug, Default, PartialEq)]
struct Step {
    /// Of the command, counted from 1.
    line: usize,
    command: String,
    /// Anything, if nothing.
    expected: Option<String>,
}

impl Step {
    /// Whether it may be repeated.
    fn is_read(&self) -> bool {
        ["kubectl get ", "git -C deploy.git "].iter().any(|reading| self.command.starts_with(reading))
    }
}

/// The commands of a page, in order.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut block: Option<&str> = None;
    let mut ended = 0;
    for (line, content) in (1..).zip(text.lines()) {
        match (block, content.strip_prefix("```")) {
            (None, Some(kind)) => {
                block = Some(kind);
                match kind {
                    "sh" => steps.push(Step { line, ..Step::default() }),
                    // Only an empty line is between them.
                    "text" if line == ended + 2 && !steps.is_empty() => {
                        steps.last_mut().unwrap().expected = Some(String::new());
                    }
                    "text" => block = Some("other"),
                    _ => {}
                }
            }
            (Some("sh"), Some(_)) => (block, ended) = (None, line),
            (Some(_), Some(_)) => block = None,
            (Some("sh"), None) => append(&mut steps.last_mut().unwrap().command, content),
            (Some("text"), None) => append(steps.last_mut().unwrap().expected.as_mut().unwrap(), content),
            (Some("console"), None) => match (content.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => {
                    steps.push(Step { line, command: command.to_owned(), expected: Some(String::new()) });
                }
                (None, Some(step)) if step.command.ends_with('\\') => append(&mut step.command, content),
                (None, Some(Step { expected: Some(expected), .. })) => append(expected, content),
                (None, _) => panic!("line {line}: output without a command"),
            },
            (Some(_) | None, None) => {}
        }
    }
    steps
}

fn append(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(line);
}

/// Whether both are the same but for blanks, and names, commits and ages.
fn same(expected: &str, printed: &str) -> bool {
    static OTHERS: OnceLock<[(Regex, &str); 3]> = OnceLock::new();
    let others = OTHERS.get_or_init(|| {
        [
            ("-[bcdfghjklmnpqrstvwxz2456789]{5}\\b", "-ID"),
            ("\\b[0-9a-f]{8}\\b", "COMMIT"),
            ("\\b([0-9]+[smh])+$", "AGE"),
        ]
        .map(|(expression, name)| (Regex::new(expression).unwrap(), name))
    });
    let plain = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let lines = lines.filter(|line| !line.is_empty());
        lines
            .map(|line| others.iter().fold(line, |line, (other, name)| other.replace_all(&line, *name).into_owned()))
            .collect()
    };
    plain(expected) == plain(printed)
}

/// A shell that runs one command after another, and remembers variables and functions.
struct Shell {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _programs: tempfile::TempDir,
}

impl Shell {
    fn start(kubectl: &Kubectl, folder: &Path) -> Self {
        let programs = tempfile::tempdir().unwrap();
        symlink(&kubectl.program, programs.path().join("kubectl")).unwrap();
        let mut search = OsString::from(programs.path());
        search.push(":");
        search.push(env::var_os("PATH").unwrap_or_default());
        let mut command = Command::new("bash");
        command.current_dir(folder).env("PATH", &search).env("KUBECONFIG", &kubectl.kubeconfig);
        command.env("KUBECACHEDIR", kubectl.cache());
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "Test").env(format!("GIT_{role}_EMAIL"), "test@localhost");
        }
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut shell = Self { process, input, output: BufReader::new(output), _programs: programs };
        // The failure of any command of a block is one of the block.
        shell.run("exec 2>&1; failed=0; trap 'failed=1' ERR");
        shell
    }

    /// What commands print, and whether all of them succeed.
    fn run(&mut self, command: &str) -> (String, bool) {
        writeln!(self.input, "failed=0\n{command}\necho; echo '{END}' $failed").unwrap();
        let mut printed = String::new();
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the shell ended at {command}\n{printed}");
            if let Some(status) = line.strip_prefix(END) {
                return (printed, status.trim() == "0");
            }
            printed.push_str(&line);
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_commands_with_their_output() {
        let page = "a\n```sh\necho a\necho b\n```\n\n```text\na\nb\n```\n```yaml\nx: y\n```\n\n```text\nno output\n```\n\
                    ```console\n$ echo c \\\n    d\nc d\n$ true\n```\n";
        let step = |line, command: &str, expected: &str| Step {
            line,
            command: command.to_owned(),
            expected: Some(expected.to_owned()),
        };
        let expected = [step(2, "echo a\necho b", "a\nb"), step(19, "echo c \\\n    d", "c d"), step(22, "true", "")];
        assert_eq!(steps(page), expected);
    }

    #[test]
    fn names_and_ages_are_not_compared() {
        assert!(same("web-99m9j  Succeeded 0123abcd   1s\n", "web-bxf5d Succeeded 4fe52aea 1m2s\n\n"));
        assert!(!same("web-99m9j Succeeded", "web-99m9j Failed"));
        assert!(!same("a\nb", "a"));
    }
}
