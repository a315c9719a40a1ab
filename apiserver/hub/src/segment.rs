//! Segments: immutable files of transitions in the format Parquet, column by column.
//!
//! Start at [`pack`] and [`read`]. The rows of a segment are sorted by host, reconciler and time, so that a dictionary and the
//! statistics of its row groups say where a host is. A segment has a bounded number of rows and bytes. A reader passes over
//! row groups and columns without a wanted row.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::Bytes;
use parquet::{
    column::reader::ColumnReader,
    data_type::{ByteArray, ByteArrayType, Int64Type},
    errors::ParquetError,
    file::{
        metadata::RowGroupMetaData,
        properties::WriterProperties,
        reader::{FileReader as _, RowGroupReader},
        serialized_reader::SerializedFileReader,
        writer::SerializedFileWriter,
    },
    schema::parser::parse_message_type,
};

use crate::Transition;

/// The most rows of a segment.
pub const MAX_ROWS: usize = 250_000;
/// The most bytes of a segment.
pub const MAX_BYTES: usize = 64 << 20;
/// The most bytes of the texts of a segment before their encoding.
const MAX_TEXT: usize = 32 << 20;
/// The rows of a row group, which is the unit of a read.
const GROUP: usize = 10_000;
/// A reader skips the unwanted rows of a column where at most one row in this number is wanted. Otherwise it reads the column.
const SPARSE: usize = 4;

const SCHEMA: &str = "message transition {
    REQUIRED INT64 time (TIMESTAMP_MICROS);
    REQUIRED BYTE_ARRAY host (UTF8);
    REQUIRED BYTE_ARRAY reconciler (UTF8);
    REQUIRED BYTE_ARRAY endpoint (UTF8);
    REQUIRED BYTE_ARRAY commit (UTF8);
    REQUIRED BYTE_ARRAY status (UTF8);
    REQUIRED BYTE_ARRAY message (UTF8);
}";
/// The columns by their positions in the schema.
const TIME: usize = 0;
const HOST: usize = 1;
const RECONCILER: usize = 2;
const ENDPOINT: usize = 3;
const COMMIT: usize = 4;
const STATUS: usize = 5;
const MESSAGE: usize = 6;
const COLUMNS: usize = 7;

/// Why a segment cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The bytes are not a segment.
    #[error("the segment is corrupt: {0}")]
    Corrupt(String),
    /// The rows cannot be encoded.
    #[error("the segment cannot be written: {0}")]
    Write(String),
}

/// A new segment.
#[derive(Clone, Debug)]
pub struct Packed {
    /// The file.
    pub bytes: Bytes,
    /// The number of rows.
    pub rows: usize,
    /// The times of the first and of the last transition, in microseconds since the Unix epoch.
    pub times: (i64, i64),
}

/// The wanted rows.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The first and the last time, in microseconds since the Unix epoch.
    pub times: (i64, i64),
    /// The host; `None` for all.
    pub host: Option<String>,
    /// The name of the Reconciler; `None` for all.
    pub reconciler: Option<String>,
    /// The endpoints; `None` for all.
    pub endpoints: Option<HashSet<String>>,
    /// Whether rows have their hosts and messages. Without them, both may be empty, and a reader is quicker.
    pub has_details: bool,
}

impl Filter {
    /// All rows.
    pub fn all() -> Self {
        Self { times: (i64::MIN, i64::MAX), host: None, reconciler: None, endpoints: None, has_details: true }
    }

    /// Whether a transition is wanted.
    pub fn matches(&self, row: &Transition) -> bool {
        let is = |wanted: &Option<String>, text: &str| wanted.as_deref().is_none_or(|wanted| wanted == text);
        self.times.0 <= row.time
            && row.time <= self.times.1
            && is(&self.host, &row.host)
            && is(&self.reconciler, &row.reconciler)
            && self.endpoints.as_ref().is_none_or(|endpoints| endpoints.contains(&*row.endpoint))
    }
}

