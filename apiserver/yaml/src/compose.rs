//! Composes values of the parser's events.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

use crate::Numbers;
use crate::outline::Outline;
use crate::scalar::{Key, Scalar};
use crate::{Cause, Document, Duplicate, Error, ErrorKind, Limits};

/// How much a value counts as copied beside its text.
const NODE_WEIGHT: usize = 32;

fn error(line: usize, kind: ErrorKind) -> Error {
    Error { line, kind }
}

fn syntax(line: usize, message: &str) -> Error {
    error(line, ErrorKind::Syntax(message.to_owned()))
}

fn scan_error(cause: &ScanError) -> Error {
    syntax(cause.marker().line(), problem(&cause.info()))
}

/// The problem in the words of Go's library: the same grammar in other words, and without the text that was read.
fn problem(info: &str) -> &str {
    match info {
        "unclosed quote" => "found unexpected end of stream",
        "unclosed bracket '['" | "while parsing a flow sequence, expected ',' or ']'" => {
            "did not find expected ',' or ']'"
        }
        "unclosed bracket '{'" => "did not find expected ',' or '}'",
        _ if info.starts_with("unexpected character") => "found character that cannot start any token",
        _ if info.starts_with("while ") => info.split_once(", ").map_or(info, |(_, problem)| problem),
        _ => info,
    }
}

/// A value with the lines of what is in it.
type Node = (Value, Outline);

struct Anchored {
    node: Node,
    weight: usize,
    height: usize,
}

pub(crate) struct Composer<'i> {
    parser: Parser<'i, StrInput<'i>>,
    limits: Limits,
    /// Whether lines are wanted.
    outlined: bool,
    anchors: HashMap<usize, Anchored>,
    duplicates: Vec<Duplicate>,
    values: usize,
    copied: usize,
    numbers: Numbers,
    is_inexact: bool,
}

impl<'i> Composer<'i> {
    pub(crate) fn new(text: &'i str, limits: &Limits, outlined: bool) -> Self {
        Self {
            parser: Parser::new_from_str(text),
            limits: *limits,
            outlined,
            anchors: HashMap::new(),
            duplicates: Vec::new(),
            values: 0,
            copied: 0,
            numbers: Numbers::default(),
            is_inexact: false,
        }
    }

    /// The same with other values of numbers.
    pub(crate) fn with_numbers(self, numbers: Numbers) -> Self {
        Self { numbers, ..self }
    }

