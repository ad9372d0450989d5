//! Backends that fail before the client has seen a byte: told, and another attempt can be made.

use crate::{
    backend::{Backend, SSE_HEAD, Serving, sized},
    bench::{Bench, forward, forward_with, promptly, respond, soon},
};
use plane_core::exchange::{Command, Outcome};
use std::time::Duration;

/// What a backend says before it goes, whether it resets, the kind of the failure, and the head's status.
const DEATHS: &[(&str, bool, &str, u16)] = &[
    ("", false, "reset", 0),
    ("", true, "reset", 0),
    ("HTTP/1.1 200 OK\r\nContent-", false, "reset", 0),
    ("HTTP/1.1 200 OK\r\nContent-", true, "reset", 0),
    ("HTTP/1.1 100 Continue\r\n\r\n", false, "reset", 0),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
        false,
        "truncated",
        200,
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart",
        true,
        "truncated",
        200,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        false,
        "truncated",
        200,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
        false,
        "truncated",
        200,
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\n",
        false,
        "truncated",
        200,
    ),
    (SSE_HEAD, true, "truncated", 200),
    ("SSH-2.0-OpenSSH_9.9\r\n", false, "malformed", 0),
    (
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nok\r\n\r\n",
        false,
        "malformed",
        0,
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
        false,
        "malformed",
        0,
    ),
    (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        false,
        "malformed",
        0,
    ),
];

async fn dying(says: &'static str, by_reset: bool) -> Backend {
    Backend::new(move |mut serving: Serving| async move {
        serving.request().await;
        serving.send(says).await;
        if by_reset {
            serving.reset();
        }
    })
    .await
}

#[tokio::test]
async fn a_backend_that_dies_before_the_first_byte_is_replaced_unseen() {
    let mut bench = Bench::new();
    let healthy = Backend::answering(sized("from another")).await;
    for (says, by_reset, kind, status) in DEATHS {
        let dying = dying(says, *by_reset).await;
        let target = bench.server(dying.address);
        let (mut client, arrival) = bench.forwarded(&target).await;
        let failure = bench.failed(&arrival).await;
        assert_eq!(failure.kind.name(), *kind, "{says:?} {}", failure.detail);
        assert_eq!(
            (failure.head_s > 0.0, failure.is_link_down),
            (*status > 0, false),
            "{says:?}"
        );
        assert_eq!(dying.requests(), 1, "{says:?}");
        let target = bench.server(healthy.address);
        arrival
            .mailbox
            .post(forward_with(&target, |forward, _| forward.attempt = 2));
        assert_eq!(client.answer().await.text(), "from another");
        let (_, finished) = bench.finished(&arrival).await;
        assert_eq!((finished.outcome, finished.attempt), (Outcome::Answered, 2));
    }
}

#[tokio::test]
async fn a_backend_that_nobody_listens_for_fails_to_connect() {
    let mut bench = Bench::new();
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let target = bench.server(gone);
    let (mut client, arrival) = bench.forwarded(&target).await;
    let failure = bench.failed(&arrival).await;
    assert_eq!(failure.kind.name(), "connect");
    assert!(
        failure.detail.contains(&gone.to_string()),
        "{}",
        failure.detail
    );
    arrival.mailbox.post(respond(503, "none"));
    assert_eq!(client.answer().await.status, 503);
}

#[tokio::test]
async fn a_refusal_is_told_with_its_fields_and_64_kib_of_its_body() {
    let mut bench = Bench::new();
    let body = "e".repeat(200_000);
    let refusing = Backend::answering(format!(
        "HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ))
    .await;
    let target = bench.server(refusing.address);
    let (mut client, arrival) = bench.forwarded(&target).await;
    let failure = bench.failed(&arrival).await;
    assert_eq!(
        (failure.kind.name(), failure.status, failure.body.len()),
        ("status", 429, 64 << 10)
    );
    assert_eq!(failure.fields.get("retry-after"), Some(&b"7"[..]));
    // Where every status is an answer, it is passed on as it is.
    let target = bench.server(refusing.address);
    arrival.mailbox.post(forward_with(&target, |_, spec| {
        spec.relay_any_status = true
    }));
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.body.len()), (429, 200_000));
    bench.outcome(&arrival).await;
}