/// Writes transitions to as many segments as they need; equal ones become one row.
///
/// # Errors
///
/// [`SegmentError::Write`].
pub fn pack(mut rows: Vec<Transition>) -> Result<Vec<Packed>, SegmentError> {
    rows.sort_unstable();
    rows.dedup();
    let mut packed = Vec::new();
    let mut rest = rows.as_slice();
    while !rest.is_empty() {
        let mut text = 0;
        let fits = rest.iter().take(MAX_ROWS).take_while(|row| {
            text += row.text_bytes();
            text <= MAX_TEXT
        });
        // One row is always written.
        let (now, later) = rest.split_at(fits.count().max(1));
        let bytes = write(now).map_err(|error| SegmentError::Write(error.to_string()))?;
        let times = now.iter().map(|row| row.time);
        let times = (times.clone().min().unwrap_or_default(), times.max().unwrap_or_default());
        packed.push(Packed { bytes, rows: now.len(), times });
        rest = later;
    }
    Ok(packed)
}

/// The texts of a column.
fn texts(rows: &[Transition], column: usize) -> Vec<ByteArray> {
    let text = |row: &Transition| -> Arc<str> {
        let text = match column {
            HOST => &row.host,
            RECONCILER => &row.reconciler,
            ENDPOINT => &row.endpoint,
            COMMIT => &row.commit,
            STATUS => &row.status,
            _ => &row.message,
        };
        text.clone()
    };
    rows.iter().map(|row| ByteArray::from(text(row).as_bytes().to_vec())).collect()
}

fn write(rows: &[Transition]) -> Result<Bytes, ParquetError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = Arc::new(WriterProperties::builder().set_created_by("stoa".to_owned()).build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    for group in rows.chunks(GROUP) {
        let mut columns = writer.next_row_group()?;
        let mut position = 0;
        while let Some(mut column) = columns.next_column()? {
            if position == TIME {
                let times: Vec<i64> = group.iter().map(|row| row.time).collect();
                column.typed::<Int64Type>().write_batch(times.as_slice(), None, None)?;
            } else {
                let texts = texts(group, position);
                column.typed::<ByteArrayType>().write_batch(texts.as_slice(), None, None)?;
            }
            column.close()?;
            position += 1;
        }
        columns.close()?;
    }
    Ok(writer.into_inner()?.into())
}

/// Reads the wanted rows of a segment, in their order, and hands each of them to a function.
///
/// The bytes are those of a stored document, whose digest was checked: a damaged document does not come here. A file of others
/// is an error, and so is one that the reader panics about.
///
/// # Errors
///
/// [`SegmentError::Corrupt`]; some rows may have been handed over by then.
pub fn read(bytes: &Bytes, filter: &Filter, mut each: impl FnMut(Transition)) -> Result<(), SegmentError> {
    if bytes.len() > MAX_BYTES {
        return Err(SegmentError::Corrupt(format!("it has {} bytes, more than {MAX_BYTES}", bytes.len())));
    }
    match catch_unwind(AssertUnwindSafe(|| read_rows(bytes, filter, &mut each))) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(SegmentError::Corrupt(error.to_string())),
        Err(_) => Err(SegmentError::Corrupt("the reader panicked".to_owned())),
    }
}

fn corrupt(why: impl Into<String>) -> ParquetError {
    ParquetError::General(why.into())
}

fn read_rows(bytes: &Bytes, filter: &Filter, each: &mut impl FnMut(Transition)) -> Result<(), ParquetError> {
    let reader = SerializedFileReader::new(bytes.clone())?;
    let most = i64::try_from(MAX_ROWS).unwrap_or(i64::MAX);
    let file = reader.metadata().file_metadata();
    if !(0..=most).contains(&file.num_rows()) {
        return Err(corrupt(format!("it has {} rows", file.num_rows())));
    }
    if file.schema_descr().num_columns() != COLUMNS {
        return Err(corrupt("it has other columns"));
    }
    for position in 0..reader.num_row_groups() {
        let group = reader.get_row_group(position)?;
        let is_excluded = |column: usize, wanted: &Option<String>| {
            wanted.as_ref().is_some_and(|wanted| excludes(group.metadata(), column, wanted.as_bytes()))
        };
        if is_excluded(HOST, &filter.host) || is_excluded(RECONCILER, &filter.reconciler) {
            continue;
        }
        read_group(&*group, filter, each)?;
    }
    Ok(())
}

