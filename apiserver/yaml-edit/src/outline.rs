//! The positions of mappings, keys and values in a YAML text.

use serde_saphyr::granit_parser::{self, Event, Parser, ScalarStyle, Span, StructureStyle};

/// A value and where it is, in bytes.
#[derive(Debug)]
pub(super) struct Node {
    pub kind: Kind,
    /// Whether it is in brackets or braces.
    pub flow: bool,
    pub start: usize,
    /// Behind its last character; comments that follow are not in it.
    pub end: usize,
}

impl Node {
    /// Whether nothing is there, which is null.
    pub(super) fn is_absent(&self) -> bool {
        self.start == self.end
    }

    /// Has it where nothing is.
    fn put(&mut self, at: usize) {
        (self.start, self.end) = (at, at);
    }
}

#[derive(Debug)]
pub(super) enum Kind {
    Scalar {
        /// Whether it is on lines of its own, after `|` or `>`.
        block: bool,
    },
    Sequence(Vec<Node>),
    Mapping(Vec<Entry>),
    /// What stands for an anchored value.
    Alias,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub key: String,
    /// Where the key begins.
    pub start: usize,
    /// Behind its last character.
    pub key_end: usize,
    /// When it is absent it is behind the colon, or behind the key if there is none.
    pub value: Node,
}

/// The outline of a text with one document. `None` when it is no YAML, or has keys that are no text, which nobody should
/// edit without understanding them.
pub(super) fn outline(text: &str) -> Option<Node> {
    let mut events = Vec::new();
    // The parser keeps only so many comments in mind.
    let options = granit_parser::options! { emit_comments: false };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.ok()?;
        // What is left out, the bounds of the document, is no node.
        if matches!(
            event,
            Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..)
                | Event::MappingEnd
                | Event::Alias(_)
        ) {
            events.push((event, span));
        }
    }
    let mut events = events.into_iter();
    let node = node(text, &mut events)?;
    events.next().is_none().then_some(node)
}

fn node<'t>(text: &str, events: &mut impl Iterator<Item = (Event<'t>, Span)>) -> Option<Node> {
    let (event, span) = events.next()?;
    value(text, event, span, events)
}

fn value<'t>(
    text: &str,
    event: Event<'t>,
    span: Span,
    events: &mut impl Iterator<Item = (Event<'t>, Span)>,
) -> Option<Node> {
    let start = span.start.byte_offset()?;
    match event {
        Event::Alias(_) => {
            let end = trimmed(text, start, span.end.byte_offset()?)?;
            Some(Node { kind: Kind::Alias, flow: false, start, end })
        }
        Event::Scalar(_, style, ..) => {
            let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
            // The parser finds a block where its text is; it begins with its mark.
            let start = if block { text.get(..start)?.rfind(['|', '>'])? } else { start };
            let end = trimmed(text, start, span.end.byte_offset()?)?;
            Some(Node { kind: Kind::Scalar { block }, flow: false, start, end })
        }
        Event::SequenceStart(style, ..) => {
            let (mut items, mut last) = (Vec::new(), start);
            loop {
                match events.next()? {
                    (Event::SequenceEnd, span) => {
                        let (flow, end) = closed(style, span, last)?;
                        return Some(Node { kind: Kind::Sequence(items), flow, start, end });
                    }
                    (event, span) => {
                        let mut item = value(text, event, span, events)?;
                        if item.is_absent() && style == StructureStyle::Block {
                            item.put(behind_dash(text, item.start)?);
                        }
                        last = item.end;
                        items.push(item);
                    }
                }
            }
        }
        Event::MappingStart(style, ..) => {
            let (mut entries, mut last) = (Vec::new(), start);
            loop {
                match events.next()? {
                    (Event::MappingEnd, span) => {
                        let (flow, end) = closed(style, span, last)?;
                        return Some(Node { kind: Kind::Mapping(entries), flow, start, end });
                    }
                    (Event::Scalar(key, ..), span) => {
                        let (start, key_end) = (span.start.byte_offset()?, span.end.byte_offset()?);
                        let mut value = node(text, events)?;
                        if let Kind::Scalar { block: true } = value.kind {
                            value.start = key_end + text.get(key_end..)?.find(['|', '>'])?;
                        }
                        if value.is_absent() {
                            let colon = skip(text, key_end);
                            let has_colon = text.get(colon..)?.starts_with(':');
                            value.put(if has_colon { value.start.max(colon + 1) } else { key_end });
                        }
                        last = value.end;
                        entries.push(Entry { key: key.into_owned(), start, key_end, value });
                    }
                    _ => return None,
                }
            }
        }
        _ => None,
    }
}

/// Where an item begins of which the parser tells the end of the line.
fn behind_dash(text: &str, at: usize) -> Option<usize> {
    let start = text.get(..at)?.rfind('\n').map_or(0, |newline| newline + 1);
    let line = &text[start..at];
    trimmed(text, start, start + line.find(" #").unwrap_or(line.len()))
}

/// Behind the white space and the comments between two things that are in a text.
fn skip(text: &str, from: usize) -> usize {
    let mut rest = &text[from..];
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        if !rest.starts_with('#') {
            return text.len() - rest.len();
        }
        rest = &rest[rest.find(['\r', '\n']).unwrap_or(rest.len())..];
    }
}

/// Where a scalar ends without what YAML does not count among it; other white space is text.
fn trimmed(text: &str, start: usize, end: usize) -> Option<usize> {
    Some(start + text.get(start..end)?.trim_end_matches([' ', '\t', '\r', '\n']).len())
}

/// Whether a collection is in brackets, and where it ends. What ends one without is seen only at the
/// next thing after it, which may be far below.
fn closed(style: StructureStyle, span: Span, last: usize) -> Option<(bool, usize)> {
    let (start, end) = (span.start.byte_offset()?, span.end.byte_offset()?);
    match style {
        // A pair in brackets may have no braces of its own.
        StructureStyle::Flow => Some((true, if start < end { end } else { last })),
        StructureStyle::Block => Some((false, last)),
    }
}
