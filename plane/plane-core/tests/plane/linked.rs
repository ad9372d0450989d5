//! Two planes linked over libp2p: a router, and an agent that relays to a backend by a rule.

use crate::bench::{Bench, PATIENCE, forward_with, spec};
use bytes::Bytes;
use plane_core::{
    events::Event,
    exchange::{Command, ForwardSpec, Standing, Target},
    peers::Multiaddr,
};
use std::{net::SocketAddr, sync::Arc};

/// A router, and an agent that dialled it and relays `/in/…` to a backend.
pub struct Linked {
    pub router: Bench,
    pub agent: Bench,
    pub target: Target,
}

impl Linked {
    pub async fn new(backend: SocketAddr) -> Linked {
        Linked::with_agent(backend, Bench::new()).await
    }

    pub async fn with_agent(backend: SocketAddr, agent: Bench) -> Linked {
        let mut linked = Linked {
            router: Bench::new(),
            agent,
            target: Target::Peer(plane_core::peers::PeerId::random()),
        };
        linked.target = Target::Peer(linked.agent.plane.context().peers.local_peer_id());
        linked.agent.plane.add_standing(Standing {
            prefix: Bytes::from_static(b"/in/"),
            cut: 3,
            target: linked.agent.server(backend),
            spec: Arc::new(ForwardSpec {
                relay_any_status: true,
                meter: false,
                buffered_bytes_max: 256 << 10,
                break_events: Default::default(),
                ..spec()
            }),
            within: PATIENCE,
        });
        linked.link().await;
        linked
    }

    /// Dials; a link that stands already is replaced.
    pub async fn link(&mut self) {
        let any: Multiaddr = "/ip4/127.0.0.1/tcp/0".parse().unwrap();
        // It blocks, and a test is a task.
        let plane = &self.router.plane;
        let bound = std::thread::scope(|scope| scope.spawn(|| plane.listen_peers(any)).join());
        let router = self.router.plane.context().peers.local_peer_id();
        self.agent
            .plane
            .dial(1, router, bound.unwrap().unwrap(), PATIENCE);
        loop {
            match self.agent.event().await {
                Event::Completed { result, .. } => break assert!(result.is_ok(), "{result:?}"),
                Event::PeerUp { .. } | Event::PeerDown { .. } | Event::PeerIdentified { .. } => {}
                other => panic!("not the end of the dial: {other:?}"),
            }
        }
        // What else happens meanwhile is for the test.
        let mut others = Vec::new();
        loop {
            match self.router.event().await {
                Event::PeerIdentified { .. } => break,
                other => others.push(other),
            }
        }
        others
            .into_iter()
            .rev()
            .for_each(|other| self.router.waiting.push_front(other));
    }

    pub fn forward(&self) -> Command {
        self.forward_with(|_| {})
    }

    pub fn forward_with(&self, change: impl FnOnce(&mut ForwardSpec)) -> Command {
        forward_with(&self.target, |_, spec| {
            spec.path_prefix = Bytes::from_static(b"/in");
            change(spec);
        })
    }
}
