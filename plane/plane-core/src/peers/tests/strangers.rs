//! Strangers: what a peer may hold, do and keep before it is welcome.

use std::{io::ErrorKind, net::IpAddr, time::Duration};

use libp2p::{Multiaddr, PeerId, swarm::ConnectionId};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::{
    super::{
        Peers, PeersConfig,
        admission::{Admission, STRANGERS_MAX, STRANGERS_PER_IP_MAX},
        guests::Guests,
        new_identity_bytes,
        yamux::{MuxConfig, STRANGER_STREAMS_MAX, Side},
    },
    bytes,
    pipe::{TestStream, run},
};

const UNREAD_BYTES_MAX: usize = 16 << 10;

fn id(number: usize) -> ConnectionId {
    ConnectionId::new_unchecked(number)
}

fn ip(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

/// A stranger gets through its handshake; who gives way.
fn comes(
    admission: &mut Admission,
    guests: &Guests,
    (number, from, peer): (usize, Option<IpAddr>, PeerId),
) -> Result<Option<ConnectionId>, &'static str> {
    let first = admission.admit(id(number), from)?;
    let stranger = (peer, guests.trust(&peer), guests.is_known(&peer));
    let second =
        admission.admit_stranger((id(number), from), stranger, std::time::Instant::now())?;
    Ok(first.or(second).map(|(_, leaving, _)| leaving))
}

#[test]
fn the_oldest_stranger_of_an_address_gives_way_to_the_next_one() {
    let (mut admission, guests) = (Admission::new(32, 4096), Guests::new(true));
    for number in 0..STRANGERS_PER_IP_MAX {
        let came = (number, ip("192.0.2.1"), PeerId::random());
        assert_eq!(comes(&mut admission, &guests, came), Ok(None));
    }
    let came = (99, ip("192.0.2.1"), PeerId::random());
    assert_eq!(comes(&mut admission, &guests, came), Ok(Some(id(0))));
    let came = (100, ip("192.0.2.2"), PeerId::random());
    assert_eq!(comes(&mut admission, &guests, came), Ok(None));
}

#[test]
fn any_number_of_strangers_leaves_a_place_for_whoever_comes_next() {
    let (mut admission, guests) = (Admission::new(32, 4096), Guests::new(true));
    for number in 0..4095_usize {
        let came = (number, ip("127.0.0.1"), PeerId::random());
        let leaving = number.checked_sub(STRANGERS_MAX).map(id);
        assert_eq!(comes(&mut admission, &guests, came), Ok(leaving));
    }
}

#[test]
fn the_last_places_are_kept_for_peers_that_were_welcome_before() {
    let (mut admission, guests) = (Admission::new(32, 32), Guests::new(true));
    let (known, stranger) = (PeerId::random(), PeerId::random());
    guests.welcome(known);
    guests.unwelcome(&known);
    // As many guests as leave the last places free.
    for number in 0..30 {
        assert!(admission.admit(id(number), ip("127.0.0.1")).is_ok());
    }
    let refused = comes(&mut admission, &guests, (30, ip("127.0.0.1"), stranger));
    assert_eq!(refused, Err("the last places are kept for known peers"));
    admission.forget(id(30));
    let came = comes(&mut admission, &guests, (31, ip("127.0.0.1"), known));
    assert_eq!(came, Ok(None));
}

#[test]
fn who_is_welcome_neither_gives_way_nor_is_cut_off() {
    let (mut admission, guests) = (Admission::new(32, 4096), Guests::new(true));
    let (agent, stranger) = (PeerId::random(), PeerId::random());
    for (number, peer) in [(0, agent), (1, stranger)] {
        assert!(comes(&mut admission, &guests, (number, ip("192.0.2.1"), peer)).is_ok());
    }
    guests.welcome(agent);
    let late: Vec<_> = admission
        .overdue(Duration::ZERO, std::time::Instant::now())
        .into_iter()
        .map(|(peer, ..)| peer)
        .collect();
    assert_eq!(late, [stranger]);
    assert!(!guests.trust(&agent).is_stranger());
}

fn stranger_config(guests: &Guests, peer: &PeerId) -> MuxConfig {
    MuxConfig {
        stranger: Some(guests.trust(peer)),
        ..MuxConfig::default()
    }
}

/// What there is to read of a stream that does not end.
async fn read_what_there_is(stream: &mut TestStream) -> usize {
    let (mut read, mut room) = (0, [0; 4096]);
    while let Ok(count) = timeout(Duration::from_millis(100), stream.read(&mut room)).await {
        read += count.unwrap();
    }
    read
}

