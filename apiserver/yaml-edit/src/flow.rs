//! Changes collections in brackets and braces in their position.
//!
//! A changed value replaces the old one. A new one is written behind the last of the collection, with its indentation. A removed
//! key or item takes along its comma, the comment behind it, and the comments on the lines right above it.

use std::{borrow::Cow, mem};

use serde_json::{Map, Value};

use super::{
    edit::{Edit, added, apply, line_start},
    outline::{Entry, Kind, Node, skip},
    pairs,
    write::{Ordered, Style},
};

/// What makes a collection say `new` where it says `old`.
pub(super) fn edits(text: &str, node: &Node, old: &Value, new: &Value) -> Option<Vec<Edit>> {
    let inside = text.get(node.start..node.end)?;
    // Nobody ends lines with this alone any more.
    if inside.match_indices('\r').any(|(at, _)| !inside[at + 1..].starts_with('\n')) {
        return None;
    }
    let newline = if inside.contains("\r\n") { "\r\n" } else { "\n" };
    let mut editor = Editor { text, style: Style::of(inside), newline, edits: Vec::new() };
    editor.value(node, old, new)?;
    Some(editor.edits)
}

struct Editor<'t> {
    text: &'t str,
    style: Style,
    newline: &'static str,
    edits: Vec<Edit>,
}

/// What comes next in a collection.
enum Step {
    /// What is in the text, and there already.
    Stays(usize),
    Put(Piece),
}

/// A key or an item that is put somewhere.
struct Piece {
    /// Up to its comma, the comments above it included.
    head: String,
    /// The comments behind it.
    tail: String,
    /// Whether any comment is its own, so that it needs its own line.
    alone: bool,
}

impl Piece {
    fn new(head: String) -> Self {
        Self { head, tail: String::new(), alone: false }
    }
}