/// Whether the statistics of a row group say that no row has a text.
fn excludes(group: &RowGroupMetaData, column: usize, wanted: &[u8]) -> bool {
    let Some(statistics) = group.column(column).statistics() else { return false };
    statistics.min_bytes_opt().is_some_and(|min| wanted < min)
        || statistics.max_bytes_opt().is_some_and(|max| wanted > max)
}

fn read_group(
    group: &dyn RowGroupReader,
    filter: &Filter,
    each: &mut impl FnMut(Transition),
) -> Result<(), ParquetError> {
    let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(usize::MAX);
    if rows > MAX_ROWS {
        return Err(corrupt(format!("a row group has {rows} rows")));
    }
    let times = times(group, rows)?;
    let is_in_time = |row: &usize| filter.times.0 <= times[*row] && times[*row] <= filter.times.1;
    let mut wanted = Wanted { group, of: rows, rows: (0..rows).filter(is_in_time).collect() };
    // Column by column: of most row groups, later columns have no row or few rows to read.
    if let Some(of) = &filter.endpoints {
        wanted.retain(ENDPOINT, |endpoint| of.contains(endpoint))?;
    }
    if let Some(of) = &filter.host {
        wanted.retain(HOST, |host| host == of)?;
    }
    if let Some(of) = &filter.reconciler {
        wanted.retain(RECONCILER, |reconciler| reconciler == of)?;
    }
    if wanted.rows.is_empty() {
        return Ok(());
    }
    let mut reconcilers = wanted.texts(RECONCILER)?;
    let mut endpoints = wanted.texts(ENDPOINT)?;
    let mut commits = wanted.texts(COMMIT)?;
    let mut statuses = wanted.texts(STATUS)?;
    let mut details = match filter.has_details {
        true => Some((wanted.texts(HOST)?, wanted.texts(MESSAGE)?)),
        false => None,
    };
    let absent: Arc<str> = Arc::from("");
    for (position, row) in wanted.rows.iter().enumerate() {
        let (host, message) = match &mut details {
            Some((hosts, messages)) => (hosts.text(position)?, messages.text(position)?),
            None => (absent.clone(), absent.clone()),
        };
        each(Transition {
            host,
            reconciler: reconcilers.text(position)?,
            time: times[*row],
            endpoint: endpoints.text(position)?,
            commit: commits.text(position)?,
            status: statuses.text(position)?,
            message,
        });
    }
    Ok(())
}

/// The wanted rows of a row group, in ascending order.
struct Wanted<'g> {
    group: &'g dyn RowGroupReader,
    /// The number of all rows.
    of: usize,
    rows: Vec<usize>,
}

impl Wanted<'_> {
    /// Leaves the rows whose text in a column is wanted.
    fn retain(&mut self, column: usize, is_wanted: impl Fn(&str) -> bool) -> Result<(), ParquetError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut texts = self.texts(column)?;
        let mut left = Vec::new();
        let mut last: Option<(Arc<str>, bool)> = None;
        for (position, row) in self.rows.iter().enumerate() {
            let text = texts.text(position)?;
            let is_left = match &last {
                Some((before, is_left)) if Arc::ptr_eq(before, &text) => *is_left,
                _ => is_wanted(&text),
            };
            if is_left {
                left.push(*row);
            }
            last = Some((text, is_left));
        }
        self.rows = left;
        Ok(())
    }

    /// The texts of the rows in a column.
    fn texts(&self, column: usize) -> Result<Texts, ParquetError> {
        let ColumnReader::ByteArrayColumnReader(mut reader) = self.group.get_column_reader(column)? else {
            return Err(corrupt(format!("column {column} has another type")));
        };
        let too_short = || corrupt(format!("column {column} is too short"));
        let mut values = Vec::with_capacity(self.rows.len());
        if self.rows.len() > self.of / SPARSE {
            let mut all = Vec::with_capacity(self.of);
            reader.read_records(self.of, None, None, &mut all)?;
            if all.len() != self.of {
                return Err(too_short());
            }
            match self.rows.len() == self.of {
                true => values = all,
                false => values.extend(self.rows.iter().map(|row| all[*row].clone())),
            }
        } else {
            let mut next = 0;
            for run in self.rows.chunk_by(|row, following| row + 1 == *following) {
                let gap = run[0] - next;
                if reader.skip_records(gap)? != gap {
                    return Err(too_short());
                }
                reader.read_records(run.len(), None, None, &mut values)?;
                next = run[0] + run.len();
            }
        }
        if values.len() != self.rows.len() {
            return Err(too_short());
        }
        Ok(Texts { values, known: HashMap::new(), last: None })
    }
}

