//! Requests as they arrive, and the plain answers to them.

use crate::{
    backend::{Backend, LAST_CHUNK, SSE_HEAD, chunk, sized},
    bench::{Bench, forward, forward_with, respond},
    client::post,
};
use plane_core::{
    events::Event,
    exchange::{Command, Outcome, Problem},
};
use std::sync::{Arc, atomic::Ordering};

#[tokio::test]
async fn a_unary_answer_goes_through_and_is_told_in_order() {
    let (mut bench, backend) = (Bench::new(), Backend::answering(sized("hello")).await);
    let (mut client, arrival) = bench.asked().await;
    assert_eq!(
        (&arrival.body[..], &arrival.head.path[..]),
        (&b"{}"[..], &b"/v1/x"[..])
    );
    arrival
        .mailbox
        .post(forward(&bench.server(backend.address)));
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.text()), (200, "hello"));
    let (names, finished) = bench.finished(&arrival).await;
    assert!(names.is_empty(), "{names:?}");
    assert!(finished.head_s > 0.0);
    assert_eq!(
        (finished.outcome, finished.status, finished.bytes),
        (Outcome::Answered, 200, 5)
    );
    assert!(
        !arrival.mailbox.post(Command::Abort),
        "an exchange that is over takes no command"
    );
}

#[tokio::test]
async fn a_judged_answer_waits_for_its_release() {
    let (mut bench, backend) = (Bench::new(), Backend::answering(sized("hello")).await);
    let target = bench.server(backend.address);
    for refuses in [false, true] {
        let (mut client, arrival) = bench.asked().await;
        // A release before there is anything to release changes nothing.
        arrival.mailbox.post(Command::Release);
        arrival
            .mailbox
            .post(forward_with(&target, |_, spec| spec.judge = true));
        let Event::Answered { whole, .. } = bench.told().await else {
            panic!("no answer")
        };
        assert_eq!(&whole.body[..], b"hello");
        // What is there is not given up.
        arrival.mailbox.post(Command::GiveUp(1));
        arrival.mailbox.post(if refuses {
            respond(502, "no")
        } else {
            Command::Release
        });
        let answer = client.answer().await;
        assert_eq!(answer.text(), if refuses { "no" } else { "hello" });
        let expected = if refuses {
            Outcome::Responded
        } else {
            Outcome::Answered
        };
        assert_eq!(bench.outcome(&arrival).await, expected);
    }
}

