//! Header fields across the plane: what crosses, what stays on its hop, and whose word counts.

use crate::{
    backend::{Backend, LAST_CHUNK, chunk, sized},
    bench::{Bench, forward, forward_with, pair},
    client::Client,
};
use std::sync::{Arc, Mutex};

/// A backend that keeps the heads it gets.
async fn listening(answer: impl Into<Vec<u8>>) -> (Backend, Arc<Mutex<Vec<String>>>) {
    let (heads, answer) = (Arc::<Mutex<Vec<String>>>::default(), answer.into());
    let kept = heads.clone();
    let backend = Backend::new(move |mut serving| {
        let (kept, answer) = (kept.clone(), answer.clone());
        async move {
            while let Some(request) = serving.request().await {
                kept.lock().unwrap().push(request.head);
                serving.send(&answer).await;
            }
        }
    })
    .await;
    (backend, heads)
}

async fn send(client: &mut Client, fields: &str) {
    client
        .send(format!(
            "POST /v1/x HTTP/1.1\r\nHost: h\r\n{fields}Content-Length: 2\r\n\r\n{{}}"
        ))
        .await;
}

#[tokio::test]
async fn hop_by_hop_fields_cross_neither_way_and_others_do() {
    let mut bench = Bench::new();
    let answer = "HTTP/1.1 200 OK\r\nConnection: X-Secret, close\r\nX-Secret: 1\r\nKeep-Alive: timeout=1\r\n\
                  TE: x\r\nTrailer: x\r\nUpgrade: x\r\nProxy-Authenticate: x\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\
                  Content-Length: 2\r\n\r\nok";
    let (backend, heads) = listening(answer).await;
    let mut client = bench.client().await;
    let own = "Connection: X-Foo, keep-alive\r\nX-Foo: 1\r\nTE: trailers\r\nProxy-Authorization: x\r\nUpgrade: h2c\r\n\
               Keep-Alive: 1\r\nProxy-Connection: 1\r\nTrailer: x\r\nExpect: x\r\n";
    send(
        &mut client,
        &format!("{own}Cookie: a=b\r\nanthropic-beta: 1\r\nAnthropic-Beta: 2\r\nX-Api-Key: k\r\n"),
    )
    .await;
    let arrival = bench.arrived().await;
    arrival
        .mailbox
        .post(forward(&bench.server(backend.address)));
    let answer = client.answer().await;
    for name in [
        "connection",
        "x-secret",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "proxy-authenticate",
    ] {
        assert!(answer.field(name).is_empty(), "{name}");
    }
    assert_eq!(answer.field("set-cookie"), ["a", "b"]);
    let head = heads.lock().unwrap()[0].clone();
    let expected = "POST /v1/x HTTP/1.1\r\nhost: backend\r\nCookie: a=b\r\nanthropic-beta: 1\r\nAnthropic-Beta: 2\r\n\
                    X-Api-Key: k\r\ncontent-length: 2\r\n\r\n";
    assert_eq!(head, expected);
}

#[tokio::test]
async fn fields_of_an_answer_are_dropped_as_the_plan_says_whole_or_streamed() {
    let mut bench = Bench::new();
    for framing in [
        "Content-Length: 2\r\n\r\nok",
        "Content-Type: text/event-stream\r\nContent-Length: 9\r\n\r\ndata: x\n\n",
    ] {
        let fields = "Set-Cookie: a\r\nX-A: 1\r\nset-cookie: b\r\nX-Limit-B: 2\r\nX-Limit: 3\r\n";
        let (backend, _) = listening(format!("HTTP/1.1 200 OK\r\n{fields}{framing}")).await;
        let mut client = bench.client().await;
        send(&mut client, "").await;
        let arrival = bench.arrived().await;
        arrival
            .mailbox
            .post(forward_with(&bench.server(backend.address), |_, spec| {
                spec.drop_reply_fields = vec!["set-cookie".into(), "x-limit-".into()];
            }));
        let answer = client.answer().await;
        assert!(answer.field("set-cookie").is_empty());
        assert!(answer.field("x-limit-b").is_empty());
        assert_eq!(answer.field("x-a"), ["1"]);
        assert_eq!(answer.field("x-limit"), ["3"]);
        bench.outcome(&arrival).await;
    }
}

