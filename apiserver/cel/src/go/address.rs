//! Addresses of the Internet Protocol as Go's `net/netip` reads them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::text::quote;

/// An address, and the zone it stands in; empty where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address<'t> {
    pub(crate) ip: IpAddr,
    pub(crate) zone: &'t str,
}

/// Reads an address.
///
/// # Errors
///
/// `ParseAddr("…"): …`, in Go's words.
pub(crate) fn parse(text: &str) -> Result<Address<'_>, String> {
    let read = match text.bytes().find(|byte| b".:%".contains(byte)) {
        Some(b'.') => v4(text).map(|bytes| Address { ip: IpAddr::V4(Ipv4Addr::from(bytes)), zone: "" }),
        Some(b':') => v6(text),
        Some(_) => Err(Wrong::whole("missing IPv6 address")),
        None => Err(Wrong::whole("unable to parse IP")),
    };
    read.map_err(|wrong| {
        let at = if wrong.at.is_empty() { String::new() } else { format!(" (at {})", quote(wrong.at)) };
        format!("ParseAddr({}): {}{at}", quote(text), wrong.what)
    })
}

/// Reads a range of addresses, such as `10.0.0.0/8`.
///
/// # Errors
///
/// `netip.ParsePrefix("…"): …`, in Go's words.
pub(crate) fn prefix(text: &str) -> Result<(IpAddr, u8), String> {
    let wrong = |what: &str| format!("netip.ParsePrefix({}): {what}", quote(text));
    let (address, digits) = text.rsplit_once('/').ok_or_else(|| wrong("no '/'"))?;
    let address = parse(address).map_err(|error| wrong(&error))?;
    if !address.zone.is_empty() {
        return Err(wrong("IPv6 zones cannot be present in a prefix"));
    }
    let bad = || wrong(&format!("bad bits after slash: {}", quote(digits)));
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || digits.len() > 19 || (digits.len() > 1 && digits.starts_with('0')) {
        return Err(bad());
    }
    let most = if address.ip.is_ipv4() { 32 } else { 128 };
    let length = digits.parse::<u8>().ok().filter(|length| *length <= most);
    length.map(|length| (address.ip, length)).ok_or_else(|| wrong("prefix length out of range"))
}

/// What is wrong with an address, and where.
struct Wrong<'t> {
    what: &'static str,
    at: &'t str,
}

impl<'t> Wrong<'t> {
    fn whole(what: &'static str) -> Self {
        Self { what, at: "" }
    }

    fn at(at: &'t str, what: &'static str) -> Self {
        Self { what, at }
    }
}

fn v4(text: &str) -> Result<[u8; 4], Wrong<'_>> {
    let mut fields = [0_u8; 4];
    let (mut field, mut digits, mut value) = (0, 0, 0_u32);
    let bytes = text.as_bytes();
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            b'0'..=b'9' if digits == 1 && value == 0 => {
                return Err(Wrong::whole("IPv4 field has octet with leading zero"));
            }
            b'0'..=b'9' => {
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
                fields[field] = u8::try_from(value).map_err(|_| Wrong::whole("IPv4 field has value >255"))?;
            }
            b'.' if index == 0 || index + 1 == bytes.len() || bytes[index - 1] == b'.' => {
                return Err(Wrong::at(&text[index..], "IPv4 field must have at least one digit"));
            }
            b'.' if field == 3 => return Err(Wrong::whole("IPv4 address too long")),
            b'.' => (field, digits, value) = (field + 1, 0, 0),
            _ => return Err(Wrong::at(&text[index..], "unexpected character")),
        }
    }
    if field < 3 { Err(Wrong::whole("IPv4 address too short")) } else { Ok(fields) }
}

