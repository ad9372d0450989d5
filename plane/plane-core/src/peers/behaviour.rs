//! Which connections stand: every one that is admitted, and of each peer the newest.
//!
//! A peer's newer connection takes the older one's place at once, and the older one is closed: by the side
//! that was dialled right away, by the side that dialled once the peer has answered on the new one. Nothing
//! here dials, closes on silence, or judges what a peer does. Source: wire.md 5.8.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    io,
    net::IpAddr,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use libp2p::{
    Multiaddr, PeerId,
    core::{Endpoint, transport::PortUse},
    swarm::{
        CloseConnection, ConnectionClosed, ConnectionDenied, ConnectionId, FromSwarm,
        NetworkBehaviour, THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
        behaviour::ConnectionEstablished,
    },
};
use tokio::sync::mpsc;

use super::{
    addr::ip_of,
    admission::{Admission, Leaving},
    conn::{Conn, Registry},
    guests::{Guests, Trust},
    handler::Handler,
    reason::handshake_reason,
    stream::Inbound,
};

/// What one peer, one address and all together may hold.
#[derive(Clone, Debug)]
pub(super) struct LinkLimits {
    pub(super) streams_max: usize,
    pub(super) inbound_served: usize,
    pub(super) conns_per_ip: usize,
    pub(super) connections_max: usize,
    pub(super) welcome_within: Option<Duration>,
    pub(super) open_within: Duration,
}

/// An inbound connection came to nothing.
#[derive(Debug)]
pub struct Refused {
    pub ip: IpAddr,
    pub reason: &'static str,
}

/// The reasons of strangers: closed for a newcomer, turned away at a place that is kept, and cut off.
const MADE_ROOM: &str = "stranger_made_room";
const KEPT: &str = "kept_for_known_peers";
const NOT_REGISTERED: &str = "not_registered_in_time";

type Action = ToSwarm<Refused, Infallible>;

/// The behaviour that owns the `/http/1.1` link.
pub struct Link {
    limits: LinkLimits,
    registry: Registry,
    guests: Guests,
    queue: mpsc::Sender<Inbound>,
    admission: Admission,
    /// Connections whose handler exists and whose establishment has not been announced yet.
    fresh: HashMap<ConnectionId, Arc<Conn>>,
    /// Dialled connections the peer has not answered on yet, and the one each takes the place of.
    superseded: HashMap<ConnectionId, ConnectionId>,
    actions: VecDeque<Action>,
}

impl Link {
    pub(super) fn new(
        limits: LinkLimits,
        (registry, guests): (Registry, Guests),
        queue: mpsc::Sender<Inbound>,
    ) -> Self {
        let admission = Admission::new(limits.conns_per_ip, limits.connections_max);
        Self {
            limits,
            admission,
            registry,
            guests,
            queue,
            fresh: HashMap::new(),
            superseded: HashMap::new(),
            actions: VecDeque::new(),
        }
    }

    fn handler(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        remote: &Multiaddr,
        (dialed, trust): (bool, Trust),
    ) -> Handler {
        let (mut conn, requests) =
            Conn::new((id, peer), remote.clone(), dialed, self.limits.streams_max);
        conn.trust = trust;
        let conn = Arc::new(conn);
        self.fresh.insert(id, conn.clone());
        let LinkLimits {
            inbound_served,
            open_within,
            ..
        } = self.limits;
        Handler::new(
            (conn, requests),
            inbound_served,
            self.queue.clone(),
            open_within,
        )
    }

    /// The peer has answered on this connection. Returns the one that can be closed now.
    pub(super) fn confirmed(&mut self, id: ConnectionId) -> Option<ConnectionId> {
        self.superseded.remove(&id)
    }

    fn failed(&mut self, id: ConnectionId) {
        self.fresh.remove(&id);
        self.admission.forget(id);
    }

    fn tell_refused(&mut self, ip: Option<IpAddr>, reason: &'static str) {
        if let Some(ip) = ip
            && self.admission.worth_telling(ip, reason, Instant::now())
        {
            let refused = Refused { ip, reason };
            self.actions.push_back(ToSwarm::GenerateEvent(refused));
        }
    }

