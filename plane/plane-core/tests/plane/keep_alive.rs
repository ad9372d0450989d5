//! Connections of clients between and after requests.

use crate::{
    backend::{Backend, SSE_HEAD, chunk, sized},
    bench::{Bench, forward, forward_with, pair, respond, soon},
    client::{get, post},
};
use plane_core::exchange::{Outcome, Problem};
use std::time::Duration;

#[tokio::test]
async fn a_connection_carries_request_after_request() {
    let (mut bench, backend) = (Bench::new(), Backend::answering(sized("hello")).await);
    let target = bench.server(backend.address);
    let mut client = bench.client().await;
    for _ in 0..20 {
        client.send(post("{}")).await;
        let arrival = bench.arrived().await;
        arrival.mailbox.post(forward(&target));
        assert_eq!(client.answer().await.text(), "hello");
        assert_eq!(bench.outcome(&arrival).await, Outcome::Answered);
    }
    assert_eq!((backend.connections(), backend.requests()), (1, 20));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order_one_at_a_time() {
    let mut bench = Bench::new();
    let mut client = bench.client().await;
    let all: String = (0..5).map(|n| post(&format!("{n}"))).collect();
    client.send(all).await;
    for n in 0..5 {
        let arrival = bench.arrived().await;
        assert_eq!(arrival.body, format!("{n}"));
        // The next one is not heard of before this one is answered.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(bench.plane.context().events.drain().is_empty());
        arrival.mailbox.post(respond(200, &format!("answer {n}")));
        assert_eq!(client.answer().await.text(), format!("answer {n}"));
        bench.outcome(&arrival).await;
    }
}

#[tokio::test]
async fn who_pipelines_too_much_has_the_answer_under_way_and_then_a_close() {
    let mut bench = Bench::new();
    let mut client = bench.client().await;
    client.send(post("first")).await;
    let arrival = bench.arrived().await;
    // More than the kernel keeps, so it is all sent only when the plane has read on.
    client.send(post(&"x".repeat(32 << 20))).await;
    arrival.mailbox.post(respond(200, "ok"));
    let answer = client.answer().await;
    assert_eq!(
        (answer.text(), answer.field("connection")),
        ("ok", vec!["close"])
    );
    assert_eq!(client.rest().await.unwrap(), b"");
    assert_eq!(bench.outcome(&arrival).await, Outcome::Responded);
}

#[tokio::test]
async fn who_pipelines_too_much_is_still_seen_leaving() {
    let mut bench = Bench::new();
    let mut client = bench.client().await;
    client.send(post("first")).await;
    let arrival = bench.arrived().await;
    client.send(post(&"x".repeat(1 << 20))).await;
    drop(client);
    assert_eq!(bench.outcome(&arrival).await, Outcome::ClientLeft);
}

#[tokio::test]
async fn http_1_0_is_kept_only_when_it_asks() {
    let mut bench = Bench::new();
    for (fields, is_kept) in [("", false), ("Connection: keep-alive\r\n", true)] {
        let mut client = bench.client().await;
        client.send(format!("GET / HTTP/1.0\r\n{fields}\r\n")).await;
        let arrival = bench.arrived().await;
        arrival.mailbox.post(respond(200, "ok"));
        let answer = client.answer().await;
        assert_eq!(
            answer.field("connection"),
            [if is_kept { "keep-alive" } else { "close" }]
        );
        bench.outcome(&arrival).await;
        if is_kept {
            client.send(get("/")).await;
            bench.arrived().await.mailbox.post(respond(200, "again"));
            assert_eq!(client.answer().await.text(), "again");
        } else {
            assert_eq!(client.rest().await.unwrap(), b"");
        }
    }
}

#[tokio::test]
async fn a_stream_to_http_1_0_has_no_chunks_and_ends_with_the_connection() {
    let mut bench = Bench::new();
    let wire = format!(
        "{SSE_HEAD}{}{}0\r\n\r\n",
        chunk("data: 1\n\n"),
        chunk("data: 2\n\n")
    );
    let backend = Backend::answering(wire).await;
    let mut client = bench.client().await;
    client
        .send("POST /v1/x HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}")
        .await;
    let arrival = bench.arrived().await;
    arrival
        .mailbox
        .post(forward(&bench.server(backend.address)));
    let answer = client.answer().await;
    assert!(answer.field("transfer-encoding").is_empty());
    assert_eq!(
        (answer.field("connection"), answer.text()),
        (vec!["close"], "data: 1\n\ndata: 2\n\n")
    );
    assert_eq!(bench.outcome(&arrival).await, Outcome::Answered);
}

#[tokio::test]
async fn what_breaks_off_for_http_1_0_does_not_end_like_a_whole_answer() {
    let mut bench = Bench::new();
    let backend = Backend::new(|mut serving| async move {
        serving.request().await;
        serving
            .send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n{}",
                "x".repeat(3000)
            ))
            .await;
        serving.reset();
    })
    .await;
    let mut client = bench.client().await;
    client
        .send("POST /v1/x HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
        .await;
    let arrival = bench.arrived().await;
    let target = bench.server(backend.address);
    arrival.mailbox.post(forward_with(&target, |_, spec| {
        spec.buffered_bytes_max = 1000
    }));
    assert!(client.rest().await.is_err(), "a reset, not an end");
    assert_eq!(bench.outcome(&arrival).await.name(), "backend_lost");
}

