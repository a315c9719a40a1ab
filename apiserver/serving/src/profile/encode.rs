//! Profiles in the form that `go tool pprof` reads.
//!
//! Follows `proto/profile.proto` of `github.com/google/pprof`, and `runtime/pprof` in what a profile of CPU time says. Gzip
//! around it is part of the format. `rpprof` can write it, too, but has to compile the proto for that.

use std::{
    collections::HashMap,
    io::{self, Write as _},
    time::UNIX_EPOCH,
};

use flate2::{Compression, write::GzEncoder};
use prost::Message;
use rpprof::{Report, Symbol};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub(super) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(super) sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    pub(super) location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub(super) function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub(super) string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub(super) time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub(super) duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub(super) period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub(super) period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub(super) comment: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueType {
    #[prost(int64, tag = "1")]
    pub(super) r#type: i64,
    #[prost(int64, tag = "2")]
    pub(super) unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub(super) location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub(super) value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Location {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(message, repeated, tag = "4")]
    pub(super) line: Vec<Line>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct Line {
    #[prost(uint64, tag = "1")]
    pub(super) function_id: u64,
    #[prost(int64, tag = "2")]
    pub(super) line: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Function {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(int64, tag = "2")]
    pub(super) name: i64,
    #[prost(int64, tag = "3")]
    pub(super) system_name: i64,
    #[prost(int64, tag = "4")]
    pub(super) filename: i64,
}

/// Writes a profile: the number of samples of each stack, and their CPU time in nanoseconds.
pub(super) fn encode(report: &Report) -> io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&profile(report).encode_to_vec())?;
    gzip.finish()
}

fn profile(report: &Report) -> Profile {
    let mut tables = Tables::default();
    // The format wants the empty string first.
    tables.text("");
    let mut value_type = |r#type, unit| ValueType { r#type: tables.text(r#type), unit: tables.text(unit) };
    let sample_type = vec![value_type("samples", "count"), value_type("cpu", "nanoseconds")];
    let period_type = Some(value_type("cpu", "nanoseconds"));
    let period = 1_000_000_000 / i64::from(report.timing.frequency);
    let comment = match report.missed_samples {
        0 => Vec::new(),
        missed => vec![tables.text(&format!("{missed} samples were missed"))],
    };
    let sample = report.data.iter().map(|(stack, &count)| {
        let location_id = stack.frames.iter().map(|symbols| tables.location(symbols)).collect();
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        Sample { location_id, value: vec![count, count.saturating_mul(period)] }
    });
    let sample = sample.collect();
    let started = report.timing.start_time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Profile {
        sample_type,
        sample,
        location: tables.locations,
        function: tables.functions,
        string_table: tables.texts,
        time_nanos: i64::try_from(started.as_nanos()).unwrap_or(i64::MAX),
        duration_nanos: i64::try_from(report.timing.duration.as_nanos()).unwrap_or(i64::MAX),
        period_type,
        period,
        comment,
    }
}

/// The tables whose entries are referred to by number.
#[derive(Default)]
struct Tables {
    texts: Vec<String>,
    known_texts: HashMap<String, i64>,
    functions: Vec<Function>,
    known_functions: HashMap<(i64, i64), u64>,
    locations: Vec<Location>,
    known_locations: HashMap<Vec<Line>, u64>,
}

impl Tables {
    fn text(&mut self, text: &str) -> i64 {
        if let Some(&number) = self.known_texts.get(text) {
            return number;
        }
        let number = self.texts.len() as i64;
        self.texts.push(text.to_owned());
        self.known_texts.insert(text.to_owned(), number);
        number
    }

    fn function(&mut self, symbol: &Symbol) -> u64 {
        let (system_name, filename) = (self.text(&symbol.sys_name()), self.text(&symbol.filename()));
        let name = self.text(&symbol.name());
        let next = self.functions.len() as u64 + 1;
        *self.known_functions.entry((system_name, filename)).or_insert_with(|| {
            self.functions.push(Function { id: next, name, system_name, filename });
            next
        })
    }

    /// A frame: its function, after those that are inlined into it.
    fn location(&mut self, symbols: &[Symbol]) -> u64 {
        let line =
            symbols.iter().map(|symbol| Line { function_id: self.function(symbol), line: symbol.lineno().into() });
        let line: Vec<Line> = line.collect();
        let next = self.locations.len() as u64 + 1;
        *self.known_locations.entry(line.clone()).or_insert_with(|| {
            self.locations.push(Location { id: next, line });
            next
        })
    }
}
