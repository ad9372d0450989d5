//! Clients that leave, by FIN and by RST, at every stage: the backend is closed and the end is told.

use crate::{
    backend::{Backend, SSE_HEAD, chunk},
    bench::{Bench, forward, promptly},
    client::{Client, post},
    linked::Linked,
};
use plane_core::{
    events::Event,
    exchange::{Command, Outcome},
};
use std::{io::Write, net::TcpStream};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Silent,
    Buffered,
    Streaming,
}

const STAGES: [Stage; 3] = [Stage::Silent, Stage::Buffered, Stage::Streaming];

async fn backend(stage: Stage) -> Backend {
    Backend::new(move |mut serving| async move {
        serving.request().await;
        match stage {
            Stage::Silent => {}
            Stage::Buffered => {
                serving
                    .send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart")
                    .await
            }
            Stage::Streaming => {
                serving
                    .send(format!("{SSE_HEAD}{}", chunk("data: 1\n\n")))
                    .await
            }
        }
        serving.closed().await;
    })
    .await
}

async fn leave(mut client: Client, by_reset: bool, stage: Stage) {
    if stage == Stage::Streaming {
        client.until(b"data: 1\n\n").await;
    }
    if by_reset {
        client.reset();
    }
}

fn names_of(stage: Stage) -> &'static [&'static str] {
    match stage {
        Stage::Silent => &[],
        Stage::Buffered => &[],
        Stage::Streaming => &["head", "started"],
    }
}

/// Gives the command, lets the client leave, and looks at what comes of it.
async fn check(
    bench: &mut Bench,
    backend: &Backend,
    command: Command,
    stage: Stage,
    by_reset: bool,
) {
    let (client, arrival) = bench.asked().await;
    arrival.mailbox.post(command);
    backend.requested().await;
    leave(client, by_reset, stage).await;
    promptly(&format!("{stage:?} by_reset={by_reset}"), backend.closed()).await;
    let (names, finished) = bench.finished(&arrival).await;
    assert_eq!(names, names_of(stage));
    assert_eq!(finished.outcome, Outcome::ClientLeft);
}

#[tokio::test]
async fn the_backend_is_closed_promptly_and_the_end_is_told() {
    let mut bench = Bench::new();
    for stage in STAGES {
        let backend = backend(stage).await;
        for by_reset in [false, true] {
            let command = forward(&bench.server(backend.address));
            check(&mut bench, &backend, command, stage, by_reset).await;
        }
    }
}

#[tokio::test]
async fn the_same_over_a_link() {
    for stage in STAGES {
        let backend = backend(stage).await;
        let mut linked = Linked::new(backend.address).await;
        for by_reset in [false, true] {
            let command = linked.forward();
            if stage == Stage::Buffered {
                // The agent holds a buffered answer back, so no head comes before it is whole.
                let mut client = linked.router.client().await;
                client.send(post("{}")).await;
                let arrival = linked.router.arrived().await;
                arrival.mailbox.post(command);
                backend.requested().await;
                leave(client, by_reset, stage).await;
                promptly("buffered over a link", backend.closed()).await;
                assert_eq!(linked.router.outcome(&arrival).await, Outcome::ClientLeft);
            } else {
                check(&mut linked.router, &backend, command, stage, by_reset).await;
            }
        }
        // All went as the rule says, so the agent's Python never heard of it.
        assert!(
            linked
                .agent
                .plane
                .context()
                .events
                .drain()
                .iter()
                .all(|event| { !matches!(event, plane_core::events::Event::Arrived(_)) })
        );
    }
}

#[tokio::test]
async fn many_clients_that_leave_at_once_leave_nothing_behind() {
    let backend = backend(Stage::Streaming).await;
    let mut linked = Linked::new(backend.address).await;
    let mut clients = Vec::new();
    for _ in 0..30 {
        let mut client = linked.router.client().await;
        client.send(post(&"x".repeat(1 << 20))).await;
        clients.push(client);
    }
    let mut arrivals = Vec::new();
    while arrivals.len() < 30 {
        let arrival = linked.router.arrived().await;
        arrivals.push(arrival);
    }
    for arrival in &arrivals {
        arrival.mailbox.post(linked.forward());
    }
    for client in &mut clients {
        client.until(b"data: 1\n\n").await;
    }
    drop(clients);
    let mut finished = 0;
    while finished < 30 {
        if let plane_core::events::Event::Finished(end) = linked.router.told().await {
            assert_eq!(end.outcome, Outcome::ClientLeft);
            finished += 1;
        }
    }
    drop(arrivals);
    crate::bench::soon("everything to be let go", async {
        let (router, agent) = (&linked.router.plane, &linked.agent.plane);
        while router.context().live()
            + agent.context().live()
            + router.bodies_bytes()
            + agent.bodies_bytes()
            > 0
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_while_nothing_was_decided_is_told() {
    let mut bench = Bench::new();
    for by_reset in [false, true] {
        let (client, arrival) = bench.asked().await;
        leave(client, by_reset, Stage::Silent).await;
        assert_eq!(bench.outcome(&arrival).await, Outcome::ClientLeft);
        assert!(!arrival.mailbox.post(Command::Abort));
    }
}

#[tokio::test]
async fn whoever_has_sent_a_whole_request_and_left_before_it_was_read_is_told_all_the_same() {
    const CLIENTS: usize = 200;
    let mut bench = Bench::new();
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(bench.address).unwrap();
        client.write_all(post("{}").as_bytes()).unwrap();
    }
    let (mut arrived, mut left) = (0, 0);
    while left < CLIENTS {
        match bench.told().await {
            Event::Arrived(_) => arrived += 1,
            Event::Finished(finished) if finished.outcome == Outcome::ClientLeft => left += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(arrived, CLIENTS);
}
