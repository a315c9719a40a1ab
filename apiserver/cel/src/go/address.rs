//! Addresses of the Internet Protocol as Go's `net/netip` reads them.

use std::net::IpAddr;

use super::text::quote;

/// An address, and the zone it stands in; empty where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address<'t> {
    pub(crate) ip: IpAddr,
    pub(crate) zone: &'t str,
}

/// Reads an address. The error has Go's words for a text that is like none.
pub(crate) fn parse(text: &str) -> Result<Address<'_>, String> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) if address.contains(':') && !zone.is_empty() => (address, zone),
        _ => (text, ""),
    };
    let read = address.parse().map(|ip| Address { ip, zone });
    read.map_err(|_| format!("ParseAddr({}): unable to parse IP", quote(text)))
}

/// Reads a range of addresses, such as `10.0.0.0/8`.
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
            ("%eth0", Err("unable to parse IP")),
            ("1.2.3", Err("unable to parse IP")),
            ("1.2.3.4.5", Err("unable to parse IP")),
            ("1.2.3.256", Err("unable to parse IP")),
            ("1.2.3.04", Err("unable to parse IP")),
            ("1..2.3", Err("unable to parse IP")),
            ("1.2.3.", Err("unable to parse IP")),
            ("1.2.3.-4", Err("unable to parse IP")),
            ("fe80::1%", Err("unable to parse IP")),
            (":::1", Err("unable to parse IP")),
            ("12345::", Err("unable to parse IP")),
            ("1::2::3", Err("unable to parse IP")),
            ("1:2:3", Err("unable to parse IP")),
            ("1:2:3:4:5:6:7:8:9", Err("unable to parse IP")),
            ("1:2:3:4:5:6:7::8", Err("unable to parse IP")),
            ("1:", Err("unable to parse IP")),
            ("1:2g", Err("unable to parse IP")),
            ("1:1.2.3.4", Err("unable to parse IP")),
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