fn times(group: &dyn RowGroupReader, rows: usize) -> Result<Vec<i64>, ParquetError> {
    let ColumnReader::Int64ColumnReader(mut reader) = group.get_column_reader(TIME)? else {
        return Err(corrupt("the column time has another type"));
    };
    let mut times = Vec::with_capacity(rows);
    reader.read_records(rows, None, None, &mut times)?;
    if times.len() == rows { Ok(times) } else { Err(corrupt("the column time is too short")) }
}

/// The texts of a column.
struct Texts {
    values: Vec<ByteArray>,
    /// The texts of the values that were asked for. Equal values of a dictionary have one address.
    known: HashMap<Address, Arc<str>>,
    /// The text of the last value that was asked for: that of the next one, as a rule.
    last: Option<(Address, Arc<str>)>,
}

/// Where a value is in memory, and its length in bytes.
type Address = (usize, usize);

impl Texts {
    fn text(&mut self, position: usize) -> Result<Arc<str>, ParquetError> {
        let value = &self.values[position];
        let address = (value.data().as_ptr().addr(), value.len());
        if let Some((of, text)) = &self.last
            && *of == address
        {
            return Ok(text.clone());
        }
        let text = match self.known.entry(address) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(unknown) => unknown.insert(Arc::from(value.as_utf8()?)).clone(),
        };
        self.last = Some((address, text.clone()));
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(host: &str, time: i64, commit: &str) -> Transition {
        Transition {
            host: host.into(),
            reconciler: format!("{host}-web").into(),
            time,
            endpoint: "https://git.example.com/web/dev".into(),
            commit: commit.into(),
            status: "success".into(),
            message: "".into(),
        }
    }

    fn rows(bytes: &Bytes, filter: &Filter) -> Result<Vec<Transition>, SegmentError> {
        let mut found = Vec::new();
        read(bytes, filter, |row| found.push(row))?;
        Ok(found)
    }

    #[test]
    fn segment_has_the_rows_in_their_order_and_once() {
        let mut written = vec![row("b", 2, "c2"), row("a", 5, "c2"), row("b", 1, "c1"), row("b", 2, "c2")];
        let packed = pack(written.clone()).unwrap();
        let [segment] = &packed[..] else { panic!("one segment") };
        assert_eq!((segment.rows, segment.times), (3, (1, 5)));
        written.sort();
        written.dedup();
        assert_eq!(rows(&segment.bytes, &Filter::all()).unwrap(), written);
        assert!(pack(Vec::new()).unwrap().is_empty());
    }

    #[test]
    fn reader_finds_one_host_among_many_row_groups() {
        let written: Vec<_> =
            (0..3000).flat_map(|at| (0..10).map(move |time| row(&format!("h{at:04}"), time, "c"))).collect();
        let packed = pack(written).unwrap();
        let filter = Filter { times: (3, 4), host: Some("h1500".to_owned()), ..Filter::all() };
        assert_eq!(rows(&packed[0].bytes, &filter).unwrap(), [row("h1500", 3, "c"), row("h1500", 4, "c")]);
        let reconciler = Some("h2999-web".to_owned());
        let filter = Filter { reconciler, ..Filter::all() };
        assert_eq!(rows(&packed[0].bytes, &filter).unwrap().len(), 10);
        let filter = Filter { host: Some("other".to_owned()), ..Filter::all() };
        assert!(rows(&packed[0].bytes, &filter).unwrap().is_empty());
    }

