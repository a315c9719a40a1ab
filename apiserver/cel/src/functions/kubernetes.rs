//! The types that Kubernetes adds to CEL: quantities, URLs, IP addresses and ranges of them.

use std::{cmp::Ordering, net::IpAddr, sync::Arc};

use http::Uri;

use super::{
    super::{
        budget::Budget,
        eval::{Error, Outcome},
        quantity::Quantity,
        value::Value,
    },
    Invocation, display,
};

pub(super) const NAMES: &[&str] = &[
    "quantity",
    "isQuantity",
    "sign",
    "isInteger",
    "asInteger",
    "asApproximateFloat",
    "add",
    "sub",
    "isGreaterThan",
    "isLessThan",
    "compareTo",
    "url",
    "isURL",
    "getScheme",
    "getHost",
    "getHostname",
    "getPort",
    "getEscapedPath",
    "getQuery",
    "ip",
    "isIP",
    "isCanonical",
    "family",
    "isUnspecified",
    "isLoopback",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isGlobalUnicast",
    "cidr",
    "isCIDR",
    "containsIP",
    "containsCIDR",
    "prefixLength",
    "masked",
];

pub(super) fn call<'a>(call: &Invocation<'_, 'a>, budget: &mut Budget) -> Option<Outcome<'a>> {
    if call.namespace == Some("ip") {
        let ("isCanonical", [Value::String(text)]) = (call.name, call.args) else { return None };
        return Some(parse_ip(text).map(|ip| Value::Bool(ip.to_string() == **text)));
    }
    if call.namespace.is_some() {
        return None;
    }
    if !call.receiver {
        let [Value::String(text)] = call.args else { return None };
        return make(call.name, text);
    }
    match call.args {
        [Value::Quantity(quantity), rest @ ..] => on_quantity(call.name, **quantity, rest),
        [Value::Url(url), rest @ ..] => on_url(call.name, url, rest),
        [Value::Ip(ip)] => on_ip(call.name, *ip),
        [Value::Cidr(ip, length), rest @ ..] => on_cidr(call.name, *ip, *length, rest, budget),
        _ => None,
    }
}

fn make<'a>(name: &str, text: &str) -> Option<Outcome<'a>> {
    Some(match name {
        "quantity" => Quantity::parse(text).map(|quantity| Value::Quantity(Box::new(quantity))).ok_or_else(|| {
            Error::new("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
        }),
        "isQuantity" => Ok(Value::Bool(Quantity::parse(text).is_some())),
        "url" => parse_url(text)
            .map(|url| Value::Url(Arc::new(url)))
            .ok_or_else(|| Error::new(format!("URL parse error during conversion from string: parse {text:?}"))),
        "isURL" => Ok(Value::Bool(parse_url(text).is_some())),
        "ip" => parse_ip(text).map(Value::Ip),
        "isIP" => Ok(Value::Bool(parse_ip(text).is_ok())),
        "cidr" => parse_cidr(text).map(|(ip, length)| Value::Cidr(ip, length)),
        "isCIDR" => Ok(Value::Bool(parse_cidr(text).is_ok())),
        _ => return None,
    })
}

fn on_quantity<'a>(name: &str, quantity: Quantity, rest: &[Value<'a>]) -> Option<Outcome<'a>> {
    let other = match rest {
        [] => None,
        [Value::Quantity(other)] => Some(**other),
        [Value::Int(other)] if matches!(name, "add" | "sub") => Some(Quantity::from_int(*other)),
        _ => return None,
    };
    let made = |quantity: Option<Quantity>| {
        quantity.map(|quantity| Value::Quantity(Box::new(quantity))).ok_or_else(|| Error::new("quantity overflow"))
    };
    Some(match (name, other) {
        ("sign", None) => Ok(Value::Int(quantity.sign())),
        ("isInteger", None) => Ok(Value::Bool(quantity.as_int().is_some())),
        ("asInteger", None) => {
            quantity.as_int().map(Value::Int).ok_or_else(|| Error::new("cannot convert value to integer"))
        }
        ("asApproximateFloat", None) => Ok(Value::Double(quantity.as_float())),
        ("add", Some(other)) => made(quantity.add(other)),
        ("sub", Some(other)) => made(quantity.sub(other)),
        ("isGreaterThan", Some(other)) => Ok(Value::Bool(quantity.compare(other) == Ordering::Greater)),
        ("isLessThan", Some(other)) => Ok(Value::Bool(quantity.compare(other) == Ordering::Less)),
        ("compareTo", Some(other)) => Ok(Value::Int(quantity.compare(other) as i64)),
        _ => return None,
    })
}

