//! Addresses of the Internet Protocol and ranges of them, as Kubernetes adds them to CEL.
//!
//! Follows `ip.go` and `cidr.go` in `k8s.io/apiserver/pkg/cel/library`.

use std::net::IpAddr;

use super::{
    super::{
        eval::{Error, Outcome},
        go::{address, text::quote},
        value::Value,
    },
    Invocation,
};

pub(super) fn call<'a>(call: &Invocation<'_, 'a>) -> Option<Outcome<'a>> {
    match (call.namespace, call.receiver, call.args) {
        (Some("ip"), _, [Value::String(text)]) if call.name == "isCanonical" => {
            Some(parse_ip(text).map(|ip| Value::Bool(ip.to_string() == **text)))
        }
        (None, false, [Value::String(text)]) => make(call.name, text),
        (None, true, [Value::Ip(ip)]) => on_ip(call.name, *ip),
        (None, true, [Value::Cidr(ip, length), rest @ ..]) => on_cidr(call.name, *ip, *length, rest),
        _ => None,
    }
}

fn make<'a>(name: &str, text: &str) -> Option<Outcome<'a>> {
    Some(match name {
        "ip" => parse_ip(text).map(Value::Ip),
        "isIP" => Ok(Value::Bool(parse_ip(text).is_ok())),
        "cidr" => parse_cidr(text).map(|(ip, length)| Value::Cidr(ip, length)),
        "isCIDR" => Ok(Value::Bool(parse_cidr(text).is_ok())),
        _ => return None,
    })
}

fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

fn mapped(text: &str) -> String {
    format!("IPv4-mapped IPv6 address {} is not allowed", quote(text))
}

fn parse_ip(text: &str) -> Result<IpAddr, Error> {
    let address = address::parse(text).map_err(|why| {
        Error::new(format!("IP Address {} parse error during conversion from string: {why}", quote(text)))
    })?;
    if !address.zone.is_empty() {
        return Err(Error::new(format!("IP address {} with zone value is not allowed", quote(text))));
    }
    if is_mapped(address.ip) { Err(Error::new(mapped(text))) } else { Ok(address.ip) }
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u8), Error> {
    const WRONG: &str = "network address parse error during conversion from string: ";
    // Said once by whoever reads it and once by whoever has it read, as upstream does.
    let (ip, length) = address::prefix(text).map_err(|why| Error::new(format!("{WRONG}{WRONG}{why}")))?;
    if is_mapped(ip) { Err(Error::new(format!("{WRONG}{}", mapped(text)))) } else { Ok((ip, length)) }
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

fn on_cidr<'a>(name: &str, ip: IpAddr, length: u8, rest: &[Value<'a>]) -> Option<Outcome<'a>> {
    let has = |other: IpAddr| bits(other) == bits(ip) && masked(other, length) == masked(ip, length);
    Some(match (name, rest) {
        ("containsIP", [Value::Ip(other)]) => Ok(Value::Bool(has(*other))),
        // Upstream does not say what is wrong with the address.
        ("containsIP", [Value::String(other)]) => {
            parse_ip(other).map(|other| Value::Bool(has(other))).map_err(|_| Error::no_such_overload())
        }
        ("containsCIDR", [Value::Cidr(other, inner)]) => Ok(Value::Bool(has(*other) && *inner >= length)),
        ("containsCIDR", [Value::String(other)]) => {
            parse_cidr(other).map(|(other, inner)| Value::Bool(has(other) && inner >= length))
        }
        ("ip", []) => Ok(Value::Ip(ip)),
        ("masked", []) => Ok(Value::Cidr(masked(ip, length), length)),
        ("prefixLength", []) => Ok(Value::Int(i64::from(length))),
        _ => return None,
    })
}
