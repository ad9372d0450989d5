//! What counts as an answer, what is streamed whatever its label, and who was served to the end.

use crate::{
    backend::{Backend, LAST_CHUNK, SSE_HEAD, chunk},
    bench::{Bench, forward, forward_with, promptly, respond},
    client::post,
};
use plane_core::{events::Event, exchange::Outcome};

const EVENTS: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"abcd\"}}]}\n\n";
const USAGE: &str = "data: {\"usage\":{\"prompt_tokens\":33,\"completion_tokens\":44}}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const ASKING: &str = r#"{"stream": true}"#;

/// One that answers with these bytes and closes.
async fn closing(answer: &str) -> Backend {
    let answer = answer.to_owned();
    Backend::new(move |mut serving| {
        let answer = answer.clone();
        async move {
            serving.request().await;
            serving.send(answer).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_200_that_is_no_answer_leaves_room_for_another_attempt() {
    let json = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let mut bench = Bench::new();
    for answer in [
        format!("{json}\r\n{{\"a\":[1,"),
        format!("{json}\r\n{{\"a\":1"),
        format!("{json}\r\ntru"),
        "HTTP/1.0 200 OK\r\n\r\n{\"a\":1".to_owned(),
        format!("{json}\r\n"),
        format!("{json}Content-Length: 0\r\n\r\n"),
        format!("{json}Content-Length: 3\r\n\r\n \r\n"),
        format!("{json}Transfer-Encoding: chunked\r\n\r\n{LAST_CHUNK}"),
        format!("{SSE_HEAD}{}{LAST_CHUNK}", chunk("\n\n")),
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n".to_owned(),
    ] {
        let backend = closing(&answer).await;
        let target = bench.server(backend.address);
        for relay_any_status in [false, true] {
            let (mut client, arrival) = bench.asked().await;
            arrival.mailbox.post(forward_with(&target, |_, spec| {
                spec.relay_any_status = relay_any_status;
            }));
            let failure = bench.failed(&arrival).await;
            assert_eq!(failure.kind.name(), "truncated", "{answer:?}");
            arrival.mailbox.post(respond(503, ""));
            assert_eq!(client.answer().await.status, 503);
            bench.outcome(&arrival).await;
        }
    }
}

#[tokio::test]
async fn a_body_without_a_length_that_is_whole_or_no_json_is_passed_on() {
    let mut bench = Bench::new();
    for (label, body) in [
        ("application/json", "{\"a\":[1,{}]}\n"),
        ("application/json", "\"text\""),
        ("application/json", "17"),
        ("text/plain", "{\"a\":"),
    ] {
        let answer = format!("HTTP/1.0 200 OK\r\nContent-Type: {label}\r\n\r\n{body}");
        let backend = closing(&answer).await;
        let target = bench.server(backend.address);
        let (mut client, arrival) = bench.forwarded(&target).await;
        assert_eq!(client.answer().await.text(), body);
        assert_eq!(bench.outcome(&arrival).await, Outcome::Answered);
    }
}

#[tokio::test]
async fn a_stream_that_was_asked_for_is_one_whatever_its_label() {
    let mut bench = Bench::new();
    for label in [
        "Content-Type: application/json\r\n",
        "Content-Type: text/plain\r\n",
        "Content-Type: application/octet-stream\r\n",
        "",
    ] {
        let head = format!("HTTP/1.1 200 OK\r\n{label}Transfer-Encoding: chunked\r\n\r\n");
        let backend = Backend::new(move |mut serving| {
            let head = head.clone();
            async move {
                serving.request().await;
                serving.send(format!("{head}{}", chunk(EVENTS))).await;
                // The rest comes only once the client has told that it has the first event.
                serving.request().await;
                let rest = format!("{}{}{LAST_CHUNK}", chunk(USAGE), chunk(DONE));
                serving.send(rest).await;
            }
        })
        .await;
        let mut client = bench.client().await;
        client.send(post(ASKING)).await;
        let arrival = bench.arrived().await;
        let target = bench.server(backend.address);
        arrival.mailbox.post(forward(&target));
        let head = client.head().await;
        assert_eq!(label.is_empty(), head.field("content-type").is_empty());
        assert_eq!(client.chunk().await.unwrap(), EVENTS.as_bytes());
        drop(client);
        let (names, finished) = bench.finished(&arrival).await;
        assert_eq!(names, ["head", "started"]);
        assert_eq!(finished.usage.unwrap().output_bytes, 4);
        assert_eq!(finished.outcome, Outcome::ClientLeft);
    }
}

#[tokio::test]
async fn one_json_body_though_a_stream_was_asked_for_is_the_body_it_is() {
    let mut bench = Bench::new();
    let body = r#"{"usage":{"prompt_tokens":33,"completion_tokens":44}}"#;
    let backend = Backend::answering(format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ))
    .await;
    let mut client = bench.client().await;
    client.send(post(ASKING)).await;
    let arrival = bench.arrived().await;
    arrival
        .mailbox
        .post(forward(&bench.server(backend.address)));
    let answer = client.answer().await;
    assert_eq!(answer.text(), body);
    assert_eq!(answer.field("content-length").len(), 1);
    let (names, finished) = bench.finished(&arrival).await;
    assert!(names.is_empty());
    assert_eq!(finished.usage.unwrap().completion_tokens, Some(44));
}

#[tokio::test]
async fn a_body_too_long_to_hold_keeps_its_meter() {
    let usage = r#""usage":{"prompt_tokens":33,"completion_tokens":44}"#;
    let filler = "0,".repeat(50_000);
    let mut bench = Bench::new();
    for body in [
        format!("{{{usage},\"x\":[{filler}0]}}"),
        format!("{{\"x\":[{filler}0],{usage}}}"),
    ] {
        let backend = Backend::answering(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
        let target = bench.server(backend.address);
        let (mut client, arrival) = bench.asked().await;
        arrival.mailbox.post(forward_with(&target, |_, spec| {
            spec.buffered_bytes_max = 1024;
        }));
        assert_eq!(client.answer().await.text(), body);
        let usage = bench.finished(&arrival).await.1.usage.unwrap();
        assert_eq!(
            (usage.prompt_tokens, usage.completion_tokens, usage.exact),
            (Some(33), Some(44), true)
        );
    }
}

#[tokio::test]
async fn who_leaves_on_the_end_mark_was_served_and_who_leaves_before_it_was_not() {
    let mut bench = Bench::new();
    for (last, outcome) in [
        (DONE, Outcome::Answered),
        (
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            Outcome::Answered,
        ),
        (
            "data: {\"type\":\"response.incomplete\"}\n\n",
            Outcome::Answered,
        ),
        ("data: last\n\n", Outcome::ClientLeft),
    ] {
        for by_reset in [false, true] {
            let backend = Backend::new(move |mut serving| async move {
                serving.request().await;
                let said = format!("{SSE_HEAD}{}{}", chunk(USAGE), chunk(last));
                serving.send(said).await;
                serving.closed().await;
            })
            .await;
            let target = bench.server(backend.address);
            let (mut client, arrival) = bench.forwarded(&target).await;
            client.until(last.as_bytes()).await;
            if by_reset {
                client.reset();
            } else {
                drop(client);
            }
            promptly("the backend is let go", backend.closed()).await;
            let finished = bench.finished(&arrival).await.1;
            assert_eq!(finished.outcome, outcome, "{last:?}");
            assert_eq!(finished.usage.unwrap().completion_tokens, Some(44));
        }
    }
}

#[tokio::test]
async fn what_can_be_no_head_and_no_chunk_is_told_while_its_sender_waits() {
    let mut bench = Bench::new();
    for (said, kind) in [
        ("HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "malformed"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nok",
            "malformed",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length 2\r\n", "malformed"),
        ("HTTP/1.1 two hundred", "malformed"),
        ("220 mail ready\r\n", "malformed"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{\"no\":\"chunk\"}",
            "truncated",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nno trailer",
            "truncated",
        ),
    ] {
        let backend = Backend::new(move |mut serving| async move {
            serving.request().await;
            serving.send(said).await;
            serving.closed().await;
        })
        .await;
        let target = bench.server(backend.address);
        let (mut client, arrival) = bench.forwarded(&target).await;
        let failure = promptly(said, bench.failed(&arrival)).await;
        assert_eq!(failure.kind.name(), kind, "{said:?}");
        arrival.mailbox.post(respond(502, ""));
        assert_eq!(client.answer().await.status, 502);
        bench.outcome(&arrival).await;
    }
}

#[tokio::test]
async fn what_the_client_is_given_does_not_depend_on_the_pieces_an_answer_comes_in() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/answers");
    let mut bench = Bench::new();
    for seed in std::fs::read_dir(seeds).unwrap() {
        let seed = seed.unwrap().path();
        let wire = std::fs::read(&seed).unwrap();
        let mut given = Vec::new();
        for piece_bytes in [wire.len(), 1] {
            let wire = wire.clone();
            let backend = Backend::new(move |mut serving| {
                let wire = wire.clone();
                async move {
                    serving.request().await;
                    for piece in wire.chunks(piece_bytes) {
                        if serving.send_all(piece).await.is_err() {
                            return;
                        }
                        tokio::task::yield_now().await;
                    }
                }
            })
            .await;
            let mut client = bench.client().await;
            client.send(post(ASKING)).await;
            let arrival = bench.arrived().await;
            arrival
                .mailbox
                .post(forward(&bench.server(backend.address)));
            // Answers what fails; a command that comes too late is nobody's.
            let came = loop {
                match bench.told().await {
                    Event::Failed { failure, .. } => {
                        arrival.mailbox.post(respond(502, failure.kind.name()));
                    }
                    Event::Finished(finished) => break finished.outcome,
                    _ => {}
                }
            };
            let answer = client.answer().await;
            given.push((came, answer.status, answer.body));
        }
        assert_eq!(given[0], given[1], "{seed:?}");
    }
}
