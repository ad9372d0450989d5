//! Kept connections that turn out to be dead: one more try on a fresh one, and never after a byte.

use crate::{
    backend::{Backend, sized},
    bench::{Bench, forward_with, respond},
};
use bytes::Bytes;
use plane_core::{exchange::Target, upstream::Resend};

async fn ask(bench: &mut Bench, target: &Target) -> String {
    let (mut client, arrival) = bench.forwarded(target).await;
    let answer = client.answer().await;
    bench.outcome(&arrival).await;
    answer.text().to_owned()
}

#[tokio::test]
async fn an_idle_close_by_the_backend_costs_no_request() {
    let mut bench = Bench::new();
    let backend = Backend::new(|mut serving| async move {
        serving.request().await;
        serving.send(sized("ok")).await;
    })
    .await;
    let target = bench.server(backend.address);
    for n in 1..50 {
        assert_eq!(ask(&mut bench, &target).await, "ok");
        assert_eq!(backend.requests(), n);
    }
}

#[tokio::test]
async fn a_reset_on_reuse_before_a_byte_is_tried_once_more_on_a_fresh_connection() {
    let mut bench = Bench::new();
    let backend = Backend::new(|mut serving| async move {
        serving.request().await;
        serving.send(sized("ok")).await;
        // The next request on this connection is taken, and then the connection is reset.
        serving.request().await;
        serving.reset();
    })
    .await;
    let target = bench.server(backend.address);
    for n in 0..20 {
        assert_eq!(ask(&mut bench, &target).await, "ok");
        assert_eq!(backend.connections(), n + 1);
        assert_eq!(backend.requests(), 2 * n + 1);
    }
}

#[tokio::test]
async fn a_reset_on_a_fresh_connection_is_not_tried_again() {
    let mut bench = Bench::new();
    let backend = Backend::new(|mut serving| async move {
        if serving.number > 0 {
            serving.request().await;
            return serving.reset();
        }
        serving.request().await;
        serving.send(sized("ok")).await;
        serving.request().await;
        serving.reset();
    })
    .await;
    let target = bench.server(backend.address);
    assert_eq!(ask(&mut bench, &target).await, "ok");
    let (mut client, arrival) = bench.forwarded(&target).await;
    assert_eq!(bench.failed(&arrival).await.kind.name(), "reset");
    assert_eq!((backend.connections(), backend.requests()), (2, 3));
    arrival.mailbox.post(respond(502, ""));
    client.answer().await;
}

#[tokio::test]
async fn nothing_is_sent_twice_once_a_byte_has_come() {
    let mut bench = Bench::new();
    for says in [
        "H",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
    ] {
        let backend = Backend::new(move |mut serving| async move {
            serving.request().await;
            serving.send(sized("ok")).await;
            serving.request().await;
            serving.send(says).await;
            serving.reset();
        })
        .await;
        let target = bench.server(backend.address);
        assert_eq!(ask(&mut bench, &target).await, "ok");
        let (mut client, arrival) = bench.forwarded(&target).await;
        let kind = bench.failed(&arrival).await.kind.name();
        assert!(matches!(kind, "reset" | "truncated"), "{kind}");
        assert_eq!(
            (backend.connections(), backend.requests()),
            (1, 2),
            "{says:?}"
        );
        arrival.mailbox.post(respond(502, ""));
        client.answer().await;
        bench.outcome(&arrival).await;
    }
}

#[tokio::test]
async fn a_connection_on_which_more_than_the_answer_came_is_not_used_again() {
    let mut bench = Bench::new();
    let backend = Backend::answering(format!(
        "{}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        sized("ok")
    ))
    .await;
    let target = bench.server(backend.address);
    for n in 1..5 {
        assert_eq!(ask(&mut bench, &target).await, "ok");
        assert_eq!(backend.connections(), n);
    }
}

#[tokio::test]
async fn a_backend_that_says_close_is_not_asked_again_on_that_connection() {
    let mut bench = Bench::new();
    let backend =
        Backend::answering("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
            .await;
    let target = bench.server(backend.address);
    for n in 1..5 {
        assert_eq!(ask(&mut bench, &target).await, "ok");
        assert_eq!(backend.connections(), n);
    }
}

/// One answer on each connection, then the next request is taken and the connection reset.
async fn resets_the_second() -> Backend {
    Backend::new(|mut serving| async move {
        serving.request().await;
        serving.send(sized("ok")).await;
        serving.request().await;
        serving.reset();
    })
    .await
}

#[tokio::test]
async fn what_may_have_been_carried_out_is_not_sent_again_where_that_is_for_others_to_decide() {
    let mut bench = Bench::new();
    let backend = resets_the_second().await;
    let target = bench.server(backend.address);
    let forward = || forward_with(&target, |_, spec| spec.resend = Resend::Unsent);
    let (mut client, arrival) = bench.asked().await;
    arrival.mailbox.post(forward());
    assert_eq!(client.answer().await.text(), "ok");
    bench.outcome(&arrival).await;
    let (mut client, arrival) = bench.asked().await;
    arrival.mailbox.post(forward());
    let failure = bench.failed(&arrival).await;
    assert!(failure.is_taken && failure.is_stale, "{failure:?}");
    assert_eq!((backend.connections(), backend.requests()), (1, 2));
    arrival.mailbox.post(respond(502, ""));
    client.answer().await;
}

#[tokio::test]
async fn the_last_try_goes_out_on_a_fresh_connection_by_the_word_of_the_request() {
    let mut bench = Bench::new();
    let backend = Backend::new(|mut serving| async move {
        while let Some(request) = serving.request().await {
            let is_clean = !request.head.to_ascii_lowercase().contains("x-resend");
            serving
                .send(sized(if is_clean { "ok" } else { "it came through" }))
                .await;
        }
    })
    .await;
    let target = bench.server(backend.address);
    for (word, connections) in [("whole", 1), ("whole", 1), ("never", 2), ("nonsense", 2)] {
        let mut client = bench.client().await;
        let request = format!(
            "POST /v1/x HTTP/1.1\r\nHost: h\r\nX-Resend: {word}\r\nContent-Length: 2\r\n\r\n{{}}"
        );
        client.send(request).await;
        let arrival = bench.arrived().await;
        arrival.mailbox.post(forward_with(&target, |_, spec| {
            spec.resend_name = Bytes::from_static(b"x-resend");
        }));
        assert_eq!(client.answer().await.text(), "ok");
        bench.outcome(&arrival).await;
        assert_eq!(backend.connections(), connections, "{word}");
    }
}

#[tokio::test]
async fn an_engine_that_breaks_off_inside_its_answer_has_taken_the_request() {
    let mut bench = Bench::new();
    let backend = Backend::new(|mut serving| async move {
        serving.request().await;
        serving
            .send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
            .await;
        serving.reset();
    })
    .await;
    let target = bench.server(backend.address);
    let (mut client, arrival) = bench.forwarded(&target).await;
    let failure = bench.failed(&arrival).await;
    assert!(failure.is_taken && !failure.is_stale, "{failure:?}");
    arrival.mailbox.post(respond(502, ""));
    client.answer().await;
}
