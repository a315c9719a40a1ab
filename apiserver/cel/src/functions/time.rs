//! The parts of timestamps and durations. Those of a timestamp are in UTC, whatever its offset, unless a zone is named.

use jiff::{SignedDuration, Timestamp, civil::DateTime, tz::Offset};

use super::{
    super::{
        eval::{Error, Outcome},
        go::text::quote,
        value::Value,
    },
    Invocation,
};

pub(super) fn call<'a>(call: &Invocation<'_, 'a>) -> Option<Outcome<'a>> {
    if call.namespace.is_some() || !call.receiver {
        return None;
    }
    match call.args {
        [Value::Duration(duration)] => of_duration(call.name, *duration),
        [Value::Timestamp(time)] => of_time(call.name, Offset::UTC.to_datetime(time.at)),
        [Value::Timestamp(time), Value::String(zone)] => match in_zone(time.at, zone) {
            Ok(time) => of_time(call.name, time),
            Err(error) => Some(Err(error)),
        },
        _ => None,
    }
}

/// A zone is a name, or an offset such as `+01:00`. There is none but UTC that the server itself is in.
fn in_zone(time: Timestamp, zone: &str) -> Result<DateTime, Error> {
    let Some((hours, minutes)) = zone.split_once(':') else {
        let zone = if matches!(zone, "" | "Local") { "UTC" } else { zone };
        return time
            .in_tz(zone)
            .map(|time| time.datetime())
            .map_err(|_| Error::new(format!("unknown time zone {zone}")));
    };
    let number = |text: &str| {
        let wrong = |_| Error::new(format!("strconv.Atoi: parsing {}: invalid syntax", quote(text)));
        text.parse::<i32>().map(i64::from).map_err(wrong)
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    // As upstream has it, by which `-00:30` is half an hour later.
    let minutes = if hours < 0 { hours * 60 - minutes } else { hours * 60 + minutes };
    // An offset may be larger than those of zones; nobody asks for it afterwards.
    let shifted = time.checked_add(SignedDuration::from_mins(minutes)).map_err(|_| Error::new("timestamp overflow"))?;
    Ok(Offset::UTC.to_datetime(shifted))
}

fn of_duration<'a>(name: &str, duration: SignedDuration) -> Option<Outcome<'a>> {
    Some(Ok(Value::Int(match name {
        "getHours" => duration.as_hours(),
        "getMinutes" => duration.as_mins(),
        "getSeconds" => duration.as_secs(),
        "getMilliseconds" => i64::try_from(duration.as_millis()).unwrap_or(i64::MAX),
        _ => return None,
    })))
}

fn of_time<'a>(name: &str, time: DateTime) -> Option<Outcome<'a>> {
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
