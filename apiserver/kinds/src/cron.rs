//! Schedules of five fields, as cron has them: minute, hour, day of the month, month, day of the week. Times are UTC.

use std::str::FromStr;

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

/// How far ahead a schedule is searched, in days: any date comes within eight years.
const HORIZON_DAYS: u32 = 8 * 366;

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether both the days of the month and those of the week are restricted: then either may match.
    either_day: bool,
}

/// A text that is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSchedule {
    /// It has not five fields.
    #[error("must have five fields, such as \"*/10 * * * *\"; it has {0}")]
    Fields(usize),
    /// A field has another form.
    #[error("the field {0:?} must consist of numbers, ranges and steps within its bounds")]
    Field(String),
}

/// The bits of the numbers that a field selects.
fn field(text: &str, low: u32, high: u32) -> Result<u64, InvalidSchedule> {
    let invalid = || InvalidSchedule::Field(text.to_owned());
    let mut bits = 0;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, step.parse::<u32>().ok().filter(|step| *step > 0).ok_or_else(invalid)?),
            None => (part, 1),
        };
        let number = |text: &str| text.parse::<u32>().map_err(|_| invalid());
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (low, high),
            Some((from, to)) => (number(from)?, number(to)?),
            None if part.contains('/') => (number(range)?, high),
            None => (number(range)?, number(range)?),
        };
        if from < low || to > high || from > to {
            return Err(invalid());
        }
        let mut next = from;
        while next <= to {
            bits |= 1_u64 << next;
            next = next.saturating_add(step);
        }
    }
    Ok(bits)
}

impl FromStr for Schedule {
    type Err = InvalidSchedule;

    fn from_str(text: &str) -> Result<Self, InvalidSchedule> {
        let text = match text.trim() {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            text => text,
        };
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(InvalidSchedule::Fields(fields.len()));
        };
        let of_week = field(weekdays, 0, 7)?;
        Ok(Self {
            minutes: field(minutes, 0, 59)?,
            hours: field(hours, 0, 23)?,
            days: field(days, 1, 31)?,
            months: field(months, 1, 12)?,
            // Sunday is both 0 and 7.
            weekdays: (of_week | (of_week >> 7)) & 0x7f,
            either_day: !days.starts_with('*') && !weekdays.starts_with('*'),
        })
    }
}

impl Schedule {
    /// The first time of the schedule after another one; nothing where there is none.
    pub fn after(&self, time: Timestamp) -> Option<Timestamp> {
        let mut day = time.to_zoned(TimeZone::UTC).datetime();
        let first = (u32::from(day.hour().unsigned_abs()), u32::from(day.minute().unsigned_abs()));
        for ahead in 0..HORIZON_DAYS {
            if self.has_day(day) {
                let earliest = if ahead == 0 { first.0 * 60 + first.1 + 1 } else { 0 };
                let minute = (earliest..24 * 60)
                    .find(|minute| self.hours & (1 << (minute / 60)) != 0 && self.minutes & (1 << (minute % 60)) != 0);
                if let Some(minute) = minute {
                    let (hour, minute) = (i8::try_from(minute / 60).ok()?, i8::try_from(minute % 60).ok()?);
                    let found = day.date().at(hour, minute, 0, 0);
                    return Some(found.to_zoned(TimeZone::UTC).ok()?.timestamp());
                }
            }
            day = day.date().tomorrow().ok()?.at(0, 0, 0, 0);
        }
        None
    }

    fn has_day(&self, day: DateTime) -> bool {
        let has = |bits: u64, number: i8| bits & (1 << number) != 0;
        if !has(self.months, day.month()) {
            return false;
        }
        let of_month = has(self.days, day.day());
        let of_week = has(self.weekdays, day.weekday().to_sunday_zero_offset());
        if self.either_day { of_month || of_week } else { of_month && of_week }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_find_the_next_time() {
        // 2026-01-31 is a Saturday.
        let check = |schedule: &str, from: &str, next: &str| {
            let schedule: Schedule = schedule.parse().unwrap();
            let found = schedule.after(from.parse().unwrap()).map(|time| time.to_string());
            assert_eq!(found.as_deref(), Some(next), "{schedule:?}");
        };
        check("*/10 * * * *", "2026-01-31T23:50:00Z", "2026-02-01T00:00:00Z");
        check("*/10 * * * *", "2026-01-31T23:49:59Z", "2026-01-31T23:50:00Z");
        check("5 4 * * 1-5", "2026-01-31T04:05:00Z", "2026-02-02T04:05:00Z");
        check("0 0 29 2 *", "2026-01-31T00:00:00Z", "2028-02-29T00:00:00Z");
        check("0 12 1 * 7", "2026-02-01T12:00:00Z", "2026-02-08T12:00:00Z");
        check("@daily", "2026-01-31T00:00:00Z", "2026-02-01T00:00:00Z");
    }

    #[test]
    fn impossible_date_has_no_next_time() {
        let schedule: Schedule = "0 0 31 2 *".parse().unwrap();
        assert_eq!(schedule.after(Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn malformed_schedules_are_rejected() {
        for text in ["", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "5-1 * * * *", "*/0 * * * *", "a * * * *"]
        {
            assert!(text.parse::<Schedule>().is_err(), "{text:?}");
        }
    }
}
