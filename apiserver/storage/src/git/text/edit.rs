//! Edits a YAML text so that it says something else, and touches nothing that says the same as before.
//!
//! A comment above a key or an item of a list, with no empty line between, belongs to it, as does one behind it: it
//! goes where that goes.

use std::{collections::HashSet, ops::Range};

use serde_json::{Map, Value};

use super::{
    outline::{self, Entry, Kind, Node},
    pairs,
};

/// The text after it was made to say `new` where it says `old`. `None` when that is more than this can do; whether it
/// was done is for the caller to check.
pub(super) fn edited(text: &str, old: &Value, new: &Value) -> Option<String> {
    let root = outline::outline(text)?;
    let mut editor = Editor { text, edits: Vec::new() };
    editor.value(&root, old, new)?;
    Some(apply(text, 0..text.len(), editor.edits))
}

/// The text with every alias replaced by the value that it stands for.
pub(super) fn without_aliases(text: &str, value: &Value) -> Option<String> {
    fn expand(node: &Node, value: &Value, edits: &mut Vec<Edit>) -> Option<()> {
        match &node.kind {
            Kind::Alias => edits.push((node.start..node.end, flow(value)?)),
            Kind::Scalar { .. } => {}
            Kind::Sequence(items) => {
                for (index, item) in items.iter().enumerate() {
                    expand(item, value.get(index)?, edits)?;
                }
            }
            Kind::Mapping(entries) => {
                for entry in entries {
                    expand(&entry.value, value.get(&entry.key)?, edits)?;
                }
            }
        }
        Some(())
    }
    let mut edits = Vec::new();
    expand(&outline::outline(text)?, value, &mut edits)?;
    (!edits.is_empty()).then(|| apply(text, 0..text.len(), edits))
}

/// A piece of the text and what stands there instead.
type Edit = (Range<usize>, String);

/// A piece of the text with the edits inside it made; they do not overlap.
fn apply(text: &str, piece: Range<usize>, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|(range, _)| (range.start, range.end));
    let mut out = String::new();
    let mut at = piece.start;
    for (range, new) in edits {
        out.push_str(text.get(at..range.start).unwrap_or_default());
        out.push_str(&new);
        at = range.end;
    }
    out.push_str(text.get(at..piece.end).unwrap_or_default());
    out
}

struct Editor<'t> {
    text: &'t str,
    edits: Vec<Edit>,
}