#[tokio::test]
async fn a_client_that_says_close_is_closed() {
    let mut bench = Bench::new();
    let mut client = bench.client().await;
    client
        .send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        .await;
    bench.arrived().await.mailbox.post(respond(200, "ok"));
    let answer = client.answer().await;
    assert_eq!(answer.field("connection"), ["close"]);
    assert_eq!(client.rest().await.unwrap(), b"");
}

#[tokio::test]
async fn closing_the_doors_ends_idle_connections_and_busy_ones_after_their_answer() {
    let mut bench = Bench::new();
    let mut busy = bench.client().await;
    busy.send(get("/")).await;
    let arrival = bench.arrived().await;
    let mut idle = bench.client().await;
    idle.send(get("/")).await;
    bench.arrived().await.mailbox.post(respond(200, "ok"));
    idle.answer().await;
    bench.plane.close_doors();
    assert_eq!(idle.rest().await.unwrap(), b"");
    assert_eq!(bench.plane.context().live(), 1);
    arrival.mailbox.post(respond(200, "late"));
    let answer = busy.answer().await;
    assert_eq!(
        (answer.text(), answer.field("connection")),
        ("late", vec!["close"])
    );
    assert_eq!(busy.rest().await.unwrap(), b"");
    soon("the end of the last", async {
        while bench.plane.context().live() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(tokio::net::TcpStream::connect(bench.address).await.is_err());
}

#[tokio::test]
async fn closing_the_doors_lets_who_is_still_sending_be_answered() {
    let mut bench = Bench::new();
    for half in [
        "Content-Length: 5\r\n\r\n12",
        "Transfer-Encoding: chunked\r\n\r\n5\r\n12",
    ] {
        let mut client = bench.client().await;
        client
            .send(&format!("POST / HTTP/1.1\r\nHost: h\r\n{half}"))
            .await;
        soon("the head to be read", async {
            while bench.plane.context().live() == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        bench.plane.close_doors();
        let arrival = bench.arrived().await;
        assert_eq!(arrival.problem, Some(Problem::Stopping));
        arrival.mailbox.post(respond(503, "stopping"));
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.text()), (503, "stopping"));
        assert_eq!(client.rest().await.unwrap(), b"");
        bench = Bench::new();
    }
}

#[tokio::test]
async fn the_request_id_is_kept_or_replaced_and_told_once() {
    let mut bench = Bench::with(|door| {
        door.tells_request_id = true;
        door.second_id_prefix = "/v1/messages".into();
    });
    let backend = Backend::answering(
        "HTTP/1.1 200 OK\r\nX-Request-ID: theirs\r\nContent-Length: 2\r\n\r\nok",
    )
    .await;
    let target = bench.server(backend.address);
    let id = "0F8FAD5B-D9CB-469F-A165-70867728950E";
    for (given, by_command) in [(id, false), ("x", false), (id, true)] {
        let mut client = bench.client().await;
        let head = format!("POST /v1/messages HTTP/1.1\r\nHost: h\r\nX-Request-Id: {given}\r\n");
        client
            .send(format!("{head}Content-Length: 0\r\n\r\n"))
            .await;
        let arrival = bench.arrived().await;
        assert_eq!(arrival.request_id == given, given == id);
        arrival.mailbox.post(if by_command {
            plane_core::exchange::Command::Respond(plane_core::exchange::Respond {
                status: 200,
                fields: vec![pair("X-Request-ID", "another")],
                body: "ok".into(),
            })
        } else {
            forward_with(&target, |forward, _| {
                forward.reply_fields = vec![pair("Request-Id", "another")]
            })
        });
        let answer = client.answer().await;
        assert_eq!(answer.field("x-request-id"), [arrival.request_id.as_str()]);
        assert_eq!(answer.field("request-id"), [arrival.request_id.as_str()]);
        bench.outcome(&arrival).await;
    }
}
