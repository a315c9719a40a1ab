//! The errors of KCL's library as problems.
//!
//! Compile errors are SARIF, a JSON document. Evaluation errors are formatted for terminals.

use std::path::Path;

use serde::Deserialize;

use crate::outcome::{Problem, code};

/// The beginning of a reply that is an error.
const ERROR: &str = "ERROR:";
/// The code of evaluation errors.
const EVALUATION: &str = "EvaluationError";
/// The message of a failed check, of which the library reports only the first.
const CHECK: &str = "Instance check failed";

#[derive(Debug, Deserialize)]
struct Sarif {
    runs: Vec<Run>,
}

#[derive(Debug, Deserialize)]
struct Run {
    results: Vec<Finding>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    #[serde(default)]
    rule_id: String,
    #[serde(default)]
    level: String,
    message: Text,
    #[serde(default)]
    locations: Vec<Location>,
}

#[derive(Debug, Deserialize)]
struct Text {
    #[serde(default)]
    text: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    physical_location: Physical,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Physical {
    artifact_location: Artifact,
    #[serde(default)]
    region: Region,
}

#[derive(Debug, Deserialize)]
struct Artifact {
    #[serde(default)]
    uri: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Region {
    start_line: u32,
    start_column: u32,
}

/// Reads the problems of a reply that begins with `ERROR:`; nothing if the reply is no error.
pub(crate) fn of_reply(reply: &[u8], root: &Path) -> Option<Vec<Problem>> {
    let text = String::from_utf8_lossy(reply.strip_prefix(ERROR.as_bytes())?);
    let Ok(sarif) = serde_json::from_str::<Sarif>(&text) else {
        return Some(of_text(&text, root));
    };
    let findings = sarif.runs.into_iter().flat_map(|run| run.results);
    // Suggestions are for users of KCL's own tools.
    let errors = findings.filter(|finding| finding.level != "note" && finding.level != "warning");
    let problems: Vec<_> = errors.map(|finding| finding.into_problem(root)).collect();
    let unknown = || vec![Problem::new(code::LIBRARY, "KCL's library reports an error without a message")];
    Some(if problems.is_empty() { unknown() } else { problems })
}

impl Finding {
    fn into_problem(self, root: &Path) -> Problem {
        let message = self.message.text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        let problem = Problem::new(&self.rule_id, without_root(&message, root));
        match self.locations.into_iter().next() {
            Some(Location { physical_location: Physical { artifact_location, region } }) => {
                problem.in_file(&without_root(&artifact_location.uri, root)).at(region.start_line, region.start_column)
            }
            None => problem,
        }
    }
}

/// Reads the problem of an evaluation error.
pub(crate) fn of_evaluation(message: &str, root: &Path) -> Vec<Problem> {
    let mut problems = of_text(message, root);
    for problem in &mut problems {
        if problem.message.starts_with(CHECK) {
            problem.message.push_str("; other checks may fail after this one");
        }
    }
    problems
}

/// The problem of an error for terminals: the first position, and all messages.
fn of_text(text: &str, root: &Path) -> Vec<Problem> {
    let text = without_escapes(text);
    let mut found = Problem::new(EVALUATION, "");
    let mut messages: Vec<String> = Vec::new();
    let mut blocks = text.split("-->");
    let before = blocks.next().unwrap_or_default().trim().to_owned();
    for block in blocks {
        let (position, excerpt) = block.split_once('\n').unwrap_or((block, ""));
        if found.file.is_empty()
            && let Some((file, line, column)) = position_in(position)
        {
            found = found.in_file(&without_root(file, root)).at(line, column);
        }
        let message = message_of(excerpt);
        if !message.is_empty() && !messages.contains(&message) {
            messages.push(message);
        }
    }
    let message = if messages.is_empty() { before } else { messages.join(": ") };
    let message = without_root(&message, root);
    vec![Problem { message: if message.is_empty() { "fails without a message".to_owned() } else { message }, ..found }]
}

/// The message below an excerpt, which follows a bar and perhaps markers.
fn message_of(excerpt: &str) -> String {
    let mut lines = Vec::new();
    let mut is_after_source = false;
    for line in excerpt.lines() {
        let Some((before, after)) = line.split_once('|') else {
            if is_after_source && !line.trim().is_empty() {
                // A message of several lines has no bars.
                lines.push(line.trim());
            }
            continue;
        };
        if !before.trim().is_empty() && before.trim().bytes().all(|byte| byte.is_ascii_digit()) {
            is_after_source = true;
            continue;
        }
        if before.trim().is_empty() {
            let text = after.trim().trim_start_matches('^').trim();
            if is_after_source && !text.is_empty() {
                lines.push(text);
            }
        } else if is_after_source {
            lines.push(line.trim());
        }
    }
    if lines.is_empty() && !is_after_source {
        // Without an excerpt, the message follows the position.
        return excerpt.trim().trim_matches('|').trim().to_owned();
    }
    lines.join(" ")
}

/// The file, line and column of `file:line:column`.
fn position_in(text: &str) -> Option<(&str, u32, u32)> {
    let mut parts = text.trim().rsplitn(3, ':');
    let (column, line, file) = (parts.next()?, parts.next()?, parts.next()?);
    Some((file, line.parse().ok()?, column.parse().ok()?))
}

/// Paths from the root, without the root itself.
fn without_root(text: &str, root: &Path) -> String {
    let root = root.to_string_lossy();
    text.replace(&format!("{root}/"), "").replace(root.as_ref(), ".")
}

/// The text without escape sequences of terminals.
pub(crate) fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(char) = rest.next() {
        if char != '\u{1b}' {
            plain.push(char);
            continue;
        }
        if rest.as_str().starts_with('[') {
            rest.next();
            rest.by_ref().find(|char| ('\u{40}'..='\u{7e}').contains(char));
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new("/private/1")
    }

    #[test]
    fn sarif_names_rule_file_line_and_column() {
        let reply = br#"ERROR:{"runs": [{"results": [
            {"ruleId": "E2F04", "level": "error", "message": {"text": "no module a in /private/1/a"}, "locations": [
                {"physicalLocation": {"artifactLocation": {"uri": "/private/1/main.k"},
                                      "region": {"startLine": 2, "startColumn": 5}}}]},
            {"ruleId": "Suggestions", "level": "note", "message": {"text": "try 'kcl mod add a'"}}]}]}"#;
        let expected = Problem::new("E2F04", "no module a in a").in_file("main.k").at(2, 5);
        assert_eq!(of_reply(reply, root()), Some(vec![expected]));
        assert_eq!(of_reply(b"{}", root()), None);
        let plain = of_reply(b"ERROR:Cannot find the kcl file /private/1/x.k", root()).unwrap();
        assert_eq!(plain, [Problem::new(EVALUATION, "Cannot find the kcl file x.k")]);
    }

    #[test]
    fn evaluation_error_has_the_first_position_and_all_messages() {
        let bar = "\u{1b}[1;38;5;12m  |\u{1b}[0m";
        let text = format!(
            "EvaluationError\n \u{1b}[1;38;5;12m-->\u{1b}[0m /private/1/main.k:5:5\n{bar}\n\u{1b}[1;38;5;12m5 |\u{1b}[0m x = A {{a=1}}\n\
             {bar}\u{1b}[1;38;5;9m     ^\u{1b}[0m \u{1b}[1;38;5;9mInstance check failed\u{1b}[0m\n{bar}\n\n \
             \u{1b}[1;38;5;12m-->\u{1b}[0m /private/1/main.k:4:1\n{bar}\n4 |     a > 1, \"more\"\n{bar} Check failed on the condition: more\n{bar}\n"
        );
        let message =
            "Instance check failed: Check failed on the condition: more; other checks may fail after this one";
        assert_eq!(of_evaluation(&text, root()), [Problem::new(EVALUATION, message).in_file("main.k").at(5, 5)]);
        assert_eq!(of_evaluation("stack overflow", root())[0].message, "stack overflow");
        assert_eq!(of_evaluation("", root())[0].message, "fails without a message");
    }
}
