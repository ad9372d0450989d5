//! The link between router and agent: libp2p connections that carry HTTP/1.1 streams in both directions.
//!
//! `Peers` is the handle: it listens, dials, closes, and finds the newest live connection of a peer, on
//! which anyone may open streams. Inbound streams and what happens to peers come out of two queues.
//! Whatever a peer can make grow is bounded: streams, negotiations, unread bytes, connections per peer, per
//! address and in all. Whether a peer is welcome, and what is said over the streams, is left to the caller.
//!
//! From the wire up: `yamux` (the muxer), `handler` and `behaviour` (streams and
//! connections for libp2p), `swarm` and `task`, `conn` and `stream` (what callers hold).
//! Source: wire.md 5.

mod addr;
mod admission;
mod behaviour;
mod config;
mod conn;
mod guests;
mod handler;
mod handshakes;
mod identity;
mod listens;
mod reason;
mod stream;
mod swarm;
mod task;
#[cfg(test)]
mod tests;
mod turns;
mod yamux;

use std::{fmt, net::IpAddr, sync::Arc};

pub use config::{CONNECTIONS_MAX, CONNS_PER_IP_MAX, PeersConfig};
pub use conn::{Conn, ORIGINAL_STREAMS_MAX, OWN_AGENT_PREFIX, OWN_STREAMS_MAX, OpenError};
pub use handler::HTTP;
pub use identity::{keypair_from_file_bytes, new_identity_bytes, parse_peer_id, peer_id_of};
pub use libp2p::{Multiaddr, PeerId};
pub use stream::{Inbound, LinkStream};

use crate::vital::watched;
use conn::Registry;
use guests::Guests;
use swarm::Command;
use task::SwarmTask;
use tokio::sync::{mpsc, oneshot};

/// What happened to peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// A connection stands. A second one without `Down` between has taken the first one's place.
    Up {
        peer: PeerId,
        remote: String,
        dialed: bool,
    },
    /// The last connection of the peer is gone.
    Down { peer: PeerId, reason: String },
    /// The peer has said what it is; once per connection.
    Identified { peer: PeerId, agent_version: String },
    /// Connections of this address come to nothing; told once a minute, address and reason.
    Refused { ip: IpAddr, reason: &'static str },
    /// A part of the link has panicked: what it says about peers cannot be relied on any more.
    Broken { why: String },
}

/// Why the link could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeersError {
    NoRuntime,
    Identity { bytes: usize },
    PeerId { text: String },
    Noise { text: String },
    Listen { addr: Multiaddr, text: String },
    Dial { peer: PeerId, text: String },
    Stopped,
}

impl fmt::Display for PeersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRuntime => f.write_str("the link must be started inside a tokio runtime"),
            Self::Identity { bytes } => write!(
                f,
                "the identity is corrupt: {bytes} bytes that are no libp2p Ed25519 private key \
                 (68 bytes); restore the file, or remove it to get a new identity"
            ),
            Self::PeerId { text } => write!(
                f,
                "{text:?} is no peer ID; base58 (12D3KooW...) or CIDv1 (bafz...) is needed"
            ),
            Self::Noise { text } => write!(f, "the Noise handshake cannot be set up: {text}"),
            Self::Listen { addr, text } => write!(f, "cannot listen on {addr}: {text}"),
            Self::Dial { peer, text } => write!(f, "cannot connect to the peer {peer}: {text}"),
            Self::Stopped => f.write_str("the link has stopped"),
        }
    }
}

impl std::error::Error for PeersError {}

/// The handle of the link. Cloneable; when the last clone is dropped, the link and its connections end.
#[derive(Clone)]
pub struct Peers {
    local: PeerId,
    registry: Registry,
    guests: Guests,
    commands: mpsc::UnboundedSender<Command>,
}