impl Editor<'_> {
    /// Edits a value in its place. `None` when it has to be written anew with what it is the value of.
    fn value(&mut self, node: &Node, old: &Value, new: &Value) -> Option<()> {
        if old == new {
            return Some(());
        }
        match (&node.kind, old, new) {
            (Kind::Mapping(entries), Value::Object(old), Value::Object(new)) if !node.flow => {
                self.mapping(entries, old, new)
            }
            (Kind::Sequence(items), Value::Array(old), Value::Array(new)) if !node.flow => {
                self.sequence(node, items, old, new)
            }
            (Kind::Scalar { block: true }, _, Value::String(text)) if text.contains('\n') => self.literal(node, text),
            (Kind::Scalar { block: false }, _, Value::String(text)) if text.contains('\n') => None,
            (Kind::Scalar { block: false }, _, Value::Array(_) | Value::Object(_)) => None,
            (Kind::Scalar { block: false }, ..) => {
                self.edits.push((node.start..node.end, flow(new)?));
                Some(())
            }
            _ if node.flow => {
                self.edits.push((node.start..node.end, flow(new)?));
                Some(())
            }
            _ => None,
        }
    }

    fn mapping(&mut self, entries: &[Entry], old: &Map<String, Value>, new: &Map<String, Value>) -> Option<()> {
        let (first, last) = (entries.first()?, entries.last()?);
        if new.is_empty() {
            return None;
        }
        for entry in entries {
            match (old.get(&entry.key), new.get(&entry.key)) {
                (Some(old), Some(new)) => self.entry(entry, old, new)?,
                _ => self.remove(entry),
            }
        }
        let keys: HashSet<&String> = entries.iter().map(|entry| &entry.key).collect();
        let has = |key: &String| keys.contains(key);
        // What a merge key brings cannot be taken away beside it.
        if old.keys().any(|key| !has(key) && !new.contains_key(key)) {
            return None;
        }
        let column = first.start - line_start(self.text, first.start);
        let mut lines = String::new();
        for (key, value) in new.iter().filter(|(key, value)| !has(key) && old.get(*key) != Some(value)) {
            lines.push_str(&block(column, key, value)?);
        }
        if !lines.is_empty() {
            let at = line_end(self.text, last.value.end);
            let newline = if at > 0 && !self.text[..at].ends_with('\n') { "\n" } else { "" };
            self.edits.push((at..at, format!("{newline}{lines}")));
        }
        Some(())
    }

    /// Changes the value of a key.
    fn entry(&mut self, entry: &Entry, old: &Value, new: &Value) -> Option<()> {
        let before = self.edits.len();
        if self.value(&entry.value, old, new).is_some() {
            return Some(());
        }
        self.edits.truncate(before);
        let column = entry.start - line_start(self.text, entry.start);
        let lines = block(column, &entry.key, new)?;
        let lines = lines.strip_prefix(&" ".repeat(column))?;
        let lines = match (self.comment_beside(entry), lines.split_once('\n')) {
            (Some(comment), Some((first, rest))) => format!("{first} {comment}\n{rest}"),
            _ => lines.to_owned(),
        };
        self.edits.push((entry.start..line_end(self.text, entry.value.end), lines));
        Some(())
    }

    /// The comment on the line of a key.
    fn comment_beside(&self, entry: &Entry) -> Option<&str> {
        let line = &self.text[..line_end(self.text, entry.start)];
        let value = &entry.value;
        let from = match value.kind {
            Kind::Scalar { block: true } => self.text[entry.key_end..].find(['|', '>']).map(|at| entry.key_end + at)?,
            _ if value.end <= line.len() => value.end,
            _ => entry.key_end,
        };
        let rest = line.get(from..)?;
        let at = rest.find(" #")?;
        Some(rest[at..].trim())
    }

    /// Takes a key away, with the comments that belong to it.
    fn remove(&mut self, entry: &Entry) {
        let start = line_start(self.text, entry.start);
        let end = line_end(self.text, entry.value.end);
        let beside = &self.text[start..entry.start];
        if !beside.bytes().all(|byte| byte == b' ') {
            // The first key of an item stands behind its dash, which stays.
            let dash = start + beside.trim_end().len();
            self.edits.push((dash..end, "\n".to_owned()));
            return;
        }
        // What stands at the top of a file is about the file.
        let start = self.with_comments(start, beside.len());
        self.edits.push((start..end, String::new()));
    }

    /// Where the comments that are right above a line, and as far to the right, begin; never the top of the file.
    fn with_comments(&self, line: usize, column: usize) -> usize {
        let mut start = line;
        while start > 0 {
            let above = line_start(self.text, start - 1);
            let comment = self.text[above..start].strip_prefix(&" ".repeat(column));
            if !comment.is_some_and(|comment| comment.starts_with('#')) {
                return start;
            }
            start = above;
        }
        line
    }

    /// Changes a list of which each item begins with a dash on a line of its own.
    fn sequence(&mut self, node: &Node, items: &[Node], old: &[Value], new: &[Value]) -> Option<()> {
        if items.len() != old.len() || new.is_empty() {
            return None;
        }
        let first = items.first()?;
        let first_line = line_start(self.text, first.start.min(node.start));
        let column = self.text[first_line..].find(|c: char| c != ' ')?;
        let dash = format!("{}-", " ".repeat(column));
        let is_item = |line: &str| {
            line.strip_prefix(&dash).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\n', '\r']))
        };
        let end = line_end(self.text, node.end);
        let mut starts = Vec::new();
        let mut at = first_line;
        while at < end {
            if is_item(&self.text[at..line_end(self.text, at)]) {
                starts.push(if at == first_line { at } else { self.with_comments(at, column) });
            }
            at = line_end(self.text, at);
        }
        if starts.len() != items.len() {
            return None;
        }
        // So that comments above the first item move with it.
        starts[0] = self.with_comments(first_line, column);
        let ends = starts.iter().skip(1).copied().chain([end]);
        let pieces: Vec<Range<usize>> = starts.iter().zip(ends).map(|(start, end)| *start..end).collect();
        let mut lines = String::new();
        for (new, old_index) in new.iter().zip(pairs(old, new)) {
            let kept = old_index.and_then(|i| self.item(&items[i], &pieces[i], &old[i], new));
            let piece = match kept {
                Some(piece) => piece,
                None => rendered(column, &serde_saphyr::to_string(&[new]).ok()?),
            };
            lines.push_str(&piece);
            if !piece.ends_with('\n') {
                lines.push('\n');
            }
        }
        self.edits.push((starts[0]..end, lines));
        Some(())
    }

    /// The lines of an item after it was changed.
    fn item(&self, node: &Node, piece: &Range<usize>, old: &Value, new: &Value) -> Option<String> {
        let mut editor = Editor { text: self.text, edits: Vec::new() };
        editor.value(node, old, new)?;
        let text = apply(self.text, piece.clone(), editor.edits);
        Some(joined(&text))
    }

    /// Writes a text of many lines in place of another.
    fn literal(&mut self, node: &Node, new: &str) -> Option<()> {
        let header_end = line_end(self.text, node.start);
        let header = self.text[node.start..header_end].trim_end();
        let comment = header.find(" #").map_or("", |at| &header[at..]);
        let content = self.text[header_end..].lines().find(|line| !line.trim().is_empty())?;
        let indent = " ".repeat(content.len() - content.trim_start_matches(' ').len());
        let body = new.trim_end_matches('\n');
        let chomp = match new.len() - body.len() {
            0 => "-",
            1 => "",
            _ => "+",
        };
        let lines: String = new
            .lines()
            .map(|line| if line.is_empty() { "\n".to_owned() } else { format!("{indent}{line}\n") })
            .collect();
        let written = format!("|{chomp}{comment}\n{lines}");
        let says: Map<String, Value> = serde_saphyr::from_str(&format!("text: {written}")).ok()?;
        if says.get("text")?.as_str()? != new {
            return None;
        }
        self.edits.push((node.start..line_end(self.text, node.end), written));
        Some(())
    }
}

