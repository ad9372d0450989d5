//! Two whole ends over loopback: streams in both directions, bursts, caps.

use std::{io::ErrorKind, sync::Arc};

use futures::FutureExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
    task::JoinSet,
};

use super::super::{
    Conn, Inbound, Multiaddr, OpenError, PeerEvent, PeerId, Peers, PeersConfig, new_identity_bytes,
};

/// One end of the link.
pub(super) struct Node {
    pub(super) peers: Peers,
    pub(super) inbound: mpsc::Receiver<Inbound>,
    pub(super) events: mpsc::UnboundedReceiver<PeerEvent>,
}

impl Node {
    pub(super) fn new(change: impl FnOnce(&mut PeersConfig)) -> Self {
        let mut config = PeersConfig::new(new_identity_bytes());
        change(&mut config);
        let (peers, inbound, events) = Peers::start(config).unwrap();
        Self {
            peers,
            inbound,
            events,
        }
    }

    pub(super) fn id(&self) -> PeerId {
        self.peers.local_peer_id()
    }

    pub(super) async fn listen(&self) -> Multiaddr {
        let any = "/ip4/127.0.0.1/tcp/0".parse().unwrap();
        let bound = self.peers.listen(any).await.unwrap();
        assert_eq!(bound.len(), 1);
        bound.into_iter().next().unwrap()
    }

    /// Waits for the first event that `wanted` takes.
    pub(super) async fn event<T>(&mut self, wanted: impl Fn(PeerEvent) -> Option<T>) -> T {
        loop {
            if let Some(found) = wanted(self.events.recv().await.expect("the link has stopped")) {
                return found;
            }
        }
    }

    pub(super) async fn down(&mut self) -> String {
        let reason = |event| match event {
            PeerEvent::Down { reason, .. } => Some(reason),
            _ => None,
        };
        self.event(reason).await
    }

    pub(super) async fn identified(&mut self) -> String {
        let version = |event| match event {
            PeerEvent::Identified { agent_version, .. } => Some(agent_version),
            _ => None,
        };
        self.event(version).await
    }
}

/// A router that listens, an agent that has dialled it; both know each other's kind.
pub(super) async fn linked(
    router: impl FnOnce(&mut PeersConfig),
    agent: impl FnOnce(&mut PeersConfig),
) -> (Node, Node, Arc<Conn>) {
    let (mut router, mut agent) = (Node::new(router), Node::new(agent));
    let addr = router.listen().await;
    agent.peers.dial(router.id(), vec![addr]).await.unwrap();
    router.identified().await;
    agent.identified().await;
    let conn = router.peers.conn(&agent.id()).unwrap();
    (router, agent, conn)
}

/// Answers each inbound stream with what it sent up to its first line end, plus `!`.
pub(super) fn echo(mut inbound: mpsc::Receiver<Inbound>) {
    tokio::spawn(async move {
        while let Some(mut stream) = inbound.recv().await {
            tokio::spawn(async move {
                let mut line = Vec::new();
                while line.last() != Some(&b'\n') {
                    line.push(stream.read_u8().await?);
                }
                stream.write_all(&line).await?;
                stream.write_all(b"!").await?;
                stream.shutdown().await
            });
        }
    });
}

