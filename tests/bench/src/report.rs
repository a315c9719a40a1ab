//! The result: a table for people, JSON for programs.

use std::fmt;

use serde_json::{Value, json};

use crate::measure::Summary;

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
    stoa: f64,
    aggregated: Option<f64>,
    reference: f64,
}

impl Row {
    /// How many times better Stoa is with this number.
    fn ratio(&self, stoa: f64) -> f64 {
        match self.better {
            Better::Less => self.reference / stoa,
            Better::More => stoa / self.reference,
        }
    }
}

/// What was measured, in order.
#[derive(Debug, Default)]
pub(crate) struct Report {
    notes: Vec<String>,
    sections: Vec<(String, Vec<Row>)>,
}

/// The numbers of the sides: Stoa, where it makes sense Stoa through the aggregation layer, and the reference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) stoa: f64,
    pub(crate) aggregated: Option<f64>,
    pub(crate) reference: f64,
}

impl Numbers {
    /// One number of each summary, which come in the order of the sides.
    pub(crate) fn of(summaries: &[Summary], number: impl Fn(&Summary) -> f64) -> Self {
        match summaries {
            [stoa, aggregated, reference] => {
                Self { stoa: number(stoa), aggregated: Some(number(aggregated)), reference: number(reference) }
            }
            [stoa, reference] => Self { stoa: number(stoa), aggregated: None, reference: number(reference) },
            _ => Self { stoa: f64::NAN, aggregated: None, reference: f64::NAN },
        }
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
        let Numbers { stoa, aggregated, reference } = numbers;
        let row = Row { operation: operation.to_owned(), measure, better, stoa, aggregated, reference };
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
                json!({
                    "section": section,
                    "operation": row.operation,
                    "measure": row.measure,
                    "better": match row.better { Better::Less => "less", Better::More => "more" },
                    "stoa": row.stoa,
                    "aggregated": row.aggregated,
                    "reference": row.reference,
                    "ratio": row.ratio(row.stoa),
                    "ratioAggregated": row.aggregated.map(|aggregated| row.ratio(aggregated)),
                })
            })
        });
        json!({ "notes": self.notes, "rows": rows.collect::<Vec<_>>() })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (section, rows) in &self.sections {
            writeln!(
                f,
                "\n{section:<46} {:>10} {:>10} {:>10} {:>9} {:>9}",
                "stoa", "aggregated", "reference", "ratio", "ratio agg"
            )?;
            let mut before = "";
            for row in rows {
                let operation = if row.operation == before { "" } else { row.operation.as_str() };
                before = &row.operation;
                let optional = |number: Option<f64>| number.map_or_else(String::new, three_digits);
                writeln!(
                    f,
                    "  {operation:<32} {:<11} {:>10} {:>10} {:>10} {:>9} {:>9}",
                    row.measure,
                    three_digits(row.stoa),
                    optional(row.aggregated),
                    three_digits(row.reference),
                    format!("{}×", three_digits(row.ratio(row.stoa))),
                    row.aggregated.map_or_else(String::new, |number| format!("{}×", three_digits(row.ratio(number)))),
                )?;
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

    fn report(better: Better, numbers: Numbers) -> Report {
        let mut report = Report::default();
        report.section("list");
        report.row("JSON", "p50 ms", better, numbers);
        report
    }

    #[test]
    fn ratio_above_one_is_always_good_for_stoa() {
        let numbers = Numbers { stoa: 2.0, aggregated: Some(40.0), reference: 10.0 };
        for (better, ratio, aggregated) in [(Better::Less, 5.0, 0.25), (Better::More, 0.2, 4.0)] {
            let json = report(better, numbers).json();
            assert_eq!(
                (&json["rows"][0]["ratio"], &json["rows"][0]["ratioAggregated"]),
                (&json!(ratio), &json!(aggregated))
            );
        }
    }

    #[test]
    fn table_is_aligned() {
        let text = report(Better::Less, Numbers { stoa: 2.0, aggregated: None, reference: 1234.5 }).to_string();
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        assert!(lines[0].starts_with("list") && lines[1].contains("1234") && lines[1].contains("617×"), "{text}");
        let end = |line: &str, word: &str| line.find(word).map(|at| line[..at].chars().count() + word.len());
        assert_eq!(end(lines[0], "reference"), end(lines[1], "1234"), "{text}");
    }

    #[test]
    fn note_is_said_once() {
        let mut report = Report::default();
        report.note("a");
        report.note("a");
        assert_eq!(report.json()["notes"], json!(["a"]));
    }
}