    #[test]
    fn reader_finds_the_rows_of_some_endpoints() {
        let of = |host: &str, time, endpoint: &str| Transition { endpoint: endpoint.into(), ..row(host, time, "c") };
        let written =
            vec![of("a", 1, "web"), of("a", 2, "api"), of("a", 3, "api"), of("a", 4, "web"), of("b", 1, "db")];
        let packed = pack(written.clone()).unwrap();
        let found = |endpoints: &[&str], times| {
            let endpoints = Some(endpoints.iter().map(|endpoint| (*endpoint).to_owned()).collect());
            let filter = Filter { times, endpoints, ..Filter::all() };
            let found = rows(&packed[0].bytes, &filter).unwrap();
            assert_eq!(found, written.iter().filter(|row| filter.matches(row)).cloned().collect::<Vec<_>>());
            found.iter().map(|row| (row.host.to_string(), row.time)).collect::<Vec<_>>()
        };
        let all = (i64::MIN, i64::MAX);
        assert_eq!(found(&["web", "db"], all), [("a".to_owned(), 1), ("a".to_owned(), 4), ("b".to_owned(), 1)]);
        assert_eq!(found(&["api"], (3, 9)), [("a".to_owned(), 3)]);
        assert!(found(&["other"], all).is_empty());
    }

    #[test]
    fn single_rows_are_found_in_all_columns() {
        // Texts are different in most rows of a column, and a dictionary has them in others.
        let of = |time: i64| Transition {
            reconciler: format!("r{}", time % 7).into(),
            message: format!("{time}").repeat(50).into(),
            ..row(&format!("h{}", time % 3), time, &format!("c{time}"))
        };
        let written: Vec<_> = (0..30_000).map(of).collect();
        let packed = pack(written.clone()).unwrap();
        for times in [(17, 17), (100, 140), (5_000, 29_999), (0, 29_999), (30_000, 40_000)] {
            let filter = Filter { times, reconciler: Some("r3".to_owned()), ..Filter::all() };
            let mut expected: Vec<_> = written.iter().filter(|row| filter.matches(row)).cloned().collect();
            expected.sort();
            assert_eq!(rows(&packed[0].bytes, &filter).unwrap(), expected, "{times:?}");
            let found = rows(&packed[0].bytes, &Filter { has_details: false, ..filter }).unwrap();
            let none: Arc<str> = "".into();
            let bare = |row: Transition| Transition { host: none.clone(), message: none.clone(), ..row };
            assert_eq!(found, expected.into_iter().map(bare).collect::<Vec<_>>(), "{times:?}");
        }
    }

    #[test]
    fn rows_with_long_texts_are_split() {
        let long = "m".repeat(1 << 20);
        let written: Vec<_> =
            (0..40).map(|time| Transition { message: long.as_str().into(), ..row("a", time, "c") }).collect();
        let packed = pack(written).unwrap();
        assert_eq!(packed.iter().map(|segment| segment.rows).sum::<usize>(), 40);
        assert!(packed.len() > 1);
    }

    #[test]
    fn files_of_others_are_corrupt() {
        let whole = pack(vec![row("a", 1, "c")]).unwrap()[0].bytes.clone();
        for length in 0..whole.len() {
            let cut = whole.slice(..length);
            assert!(matches!(rows(&cut, &Filter::all()), Err(SegmentError::Corrupt(_))), "{length} bytes");
        }
        for other in ["", "PAR1", "PAR1PAR1", "kind: ConfigMap\n", "PAR1\0\0\0\0\0\0\0\0PAR1"] {
            let other = Bytes::from_static(other.as_bytes());
            assert!(matches!(rows(&other, &Filter::all()), Err(SegmentError::Corrupt(_))), "{other:?}");
        }
    }
}
