//! Times as Go's `time.Parse` reads RFC 3339, in which upstream reads all it is sent.

use std::borrow::Cow;

use jiff::{
    SignedDuration,
    civil::{DateTime, date},
};

const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
/// The first time that can be written, and the last that `jiff` reads.
const FIRST: DateTime = date(0, 1, 1).at(0, 0, 0, 0);
pub(crate) const LAST: DateTime = date(9999, 12, 30).at(22, 0, 0, 0);

/// Reads a time, and returns it as any reader of RFC 3339 takes it: Go takes an hour of one digit, a comma before the
/// fraction, a fraction of any length and an offset of sixty minutes. A time that cannot be read back where it belongs
/// becomes the next that can, so that no object is stored which cannot be read.
///
/// # Errors
///
/// What is wrong with it, in Go's words.
pub fn parse(text: &str) -> Result<Cow<'_, str>, String> {
    Reader { text, rest: text }.time().map(|time| time.whole)
}

/// The time in UTC, and by how many seconds the time of its text is later than that.
pub(crate) fn with_offset(text: &str) -> Result<(DateTime, i32), String> {
    Reader { text, rest: text }.time().map(|time| (time.utc, time.offset))
}

/// Whether a text is a date, such as `2006-01-02`.
pub(crate) fn is_date(text: &str) -> bool {
    let mut reader = Reader { text, rest: text };
    reader.date().is_ok_and(|(year, month, day)| reader.rest.is_empty() && (1..=days_in(year, month)).contains(&day))
}

/// A time that was read.
struct Time<'t> {
    utc: DateTime,
    /// By how many seconds it is later than in UTC where it was written.
    offset: i32,
    /// As any reader takes it.
    whole: Cow<'t, str>,
}

/// Where the date ends.
const DATE_END: usize = "2006-01-02".len();
/// Where an hour of two digits ends.
const HOUR_END: usize = "2006-01-02T15".len();
/// How many digits of a fraction count.
const NANOSECONDS: usize = 9;

/// What is left of a text to be read.
struct Reader<'t> {
    text: &'t str,
    rest: &'t str,
}

impl<'t> Reader<'t> {
    fn time(mut self) -> Result<Time<'t>, String> {
        let (text, reader) = (self.text, &mut self);
        let (year, month, day) = reader.date()?;
        reader.skip("T")?;
        let hour = reader.hour()?;
        let hour_end = text.len() - reader.rest.len();
        reader.skip(":")?;
        let minute = reader.number("04", "minute", 0..=59)?;
        reader.skip(":")?;
        let second = reader.number("05", "second", 0..=59)?;
        let fraction = text.len() - reader.rest.len();
        let digits = reader.fraction();
        let zone = reader.rest;
        let offset = reader.zone()?;
        if !reader.rest.is_empty() {
            return Err(reader.say(&format!(": extra text: {}", quote(reader.rest))));
        }
        if !(1..=days_in(year, month)).contains(&day) {
            return Err(reader.say(": day out of range"));
        }
        let nanoseconds = format!("{digits:0<NANOSECONDS$.NANOSECONDS$}").parse().unwrap_or(0);
        let [month, day, hour_of_day, minute, second] = [month, day, hour, minute, second].map(|number| number as i8);
        let local = DateTime::new(year as i16, month, day, hour_of_day, minute, second, nanoseconds);
        let utc = local.expect("each is in its range").saturating_sub(SignedDuration::from_secs(offset.into()));
        if !(FIRST..=LAST).contains(&utc) || zone.ends_with(":60") {
            return Ok(Time { utc, offset, whole: Cow::Owned(format!("{}Z", utc.clamp(FIRST, LAST))) });
        }
        if hour_end == HOUR_END && digits.len() <= NANOSECONDS && !text[fraction..].starts_with(',') {
            return Ok(Time { utc, offset, whole: Cow::Borrowed(text) });
        }
        let minutes = &text[hour_end..fraction];
        let mut whole = format!("{}T{hour:02}{minutes}", &text[..DATE_END]);
        if !digits.is_empty() {
            whole.push('.');
            whole.push_str(&digits[..digits.len().min(NANOSECONDS)]);
        }
        whole.push_str(zone);
        Ok(Time { utc, offset, whole: Cow::Owned(whole) })
    }

    /// Year, month and day; which days there are depends on the rest.
    fn date(&mut self) -> Result<(u32, u32, u32), String> {
        let year = self.year()?;
        self.skip("-")?;
        let month = self.number("01", "month", 1..=12)?;
        self.skip("-")?;
        let day = self.number("02", "day", 0..=99)?;
        Ok((year, month, day))
    }

    fn say(&self, problem: &str) -> String {
        format!("parsing time {}{problem}", quote(self.text))
    }

    /// That the rest does not begin with a part of the layout.
    fn no(&self, part: &str) -> String {
        self.say(&format!(" as {}: cannot parse {} as {}", quote(LAYOUT), quote(self.rest), quote(part)))
    }

    fn skip(&mut self, separator: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(separator).ok_or_else(|| self.no(separator))?;
        Ok(())
    }

    /// How many digits come next.
    fn digits(&self) -> usize {
        self.rest.bytes().take_while(u8::is_ascii_digit).count()
    }

    fn take(&mut self, count: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        taken
    }

    fn year(&mut self) -> Result<u32, String> {
        if self.digits() < 4 {
            return Err(self.no("2006"));
        }
        Ok(self.take(4).parse().unwrap_or(0))
    }

    /// Two digits.
    fn number(&mut self, part: &str, name: &str, range: std::ops::RangeInclusive<u32>) -> Result<u32, String> {
        if self.digits() < 2 {
            return Err(self.no(part));
        }
        self.within(2, name, range)
    }

    /// One or two digits.
    fn hour(&mut self) -> Result<u32, String> {
        match self.digits() {
            0 => Err(self.no("15")),
            digits => self.within(digits.min(2), "hour", 0..=23),
        }
    }

    fn within(&mut self, digits: usize, name: &str, range: std::ops::RangeInclusive<u32>) -> Result<u32, String> {
        let number = self.take(digits).parse().unwrap_or(0);
        if range.contains(&number) { Ok(number) } else { Err(self.say(&format!(": {name} out of range"))) }
    }

    /// The digits of a fraction, if there is one.
    fn fraction(&mut self) -> &'t str {
        let mut after = Reader { text: self.text, rest: self.rest.get(1..).unwrap_or("") };
        match after.digits() {
            digits if digits > 0 && self.rest.starts_with(['.', ',']) => {
                let fraction = after.take(digits);
                self.rest = after.rest;
                fraction
            }
            _ => "",
        }
    }

    /// How many seconds it is later than in UTC.
    fn zone(&mut self) -> Result<i32, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let number = |at: usize| -> Option<i32> {
            let digits = self.rest.get(at..at + 2)?;
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
        };
        let (Some(hours), Some(minutes), Some(b':'), Some(sign @ (b'+' | b'-'))) =
            (number(1), number(4), self.rest.as_bytes().get(3), self.rest.as_bytes().first())
        else {
            return Err(self.no("Z07:00"));
        };
        // As many as some people write.
        for (number, most, name) in [(minutes, 60, "minute"), (hours, 24, "hour")] {
            if number > most {
                return Err(self.say(&format!(": time zone offset {name} out of range")));
            }
        }
        let seconds = (hours * 60 + minutes) * 60;
        let offset = if *sign == b'-' { -seconds } else { seconds };
        self.take("+07:00".len());
        Ok(offset)
    }
}

