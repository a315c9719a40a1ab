//! Profiles as pprof knows them.
//!
//! Follows `proto/profile.proto` of `github.com/google/pprof`, and `runtime/pprof` in what a profile of CPU time says. Gzip around it is part of the
//! format.

use std::{
    cell::OnceCell,
    collections::HashMap,
    io::{self, Write as _},
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use jiff::Timestamp;
use prost::Message;

use super::{
    images::{Image, Symbols},
    sampler::PERIOD,
};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub(super) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(super) sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub(super) mapping: Vec<Mapping>,
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
pub(super) struct Mapping {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(uint64, tag = "2")]
    pub(super) memory_start: u64,
    #[prost(uint64, tag = "3")]
    pub(super) memory_limit: u64,
    #[prost(uint64, tag = "4")]
    pub(super) file_offset: u64,
    #[prost(int64, tag = "5")]
    pub(super) filename: i64,
    #[prost(bool, tag = "7")]
    pub(super) has_functions: bool,
    #[prost(bool, tag = "8")]
    pub(super) has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub(super) has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub(super) has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Location {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(uint64, tag = "2")]
    pub(super) mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub(super) address: u64,
    #[prost(message, repeated, tag = "4")]
    pub(super) line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
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

/// What was sampled.
pub(super) struct Sampled<'a> {
    /// The stacks, and how often each was seen.
    pub(super) counts: &'a HashMap<Vec<u64>, i64>,
    /// What the addresses are in.
    pub(super) images: &'a [Image],
    /// When sampling began.
    pub(super) began: Timestamp,
    /// How long it went on.
    pub(super) took: Duration,
    /// How many samples there was no room for.
    pub(super) lost: usize,
}

/// Writes a profile: samples, and the CPU time that they stand for in nanoseconds.
pub(super) fn encode(sampled: &Sampled<'_>) -> io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&profile(sampled).encode_to_vec())?;
    gzip.finish()
}

fn profile(sampled: &Sampled<'_>) -> Profile {
    let mut tables = Tables::default();
    tables.text("");
    let mut value_type = |r#type, unit| ValueType { r#type: tables.text(r#type), unit: tables.text(unit) };
    let sample_type = vec![value_type("samples", "count"), value_type("cpu", "nanoseconds")];
    let period_type = Some(value_type("cpu", "nanoseconds"));
    let period = i64::from(PERIOD);
    let comment = match sampled.lost {
        0 => Vec::new(),
        lost => vec![tables.text(&format!("{lost} more samples were taken than there was room for"))],
    };
    let mapping = (1..).zip(sampled.images).map(|(id, image)| Mapping {
        id,
        memory_start: image.range.start,
        memory_limit: image.range.end,
        file_offset: image.offset,
        filename: tables.text(&image.path),
        // What pprof finds nothing for here, it would not find elsewhere.
        has_functions: true,
        has_filenames: true,
        has_line_numbers: true,
        has_inline_frames: true,
    });
    let mapping = mapping.collect();
    let symbols: Vec<OnceCell<Symbols<'_>>> = sampled.images.iter().map(|_| OnceCell::new()).collect();
    let mut locations = HashMap::new();
    let mut sample = Vec::with_capacity(sampled.counts.len());
    for (stack, &count) in sampled.counts {
        let location_id = stack.iter().map(|&address| {
            let next = locations.len() as u64 + 1;
            locations
                .entry(address)
                .or_insert_with(|| {
                    let image = sampled.images.iter().position(|image| image.range.contains(&address));
                    let known =
                        image.map(|number| symbols[number].get_or_init(|| Symbols::new(&sampled.images[number])));
                    let lines = known.map(|symbols| symbols.lines(address)).unwrap_or_default();
                    Location {
                        id: next,
                        mapping_id: image.map_or(0, |number| number as u64 + 1),
                        address,
                        line: lines
                            .iter()
                            .map(|line| Line { function_id: tables.function(line), line: line.number.into() })
                            .collect(),
                    }
                })
                .id
        });
        sample.push(Sample { location_id: location_id.collect(), value: vec![count, count * period] });
    }
    let mut location: Vec<Location> = locations.into_values().collect();
    location.sort_unstable_by_key(|location| location.id);
    Profile {
        sample_type,
        sample,
        mapping,
        location,
        function: tables.functions,
        string_table: tables.texts,
        time_nanos: i64::try_from(sampled.began.as_nanosecond()).unwrap_or_default(),
        duration_nanos: i64::try_from(sampled.took.as_nanos()).unwrap_or(i64::MAX),
        period_type,
        period,
        comment,
    }
}

/// What others refer to by number.
#[derive(Default)]
struct Tables {
    texts: Vec<String>,
    known_texts: HashMap<String, i64>,
    functions: Vec<Function>,
    known_functions: HashMap<(i64, i64), u64>,
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

    fn function(&mut self, line: &super::images::Line) -> u64 {
        let (system_name, filename) = (self.text(&line.linked), self.text(&line.file));
        let name = self.text(&line.function);
        let next = self.functions.len() as u64 + 1;
        *self.known_functions.entry((system_name, filename)).or_insert_with(|| {
            self.functions.push(Function { id: next, name, system_name, filename });
            next
        })
    }
}
