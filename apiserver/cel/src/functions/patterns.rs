//! Regular expressions, each compiled once in an evaluation.

use std::collections::HashMap;

use regex::{Regex, RegexBuilder};

use super::super::{budget::Budget, eval::Error, go};

/// The most memory that a compiled pattern may take, in bytes.
const LARGEST_PATTERN: usize = 1 << 20;
/// The longest pattern, in bytes: reading one takes much more memory than its text.
const LONGEST_PATTERN: usize = 64 << 10;
/// How many patterns are kept.
const MOST_PATTERNS: usize = 32;
/// How many steps it takes to compile a pattern that takes no more than [`USUAL_PATTERN`] of memory; of others each byte
/// takes as many.
const COMPILING: usize = 1_000;
/// How much memory a pattern takes that has neither long repetitions nor many classes of Unicode, in bytes.
const USUAL_PATTERN: usize = 64 << 10;
/// How many steps it takes to read a class that may have most characters in it; there are hundreds of ranges.
const WIDE_CLASS: usize = 200;
/// How many steps it takes where case does not count: the characters are looked at one by one.
const FOLDED_CLASS: usize = 20_000;

/// The patterns that an evaluation has compiled, or why it could not.
#[derive(Debug, Default)]
pub(in super::super) struct Patterns(HashMap<String, Result<Regex, Error>>);

impl Patterns {
    /// A pattern that a text is about to be searched for, with what the search costs paid as upstream counts it.
    pub(super) fn get(&mut self, pattern: &str, text: &str, budget: &mut Budget) -> Result<&Regex, Error> {
        budget.spend((1 + text.len() / 10) * (1 + pattern.len() / 4))?;
        if !self.0.contains_key(pattern) {
            let compiled = match compile(pattern, budget) {
                Err(fatal) if fatal.is_fatal() => return Err(fatal),
                compiled => compiled,
            };
            if self.0.len() == MOST_PATTERNS {
                self.0.clear();
            }
            self.0.insert(pattern.to_owned(), compiled);
        }
        self.0[pattern].as_ref().map_err(Error::clone)
    }
}

/// Whether a text is a pattern, as far as the budget tells. One may be too large all the same.
pub(in super::super) fn is_pattern(pattern: &str, budget: &mut Budget) -> bool {
    if pattern.len() > LONGEST_PATTERN || read_cost(pattern, budget).is_err() {
        return true;
    }
    let built = go::translate(pattern).map(|translated| {
        let paid = budget.spend(COMPILING + class_cost(&translated));
        paid.is_err() || !is_wrong(RegexBuilder::new(&translated.pattern).size_limit(USUAL_PATTERN).build())
    });
    built.unwrap_or_else(|error| !is_wrong(Err(error)))
}

fn is_wrong(built: Result<Regex, regex::Error>) -> bool {
    matches!(built, Err(regex::Error::Syntax(_)))
}

/// A class is put in order anew for each character that is added to it.
fn read_cost(pattern: &str, budget: &mut Budget) -> Result<(), Error> {
    budget.spend(pattern.len() * (1 + pattern.len() / 4_096))
}

fn class_cost(translated: &go::Translated) -> usize {
    translated.wide * if translated.folds { FOLDED_CLASS } else { WIDE_CLASS }
}

/// Compiles a pattern, in as little memory as it can be: the work is as large, and so is what is paid.
fn compile(pattern: &str, budget: &mut Budget) -> Result<Regex, Error> {
    let wrong = |error: regex::Error| Error::new(format!("error parsing regexp: {error}"));
    if pattern.len() > LONGEST_PATTERN {
        return Err(Error::new("error parsing regexp: the pattern is too long"));
    }
    read_cost(pattern, budget)?;
    let translated = go::translate(pattern).map_err(wrong)?;
    let classes = class_cost(&translated);
    let mut builder = RegexBuilder::new(&translated.pattern);
    let mut size = USUAL_PATTERN;
    loop {
        budget.spend(COMPILING * (size / USUAL_PATTERN) + classes)?;
        match builder.size_limit(size).build() {
            Err(regex::Error::CompiledTooBig(_)) if size < LARGEST_PATTERN => size *= 4,
            compiled => return compiled.map_err(wrong),
        }
    }
}
