//! Listeners that have been asked for and are not answered yet.
//!
//! A wildcard gives one address per interface, one after the other without a pause. So the answer waits
//! from the first address until nothing more happens at once.

use std::{collections::HashMap, io};

use libp2p::{Multiaddr, TransportError, core::transport::ListenerId};

use super::{PeersError, reason::innermost, swarm::Reply};

struct Listening {
    addr: Multiaddr,
    bound: Vec<Multiaddr>,
    reply: Reply<Vec<Multiaddr>>,
}

/// Who waits for which listener.
#[derive(Default)]
pub(super) struct Listens {
    waiting: HashMap<ListenerId, Listening>,
    settling: bool,
}

impl Listens {
    /// Notes who waits for this listener, or answers at once when there is none.
    pub(super) fn begin(
        &mut self,
        listener: Result<ListenerId, TransportError<io::Error>>,
        addr: Multiaddr,
        reply: Reply<Vec<Multiaddr>>,
    ) {
        let text = match listener {
            Ok(id) => {
                let bound = Vec::new();
                self.waiting.insert(id, Listening { addr, bound, reply });
                return;
            }
            Err(TransportError::Other(error)) => innermost(&error),
            Err(TransportError::MultiaddrNotSupported(_)) => {
                "an ip4 or ip6 address with tcp is needed".to_owned()
            }
        };
        let _ = reply.send(Err(PeersError::Listen { addr, text }));
    }

    pub(super) fn bound(&mut self, id: ListenerId, address: Multiaddr) {
        if let Some(listening) = self.waiting.get_mut(&id) {
            listening.bound.push(address);
            self.settling = true;
        }
    }

    pub(super) fn closed(&mut self, id: ListenerId, reason: Result<(), io::Error>) {
        if let Some(Listening { addr, reply, .. }) = self.waiting.remove(&id) {
            let text = reason.map_or_else(|e| innermost(&e), |()| "the listener closed".to_owned());
            let _ = reply.send(Err(PeersError::Listen { addr, text }));
        }
    }

    /// True from the first address of a listener until `settle`.
    pub(super) fn settling(&self) -> bool {
        self.settling
    }

    /// Answers everyone whose listener has an address.
    pub(super) fn settle(&mut self) {
        self.settling = false;
        let settled = self
            .waiting
            .extract_if(|_, listening| !listening.bound.is_empty());
        for (_, Listening { bound, reply, .. }) in settled {
            let _ = reply.send(Ok(bound));
        }
    }
}
