//! Replies whose form depends on the method, the status or the command.

use crate::{
    backend::Backend,
    bench::{Bench, forward, respond},
    client::get,
};
use plane_core::{
    events::Event,
    exchange::{Command, Respond},
};

#[tokio::test]
async fn head_is_answered_without_a_body_by_command_and_by_a_backend() {
    let mut bench = Bench::new();
    let backend = Backend::new(|mut serving| async move {
        while let Some(request) = serving.request().await {
            assert!(request.head.starts_with("HEAD /v1/x "));
            serving
                .send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                .await;
        }
    })
    .await;
    let target = bench.server(backend.address);
    let mut client = bench.client().await;
    for round in 0..3 {
        client.send("HEAD /v1/x HTTP/1.1\r\nHost: h\r\n\r\n").await;
        let arrival = bench.arrived().await;
        let by_command = round == 0;
        arrival.mailbox.post(if by_command {
            respond(200, "12345")
        } else {
            forward(&target)
        });
        let head = client.head().await;
        assert_eq!(
            head.field("content-length"),
            [if by_command { "5" } else { "1000" }]
        );
        let (_, finished) = bench.finished(&arrival).await;
        assert_eq!(finished.bytes, 0);
    }
    assert_eq!(
        backend.connections(),
        1,
        "an answer to HEAD leaves its connection usable"
    );
    client.send(get("/")).await;
    bench.arrived().await.mailbox.post(respond(200, "next"));
    assert_eq!(client.answer().await.text(), "next");
}

#[tokio::test]
async fn statuses_without_a_body_have_none() {
    let mut bench = Bench::new();
    let mut client = bench.client().await;
    for status in [204, 304] {
        client.send(get("/")).await;
        bench
            .arrived()
            .await
            .mailbox
            .post(respond(status, "must not be sent"));
        let head = client.head().await;
        assert_eq!(
            (head.status, head.field("content-length").len()),
            (status, 0)
        );
        assert!(matches!(bench.told().await, Event::Finished(_)));
    }
    client.send(get("/")).await;
    bench.arrived().await.mailbox.post(respond(200, "ok"));
    assert_eq!(client.answer().await.text(), "ok");
}

#[tokio::test]
async fn fields_of_an_answer_by_command_never_frame_it() {
    let mut bench = Bench::new();
    let mut client = bench.client().await;
    client.send(get("/")).await;
    let fields = [
        ("Content-Length", "999"),
        ("transfer-encoding", "chunked"),
        ("Connection", "close"),
        ("x-a", "1"),
    ];
    bench
        .arrived()
        .await
        .mailbox
        .post(Command::Respond(Respond {
            status: 200,
            fields: fields
                .map(|(name, value)| crate::bench::pair(name, value))
                .into(),
            body: "ok".into(),
        }));
    let answer = client.answer().await;
    assert_eq!(answer.field("content-length"), ["2"]);
    assert_eq!(
        (answer.field("connection").len(), answer.field("x-a")),
        (0, vec!["1"])
    );
}