#[tokio::test]
async fn a_refusal_whose_body_never_ends_is_told_all_the_same() {
    let mut bench = Bench::new();
    let stuck = Backend::new(|mut serving| async move {
        serving.request().await;
        serving
            .send("HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\nwhy: ")
            .await;
        serving.closed().await;
    })
    .await;
    let target = bench.server(stuck.address);
    let (_client, arrival) = bench.forwarded(&target).await;
    let failure = bench.failed(&arrival).await;
    assert_eq!(
        (failure.kind.name(), failure.status, &failure.body[..]),
        ("status", 500, &b"why: "[..])
    );
    soon("the close", stuck.closed()).await;
}

#[tokio::test]
async fn a_backend_that_is_silent_too_long_times_out_and_is_closed() {
    let mut bench = Bench::new();
    for says in [
        "",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart",
        SSE_HEAD,
    ] {
        let silent = Backend::new(move |mut serving| async move {
            serving.request().await;
            serving.send(says).await;
            serving.closed().await;
        })
        .await;
        let (mut client, arrival) = bench.asked().await;
        let target = bench.server(silent.address);
        arrival.mailbox.post(forward_with(&target, |forward, _| {
            forward.within = Duration::from_millis(100);
        }));
        let failure = bench.failed(&arrival).await;
        assert_eq!(failure.kind.name(), "timeout");
        assert_eq!(failure.head_s > 0.0, !says.is_empty());
        promptly("the close", silent.closed()).await;
        arrival.mailbox.post(respond(504, "late"));
        assert_eq!(client.answer().await.status, 504);
        bench.outcome(&arrival).await;
    }
}

#[tokio::test]
async fn an_attempt_that_is_given_up_fails_as_one_that_took_too_long() {
    let mut bench = Bench::new();
    let healthy = Backend::answering(sized("ok")).await;
    for says in ["", SSE_HEAD] {
        let silent = Backend::new(move |mut serving| async move {
            serving.request().await;
            serving.send(says).await;
            serving.closed().await;
        })
        .await;
        let target = bench.server(silent.address);
        let (mut client, arrival) = bench.forwarded(&target).await;
        silent.requested().await;
        let attempt = 1;
        // Of another attempt, and so too late or too early.
        arrival.mailbox.post(Command::GiveUp(attempt + 1));
        arrival.mailbox.post(Command::GiveUp(attempt));
        let failure = bench.failed(&arrival).await;
        assert_eq!(failure.kind.name(), "timeout");
        promptly("the close", silent.closed()).await;
        // Twice, and between two attempts, it does nothing.
        arrival.mailbox.post(Command::GiveUp(attempt));
        arrival
            .mailbox
            .post(forward(&bench.server(healthy.address)));
        assert_eq!(client.answer().await.text(), "ok");
        assert_eq!(bench.outcome(&arrival).await, Outcome::Answered);
    }
}

#[tokio::test]
async fn another_command_ends_an_attempt_under_way() {
    let mut bench = Bench::new();
    let silent = Backend::new(|mut serving| async move {
        serving.request().await;
        serving.closed().await;
    })
    .await;
    let healthy = Backend::answering(sized("ok")).await;
    for round in 0..3 {
        let target = bench.server(silent.address);
        let (mut client, arrival) = bench.forwarded(&target).await;
        silent.requested().await;
        // A release that comes too late ends nothing.
        arrival.mailbox.post(Command::Release);
        arrival.mailbox.post(match round {
            0 => respond(200, "ok"),
            1 => forward(&bench.server(healthy.address)),
            _ => Command::Abort,
        });
        promptly("the close", silent.closed()).await;
        match round {
            2 => assert!(matches!(client.more().await, Ok(0) | Err(_))),
            _ => assert_eq!(client.answer().await.text(), "ok"),
        }
        let outcome = bench.outcome(&arrival).await;
        assert_eq!(
            outcome,
            [Outcome::Responded, Outcome::Answered, Outcome::Aborted][round]
        );
    }
}

#[tokio::test]
async fn an_answer_whose_trailers_are_no_field_lines_is_no_answer() {
    let mut bench = Bench::new();
    for trailer in [
        "X: a\rHTTP/1.1 200 OK",
        "no colon",
        "Content-Length: 2",
        " folded",
    ] {
        let answer = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n{trailer}\r\n\r\n"
        );
        let backend = Backend::answering(answer).await;
        let target = bench.server(backend.address);
        let (_client, arrival) = bench.forwarded(&target).await;
        let failure = bench.failed(&arrival).await;
        assert_eq!(failure.kind.name(), "truncated", "{trailer:?}");
        assert_eq!(failure.detail, "malformed trailer");
        arrival.mailbox.post(respond(502, "bad"));
        bench.outcome(&arrival).await;
    }
}