#[tokio::test]
async fn a_stream_goes_through_chunk_by_chunk() {
    let mut bench = Bench::new();
    let backend = Backend::new(|mut serving| async move {
        serving.request().await;
        serving.send(SSE_HEAD).await;
        for n in 0..3 {
            serving.send(chunk(&format!("data: {n}\n\n"))).await;
            // The next one only when the client has had this one.
            let seen = serving.seen.clone();
            crate::bench::soon("the client", async {
                while seen.requests.load(Ordering::SeqCst) < n + 2 {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
        serving.send(LAST_CHUNK).await;
        serving.closed().await;
    })
    .await;
    let target = bench.server(backend.address);
    let (mut client, arrival) = bench.forwarded(&target).await;
    let head = client.head().await;
    assert_eq!(head.field("transfer-encoding"), ["chunked"]);
    for n in 0..3 {
        assert_eq!(
            client.chunk().await.unwrap(),
            format!("data: {n}\n\n").into_bytes()
        );
        backend.seen.requests.fetch_add(1, Ordering::SeqCst);
    }
    assert_eq!(client.chunk().await, None);
    let (names, finished) = bench.finished(&arrival).await;
    assert_eq!(names, ["head", "started"]);
    assert_eq!(
        (finished.outcome, finished.bytes, finished.chunks),
        (Outcome::Answered, 27, 3)
    );
    assert!(finished.first_byte_s > 0.0 && finished.last_byte_s >= finished.first_byte_s);
}

#[tokio::test]
async fn a_chunked_body_arrives_whole_and_goes_on_with_its_length() {
    let mut bench = Bench::new();
    let backend = Backend::new(|mut serving| async move {
        let request = serving.request().await.unwrap();
        assert_eq!(request.field("content-length"), ["9"]);
        assert!(request.field("transfer-encoding").is_empty());
        serving
            .send(sized(std::str::from_utf8(&request.body).unwrap()))
            .await;
    })
    .await;
    let mut client = bench.client().await;
    client
        .send("POST /v1/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    client.send("4\r\n{\"a\"\r\n1;x=y\r\n:\r\n").await;
    client
        .send("4\r\n\"b\"}\r\n0\r\nX-Trailer: 1\r\n\r\n")
        .await;
    let arrival = bench.arrived().await;
    arrival
        .mailbox
        .post(forward(&bench.server(backend.address)));
    assert_eq!(client.answer().await.text(), "{\"a\":\"b\"}");
}

#[tokio::test]
async fn a_large_body_goes_through_unchanged() {
    let mut bench = Bench::with(|door| door.digests_bodies = true);
    let backend = Backend::new(|mut serving| async move {
        let request = serving.request().await.unwrap();
        serving
            .send(sized(&format!("{}", request.body.len())))
            .await;
        assert!(request.body.ends_with(b"\"}"));
    })
    .await;
    let body = format!("{{\"model\":\"m\",\"x\":\"{}\"}}", "y".repeat(3 << 20));
    let mut client = bench.client().await;
    client.send(post(&body)).await;
    let arrival = bench.arrived().await;
    let digest = arrival.digest.as_ref().unwrap().as_ref().unwrap();
    assert_eq!(digest.model.as_deref(), Some("m"));
    arrival
        .mailbox
        .post(forward(&bench.server(backend.address)));
    assert_eq!(client.answer().await.text(), body.len().to_string());
}

#[tokio::test]
async fn a_client_that_asks_first_is_told_to_go_on() {
    let mut bench = Bench::new();
    let mut client = bench.client().await;
    let head =
        "POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    client.send(head).await;
    assert_eq!(client.head().await.head, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("{}").await;
    let arrival = bench.arrived().await;
    arrival.mailbox.post(respond(200, "ok"));
    assert_eq!(client.answer().await.text(), "ok");
    // Who sends the body along needs no word.
    client.send(format!("{head}{{}}")).await;
    bench.outcome(&arrival).await;
    bench.arrived().await.mailbox.post(respond(200, "ok"));
    assert_eq!(client.answer().await.status, 200);
}

#[tokio::test]
async fn who_asks_first_for_what_is_decided_by_its_head_gets_the_answer_instead_of_the_word() {
    let mut bench = Bench::with(|door| {
        door.bodies_wanted = Some(Arc::new(vec![("POST".into(), "/v1/x".into())]));
    });
    for line in ["POST /v1/y", "PUT /v1/x", "POST /v1/x/y"] {
        for framing in ["Content-Length: 2", "Transfer-Encoding: chunked"] {
            let mut client = bench.client().await;
            let head =
                format!("{line} HTTP/1.1\r\nHost: h\r\n{framing}\r\nExpect: 100-continue\r\n\r\n");
            client.send(head).await;
            let arrival = bench.arrived().await;
            assert_eq!(arrival.problem, Some(Problem::Unasked));
            arrival.mailbox.post(respond(404, "no"));
            let answer = client.answer().await;
            let told = (answer.status, answer.text(), answer.field("connection"));
            assert_eq!(told, (404, "no", vec!["close"]), "{line}");
            assert_eq!(bench.outcome(&arrival).await, Outcome::Responded);
        }
    }
    let mut client = bench.client().await;
    client
        .send(
            "POST /v1/x?y HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
        )
        .await;
    assert_eq!(client.head().await.head, "HTTP/1.1 100 Continue\r\n\r\n");
}

#[tokio::test]
async fn a_request_whose_body_had_a_problem_is_not_forwarded() {
    let (mut bench, backend) = (Bench::new(), Backend::answering(sized("x")).await);
    let mut client = bench.client().await;
    client
        .send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        .await;
    let arrival = bench.arrived().await;
    assert_eq!(arrival.problem, Some(Problem::BadChunk));
    arrival
        .mailbox
        .post(forward(&bench.server(backend.address)));
    assert_eq!(bench.failed(&arrival).await.kind.name(), "truncated");
    arrival.mailbox.post(respond(400, "bad chunk"));
    let answer = client.answer().await;
    assert_eq!(
        (answer.status, answer.field("connection")),
        (400, vec!["close"])
    );
    assert_eq!(client.rest().await.unwrap(), b"");
    assert_eq!(backend.requests(), 0);
}

#[tokio::test]
async fn a_forward_to_a_peer_that_nobody_knows_fails_at_once() {
    let mut bench = Bench::new();
    let (mut client, arrival) = bench.asked().await;
    let nobody = plane_core::exchange::Target::Peer(plane_core::peers::PeerId::random());
    arrival.mailbox.post(forward(&nobody));
    let failure = bench.failed(&arrival).await;
    assert_eq!(
        (failure.kind.name(), failure.is_link_down),
        ("no_link", true)
    );
    arrival.mailbox.post(respond(503, "none"));
    assert_eq!(client.answer().await.status, 503);
    assert_eq!(bench.outcome(&arrival).await, Outcome::Responded);
}
