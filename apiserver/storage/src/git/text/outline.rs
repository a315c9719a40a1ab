//! Where in a YAML text its mappings, keys and values are.

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle};

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

#[derive(Debug)]
pub(super) enum Kind {
    Scalar {
        /// Whether it is on lines of its own, after `|` or `>`.
        block: bool,
    },
    Sequence(Vec<Node>),
    Mapping(Vec<Entry>),
    /// What stands for an anchored value elsewhere.
    Alias,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub key: String,
    /// Where the key begins.
    pub start: usize,
    /// Behind its last character.
    pub key_end: usize,
    pub value: Node,
}

/// The outline of a text with one document. `None` when it is no YAML, or has keys that are no text, which nobody should
/// edit without understanding them.
pub(super) fn outline(text: &str) -> Option<Node> {
    let mut events = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.ok()?;
        // What is left out, comments and the bounds of the document, is no node.
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
            let end = trimmed(text, start, span.end.byte_offset()?)?;
            // The parser finds a block where its text is; it begins with its mark.
            let start = if block { text.get(..start)?.rfind(['|', '>'])? } else { start };
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
                        let item = value(text, event, span, events)?;
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
                        let mut value = node(text, events)?;
                        if let Kind::Scalar { block: true } = value.kind {
                            let key_end = span.end.byte_offset()?;
                            value.start = key_end + text.get(key_end..)?.find(['|', '>'])?;
                        }
                        last = value.end;
                        let (start, key_end) = (span.start.byte_offset()?, span.end.byte_offset()?);
                        entries.push(Entry { key: key.into_owned(), start, key_end, value });
                    }
                    _ => return None,
                }
            }
        }
        _ => None,
    }
}

/// Where a scalar ends without what YAML does not count among it; other white space is text.
fn trimmed(text: &str, start: usize, end: usize) -> Option<usize> {
    Some(start + text.get(start..end)?.trim_end_matches([' ', '\t', '\r', '\n']).len())
}

/// Whether a collection is in brackets, and where it ends. What ends one without is seen only at the
/// next thing after it, which may be far below.
fn closed(style: StructureStyle, span: Span, last: usize) -> Option<(bool, usize)> {
    match style {
        StructureStyle::Flow => Some((true, span.end.byte_offset()?)),
        StructureStyle::Block => Some((false, last)),
    }
}
