//! Buffered JSON behind an agent that ends a broken answer as if it were whole.

use crate::{
    backend::Backend,
    bench::{Bench, forward_with, respond},
    client::post,
};
use plane_core::exchange::{Arrival, ForwardSpec};
use std::sync::Arc;

const JSON: &str = "Content-Type: application/json\r\n";

fn sized(fields: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {length}\r\n\r\n{body}")
}

async fn asked(
    bench: &mut Bench,
    request: String,
    answer: String,
    change: impl FnOnce(&mut ForwardSpec),
) -> (crate::client::Client, Arc<Arrival>, Backend) {
    let backend = Backend::answering(answer).await;
    let mut client = bench.client().await;
    client.send(request).await;
    let arrival = bench.arrived().await;
    let target = bench.server(backend.address);
    arrival
        .mailbox
        .post(forward_with(&target, |_, spec| change(spec)));
    (client, arrival, backend)
}

#[tokio::test]
async fn json_that_is_not_whole_is_a_failed_attempt_however_properly_it_ends() {
    let mut bench = Bench::new();
    for body in ["", "{", r#"{"a":"b"#, r#"{"a":[1]"#, "[1,", "oops"] {
        for meter in [true, false] {
            let (mut client, arrival, _backend) =
                asked(&mut bench, post("{}"), sized(JSON, body), |spec| {
                    spec.needs_end_mark = true;
                    spec.meter = meter;
                })
                .await;
            let failure = bench.failed(&arrival).await;
            assert_eq!(failure.kind.name(), "truncated", "{body}");
            arrival.mailbox.post(respond(503, ""));
            assert_eq!(client.answer().await.status, 503);
            bench.outcome(&arrival).await;
        }
    }
}

#[tokio::test]
async fn whole_json_though_not_strict_and_all_that_is_no_json_is_passed_on() {
    let mut bench = Bench::new();
    let compressed = format!("{JSON}Content-Encoding: gzip\r\n");
    for (fields, body) in [
        (JSON, "{}"),
        (JSON, "[1]\n"),
        (JSON, r#"{"logprob":-Infinity,"x":NaN,"y":"}"}"#),
        ("Content-Type: text/plain\r\n", "{"),
        (&compressed, "{"),
        ("", "{"),
    ] {
        let (mut client, arrival, _backend) =
            asked(&mut bench, post("{}"), sized(fields, body), |spec| {
                spec.needs_end_mark = true;
            })
            .await;
        assert_eq!(client.answer().await.text(), body);
        bench.outcome(&arrival).await;
    }
}

#[tokio::test]
async fn an_agent_that_breaks_off_by_itself_is_taken_at_its_word() {
    let mut bench = Bench::new();
    let (mut client, arrival, _backend) =
        asked(&mut bench, post("{}"), sized(JSON, "{"), |_| {}).await;
    assert_eq!(client.answer().await.text(), "{");
    bench.outcome(&arrival).await;
}

#[tokio::test]
async fn an_answer_to_head_has_no_json_to_miss() {
    let mut bench = Bench::new();
    let head = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned();
    let answer = format!("HTTP/1.1 200 OK\r\n{JSON}Content-Length: 5\r\n\r\n");
    let (mut client, arrival, _backend) =
        asked(&mut bench, head, answer, |spec| spec.needs_end_mark = true).await;
    assert_eq!(client.head().await.status, 200);
    bench.outcome(&arrival).await;
}