fn v6(text: &str) -> Result<Address<'_>, Wrong<'_>> {
    let (address, zone) = text.split_once('%').unwrap_or((text, ""));
    if zone.is_empty() && address.len() < text.len() {
        return Err(Wrong::whole("zone must be a non-empty string"));
    }
    let mut groups: Vec<u16> = Vec::with_capacity(8);
    // How many groups stand before `::`.
    let mut gap = None;
    let mut rest = address;
    if let Some(after) = rest.strip_prefix("::") {
        (gap, rest) = (Some(0), after);
    }
    while groups.len() < 8 && !(rest.is_empty() && gap.is_some() && groups.len() == gap.unwrap_or(0)) {
        let end = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        match end {
            0 => return Err(Wrong::at(rest, "each colon-separated field must have at least one digit")),
            1..=4 => {}
            _ => return Err(Wrong::at(rest, "each group must have 4 or less digits")),
        }
        if rest[end..].starts_with('.') {
            if gap.is_none() && groups.len() != 6 {
                return Err(Wrong::at(rest, "embedded IPv4 address must replace the final 2 fields of the address"));
            }
            if groups.len() > 6 {
                let what = "too many hex fields to fit an embedded IPv4 at the end of the address";
                return Err(Wrong::at(rest, what));
            }
            let [a, b, c, d] = v4(rest)?;
            groups.extend([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]);
            rest = "";
            break;
        }
        groups.push(u16::from_str_radix(&rest[..end], 16).unwrap_or(0));
        rest = &rest[end..];
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(':') else {
            return Err(Wrong::at(rest, "unexpected character, want colon"));
        };
        if after.is_empty() {
            return Err(Wrong::at(rest, "colon must be followed by more characters"));
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if gap.is_some() {
                return Err(Wrong::at(rest, "multiple :: in address"));
            }
            (gap, rest) = (Some(groups.len()), after);
        }
    }
    if !rest.is_empty() {
        return Err(Wrong::at(rest, "trailing garbage after address"));
    }
    match gap {
        None if groups.len() < 8 => return Err(Wrong::whole("address string too short")),
        Some(_) if groups.len() == 8 => {
            return Err(Wrong::whole("the :: must expand to at least one field of zeros"));
        }
        Some(gap) => {
            let zeros = std::iter::repeat_n(0, 8 - groups.len());
            groups.splice(gap..gap, zeros);
        }
        None => {}
    }
    let groups: [u16; 8] = groups.try_into().map_err(|_| Wrong::whole("address string too short"))?;
    Ok(Address { ip: IpAddr::V6(Ipv6Addr::from(groups)), zone })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("127.0.0.1", Ok("127.0.0.1")),
            ("::", Ok("::")),
            ("::1", Ok("::1")),
            ("1::", Ok("1::")),
            ("1:2:3:4:5:6:7:8", Ok("1:2:3:4:5:6:7:8")),
            ("1:2:3:4:5:6:1.2.3.4", Ok("1:2:3:4:5:6:102:304")),
            ("64:FF9B::1.2.3.4", Ok("64:ff9b::102:304")),
            ("fe80::1%eth0", Ok("fe80::1")),
            ("", Err("unable to parse IP")),
            ("%eth0", Err("missing IPv6 address")),
            ("1.2.3", Err("IPv4 address too short")),
            ("1.2.3.4.5", Err("IPv4 address too long")),
            ("1.2.3.256", Err("IPv4 field has value >255")),
            ("1.2.3.04", Err("IPv4 field has octet with leading zero")),
            ("1..2.3", Err("IPv4 field must have at least one digit (at \".2.3\")")),
            ("1.2.3.", Err("IPv4 field must have at least one digit (at \".\")")),
            ("1.2.3.-4", Err("unexpected character (at \"-4\")")),
            ("fe80::1%", Err("zone must be a non-empty string")),
            (":::1", Err("each colon-separated field must have at least one digit (at \":1\")")),
            ("12345::", Err("each group must have 4 or less digits (at \"12345::\")")),
            ("1::2::3", Err("multiple :: in address (at \":3\")")),
            ("1:2:3", Err("address string too short")),
            ("1:2:3:4:5:6:7:8:9", Err("trailing garbage after address (at \"9\")")),
            ("1:2:3:4:5:6:7::8", Err("the :: must expand to at least one field of zeros")),
            ("1:", Err("colon must be followed by more characters (at \":\")")),
            ("1:2g", Err("unexpected character, want colon (at \"g\")")),
            ("1:1.2.3.4", Err("embedded IPv4 address must replace the final 2 fields of the address (at \"1.2.3.4\")")),
        ] {
            let read = parse(text).map(|address| address.ip.to_string());
            let expected = expected.map(str::to_owned).map_err(|what| format!("ParseAddr({}): {what}", quote(text)));
            assert_eq!(read, expected);
        }
    }

    #[test]
    fn ranges_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("10.0.0.0/8", Ok(8)),
            ("::/0", Ok(0)),
            ("::/129", Err("prefix length out of range")),
            ("10.0.0.0/33", Err("prefix length out of range")),
            ("10.0.0.0/08", Err("bad bits after slash: \"08\"")),
            ("10.0.0.0/+8", Err("bad bits after slash: \"+8\"")),
            ("10.0.0.0/", Err("bad bits after slash: \"\"")),
            ("10.0.0.0", Err("no '/'")),
            ("fe80::1%a/64", Err("IPv6 zones cannot be present in a prefix")),
            ("x/8", Err("ParseAddr(\"x\"): unable to parse IP")),
        ] {
            let expected = expected.map_err(|what| format!("netip.ParsePrefix({}): {what}", quote(text)));
            assert_eq!(prefix(text).map(|(_, length)| length), expected);
        }
    }
}
