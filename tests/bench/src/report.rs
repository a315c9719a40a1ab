//! The result: a table for people, JSON for programs.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use crate::measure::{Side, Summary};

/// Which of two numbers is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Less,
    More,
}

#[derive(Debug)]
struct Row {
    operation: String,
    measure: &'static str,
    better: Better,
    numbers: Numbers,
}

/// Which side is compared with which, and what that is called: for people, and for programs.
const RATIOS: [(Side, Side, &str, &str); 8] = [
    (Side::Stoa, Side::Sample, "/ sample", "ratioSample"),
    (Side::Stoa, Side::Reference, "/ ref", "ratio"),
    (Side::Aggregated, Side::Reference, "agg / ref", "ratioAggregated"),
    (Side::Stoa, Side::Floor, "/ floor", "ratioFloor"),
    (Side::Stoa, Side::Kpt, "/ kpt", "ratioKpt"),
    (Side::Stoa, Side::Terraform, "/ terraform", "ratioTerraform"),
    (Side::Stoa, Side::Command, "/ command", "ratioCommand"),
    (Side::Stoa, Side::Library, "/ library", "ratioLibrary"),
];

/// The columns and what they are called.
const COLUMNS: [(Side, &str); 9] = [
    (Side::Stoa, "stoa"),
    (Side::Aggregated, "aggregated"),
    (Side::Sample, "sample"),
    (Side::Reference, "reference"),
    (Side::Floor, "floor"),
    (Side::Kpt, "kpt"),
    (Side::Terraform, "terraform"),
    (Side::Command, "command"),
    (Side::Library, "library"),
];

impl Row {
    /// How many times better `side` is than `other` with this number.
    fn ratio(&self, side: Side, other: Side) -> Option<f64> {
        let (number, other) = (self.numbers.get(side)?, self.numbers.get(other)?);
        Some(match self.better {
            Better::Less => other / number,
            Better::More => number / other,
        })
    }
}

/// What was measured, in order.
#[derive(Debug, Default)]
pub(crate) struct Report {
    notes: Vec<String>,
    sections: Vec<(String, Vec<Row>)>,
}

/// One number of each side that was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Numbers(BTreeMap<Side, f64>);

impl Numbers {
    /// One number of each summary.
    pub(crate) fn of(summaries: &[Summary], number: impl Fn(&Summary) -> f64) -> Self {
        summaries.iter().map(|summary| (summary.side, number(summary))).collect()
    }

    /// The number of a side.
    pub(crate) fn get(&self, side: Side) -> Option<f64> {
        self.0.get(&side).copied()
    }

    /// The same with another number of a side.
    pub(crate) fn with(mut self, side: Side, number: f64) -> Self {
        self.0.insert(side, number);
        self
    }

    /// What is more here than in `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        self.0.iter().filter_map(|(side, number)| Some((*side, number - before.get(*side)?))).collect()
    }
}

impl FromIterator<(Side, f64)> for Numbers {
    fn from_iter<T: IntoIterator<Item = (Side, f64)>>(numbers: T) -> Self {
        Self(numbers.into_iter().collect())
    }
}

/// Fewer samples than this say nothing about one in a hundred.
const SAMPLES_FOR_P99: usize = 100;

impl Report {
    /// Adds a sentence on how to read the numbers; a second time, nothing.
    pub(crate) fn note(&mut self, note: &str) {
        if !self.notes.iter().any(|other| other == note) {
            self.notes.push(note.to_owned());
        }
    }

    /// Begins a part of the table.
    pub(crate) fn section(&mut self, title: impl Into<String>) {
        self.sections.push((title.into(), Vec::new()));
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, operation: &str, measure: &'static str, better: Better, numbers: Numbers) {
        let row = Row { operation: operation.to_owned(), measure, better, numbers };
        if self.sections.is_empty() {
            self.section("");
        }
        let (_, rows) = self.sections.last_mut().expect("there is a section");
        rows.push(row);
    }

    /// Adds latency and processor time of an operation.
    pub(crate) fn operation(&mut self, operation: &str, summaries: &[Summary]) {
        let of = |number: &dyn Fn(&Summary) -> f64| Numbers::of(summaries, number);
        self.row(operation, "p50 ms", Better::Less, of(&|side| side.latency_ms(0.5)));
        if summaries.iter().all(|side| side.samples() >= SAMPLES_FOR_P99) {
            self.row(operation, "p99 ms", Better::Less, of(&|side| side.latency_ms(0.99)));
        }
        self.row(operation, "CPU ms", Better::Less, of(&Summary::cpu_ms));
    }

