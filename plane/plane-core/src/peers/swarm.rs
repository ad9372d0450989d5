//! How the swarm is built, and what it is told to do.
//!
//! TCP with no delay, Noise, yamux, lazy negotiation; identify and ping beside the link. Whatever a peer
//! tells by identify is neither kept nor dialled, and it is told no addresses of ours.
//! Source: wire.md 5.1, 5.2, 5.6.

use libp2p::{
    Multiaddr, PeerId, Swarm, SwarmBuilder,
    core::upgrade::Version,
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
    stream::Inbound,
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
    registry: Registry,
    queue: mpsc::Sender<Inbound>,
    events: mpsc::UnboundedSender<PeerEvent>,
) -> Result<Swarm<Behaviour>, PeersError> {
    let mux = config.mux();
    let link = Link::new(config.limits(), registry, queue);
    let ping = ping::Config::new()
        .with_interval(config.ping_every)
        .with_timeout(config.ping_within);
    let swarm = SwarmBuilder::with_existing_identity(keypair)
        .with_tokio()
        .with_tcp(
            tcp::Config::default().nodelay(true),
            noise::Config::new,
            move || mux,
        )
        .map_err(|error| PeersError::Noise {
            text: error.to_string(),
        })?
        .with_behaviour(|keypair| Behaviour {
            link,
            // No cache and no listen addresses: nobody is to dial what identify tells.
            identify: identify::Behaviour::new(
                identify::Config::new(String::new(), keypair.public())
                    .with_agent_version(format!("{OWN_AGENT_PREFIX}{}", env!("CARGO_PKG_VERSION")))
                    .with_cache_size(0)
                    .with_hide_listen_addrs(true),
            ),
            ping: ping::Behaviour::new(ping),
        })
        .unwrap_or_else(|never| match never {})
        .with_swarm_config(|_| {
            swarm::Config::with_executor(move |connection| watch(connection, &events))
                .with_max_negotiating_inbound_streams(NEGOTIATING_MAX)
                .with_substream_upgrade_protocol_override(Version::V1Lazy)
        })
        .with_connection_timeout(config.connect_within)
        .build();
    Ok(swarm)
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
