//! Connections that come, are replaced, closed, refused or lost.

use std::{io::ErrorKind, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

use super::{
    super::{Multiaddr, OpenError, PeerEvent, Peers, PeersConfig, PeersError, new_identity_bytes},
    link::{Node, linked},
};

fn port_of(addr: &Multiaddr) -> u16 {
    addr.to_string().split('/').nth(4).unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_newest_connection_of_a_peer_wins() {
    let (mut router, mut agent, old) = linked(|_| (), |_| ()).await;
    let mut stream = old.open().await.unwrap();
    stream.write_all(b"x").await.unwrap();
    let served = agent.inbound.recv().await.unwrap();
    let addr = router.listen().await;
    agent.peers.dial(router.id(), vec![addr]).await.unwrap();
    assert_eq!(
        stream.read(&mut [0; 8]).await.unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    old.closed.cancelled().await;
    assert!(matches!(old.open().await, Err(OpenError::Gone)));
    let new = router.peers.conn(&agent.id()).unwrap();
    assert_ne!(new.id, old.id);
    served.conn.closed.cancelled().await;
    // Nothing has gone down: the next thing that is heard is about the new connection.
    assert!(matches!(
        router.events.recv().await.unwrap(),
        PeerEvent::Up { .. }
    ));
    router.identified().await;
    new.open().await.unwrap();
}

#[tokio::test]
async fn closing_a_peer_ends_its_connection_and_tells_both_ends() {
    let (mut router, mut agent, conn) = linked(|_| (), |_| ()).await;
    let mut stream = conn.open().await.unwrap();
    stream.write_all(b"x").await.unwrap();
    let mut served = agent.inbound.recv().await.unwrap();
    served.read_u8().await.unwrap();
    let agent_id = agent.id();
    router.peers.close_peer(&agent_id);
    assert!(router.peers.conn(&agent_id).is_none());
    assert!(matches!(conn.open().await, Err(OpenError::Gone)));
    for end in [
        stream.read(&mut [0; 8]).await,
        served.read(&mut [0; 8]).await,
    ] {
        assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    assert_eq!(router.down().await, "closed by this side");
    assert_eq!(agent.down().await, "the peer closed the connection");
    assert!(agent.peers.conn(&router.id()).is_none());
}

#[tokio::test]
async fn a_closed_peer_may_come_back() {
    let (mut router, mut agent, _conn) = linked(|_| (), |_| ()).await;
    let addr = router.listen().await;
    router.peers.close_peer(&agent.id());
    agent.down().await;
    agent.peers.dial(router.id(), vec![addr]).await.unwrap();
    router.identified().await;
    router
        .peers
        .conn(&agent.id())
        .unwrap()
        .open()
        .await
        .unwrap();
}

#[tokio::test]
async fn the_end_of_the_last_handle_ends_the_connections() {
    let (router, mut agent, _conn) = linked(|_| (), |_| ()).await;
    drop(router);
    agent.down().await;
}

/// A relay before `port` that can be stopped: both sockets stay open and nothing moves.
async fn relay_to(port: u16) -> (Multiaddr, Arc<Notify>) {
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = format!("/ip4/127.0.0.1/tcp/{}", relay.local_addr().unwrap().port());
    let stop = Arc::new(Notify::new());
    let stopping = stop.clone();
    tokio::spawn(async move {
        let (mut near, _) = relay.accept().await.unwrap();
        let mut far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut near, &mut far) => (),
            () = stopping.notified() => (),
        }
        std::future::pending::<()>().await;
    });
    (addr.parse().unwrap(), stop)
}

#[tokio::test]
async fn a_peer_that_answers_no_pings_is_closed_with_a_reason() {
    let quick = |config: &mut PeersConfig| {
        config.ping_every = Duration::from_millis(100);
        config.ping_within = Duration::from_millis(400);
    };
    let (mut router, mut agent) = (Node::new(|_| ()), Node::new(quick));
    let (addr, stop) = relay_to(port_of(&router.listen().await)).await;
    agent.peers.dial(router.id(), vec![addr]).await.unwrap();
    router.identified().await;
    agent.identified().await;
    let conn = agent.peers.conn(&router.id()).unwrap();
    let mut stream = conn.open().await.unwrap();
    stop.notify_one();
    let error = stream.read(&mut [0; 8]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(agent.down().await, "the peer does not answer pings");
}

#[tokio::test]
async fn a_stopped_peer_fills_its_cap_and_does_not_end_the_connection() {
    let (mut router, mut agent) = (Node::new(|_| ()), Node::new(|_| ()));
    let (addr, stop) = relay_to(port_of(&router.listen().await)).await;
    agent.peers.dial(router.id(), vec![addr]).await.unwrap();
    router.identified().await;
    agent.identified().await;
    let conn = agent.peers.conn(&router.id()).unwrap();
    stop.notify_one();
    let full = Arc::new(Notify::new());
    for _ in 0..4000 {
        let (conn, full) = (conn.clone(), full.clone());
        tokio::spawn(async move {
            match conn.open().await {
                // Written and left: such streams weigh on the connection without holding a slot.
                Ok(mut stream) => drop(stream.write(&[7; 32 << 10]).await),
                Err(OpenError::Full) => full.notify_one(),
                Err(_) => (),
            }
        });
        tokio::task::yield_now().await;
    }
    full.notified().await;
    assert!(!conn.closed.is_cancelled());
}

#[tokio::test]
async fn a_port_in_use_is_an_error_with_the_systems_text() {
    let holder = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = format!("/ip4/127.0.0.1/tcp/{}", holder.local_addr().unwrap().port());
    let node = Node::new(|_| ());
    let error = node.peers.listen(addr.parse().unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    assert!(error.to_string().contains(&addr), "{error}");
}

#[tokio::test]
async fn two_links_do_not_share_a_port() {
    let (one, other) = (Node::new(|_| ()), Node::new(|_| ()));
    let addr = one.listen().await;
    let error = other.peers.listen(addr).await.unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
}

#[tokio::test]
async fn an_address_that_is_not_ip_and_tcp_is_refused() {
    let node = Node::new(|_| ());
    let addr = "/ip4/127.0.0.1/udp/0/quic-v1".parse().unwrap();
    let error = node.peers.listen(addr).await.unwrap_err();
    assert!(
        error.to_string().contains("ip4 or ip6 address with tcp"),
        "{error}"
    );
}

#[tokio::test]
async fn dialling_finds_another_peer_than_expected_and_says_so() {
    let (router, agent, stranger) = (Node::new(|_| ()), Node::new(|_| ()), Node::new(|_| ()));
    let addr = router.listen().await;
    let error = agent
        .peers
        .dial(stranger.id(), vec![addr])
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&router.id().to_string()), "{text}");
    assert!(text.contains(&stranger.id().to_string()), "{text}");
    assert!(agent.peers.conn(&router.id()).is_none());
}

#[tokio::test]
async fn dialling_takes_an_address_that_names_the_peer() {
    let (router, agent) = (Node::new(|_| ()), Node::new(|_| ()));
    let named = format!("{}/p2p/{}", router.listen().await, router.id());
    agent
        .peers
        .dial(router.id(), vec![named.parse().unwrap()])
        .await
        .unwrap();
    assert!(agent.peers.conn(&router.id()).is_some());
}

#[tokio::test]
async fn dialling_where_nobody_listens_gives_the_systems_text() {
    let vacant = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let addr = format!("/ip4/127.0.0.1/tcp/{}", vacant.port())
        .parse()
        .unwrap();
    let (agent, stranger) = (Node::new(|_| ()), Node::new(|_| ()));
    let error = agent
        .peers
        .dial(stranger.id(), vec![addr])
        .await
        .unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
}

#[test]
fn outside_a_runtime_the_link_does_not_start() {
    let started = Peers::start(PeersConfig::new(new_identity_bytes()));
    assert_eq!(started.err(), Some(PeersError::NoRuntime));
}

#[tokio::test]
async fn who_sees_a_stream_end_with_its_link_finds_the_link_closed() {
    let (_router, agent, conn) = linked(|_| (), |_| ()).await;
    let mut readers = Vec::new();
    for _ in 0..20 {
        let (conn, mut stream) = (conn.clone(), conn.open().await.unwrap());
        stream.write_all(b"x").await.unwrap();
        readers.push(tokio::spawn(async move {
            let error = stream.read(&mut [0; 8]).await.unwrap_err();
            (error.kind(), conn.closed.is_cancelled())
        }));
    }
    let Node { peers, inbound, .. } = agent;
    drop(peers);
    for reader in readers {
        assert_eq!(reader.await.unwrap(), (ErrorKind::ConnectionReset, true));
    }
    // It was not the streams that the other side gave up.
    drop(inbound);
}
