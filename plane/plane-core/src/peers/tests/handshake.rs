//! What comes to the peers' port and is no peer: it is told, and gets no further.

use std::{net::IpAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    super::{Multiaddr, PeerEvent},
    link::Node,
};

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
/// The agreement on Noise, as a dialler writes it.
const NOISE_PROPOSED: &[u8] = b"\x13/multistream/1.0.0\n\x07/noise\n";

async fn connect(addr: &Multiaddr) -> TcpStream {
    let port = addr.to_string().split('/').nth(4).unwrap().parse().unwrap();
    let port: u16 = port;
    TcpStream::connect(("127.0.0.1", port)).await.unwrap()
}

async fn refused(node: &mut Node) -> (IpAddr, &'static str) {
    let told = |event| match event {
        PeerEvent::Refused { ip, reason } => Some((ip, reason)),
        _ => None,
    };
    node.event(told).await
}

/// Sends it to a listener of its own, as each address is told of once.
async fn reason_for(opening: &[u8]) -> &'static str {
    let mut node = Node::new(|_| ());
    let mut stranger = connect(&node.listen().await).await;
    stranger.write_all(opening).await.unwrap();
    let (ip, reason) = refused(&mut node).await;
    assert_eq!(ip, LOOPBACK);
    reason
}

#[tokio::test]
async fn strangers_of_every_kind_are_told() {
    let http = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(80));
    let tls = [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        &[7; 500],
    ]
    .concat();
    let noise = [NOISE_PROPOSED, b"\x00\x40", &[0xaa; 64]].concat();
    for opening in [&[0xff; 300], http.as_bytes(), &tls, &noise] {
        assert_eq!(reason_for(opening).await, "handshake_failed", "{opening:?}");
    }
}

#[tokio::test]
async fn one_that_leaves_in_the_middle_is_told() {
    let mut node = Node::new(|_| ());
    drop(connect(&node.listen().await).await);
    assert_eq!(refused(&mut node).await, (LOOPBACK, "handshake_failed"));
}

#[tokio::test]
async fn one_that_says_nothing_is_closed_in_time_and_told() {
    let mut node = Node::new(|config| config.connect_within = Duration::from_millis(50));
    let mut stranger = connect(&node.listen().await).await;
    assert_eq!(refused(&mut node).await, (LOOPBACK, "handshake_timeout"));
    // Nothing of ours but the greeting, then the end.
    let _ = stranger.read_to_end(&mut Vec::new()).await;
}

#[tokio::test]
async fn a_peer_is_no_stranger() {
    let (mut router, agent) = (Node::new(|_| ()), Node::new(|_| ()));
    let addr = router.listen().await;
    agent.peers.dial(router.id(), vec![addr]).await.unwrap();
    assert!(matches!(
        router.events.recv().await.unwrap(),
        PeerEvent::Up { .. }
    ));
}
