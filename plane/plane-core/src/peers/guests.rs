//! Who is a stranger: a peer that dialled us and that the caller has not welcomed.
//!
//! The caller welcomes a peer once it has proved who it is, by its peer ID. That holds over connections, so a peer
//! that comes back is no stranger; and after the welcome has ended it is still known, which keeps it a place.
//! What a stranger may hold is decided where it would hold it: `yamux`, `handler`, `admission`, and the door.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use libp2p::PeerId;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Peer IDs remembered after their welcome; the one welcomed longest ago is forgotten first.
const KNOWN_MAX: usize = 16_384;
/// What is kept of peers without a connection is dropped when there is more than this of it.
const TRUSTS_SLACK: usize = 64;

/// Whether one peer has been welcomed; all its connections share it.
#[derive(Clone, Debug)]
pub struct Trust(Arc<CancellationToken>);

impl Trust {
    fn new() -> Self {
        Self(Arc::default())
    }

    pub(super) fn of_guest() -> Self {
        let trust = Self::new();
        trust.0.cancel();
        trust
    }

    pub(super) fn is_stranger(&self) -> bool {
        !self.0.is_cancelled()
    }

    /// Ready once the peer is welcome.
    pub(super) fn welcomed(&self) -> WaitForCancellationFutureOwned {
        CancellationToken::clone(&self.0).cancelled_owned()
    }
}

/// Who is welcome, and who was. Cloneable.
#[derive(Clone, Default)]
pub(super) struct Guests(Option<Arc<Mutex<Inner>>>);

#[derive(Default)]
struct Inner {
    /// As many as the caller welcomes.
    welcome: HashSet<PeerId>,
    known: HashSet<PeerId>,
    known_in_order: VecDeque<PeerId>,
    strangers: HashMap<PeerId, Trust>,
    tidy_at: usize,
}

impl Guests {
    /// Without bounds for strangers everybody is a guest.
    pub(super) fn new(bounds_strangers: bool) -> Self {
        Self(bounds_strangers.then(Arc::default))
    }

    fn inner(&self) -> Option<MutexGuard<'_, Inner>> {
        let inner = self.0.as_ref()?;
        Some(inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What a connection of this peer is held to.
    pub(super) fn trust(&self, peer: &PeerId) -> Trust {
        self.inner()
            .map_or_else(Trust::of_guest, |mut inner| inner.trust(peer))
    }

    pub(super) fn is_known(&self, peer: &PeerId) -> bool {
        self.inner().is_none_or(|inner| inner.known.contains(peer))
    }

    pub(super) fn welcome(&self, peer: PeerId) {
        if let Some(mut inner) = self.inner() {
            inner.welcome(peer);
        }
    }

    /// Its next connection is a stranger's again.
    pub(super) fn unwelcome(&self, peer: &PeerId) {
        if let Some(mut inner) = self.inner() {
            inner.welcome.remove(peer);
        }
    }

    /// These are welcome, and nobody else.
    pub(super) fn welcome_only(&self, peers: impl IntoIterator<Item = PeerId>) {
        if let Some(mut inner) = self.inner() {
            inner.welcome.clear();
            for peer in peers {
                inner.welcome(peer);
            }
        }
    }
}

impl Inner {
    fn trust(&mut self, peer: &PeerId) -> Trust {
        if self.welcome.contains(peer) {
            return Trust::of_guest();
        }
        if let Some(trust) = self.strangers.get(peer) {
            return trust.clone();
        }
        if self.strangers.len() >= self.tidy_at {
            self.strangers
                .retain(|_, trust| Arc::strong_count(&trust.0) > 1);
            self.tidy_at = 2 * self.strangers.len() + TRUSTS_SLACK;
        }
        let trust = Trust::new();
        self.strangers.insert(*peer, trust.clone());
        trust
    }

    fn welcome(&mut self, peer: PeerId) {
        self.welcome.insert(peer);
        if let Some(trust) = self.strangers.remove(&peer) {
            trust.0.cancel();
        }
        if !self.known.insert(peer) {
            return;
        }
        self.known_in_order.push_back(peer);
        if self.known_in_order.len() > KNOWN_MAX
            && let Some(oldest) = self.known_in_order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}
