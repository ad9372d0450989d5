//! Two planes over a link: rules, reuse, bursts, caps, back-pressure.

use crate::{
    backend::{Backend, LAST_CHUNK, SSE_HEAD, chunk, sized},
    bench::{PATIENCE, respond},
    client::{get, post},
    linked::Linked,
};
use plane_core::{
    events::Event,
    exchange::{Command, Outcome, Problem, Target},
};

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
    while !matches!(linked.agent.event().await, Event::PeerDown { .. }) {}
}

#[tokio::test]
async fn who_is_not_to_be_heard_is_answered_by_its_head() {
    let backend = Backend::answering(sized("hello")).await;
    let mut linked = Linked::new(backend.address).await;
    let router = linked.router.plane.context().peers.local_peer_id();
    for (heard, problem) in [(None, Some(Problem::Unasked)), (Some(router), None)] {
        linked.agent.plane.hear_only(heard);
        let mut client = linked.router.client().await;
        client.send(post(&"x".repeat(1 << 20))).await;
        let arrival = linked.router.arrived().await;
        arrival
            .mailbox
            .post(linked.forward_with(|spec| spec.relay_any_status = true));
        if problem.is_some() {
            let at_agent = linked.agent.arrived().await;
            assert_eq!((at_agent.problem, at_agent.body.len()), (problem, 0));
            assert_eq!(linked.agent.plane.bodies_bytes(), 0);
            at_agent.mailbox.post(respond(403, "no"));
        }
        let status = if problem.is_some() { 403 } else { 200 };
        assert_eq!(client.answer().await.status, status);
        linked.router.outcome(&arrival).await;
    }
}

#[tokio::test]
async fn who_is_not_to_be_heard_may_still_ask_without_a_body() {
    let backend = Backend::answering(sized("hello")).await;
    let mut linked = Linked::new(backend.address).await;
    linked.agent.plane.hear_only([]);
    let mut client = linked.router.client().await;
    client.send(get("/v1/x")).await;
    let arrival = linked.router.arrived().await;
    arrival.mailbox.post(linked.forward());
    assert_eq!(client.answer().await.status, 200);
}
