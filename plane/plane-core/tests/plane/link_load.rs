//! Links under load: bursts, caps, and clients that take nothing.

use crate::{
    backend::{Backend, SSE_HEAD, chunk, sized},
    bench::{Bench, soon},
    client::{Client, post},
    linked::Linked,
};
use plane_core::{
    events::Event,
    exchange::{Outcome, Target},
};
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_burst_none_is_lost() {
    const BURST: usize = 2000;
    let backend = Backend::answering(sized("ok")).await;
    let mut linked = Linked::new(backend.address).await;
    let address = linked.router.address;
    let mut asking = JoinSet::new();
    for n in 0..BURST {
        asking.spawn(async move {
            let mut client = Client::connect(address).await;
            client.send(post(&format!("{n}"))).await;
            client.answer().await.status
        });
    }
    // All stand there before the first is sent on.
    let mut arrivals = Vec::new();
    while arrivals.len() < BURST {
        arrivals.push(linked.router.arrived().await);
    }
    // As many at once as the link carries; the next one with each that ends.
    let mut waiting = arrivals.iter();
    waiting
        .by_ref()
        .take(1000)
        .for_each(|arrival| assert!(arrival.mailbox.post(linked.forward())));
    let mut finished = 0;
    while finished < BURST {
        match linked.router.told().await {
            Event::Head { .. } => {}
            Event::Finished(end) => {
                assert_eq!(end.outcome, Outcome::Answered);
                finished += 1;
                if let Some(arrival) = waiting.next() {
                    arrival.mailbox.post(linked.forward());
                }
            }
            other => panic!("{other:?}"),
        }
    }
    soon("all answers", async {
        while let Some(status) = asking.join_next().await {
            assert_eq!(status.unwrap(), 200);
        }
    })
    .await;
}

#[tokio::test]
async fn at_its_cap_a_link_is_busy_at_once_and_free_again_with_the_next_end() {
    let backend = Backend::new(|mut serving| async move {
        while serving.request().await.is_some() {
            serving
                .send(format!("{SSE_HEAD}{}", chunk("data: 1\n\n")))
                .await;
        }
    })
    .await;
    let mut linked = Linked::new(backend.address).await;
    let Target::Peer(agent) = linked.target else {
        panic!()
    };
    linked
        .router
        .plane
        .context()
        .peers
        .conn(&agent)
        .unwrap()
        .set_cap(2);
    let mut running = Vec::new();
    for _ in 0..2 {
        let mut client = linked.router.client().await;
        client.send(post("{}")).await;
        let arrival = linked.router.arrived().await;
        arrival.mailbox.post(linked.forward());
        client.until(b"data: 1\n\n").await;
        for _ in 0..2 {
            assert!(matches!(
                linked.router.told().await,
                Event::Head { .. } | Event::Started { .. }
            ));
        }
        running.push((client, arrival));
    }
    let mut third = linked.router.client().await;
    third.send(post("{}")).await;
    let arrival = linked.router.arrived().await;
    arrival.mailbox.post(linked.forward());
    let failure = linked.router.failed(&arrival).await;
    assert_eq!((failure.kind.name(), failure.is_link_down), ("busy", false));
    let (client, first) = running.pop().unwrap();
    drop(client);
    linked.router.outcome(&first).await;
    arrival.mailbox.post(linked.forward());
    third.until(b"data: 1\n\n").await;
}

#[tokio::test]
async fn a_stalled_client_holds_the_backend_back_and_its_neighbours_go_on() {
    let backend = Backend::new(|mut serving| async move {
        let request = serving.request().await.unwrap();
        if request.body == b"small" {
            return serving.send(sized("ok")).await;
        }
        serving.send(SSE_HEAD).await;
        let event = chunk(&format!("data: {}\n\n", "x".repeat(100_000)));
        let mut sent = 0;
        // Until nothing moves any more.
        while let Ok(Ok(())) =
            tokio::time::timeout(std::time::Duration::from_secs(1), serving.send_all(&event)).await
        {
            sent += event.len();
            assert!(sent < 64 << 20, "nobody reads, and yet it flows");
        }
        serving
            .seen
            .requests
            .fetch_add(100, std::sync::atomic::Ordering::SeqCst);
        serving.closed().await;
    })
    .await;
    let mut linked = Linked::new(backend.address).await;
    let mut stalled = linked.router.client().await;
    stalled.send(post("{}")).await;
    let arrival = linked.router.arrived().await;
    arrival.mailbox.post(linked.forward());
    soon("the backend to stand still", async {
        while backend.requests() < 100 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    let mut small = linked.router.client().await;
    small.send(post("small")).await;
    loop {
        if let Event::Arrived(arrival) = linked.router.told().await {
            arrival.mailbox.post(linked.forward());
            break;
        }
    }
    assert_eq!(small.answer().await.text(), "ok");
    drop(stalled);
    soon("the close", backend.closed()).await;
}

#[tokio::test]
async fn more_streams_than_are_served_at_once_take_turns_though_streams_are_kept() {
    const ASKED: usize = 60;
    let backend = Backend::answering(sized("ok")).await;
    let mut linked = Linked::with_agent(backend.address, Bench::serving(8)).await;
    let address = linked.router.address;
    let mut asking = JoinSet::new();
    for n in 0..ASKED {
        asking.spawn(async move {
            let mut client = Client::connect(address).await;
            client.send(post(&format!("{n}"))).await;
            client.answer().await.status
        });
    }
    for _ in 0..ASKED {
        let arrival = linked.router.arrived().await;
        assert!(arrival.mailbox.post(linked.forward()));
    }
    soon("all answers", async {
        while let Some(status) = asking.join_next().await {
            assert_eq!(status.unwrap(), 200);
        }
    })
    .await;
}
