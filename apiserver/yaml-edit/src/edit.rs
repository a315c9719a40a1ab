//! Edits a YAML text to a new value, and changes no byte of unchanged parts.
//!
//! A comment directly above a key or an item of a list belongs to it, as does one behind it: it moves and disappears with it.

use std::{collections::HashSet, ops::Range};

use serde_json::{Map, Value};

use super::{
    Pairs,
    outline::{Entry, Kind, Node, outline},
    source::Source,
    write::{Ordered, Style, block, block_item, line},
};

/// The text after it was made to say `new` where it says `old`. `None` when that is more than this can do; whether it
/// was done is for the caller to check. New parts are copied from the source where it has them.
pub(super) fn edited(
    text: &str,
    old: &Value,
    new: &Value,
    pairs: &Pairs<'_>,
    source: Option<Source<'_>>,
) -> Option<String> {
    let root = outline(text)?;
    let mut editor = Editor { text, edits: Vec::new(), path: Vec::new(), pairs };
    editor.value(&root, old, new, source)?;
    Some(apply(text, 0..text.len(), editor.edits))
}

/// A text that says `new`, of which nothing is left but the order of keys.
pub(super) fn rewritten(text: &str, old: &Value, new: &Value) -> Option<String> {
    serde_saphyr::to_string(&Ordered::like(new, &outline(text)?, old)).ok()
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
    /// The keys on the way to the value, `*` for an item of a list.
    path: Vec<String>,
    pairs: &'t Pairs<'t>,
}

