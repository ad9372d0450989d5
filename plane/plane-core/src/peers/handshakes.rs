//! How many inbound handshakes are under way, and who gives way when there are too many.
//!
//! Until its handshake is over a connection may be anybody's, a known peer's too, so a newcomer is never turned away:
//! the oldest handshake of the address that has the most under way is given up for it. Whoever is at work is done in
//! a few round trips; what stands there longer is silent.

use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    io,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use libp2p::{
    Multiaddr,
    core::transport::{DialOpts, ListenerId, Transport, TransportError, TransportEvent},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::addr::{ip_group, ip_of};

/// Handshakes under way at once, in all: 64 KiB of a Noise frame each, 16 MiB together.
pub(super) const HANDSHAKES_MAX: usize = 256;
/// Of one address; loopback is free of it.
const HANDSHAKES_PER_IP_MAX: usize = 16;

type Group = Option<IpAddr>;

#[derive(Default)]
struct Table {
    last: u64,
    /// In the order in which they began.
    under_way: BTreeMap<u64, (Group, CancellationToken)>,
}

impl Table {
    fn begin(&mut self, group: Group) -> (u64, CancellationToken) {
        self.make_room(group);
        self.last += 1;
        let given_up = CancellationToken::new();
        self.under_way.insert(self.last, (group, given_up.clone()));
        (self.last, given_up)
    }

    fn make_room(&mut self, group: Group) {
        let of_group = |wanted: Group| move |entry: &(&u64, &(Group, _))| entry.1.0 == wanted;
        let crowd = if group.is_some()
            && self.under_way.iter().filter(of_group(group)).count() >= HANDSHAKES_PER_IP_MAX
        {
            group
        } else if self.under_way.len() >= HANDSHAKES_MAX {
            largest(self.under_way.values().map(|(group, _)| *group))
        } else {
            return;
        };
        let oldest = self.under_way.iter().find(of_group(crowd));
        if let Some(id) = oldest.map(|(id, _)| *id)
            && let Some((_, given_up)) = self.under_way.remove(&id)
        {
            given_up.cancel();
        }
    }
}

/// The one that is there most often.
pub(super) fn largest(groups: impl Iterator<Item = Group>) -> Group {
    let mut counts: HashMap<Group, usize> = HashMap::new();
    for group in groups {
        *counts.entry(group).or_default() += 1;
    }
    counts
        .into_iter()
        .max_by_key(|(_, count)| *count)
        .and_then(|(group, _)| group)
}

#[derive(Clone, Default)]
pub(super) struct Handshakes(Arc<Mutex<Table>>);

impl Handshakes {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin<F>(&self, remote: &Multiaddr, upgrade: F) -> Handshake<F> {
        let group = ip_of(remote).filter(|ip| !ip.is_loopback()).map(ip_group);
        let (id, given_up) = self.table().begin(group);
        Handshake {
            upgrade,
            given_up: Box::pin(given_up.cancelled_owned()),
            _place: Place {
                handshakes: self.clone(),
                id,
            },
        }
    }
}

struct Place {
    handshakes: Handshakes,
    id: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.handshakes.table().under_way.remove(&self.id);
    }
}

/// One handshake; it fails when it has to give way.
pub(super) struct Handshake<F> {
    upgrade: F,
    given_up: Pin<Box<WaitForCancellationFutureOwned>>,
    _place: Place,
}

impl<T, F: Future<Output = io::Result<T>> + Unpin> Future for Handshake<F> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.given_up.as_mut().poll(cx).is_ready() {
            let text = "given up for a newer connection: too many handshakes are under way";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, text)));
        }
        Pin::new(&mut self.upgrade).poll(cx)
    }
}

/// A transport whose inbound handshakes are bounded.
pub(super) struct Bounded<T> {
    inner: T,
    handshakes: Handshakes,
}

impl<T> Bounded<T> {
    pub(super) fn new(inner: T) -> Self {
        Self {
            inner,
            handshakes: Handshakes::default(),
        }
    }
}

impl<T> Transport for Bounded<T>
where
    T: Transport<Error = io::Error> + Unpin,
    T::ListenerUpgrade: Unpin,
{
    type Output = T::Output;
    type Error = io::Error;
    type ListenerUpgrade = Handshake<T::ListenerUpgrade>;
    type Dial = T::Dial;

    fn listen_on(
        &mut self,
        id: ListenerId,
        addr: Multiaddr,
    ) -> Result<(), TransportError<io::Error>> {
        self.inner.listen_on(id, addr)
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        self.inner.remove_listener(id)
    }

    fn dial(
        &mut self,
        addr: Multiaddr,
        opts: DialOpts,
    ) -> Result<Self::Dial, TransportError<io::Error>> {
        self.inner.dial(addr, opts)
    }

    fn poll(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<TransportEvent<Self::ListenerUpgrade, io::Error>> {
        let handshakes = self.handshakes.clone();
        Pin::new(&mut self.inner).poll(cx).map(|event| {
            let remote = match &event {
                TransportEvent::Incoming { send_back_addr, .. } => send_back_addr.clone(),
                _ => Multiaddr::empty(),
            };
            event.map_upgrade(|upgrade| handshakes.begin(&remote, upgrade))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> Group {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    #[test]
    fn the_oldest_handshake_of_the_largest_crowd_gives_way() {
        let mut table = Table::default();
        let (_, of_another) = table.begin(ip(1));
        let crowd: Vec<_> = (1..HANDSHAKES_MAX).map(|_| table.begin(None).1).collect();
        let (_, newcomer) = table.begin(ip(2));
        assert_eq!(table.under_way.len(), HANDSHAKES_MAX);
        assert!(crowd[0].is_cancelled() && !crowd[1].is_cancelled());
        assert!(!of_another.is_cancelled() && !newcomer.is_cancelled());
    }

    #[test]
    fn one_address_has_its_share_of_handshakes() {
        let mut table = Table::default();
        let all: Vec<_> = (0..=HANDSHAKES_PER_IP_MAX)
            .map(|_| table.begin(ip(1)).1)
            .collect();
        assert_eq!(table.under_way.len(), HANDSHAKES_PER_IP_MAX);
        assert!(all[0].is_cancelled() && !all[1].is_cancelled());
    }
}
