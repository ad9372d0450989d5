//! How the swarm is built, and what it is told to do.
//!
//! TCP with no delay, Noise, yamux, lazy negotiation; identify and ping beside the link. Whatever a peer
//! tells by identify is neither kept nor dialled, and it is told no addresses of ours.
//! Source: wire.md 5.1, 5.2, 5.6.

use libp2p::{
    Multiaddr, PeerId, Swarm, Transport,
    core::{ConnectedPoint, transport::timeout::TransportTimeout, upgrade::Version},
    identify,
    identity::Keypair,
    noise, ping,
    swarm::{self, ConnectionId, NetworkBehaviour},
    tcp,
};
use std::pin::Pin;
use tokio::sync::{mpsc, oneshot};

use super::{
    PeerEvent, PeersConfig, PeersError,
    behaviour::Link,
    conn::{OWN_AGENT_PREFIX, Registry},
    guests::{Guests, Trust},
    handshakes::Bounded,
    stream::Inbound,
    yamux::MuxConfig,
};
use crate::vital::watched;

/// Inbound streams of one connection that negotiate, or wait for their place, at once.
pub const NEGOTIATING_MAX: usize = 128;

#[derive(NetworkBehaviour)]
pub(super) struct Behaviour {
    pub(super) link: Link,
    identify: identify::Behaviour,
    ping: ping::Behaviour,
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, PeersError>>;

pub(super) enum Command {
    Listen {
        addr: Multiaddr,
        reply: Reply<Vec<Multiaddr>>,
    },
    Dial {
        peer: PeerId,
        addrs: Vec<Multiaddr>,
        reply: Reply<()>,
    },
    Close(ConnectionId),
    #[cfg(debug_assertions)]
    Panic,
}

/// The swarm of this configuration. Must be called inside a tokio runtime.
pub(super) fn build(
    keypair: Keypair,
    config: &PeersConfig,
    (registry, guests): (Registry, Guests),
    queue: mpsc::Sender<Inbound>,
    events: mpsc::UnboundedSender<PeerEvent>,
) -> Result<Swarm<Behaviour>, PeersError> {
    let mux = config.mux();
    let noise = noise::Config::new(&keypair).map_err(|error| PeersError::Noise {
        text: error.to_string(),
    })?;
    let asked = guests.clone();
    let upgraded = tcp::tokio::Transport::new(tcp::Config::default().nodelay(true))
        .upgrade(Version::V1Lazy)
        .authenticate(noise)
        .multiplex_ext(move |peer: &PeerId, at: &ConnectedPoint| MuxConfig {
            stranger: (at.is_listener().then(|| asked.trust(peer))).filter(Trust::is_stranger),
            ..mux
        })
        .boxed();
    let transport = TransportTimeout::new(Bounded::new(upgraded), config.connect_within).boxed();
    let link = Link::new(config.limits(), (registry, guests), queue);
    let ping = ping::Config::new()
        .with_interval(config.ping_every)
        .with_timeout(config.ping_within);
    let behaviour = Behaviour {
        link,
        // No cache and no listen addresses: nobody is to dial what identify tells.
        identify: identify::Behaviour::new(
            identify::Config::new(String::new(), keypair.public())
                .with_agent_version(format!("{OWN_AGENT_PREFIX}{}", env!("CARGO_PKG_VERSION")))
                .with_cache_size(0)
                .with_hide_listen_addrs(true),
        ),
        ping: ping::Behaviour::new(ping),
    };
    let config = swarm::Config::with_executor(move |connection| watch(connection, &events))
        .with_max_negotiating_inbound_streams(NEGOTIATING_MAX)
        .with_substream_upgrade_protocol_override(Version::V1Lazy);
    let local = keypair.public().to_peer_id();
    Ok(Swarm::new(transport, behaviour, local, config))
}

/// The swarm never hears of a connection whose task has panicked: to everybody it would go on standing.
fn watch(
    connection: Pin<Box<dyn Future<Output = ()> + Send>>,
    events: &mpsc::UnboundedSender<PeerEvent>,
) {
    let events = events.clone();
    tokio::spawn(watched(
        "the task of a libp2p link",
        connection,
        move |why| {
            let _ = events.send(PeerEvent::Broken { why });
        },
    ));
}