impl Editor<'_> {
    /// Edits a value in its place. `None` when it has to be written anew with what it is the value of.
    fn value(&mut self, node: &Node, old: &Value, new: &Value, source: Option<Source<'_>>) -> Option<()> {
        if old == new {
            return Some(());
        }
        if node.flow {
            return self.flow(Style::of(self.text.get(node.start..node.end)?), node, old, new);
        }
        match (&node.kind, old, new) {
            (Kind::Mapping(entries), Value::Object(old), Value::Object(new)) => self.mapping(entries, old, new, source),
            (Kind::Sequence(items), Value::Array(old), Value::Array(new)) => {
                self.sequence((node, items), old, new, source)
            }
            (Kind::Scalar { block: true }, _, Value::String(text)) if text.contains('\n') => self.literal(node, text),
            (Kind::Scalar { block: false }, _, Value::String(text)) if text.contains('\n') => None,
            (Kind::Scalar { block: false }, _, Value::Array(_) | Value::Object(_)) => None,
            (Kind::Scalar { block: false }, ..) => {
                let space = if node.is_absent() { " " } else { "" };
                let copied = source.and_then(|source| source.scalar(new));
                let written = copied.map_or_else(|| line(new), |copied| Some(copied.to_owned()))?;
                let is_last = self.text[node.end..line_end(self.text, node.end)].trim().is_empty();
                let comment = source.filter(|_| is_last).and_then(|source| source.comment_behind(new));
                let comment = comment.map(|comment| format!(" {comment}")).unwrap_or_default();
                self.edits.push((node.start..node.end, format!("{space}{written}{comment}")));
                Some(())
            }
            _ => None,
        }
    }

    /// Edits a value in brackets or braces. A map that loses a key, and a list that gets or loses an item, is written anew,
    /// without its comments.
    fn flow(&mut self, style: Style, node: &Node, old: &Value, new: &Value) -> Option<()> {
        match (&node.kind, old, new) {
            _ if old == new => {}
            (Kind::Mapping(entries), Value::Object(old), Value::Object(new))
                if !entries.is_empty()
                    && entries.len() == old.len()
                    && (old.len() == new.len() || self.text.get(node.start..node.end)?.starts_with('{'))
                    && entries
                        .iter()
                        .all(|it| old.contains_key(&it.key) && new.contains_key(&it.key) && !it.value.is_absent()) =>
            {
                for entry in entries {
                    self.flow(style, &entry.value, old.get(&entry.key)?, new.get(&entry.key)?)?;
                }
                let mut added = String::new();
                for (key, value) in new.iter().filter(|(key, _)| !old.contains_key(*key)) {
                    added.push_str(&format!(", {}", style.field(key, Ordered::new(value))?));
                }
                let end = entries.last()?.value.end;
                if !added.is_empty() {
                    self.edits.push((end..end, added));
                }
            }
            (Kind::Sequence(items), Value::Array(old), Value::Array(new))
                if items.len() == old.len() && old.len() == new.len() =>
            {
                for ((item, old), new) in items.iter().zip(old).zip(new) {
                    self.flow(style, item, old, new)?;
                }
            }
            _ => self.edits.push((node.start..node.end, style.item(Ordered::like(new, node, old))?)),
        }
        Some(())
    }

    fn mapping(
        &mut self,
        entries: &[Entry],
        old: &Map<String, Value>,
        new: &Map<String, Value>,
        source: Option<Source<'_>>,
    ) -> Option<()> {
        let (first, last) = (entries.first()?, entries.last()?);
        if new.is_empty() {
            return None;
        }
        for entry in entries {
            match (old.get(&entry.key), new.get(&entry.key)) {
                (Some(old), Some(new)) => self.entry(entry, old, new, source)?,
                (Some(_), None) => self.remove(entry),
                // A merge key.
                (None, _) => {}
            }
        }
        let column = first.start - line_start(self.text, first.start);
        let mut lines = String::new();
        let mut added = added(entries, old, new)?;
        added.sort_by_key(|(key, _)| source.and_then(|source| source.position(key)).unwrap_or(usize::MAX));
        for (key, value) in added {
            let copied = source.and_then(|source| source.entry_lines(key, value, column));
            lines.push_str(&copied.or_else(|| block(column, key, Ordered::new(value)))?);
        }
        if !lines.is_empty() {
            let at = line_end(self.text, last.value.end);
            let newline = if at > 0 && !self.text[..at].ends_with('\n') { "\n" } else { "" };
            self.edits.push((at..at, format!("{newline}{lines}")));
        }
        Some(())
    }

    /// Changes the value of a key.
    fn entry(&mut self, entry: &Entry, old: &Value, new: &Value, source: Option<Source<'_>>) -> Option<()> {
        let before = self.edits.len();
        self.path.push(entry.key.clone());
        let done = self.value(&entry.value, old, new, source.and_then(|source| source.field(&entry.key)));
        self.path.pop();
        if done.is_some() {
            return Some(());
        }
        self.edits.truncate(before);
        let column = entry.start - line_start(self.text, entry.start);
        let lines = block(column, &entry.key, Ordered::like(new, &entry.value, old))?;
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
        let start = with_comments(self.text, start, beside.len());
        self.edits.push((start..end, String::new()));
    }

    /// Changes a list of which each item begins with a dash on a line of its own.
    fn sequence(
        &mut self,
        (node, items): (&Node, &[Node]),
        old: &[Value],
        new: &[Value],
        source: Option<Source<'_>>,
    ) -> Option<()> {
        if items.len() != old.len() || new.is_empty() {
            return None;
        }
        let (column, pieces) = item_lines(self.text, node, items)?;
        let mut lines = String::new();
        let sources = source.and_then(Source::items).unwrap_or_default();
        let source_pairs = (self.pairs)(&self.path, sources, new);
        for ((new, old_index), source_index) in new.iter().zip((self.pairs)(&self.path, old, new)).zip(source_pairs) {
            let source_item = source.zip(source_index).and_then(|(source, index)| source.item(index));
            let piece = match old_index {
                Some(i) => self
                    .item((&items[i], &pieces[i]), &old[i], new, source_item)
                    .or_else(|| block_item(column, Ordered::like(new, &items[i], &old[i])))?,
                None => {
                    let copied =
                        source.zip(source_index).and_then(|(source, index)| source.item_lines(index, new, column));
                    copied.or_else(|| block_item(column, Ordered::new(new)))?
                }
            };
            lines.push_str(&piece);
            if !piece.ends_with('\n') {
                lines.push('\n');
            }
        }
        self.edits.push((pieces.first()?.start..pieces.last()?.end, lines));
        Some(())
    }

    /// The lines of an item after it was changed.
    fn item(
        &self,
        (node, piece): (&Node, &Range<usize>),
        old: &Value,
        new: &Value,
        source: Option<Source<'_>>,
    ) -> Option<String> {
        let path = self.path.iter().cloned().chain(["*".to_owned()]).collect();
        let mut editor = Editor { text: self.text, edits: Vec::new(), path, pairs: self.pairs };
        editor.value(node, old, new, source)?;
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

/// The keys that are to be put beside those in the text. `None` when one would have to go that a merge key brings.
fn added<'v>(
    entries: &[Entry],
    old: &Map<String, Value>,
    new: &'v Map<String, Value>,
) -> Option<Vec<(&'v String, &'v Value)>> {
    let keys: HashSet<&String> = entries.iter().map(|entry| &entry.key).collect();
    if old.keys().any(|key| !keys.contains(key) && !new.contains_key(key)) {
        return None;
    }
    Some(new.iter().filter(|(key, value)| !keys.contains(key) && old.get(*key) != Some(value)).collect())
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

/// Where the comments that are right above a line, and as far to the right, begin; never the top of the file.
pub(super) fn with_comments(text: &str, line: usize, column: usize) -> usize {
    let mut start = line;
    while start > 0 {
        let above = line_start(text, start - 1);
        let comment = text[above..start].strip_prefix(&" ".repeat(column));
        if !comment.is_some_and(|comment| comment.starts_with('#')) {
            return start;
        }
        start = above;
    }
    line
}

/// The column of the dashes of a list, and the lines of each item with the comments above it. `None` unless each item begins
/// with a dash on a line of its own.
pub(super) fn item_lines(text: &str, node: &Node, items: &[Node]) -> Option<(usize, Vec<Range<usize>>)> {
    let first = items.first()?;
    let first_line = line_start(text, first.start.min(node.start));
    let column = text[first_line..].find(|c: char| c != ' ')?;
    let dash = format!("{}-", " ".repeat(column));
    let is_item = |line: &str| {
        line.strip_prefix(&dash).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\n', '\r']))
    };
    let end = line_end(text, node.end);
    let mut starts = Vec::new();
    let mut at = first_line;
    while at < end {
        if is_item(&text[at..line_end(text, at)]) {
            starts.push(if at == first_line { at } else { with_comments(text, at, column) });
        }
        at = line_end(text, at);
    }
    if starts.len() != items.len() {
        return None;
    }
    // So that comments above the first item move with it.
    starts[0] = with_comments(text, first_line, column);
    let ends = starts.iter().skip(1).copied().chain([end]);
    Some((column, starts.iter().zip(ends).map(|(start, end)| *start..end).collect()))
}

pub(super) fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// Where the line after the one that ends a node begins.
pub(super) fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline + 1)
}
