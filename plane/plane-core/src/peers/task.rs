//! The one task that runs the swarm.
//!
//! It takes commands, answers those who wait for a dial or a listener, closes what does not answer pings,
//! and tells what came and went. It does nothing slow: connections wait for it when they have events. No
//! stream passes through it.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use futures::{FutureExt, StreamExt};
use libp2p::{
    Multiaddr, PeerId, Swarm, identify, ping,
    swarm::{
        ConnectionId, SwarmEvent,
        dial_opts::{DialOpts, PeerCondition},
    },
};
use tokio::{sync::mpsc, time::MissedTickBehavior};

use super::{
    PeerEvent, PeersError,
    behaviour::Refused,
    conn::Registry,
    listens::Listens,
    reason::{close_text, dial_text},
    swarm::{Behaviour, BehaviourEvent, Command, Reply},
};

/// Strangers whose time is over are looked for this often.
const LOOK_AT_STRANGERS_EVERY: Duration = Duration::from_secs(1);

/// What the swarm's task holds.
pub(super) struct SwarmTask {
    swarm: Swarm<Behaviour>,
    registry: Registry,
    commands: mpsc::UnboundedReceiver<Command>,
    events: mpsc::UnboundedSender<PeerEvent>,
    dials: HashMap<ConnectionId, (PeerId, Reply<()>)>,
    listens: Listens,
    /// Why we close the connections that are closing.
    reasons: HashMap<ConnectionId, &'static str>,
}

impl SwarmTask {
    pub(super) fn new(
        swarm: Swarm<Behaviour>,
        registry: Registry,
        commands: mpsc::UnboundedReceiver<Command>,
        events: mpsc::UnboundedSender<PeerEvent>,
    ) -> Self {
        Self {
            swarm,
            registry,
            commands,
            events,
            dials: HashMap::new(),
            listens: Listens::default(),
            reasons: HashMap::new(),
        }
    }

    /// Runs until the last handle is dropped; that ends all connections too.
    pub(super) async fn run(mut self) {
        let mut looks = tokio::time::interval(LOOK_AT_STRANGERS_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.listens.settling() {
                match self.swarm.select_next_some().now_or_never() {
                    Some(event) => self.on_event(event),
                    None => self.listens.settle(),
                }
                continue;
            }
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.on_command(command),
                    None => return,
                },
                event = self.swarm.select_next_some() => self.on_event(event),
                _ = looks.tick() => self.swarm.behaviour_mut().link.cut_strangers_off(Instant::now()),
            }
        }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Listen { addr, reply } => {
                let listener = self.swarm.listen_on(addr.clone());
                self.listens.begin(listener, addr, reply);
            }
            Command::Dial { peer, addrs, reply } => self.dial(peer, addrs, reply),
            Command::Close(id) => self.close(id, "closed by this side"),
            #[cfg(debug_assertions)]
            Command::Panic => panic!("asked to, by a test"),
        }
    }

    fn dial(&mut self, peer: PeerId, addrs: Vec<Multiaddr>, reply: Reply<()>) {
        // A new dial beside a live connection is how a link that has died unseen is replaced.
        let dial = DialOpts::peer_id(peer)
            .addresses(addrs)
            .condition(PeerCondition::Always)
            .allocate_new_port()
            .build();
        let id = dial.connection_id();
        match self.swarm.dial(dial) {
            Ok(()) => {
                self.dials.insert(id, (peer, reply));
            }
            Err(error) => {
                let text = dial_text(&error);
                let _ = reply.send(Err(PeersError::Dial { peer, text }));
            }
        }
    }

    fn close(&mut self, id: ConnectionId, reason: &'static str) {
        if self.swarm.close_connection(id) {
            self.reasons.entry(id).or_insert(reason);
        }
    }

    fn tell(&self, event: PeerEvent) {
        // Whoever dropped the receiver does not want to know.
        let _ = self.events.send(event);
    }

    fn on_event(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::ConnectionEstablished {
                peer_id,
                connection_id,
                endpoint,
                ..
            } => {
                if let Some((_, reply)) = self.dials.remove(&connection_id) {
                    let _ = reply.send(Ok(()));
                }
                let remote = endpoint.get_remote_address().to_string();
                let dialed = endpoint.is_dialer();
                self.tell(PeerEvent::Up {
                    peer: peer_id,
                    remote,
                    dialed,
                });
            }
            SwarmEvent::ConnectionClosed {
                peer_id,
                connection_id,
                num_established,
                cause,
                ..
            } => {
                let ours = self.reasons.remove(&connection_id);
                if num_established == 0 {
                    let reason = ours.map_or_else(|| close_text(cause), str::to_owned);
                    self.tell(PeerEvent::Down {
                        peer: peer_id,
                        reason,
                    });
                }
            }
            SwarmEvent::OutgoingConnectionError {
                connection_id,
                error,
                ..
            } => {
                if let Some((peer, reply)) = self.dials.remove(&connection_id) {
                    let text = dial_text(&error);
                    let _ = reply.send(Err(PeersError::Dial { peer, text }));
                }
            }
            SwarmEvent::NewListenAddr {
                listener_id,
                address,
            } => self.listens.bound(listener_id, address),
            SwarmEvent::ListenerClosed {
                listener_id,
                reason,
                ..
            } => self.listens.closed(listener_id, reason),
            SwarmEvent::Behaviour(event) => self.on_behaviour(event),
            _ => {}
        }
    }

    fn on_behaviour(&mut self, event: BehaviourEvent) {
        match event {
            BehaviourEvent::Link(Refused { ip, reason }) => {
                self.tell(PeerEvent::Refused { ip, reason });
            }
            BehaviourEvent::Ping(event) => self.on_ping(event),
            BehaviourEvent::Identify(identify::Event::Received {
                connection_id,
                peer_id,
                info,
            }) => self.on_identify(peer_id, connection_id, &info.agent_version),
            BehaviourEvent::Identify(_) => {}
        }
    }

    fn on_ping(&mut self, event: ping::Event) {
        match event.result {
            Ok(_) | Err(ping::Failure::Unsupported) => self.answered(event.connection),
            // Not every one says timeout: a stopped peer fails in the negotiation of a new stream.
            Err(_) => self.close(event.connection, "the peer does not answer pings"),
        }
    }

    fn on_identify(&mut self, peer: PeerId, id: ConnectionId, agent_version: &str) {
        self.answered(id);
        let conn = self.registry.get(&peer);
        let Some(conn) = conn.filter(|conn| conn.id == id) else {
            return;
        };
        if conn.identified(agent_version) {
            let agent_version = conn.agent_version().unwrap_or_default().to_owned();
            self.tell(PeerEvent::Identified {
                peer,
                agent_version,
            });
        }
    }

    fn answered(&mut self, id: ConnectionId) {
        if let Some(old) = self.swarm.behaviour_mut().link.confirmed(id) {
            self.close(old, "replaced by a newer connection");
        }
    }
}
