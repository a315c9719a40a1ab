//! What an evaluation may still spend, and the texts that are made of it.
//!
//! A value may hold another many times over, so whatever walks through values pays for each one it comes to, before it
//! does: what takes a few steps to make may be a tree that no memory has room for.

use std::{fmt, mem};

use super::{LARGEST_STRING, Limits, eval::Error};

#[derive(Debug)]
pub(super) struct Budget {
    /// To all expressions.
    all: u64,
    /// To the one that is evaluated.
    each: u64,
    /// On this thread.
    here: u64,
}

impl Budget {
    /// So many steps, whatever they are for.
    pub(super) fn new(steps: u64) -> Self {
        Self { all: steps, each: steps, here: steps }
    }

    /// As many steps as an evaluation may take, none of them granted to an expression yet.
    pub(super) fn of(limits: Limits) -> Self {
        Self { all: limits.budget, each: 0, here: limits.here }
    }

    pub(super) fn left(&self) -> u64 {
        self.all
    }

    /// Grants so many steps to the expression that is evaluated next; how many the one before had left.
    pub(super) fn grant(&mut self, each: u64) -> u64 {
        mem::replace(&mut self.each, each)
    }

    pub(super) fn spend(&mut self, steps: usize) -> Result<(), Error> {
        let steps = steps as u64;
        self.here = self.here.checked_sub(steps).ok_or(Error::OutOfBudget)?;
        self.charge(steps)
    }

    /// Takes so many steps for what is not done on this thread.
    pub(super) fn charge(&mut self, steps: u64) -> Result<(), Error> {
        // What takes an expression over its limit is spent: the others have that much less.
        self.all = self.all.checked_sub(steps).ok_or(Error::OutOfBudget)?;
        self.each = self.each.checked_sub(steps).ok_or(Error::OverLimit)?;
        Ok(())
    }
}

/// How often each of so many is looked at where they are put in order, as far as it counts.
pub(super) fn rounds(count: usize) -> usize {
    1 + count.checked_ilog2().unwrap_or(0) as usize
}

/// Refuses a text of so many bytes if that is more than an expression may make.
pub(super) fn fits(bytes: usize) -> Result<(), Error> {
    if bytes > LARGEST_STRING { Err(Error::new("the string is too long")) } else { Ok(()) }
}

/// A text that is made piece by piece, each paid for as it comes.
#[derive(Debug)]
pub(super) struct Writer<'b> {
    budget: &'b mut Budget,
    text: String,
}

impl<'b> Writer<'b> {
    pub(super) fn new(budget: &'b mut Budget) -> Self {
        Self { budget, text: String::new() }
    }

    pub(super) fn step(&mut self) -> Result<(), Error> {
        self.budget.spend(1)
    }

    pub(super) fn spend(&mut self, steps: usize) -> Result<(), Error> {
        self.budget.spend(steps)
    }

    pub(super) fn budgeted<T>(&mut self, work: impl FnOnce(&mut Budget) -> T) -> T {
        work(self.budget)
    }

    pub(super) fn push(&mut self, piece: &str) -> Result<(), Error> {
        self.budget.spend(piece.len() / 10)?;
        fits(self.text.len() + piece.len())?;
        self.text.push_str(piece);
        Ok(())
    }

    pub(super) fn show(&mut self, shown: impl fmt::Display) -> Result<(), Error> {
        self.push(&shown.to_string())
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}
