//! Kept streams of a link that turn out to be dead: field case O-09 on the hop between router and agent.

use crate::bench::{Bench, respond, soon};
use plane_core::{
    events::Event,
    exchange::Target,
    peers::{Inbound, Multiaddr, PeerEvent, Peers, PeersConfig, new_identity_bytes},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What the peer does with the second request on a stream.
#[derive(Clone, Copy)]
enum Second {
    ResetsUnheard,
    ResetsAfterAByte,
    /// It says goodbye before there is one.
    EndsBefore,
}

/// An agent that answers the first request on each stream.
struct Agent {
    _peers: Peers,
    requests: Arc<AtomicUsize>,
}

impl Agent {
    async fn linked_to(router: &mut Bench, second: Second) -> (Agent, Target) {
        let (peers, mut inbound, mut events) =
            Peers::start(PeersConfig::new(new_identity_bytes())).unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        tokio::spawn(async move {
            while let Some(stream) = inbound.recv().await {
                tokio::spawn(serve(stream, second, counted.clone()));
            }
        });
        let any: Multiaddr = "/ip4/127.0.0.1/tcp/0".parse().unwrap();
        let plane = &router.plane;
        let bound = std::thread::scope(|scope| scope.spawn(|| plane.listen_peers(any)).join());
        let id = plane.context().peers.local_peer_id();
        peers.dial(id, bound.unwrap().unwrap()).await.unwrap();
        let identified =
            async { while !matches!(events.recv().await, Some(PeerEvent::Identified { .. })) {} };
        soon("the link", identified).await;
        let target = Target::Peer(peers.local_peer_id());
        while !matches!(router.event().await, Event::PeerIdentified { .. }) {}
        let agent = Agent {
            _peers: peers,
            requests,
        };
        (agent, target)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

async fn serve(mut stream: Inbound, second: Second, requests: Arc<AtomicUsize>) {
    if heard(&mut stream, &requests).await.is_none() {
        return;
    }
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    stream.write_all(answer).await.unwrap();
    match second {
        Second::EndsBefore => stream.shutdown().await.unwrap(),
        Second::ResetsUnheard => drop(heard(&mut stream, &requests).await),
        Second::ResetsAfterAByte => {
            heard(&mut stream, &requests).await;
            stream.write_all(b"H").await.unwrap();
            stream.flush().await.unwrap();
            // The reset that follows must not overtake it.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Reads one request, whose body is `{}`.
async fn heard(stream: &mut Inbound, requests: &AtomicUsize) -> Option<()> {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n{}") {
        read.push(stream.read_u8().await.ok()?);
    }
    requests.fetch_add(1, Ordering::SeqCst);
    Some(())
}

async fn ask(router: &mut Bench, target: &Target) -> String {
    let (mut client, arrival) = router.forwarded(target).await;
    let answer = client.answer().await;
    router.outcome(&arrival).await;
    answer.text().to_owned()
}

#[tokio::test]
async fn a_kept_stream_that_the_agent_ends_costs_no_request() {
    let mut router = Bench::new();
    let (agent, target) = Agent::linked_to(&mut router, Second::EndsBefore).await;
    for n in 1..50 {
        assert_eq!(ask(&mut router, &target).await, "ok");
        assert_eq!(agent.requests(), n);
    }
}

#[tokio::test]
async fn a_kept_stream_that_is_reset_before_a_byte_is_tried_once_more_on_a_fresh_one() {
    let mut router = Bench::new();
    let (agent, target) = Agent::linked_to(&mut router, Second::ResetsUnheard).await;
    for n in 0..20 {
        assert_eq!(ask(&mut router, &target).await, "ok");
        assert_eq!(agent.requests(), 2 * n + 1);
    }
}

#[tokio::test]
async fn nothing_is_sent_twice_over_a_link_once_a_byte_has_come() {
    let mut router = Bench::new();
    let (agent, target) = Agent::linked_to(&mut router, Second::ResetsAfterAByte).await;
    assert_eq!(ask(&mut router, &target).await, "ok");
    let (mut client, arrival) = router.forwarded(&target).await;
    assert_eq!(router.failed(&arrival).await.kind.name(), "reset");
    assert_eq!(agent.requests(), 2);
    arrival.mailbox.post(respond(502, ""));
    client.answer().await;
}
