//! The text of items in a list: where it is, and which comments a function added to it.

use std::collections::BTreeSet;

use serde_json::Value;
use stoa_yaml::Outline;
use stoa_yaml_edit::{SourceNode, Step, nodes, with_comments};

use crate::{resources::Resource, text};

/// A text with a prefix before its first line that is no comment, and as many spaces before the others.
pub(super) fn indented(prefix: &str, text: &str) -> String {
    let spaces = " ".repeat(prefix.len());
    let mut is_first = true;
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for line in text.lines() {
        let is_comment = line.starts_with('#') || line.trim().is_empty();
        match (is_first, is_comment) {
            (true, true) => {}
            (true, false) => {
                out.push_str(prefix);
                is_first = false;
            }
            (false, _) if line.is_empty() => {}
            (false, _) => out.push_str(&spaces),
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// The text of each item of a list that has its items on lines of their own. A text may still be wrong, as where a comment
/// of the next item is in it.
pub(super) fn sources(text: &str, list: &Outline) -> Vec<Option<String>> {
    let Some((_, Outline::List(items))) = list.key("items") else { return Vec::new() };
    let Outline::Map(fields) = list else { return Vec::new() };
    let lines: Vec<&str> = text.lines().collect();
    let end_of = |start: u32| {
        let after = fields.iter().map(|(_, line, _)| *line).filter(|line| *line > start).min();
        after.map_or(lines.len(), |line| line as usize - 1)
    };
    let mut found = Vec::new();
    for (position, (line, _)) in items.iter().enumerate() {
        let start = (*line as usize).saturating_sub(1);
        let end = match items.get(position + 1) {
            Some((next, _)) => (*next as usize).saturating_sub(1),
            None => end_of(*line),
        };
        found.push(lines.get(start..end).and_then(dedented));
    }
    found
}

/// The lines of an item without its dash and its indentation. Comments that are further to the left belong to others.
fn dedented(lines: &[&str]) -> Option<String> {
    let (first, rest) = lines.split_first()?;
    let column = match first.trim_start().strip_prefix("- ") {
        Some(content) => first.len() - content.trim_start().len(),
        None => first.len() - first.trim_start().len(),
    };
    let mut out = format!("{}\n", &first[column..]);
    for line in rest {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        if spaces >= column {
            out.push_str(&line[column..]);
        } else if line.trim_start().starts_with('#') || line.trim() == "-" {
            break;
        } else if !line.trim().is_empty() {
            return None;
        }
        out.push('\n');
    }
    Some(out)
}

/// An object with the value of an answer's item, and with the comments that its text has beyond those of the request.
pub(super) fn updated(before: &Resource, value: Value, text: Option<&str>) -> Resource {
    let mut after = before.clone();
    after.value = value;
    let Some(text) = text.filter(|text| text.contains('#')) else { return after };
    let own = before.text();
    if let Some(commented) = with_new_comments(&own, text, &after)
        && text::read(&commented).as_ref() == Ok(&after.value)
    {
        let set = after.set_text(commented);
        debug_assert!(set.is_ok(), "the text was read before");
    }
    after
}

/// The text of an object with the comments of an answer that the text of the request does not have anywhere.
fn with_new_comments(own: &str, answer: &str, after: &Resource) -> Option<String> {
    let known: BTreeSet<&str> =
        nodes(own)?.into_iter().filter_map(|node| own.get(node.comment?)).map(str::trim).collect();
    let found = nodes(answer)?;
    let comment = |node: &SourceNode| answer.get(node.comment.clone()?).map(str::trim);
    let beside = found.iter().filter_map(|node| Some((node.path.as_slice(), comment(node)?)));
    let new: Vec<(&[Step], &str)> = beside.filter(|(_, comment)| !known.contains(comment)).collect();
    if new.is_empty() {
        return None;
    }
    with_comments(&after.text(), &new).map(|(text, _)| text)
}