    /// The next document.
    pub(crate) fn document(&mut self) -> Result<Option<Document>, Error> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(None),
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
                event => {
                    self.anchors.clear();
                    let line = span.start.line();
                    let (value, outline) = self.node(event, span, 0)?;
                    let duplicates = std::mem::take(&mut self.duplicates);
                    let is_inexact = std::mem::take(&mut self.is_inexact);
                    return Ok(Some(Document { value, line, outline, duplicates, is_inexact }));
                }
            }
        }
    }

    /// The next event that is no comment.
    fn next(&mut self) -> Result<(Event<'i>, Span), Error> {
        loop {
            match self.parser.next_event() {
                None => return Ok((Event::StreamEnd, Span::default())),
                Some(Err(cause)) => return Err(scan_error(&cause)),
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok(event)) => return Ok(event),
            }
        }
    }

    fn node(&mut self, event: Event<'i>, span: Span, depth: usize) -> Result<Node, Error> {
        let line = span.start.line();
        if depth >= self.limits.depth && matches!(event, Event::SequenceStart(..) | Event::MappingStart(..)) {
            return Err(error(line, ErrorKind::TooDeep(self.limits.depth)));
        }
        self.count(line)?;
        let (node, anchor) = match event {
            Event::Alias(id) => return self.alias(id, line),
            Event::Scalar(text, style, anchor, tag) => {
                let scalar = Scalar::resolve(&text, style, tag.as_deref());
                let inexact = scalar.as_ref().ok().and_then(|scalar| scalar.inexact(&text));
                self.is_inexact |= inexact.is_some();
                let scalar = match inexact.filter(|_| self.numbers == Numbers::Text) {
                    Some(exact) => Ok(exact.into()),
                    None => scalar.and_then(|scalar| scalar.into_json(self.numbers)),
                };
                ((scalar.map_err(|kind| error(line, kind))?, Outline::Leaf), anchor)
            }
            Event::SequenceStart(_, anchor, _) => (self.sequence(depth)?, anchor),
            Event::MappingStart(_, anchor, _) => (self.mapping(depth)?, anchor),
            other => return Err(syntax(line, &format!("unexpected {other:?}"))),
        };
        if anchor != 0 {
            let (weight, height) = (weight(&node.0), height(&node.0));
            self.pay(weight, line)?;
            self.anchors.insert(anchor, Anchored { node: node.clone(), weight, height });
        }
        Ok(node)
    }

    fn alias(&mut self, id: usize, line: usize) -> Result<Node, Error> {
        let Some(weight) = self.anchors.get(&id).map(|anchored| anchored.weight) else {
            return Err(syntax(line, "an anchor's value contains itself"));
        };
        self.pay(weight, line)?;
        Ok(self.anchors[&id].node.clone())
    }

    /// Counts one value.
    fn count(&mut self, line: usize) -> Result<(), Error> {
        self.values += 1;
        if self.values > self.limits.values {
            return Err(error(line, ErrorKind::TooManyValues(self.limits.values)));
        }
        Ok(())
    }

    fn pay(&mut self, weight: usize, line: usize) -> Result<(), Error> {
        self.copied = self.copied.saturating_add(weight);
        if self.copied > self.limits.copied { Err(error(line, ErrorKind::TooManyCopies)) } else { Ok(()) }
    }

    fn sequence(&mut self, depth: usize) -> Result<Node, Error> {
        let (mut values, mut lines) = (Vec::new(), Vec::new());
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => {
                    let outline = if self.outlined { Outline::List(lines) } else { Outline::Leaf };
                    return Ok((Value::Array(values), outline));
                }
                (event, span) => {
                    let line = span.start.line();
                    let (value, inner) = self.bounded(event, span, depth)?;
                    values.push(value);
                    if self.outlined {
                        lines.push((narrow(line), inner));
                    }
                }
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Node, Error> {
        let mut mapping = Mapping::default();
        loop {
            let (event, span) = self.next()?;
            let line = span.start.line();
            let (text, style, tag) = match event {
                Event::MappingEnd => {
                    let outline = if self.outlined { Outline::Map(mapping.lines) } else { Outline::Leaf };
                    return Ok((Value::Object(mapping.map), outline));
                }
                Event::Scalar(text, style, 0, tag) => (text, style, tag),
                event => {
                    // An anchored or aliased key is still a key, if it is text.
                    let (key, _) = self.node(event, span, depth + 1)?;
                    let Value::String(key) = key else { return Err(syntax(line, "invalid map key")) };
                    (key.into(), ScalarStyle::DoubleQuoted, None)
                }
            };
            self.count(line)?;
            let is_merge = text == "<<" && style == ScalarStyle::Plain && tag.is_none();
            let key = Scalar::resolve(&text, style, tag.as_deref()).and_then(Scalar::into_key);
            let key = key.map_err(|kind| error(line, kind))?;
            let (event, span) = self.next()?;
            let value_line = span.start.line();
            let (value, inner) = self.bounded(event, span, depth)?;
            let at = At { line, value_line, is_merged: is_merge };
            if is_merge {
                self.merge(&mut mapping, value, inner, at).map_err(|message| syntax(line, message))?;
            } else {
                self.set(&mut mapping, key, value, inner, at);
            }
        }
    }

    /// Sets a key. One that is there gets the later value, and is noted.
    fn set(&mut self, mapping: &mut Mapping, key: Key, value: Value, inner: Outline, at: At) {
        let At { line, value_line, is_merged } = at;
        let was_set = mapping.map.insert(key.name.clone(), value).is_some();
        if self.outlined {
            mapping.lines.push((key.name.clone(), narrow(line), inner));
        }
        let was_merged = mapping.merged.remove(&key.name);
        if is_merged {
            mapping.merged.insert(key.name.clone());
        }
        let Key { name, is_text } = key;
        let was_text = !mapping.unquoted.contains(&name);
        if !is_text {
            mapping.unquoted.insert(name.clone());
        }
        if !was_set {
            return;
        }
        let cause = match was_text == is_text {
            _ if is_merged || was_merged => Cause::Merged,
            true => Cause::Written,
            false => Cause::SameInJson,
        };
        self.duplicates.push(Duplicate { key: name, is_text, line, value_line, cause });
    }

    /// Sets the keys that `<<` brings, as if they stood there; of several maps the first one that has a key wins.
    ///
    /// Follows `merge` in `go.yaml.in/yaml/v2/decode.go`.
    fn merge(&mut self, into: &mut Mapping, value: Value, inner: Outline, at: At) -> Result<(), &'static str> {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    let inner = inner.key(&name).map(|(_, inner)| inner.clone()).unwrap_or_default();
                    self.set(into, Key { name, is_text: true }, value, inner, at);
                }
                Ok(())
            }
            Value::Array(maps) if maps.iter().all(Value::is_object) => {
                maps.into_iter().enumerate().rev().try_for_each(|(position, map)| {
                    let inner = inner.item(position).map(|(_, inner)| inner.clone()).unwrap_or_default();
                    self.merge(into, map, inner, at)
                })
            }
            _ => Err("map merge requires map or sequence of maps as the value"),
        }
    }

    /// A child, whose aliases count as deep as what they stand for.
    fn bounded(&mut self, event: Event<'i>, span: Span, depth: usize) -> Result<Node, Error> {
        let height = match event {
            Event::Alias(id) => self.anchors.get(&id).map_or(0, |anchored| anchored.height),
            _ => 0,
        };
        let line = span.start.line();
        let node = self.node(event, span, depth + 1)?;
        if depth + 1 + height > self.limits.depth {
            return Err(error(line, ErrorKind::TooDeep(self.limits.depth)));
        }
        Ok(node)
    }
}

/// Where a key is.
#[derive(Clone, Copy)]
struct At {
    line: usize,
    value_line: usize,
    /// Whether a merge key brings it.
    is_merged: bool,
}

/// A map that is being read.
#[derive(Default)]
struct Mapping {
    map: Map<String, Value>,
    /// The keys that are numbers or booleans in YAML.
    unquoted: HashSet<String>,
    /// The keys whose values a merge key brought.
    merged: HashSet<String>,
    lines: Vec<(String, u32, Outline)>,
}

fn narrow(line: usize) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX)
}

fn weight(value: &Value) -> usize {
    NODE_WEIGHT
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len(),
            Value::Array(values) => values.iter().map(weight).sum(),
            Value::Object(map) => map.iter().map(|(key, value)| key.len() + weight(value)).sum(),
        }
}

/// The levels of maps and lists in a value.
pub(crate) fn height(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(height).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(height).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
