//! Links and backends behind them that fail while requests run.

use crate::{
    backend::{Backend, LAST_CHUNK, SSE_HEAD, chunk, sized},
    bench::{forward_with, promptly, respond, soon},
    client::{Client, post},
    linked::Linked,
};
use plane_core::{
    events::Event,
    exchange::{Arrival, BreakKind, Outcome, Target},
    upstream::Resend,
};
use std::sync::Arc;

async fn begin(linked: &mut Linked) -> (Client, Arc<Arrival>) {
    let mut client = linked.router.client().await;
    client.send(post("{}")).await;
    let arrival = linked.router.arrived().await;
    arrival.mailbox.post(linked.forward());
    (client, arrival)
}

/// One event, then nothing more until the connection ends.
async fn one_event() -> Backend {
    Backend::new(|mut serving| async move {
        serving.request().await;
        serving
            .send(format!("{SSE_HEAD}{}", chunk("data: 1\n\n")))
            .await;
        serving.closed().await;
    })
    .await
}

#[tokio::test]
async fn a_stream_that_a_backend_breaks_off_is_reset_by_the_agent_and_told_by_the_router() {
    let backend = Backend::new(|mut serving| async move {
        serving.request().await;
        serving
            .send(format!("{SSE_HEAD}{}", chunk("data: 1\n\n")))
            .await;
        serving.reset();
    })
    .await;
    let mut linked = Linked::new(backend.address).await;
    for _ in 0..5 {
        let (mut client, arrival) = begin(&mut linked).await;
        let wire = String::from_utf8(client.rest().await.unwrap()).unwrap();
        assert!(
            wire.ends_with("data: {\"error\":\"lost\"}\n\n\r\n"),
            "{wire}"
        );
        assert_eq!(
            linked.router.outcome(&arrival).await,
            Outcome::Broken(BreakKind::Lost)
        );
    }
}

#[tokio::test]
async fn a_link_lost_while_streams_run_ends_them_with_their_event_and_closes_the_backends() {
    let backend = one_event().await;
    let mut linked = Linked::new(backend.address).await;
    let (mut client, arrival) = begin(&mut linked).await;
    client.until(b"data: 1\n\n").await;
    let agent = linked.agent.plane.context().peers.local_peer_id();
    linked.router.plane.context().peers.close_peer(&agent);
    promptly("the backend", backend.closed()).await;
    let rest = String::from_utf8(client.rest().await.unwrap()).unwrap();
    assert!(rest.contains("\"link_lost\"") && !rest.ends_with(LAST_CHUNK));
    assert_eq!(
        linked.router.outcome(&arrival).await,
        Outcome::Broken(BreakKind::LinkLost)
    );
}

#[tokio::test]
async fn an_agent_that_dies_under_a_stream_is_told_apart_from_its_backend() {
    let backend = one_event().await;
    let mut linked = Linked::new(backend.address).await;
    let (mut client, arrival) = begin(&mut linked).await;
    client.until(b"data: 1\n\n").await;
    let agent = &linked.agent.plane;
    // It blocks, and a test is a task.
    std::thread::scope(|scope| scope.spawn(|| agent.shutdown()).join()).unwrap();
    let rest = String::from_utf8(client.rest().await.unwrap()).unwrap();
    assert!(rest.contains("\"link_lost\""), "{rest}");
    assert_eq!(
        linked.router.outcome(&arrival).await,
        Outcome::Broken(BreakKind::LinkLost)
    );
}

#[tokio::test]
async fn a_link_lost_while_a_request_waits_fails_it_and_another_attempt_is_served() {
    let silent = Backend::new(|mut serving| async move {
        serving.request().await;
        serving.closed().await;
    })
    .await;
    let healthy = Backend::answering(sized("ok")).await;
    let mut linked = Linked::new(silent.address).await;
    let (mut client, arrival) = begin(&mut linked).await;
    silent.requested().await;
    let agent = linked.agent.plane.context().peers.local_peer_id();
    linked.router.plane.context().peers.close_peer(&agent);
    let failure = linked.router.failed(&arrival).await;
    assert!(failure.is_link_down, "{failure:?}");
    promptly("the backend", silent.closed()).await;
    let target = linked.router.server(healthy.address);
    arrival.mailbox.post(forward_with(&target, |_, _| {}));
    assert_eq!(client.answer().await.text(), "ok");
    assert_eq!(linked.router.outcome(&arrival).await, Outcome::Answered);
}

