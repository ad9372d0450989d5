//! Streams reach the client byte for byte, however they come.

use crate::{
    backend::{Backend, LAST_CHUNK, SSE_HEAD, chunk},
    bench::Bench,
    client::post,
    linked::Linked,
};
use plane_core::exchange::Outcome;

/// One way to send a body: the pieces, each one a chunk and a segment of its own.
fn shapes() -> Vec<(&'static str, Vec<String>)> {
    let odd = ": keep-alive\n\ndata: 你好🌍\n\n: x\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\nretry: 1000\nid: 7\n\
               data:\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5}}\r\n\r\n\
               data: [DONE]\n\n";
    let many: String = (0..1000)
        .map(|n| format!("data: {{\"n\":{n}}}\n\n"))
        .collect();
    let large = format!("data: {}\n\n", "y".repeat(2 << 20));
    vec![
        (
            "one byte at a time",
            odd.as_bytes().iter().map(|byte| raw(*byte)).collect(),
        ),
        ("many events at once", vec![many]),
        ("one large event", vec![large]),
        ("comments alone", vec![": ping\n\n".into()]),
        ("no boundary at the end", vec!["data: x".into()]),
    ]
}

/// A single byte stands for itself, also where it is part of a character.
fn raw(byte: u8) -> String {
    char::from(byte).to_string()
}

fn wire_of(piece: &str) -> Vec<u8> {
    // Characters below 256 are the bytes themselves; whole pieces are text as it is.
    let is_single = piece.chars().count() == 1;
    let data = if is_single {
        vec![piece.chars().next().unwrap() as u8]
    } else {
        piece.as_bytes().to_vec()
    };
    [format!("{:x}\r\n", data.len()).as_bytes(), &data, b"\r\n"].concat()
}

fn body_of(pieces: &[String]) -> Vec<u8> {
    let mut body = Vec::new();
    for piece in pieces {
        let wire = wire_of(piece);
        let from = wire.windows(2).position(|part| part == b"\r\n").unwrap() + 2;
        body.extend_from_slice(&wire[from..wire.len() - 2]);
    }
    body
}

async fn streaming(pieces: Vec<String>) -> Backend {
    Backend::new(move |mut serving| {
        let pieces = pieces.clone();
        async move {
            while serving.request().await.is_some() {
                serving.send(SSE_HEAD).await;
                for piece in &pieces {
                    serving.send(wire_of(piece)).await;
                    tokio::task::yield_now().await;
                }
                serving.send(LAST_CHUNK).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn from_a_server() {
    let mut bench = Bench::new();
    for (name, pieces) in shapes() {
        let backend = streaming(pieces.clone()).await;
        let target = bench.server(backend.address);
        let (mut client, arrival) = bench.forwarded(&target).await;
        let answer = client.answer().await;
        assert!(answer.body == body_of(&pieces), "{name}");
        let (names, finished) = bench.finished(&arrival).await;
        assert_eq!(
            (names, finished.outcome),
            (vec!["head", "started"], Outcome::Answered),
            "{name}"
        );
        assert_eq!(finished.bytes, answer.body.len() as u64);
        if name == "one byte at a time" {
            let usage = finished.usage.unwrap();
            assert_eq!(
                (usage.prompt_tokens, usage.completion_tokens),
                (Some(3), Some(5))
            );
        }
    }
}

#[tokio::test]
async fn over_a_link() {
    for (name, pieces) in shapes() {
        let backend = streaming(pieces.clone()).await;
        let mut linked = Linked::new(backend.address).await;
        for _ in 0..2 {
            let mut client = linked.router.client().await;
            client.send(post("{}")).await;
            let arrival = linked.router.arrived().await;
            arrival.mailbox.post(linked.forward());
            assert!(client.answer().await.body == body_of(&pieces), "{name}");
            assert_eq!(
                linked.router.outcome(&arrival).await,
                Outcome::Answered,
                "{name}"
            );
        }
        assert_eq!(
            backend.connections(),
            1,
            "{name}: the agent keeps its connection"
        );
    }
}

#[tokio::test]
async fn each_event_leaves_without_waiting_for_the_next() {
    let backend = Backend::new(|mut serving| async move {
        serving.request().await;
        serving.send(SSE_HEAD).await;
        // Each event only after a word from the test, which comes when the one before has arrived.
        for n in 0..50 {
            serving.send(chunk(&format!("data: {n}\n\n"))).await;
            let seen = serving.seen.clone();
            while seen.requests.load(std::sync::atomic::Ordering::SeqCst) < n + 2 {
                tokio::task::yield_now().await;
            }
        }
        serving.send(LAST_CHUNK).await;
    })
    .await;
    let mut linked = Linked::new(backend.address).await;
    let mut client = linked.router.client().await;
    client.send(post("{}")).await;
    let arrival = linked.router.arrived().await;
    arrival.mailbox.post(linked.forward());
    for n in 0..50 {
        client.until(format!("data: {n}\n\n").as_bytes()).await;
        backend
            .seen
            .requests
            .fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
    client.until(LAST_CHUNK.as_bytes()).await;
    assert_eq!(linked.router.outcome(&arrival).await, Outcome::Answered);
}
