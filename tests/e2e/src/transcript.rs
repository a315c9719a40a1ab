//! Transcripts: commands as people type them, and what they print.
//!
//! A script has commands and expected output:
//!
//! ```text
//! # A line that begins with # is for the reader.
//! $ kubectl get stack web -n {org}
//! NAME   PROJECT   AGE
//! web    shop      [..]
//! $ kubectl create -f - <<EOF
//! > {kind: Stack}
//! > EOF
//! error: [..]
//! ? 1
//! ```
//!
//! `> ` continues a command. What it prints, stdout and stderr together, has to match the lines up to the next command.
//! A line `...` stands for any lines, blanks count as one, and `{name}` is replaced from a table. Within a line,
//!
//! * `[age]` stands for an age such as `3m12s`, `[time]` for a time of day or a timestamp,
//! * `[commit]` for eight hex digits, `[resource]` for the sixteen that end a Resource's name, `[digest]` for `sha256:`
//!   and 64, `[uid]` for a uid,
//! * `[id]` for the five characters that make a generated name unique, `[n]` for a number,
//! * `[..]` for anything.
//!
//! `? 1` is the exit status expected; without it, 0. Commands run in bash, in a folder of the script's own.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use regex::Regex;

use crate::kubectl::Kubectl;

/// What stands for text that is another each time: placeholder and regular expression.
const PLACEHOLDERS: [(&str, &str); 9] = [
    ("[..]", ".*"),
    ("[age]", "([0-9]+[smhdy])+"),
    ("[time]", "([0-9]{4}-[0-9]{2}-[0-9]{2}T)?[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]+)?Z?"),
    ("[commit]", "[0-9a-f]{8}"),
    ("[resource]", "[0-9a-f]{16}"),
    ("[digest]", "sha256:[0-9a-f]{64}"),
    ("[uid]", "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    ("[id]", "[bcdfghjklmnpqrstvwxz2456789]{5}"),
    ("[n]", "[0-9]+"),
];

/// Runs the script at `path` with this kubectl, all `{name}` of `values` replaced.
///
/// # Panics
///
/// At the first command that prints something else or ends otherwise, with what it printed.
pub fn play(path: &Path, kubectl: &Kubectl, values: &[(&str, &str)]) {
    let mut text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    for (name, value) in values {
        text = text.replace(&format!("{{{name}}}"), value);
    }
    let steps = parse(&text);
    assert!(!steps.is_empty(), "{} has no commands", path.display());

    // Scripts say `kubectl`, whichever version they are played with.
    let programs = tempfile::tempdir().unwrap();
    symlink(&kubectl.program, programs.path().join("kubectl")).unwrap();
    let mut search = OsString::from(programs.path());
    search.push(":");
    search.push(env::var_os("PATH").unwrap_or_default());

    let folder = tempfile::tempdir().unwrap();
    for step in steps {
        let output = Command::new("bash")
            .current_dir(folder.path())
            .arg("-c")
            .arg(format!("{{ {}\n}} 2>&1", step.command))
            .env("PATH", &search)
            .env("KUBECONFIG", &kubectl.kubeconfig)
            .env("KUBECACHEDIR", kubectl.cache())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        let got: Vec<&str> = printed.lines().collect();
        let place = format!("{}:{} with {}", path.display(), step.line, kubectl.program.display());
        assert!(
            matches(&step.expected, &got),
            "{place}\n$ {}\n--- expected\n{}\n--- printed\n{printed}",
            step.command,
            step.expected.join("\n")
        );
        assert_eq!(output.status.code(), Some(step.status), "{place}\n$ {}\n{printed}", step.command);
    }
}

#[derive(Debug, Default, PartialEq)]
struct Step<'a> {
    /// Of the command, counted from 1.
    line: usize,
    command: String,
    expected: Vec<&'a str>,
    status: i32,
}

fn parse(text: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { line: index + 1, command: command.to_owned(), ..Step::default() });
            continue;
        }
        let Some(step) = steps.last_mut() else { continue };
        if let Some(more) = line.strip_prefix("> ").or_else(|| (line == ">").then_some("")) {
            assert!(step.expected.is_empty(), "line {}: a command goes on after its output", index + 1);
            step.command.push('\n');
            step.command.push_str(more);
        } else if let Some(status) = line.strip_prefix("? ") {
            step.status = status.trim().parse().unwrap_or_else(|_| panic!("line {}: no exit status", index + 1));
        } else if !line.starts_with('#') && !line.trim().is_empty() {
            step.expected.push(line);
        }
    }
    steps
}

/// Whether the lines printed are those expected; blank ones do not count.
fn matches(expected: &[&str], got: &[&str]) -> bool {
    let Some((first, rest)) = expected.split_first() else {
        return got.iter().all(|line| line.trim().is_empty());
    };
    if first.trim() == "..." {
        return (0..=got.len()).any(|skipped| matches(rest, &got[skipped..]));
    }
    match got.split_first() {
        Some((line, more)) if line.trim().is_empty() => matches(expected, more),
        Some((line, more)) => line_matches(first, line) && matches(rest, more),
        None => false,
    }
}

fn line_matches(pattern: &str, line: &str) -> bool {
    let single_blanks = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut expression = regex::escape(&single_blanks(pattern));
    for (placeholder, stands_for) in PLACEHOLDERS {
        expression = expression.replace(&regex::escape(placeholder), stands_for);
    }
    Regex::new(&format!("^{expression}$")).unwrap().is_match(&single_blanks(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_is_commands_with_output_and_status() {
        let steps = parse("# why\n$ cat <<E\n> a\n>\n> E\na\n\n$ false\n? 1\n");
        let first = Step { line: 2, command: "cat <<E\na\n\nE".to_owned(), expected: vec!["a"], status: 0 };
        assert_eq!(steps, [first, Step { line: 8, command: "false".to_owned(), expected: vec![], status: 1 }]);
    }

    #[test]
    fn wildcards_stand_for_what_changes() {
        assert!(line_matches("web   shop [..]s", "web shop   12s"));
        assert!(line_matches("[..]", ""));
        assert!(!line_matches("web shop", "web shop 12s"));
        assert!(!line_matches("a[..]b[..]c", "a c"));
        assert!(line_matches("web [age] [commit]", "web 3m12s 0123abcd"));
        assert!(!line_matches("web [age] [commit]", "web <unknown> 0123abcd"));
        assert!(line_matches("web-[id] (a+b)", "web-x2f9k (a+b)"));
        assert!(line_matches("at [time]", "at 2026-01-02T03:04:05Z") && line_matches("at [time]", "at 03:04:05"));
        assert!(matches(&["a", "...", "d"], &["a", "b", "", "c", "d"]));
        assert!(matches(&["..."], &[]));
        assert!(!matches(&["a"], &["a", "b"]));
        assert!(!matches(&["a", "b"], &["a"]));
    }
}
