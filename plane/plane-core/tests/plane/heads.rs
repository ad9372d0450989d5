//! Heads that are refused: each with its status, a close, and one event.

use crate::{
    bench::{Bench, pair, respond},
    client::get,
};
use std::sync::Arc;

const CASES: &[(&str, u16, &str)] = &[
    ("GET / HTTP/1.1\r\n\r\n", 400, "host_missing"),
    ("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400, "host_malformed"),
    (
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        400,
        "host_repeated",
    ),
    ("GET / HTTP/1.1\nHost: a\n\n", 400, "bare_lf"),
    (
        "GET / HTTP/1.1\r\nHost: a\r\nX : 1\r\n\r\n",
        400,
        "malformed_head",
    ),
    (
        "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n",
        400,
        "malformed_head",
    ),
    (
        "GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n",
        400,
        "malformed_head",
    ),
    ("\r\n\r\n\r\n\r\n\r\n", 400, "blank_lines"),
    ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400, "target"),
    ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "version"),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n",
        400,
        "content_length",
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n",
        400,
        "content_length",
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        400,
        "content_length_repeated",
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
        "length_and_encoding",
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
        501,
        "transfer_encoding_unknown",
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
        400,
        "transfer_encoding",
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
        "transfer_encoding_repeated",
    ),
    (
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
        "chunked_in_http10",
    ),
];

#[tokio::test]
async fn each_refusal_has_its_status_closes_and_is_told_once() {
    let mut bench = Bench::with(|door| {
        door.refusals = Arc::new(vec![(400, "{\"error\":1}".into())]);
        door.standing_fields =
            Arc::new(vec![pair("x-standing", "1"), pair("connection", "upgrade")]);
    });
    for (wire, status, reason) in CASES {
        let mut client = bench.client().await;
        client.send(wire).await;
        let answer = client.answer().await;
        assert_eq!(answer.status, *status, "{wire:?}");
        assert_eq!(answer.field("connection"), ["close"]);
        assert_eq!(answer.field("x-standing"), ["1"]);
        assert_eq!(
            answer.text(),
            if *status == 400 { "{\"error\":1}" } else { "" }
        );
        assert_eq!(client.rest().await.unwrap(), b"", "{wire:?}");
        assert_eq!(bench.rejected().await, (*status, *reason), "{wire:?}");
    }
    assert!(bench.plane.context().events.drain().is_empty());
}

#[tokio::test]
async fn too_much_of_a_head_is_431() {
    let mut bench = Bench::new();
    let long = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
        "a".repeat(1_200_000)
    );
    let many = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "X: 1\r\n".repeat(600)
    );
    for (wire, reason) in [(long, "head_too_large"), (many, "too_many_fields")] {
        let mut client = bench.client().await;
        client.send(wire).await;
        assert_eq!(client.answer().await.status, 431);
        assert_eq!(bench.rejected().await, (431, reason));
    }
    let mut client = bench.client().await;
    let fine = format!("{}X: {}\r\n", "X: 1\r\n".repeat(500), "a".repeat(70_000));
    client
        .send(format!("GET / HTTP/1.1\r\nHost: a\r\n{fine}\r\n"))
        .await;
    bench.arrived().await.mailbox.post(respond(200, "ok"));
    assert_eq!(client.answer().await.status, 200);
}

#[tokio::test]
async fn bytes_smuggled_behind_two_framings_never_become_a_request() {
    let mut bench = Bench::new();
    let mut client = bench.client().await;
    let outer =
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n";
    client
        .send(format!("{outer}0\r\n\r\n{}", get("/smuggled")))
        .await;
    assert_eq!(client.answer().await.status, 400);
    assert_eq!(client.rest().await.unwrap(), b"");
    assert_eq!(bench.rejected().await, (400, "length_and_encoding"));
    assert!(bench.plane.context().events.drain().is_empty());
}

#[tokio::test]
async fn a_head_cut_off_is_answered_and_nothing_at_all_is_not() {
    let mut bench = Bench::new();
    let mut client = bench.client().await;
    client.send("GET / HTTP/1.1\r\nHos").await;
    tokio::io::AsyncWriteExt::shutdown(&mut client.stream)
        .await
        .unwrap();
    assert_eq!(client.answer().await.status, 400);
    assert_eq!(bench.rejected().await, (400, "head_incomplete"));
    let mut silent = bench.client().await;
    tokio::io::AsyncWriteExt::shutdown(&mut silent.stream)
        .await
        .unwrap();
    assert_eq!(silent.rest().await.unwrap(), b"");
    assert!(bench.plane.context().events.drain().is_empty());
}

#[tokio::test]
async fn targets_in_absolute_form_and_odd_names_arrive_as_sent() {
    let mut bench = Bench::new();
    for (target, path, query) in [
        ("http://h:1/v1/models?x=1", "/v1/models", "x=1"),
        ("/v1/models/org%2Fname:7b", "/v1/models/org%2Fname:7b", ""),
        ("/v1/models/org/name:7b?", "/v1/models/org/name:7b", ""),
        ("//v1/models", "//v1/models", ""),
        ("/v1/models/..%2f", "/v1/models/..%2f", ""),
    ] {
        let mut client = bench.client().await;
        client.send(get(target)).await;
        let arrival = bench.arrived().await;
        assert_eq!(
            (&arrival.head.path[..], &arrival.head.query[..]),
            (path.as_bytes(), query.as_bytes())
        );
        arrival.mailbox.post(respond(404, ""));
        assert_eq!(client.answer().await.status, 404);
        bench.outcome(&arrival).await;
    }
}
