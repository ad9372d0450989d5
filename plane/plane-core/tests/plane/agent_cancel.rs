//! What an agent does when a router gives up, by what the router does on the stream.
//!
//! The matrix of vectors/wire-cancellation.json, for our agent: a reset or the loss of the link closes the
//! backend at once; a FIN, which originals send right behind the request, never does. A reset behind a FIN
//! shows at the next write.

use crate::{
    backend::{Backend, LAST_CHUNK, SSE_HEAD, chunk},
    bench::{Bench, PATIENCE, promptly, soon},
    linked::Linked,
};
use plane_core::peers::{LinkStream, Multiaddr, Peers, PeersConfig, new_identity_bytes};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    WaitingForHeaders,
    Streaming,
}

const PHASES: [Phase; 2] = [Phase::WaitingForHeaders, Phase::Streaming];

/// A router of bare streams, its agent, and a backend that stops in that phase until it is told to go on.
struct Table {
    peers: Peers,
    agent: Bench,
    backend: Backend,
    go_on: std::sync::Arc<tokio::sync::Notify>,
}

impl Table {
    async fn new(phase: Phase) -> Table {
        let go_on = std::sync::Arc::new(tokio::sync::Notify::new());
        let word = go_on.clone();
        let backend = Backend::new(move |mut serving| {
            let word = word.clone();
            async move {
                serving.request().await;
                if phase == Phase::Streaming {
                    serving
                        .send(format!("{SSE_HEAD}{}", chunk("data: 1\n\n")))
                        .await;
                }
                let mut byte = [0];
                tokio::select! {
                    _ = serving.stream.read(&mut byte) => return serving.closed().await,
                    () = word.notified() => {}
                }
                if phase == Phase::WaitingForHeaders {
                    serving.send(SSE_HEAD).await;
                }
                serving
                    .send(format!("{}{LAST_CHUNK}", chunk("data: 2\n\n")))
                    .await;
                serving.closed().await;
            }
        })
        .await;
        // Only the agent of these two is used; the router is made of bare streams.
        let agent = Linked::new(backend.address).await.agent;
        let (peers, _inbound, _events) =
            Peers::start(PeersConfig::new(new_identity_bytes())).unwrap();
        // Both queues live as long as the link does.
        tokio::spawn(async move {
            let _kept = (_inbound, _events);
            std::future::pending::<()>().await;
        });
        let any: Multiaddr = "/ip4/127.0.0.1/tcp/0".parse().unwrap();
        let bound = peers.listen(any).await.unwrap();
        agent.plane.dial(1, peers.local_peer_id(), bound, PATIENCE);
        let table = Table {
            peers,
            agent,
            backend,
            go_on,
        };
        soon("the link", async {
            while table.peers.conn(&table.agent_id()).is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        table
    }

    fn agent_id(&self) -> plane_core::peers::PeerId {
        self.agent.plane.context().peers.local_peer_id()
    }

    /// Sends a request, with a FIN behind it or without, and waits for the phase.
    async fn ask(&self, phase: Phase, has_fin: bool) -> LinkStream {
        let conn = self.peers.conn(&self.agent_id()).unwrap();
        let mut stream = conn.open().await.unwrap();
        let close = if has_fin { "Connection: close\r\n" } else { "" };
        let head =
            format!("POST /in/v1/x HTTP/1.1\r\nHost: \r\n{close}Content-Length: 2\r\n\r\n{{}}");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        if has_fin {
            stream.shutdown().await.unwrap();
        }
        self.backend.requested().await;
        if phase == Phase::Streaming {
            until(&mut stream, b"data: 1\n\n").await;
        }
        stream
    }

    async fn assert_still_running(&self, what: &str) {
        let closed = tokio::time::timeout(Duration::from_millis(200), self.backend.closed()).await;
        assert!(closed.is_err(), "{what}: the backend was closed");
    }
}

async fn until(stream: &mut LinkStream, needle: &[u8]) {
    let mut all = Vec::new();
    while !all.windows(needle.len()).any(|part| part == needle) {
        let mut room = [0; 4096];
        let n = soon("bytes of the agent", stream.read(&mut room))
            .await
            .unwrap();
        assert!(n > 0, "ended");
        all.extend_from_slice(&room[..n]);
    }
}

#[tokio::test]
async fn a_fin_then_waiting_is_no_cancellation() {
    for phase in PHASES {
        let table = Table::new(phase).await;
        let mut stream = table.ask(phase, true).await;
        table.assert_still_running(&format!("{phase:?}")).await;
        table.go_on.notify_one();
        until(
            &mut stream,
            format!("data: 2\n\n\r\n{LAST_CHUNK}").as_bytes(),
        )
        .await;
        let mut rest = Vec::new();
        assert_eq!(
            soon("the end", stream.read_to_end(&mut rest))
                .await
                .unwrap(),
            0
        );
    }
}

#[tokio::test]
async fn a_reset_without_a_fin_closes_the_backend_at_once() {
    for phase in PHASES {
        let table = Table::new(phase).await;
        drop(table.ask(phase, false).await);
        promptly(&format!("{phase:?}"), table.backend.closed()).await;
    }
}

#[tokio::test]
async fn a_reset_behind_a_fin_shows_at_the_next_write() {
    for phase in PHASES {
        let table = Table::new(phase).await;
        // Dropped behind its FIN, the stream is answered with a reset as soon as more comes on it.
        drop(table.ask(phase, true).await);
        table.assert_still_running(&format!("{phase:?}")).await;
        table.go_on.notify_one();
        soon(&format!("{phase:?}"), async {
            while table.agent.plane.context().live() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn the_loss_of_the_link_closes_the_backend_at_once_fin_or_not() {
    for phase in PHASES {
        for has_fin in [false, true] {
            let table = Table::new(phase).await;
            let _stream = table.ask(phase, has_fin).await;
            table.peers.close_peer(&table.agent_id());
            promptly(&format!("{phase:?} {has_fin}"), table.backend.closed()).await;
        }
    }
}

#[tokio::test]
async fn a_fin_without_close_ends_the_stream_after_its_answer() {
    let table = Table::new(Phase::WaitingForHeaders).await;
    let conn = table.peers.conn(&table.agent_id()).unwrap();
    let mut stream = conn.open().await.unwrap();
    stream
        .write_all(b"GET /in/x HTTP/1.1\r\nHost: \r\n\r\n")
        .await
        .unwrap();
    stream.shutdown().await.unwrap();
    table.backend.requested().await;
    table.go_on.notify_one();
    until(&mut stream, LAST_CHUNK.as_bytes()).await;
    let mut rest = Vec::new();
    assert_eq!(
        soon("the end", stream.read_to_end(&mut rest))
            .await
            .unwrap(),
        0
    );
}
