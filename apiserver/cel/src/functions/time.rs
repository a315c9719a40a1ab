//! The parts of timestamps and durations.

use jiff::{SignedDuration, Timestamp, Zoned, tz::TimeZone};

use super::{
    super::{
        eval::{Error, Outcome},
        value::Value,
    },
    Invocation,
};

pub(super) const NAMES: &[&str] = &[
    "getFullYear",
    "getMonth",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
];

pub(super) fn call<'a>(call: &Invocation<'_, 'a>) -> Option<Outcome<'a>> {
    if call.namespace.is_some() || !call.receiver {
        return None;
    }
    match call.args {
        [Value::Duration(duration)] => of_duration(call.name, *duration),
        [Value::Timestamp(time)] => of_time(call.name, time.to_zoned(TimeZone::UTC)),
        [Value::Timestamp(time), Value::String(zone)] => match in_zone(*time, zone) {
            Ok(time) => of_time(call.name, time),
            Err(error) => Some(Err(error)),
        },
        _ => None,
    }
}

/// A zone is a name, or an offset such as `+01:00`.
fn in_zone(time: Timestamp, zone: &str) -> Result<Zoned, Error> {
    let unknown = || Error::new(format!("unknown time zone {zone}"));
    if !zone.contains(':') {
        return time.in_tz(zone).map_err(|_| unknown());
    }
    let (negative, digits) = match zone.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, zone.strip_prefix('+').unwrap_or(zone)),
    };
    let (hours, minutes) = digits.split_once(':').ok_or_else(unknown)?;
    let hours: i32 = hours.parse().map_err(|_| unknown())?;
    let minutes: i32 = minutes.parse().map_err(|_| unknown())?;
    let seconds = hours.saturating_mul(3600).saturating_add(minutes.saturating_mul(60));
    let seconds = if negative { seconds.saturating_neg() } else { seconds };
    let offset = jiff::tz::Offset::from_seconds(seconds).map_err(|_| unknown())?;
    Ok(time.to_zoned(TimeZone::fixed(offset)))
}

fn of_duration<'a>(name: &str, duration: SignedDuration) -> Option<Outcome<'a>> {
    Some(Ok(Value::Int(match name {
        "getHours" => duration.as_hours(),
        "getMinutes" => duration.as_mins(),
        "getSeconds" => duration.as_secs(),
        "getMilliseconds" => i64::from(duration.subsec_millis()),
        _ => return None,
    })))
}

fn of_time<'a>(name: &str, time: Zoned) -> Option<Outcome<'a>> {
    Some(Ok(Value::Int(i64::from(match name {
        "getFullYear" => time.year(),
        // Counted from zero, as in JavaScript.
        "getMonth" => i16::from(time.month()) - 1,
        "getDate" => i16::from(time.day()),
        "getDayOfMonth" => i16::from(time.day()) - 1,
        "getDayOfWeek" => i16::from(time.weekday().to_sunday_zero_offset()),
        "getDayOfYear" => time.day_of_year() - 1,
        "getHours" => i16::from(time.hour()),
        "getMinutes" => i16::from(time.minute()),
        "getSeconds" => i16::from(time.second()),
        "getMilliseconds" => time.millisecond(),
        _ => return None,
    }))))
}
