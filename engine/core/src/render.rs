//! A plan as people read it, and what changed between two states.
//!
//! ```text
//! + create   v1:ConfigMap:shop:web
//! ~ update   apps/v1:Deployment:shop:web
//!     spec.replicas: 1 → 2
//! - delete   v1:Secret:shop:old
//!
//! Plan: 1 to create, 1 to update, 1 to delete; 8 unchanged.
//! ```

use std::fmt::Write as _;

use serde_json::Value;

use crate::changes::{Change, Changes};
use crate::conflict::FieldConflict;
use crate::given_up::left_in;
use crate::import::LEFT_AS_IMPORTED;
use crate::owner::left_alone;
use crate::plan::{Action, FieldChange, Plan, PlannedAction, Summary};
use crate::sensitive::{MASK, UNKNOWN};

/// Whether the table is coloured for a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colour {
    /// Plain text.
    #[default]
    Never,
    /// ANSI escape sequences.
    Always,
}

/// Values longer than this many characters are cut.
const WIDTH: usize = 80;
/// At most this many lines of a text that changes are shown.
const LINES: usize = 20;

/// The plan as a table, one line per change with its fields below, and a summary at the end. What
/// stays as it is appears in the summary alone.
pub fn render(plan: &Plan, colour: Colour) -> String {
    let mut out = String::new();
    for action in plan.actions.iter().filter(|action| action.action != Action::Unchanged) {
        write_action(&mut out, action, colour);
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str(&summary_line(&plan.summary()));
    out.push('\n');
    out
}

/// `Plan: 3 to create, 1 to update; 8 unchanged.`
pub fn summary_line(summary: &Summary) -> String {
    let counts: Vec<String> = Action::ALL
        .into_iter()
        .filter(|action| *action != Action::Unchanged && summary.count(*action) > 0)
        .map(|action| format!("{} to {}", summary.count(action), verb(action)))
        .collect();
    let mut line =
        if counts.is_empty() { "Plan: no changes".to_owned() } else { format!("Plan: {}", counts.join(", ")) };
    if summary.unchanged > 0 || counts.is_empty() {
        let _ = write!(line, "; {} unchanged", summary.unchanged);
    }
    if summary.unverified > 0 {
        let _ = write!(line, "; {} unverified", summary.unverified);
    }
    line.push('.');
    line
}

/// What changed between two states as a table, one line per resource with its fields below, and a summary at the end.
pub fn render_changes(changes: &Changes) -> String {
    let mut out = String::new();
    for resource in &changes.resources {
        let (mark, word) = match resource.change {
            Change::Added => ("+", "added"),
            Change::Changed => ("~", "changed"),
            Change::Removed => ("-", "removed"),
        };
        let _ = write!(out, "{mark} {word:<8} {}", resource.id);
        if let Some(old) = &resource.recorded_as {
            let _ = write!(out, "  (recorded as {old})");
        }
        out.push('\n');
        for change in &resource.changes {
            write_change(&mut out, change);
        }
        for change in &resource.settings {
            write_change(&mut out, &FieldChange { path: format!("its {}", change.path), ..change.clone() });
        }
    }
    if !out.is_empty() {
        out.push('\n');
    }
    let counts = [(Change::Added, "added"), (Change::Changed, "changed"), (Change::Removed, "removed")]
        .map(|(change, word)| (changes.count(change), word));
    let counts: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    let counts = if counts.is_empty() { "no changes".to_owned() } else { counts.join(", ") };
    let _ = writeln!(out, "{counts}; {} unchanged.", changes.unchanged);
    out
}

fn verb(action: Action) -> &'static str {
    match action {
        Action::Create => "create",
        Action::Update => "update",
        Action::Delete => "delete",
        Action::Replace => "replace",
        Action::Adopt => "adopt",
        Action::Import => "import",
        Action::Forget => "forget",
        Action::Unchanged => "keep",
    }
}

