//! Rendered plans and state changes, as text for people.
//!
//! ```text
//! + create   v1:ConfigMap:shop:web
//! ~ update   apps/v1:Deployment:shop:web
//!     spec.replicas: 1 → 2
//! - delete   v1:Secret:shop:old
//!
//! Plan: 1 to create, 1 to update, 1 to delete; 8 unchanged.
//! ```

mod block;

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

use serde_json::Value;

use crate::changes::{Change, Changes, NotCompared};
use crate::conflict::FieldConflict;
use crate::forgotten_clusters::forgotten_message;
use crate::hook::LEFT_BY_POLICY;
use crate::import::LEFT_AS_IMPORTED;
use crate::owner::LeftAlone;
use crate::plan::{Action, FieldChange, Plan, PlannedAction, Summary, same_object_message};
use crate::sensitive::{MASK, UNKNOWN};
use crate::spec::ResourceId;

/// Whether a table is coloured for a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colour {
    /// Plain text.
    #[default]
    Never,
    /// ANSI escape sequences.
    Always,
}

/// The colour of a warning: yellow.
const WARNING: u8 = 33;

/// The table so far. Its texts come from sources and clusters. They are escaped, so that they cannot move the cursor,
/// colour the table or start a line, which would hide changes.
struct Table {
    text: String,
    colour: Colour,
    /// The number of omitted fields, since the table has its [maximum size](LONGEST).
    left_out: usize,
}

impl Table {
    fn new(colour: Colour) -> Self {
        Self { text: String::new(), colour, left_out: 0 }
    }

    /// Ends the part about resources.
    fn end(&mut self) {
        let left_out = self.left_out;
        if left_out > 0 {
            let _ = write!(self, "… {left_out} fields are omitted because the table would be too long");
            self.end_line();
        }
        if !self.text.is_empty() {
            self.end_line();
        }
    }

    fn push_str(&mut self, text: &str) {
        self.text.extend(text.chars().map(visible));
    }

    /// Writes a text in the colour of an ANSI code; 0 is none.
    fn paint(&mut self, code: u8, text: &str) {
        if self.colour == Colour::Never || code == 0 {
            return self.push_str(text);
        }
        let _ = write!(self.text, "\u{1b}[{code}m");
        self.push_str(text);
        self.text.push_str("\u{1b}[0m");
    }

    fn end_line(&mut self) {
        self.text.push('\n');
    }
}

impl Write for Table {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_str(text);
        Ok(())
    }
}

/// A visible character in place of a control character.
fn visible(c: char) -> char {
    match c {
        '\t' => c,
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
        '\u{7f}' => '\u{2421}',
        // The rest of the control characters, line ends, and marks that turn the direction of the text.
        '\u{80}'..='\u{9f}'
        | '\u{61c}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        _ => c,
    }
}

const RED: u8 = 31;
const GREEN: u8 = 32;
const YELLOW: u8 = 33;
/// The colour of a hook: blue.
const HOOK: u8 = 34;

/// Values longer than this many characters are cut, or written on several lines.
const WIDTH: usize = 80;
/// The maximum number of shown lines of an added or removed value.
const BLOCK: usize = 200;
/// At most this many lines of a text that changes are shown.
const LINES: usize = 20;
/// Once the table has this many bytes no more fields are shown, but every resource is.
const LONGEST: usize = 4 << 20;

/// The plan as a table: one line for each change with its fields below, and a summary. Unchanged resources, and data
/// sources that were read for the plan, only count in the summary. Fields beyond some MiB are omitted.
pub fn render(plan: &Plan, colour: Colour) -> String {
    render_with_origins(plan, colour, &BTreeMap::new())
}

/// The same with the origin of each resource below its line, such as `apps/web.yaml:12`, where it is in `origins`.
pub fn render_with_origins(plan: &Plan, colour: Colour, origins: &BTreeMap<ResourceId, String>) -> String {
    let mut out = Table::new(colour);
    for action in plan.actions.iter().filter(|action| action.is_shown()) {
        write_action(&mut out, action, origins.get(&action.id));
    }
    write_hooks(&mut out, plan);
    out.end();
    for warning in &plan.warnings {
        out.paint(WARNING, "warning: ");
        out.push_str(warning);
        out.end_line();
    }
    if !plan.warnings.is_empty() {
        out.end_line();
    }
    out.push_str(&summary_line(&plan.summary()));
    out.end_line();
    out.text
}

