//! Two planes over a link: rules, reuse, bursts, caps, back-pressure.

use crate::{
    backend::{Backend, LAST_CHUNK, SSE_HEAD, chunk, sized},
    bench::{Bench, Linked, PATIENCE, respond, soon},
    client::{Client, post},
};
use plane_core::{
    events::Event,
    exchange::{Command, Outcome, Target},
};
use tokio::task::JoinSet;

async fn ask(linked: &mut Linked) -> (u16, String) {
    let mut client = linked.router.client().await;
    client.send(post("{}")).await;
    let arrival = linked.router.arrived().await;
    arrival.mailbox.post(linked.forward());
    let answer = client.answer().await;
    linked.router.outcome(&arrival).await;
    (answer.status, answer.text().to_owned())
}

#[tokio::test]
async fn a_rule_relays_without_a_word_and_connections_are_kept_on_both_hops() {
    let backend = Backend::answering(sized("hello")).await;
    let mut linked = Linked::new(backend.address).await;
    for _ in 0..20 {
        assert_eq!(ask(&mut linked).await, (200, "hello".into()));
    }
    assert_eq!(backend.connections(), 1);
    let Target::Peer(agent) = linked.target else {
        panic!()
    };
    let link = linked.router.plane.context().peers.conn(&agent).unwrap();
    assert_eq!(link.live(), 1);
    let told = linked.agent.plane.context().events.drain();
    assert!(
        told.iter()
            .all(|event| !matches!(event, Event::Arrived(_) | Event::Finished(_))),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_failure_under_a_rule_is_told_with_its_arrival_and_answered_by_command() {
    let backend = Backend::answering("nonsense\r\n\r\n").await;
    let mut linked = Linked::new(backend.address).await;
    let mut client = linked.router.client().await;
    client.send(post("{}")).await;
    let arrival = linked.router.arrived().await;
    arrival
        .mailbox
        .post(linked.forward_with(|spec| spec.relay_any_status = true));
    let at_agent = linked.agent.arrived().await;
    assert_eq!(
        at_agent.peer.as_deref(),
        Some(
            &*linked
                .router
                .plane
                .context()
                .peers
                .local_peer_id()
                .to_base58()
        )
    );
    assert_eq!(
        linked.agent.failed(&at_agent).await.kind.name(),
        "malformed"
    );
    at_agent.mailbox.post(respond(502, "bad backend"));
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.text()), (502, "bad backend"));
    assert_eq!(linked.agent.outcome(&at_agent).await, Outcome::Responded);
}

#[tokio::test]
async fn a_rule_does_not_follow_a_path_that_climbs() {
    let backend = Backend::answering(sized("secret")).await;
    let mut linked = Linked::new(backend.address).await;
    for path in ["/in/../metrics", "/in/v1/%2e%2E/%2e%2e/metrics"] {
        let mut client = linked.router.client().await;
        client.send(post("{}")).await;
        let arrival = linked.router.arrived().await;
        // The router's own plane would not send it, so a plain request over the link does.
        let token = arrival.handle;
        linked
            .router
            .plane
            .request(token, linked.target.clone(), own("GET", path), PATIENCE);
        let at_agent = linked.agent.arrived().await;
        assert_eq!(
            linked.agent.failed(&at_agent).await.kind.name(),
            "malformed"
        );
        at_agent.mailbox.post(respond(404, "no"));
        let Event::Completed { result, .. } = linked.router.told().await else {
            panic!()
        };
        assert_eq!(result.unwrap().unwrap().head.status, 404);
        arrival.mailbox.post(Command::Abort);
        linked.router.outcome(&arrival).await;
        linked.agent.outcome(&at_agent).await;
    }
    assert_eq!(backend.requests(), 0);
}

fn own(method: &'static str, path: &str) -> plane_core::plane::OwnRequest {
    plane_core::plane::OwnRequest {
        method: method.into(),
        path: path.to_owned().into(),
        host: "router".into(),
        fields: vec![
            crate::bench::pair("Content-Length", "9"),
            crate::bench::pair("Host", "other"),
        ],
        body: "{}".into(),
    }
}

#[tokio::test]
async fn requests_of_our_own_have_their_answer_or_their_reason() {
    let backend = Backend::answering(sized("hello")).await;
    let mut linked = Linked::new(backend.address).await;
    let server = linked.router.server(backend.address);
    let agent = linked.target.clone();
    for target in [server, agent] {
        linked
            .router
            .plane
            .request(7, target, own("POST", "/in/x"), PATIENCE);
        let Event::Completed { token: 7, result } = linked.router.told().await else {
            panic!()
        };
        assert_eq!(&result.unwrap().unwrap().body[..], b"hello");
    }
    let nobody = Target::Peer(plane_core::peers::PeerId::random());
    linked
        .router
        .plane
        .request(8, nobody, own("GET", "/"), PATIENCE);
    let Event::Completed { token: 8, result } = linked.router.told().await else {
        panic!()
    };
    assert!(result.unwrap_err().contains("no live link"));
}

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
async fn a_listener_of_a_plane_that_was_shut_down_is_gone() {
    let backend =
        Backend::answering(format!("{SSE_HEAD}{}{LAST_CHUNK}", chunk("data: 1\n\n"))).await;
    let mut linked = Linked::new(backend.address).await;
    assert_eq!(ask(&mut linked).await.0, 200);
    linked.router.plane.shutdown();
    assert!(
        tokio::net::TcpStream::connect(linked.router.address)
            .await
            .is_err()
    );
    // A second time is no harm, nor is a call that comes too late.
    linked.router.plane.shutdown();
    assert!(
        linked
            .router
            .plane
            .listen_http(
                "127.0.0.1:0".parse().unwrap(),
                plane_core::ingress::DoorSpec::named("x")
            )
            .is_err()
    );
    let Event::PeerDown { .. } = (loop {
        match linked.agent.event().await {
            event @ Event::PeerDown { .. } => break event,
            _ => {}
        }
    }) else {
        panic!()
    };
    let _ = Bench::new();
}
