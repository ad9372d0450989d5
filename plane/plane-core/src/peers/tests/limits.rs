//! The limits, asked of the behaviour and of a connection's counters directly.

use std::{
    io,
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures::FutureExt;
use libp2p::{
    Multiaddr, PeerId, TransportError,
    core::ConnectedPoint,
    swarm::{
        ConnectionClosed, ConnectionId, FromSwarm, ListenError, ListenFailure, NetworkBehaviour,
        ToSwarm,
    },
};
use tokio::sync::mpsc;

use super::super::{
    OpenError,
    addr::{dialable, ip_group},
    behaviour::{Link, LinkLimits, Refused},
    conn::Conn,
};

fn link(conns_per_ip: usize, connections_max: usize) -> Link {
    let limits = LinkLimits {
        streams_max: 1024,
        inbound_served: 1,
        conns_per_ip,
        connections_max,
        welcome_within: None,
        open_within: Duration::from_secs(10),
    };
    Link::new(limits, Default::default(), mpsc::channel(1).0)
}

fn from(ip: &str) -> Multiaddr {
    let kind = if ip.contains(':') { "ip6" } else { "ip4" };
    format!("/{kind}/{ip}/tcp/40000").parse().unwrap()
}

fn arrives(link: &mut Link, id: usize, ip: &str) -> bool {
    let local = "/ip4/10.0.0.1/tcp/9000".parse().unwrap();
    let id = ConnectionId::new_unchecked(id);
    link.handle_pending_inbound_connection(id, &local, &from(ip))
        .is_ok()
}

fn fails(link: &mut Link, id: usize, ip: &str) {
    link.on_swarm_event(FromSwarm::ListenFailure(ListenFailure {
        local_addr: &"/ip4/10.0.0.1/tcp/9000".parse().unwrap(),
        send_back_addr: &from(ip),
        error: &ListenError::Aborted,
        connection_id: ConnectionId::new_unchecked(id),
        peer_id: None,
    }));
}

fn refused(link: &mut Link) -> Vec<String> {
    let mut told = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    while let Poll::Ready(action) = link.poll(&mut cx) {
        if let ToSwarm::GenerateEvent(Refused { ip, .. }) = action {
            told.push(ip.to_string());
        }
    }
    told
}

#[test]
fn one_address_gets_its_share_and_another_is_not_touched() {
    let mut link = link(2, 100);
    assert!(arrives(&mut link, 1, "192.0.2.1"));
    assert!(arrives(&mut link, 2, "192.0.2.1"));
    assert!(!arrives(&mut link, 3, "192.0.2.1"));
    assert!(arrives(&mut link, 4, "192.0.2.2"));
}

#[test]
fn a_failed_handshake_gives_its_place_back() {
    let mut link = link(1, 100);
    assert!(arrives(&mut link, 1, "192.0.2.1"));
    fails(&mut link, 1, "192.0.2.1");
    assert!(arrives(&mut link, 2, "192.0.2.1"));
}

#[test]
fn a_closed_connection_gives_its_place_back() {
    let mut link = link(1, 100);
    assert!(arrives(&mut link, 1, "192.0.2.1"));
    link.on_swarm_event(FromSwarm::ConnectionClosed(ConnectionClosed {
        peer_id: PeerId::random(),
        connection_id: ConnectionId::new_unchecked(1),
        endpoint: &ConnectedPoint::Listener {
            local_addr: from("10.0.0.1"),
            send_back_addr: from("192.0.2.1"),
        },
        cause: None,
        remaining_established: 0,
    }));
    assert!(arrives(&mut link, 2, "192.0.2.1"));
}

#[test]
fn the_failure_of_a_refused_connection_gives_nothing_back() {
    let mut link = link(1, 100);
    assert!(arrives(&mut link, 1, "192.0.2.1"));
    assert!(!arrives(&mut link, 2, "192.0.2.1"));
    fails(&mut link, 2, "192.0.2.1");
    assert!(!arrives(&mut link, 3, "192.0.2.1"));
}

#[test]
fn loopback_is_free_of_the_limit_per_address_but_not_of_the_one_in_all() {
    let mut link = link(1, 3);
    for (id, ip) in [(1, "127.0.0.1"), (2, "127.0.0.1"), (3, "::1")] {
        assert!(arrives(&mut link, id, ip));
    }
    assert!(!arrives(&mut link, 4, "127.0.0.1"));
    fails(&mut link, 3, "::1");
    assert!(arrives(&mut link, 5, "127.0.0.1"));
}

#[test]
fn one_ipv6_network_is_one_source_and_mapped_ipv4_is_ipv4() {
    let mut link = link(1, 100);
    assert!(arrives(&mut link, 1, "2001:db8:0:ab00::1"));
    assert!(!arrives(&mut link, 2, "2001:db8:0:abff::2"));
    assert!(arrives(&mut link, 3, "2001:db8:0:ac00::1"));
    assert!(arrives(&mut link, 4, "192.0.2.1"));
    assert!(!arrives(&mut link, 5, "::ffff:192.0.2.1"));
    assert_eq!(
        ip_group("2001:db8:0:abcd::1".parse().unwrap()).to_string(),
        "2001:db8:0:ab00::"
    );
}

#[test]
fn a_refusal_names_the_bound_that_was_met() {
    for (conns_per_ip, connections_max, bound) in [
        (0, 100, "too_many_connections_of_address"),
        (100, 0, "too_many_links"),
    ] {
        let mut link = link(conns_per_ip, connections_max);
        assert!(!arrives(&mut link, 1, "192.0.2.1"));
        let told = link.poll(&mut Context::from_waker(Waker::noop()));
        assert!(
            matches!(&told, Poll::Ready(ToSwarm::GenerateEvent(refused)) if refused.reason == bound),
            "{told:?}"
        );
    }
}

#[test]
fn refusals_of_one_address_are_told_once() {
    let mut link = link(0, 100);
    for id in 0..10 {
        assert!(!arrives(&mut link, id, "192.0.2.1"));
    }
    assert!(!arrives(&mut link, 10, "192.0.2.2"));
    assert_eq!(refused(&mut link), ["192.0.2.1", "192.0.2.2"]);
}

#[test]
fn a_failed_handshake_is_told_beside_the_refusals_of_its_address() {
    let mut link = link(1, 100);
    assert!(arrives(&mut link, 1, "192.0.2.1"));
    assert!(!arrives(&mut link, 2, "192.0.2.1"));
    for id in [2, 1] {
        link.on_swarm_event(FromSwarm::ListenFailure(ListenFailure {
            local_addr: &from("10.0.0.1"),
            send_back_addr: &from("192.0.2.1"),
            error: &ListenError::Transport(TransportError::Other(io::Error::other("noise"))),
            connection_id: ConnectionId::new_unchecked(id),
            peer_id: None,
        }));
    }
    assert_eq!(refused(&mut link), ["192.0.2.1", "192.0.2.1"]);
}

#[test]
fn the_memory_of_refusals_is_bounded() {
    let mut link = link(0, 100);
    for n in 0..2000 {
        arrives(&mut link, n, &format!("10.9.{}.{}", n / 250, n % 250));
    }
    assert_eq!(refused(&mut link).len(), 1024);
}

fn conn(streams_max: usize) -> Conn {
    let id = (ConnectionId::new_unchecked(1), PeerId::random());
    Conn::new(id, from("192.0.2.1"), true, streams_max).0
}

#[test]
fn a_peer_of_our_kind_gets_the_configured_streams_and_every_other_the_careful_number() {
    for (agent_version, cap) in [
        ("hivenet-router-py/0.1.0", 1024),
        ("hivenet_router@v1.2.3", 64),
        ("go-libp2p/0.47.0", 64),
        ("", 64),
    ] {
        let conn = conn(1024);
        assert_eq!(conn.cap(), 64);
        assert!(conn.identified(agent_version));
        assert_eq!(conn.agent_version(), Some(agent_version));
        assert_eq!(conn.cap(), cap, "{agent_version}");
    }
}

#[test]
fn the_first_agent_version_stands_and_is_cut() {
    let conn = conn(1024);
    assert!(conn.identified(&"ö".repeat(4000)));
    assert!(!conn.identified("hivenet-router-py/0.1.0"));
    assert_eq!(conn.agent_version().unwrap().chars().count(), 128);
    assert_eq!(conn.cap(), 64);
}

#[test]
fn the_caller_can_lower_the_cap_and_not_raise_it() {
    let conn = conn(1024);
    conn.set_cap(3);
    assert_eq!(conn.cap(), 3);
    conn.identified("hivenet-router-py/0.1.0");
    assert_eq!(conn.cap(), 3);
    conn.set_cap(9999);
    assert_eq!(conn.cap(), 1024);
}

#[test]
fn at_the_cap_a_connection_says_full_at_once_and_after_its_end_gone() {
    let conn = conn(1024);
    conn.set_cap(0);
    assert!(matches!(
        conn.open().now_or_never(),
        Some(Err(OpenError::Full))
    ));
    conn.closed.cancel();
    assert!(matches!(
        conn.open().now_or_never(),
        Some(Err(OpenError::Gone))
    ));
    assert_eq!(conn.live(), 0);
}

#[test]
fn dial_addresses_may_name_the_peer_and_no_other() {
    let peer = PeerId::random();
    let parse = |text: String| text.parse::<Multiaddr>().unwrap();
    let named = parse(format!("/ip4/192.0.2.1/tcp/9000/p2p/{peer}"));
    let six = parse("/ip6/2001:db8::1/tcp/9000".to_owned());
    let quic = parse("/ip4/192.0.2.1/udp/9000/quic-v1".to_owned());
    let usable = dialable(peer, &[named, quic.clone(), six.clone()]).unwrap();
    assert_eq!(usable, [parse("/ip4/192.0.2.1/tcp/9000".to_owned()), six]);
    let other = parse(format!("/ip4/192.0.2.1/tcp/9000/p2p/{}", PeerId::random()));
    assert!(
        dialable(peer, &[other])
            .unwrap_err()
            .contains("names another peer")
    );
    assert!(
        dialable(peer, &[quic])
            .unwrap_err()
            .contains("/udp/9000/quic-v1")
    );
    assert!(
        dialable(peer, &[])
            .unwrap_err()
            .contains("no address can be dialled")
    );
}

#[test]
fn an_open_error_keeps_the_text_of_what_failed() {
    let error = OpenError::Io(io::Error::other("broken pipe"));
    assert!(error.to_string().contains("broken pipe"));
}
