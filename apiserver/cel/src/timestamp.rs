//! Points in time, with the offset from UTC that their text has.

use std::{cmp::Ordering, fmt};

use jiff::{Timestamp, civil::DateTime, tz::Offset};

/// A point in time as cel-go 0.26.0 has it (`common/types/timestamp.go`): a Go `time.Time`, which keeps the offset it was
/// written with. Two are equal when the points are, whatever their offsets.
#[derive(Clone, Copy, Debug)]
pub(super) struct OffsetTime {
    pub(super) at: Timestamp,
    pub(super) offset: Offset,
}

impl OffsetTime {
    pub(super) fn utc(at: Timestamp) -> Self {
        Self { at, offset: Offset::UTC }
    }

    pub(super) fn local(self) -> DateTime {
        self.offset.to_datetime(self.at)
    }

    /// Whole seconds since 1970, rounded down, as `time.Time.Unix` counts them.
    pub(super) fn unix_seconds(self) -> i64 {
        const SECOND: i128 = 1_000_000_000;
        i64::try_from(self.at.as_nanosecond().div_euclid(SECOND))
            .expect("a timestamp counts fewer seconds than i64 does")
    }
}

impl PartialEq for OffsetTime {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for OffsetTime {}

impl PartialOrd for OffsetTime {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OffsetTime {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}

/// As Go's `time.RFC3339Nano` writes it: no seconds of an offset, and no zeros at the end of a fraction.
impl fmt::Display for OffsetTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = self.offset.seconds() / 60;
        write!(f, "{}", self.local())?;
        if minutes == 0 {
            return f.write_str("Z");
        }
        let sign = if minutes < 0 { '-' } else { '+' };
        write!(f, "{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
    }
}
