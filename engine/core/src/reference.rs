//! References from one resource to a value of another.
//!
//! `$kusion_path.<id>.<path>` is a whole value and takes the value's type;
//! `${kusion_path.<id>.<path>}` stands inside a string, and `$${kusion_path.` is that text itself.
//! Both may stand in values and in the keys of maps. Ids contain dots and colons, so the longest
//! known id wins; a path is made of `.name`, `[n]` and `["key"]`.
//!
//! Start at [`parse`]. Elsewhere: `resolve` finds the references of a resource and replaces them.

use std::fmt;

use crate::bounds::TooLarge;
use crate::path::{FieldPath, Segment};
use crate::spec::ResourceId;

/// The part that every reference contains.
const MARK: &str = "kusion_path.";
const WHOLE: &str = "$kusion_path.";
const OPEN: &str = "${kusion_path.";
const ESCAPED: &str = "$${kusion_path.";

/// The longest id in a reference, in bytes. Each prefix of a text that may be an id is looked up.
const LONGEST_ID: usize = 4096;

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// The resource.
    pub id: ResourceId,
    /// The path in it, such as `metadata.name`.
    pub path: FieldPath,
}

/// As it is written, without its marks.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.to_string();
        let dot = if path.starts_with('[') { "" } else { "." };
        write!(f, "{}{dot}{path}", self.id)
    }
}

/// A text with references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Template {
    /// The whole string is one.
    Whole(Reference),
    /// Text with references in it.
    Text(Vec<Part>),
}

/// A piece of a [`Template::Text`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text as it stands.
    Text(String),
    /// A reference to put in.
    Reference(Reference),
}

impl Template {
    /// The references in it, in order.
    pub fn references(&self) -> impl Iterator<Item = &Reference> {
        let (whole, parts) = match self {
            Self::Whole(reference) => (Some(reference), [].as_slice()),
            Self::Text(parts) => (None, parts.as_slice()),
        };
        whole.into_iter().chain(parts.iter().filter_map(|part| match part {
            Part::Reference(reference) => Some(reference),
            Part::Text(_) => None,
        }))
    }
}

/// Why a string is not a good reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// It names a resource that is not there.
    #[error("at character {position}: `{text}` does not begin with the id of a resource")]
    UnknownId {
        /// The position of the reference in the text, in characters from 1.
        position: usize,
        /// The reference without its marks.
        text: String,
    },
    /// It is not written as a reference is.
    #[error("at character {position}: {message}")]
    Syntax {
        /// The position in the text, in characters from 1.
        position: usize,
        /// The problem.
        message: String,
    },
    /// The resource has no such value, and never will.
    #[error("{0}")]
    Dangling(String),
    /// The value does not fit where the reference stands.
    #[error("{0}")]
    Unfit(String),
    /// The value exceeds a limit.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

impl ReferenceError {
    /// The reason of its [`Problem`](crate::Problem).
    pub fn reason(&self) -> &'static str {
        match self {
            Self::UnknownId { .. } | Self::Dangling(_) => crate::problem::reason::DANGLING_REFERENCE,
            Self::Syntax { .. } | Self::Unfit(_) => crate::problem::reason::INVALID_REFERENCE,
            Self::TooLarge(_) => crate::problem::reason::TOO_LARGE,
        }
    }
}

/// Whether a text may contain a reference; a fast check.
pub fn may_refer(text: &str) -> bool {
    // Most texts are shorter than that.
    text.len() > MARK.len() && text.contains(MARK)
}

/// Parses a text; `None` without a reference, which is the usual case.
///
/// `known` returns whether a text is the id of a resource.
pub fn parse(text: &str, known: &dyn Fn(&str) -> bool) -> Result<Option<Template>, ReferenceError> {
    if !may_refer(text) {
        return Ok(None);
    }
    if text.starts_with(WHOLE) {
        let mut parser = Parser { text, position: WHOLE.len(), known };
        let reference = parser.reference(false)?;
        return Ok(Some(Template::Whole(reference)));
    }
    if !text.contains(OPEN) {
        return Ok(None);
    }
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut parser = Parser { text, position: 0, known };
    while parser.position < text.len() {
        let rest = &text[parser.position..];
        if rest.starts_with(ESCAPED) {
            literal.push_str(OPEN);
            parser.position += ESCAPED.len();
        } else if rest.starts_with(OPEN) {
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal)));
            }
            parser.position += OPEN.len();
            parts.push(Part::Reference(parser.reference(true)?));
        } else {
            let first = rest.chars().next().map_or(1, char::len_utf8);
            let next = rest[first..].find('$').map_or(rest.len(), |dollar| first + dollar);
            literal.push_str(&rest[..next]);
            parser.position += next;
        }
    }
    if !literal.is_empty() {
        parts.push(Part::Text(literal));
    }
    Ok(Some(Template::Text(parts)))
}