#[tokio::test]
async fn fields_are_dropped_set_or_stood_in_for_as_the_plan_says() {
    let mut bench = Bench::new();
    let (backend, heads) = listening(sized("ok")).await;
    let target = bench.server(backend.address);
    let plan = || {
        forward_with(&target, |forward, spec| {
            forward.path = "/v1/x?beta=true".into();
            spec.path_prefix = "/base".into();
            spec.drop_fields = vec!["authorization".into()];
            spec.set_fields = vec![
                pair("accept-encoding", "identity"),
                pair("Content-Length", "9"),
            ];
            spec.default_fields = vec![
                pair("content-type", "application/json"),
                pair("authorization", "Bearer ours"),
                pair("accept-encoding", "never"),
                pair("x-hop", "default"),
                pair("transfer-encoding", "chunked"),
            ];
            spec.request_id_name = "x-request-id".into();
        })
    };
    let mut client = bench.client().await;
    let given = "Content-Type: text/x\r\nAuthorization: Bearer theirs\r\nAccept-Encoding: gzip\r\n\
                 X-Request-Id: bad\r\nX-Hop: 1\r\nConnection: x-hop\r\n";
    for fields in [given, ""] {
        send(&mut client, fields).await;
        let arrival = bench.arrived().await;
        arrival.mailbox.post(plan());
        client.answer().await;
        bench.outcome(&arrival).await;
        let head = heads.lock().unwrap().pop().unwrap();
        let content_type = match fields.is_empty() {
            true => "content-type: application/json\r\nauthorization: Bearer ours\r\n",
            false => "Content-Type: text/x\r\nauthorization: Bearer ours\r\n",
        };
        let id = &arrival.request_id;
        let expected = format!(
            "POST /base/v1/x?beta=true HTTP/1.1\r\nhost: backend\r\n{content_type}x-hop: default\r\n\
             accept-encoding: identity\r\nx-request-id: {id}\r\ncontent-length: 2\r\n\r\n"
        );
        assert_eq!(head, expected);
    }
}

#[tokio::test]
async fn our_fields_replace_the_backends_of_the_same_name() {
    let mut bench = Bench::with(|door| {
        door.standing_fields = Arc::new(vec![
            pair("Access-Control-Allow-Origin", "*"),
            pair("x-both", "standing"),
        ]);
        door.tells_request_id = true;
    });
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\
                access-control-allow-origin: evil\r\nX-RateLimit-Remaining: 5\r\nx-request-id: theirs\r\n\
                X-Accel-Buffering: yes\r\nserver: engine\r\n\r\n";
    let (backend, _) = listening(format!("{head}{}{LAST_CHUNK}", chunk("data: 1\n\n"))).await;
    let target = bench.server(backend.address);
    let mut client = bench.client().await;
    send(&mut client, "").await;
    let arrival = bench.arrived().await;
    arrival.mailbox.post(forward_with(&target, |forward, spec| {
        forward.reply_fields = vec![
            pair("x-ratelimit-remaining", "7"),
            pair("X-Both", "reply"),
            pair("connection", "x"),
        ];
        spec.stream_fields = vec![
            pair("cache-control", "no-cache"),
            pair("x-accel-buffering", "no"),
            pair("x-both", "stream"),
        ];
    }));
    let answer = client.answer().await;
    for (name, value) in [
        ("access-control-allow-origin", "*"),
        ("x-ratelimit-remaining", "7"),
        ("x-both", "reply"),
        ("cache-control", "no-cache"),
        ("x-accel-buffering", "yes"),
        ("server", "engine"),
        ("x-request-id", &arrival.request_id),
        ("transfer-encoding", "chunked"),
    ] {
        assert_eq!(answer.field(name), [value], "{name}");
    }
    assert!(answer.field("connection").is_empty());
}

#[tokio::test]
async fn names_that_frame_a_message_where_underlines_are_dashes_cross_neither_way() {
    let mut bench = Bench::new();
    let answer =
        "HTTP/1.1 200 OK\r\nTransfer_Encoding: chunked\r\nX_Fine: 1\r\nContent-Length: 2\r\n\r\nok";
    let (backend, heads) = listening(answer).await;
    let mut client = bench.client().await;
    let disguised = "Content_Length: 5\r\nTRANSFER_ENCODING: chunked\r\nKeep_Alive: 1\r\nProxy_Authorization: x\r\n\
                     Proxy-Foo_Bar: x\r\nHttp2_Settings: x\r\n";
    send(&mut client, &format!("{disguised}Other_Name: 1\r\n")).await;
    let arrival = bench.arrived().await;
    arrival
        .mailbox
        .post(forward(&bench.server(backend.address)));
    let answer = client.answer().await;
    assert!(answer.field("transfer_encoding").is_empty());
    assert_eq!(answer.field("x_fine"), ["1"]);
    let head = heads.lock().unwrap().remove(0).to_ascii_lowercase();
    for name in ["content_", "transfer_", "keep_", "proxy", "http2_"] {
        assert!(!head.contains(&format!("\n{name}")), "{name}: {head}");
    }
    assert!(head.contains("other_name: 1"));
}