impl Editor<'_> {
    fn value(&mut self, node: &Node, old: &Value, new: &Value) -> Option<()> {
        if old == new {
            return Some(());
        }
        let before = self.edits.len();
        let done = match (&node.kind, old, new) {
            (Kind::Mapping(entries), Value::Object(old), Value::Object(new)) => self.mapping(node, entries, old, new),
            (Kind::Sequence(items), Value::Array(old), Value::Array(new)) => self.sequence(node, items, old, new),
            _ => None,
        };
        if done.is_none() {
            self.edits.truncate(before);
            let written = self.style.item(Ordered::like(new, node, old))?;
            let space = if node.is_absent() { " " } else { "" };
            self.edits.push((node.start..node.end, format!("{space}{written}")));
        }
        Some(())
    }

    fn mapping(
        &mut self,
        node: &Node,
        entries: &[Entry],
        old: &Map<String, Value>,
        new: &Map<String, Value>,
    ) -> Option<()> {
        // A pair in a list may do without braces.
        if !self.text[node.start..].starts_with('{') {
            let ([entry], 1, 1) = (entries, old.len(), new.len()) else { return None };
            return self.entry(entry, old.get(&entry.key)?, new.get(&entry.key)?);
        }
        let layout = Layout::of(self.text, node, entries.iter().map(|entry| (entry.start, entry.value.end)))?;
        let mut steps = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            match (old.get(&entry.key), new.get(&entry.key)) {
                (Some(_), None) => continue,
                (Some(old), Some(new)) => self.entry(entry, old, new)?,
                // A merge key.
                (None, _) => {}
            }
            steps.push(Step::Stays(index));
        }
        for (key, value) in added(entries, old, new)? {
            steps.push(Step::Put(Piece::new(self.style.field(key, Ordered::new(value))?)));
        }
        self.arrange(&layout, steps);
        Some(())
    }

    fn entry(&mut self, entry: &Entry, old: &Value, new: &Value) -> Option<()> {
        // A key may be without a value, and without a colon.
        if entry.value.end == entry.key_end && old != new {
            let written = self.style.item(Ordered::new(new))?;
            self.edits.push((entry.key_end..entry.key_end, format!(": {written}")));
            return Some(());
        }
        self.value(&entry.value, old, new)
    }

    fn sequence(&mut self, node: &Node, items: &[Node], old: &[Value], new: &[Value]) -> Option<()> {
        if items.len() != old.len() {
            return None;
        }
        let layout = Layout::of(self.text, node, items.iter().map(|item| (item.start, item.end)))?;
        let pairs = pairs(old, new);
        let mut staying = vec![false; items.len()];
        for index in rising(&pairs) {
            staying[index] = true;
        }
        let (mut steps, mut next) = (Vec::new(), 0);
        for (value, pair) in new.iter().zip(pairs) {
            if let Some(index) = pair.filter(|index| staying[*index]) {
                self.value(&items[index], &old[index], value)?;
                steps.push(Step::Stays(index));
                next = index + 1;
                continue;
            }
            let piece = match pair {
                Some(index) => self.moved(&layout.slots[index], &items[index], &old[index], value)?,
                None => Piece::new(self.style.item(Ordered::new(value))?),
            };
            // It takes the place of one that has gone, unless comments go with that.
            let mut free = None;
            while !piece.alone && free.is_none() && next < items.len() && !staying[next] {
                free = (!layout.slots[next].has_comments).then_some(next);
                next += 1;
            }
            steps.push(match free {
                Some(index) => {
                    let slot = &layout.slots[index];
                    self.edits.push((slot.start..slot.end, piece.head));
                    Step::Stays(index)
                }
                None => Step::Put(piece),
            });
        }
        self.arrange(&layout, steps);
        Some(())
    }

    /// An item that comes to be elsewhere among the others.
    fn moved(&self, slot: &Slot, node: &Node, old: &Value, new: &Value) -> Option<Piece> {
        let mut editor = Self { edits: Vec::new(), ..*self };
        editor.value(node, old, new)?;
        let head = apply(self.text, slot.own..slot.end, editor.edits);
        let tail = match slot.comma {
            Some(comma) => [&self.text[slot.end..comma], &self.text[comma + 1..slot.behind]].concat(),
            None => self.text[slot.end..slot.behind].to_owned(),
        };
        Some(Piece { head, tail: tail.trim_end_matches(WHITE).to_owned(), alone: slot.has_comments })
    }

    /// Takes out what is in no step, and puts in what is not in the text.
    fn arrange(&mut self, layout: &Layout<'_>, steps: Vec<Step>) {
        let slots = &layout.slots;
        let mut stays = vec![false; slots.len()];
        for step in &steps {
            if let Step::Stays(index) = step {
                stays[*index] = true;
            }
        }
        let ends_in_comment = matches!(steps.last(), Some(Step::Put(piece)) if !piece.tail.is_empty());
        let removed = layout.removed(&stays, ends_in_comment);
        if steps.is_empty() {
            let rest = apply(self.text, layout.open..layout.close, removed);
            let rest = if rest.trim_matches(WHITE).is_empty() { String::new() } else { rest };
            self.edits.push((layout.open..layout.close, rest));
            return;
        }
        let has_trailing_comma = slots.last().is_some_and(|slot| slot.comma.is_some());
        let first = stays.iter().position(|stays| *stays);
        let (count, mut after, mut pieces) = (steps.len(), None, Vec::new());
        for (index, step) in steps.into_iter().enumerate() {
            let has_comma = index + 1 < count || has_trailing_comma;
            match step {
                Step::Put(mut piece) => {
                    if has_comma {
                        piece.head.push(',');
                    }
                    pieces.push(piece);
                }
                Step::Stays(index) => {
                    self.put(layout, after, first, &mem::take(&mut pieces));
                    match slots[index].comma {
                        None if has_comma => self.edits.push((slots[index].end..slots[index].end, ",".to_owned())),
                        Some(comma) if !has_comma => self.edits.push((comma..comma + 1, String::new())),
                        _ => {}
                    }
                    after = Some(index);
                }
            }
        }
        self.put(layout, after, first, &pieces);
        self.edits.extend(removed);
    }

    /// Puts pieces behind a slot that stays, or before the first one.
    fn put(&mut self, layout: &Layout<'_>, after: Option<usize>, first: Option<usize>, pieces: &[Piece]) {
        let Some(last) = pieces.last() else { return };
        let index = after.or(first).unwrap_or(0);
        let Some(slot) = layout.slots.get(index) else {
            self.edits.push(layout.filled(self.newline, pieces));
            return;
        };
        let is_last = index + 1 == layout.slots.len();
        let has_own_line = slot.begins && (slot.ends || is_last);
        let needs_line = pieces.iter().any(|piece| piece.alone) || after.is_some() && slot.has_comment_behind;
        let is_none_left = after.or(first).is_none();
        if !(has_own_line || needs_line || is_none_left && slot.begins) {
            let gap = layout.gap;
            let texts: Vec<&str> = pieces.iter().map(|piece| piece.head.as_str()).collect();
            let texts = texts.join(gap);
            self.edits.push(match after {
                Some(_) => {
                    let at = slot.comma.map_or(slot.end, |comma| comma + 1);
                    (at..at, format!("{gap}{texts}"))
                }
                None if is_none_left => (slot.own..slot.own, texts),
                None => (slot.start..slot.start, format!("{texts}{gap}")),
            });
            return;
        }
        let line_break = format!("{}{}", self.newline, layout.indent(slot));
        let mut lines: String =
            pieces.iter().map(|piece| format!("{line_break}{}{}", piece.head, piece.tail)).collect();
        let at = match after {
            None if slot.begins => layout.line_break(slot),
            None => {
                lines.push_str(&line_break);
                slot.start
            }
            Some(_) => {
                // A bracket may follow on the line, unless it would come to be in a comment.
                if !slot.ends && (!is_last || !last.tail.is_empty()) {
                    lines.push_str(&line_break);
                }
                slot.behind
            }
        };
        self.edits.push((at..at, lines));
    }
}