/// Whether a text has the prefix of a whole-value reference elsewhere than at its start, so that it is literal.
pub(crate) fn is_misplaced(text: &str) -> bool {
    text.len() > WHOLE.len() && !text.starts_with(WHOLE) && text.contains(WHOLE)
}

struct Parser<'a> {
    text: &'a str,
    /// The byte that comes next.
    position: usize,
    known: &'a dyn Fn(&str) -> bool,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.position..].chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.position += next.len_utf8();
        Some(next)
    }

    /// `<id><path>`, and `}` when it stands inside a string.
    fn reference(&mut self, inside: bool) -> Result<Reference, ReferenceError> {
        let mark = if inside { OPEN } else { WHOLE };
        let start = self.position - mark.len();
        let rest = &self.text[self.position..];
        let limit = if inside { rest.find('}').unwrap_or(rest.len()) } else { rest.len() };
        let id = rest[..limit]
            .char_indices()
            .rev()
            .filter(|(end, c)| *end <= LONGEST_ID && matches!(c, '.' | '['))
            .map(|(end, _)| &rest[..end])
            .find(|candidate| (self.known)(candidate));
        let Some(id) = id else {
            self.position += limit;
            if (self.known)(&rest[..limit]) {
                return Err(self.error("a path must follow the id, such as `.metadata.name`"));
            }
            if inside && limit == rest.len() {
                return Err(self.error(NOT_CLOSED));
            }
            return Err(ReferenceError::UnknownId { position: self.character(start), text: rest[..limit].to_owned() });
        };
        self.position += id.len();
        Ok(Reference { id: ResourceId(id.to_owned()), path: self.path(inside)? })
    }

    fn path(&mut self, inside: bool) -> Result<FieldPath, ReferenceError> {
        let mut segments = Vec::new();
        loop {
            match self.peek() {
                None if inside => return Err(self.error(NOT_CLOSED)),
                None => break,
                Some('}') if inside => {
                    self.bump();
                    break;
                }
                Some('.') => segments.push(Segment::Key(self.name()?)),
                Some('[') => segments.push(self.bracket()?),
                Some(c) => {
                    let message = format!("unexpected `{c}`; a path goes on with `.name`, `[n]` or `[\"key\"]`");
                    return Err(self.error(&message));
                }
            }
        }
        Ok(FieldPath(segments))
    }

    fn name(&mut self) -> Result<String, ReferenceError> {
        self.bump();
        let start = self.position;
        while let Some(c) = self.peek() {
            if matches!(c, '.' | '[' | ']' | '{' | '}' | '"') || c.is_whitespace() || c.is_control() {
                break;
            }
            self.bump();
        }
        if self.position == start {
            return Err(self.error("a name must follow the dot"));
        }
        Ok(self.text[start..self.position].to_owned())
    }

    /// `[n]` or `["key"]`
    fn bracket(&mut self) -> Result<Segment, ReferenceError> {
        self.bump();
        let start = self.position;
        let segment = if self.peek() == Some('"') {
            Segment::Key(self.quoted()?)
        } else {
            while self.peek().is_some_and(|c| c.is_ascii_digit()) {
                self.bump();
            }
            let digits = &self.text[start..self.position];
            if digits.is_empty() {
                return Err(self.error("brackets hold an index such as `[0]` or a quoted key such as `[\"a.b\"]`"));
            }
            Segment::Index(digits.parse().map_err(|_| self.error("the index is too large"))?)
        };
        match self.bump() {
            Some(']') => Ok(segment),
            Some(c) => {
                self.position -= c.len_utf8();
                Err(self.error("the bracket must close here with `]`"))
            }
            None => Err(self.error("the bracket is not closed with `]`")),
        }
    }

    /// A JSON string.
    fn quoted(&mut self) -> Result<String, ReferenceError> {
        let start = self.position;
        self.bump();
        loop {
            match self.bump() {
                Some('\\') => drop(self.bump()),
                Some('"') => break,
                Some(_) => {}
                None => return Err(self.error("the quoted key is not closed with `\"`")),
            }
        }
        let raw = &self.text[start..self.position];
        serde_json::from_str(raw).map_err(|_| self.error("the quoted key before is not a JSON string"))
    }

    /// An error at the character that comes next.
    fn error(&self, message: &str) -> ReferenceError {
        ReferenceError::Syntax { position: self.character(self.position), message: message.to_owned() }
    }

    /// The position of a byte in characters, from 1.
    fn character(&self, byte: usize) -> usize {
        self.text[..byte].chars().count() + 1
    }
}

const NOT_CLOSED: &str = "the reference is not closed with `}`";

#[cfg(test)]
mod tests;
