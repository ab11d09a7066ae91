//! Checks of addresses that a peer names, before they are dialled.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest possible host name.
const LONGEST_HOST: usize = 253;

/// Why an address that a peer names must not be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressFault {
    /// It is not `host:port`.
    #[error("it is not host:port")]
    Form,
    /// The host is neither a name nor an IPv4 address nor an IPv6 address in brackets.
    #[error("its host is neither a name nor an IP address; an IPv6 address stands in brackets")]
    Host,
    /// The port is not a number from 1 to 65535.
    #[error("its port is not a number from 1 to 65535")]
    Port,
    /// The address is unspecified, multicast, broadcast or link-local, and so does not identify one server of a
    /// cluster.
    #[error("an unspecified, multicast, broadcast or link-local address does not identify one server")]
    Nobody,
}

/// Checks an `advertise_addr`, or the address in a hint. Otherwise a peer could have this side connect to addresses
/// that the peer itself cannot reach.
///
/// # Errors
///
/// [`AddressFault`] when the address must not be dialled.
pub fn check_address(address: &str) -> Result<(), AddressFault> {
    let (host, port) = address.rsplit_once(':').ok_or(AddressFault::Form)?;
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(AddressFault::Port);
    }
    match ip_address(host)? {
        Some(ip) if is_nobody(ip) => Err(AddressFault::Nobody),
        Some(_) => Ok(()),
        None if is_host_name(host) => Ok(()),
        None => Err(AddressFault::Host),
    }
}

/// The IP address that a host stands for; `None` for a name.
fn ip_address(host: &str) -> Result<Option<IpAddr>, AddressFault> {
    if let Some(inside) = host.strip_prefix('[') {
        let inside = inside.strip_suffix(']').ok_or(AddressFault::Host)?;
        let ip: Ipv6Addr = inside.parse().map_err(|_| AddressFault::Host)?;
        return Ok(Some(IpAddr::V6(ip).to_canonical()));
    }
    Ok(host.parse::<Ipv4Addr>().ok().map(IpAddr::V4))
}

fn is_nobody(ip: IpAddr) -> bool {
    ip.is_unspecified()
        || ip.is_multicast()
        || match ip {
            IpAddr::V4(ip) => ip.is_broadcast() || ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        }
}

/// Whether a host is a name: labels of letters, digits, hyphens and underscores. A last label that is a number is
/// refused, because systems read `127.1` and `2130706433` as addresses.
fn is_host_name(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    let in_disguise = last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit());
    name.len() <= LONGEST_HOST && name.split('.').all(is_label) && !in_disguise
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_told_from_everything_else() {
        for good in [
            "127.0.0.1:1",
            "[::1]:65535",
            "[2001:db8::7]:80",
            "localhost:12378",
            "sbp-0.sbp_servers.svc.cluster.local:12378",
            "host.:1",
            "192.168.0.7:9",
        ] {
            assert_eq!(check_address(good), Ok(()), "{good}");
        }
        let faults = [
            ("", AddressFault::Form),
            ("host", AddressFault::Form),
            ("host:0", AddressFault::Port),
            ("host:65536", AddressFault::Port),
            ("host:+7", AddressFault::Port),
            ("host:-1", AddressFault::Port),
            ("host:", AddressFault::Port),
            ("host: 7", AddressFault::Port),
            (":7", AddressFault::Host),
            ("/etc/passwd:7", AddressFault::Host),
            ("file:///etc:7", AddressFault::Host),
            ("../x:7", AddressFault::Host),
            ("http://host:7", AddressFault::Host),
            ("user@host:7", AddressFault::Host),
            ("a b:7", AddressFault::Host),
            ("a\n:7", AddressFault::Host),
            ("a\u{1b}[31m:7", AddressFault::Host),
            ("h\u{f6}st:7", AddressFault::Host),
            ("-o:7", AddressFault::Host),
            ("::1:7", AddressFault::Host),
            ("[::1:7", AddressFault::Host),
            ("[host]:7", AddressFault::Host),
            ("127.1:7", AddressFault::Host),
            ("2130706433:7", AddressFault::Host),
            ("0x7f000001:7", AddressFault::Host),
            ("0.0.0.0:7", AddressFault::Nobody),
            ("[::]:7", AddressFault::Nobody),
            ("169.254.169.254:80", AddressFault::Nobody),
            ("[::ffff:169.254.169.254]:80", AddressFault::Nobody),
            ("[fe80::1]:7", AddressFault::Nobody),
            ("224.0.0.1:7", AddressFault::Nobody),
            ("[ff02::1]:7", AddressFault::Nobody),
            ("255.255.255.255:7", AddressFault::Nobody),
        ];
        for (address, fault) in faults {
            assert_eq!(check_address(address), Err(fault), "{address:?}");
        }
        assert_eq!(
            check_address(&format!("{}:7", "a".repeat(LONGEST_HOST + 1))),
            Err(AddressFault::Host)
        );
    }
}
