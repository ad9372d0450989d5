//! Starts planes and plays the decider: takes their events, gives their commands.

use crate::client::{Client, post};
use bytes::Bytes;
use plane_core::{
    events::{Event, Handle},
    exchange::{
        Arrival, Command, Failure, Finished, Forward, ForwardSpec, Outcome, Respond, Target,
    },
    http1::write::Pair,
    ingress::DoorSpec,
    peers::{PeersConfig, new_identity_bytes},
    plane::Plane,
    upstream::PoolLimits,
};
use std::{collections::VecDeque, future::Future, net::SocketAddr, sync::Arc, time::Duration};

/// What should happen happens within this, on the slowest machine.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// What should happen promptly happens within this.
pub const PROMPTLY: Duration = Duration::from_secs(1);

pub async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what}: not within {PATIENCE:?}"),
    }
}

pub async fn promptly<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PROMPTLY, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what}: not within {PROMPTLY:?}"),
    }
}

pub struct Bench {
    pub plane: Plane,
    pub address: SocketAddr,
    pub waiting: VecDeque<Event>,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut DoorSpec)) -> Bench {
        Bench::start(PeersConfig::new(new_identity_bytes()), change)
    }

    /// One that serves so many streams of a link at once.
    pub fn serving(inbound_served: usize) -> Bench {
        let mut peers = PeersConfig::new(new_identity_bytes());
        peers.inbound_served = inbound_served;
        Bench::start(peers, |_| {})
    }

    /// One that holds so many bytes of all answers together.
    pub fn holding_answers(bytes_max: usize) -> Bench {
        let peers = PeersConfig::new(new_identity_bytes());
        let links = DoorSpec::named("links");
        let plane = Plane::holding(peers, links, PoolLimits::default(), bytes_max).unwrap();
        Bench::listening(plane, |_| {})
    }

    fn start(peers: PeersConfig, change: impl FnOnce(&mut DoorSpec)) -> Bench {
        let mut links = DoorSpec::named("links");
        links.idle_within = None;
        let plane = Plane::start(peers, links, PoolLimits::default()).unwrap();
        Bench::listening(plane, change)
    }

    fn listening(plane: Plane, change: impl FnOnce(&mut DoorSpec)) -> Bench {
        let mut door = DoorSpec::named("api");
        change(&mut door);
        let address = plane
            .listen_http("127.0.0.1:0".parse().unwrap(), door)
            .unwrap();
        Bench {
            plane,
            address,
            waiting: VecDeque::new(),
        }
    }

    pub async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    pub fn server(&self, address: SocketAddr) -> Target {
        let lanes = &self.plane.context().lanes;
        Target::Http(lanes.http(
            address.ip().to_string(),
            address.port(),
            PoolLimits::default(),
        ))
    }

    /// The next event, whichever it is.
    pub async fn event(&mut self) -> Event {
        soon("an event", async {
            loop {
                self.waiting.extend(self.plane.context().events.drain());
                if let Some(event) = self.waiting.pop_front() {
                    return event;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
    }

    /// The next event about requests; those about links are skipped.
    pub async fn told(&mut self) -> Event {
        loop {
            match self.event().await {
                Event::PeerUp { .. } | Event::PeerDown { .. } | Event::PeerIdentified { .. } => {}
                event => return event,
            }
        }
    }

    pub async fn arrived(&mut self) -> Arc<Arrival> {
        match self.told().await {
            Event::Arrived(arrival) => arrival,
            other => panic!("not an arrival: {other:?}"),
        }
    }

    /// A client that has sent a small request, and its arrival.
    pub async fn asked(&mut self) -> (Client, Arc<Arrival>) {
        let mut client = self.client().await;
        client.send(post("{}")).await;
        (client, self.arrived().await)
    }

    /// The same, with the request on its way to this target.
    pub async fn forwarded(&mut self, target: &Target) -> (Client, Arc<Arrival>) {
        let (client, arrival) = self.asked().await;
        arrival.mailbox.post(forward(target));
        (client, arrival)
    }

    pub async fn failed(&mut self, of: &Arrival) -> Failure {
        loop {
            match self.told().await {
                Event::Head { handle, .. } if handle == of.handle => {}
                Event::Failed {
                    handle, failure, ..
                } if handle == of.handle => return *failure,
                other => panic!("not a failure: {other:?}"),
            }
        }
    }

    /// What was told of this exchange up to and with its end, by name.
    pub async fn finished(&mut self, of: &Arrival) -> (Vec<&'static str>, Finished) {
        let mut names = Vec::new();
        loop {
            match self.told().await {
                Event::Finished(finished) if finished.handle == of.handle => {
                    self.nothing_more_of(of.handle).await;
                    return (names, finished);
                }
                event => names.push(name(&event)),
            }
        }
    }

    pub async fn outcome(&mut self, of: &Arrival) -> Outcome {
        self.finished(of).await.1.outcome
    }

    /// `Finished` is the last event of its exchange.
    async fn nothing_more_of(&mut self, handle: Handle) {
        self.waiting.extend(self.plane.context().events.drain());
        let more = self
            .waiting
            .iter()
            .filter(|event| handle_of(event) == Some(handle));
        assert_eq!(more.count(), 0);
    }

    pub async fn rejected(&mut self) -> (u16, &'static str) {
        match self.told().await {
            Event::Rejected { status, reason, .. } => (status, reason),
            other => panic!("not a rejection: {other:?}"),
        }
    }
}

fn name(event: &Event) -> &'static str {
    match event {
        Event::Arrived(_) => "arrived",
        Event::Head { .. } => "head",
        Event::Started { .. } => "started",
        Event::Answered { .. } => "answered",
        Event::Failed { .. } => "failed",
        Event::Finished(_) => "finished",
        Event::Rejected { .. } => "rejected",
        _ => "other",
    }
}

fn handle_of(event: &Event) -> Option<Handle> {
    match event {
        Event::Arrived(arrival) => Some(arrival.handle),
        Event::Head { handle, .. }
        | Event::Started { handle, .. }
        | Event::Answered { handle, .. }
        | Event::Failed { handle, .. } => Some(*handle),
        Event::Finished(finished) => Some(finished.handle),
        _ => None,
    }
}

pub fn pair(name: &str, value: &str) -> Pair {
    (
        Bytes::copy_from_slice(name.as_bytes()),
        Bytes::copy_from_slice(value.as_bytes()),
    )
}

pub fn spec() -> ForwardSpec {
    ForwardSpec {
        host: Bytes::from_static(b"backend"),
        idle: Duration::from_secs(30),
        buffered_bytes_max: 8 << 20,
        meter: true,
        break_events: ["lost", "idle", "overtime", "aborted", "link_lost"]
            .map(|kind| Bytes::from(format!("data: {{\"error\":\"{kind}\"}}\n\n"))),
        ..ForwardSpec::default()
    }
}

pub fn forward_with(
    target: &Target,
    change: impl FnOnce(&mut Forward, &mut ForwardSpec),
) -> Command {
    let mut spec = spec();
    let mut forward = Forward {
        attempt: 1,
        target: target.clone(),
        path: Bytes::from_static(b"/v1/x"),
        spec: Arc::default(),
        within: PATIENCE,
        reply_fields: Vec::new(),
        body: None,
    };
    change(&mut forward, &mut spec);
    forward.spec = Arc::new(spec);
    Command::Forward(Box::new(forward))
}

pub fn forward(target: &Target) -> Command {
    forward_with(target, |_, _| {})
}

pub fn respond(status: u16, body: &str) -> Command {
    Command::Respond(Respond {
        status,
        fields: vec![pair("content-type", "text/plain")],
        body: Bytes::copy_from_slice(body.as_bytes()),
    })
}
