//! How many inbound handshakes are under way, and who gives way when there are too many.
//!
//! Until its handshake is over a connection may be anybody's, a known peer's too, so a newcomer is never turned away:
//! a handshake of the address that has the most under way is given up for it. That is the oldest silent one, since
//! whoever is at work is done in a few round trips; unless more of them wait for a turn of ours (see `turns`) than are
//! silent, for then it is the newest of those.

use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use libp2p::{
    Multiaddr,
    core::transport::{DialOpts, ListenerId, Transport, TransportError, TransportEvent},
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{
    addr::{ip_group, ip_of},
    turns::{Group, Turns},
};

/// Handshakes under way at once, in all: 64 KiB of a Noise frame each, 16 MiB together.
pub(super) const HANDSHAKES_MAX: usize = 256;
/// Of one address; loopback is free of it.
const HANDSHAKES_PER_IP_MAX: usize = 16;

#[derive(Default)]
struct Table {
    last: u64,
    /// In the order in which they began.
    under_way: BTreeMap<u64, (Group, CancellationToken)>,
    turns: Turns,
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
        let in_line = self.turns.in_line();
        let of_crowd = || self.under_way.iter().filter(of_group(crowd));
        let waits = |(id, _): &(&u64, &_)| in_line.contains(*id);
        // Those in line wait for us: were the first of them given up, a flood would let nobody have a turn. They have
        // half the places, so that who has had one has time to answer.
        let leaving = match of_crowd().filter(waits).count() * 2 > of_crowd().count() {
            true => of_crowd().rfind(waits),
            false => of_crowd().find(|entry| !waits(entry)),
        };
        if let Some(id) = leaving.map(|(id, _)| *id)
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
            place: Place {
                handshakes: self.clone(),
                of: (group, id),
            },
        }
    }

    /// What this one has worked; must be called inside a tokio runtime.
    fn worked(&self, id: u64, began: Instant) {
        let rests_until = self.table().turns.worked(id, began, began.elapsed());
        if let Some(until) = rests_until {
            let handshakes = self.clone();
            tokio::spawn(async move {
                sleep_until(until).await;
                handshakes.table().turns.go_on();
            });
        }
    }
}

struct Place {
    handshakes: Handshakes,
    of: (Group, u64),
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.handshakes.table();
        table.under_way.remove(&self.of.1);
        table.turns.leave(self.of.1);
    }
}

/// One handshake; it fails when it has to give way.
pub(super) struct Handshake<F> {
    upgrade: F,
    given_up: Pin<Box<WaitForCancellationFutureOwned>>,
    place: Place,
}

impl<T, F: Future<Output = io::Result<T>> + Unpin> Future for Handshake<F> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.given_up.as_mut().poll(cx).is_ready() {
            let text = "given up for a newer connection: too many handshakes are under way";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, text)));
        }
        let Place { handshakes, of } = &self.place;
        if handshakes.table().turns.poll_turn(*of, cx).is_pending() {
            return Poll::Pending;
        }
        let began = Instant::now();
        let polled = Pin::new(&mut self.upgrade).poll(cx);
        self.place.handshakes.worked(self.place.of.1, began);
        polled
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
    use std::{net::IpAddr, time::Duration};

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
    fn half_of_a_crowd_may_wait_for_turns_and_half_for_their_peers() {
        let mut table = Table::default();
        let cx = Context::from_waker(std::task::Waker::noop());
        table
            .turns
            .worked(0, Instant::now(), Duration::from_secs(1));
        let all: Vec<_> = (0..HANDSHAKES_PER_IP_MAX)
            .map(|_| table.begin(ip(1)))
            .collect();
        for (id, _) in &all[..8] {
            assert!(table.turns.poll_turn((ip(1), *id), &cx).is_pending());
        }
        let (ninth, in_line_last) = table.begin(ip(1));
        assert!(all[8].1.is_cancelled());
        assert!(table.turns.poll_turn((ip(1), ninth), &cx).is_pending());
        table.begin(ip(1));
        assert!(in_line_last.is_cancelled());
        assert!(!all[0].1.is_cancelled() && !all[9].1.is_cancelled());
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