/// `Plan: 3 to create, 1 to update; 8 unchanged.`
pub fn summary_line(summary: &Summary) -> String {
    let counts: Vec<String> = Action::ALL
        .into_iter()
        .filter(|action| !is_no_change(*action) && summary.count(*action) > 0)
        .map(|action| format!("{} to {}", summary.count(action), verb(action)))
        .collect();
    let mut line =
        if counts.is_empty() { "Plan: no changes".to_owned() } else { format!("Plan: {}", counts.join(", ")) };
    if summary.hooks > 0 {
        let _ = write!(line, "; {} {} to run", summary.hooks, if summary.hooks == 1 { "hook" } else { "hooks" });
    }
    if summary.unchanged > 0 || counts.is_empty() {
        let _ = write!(line, "; {} unchanged", summary.unchanged);
    }
    if summary.read > 0 {
        let _ = write!(line, "; {} read", summary.read);
    }
    if summary.unverified > 0 {
        let _ = write!(line, "; {} unverified", summary.unverified);
    }
    line.push('.');
    line
}

/// The summary for a table cell or one line: `+12 ~3 -0 ±1`, or `no changes`.
///
/// Creations, updates and deletions are always shown, other actions only if the plan has any. Each has its
/// [mark](Action::mark), and hooks have `*`.
pub fn short_summary(summary: &Summary) -> String {
    let actions = Action::ALL.into_iter().filter(|action| !is_no_change(*action));
    let hooks = (summary.hooks > 0).then(|| format!("*{}", summary.hooks));
    if actions.clone().all(|action| summary.count(action) == 0) {
        return hooks.unwrap_or_else(|| "no changes".to_owned());
    }
    let is_always_there = |action: Action| matches!(action, Action::Create | Action::Update | Action::Delete);
    let shown = actions.filter(|action| is_always_there(*action) || summary.count(*action) > 0);
    let shown = shown.map(|action| format!("{}{}", action.mark(), summary.count(action)));
    shown.chain(hooks).collect::<Vec<_>>().join(" ")
}

/// The changes between two states as a table, with a line for each resource, its fields below, and a summary.
pub fn render_changes(changes: &Changes, colour: Colour) -> String {
    let mut out = Table::new(colour);
    for resource in &changes.resources {
        let (mark, word, code) = match resource.change {
            Change::Added => ("+", "added", GREEN),
            Change::Changed => ("~", "changed", YELLOW),
            Change::Removed => ("-", "removed", RED),
        };
        out.paint(code, &format!("{mark} {word:<8}"));
        let _ = write!(out, " {}", resource.id);
        if let Some(old) = &resource.recorded_as {
            let _ = write!(out, "  (recorded as {old})");
        }
        out.end_line();
        write_changes(&mut out, &resource.changes);
        let settings = resource.settings.iter();
        write_changes(
            &mut out,
            settings.map(|change| FieldChange { path: format!("its {}", change.path), ..change.clone() }),
        );
    }
    out.end();
    let counts = [(Change::Added, "added"), (Change::Changed, "changed"), (Change::Removed, "removed")]
        .map(|(change, word)| (changes.count(change), word));
    let counts: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    let counts = if counts.is_empty() { "no changes".to_owned() } else { counts.join(", ") };
    let _ = write!(out, "{counts}; {} unchanged.", changes.unchanged);
    out.end_line();
    if !changes.not_compared.is_empty() {
        out.push_str("Sensitive values that are not compared:");
        out.end_line();
    }
    for NotCompared { id, paths } in &changes.not_compared {
        let _ = write!(out, "    {id}: {}", paths.join(", "));
        out.end_line();
    }
    out.text
}

fn is_no_change(action: Action) -> bool {
    matches!(action, Action::Read | Action::Unchanged)
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
        Action::Read => "read",
        Action::Unchanged => "keep",
    }
}

/// The ANSI colour of an action's mark.
fn code(action: Action) -> u8 {
    match action {
        Action::Create => GREEN,
        Action::Update => YELLOW,
        Action::Delete => RED,
        Action::Replace => 35,
        Action::Adopt | Action::Import | Action::Read => 36,
        Action::Forget => 90,
        Action::Unchanged => 0,
    }
}

/// The hooks in their order, as far as they are before or after the changes.
fn write_hooks(out: &mut Table, plan: &Plan) {
    for hook in &plan.hooks {
        out.paint(HOOK, "* hook    ");
        let _ = write!(out, " {}  ({}", hook.resource, hook.event);
        if hook.weight != 0 {
            let _ = write!(out, ", weight {}", hook.weight);
        }
        out.push_str(")");
        out.end_line();
    }
}