    fn denied(
        &mut self,
        ip: Option<IpAddr>,
        reason: &'static str,
        text: &'static str,
    ) -> ConnectionDenied {
        self.tell_refused(ip, reason);
        ConnectionDenied::new(io::Error::other(text))
    }

    /// Closes strangers, and tells of it.
    fn let_go(&mut self, leaving: impl IntoIterator<Item = Leaving>, reason: &'static str) {
        for (peer, id, ip) in leaving {
            self.tell_refused(ip, reason);
            self.close(peer, id);
        }
    }

    /// Ends the connections of strangers whose time is over. The swarm has to be polled afterwards.
    pub(super) fn cut_strangers_off(&mut self, now: Instant) {
        if let Some(within) = self.limits.welcome_within {
            let late = self.admission.overdue(within, now);
            self.let_go(late, NOT_REGISTERED);
        }
    }

    fn established(&mut self, peer_id: PeerId, id: ConnectionId) {
        let Some(conn) = self.fresh.remove(&id) else {
            return;
        };
        let dialed = conn.dialed;
        let Some(old) = self.registry.put(conn) else {
            return;
        };
        old.closed.cancel();
        if dialed {
            // The other end may not have this connection yet; were the old one closed now, it would
            // take the peer for gone.
            self.superseded.insert(id, old.id);
        } else {
            self.close(peer_id, old.id);
        }
    }

    fn close(&mut self, peer_id: PeerId, id: ConnectionId) {
        let connection = CloseConnection::One(id);
        self.actions.push_back(ToSwarm::CloseConnection {
            peer_id,
            connection,
        });
    }
}

impl NetworkBehaviour for Link {
    type ConnectionHandler = Handler;
    type ToSwarm = Refused;

    fn handle_pending_inbound_connection(
        &mut self,
        id: ConnectionId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        let ip = ip_of(remote);
        let leaving = self
            .admission
            .admit(id, ip)
            .map_err(|bound| self.denied(ip, bound, bound))?;
        self.let_go(leaving, MADE_ROOM);
        Ok(())
    }

    fn handle_established_inbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        let trust = self.guests.trust(&peer);
        if trust.is_stranger() {
            let stranger = (peer, trust.clone(), self.guests.is_known(&peer));
            let leaving = self
                .admission
                .admit_stranger((id, ip_of(remote)), stranger, Instant::now())
                .map_err(|text| self.denied(ip_of(remote), KEPT, text))?;
            self.let_go(leaving, MADE_ROOM);
        }
        Ok(self.handler(id, peer, remote, (false, trust)))
    }

    fn handle_established_outbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        remote: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(self.handler(id, peer, remote, (true, Trust::of_guest())))
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(ConnectionEstablished {
                peer_id,
                connection_id,
                ..
            }) => {
                self.established(peer_id, connection_id);
            }
            FromSwarm::ConnectionClosed(ConnectionClosed {
                peer_id,
                connection_id,
                ..
            }) => {
                self.admission.forget(connection_id);
                self.registry.remove(&peer_id, connection_id);
                if let Some(old) = self.confirmed(connection_id) {
                    self.close(peer_id, old);
                }
            }
            FromSwarm::ListenFailure(failure) => {
                self.failed(failure.connection_id);
                if let Some(reason) = handshake_reason(failure.error) {
                    self.tell_refused(ip_of(failure.send_back_addr), reason);
                }
            }
            FromSwarm::DialFailure(failure) => self.failed(failure.connection_id),
            _ => {}
        }
    }

    fn on_connection_handler_event(
        &mut self,
        _: PeerId,
        _: ConnectionId,
        event: THandlerOutEvent<Self>,
    ) {
        match event {}
    }

    // Actions are only ever queued from within the swarm's own poll, which asks again afterwards.
    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Refused, THandlerInEvent<Self>>> {
        self.actions.pop_front().map_or(Poll::Pending, Poll::Ready)
    }
}