/// What YAML takes for white space.
const WHITE: [char; 4] = [' ', '\t', '\r', '\n'];

/// How a collection is spread over the text.
struct Layout<'t> {
    text: &'t str,
    /// Behind the bracket that opens it.
    open: usize,
    /// Where the bracket that closes it is.
    close: usize,
    slots: Vec<Slot>,
    /// What is between a comma and what follows it on a line.
    gap: &'t str,
    /// What is before one that begins a line.
    indent: Option<&'t str>,
}

/// Where a key with its value or an item is, and what belongs to it.
struct Slot {
    /// Where the comments right above it begin; where it begins itself if there are none.
    own: usize,
    start: usize,
    end: usize,
    comma: Option<usize>,
    /// Behind its comma and the comment beside it.
    behind: usize,
    /// Whether nothing is before it on its line.
    begins: bool,
    /// Whether nothing is behind it on its line.
    ends: bool,
    has_comment_behind: bool,
    /// Whether any comment belongs to it, besides those within it.
    has_comments: bool,
}

impl<'t> Layout<'t> {
    /// The layout of a node with these keys or items. `None` when something else is between them.
    fn of(text: &'t str, node: &Node, places: impl Iterator<Item = (usize, usize)>) -> Option<Self> {
        let (open, close) = (node.start + 1, node.end.checked_sub(1)?);
        let mut slots: Vec<Slot> = Vec::new();
        // A comment behind the bracket is about all.
        let mut from = beside(text, open);
        for (inside, end) in places {
            let (start, next) = (skip(text, from), skip(text, end));
            let has_comma = text[next..].starts_with(',');
            let is_apart = slots.last().is_none_or(|slot| slot.comma.is_some());
            if !is_apart || start > inside || start >= end {
                return None;
            }
            let behind = beside(text, if has_comma { next + 1 } else { end });
            let lead = &text[from..start];
            let own = start - own_comments(lead);
            let has_comment_behind = text[end..behind].contains('#');
            slots.push(Slot {
                own,
                start,
                end,
                comma: has_comma.then_some(next),
                behind,
                begins: lead.contains('\n'),
                ends: text[behind..].is_empty() || text[behind..].starts_with(['\r', '\n']),
                has_comment_behind,
                has_comments: has_comment_behind || own < start,
            });
            from = behind;
        }
        if skip(text, from) != close {
            return None;
        }
        let gap = slots.windows(2).rfind(|pair| !pair[1].begins).map(|pair| &text[pair[0].behind..pair[1].start]);
        let indent = slots.iter().rfind(|slot| slot.begins).map(|slot| &text[line_start(text, slot.start)..slot.start]);
        Some(Self { text, open, close, slots, gap: gap.unwrap_or(" "), indent })
    }

