//! The values of a text with their source and the comment beside each.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::outline::{Kind, Node, outline};

/// A step from a value to one inside of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// The value of a key.
    Key(String),
    /// An item of a list, by its position from 0.
    Item(usize),
}

/// The kind of a value in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A scalar on lines of its own, after `|` or `>`.
    Block,
    /// Another scalar, or nothing.
    Scalar,
    /// A list.
    List,
    /// A map.
    Map,
    /// An alias of an anchored value.
    Alias,
}

/// A value in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceNode {
    /// The steps from the root.
    pub path: Vec<Step>,
    /// The kind of the value.
    pub form: Form,
    /// The bytes of the value, with its quotes. A list without brackets begins behind its first dash.
    pub range: Range<usize>,
    /// The bytes of the comment on its line, with `#`: behind a scalar or a list in brackets, and behind the key of another.
    pub comment: Option<Range<usize>>,
    /// The end of its line, for a comment; `None` where other values are on the line.
    line_end: Option<usize>,
}

/// All values of a text with one document, from the root, each before those in it. `None` when the text is no YAML, or has
/// keys that are no text.
pub fn nodes(text: &str) -> Option<Vec<SourceNode>> {
    let mut walk = Walk { text, path: Vec::new(), found: Vec::new() };
    walk.node(&outline(text)?, None, false);
    Some(walk.found)
}

/// The text with comments beside the values at these paths, such as `# kpt-set: ${name}`, and the positions of those that
/// cannot be there. Of several for one line, the last counts. `None` when [`nodes`] does not read the text.
pub fn with_comments(text: &str, comments: &[(&[Step], &str)]) -> Option<(String, Vec<usize>)> {
    let nodes = nodes(text)?;
    let mut by_path: HashMap<&[Step], &SourceNode> = HashMap::new();
    for node in &nodes {
        by_path.entry(&node.path).or_insert(node);
    }
    let (mut changes, mut failed) = (BTreeMap::new(), Vec::new());
    for (position, (path, comment)) in comments.iter().enumerate() {
        let is_comment = comment.starts_with('#') && !comment.contains(['\n', '\r']);
        let node = by_path.get(path).filter(|_| is_comment);
        match node.map(|node| (&node.comment, node.line_end)) {
            Some((Some(old), _)) => drop(changes.insert(old.start, (old.end, "", *comment))),
            Some((None, Some(end))) => drop(changes.insert(end, (end, " ", *comment))),
            Some((None, None)) | None => failed.push(position),
        }
    }
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    for (start, (end, space, comment)) in changes {
        out.push_str(&text[copied..start]);
        out.push_str(space);
        out.push_str(comment);
        copied = end;
    }
    out.push_str(&text[copied..]);
    Some((out, failed))
}

struct Walk<'t> {
    text: &'t str,
    path: Vec<Step>,
    found: Vec<SourceNode>,
}