/// The mark at the beginning of the line, and its colour in ANSI.
fn mark(action: Action) -> (&'static str, u8) {
    match action {
        Action::Create => ("+", 32),
        Action::Update => ("~", 33),
        Action::Delete => ("-", 31),
        Action::Replace => ("±", 35),
        Action::Adopt => (">", 36),
        Action::Import => ("=", 36),
        Action::Forget => (".", 90),
        Action::Unchanged => (" ", 0),
    }
}

fn write_action(out: &mut String, action: &PlannedAction, colour: Colour) {
    let (mark, code) = mark(action.action);
    let head = format!("{mark} {:<8}", verb(action.action));
    match colour {
        Colour::Never => out.push_str(&head),
        Colour::Always => {
            let _ = write!(out, "\u{1b}[{code}m{head}\u{1b}[0m");
        }
    }
    let _ = write!(out, " {}", action.id);
    if action.drift && action.action == Action::Create {
        out.push_str("  (it was recorded, and is gone)");
    }
    if let Some(old) = &action.recorded_as {
        let _ = write!(out, "  (recorded as {old})");
    }
    match (&action.owned_by, action.action) {
        (Some(owner), Action::Forget) => drop(write!(out, "  ({})", left_alone(owner))),
        (Some(owner), _) => drop(write!(out, "  (taken over from {owner})")),
        (None, Action::Forget) if action.imported => drop(write!(out, "  ({LEFT_AS_IMPORTED})")),
        (None, _) if action.imported => out.push_str("  (it was imported, and is applied for the first time)"),
        (None, _) => {}
    }
    if !action.given_up.is_empty() {
        let _ = write!(out, "  ({})", left_in(&action.given_up));
    }
    if let Some(why) = &action.unverified {
        let _ = write!(out, "  (unverified: {why})");
    }
    out.push('\n');
    for change in &action.changes {
        write_change(out, change);
    }
    for FieldConflict { manager, applies, fields } in &action.taken {
        let how = if *applies { "applies" } else { "changes" };
        let _ = writeln!(out, "    ! taken from {manager}, which {how} them: {}", cut(&fields.join(", ")));
    }
}

fn write_change(out: &mut String, change: &FieldChange) {
    let drift = if change.drift { "  (drift)" } else { "" };
    let path = &change.path;
    let _ = match (&change.before, &change.after) {
        (Some(Value::String(before)), Some(Value::String(after))) if before.contains('\n') || after.contains('\n') => {
            let _ = writeln!(out, "    {path}:{drift}");
            write_lines(out, before, after);
            Ok(())
        }
        (Some(before), Some(after)) => writeln!(out, "    {path}: {} → {}{drift}", short(before), short(after)),
        (None, Some(after)) => writeln!(out, "    + {path}: {}{drift}", short(after)),
        (Some(before), None) => writeln!(out, "    - {path}: {}{drift}", short(before)),
        (None, None) => Ok(()),
    };
}

/// The lines that differ, between those that both texts begin and end with.
fn write_lines(out: &mut String, before: &str, after: &str) {
    let (before, after): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let head = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let rest = before.len().min(after.len()) - head;
    let tail = before.iter().rev().zip(after.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let gone = before[head..before.len() - tail].iter().map(|line| ("-", line));
    let come = after[head..after.len() - tail].iter().map(|line| ("+", line));
    let lines: Vec<_> = gone.chain(come).collect();
    for (mark, line) in lines.iter().take(LINES) {
        let _ = writeln!(out, "      {mark} {}", cut(line));
    }
    match lines.len() {
        0 => out.push_str("      (only the end of the last line)\n"),
        count if count > LINES => drop(writeln!(out, "      … {} lines more", count - LINES)),
        _ => {}
    }
}

fn short(value: &Value) -> String {
    match value {
        Value::String(text) if text == MASK || text == UNKNOWN => text.clone(),
        other => cut(&other.to_string()),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
