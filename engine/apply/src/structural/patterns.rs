//! Regular expressions of schemas: each is compiled once, and expensive ones are skipped.

use std::collections::HashMap;

use regex::{Regex, RegexBuilder};
use stoa_cel::go;

use super::Steps;

/// The longest pattern that is read, in bytes.
const LONGEST: usize = 4 << 10;
/// The maximum memory of a compiled expression and of its search caches, in bytes.
const LARGEST: usize = 512 << 10;
/// The steps to compile an expression.
const COMPILING: usize = 1_000;
/// The steps to read a character class, which may have hundreds of Unicode ranges.
const CLASS: usize = 100;
/// The steps of a case-insensitive class, whose characters are read one by one.
const FOLDED_CLASS: usize = 10_000;

/// The patterns that were met; nothing where one is no pattern, or too large.
#[derive(Debug, Default)]
pub(super) struct Patterns<'s>(HashMap<&'s str, Option<Regex>>);

impl<'s> Patterns<'s> {
    /// Whether a text matches a pattern; `None` when that is not decided.
    pub(super) fn matches(&mut self, pattern: &'s str, text: &str, steps: &mut Steps) -> Option<bool> {
        if !self.0.contains_key(pattern) {
            if !steps.take(COMPILING + classes(pattern)) {
                return None;
            }
            self.0.insert(pattern, compile(pattern));
        }
        let compiled = self.0[pattern].as_ref()?;
        steps.take((1 + text.len() / 10) * (1 + pattern.len() / 4)).then(|| compiled.is_match(text))
    }
}

fn compile(pattern: &str) -> Option<Regex> {
    let translated = (pattern.len() <= LONGEST).then(|| go::pattern(pattern))?.ok()?;
    RegexBuilder::new(&translated).size_limit(LARGEST).dfa_size_limit(LARGEST).build().ok()
}

/// The maximum steps of the classes in a pattern.
fn classes(pattern: &str) -> usize {
    let classes = pattern.bytes().filter(|byte| matches!(byte, b'[' | b'\\' | b'.')).count();
    let flags = pattern.split("(?").skip(1);
    let folds =
        flags.map(|rest| rest.bytes().take_while(u8::is_ascii_alphabetic)).any(|mut flags| flags.any(|it| it == b'i'));
    classes * if folds { FOLDED_CLASS } else { CLASS }
}