fn write_action(out: &mut Table, action: &PlannedAction, origin: Option<&String>) {
    out.paint(code(action.action), &format!("{} {:<8}", action.action.mark(), verb(action.action)));
    let _ = write!(out, " {}", action.id);
    if action.drift && action.action == Action::Create {
        out.push_str("  (it was recorded, but no longer exists)");
    }
    if let Some(old) = &action.recorded_as {
        let _ = write!(out, "  (recorded as {old})");
    }
    if let Some(wanted) = &action.kept_as {
        let _ = write!(out, "  ({})", same_object_message(wanted));
    }
    match (&action.owned_by, action.action) {
        (Some(owner), Action::Forget) => drop(write!(out, "  ({})", LeftAlone::Owned(owner.clone()))),
        (Some(owner), _) => drop(write!(out, "  (taken over from {owner})")),
        (None, Action::Forget) if action.kept_by_policy => drop(write!(out, "  ({LEFT_BY_POLICY})")),
        (None, Action::Forget) if action.imported => drop(write!(out, "  ({LEFT_AS_IMPORTED})")),
        (None, _) if action.imported => out.push_str("  (it was imported; this is its first apply)"),
        (None, _) => {}
    }
    match action.action {
        Action::Forget if action.recreated => drop(write!(out, "  ({})", LeftAlone::Recreated)),
        _ if action.recreated => {
            out.push_str("  (the applied object no longer exists; another object has its name and is taken over)");
        }
        _ => {}
    }
    if action.takes_over {
        out.push_str("  (an object already exists there and is taken over)");
    }
    if !action.forgotten_clusters.is_empty() {
        let _ = write!(out, "  ({})", forgotten_message(&action.forgotten_clusters));
    }
    if let Some(why) = &action.unverified {
        let _ = write!(out, "  (unverified: {why})");
    }
    if let Some(why) = &action.refused {
        let _ = write!(out, "  (an apply would be refused: {why})");
    }
    out.end_line();
    if let Some(origin) = origin {
        let _ = write!(out, "    from {origin}");
        out.end_line();
    }
    write_changes(out, &action.changes);
    for FieldConflict { manager, applies, fields } in &action.taken {
        let how = if *applies { "applies" } else { "changes" };
        let line = format!("! taken from {manager}, which {how} them: {}", cut(&fields.join(", ")));
        write_line(out, YELLOW, &line);
    }
}

/// The fields of a resource, as far as they fit.
fn write_changes<C: Borrow<FieldChange>>(out: &mut Table, changes: impl IntoIterator<Item = C>) {
    let mut left_out = 0;
    for change in changes {
        if out.text.len() < LONGEST {
            write_change(out, change.borrow());
        } else {
            left_out += 1;
        }
    }
    if left_out > 0 {
        let _ = write!(out, "    … {left_out} more fields");
        out.end_line();
        out.left_out += left_out;
    }
}

fn write_change(out: &mut Table, change: &FieldChange) {
    let drift = match (change.drift, change.forces_replacement) {
        (_, true) => "  # forces replacement",
        (true, false) => "  (drift)",
        (false, false) => "",
    };
    let path = &change.path;
    match (&change.before, &change.after) {
        (Some(Value::String(before)), Some(Value::String(after))) if before.contains('\n') || after.contains('\n') => {
            let _ = write!(out, "    {path}:{drift}");
            out.end_line();
            write_lines(out, before, after);
        }
        (Some(before), Some(after)) => {
            let _ = write!(out, "    {path}: ");
            out.paint(RED, &short(before));
            out.push_str(" → ");
            out.paint(GREEN, &short(after));
            let _ = write!(out, "{drift}");
            out.end_line();
        }
        (None, Some(after)) => write_whole(out, GREEN, &format!("+ {path}:"), after, drift),
        (Some(before), None) => write_whole(out, RED, &format!("- {path}:"), before, drift),
        (None, None) => {}
    }
}

/// A value that is added or removed as a whole.
fn write_whole(out: &mut Table, code: u8, name: &str, value: &Value, drift: &str) {
    let lines = block::entry(name, value);
    for (number, line) in lines.iter().take(BLOCK).enumerate() {
        // Below the path, after a symbol.
        let (indent, note) = if number == 0 { ("", drift) } else { ("  ", "") };
        write_line(out, code, &format!("{indent}{line}{note}"));
    }
    if lines.len() > BLOCK {
        let _ = write!(out, "      … {} lines more", lines.len() - BLOCK);
        out.end_line();
    }
}

fn write_line(out: &mut Table, code: u8, line: &str) {
    out.push_str("    ");
    out.paint(code, line);
    out.end_line();
}

/// The lines that differ, between those that both texts begin and end with.
fn write_lines(out: &mut Table, before: &str, after: &str) {
    let (before, after): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let head = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let rest = before.len().min(after.len()) - head;
    let tail = before.iter().rev().zip(after.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let gone = before[head..before.len() - tail].iter().map(|line| (RED, "-", line));
    let come = after[head..after.len() - tail].iter().map(|line| (GREEN, "+", line));
    let lines: Vec<_> = gone.chain(come).collect();
    for (code, mark, line) in lines.iter().take(LINES) {
        write_line(out, *code, &format!("  {mark} {}", cut(line)));
    }
    match lines.len() {
        0 => {
            out.push_str("      (only the end of the last line)");
            out.end_line();
        }
        count if count > LINES => {
            let _ = write!(out, "      … {} lines more", count - LINES);
            out.end_line();
        }
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