#[tokio::test]
async fn a_link_replaced_ends_what_ran_on_the_old_one_and_carries_what_comes() {
    let backend = Backend::new(|mut serving| async move {
        let request = serving.request().await.unwrap();
        if request.body == b"short" {
            return serving.send(sized("ok")).await;
        }
        serving
            .send(format!("{SSE_HEAD}{}", chunk("data: 1\n\n")))
            .await;
        serving.closed().await;
    })
    .await;
    let mut linked = Linked::new(backend.address).await;
    let (mut client, arrival) = begin(&mut linked).await;
    client.until(b"data: 1\n\n").await;
    for _ in 0..2 {
        assert!(matches!(
            linked.router.told().await,
            Event::Head { .. } | Event::Started { .. }
        ));
    }
    linked.link().await;
    let rest = String::from_utf8(client.rest().await.unwrap()).unwrap();
    assert!(rest.contains("\"link_lost\""), "{rest}");
    assert_eq!(
        linked.router.outcome(&arrival).await,
        Outcome::Broken(BreakKind::LinkLost)
    );
    promptly("the backend", backend.closed()).await;
    for _ in 0..3 {
        let mut client = linked.router.client().await;
        client.send(post("short")).await;
        let arrival = linked.router.arrived().await;
        arrival.mailbox.post(linked.forward());
        assert_eq!(client.answer().await.text(), "ok");
        linked.router.outcome(&arrival).await;
    }
}

#[tokio::test]
async fn a_link_lost_under_a_stalled_client_gives_everything_back() {
    let backend = Backend::new(|mut serving| async move {
        serving.request().await;
        serving.send(SSE_HEAD).await;
        let event = chunk(&format!("data: {}\n\n", "x".repeat(100_000)));
        while serving.send_all(&event).await.is_ok() {}
        serving.closed().await;
    })
    .await;
    let mut linked = Linked::new(backend.address).await;
    let (mut client, arrival) = begin(&mut linked).await;
    client.head().await;
    // Nobody reads from here on, until every buffer on the way is full.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let agent = linked.agent.plane.context().peers.local_peer_id();
    linked.router.plane.context().peers.close_peer(&agent);
    promptly("the backend", backend.closed()).await;
    let rest = client.rest().await.unwrap();
    assert!(rest.ends_with(b"data: {\"error\":\"link_lost\"}\n\n\r\n"));
    assert_eq!(
        linked.router.outcome(&arrival).await,
        Outcome::Broken(BreakKind::LinkLost)
    );
    soon("the agent's end", async {
        while linked.agent.plane.context().live() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_an_agent_refuses_or_cannot_take_comes_as_a_status() {
    let backend =
        Backend::answering("HTTP/1.1 503 Loading\r\nContent-Length: 7\r\n\r\nloading").await;
    let mut linked = Linked::new(backend.address).await;
    let (mut client, arrival) = begin(&mut linked).await;
    let failure = linked.router.failed(&arrival).await;
    assert_eq!(
        (failure.kind.name(), failure.status, &failure.body[..]),
        ("status", 503, &b"loading"[..])
    );
    arrival.mailbox.post(respond(503, ""));
    client.answer().await;
    assert!(matches!(linked.target, Target::Peer(_)));
}

/// One request on the stream that an earlier one left behind, and one on a fresh stream.
#[tokio::test]
async fn a_link_replaced_under_requests_that_wait_is_a_lost_link_to_them() {
    let backend = Backend::new(|mut serving| async move {
        let served = if serving.number == 0 { 1 } else { 0 };
        for _ in 0..served {
            serving.request().await;
            serving.send(sized("ok")).await;
        }
        serving.request().await;
        serving.closed().await;
    })
    .await;
    let mut linked = Linked::new(backend.address).await;
    let forward = |linked: &Linked| linked.forward_with(|spec| spec.resend = Resend::Unsent);
    let (mut client, arrival) = linked.router.asked().await;
    arrival.mailbox.post(forward(&linked));
    assert_eq!(client.answer().await.text(), "ok");
    linked.router.outcome(&arrival).await;
    let mut waiting = Vec::new();
    for requests in 2..4 {
        let (client, arrival) = linked.router.asked().await;
        arrival.mailbox.post(forward(&linked));
        while backend.requests() < requests {
            backend.requested().await;
        }
        waiting.push((client, arrival));
    }
    linked.link().await;
    let mut failures = Vec::new();
    while failures.len() < 2 {
        match linked.router.told().await {
            Event::Failed { failure, .. } => failures.push(failure),
            other => panic!("not a failure: {other:?}"),
        }
    }
    for failure in &failures {
        assert!(failure.is_link_down && failure.is_taken, "{failure:?}");
        assert_eq!(failure.unlinked, None);
    }
    assert_eq!(backend.requests(), 3);
    for (mut client, arrival) in waiting {
        arrival.mailbox.post(respond(502, ""));
        client.answer().await;
    }
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn a_panic_of_the_links_task_is_told() {
    let mut bench = crate::bench::Bench::new();
    bench.plane.context().peers.panic();
    match bench.told().await {
        plane_core::events::Event::Broken { why } => {
            assert!(why.starts_with("the task of the libp2p links panicked: "))
        }
        other => panic!("{other:?}"),
    }
}