/// A dash that lost the key behind it gets the next one, if nothing is between.
fn joined(item: &str) -> String {
    let Some((before, after)) = item.split_once("-\n") else { return item.to_owned() };
    let key = after.trim_start_matches(' ');
    let indent = after.len() - key.len();
    let column = before.len() - line_start(before, before.len());
    let is_alone = before[before.len() - column..].bytes().all(|byte| byte == b' ');
    if !is_alone || key.starts_with('#') || key.starts_with('\n') || indent != column + 2 {
        return item.to_owned();
    }
    format!("{before}- {key}")
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// Where the line after the one that ends a node begins.
fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline + 1)
}

/// A value on one line.
fn flow(value: &Value) -> Option<String> {
    Some(match value {
        Value::Array(items) => {
            let items: Option<Vec<_>> = items.iter().map(flow_item).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                Some(format!("{}: {}", flow_item(&Value::String(key.clone()))?, flow_item(value)?))
            };
            let fields: Option<Vec<_>> = fields.iter().map(field).collect();
            format!("{{{}}}", fields?.join(", "))
        }
        _ => {
            let text = serde_saphyr::to_string(value).ok()?;
            let text = text.trim_end_matches('\n');
            // A text of many lines has a way to be on one.
            if text.contains('\n') { serde_json::to_string(value).ok()? } else { text.to_owned() }
        }
    })
}

/// A value inside brackets or braces, where more characters mean something.
fn flow_item(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if text.contains([',', '[', ']', '{', '}', ':', '#']) => serde_json::to_string(text).ok(),
        _ => flow(value),
    }
}

/// The lines of a key and its value, this far to the right.
fn block(column: usize, key: &str, value: &Value) -> Option<String> {
    let lines = serde_saphyr::to_string(&Map::from_iter([(key.to_owned(), value.clone())])).ok()?;
    Some(rendered(column, &lines))
}

/// Lines this far to the right.
fn rendered(column: usize, lines: &str) -> String {
    let indent = " ".repeat(column);
    lines.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("{indent}{line}\n") }).collect()
}