fn days_in(year: u32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Quotes as Go's package `time` does: what is no ASCII, byte by byte.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=0x7f => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parser_normalizes_timestamps_go_accepts() {
        for (text, whole) in [
            ("2020-01-02T03:04:05Z", "2020-01-02T03:04:05Z"),
            ("2020-02-29T23:59:59.5+24:00", "2020-02-29T23:59:59.5+24:00"),
            ("2020-01-02T03:04:05.123456789-01:00", "2020-01-02T03:04:05.123456789-01:00"),
            ("2020-01-02T3:04:05Z", "2020-01-02T03:04:05Z"),
            ("2020-01-02T3:04:05,25+01:30", "2020-01-02T03:04:05.25+01:30"),
            ("2020-01-02T03:04:05.1234567899999Z", "2020-01-02T03:04:05.123456789Z"),
            ("2020-01-02T03:04:05+01:60", "2020-01-02T01:04:05Z"),
            ("2020-02-29T3:04:05,250-24:60", "2020-03-01T04:04:05.25Z"),
            ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
            ("0000-01-01T00:00:00+24:00", "0000-01-01T00:00:00Z"),
            ("9999-12-30T22:00:00Z", "9999-12-30T22:00:00Z"),
            ("9999-12-31T23:59:59Z", "9999-12-30T22:00:00Z"),
            ("9999-12-31T23:59:59-24:00", "9999-12-30T22:00:00Z"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(whole));
            assert_eq!(parse(whole).as_deref(), Ok(whole));
        }
    }

    #[test]
    fn the_first_part_that_does_not_fit_is_told() {
        for (text, rest, part) in [
            ("", "", "2006"),
            ("noon", "noon", "2006"),
            ("+002020-01-02T03:04:05Z", "+002020-01-02T03:04:05Z", "2006"),
            ("10000-01-01T00:00:00Z", "0-01-01T00:00:00Z", "-"),
            ("2020-1-02T03:04:05Z", "1-02T03:04:05Z", "01"),
            ("2020-01-02", "", "T"),
            ("2020-01-02t03:04:05z", "t03:04:05z", "T"),
            ("2020-01-02 03:04:05Z", " 03:04:05Z", "T"),
            ("20200102T030405Z", "0102T030405Z", "-"),
            ("2020-01-02T03:04Z", "Z", ":"),
            ("2020-01-02T03:04:05", "", "Z07:00"),
            ("2020-01-02T03:04:05+0100", "+0100", "Z07:00"),
            ("2020-01-02T03:04:05é\"", "\\xc3\\xa9\\\"", "Z07:00"),
        ] {
            let quoted = quote(text);
            let expected = format!("parsing time {quoted} as \"{LAYOUT}\": cannot parse \"{rest}\" as \"{part}\"");
            assert_eq!(parse(text).expect_err(text), expected);
        }
        for (text, problem) in [
            ("2020-13-02T03:04:05Z", "month out of range"),
            ("2021-02-29T03:04:05Z", "day out of range"),
            ("2020-01-00T03:04:05Z", "day out of range"),
            ("2020-01-02T24:04:05Z", "hour out of range"),
            ("2020-01-02T03:60:05Z", "minute out of range"),
            ("2020-01-02T03:04:60Z", "second out of range"),
            ("2020-01-02T03:04:05+25:00", "time zone offset hour out of range"),
            ("2020-01-02T03:04:05Zz", "extra text: \"z\""),
        ] {
            assert_eq!(parse(text).expect_err(text), format!("parsing time \"{text}\": {problem}"));
        }
    }
}
