//! Properties of the code that reads bytes from outside.

use std::path::Path;

use crate::diagnostics::{of_evaluation, of_reply, without_escapes};
use crate::scan::scan;

/// A fuzz target: its name, and a function that panics when a property does not hold.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[("kcl_sources", sources), ("kcl_errors", errors)];

/// Positions are in the source, and a second read finds the same.
fn sources(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let found = scan(&text);
    let lines: Vec<&str> = text.split('\n').collect();
    for literal in &found.literals {
        let line = lines[literal.line as usize - 1];
        let at: String = line.chars().skip(literal.column as usize - 1).collect();
        assert!(at.starts_with(&literal.text), "{literal:?}");
    }
    assert!(found.exports.iter().all(|(name, line)| lines[*line as usize - 1].starts_with(name)));
    assert_eq!(found, scan(&text));
}

/// Every error is at least one problem with a message, without escape sequences.
fn errors(bytes: &[u8]) {
    let root = Path::new("/root");
    let text = String::from_utf8_lossy(bytes);
    let reply = [b"ERROR:".as_slice(), bytes].concat();
    for problems in [of_reply(&reply, root).expect("it is an error"), of_evaluation(&text, root)] {
        assert!(!problems.is_empty());
    }
    assert!(!without_escapes(&text).contains('\u{1b}'));
}