impl Walk<'_> {
    /// Adds a node and those in it. `key_end` is where its key ends, and `in_flow` whether it is inside of brackets.
    fn node(&mut self, node: &Node, key_end: Option<usize>, in_flow: bool) {
        let form = match node.kind {
            Kind::Scalar { block: true } => Form::Block,
            Kind::Scalar { block: false } => Form::Scalar,
            Kind::Sequence(_) => Form::List,
            Kind::Mapping(_) => Form::Map,
            Kind::Alias => Form::Alias,
        };
        let is_on_lines_below = matches!(node.kind, Kind::Sequence(_) | Kind::Mapping(_)) && !node.flow;
        let (comment, line_end) = match (in_flow, is_on_lines_below, key_end) {
            (true, ..) | (false, true, None) => (None, None),
            (false, true, Some(key_end)) => self.beside(key_end, true),
            (false, false, _) if form == Form::Block => self.beside(node.start, true),
            (false, false, _) => self.beside(node.end, false),
        };
        let range = node.start..node.end;
        self.found.push(SourceNode { path: self.path.clone(), form, range, comment, line_end });
        let in_flow = in_flow || node.flow;
        match &node.kind {
            Kind::Sequence(items) => {
                for (position, item) in items.iter().enumerate() {
                    self.path.push(Step::Item(position));
                    self.node(item, None, in_flow);
                    self.path.pop();
                }
            }
            Kind::Mapping(entries) => {
                for entry in entries {
                    self.path.push(Step::Key(entry.key.clone()));
                    self.node(&entry.value, Some(entry.key_end), in_flow);
                    self.path.pop();
                }
            }
            Kind::Scalar { .. } | Kind::Alias => {}
        }
    }

    /// The comment behind a position on its line, and the end of a line that has none. Other text may be in between if
    /// `skips`: a colon, a tag, or the header of a text on lines of its own.
    fn beside(&self, from: usize, skips: bool) -> (Option<Range<usize>>, Option<usize>) {
        let rest = self.text[from..].lines().next().unwrap_or_default();
        let end = from + rest.trim_end().len();
        let at = match skips {
            true => rest.find(" #").map(|at| at + 1),
            false => Some(rest.len() - rest.trim_start().len()).filter(|at| *at > 0 && rest[*at..].starts_with('#')),
        };
        match at {
            Some(at) => (Some(from + at..end), None),
            None if skips || rest.trim().is_empty() => (None, Some(end)),
            None => (None, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
a: 1.10 # one
b: # two
- x # three
- 'y'
c:
  d: [1, 2] # four
  e: | # five
    text # not
  f: \"# no\"
g: {h: 1}
i:
";

    fn path(steps: &str) -> Vec<Step> {
        let step = |step: &str| step.parse().map_or_else(|_| Step::Key(step.to_owned()), Step::Item);
        steps.split('.').map(step).collect()
    }

    #[test]
    fn values_have_source_and_comment() {
        let nodes = nodes(FILE).unwrap();
        for (steps, source, comment) in [
            ("a", "1.10", Some("# one")),
            ("b", "x # three\n- 'y'", Some("# two")),
            ("b.0", "x", Some("# three")),
            ("b.1", "'y'", None),
            ("c.d", "[1, 2]", Some("# four")),
            ("c.d.1", "2", None),
            ("c.f", "\"# no\"", None),
            ("g.h", "1", None),
            ("i", "", None),
        ] {
            let node = nodes.iter().find(|node| node.path == path(steps)).unwrap();
            assert_eq!(&FILE[node.range.clone()], source, "{steps}");
            assert_eq!(node.comment.clone().map(|range| &FILE[range]), comment, "{steps}");
        }
        let block = nodes.iter().find(|node| node.path == path("c.e")).unwrap();
        assert_eq!(block.comment.clone().map(|range| &FILE[range]), Some("# five"));
    }

    #[test]
    fn comments_are_set_beside_values() {
        for (steps, line) in [
            ("a", "a: 1.10 # new"),
            ("b", "b: # new"),
            ("b.1", "- 'y' # new"),
            ("c", "c: # new"),
            ("c.e", "  e: | # new"),
            ("g", "g: {h: 1} # new"),
            ("i", "i: # new"),
        ] {
            let (text, failed) = with_comments(FILE, &[(&path(steps), "# new")]).unwrap();
            assert_eq!(failed, [0; 0], "{steps}");
            assert!(text.lines().any(|it| it == line), "{steps}: {text}");
            assert_eq!(text.lines().count(), FILE.lines().count());
        }
        for (steps, comment) in [("g.h", "# new"), ("a", "# a\nb: 1"), ("x", "# new")] {
            assert_eq!(with_comments(FILE, &[(&path(steps), comment)]), Some((FILE.to_owned(), vec![0])), "{steps}");
        }
    }

    #[test]
    fn comments_are_set_together() {
        let paths = ["c.f", "g.h", "a", "b.1", "b.1"].map(path);
        let comments = ["# f", "# no", "# a", "# old", "# new"];
        let comments: Vec<(&[Step], &str)> = paths.iter().map(Vec::as_slice).zip(comments).collect();
        let (text, failed) = with_comments(FILE, &comments).unwrap();
        assert_eq!(failed, [1]);
        let expected = FILE.replace("# one", "# a").replace("'y'", "'y' # new").replace("\"# no\"", "\"# no\" # f");
        assert_eq!(text, expected);
    }
}
