//! Addresses: what can be dialled, whose limit an address counts against, and whether a port is taken.
//!
//! Only IP addresses with TCP are understood; names are resolved before they come here.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use libp2p::{Multiaddr, PeerId, multiaddr::Protocol};
use socket2::{Domain, Socket, Type};

/// Addresses of one peer that are tried; a longer list is cut.
const DIAL_ADDRS_MAX: usize = 16;
/// One network of IPv6 counts as one source, as in the original. Source: wire.md 5.7.
const IPV6_GROUP_BITS: u32 = 56;

/// The address a connection came from; IPv4 inside IPv6 is IPv4.
pub(super) fn ip_of(addr: &Multiaddr) -> Option<IpAddr> {
    addr.iter().find_map(|part| match part {
        Protocol::Ip4(ip) => Some(IpAddr::V4(ip)),
        Protocol::Ip6(ip) => Some(IpAddr::V6(ip).to_canonical()),
        _ => None,
    })
}

/// What a limit per address counts: one IPv4 address, or one IPv6 /56.
pub(super) fn ip_group(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => {
            let mask = u128::MAX << (128 - IPV6_GROUP_BITS);
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
        }
    }
}

/// The address and port, when the address is exactly `ip/tcp`.
fn socket_addr(addr: &Multiaddr) -> Option<SocketAddr> {
    let mut parts = addr.iter();
    let ip = match parts.next()? {
        Protocol::Ip4(ip) => IpAddr::V4(ip),
        Protocol::Ip6(ip) => IpAddr::V6(ip),
        _ => return None,
    };
    match (parts.next()?, parts.next()) {
        (Protocol::Tcp(port), None) => Some(SocketAddr::new(ip, port)),
        _ => None,
    }
}

/// Fails with the system's text when the port is taken.
///
/// libp2p shares its listening ports, so two routers on one port would each get half of the agents; a bind
/// that does not share finds out.
pub(super) fn probe_free(addr: &Multiaddr) -> io::Result<()> {
    match socket_addr(addr) {
        Some(at) if at.port() != 0 => bind(at),
        _ => Ok(()),
    }
}

/// As the transport does it: `::` is IPv6 alone.
fn bind(at: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(1)
}

/// The addresses that can be dialled for `peer`, without their `/p2p` part.
///
/// Others are left out; when nothing is left, the text says what was there.
pub(super) fn dialable(peer: PeerId, addrs: &[Multiaddr]) -> Result<Vec<Multiaddr>, String> {
    let mut usable = Vec::new();
    for addr in addrs {
        let mut bare = addr.clone();
        if let Some(Protocol::P2p(named)) = addr.iter().last() {
            if named != peer {
                return Err(format!("the address {addr} names another peer"));
            }
            bare.pop();
        }
        if socket_addr(&bare).is_some_and(|at| at.port() != 0 && !at.ip().is_unspecified()) {
            usable.push(bare);
        }
    }
    if usable.is_empty() {
        let given: Vec<_> = addrs.iter().map(Multiaddr::to_string).collect();
        return Err(format!(
            "no address can be dialled; ip4 or ip6 with tcp is needed, given: [{}]",
            given.join(", ")
        ));
    }
    usable.truncate(DIAL_ADDRS_MAX);
    Ok(usable)
}