#[tokio::test]
async fn a_stranger_holds_sixteen_kilobytes_of_a_stream_and_eight_streams_until_it_is_welcome() {
    let (guests, peer) = (Guests::new(true), PeerId::random());
    let (near, far) = tokio::io::duplex(1 << 20);
    let left = run(near, &MuxConfig::default(), Side::Dialer);
    let mut right = run(far, &stranger_config(&guests, &peer), Side::Listener);
    let mut flood = left.open().await;
    flood.write_all(&[7; 200 << 10]).await.unwrap();
    tokio::task::yield_now().await;
    let mut more = left.open().await;
    more.write_all(b"?").await.unwrap();
    flood.shutdown().await.unwrap();
    let mut cut_short = right.accept().await;
    assert_eq!(read_what_there_is(&mut cut_short).await, UNREAD_BYTES_MAX);
    cut_short.write_all(b"!").await.unwrap();
    assert_eq!(flood.read_u8().await.unwrap(), b'!');
    drop(cut_short);
    let mut held = vec![right.accept().await];
    for _ in 1..STRANGER_STREAMS_MAX {
        let mut stream = left.open().await;
        stream.write_all(b"?").await.unwrap();
        held.push(right.accept().await);
    }
    let mut ninth = left.open().await;
    ninth.write_all(b"?").await.unwrap();
    let refused = ninth.read_u8().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionReset);

    guests.welcome(peer);
    let mut long = left.open().await;
    long.write_all(&[7; 200 << 10]).await.unwrap();
    let mut read = vec![0; 200 << 10];
    right.accept().await.read_exact(&mut read).await.unwrap();
}

/// Sends the frame again and again; what the other end says as it ends the connection.
async fn flooded(frame: &str, times: usize, config: &MuxConfig) -> Option<String> {
    let (mut raw, far) = tokio::io::duplex(1 << 20);
    let mut right = run(far, config, Side::Listener);
    let (frame, task) = (bytes(frame), &mut right.task);
    let sends = async {
        for _ in 0..times {
            if raw.write_all(&frame).await.is_err() {
                return;
            }
            // Whoever sends takes no answers, which are few here.
            let _ = timeout(Duration::ZERO, raw.read(&mut [0; 65536])).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = task => ended.unwrap().err().map(|error| error.to_string()),
        () = sends => None,
        () = tokio::time::sleep(Duration::from_secs(2)) => None,
    }
}

#[tokio::test(start_paused = true)]
async fn frames_that_carry_nothing_have_a_rate() {
    let guest = MuxConfig::default();
    for (what, frame, max) in [
        ("pings", "000200010000000000000007", 1_000),
        ("resets", "000000080000000100000000", 40_000),
        ("window updates", "000100000000000100000001", 100_000),
        ("empty frames", "000000000000000100000000", 100_000),
    ] {
        assert_eq!(flooded(frame, max, &guest).await, None, "{what}");
        let ended = flooded(frame, max + 2, &guest).await.unwrap_or_default();
        assert!(
            ended.contains(&format!("too many {what}")),
            "{what}: {ended}"
        );
    }
    let (guests, peer) = (Guests::new(true), PeerId::random());
    let stranger = stranger_config(&guests, &peer);
    let ended = flooded("000100000000000100000001", 5_002, &stranger).await;
    assert!(ended.is_some_and(|why| why.contains("before it has registered")));
}

#[tokio::test]
async fn who_is_not_welcomed_in_time_is_cut_off_and_who_is_stays() {
    let mut config = PeersConfig::new(new_identity_bytes());
    config.welcome_within = Some(Duration::from_secs(1));
    let (router, _streams, _events) = Peers::start(config).unwrap();
    let any: Multiaddr = "/ip4/127.0.0.1/tcp/0".parse().unwrap();
    let bound = router.listen(any).await.unwrap();
    let mut ends = Vec::new();
    for _ in 0..2 {
        let config = PeersConfig::new(new_identity_bytes());
        let (peer, streams, events) = Peers::start(config).unwrap();
        peer.dial(router.local_peer_id(), bound.clone())
            .await
            .unwrap();
        ends.push((peer, streams, events));
    }
    let (agent, stranger) = (&ends[0].0, &ends[1].0);
    router.welcome(agent.local_peer_id());
    let link = stranger.conn(&router.local_peer_id()).unwrap();
    link.closed.cancelled().await;
    assert!(router.conn(&agent.local_peer_id()).is_some());
    assert!(agent.conn(&router.local_peer_id()).is_some());
}