    /// Adds how many operations were made per second.
    pub(crate) fn throughput(&mut self, operation: &str, summaries: &[Summary]) {
        self.row(operation, "per second", Better::More, Numbers::of(summaries, Summary::per_second));
    }

    /// Adds how many bytes an answer had.
    pub(crate) fn size(&mut self, operation: &str, summaries: &[Summary]) {
        self.row(operation, "kB", Better::Less, Numbers::of(summaries, Summary::kilobytes));
    }

    /// The same for programs.
    pub(crate) fn json(&self) -> Value {
        let rows = self.sections.iter().flat_map(|(section, rows)| {
            rows.iter().map(move |row| {
                let mut value = json!({
                    "section": section,
                    "operation": row.operation,
                    "measure": row.measure,
                    "better": match row.better { Better::Less => "less", Better::More => "more" },
                });
                for (side, key) in COLUMNS {
                    value[key] = json!(row.numbers.get(side));
                }
                for (side, other, _, key) in RATIOS {
                    value[key] = json!(row.ratio(side, other));
                }
                value
            })
        });
        json!({ "notes": self.notes, "rows": rows.collect::<Vec<_>>() })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (section, rows) in &self.sections {
            write!(f, "\n{section:<46}")?;
            let is_there = |side: Side| rows.iter().any(|row| row.numbers.get(side).is_some());
            let columns: Vec<_> = COLUMNS.iter().filter(|(side, _)| is_there(*side)).collect();
            let ratios: Vec<_> =
                RATIOS.iter().filter(|(side, other, ..)| is_there(*side) && is_there(*other)).collect();
            let titles = columns.iter().map(|(_, title)| title).chain(ratios.iter().map(|(_, _, title, _)| title));
            for title in titles {
                write!(f, " {title:>10}")?;
            }
            writeln!(f)?;
            let mut before = "";
            for row in rows {
                let operation = if row.operation == before { "" } else { row.operation.as_str() };
                before = &row.operation;
                write!(f, "  {operation:<32} {:<11}", row.measure)?;
                for (side, _) in &columns {
                    write!(f, " {:>10}", row.numbers.get(*side).map_or_else(String::new, three_digits))?;
                }
                for (side, other, ..) in &ratios {
                    let ratio = row.ratio(*side, *other).map_or_else(String::new, |ratio| three_digits(ratio) + "×");
                    write!(f, " {ratio:>10}")?;
                }
                writeln!(f)?;
            }
        }
        writeln!(f)?;
        for note in &self.notes {
            writeln!(f, "* {note}")?;
        }
        Ok(())
    }
}

/// As many decimals as tell numbers apart.
fn three_digits(number: f64) -> String {
    match number.abs() {
        size if size >= 100.0 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        size if size >= 1.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(better: Better, numbers: &[(Side, f64)]) -> Report {
        let mut report = Report::default();
        report.section("list");
        report.row("JSON", "p50 ms", better, numbers.iter().copied().collect());
        report
    }

    #[test]
    fn ratio_above_one_is_always_good_for_stoa() {
        let numbers = [(Side::Stoa, 2.0), (Side::Aggregated, 40.0), (Side::Reference, 10.0)];
        for (better, ratio, aggregated) in [(Better::Less, 5.0, 0.25), (Better::More, 0.2, 4.0)] {
            let row = &report(better, &numbers).json()["rows"][0];
            let ratios = [&row["ratio"], &row["ratioAggregated"], &row["ratioSample"]];
            assert_eq!(ratios, [&json!(ratio), &json!(aggregated), &json!(null)]);
        }
    }

    #[test]
    fn table_is_aligned() {
        let text = report(Better::Less, &[(Side::Stoa, 2.0), (Side::Reference, 1234.5)]).to_string();
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        assert!(lines[0].starts_with("list") && lines[1].contains("1234") && lines[1].contains("617×"), "{text}");
        let end = |line: &str, word: &str| line.find(word).map(|at| line[..at].chars().count() + word.chars().count());
        assert_eq!(end(lines[0], "reference"), end(lines[1], "1234"), "{text}");
        assert_eq!(end(lines[0], " / ref"), end(lines[1], "617×"), "{text}");
    }

    #[test]
    fn note_is_said_once() {
        let mut report = Report::default();
        report.note("a");
        report.note("a");
        assert_eq!(report.json()["notes"], json!(["a"]));
    }
}
