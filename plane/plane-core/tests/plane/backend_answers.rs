//! Answers of backends in the less common forms that are still answers.

use crate::{
    backend::{Backend, chunk, sized},
    bench::{Bench, PROMPTLY, forward, forward_with},
    client::post,
};
use plane_core::{events::Event, exchange::Outcome};

#[tokio::test]
async fn interim_answers_are_skipped() {
    let mut bench = Bench::new();
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n".repeat(3);
    let backend = Backend::answering(format!(
        "HTTP/1.1 100 Continue\r\n\r\n{interim}{}",
        sized("ok")
    ))
    .await;
    let target = bench.server(backend.address);
    let (mut client, _) = bench.forwarded(&target).await;
    let answer = client.answer().await;
    assert_eq!((answer.text(), answer.field("link").len()), ("ok", 0));
}

#[tokio::test]
async fn an_answer_without_length_ends_with_its_connection() {
    let mut bench = Bench::new();
    let backend = Backend::new(|mut serving| async move {
        serving.request().await;
        serving.send("HTTP/1.1 200 OK\r\n\r\nall there is").await;
    })
    .await;
    let target = bench.server(backend.address);
    for n in 1..3 {
        let (mut client, arrival) = bench.forwarded(&target).await;
        assert_eq!(client.answer().await.text(), "all there is");
        bench.outcome(&arrival).await;
        assert_eq!(backend.connections(), n);
    }
}

#[tokio::test]
async fn an_answer_before_the_request_is_read_counts() {
    let mut bench = Bench::with(|door| door.body_bytes_max = 0);
    let hasty = Backend::new(|mut serving| async move {
        let mut room = [0; 1000];
        tokio::io::AsyncReadExt::read(&mut serving.stream, &mut room)
            .await
            .unwrap();
        // It reads no further, and the body fits into no buffer.
        serving
            .send("HTTP/1.1 413 Too Much\r\nContent-Length: 3\r\n\r\nbig")
            .await;
        tokio::time::sleep(PROMPTLY * 5).await;
    })
    .await;
    let mut client = bench.client().await;
    client.send(post(&"x".repeat(32 << 20))).await;
    let arrival = bench.arrived().await;
    arrival.mailbox.post(forward(&bench.server(hasty.address)));
    let failure = bench.failed(&arrival).await;
    assert_eq!(
        (failure.kind.name(), failure.status, &failure.body[..]),
        ("status", 413, &b"big"[..])
    );
}

#[tokio::test]
async fn a_huge_answer_is_passed_on_as_it_comes() {
    let mut bench = Bench::new();
    let backend = Backend::new(|mut serving| async move {
        serving.request().await;
        serving
            .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await;
        for _ in 0..100 {
            serving.send(chunk(&"x".repeat(10_000))).await;
        }
        // The client has had the most of it before the end is there.
        serving.request().await;
        serving.send("0\r\n\r\n").await;
    })
    .await;
    let (mut client, arrival) = bench.asked().await;
    let target = bench.server(backend.address);
    arrival.mailbox.post(forward_with(&target, |_, spec| {
        spec.buffered_bytes_max = 100_000;
        spec.judge = true;
    }));
    assert_eq!(client.head().await.field("transfer-encoding"), ["chunked"]);
    let mut body = 0;
    while body < 1_000_000 {
        body += client.chunk().await.unwrap().len();
    }
    assert!(matches!(bench.told().await, Event::Started { .. }));
    drop(client);
    assert_eq!(bench.outcome(&arrival).await, Outcome::ClientLeft);
}