async fn ask(conn: &Conn, text: &str) -> String {
    let mut stream = conn.open().await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn streams_work_in_both_directions_over_one_connection() {
    let (router, agent, to_agent) = linked(|_| (), |_| ()).await;
    let to_router = agent.peers.conn(&router.id()).unwrap();
    let (router_id, agent_id) = (router.id(), agent.id());
    echo(router.inbound);
    echo(agent.inbound);
    assert_eq!(ask(&to_agent, "prompt\n").await, "prompt\n!");
    assert_eq!(ask(&to_router, "heartbeat\n").await, "heartbeat\n!");
    assert!(to_router.dialed && !to_agent.dialed);
    assert_eq!((to_agent.peer, to_router.peer), (agent_id, router_id));
}

#[tokio::test]
async fn both_ends_learn_the_kind_of_the_other_and_raise_the_cap() {
    let (router, agent, to_agent) = linked(|_| (), |config| config.streams_max = 7).await;
    let to_router = agent.peers.conn(&router.id()).unwrap();
    assert!(
        to_agent
            .agent_version()
            .unwrap()
            .starts_with("hivenet-router-py/")
    );
    assert_eq!(to_agent.cap(), 1024);
    assert_eq!(to_router.cap(), 7);
}

#[tokio::test]
async fn an_inbound_stream_knows_who_opened_it() {
    let (router, mut agent, conn) = linked(|_| (), |_| ()).await;
    let mut stream = conn.open().await.unwrap();
    stream.write_all(b"x").await.unwrap();
    let inbound = agent.inbound.recv().await.unwrap();
    assert_eq!(inbound.conn.peer, router.id());
}

#[tokio::test]
async fn a_dropped_stream_is_a_reset_at_the_other_end_of_the_link() {
    let (_router, mut agent, conn) = linked(|_| (), |_| ()).await;
    let mut stream = conn.open().await.unwrap();
    stream.write_all(b"begun").await.unwrap();
    let mut served = agent.inbound.recv().await.unwrap();
    served.read_exact(&mut [0; 5]).await.unwrap();
    let reader = tokio::spawn(async move { served.read(&mut [0; 8]).await });
    drop(stream);
    assert_eq!(
        reader.await.unwrap().unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    assert_eq!(conn.live(), 0);
}

#[tokio::test]
async fn a_server_that_drops_its_stream_is_a_reset_for_the_client() {
    let (_router, mut agent, conn) = linked(|_| (), |_| ()).await;
    let mut stream = conn.open().await.unwrap();
    stream.write_all(b"x").await.unwrap();
    let mut served = agent.inbound.recv().await.unwrap();
    served.write_all(b"partial").await.unwrap();
    drop(served);
    let mut got = Vec::new();
    let error = stream.read_to_end(&mut got).await.unwrap_err();
    assert_eq!(got, b"partial");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

async fn burst_of_two_thousand() {
    let (_router, agent, conn) = linked(
        |config| config.streams_max = 4096,
        |config| {
            config.inbound_served = 100;
            config.inbound_queue = 64;
        },
    )
    .await;
    echo(agent.inbound);
    let mut asks = JoinSet::new();
    for n in 0..2000 {
        let conn = conn.clone();
        asks.spawn(async move { (ask(&conn, &format!("{n}\n")).await, format!("{n}\n!")) });
    }
    let answers = asks.join_all().await;
    assert_eq!(answers.len(), 2000);
    assert!(answers.iter().all(|(got, expected)| got == expected));
    assert!(!conn.closed.is_cancelled());
    assert_eq!(conn.live(), 0);
}

#[tokio::test]
async fn of_two_thousand_streams_opened_at_once_none_is_lost() {
    burst_of_two_thousand().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn none_is_lost_either_when_two_threads_share_the_work() {
    burst_of_two_thousand().await;
}

#[tokio::test]
async fn at_the_cap_opening_says_full_at_once_and_a_dropped_stream_makes_room() {
    let (_router, _agent, conn) = linked(|_| (), |_| ()).await;
    conn.set_cap(3);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(conn.open().await.unwrap());
    }
    assert_eq!(conn.live(), 3);
    assert!(matches!(
        conn.open().now_or_never(),
        Some(Err(OpenError::Full))
    ));
    held.pop();
    held.push(conn.open().await.unwrap());
    assert_eq!(conn.live(), 3);
}

#[tokio::test]
async fn cancelled_opens_give_their_slots_back_and_the_link_lives() {
    let (_router, agent, conn) = linked(|config| config.streams_max = 4096, |_| ()).await;
    echo(agent.inbound);
    for _ in 0..2000 {
        // One poll puts the request on its way; then whoever asked has left.
        assert!(conn.open().now_or_never().is_none());
    }
    while conn.live() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(ask(&conn, "still\n").await, "still\n!");
}

#[tokio::test]
async fn streams_beyond_those_served_wait_and_are_not_reset() {
    let (_router, mut agent, conn) = linked(|_| (), |config| config.inbound_served = 1).await;
    let (mut first, mut second) = (conn.open().await.unwrap(), conn.open().await.unwrap());
    first.write_all(b"1").await.unwrap();
    second.write_all(b"2").await.unwrap();
    let mut served = agent.inbound.recv().await.unwrap();
    assert_eq!(served.read_u8().await.unwrap(), b'1');
    // A whole exchange later the second one is still not handed out.
    served.write_all(b"!").await.unwrap();
    first.read_u8().await.unwrap();
    assert!(agent.inbound.try_recv().is_err());
    drop(served);
    assert_eq!(
        agent.inbound.recv().await.unwrap().read_u8().await.unwrap(),
        b'2'
    );
}