    /// What is before a slot, or would be, when it begins a line.
    fn indent(&self, slot: &Slot) -> Cow<'t, str> {
        match self.indent {
            _ if slot.begins => self.text[line_start(self.text, slot.start)..slot.start].into(),
            Some(indent) => indent.into(),
            None => self.indent_within(slot.start).into(),
        }
    }

    /// What is before lines that are further to the right than the one of a place.
    fn indent_within(&self, at: usize) -> String {
        let line = &self.text[line_start(self.text, at)..at];
        let width = line.len() - line.trim_start_matches([' ', '\t', '-']).len();
        " ".repeat(width + 2)
    }

    /// Where the line before a slot and its comments ends.
    fn line_break(&self, slot: &Slot) -> usize {
        let line = line_start(self.text, slot.own);
        let before = self.text[..line].strip_suffix('\n').unwrap_or(&self.text[..line]);
        before.strip_suffix('\r').unwrap_or(before).len()
    }

    /// What puts pieces into a collection without any.
    fn filled(&self, newline: &str, pieces: &[Piece]) -> Edit {
        let inside = &self.text[self.open..self.close];
        if inside.contains('\n') {
            let indent = self.indent_within(self.close);
            let at = self.open + inside.trim_end_matches(WHITE).len();
            return (at..at, pieces.iter().map(|piece| format!("{newline}{indent}{}", piece.head)).collect());
        }
        let pad = if inside.is_empty() { "" } else { " " };
        let texts: Vec<&str> = pieces.iter().map(|piece| piece.head.as_str()).collect();
        (self.open..self.close, format!("{pad}{}{pad}", texts.join(" ")))
    }

    /// What takes out the slots that do not stay. What is put behind the others may end in a comment.
    fn removed(&self, stays: &[bool], ends_in_comment: bool) -> Vec<Edit> {
        let slots = &self.slots;
        let mut removed = Vec::new();
        let mut first = 0;
        while first < slots.len() {
            let mut end = first + 1;
            if !stays[first] {
                // Those on one line go together.
                end += (end..slots.len()).take_while(|next| !stays[*next] && !slots[*next].begins).count();
                let (from, to) = self.run(first, end, stays, ends_in_comment);
                removed.push((from..to, String::new()));
            }
            first = end;
        }
        removed
    }

    /// The place of slots on one line, up to `end`, with what has to go with them.
    fn run(&self, first: usize, end: usize, stays: &[bool], ends_in_comment: bool) -> (usize, usize) {
        let (one, last, next) = (&self.slots[first], &self.slots[end - 1], self.slots.get(end));
        if one.begins {
            let line_break = self.line_break(one);
            // The bracket would come to be in a comment.
            let is_needed = || {
                let staying = stays[..first].iter().rposition(|stays| *stays);
                let from = staying.map_or(self.open, |index| self.slots[index].end);
                ends_in_comment || self.text[from..line_break].contains('#')
            };
            return match next {
                _ if last.ends => (line_break, last.behind),
                Some(next) => (one.own, next.start),
                None if is_needed() => (one.own, last.behind),
                None => (line_break, last.behind),
            };
        }
        let before = first.checked_sub(1).map(|before| &self.slots[before]);
        match (before, next) {
            (Some(before), _) => (before.behind, last.behind),
            (None, Some(next)) if !last.ends => (one.own, next.start),
            // Something else comes to be there.
            (None, _) if !stays.contains(&true) => (one.own, last.behind),
            (None, _) => (self.open, last.behind),
        }
    }
}

/// How much of the end of what is between two slots are comments that belong to the second.
fn own_comments(lead: &str) -> usize {
    let mut lines = lead.rsplit('\n');
    let mut width = lines.next().unwrap_or_default().len();
    let mut own = 0;
    for line in lines {
        let Some(at) = line.find('#').filter(|_| width + 1 + line.len() < lead.len()) else { break };
        own = width + 1 + line.len() - at;
        width += 1 + line.len();
    }
    own
}

/// Behind the rest of a line, if that is nothing but white space and a comment.
fn beside(text: &str, at: usize) -> usize {
    let rest = text[at..].trim_start_matches([' ', '\t']);
    let blank = text.len() - rest.len();
    if rest.starts_with('#') {
        blank + rest.find(['\r', '\n']).unwrap_or(rest.len())
    } else if rest.is_empty() || rest.starts_with(['\r', '\n']) {
        blank
    } else {
        at
    }
}

/// Most of these numbers, such that each is greater than the ones before it.
fn rising(numbers: &[Option<usize>]) -> Vec<usize> {
    // The end of the best choice of each length, and what comes before each number.
    let (mut ends, mut before): (Vec<usize>, Vec<Option<usize>>) = (Vec::new(), vec![None; numbers.len()]);
    for (index, number) in numbers.iter().enumerate().filter(|(_, number)| number.is_some()) {
        let length = ends.partition_point(|end| numbers[*end] < *number);
        before[index] = length.checked_sub(1).map(|shorter| ends[shorter]);
        match ends.get_mut(length) {
            Some(end) => *end = index,
            None => ends.push(index),
        }
    }
    let mut at = ends.last().copied();
    let mut found = Vec::new();
    while let Some(index) = at {
        found.extend(numbers[index]);
        at = before[index];
    }
    found
}
