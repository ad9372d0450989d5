//! Kept connections that turn out to be dead: one more try on a fresh one, and never after a byte.

use crate::{
    backend::{Backend, sized},
    bench::{Bench, respond},
};
use plane_core::exchange::Target;

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
