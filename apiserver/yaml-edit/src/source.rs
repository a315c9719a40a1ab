//! Copies new parts from another text, with their comments.

use serde_json::Value;

use super::edit::{item_lines, line_end, line_start, with_comments};
use super::outline::{Entry, Kind, Node};

/// A value of another text, and where it is in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'s> {
    pub text: &'s str,
    pub node: &'s Node,
    pub value: &'s Value,
}

impl<'s> Source<'s> {
    /// The value of a field.
    pub(super) fn field(self, key: &str) -> Option<Self> {
        let value = self.value.get(key)?;
        Some(Self { node: &self.entry(key)?.value, value, ..self })
    }

    /// The position of a field in the text.
    pub(super) fn position(self, key: &str) -> Option<usize> {
        let Kind::Mapping(entries) = &self.node.kind else { return None };
        entries.iter().position(|entry| entry.key == key)
    }

    fn entry(self, key: &str) -> Option<&'s Entry> {
        let Kind::Mapping(entries) = &self.node.kind else { return None };
        entries.iter().find(|entry| entry.key == key)
    }

    /// The values of the items.
    pub(super) fn items(self) -> Option<&'s [Value]> {
        self.value.as_array().map(Vec::as_slice)
    }

    /// The value of an item.
    pub(super) fn item(self, index: usize) -> Option<Self> {
        let Kind::Sequence(items) = &self.node.kind else { return None };
        Some(Self { node: items.get(index)?, value: self.value.get(index)?, ..self })
    }

    /// The text of this value, if it is this scalar on one line.
    pub(super) fn scalar(self, value: &Value) -> Option<&'s str> {
        let is_plain = matches!(self.node.kind, Kind::Scalar { block: false }) && !self.node.is_absent();
        let text = self.text.get(self.node.start..self.node.end)?;
        (is_plain && self.value == value && !text.contains('\n')).then_some(text)
    }

    /// The comment on the line of this value, if it is this scalar.
    pub(super) fn comment_behind(self, value: &Value) -> Option<&'s str> {
        self.scalar(value)?;
        let rest = self.text.get(self.node.end..line_end(self.text, self.node.end))?.trim();
        rest.starts_with('#').then_some(rest)
    }

    /// The lines of a field of this value, moved to a column.
    pub(super) fn entry_lines(self, key: &str, value: &Value, column: usize) -> Option<String> {
        if self.node.flow || self.value.get(key) != Some(value) {
            return None;
        }
        let entry = self.entry(key)?;
        let line = line_start(self.text, entry.start);
        let own = entry.start - line;
        let is_first_of_line = self.text[line..entry.start].bytes().all(|byte| byte == b' ');
        let above = if is_first_of_line { with_comments(self.text, line, own) } else { line };
        let comments = self.text.get(above..line)?;
        let lines = self.text.get(entry.start..line_end(self.text, entry.value.end))?;
        moved(&format!("{comments}{}{lines}", " ".repeat(own)), own, column)
    }

    /// The lines of an item of this value, moved to a column.
    pub(super) fn item_lines(self, index: usize, value: &Value, column: usize) -> Option<String> {
        let Kind::Sequence(items) = &self.node.kind else { return None };
        if self.node.flow || self.value.get(index) != Some(value) {
            return None;
        }
        let (own, pieces) = item_lines(self.text, self.node, items)?;
        moved(self.text.get(pieces.get(index)?.clone())?, own, column)
    }
}

/// The lines, indented by another width; `None` when a line is indented less than them all.
fn moved(lines: &str, from: usize, to: usize) -> Option<String> {
    let (from, to) = (" ".repeat(from), " ".repeat(to));
    let line = |line: &str| match line.strip_prefix(&from) {
        Some(rest) => Some(format!("{to}{rest}\n")),
        None => line.trim().is_empty().then(|| "\n".to_owned()),
    };
    lines.lines().map(line).collect()
}