/// An absolute URL, or an absolute path.
fn parse_url(text: &str) -> Option<Uri> {
    text.parse::<Uri>().ok().filter(|uri| uri.scheme().is_some() || uri.path().starts_with('/'))
}

fn on_url<'a>(name: &str, url: &Uri, rest: &[Value<'a>]) -> Option<Outcome<'a>> {
    if !rest.is_empty() {
        return None;
    }
    let host = url.authority().map_or("", |authority| authority.as_str().rsplit('@').next().unwrap_or(""));
    Some(Ok(match name {
        "getScheme" => Value::text(url.scheme_str().unwrap_or("")),
        "getHost" => Value::text(host),
        "getHostname" => Value::text(url.host().unwrap_or("").trim_matches(['[', ']'])),
        "getPort" => Value::text(url.port_u16().map(|port| port.to_string()).unwrap_or_default()),
        // The parser puts a slash where there is none.
        "getEscapedPath" => Value::text(url.path()),
        "getQuery" => {
            let mut found: std::collections::BTreeMap<_, Vec<Value<'a>>> = std::collections::BTreeMap::new();
            for (key, value) in crate::go::query(url.query().unwrap_or("")) {
                found.entry(super::super::value::Key::String(key)).or_default().push(Value::text(value));
            }
            let lists = found.into_iter().map(|(key, values)| (key, Value::list(values))).collect();
            Value::map(lists)
        }
        _ => return None,
    }))
}

fn parse_ip(text: &str) -> Result<IpAddr, Error> {
    text.parse::<IpAddr>()
        .ok()
        .filter(|ip| !matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()))
        .ok_or_else(|| Error::new(format!("IP Address {text:?} parse error during conversion from string")))
}

fn on_ip<'a>(name: &str, ip: IpAddr) -> Option<Outcome<'a>> {
    let (local_unicast, local_multicast) = match ip {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    let global = !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || local_unicast || broadcast);
    Some(Ok(match name {
        "family" => Value::Int(if ip.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => Value::Bool(ip.is_unspecified()),
        "isLoopback" => Value::Bool(ip.is_loopback()),
        "isLinkLocalMulticast" => Value::Bool(local_multicast),
        "isLinkLocalUnicast" => Value::Bool(local_unicast),
        "isGlobalUnicast" => Value::Bool(global),
        _ => return None,
    }))
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u8), Error> {
    let wrong = || Error::new(format!("network address parse error during conversion from string: {text:?}"));
    let (ip, length) = text.split_once('/').ok_or_else(wrong)?;
    let ip = parse_ip(ip).map_err(|_| wrong())?;
    let length: u8 = length.parse().map_err(|_| wrong())?;
    if length > bits(ip) { Err(wrong()) } else { Ok((ip, length)) }
}

fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// The address with everything behind the prefix cleared.
fn masked(ip: IpAddr, length: u8) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(u32::from(32 - length)).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(u32::from(128 - length)).unwrap_or(0);
            IpAddr::V6((u128::from(v6) & mask).into())
        }
    }
}

fn on_cidr<'a>(name: &str, ip: IpAddr, length: u8, rest: &[Value<'a>], budget: &mut Budget) -> Option<Outcome<'a>> {
    let has = |other: IpAddr| bits(other) == bits(ip) && masked(other, length) == masked(ip, length);
    Some(match (name, rest) {
        ("containsIP", [Value::Ip(other)]) => Ok(Value::Bool(has(*other))),
        ("containsIP", [Value::String(other)]) => parse_ip(other).map(|other| Value::Bool(has(other))),
        ("containsCIDR", [Value::Cidr(other, inner)]) => Ok(Value::Bool(has(*other) && *inner >= length)),
        ("containsCIDR", [Value::String(other)]) => {
            parse_cidr(other).map(|(other, inner)| Value::Bool(has(other) && inner >= length))
        }
        ("ip", []) => Ok(Value::Ip(ip)),
        ("masked", []) => Ok(Value::Cidr(masked(ip, length), length)),
        ("prefixLength", []) => Ok(Value::Int(i64::from(length))),
        ("string", []) => display(&Value::Cidr(ip, length), budget).map(Value::text),
        _ => return None,
    })
}