impl Peers {
    /// Starts the link's task on the current runtime (one thread is enough).
    ///
    /// Returns the handle, the inbound streams, and what happens to peers; both queues want to be drained.
    #[allow(clippy::type_complexity)]
    pub fn start(
        config: PeersConfig,
    ) -> Result<
        (
            Self,
            mpsc::Receiver<Inbound>,
            mpsc::UnboundedReceiver<PeerEvent>,
        ),
        PeersError,
    > {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| PeersError::NoRuntime)?;
        let keypair = keypair_from_file_bytes(&config.identity)?;
        let (queue, inbound) = mpsc::channel(config.inbound_queue.max(1));
        let (commands, commanded) = mpsc::unbounded_channel();
        let (events, happened) = mpsc::unbounded_channel();
        let registry = Registry::default();
        let guests = Guests::new(config.welcome_within.is_some());
        let known = (registry.clone(), guests.clone());
        let swarm = swarm::build(keypair, &config, known, queue, events.clone())?;
        let local = *swarm.local_peer_id();
        let broken = events.clone();
        let task = SwarmTask::new(swarm, registry.clone(), commanded, events);
        runtime.spawn(watched(
            "the task of the libp2p links",
            task.run(),
            move |why| {
                let _ = broken.send(PeerEvent::Broken { why });
            },
        ));
        Ok((
            Self {
                local,
                registry,
                guests,
                commands,
            },
            inbound,
            happened,
        ))
    }

    pub fn local_peer_id(&self) -> PeerId {
        self.local
    }

    /// The peer's newest connection, unless it has ended.
    pub fn conn(&self, peer: &PeerId) -> Option<Arc<Conn>> {
        let conn = self.registry.get(peer)?;
        (!conn.closed.is_cancelled()).then_some(conn)
    }

    /// Listens on an `ip/tcp` address (port 0: any) and returns the addresses that are bound.
    ///
    /// A port in use is an error with the system's text.
    pub async fn listen(&self, addr: Multiaddr) -> Result<Vec<Multiaddr>, PeersError> {
        if let Err(error) = addr::probe_free(&addr) {
            return Err(PeersError::Listen {
                addr,
                text: error.to_string(),
            });
        }
        self.ask(|reply| Command::Listen { addr, reply }).await
    }

    /// Connects to `peer` at one of `addrs`, which may end in `/p2p/<peer>`; returns when it stands.
    ///
    /// A peer that is connected already gets a new connection, which takes the old one's place.
    pub async fn dial(&self, peer: PeerId, addrs: Vec<Multiaddr>) -> Result<(), PeersError> {
        let addrs = addr::dialable(peer, &addrs).map_err(|text| PeersError::Dial { peer, text })?;
        self.ask(|reply| Command::Dial { peer, addrs, reply }).await
    }

    /// This peer has proved who it is: what bounds strangers bounds it no longer, now and when it comes back.
    pub fn welcome(&self, peer: PeerId) {
        self.guests.welcome(peer);
    }

    /// When it comes back it is a stranger, though one that was known.
    pub fn unwelcome(&self, peer: &PeerId) {
        self.guests.unwelcome(peer);
    }

    /// Welcomes these and nobody else.
    pub fn welcome_only(&self, peers: impl IntoIterator<Item = PeerId>) {
        self.guests.welcome_only(peers);
    }

    /// Ends the peer's connection. From here on it is not found, and opening on it says `Gone`.
    pub fn close_peer(&self, peer: &PeerId) {
        let Some(conn) = self.registry.get(peer) else {
            return;
        };
        self.registry.remove(peer, conn.id);
        conn.closed.cancel();
        // A link that has stopped has no connections left.
        let _ = self.commands.send(Command::Close(conn.id));
    }

    /// Has the link's task panic, for tests of what comes of it.
    #[cfg(debug_assertions)]
    pub fn panic(&self) {
        let _ = self.commands.send(Command::Panic);
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, PeersError>>) -> Command,
    ) -> Result<T, PeersError> {
        let (reply, answer) = oneshot::channel();
        self.commands
            .send(command(reply))
            .map_err(|_| PeersError::Stopped)?;
        answer.await.map_err(|_| PeersError::Stopped)?
    }
}
