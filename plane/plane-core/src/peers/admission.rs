//! How many inbound connections may stand, per address and in all.
//!
//! A connection is counted when it is accepted, before a byte of the handshake, and given back when the
//! handshake fails or the connection closes, so pending ones count too. Loopback is free of the limit per
//! address. Strangers have bounds of their own within these, and at each the one that has been there longest
//! gives way, so that whoever only stands there keeps nobody out. Source: wire.md 5.7.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use libp2p::{PeerId, swarm::ConnectionId};

use super::{addr::ip_group, guests::Trust, handshakes::largest};

/// Refusals of one address for one reason are told once in this time.
const REFUSED_TOLD_EVERY: Duration = Duration::from_secs(60);
/// Refusals remembered for that; while so many are fresh, further ones are not told.
const REFUSED_REMEMBERED_MAX: usize = 1024;

/// Strangers' connections at once. One holds 176 KiB at most: 64 KiB of a Noise frame that is not whole, 16 KiB of
/// frames, 48 KiB that are unread, 32 KiB of answers, and two bodies. With the handshakes under way that comes to no
/// more than 64 MiB for all who have not registered.
pub(super) const STRANGERS_MAX: usize = 256;
/// Of one address, loopback aside.
pub(super) const STRANGERS_PER_IP_MAX: usize = 8;
/// One of so many connections is kept for peers that have been welcome before.
const KEPT_FOR_KNOWN: usize = 16;

/// One connection of a peer that is not welcome, or not yet.
struct Stranger {
    peer: PeerId,
    ip: Option<IpAddr>,
    group: Option<IpAddr>,
    since: Instant,
    trust: Trust,
    /// It was welcome before, and gives way to nobody.
    is_known: bool,
}

/// A connection that is to be closed for the sake of another, or for its age.
pub(super) type Leaving = (PeerId, ConnectionId, Option<IpAddr>);

/// The count of inbound connections.
pub(super) struct Admission {
    per_ip_max: usize,
    total_max: usize,
    strangers: HashMap<ConnectionId, Stranger>,
    /// Every inbound connection, pending or established, with the address group it counts against.
    inbound: HashMap<ConnectionId, Option<IpAddr>>,
    per_group: HashMap<IpAddr, usize>,
    refused_told: HashMap<(IpAddr, &'static str), Instant>,
}

impl Admission {
    pub(super) fn new(per_ip_max: usize, total_max: usize) -> Self {
        Self {
            per_ip_max,
            total_max,
            strangers: HashMap::new(),
            inbound: HashMap::new(),
            per_group: HashMap::new(),
            refused_told: HashMap::new(),
        }
    }

    /// Counts one more inbound connection, or names the bound that was met; with it the stranger that gives way to it.
    pub(super) fn admit(
        &mut self,
        id: ConnectionId,
        ip: Option<IpAddr>,
    ) -> Result<Option<Leaving>, &'static str> {
        let mut leaving = None;
        let group = ip.filter(|ip| !ip.is_loopback()).map(ip_group);
        if let Some(group) = group {
            let is_full = |count: &usize| *count >= self.per_ip_max;
            if self.per_group.get(&group).is_some_and(is_full) || self.per_ip_max == 0 {
                leaving = self.make_room(|of| of.group == Some(group));
                if leaving.is_none() {
                    return Err("too_many_connections_of_address");
                }
            }
        }
        if self.inbound.len() >= self.total_max {
            leaving = self.make_room(|_| true);
            if leaving.is_none() {
                return Err("too_many_links");
            }
        }
        if let Some(group) = group {
            *self.per_group.entry(group).or_default() += 1;
        }
        self.inbound.insert(id, group);
        Ok(leaving)
    }

    /// A stranger has got through its handshake: the other one that gives way to it, or why it has to go itself.
    pub(super) fn admit_stranger(
        &mut self,
        (id, ip): (ConnectionId, Option<IpAddr>),
        (peer, trust, is_known): (PeerId, Trust, bool),
        now: Instant,
    ) -> Result<Option<Leaving>, &'static str> {
        let group = self.inbound.get(&id).copied().flatten();
        let mut leaving = None;
        if !is_known {
            let kept = self.total_max / KEPT_FOR_KNOWN;
            self.tidy();
            if group.is_some() && self.count(|of| of.group == group) >= STRANGERS_PER_IP_MAX {
                leaving = self.make_room(|of| of.group == group);
            } else if self.count(|_| true) >= STRANGERS_MAX {
                leaving = self.make_room(|_| true);
            } else if self.inbound.len() > self.total_max - kept {
                leaving = self.make_room(|_| true);
                if leaving.is_none() {
                    return Err("the last places are kept for known peers");
                }
            }
        }
        let stranger = Stranger {
            peer,
            ip,
            group,
            since: now,
            trust,
            is_known,
        };
        self.strangers.insert(id, stranger);
        Ok(leaving)
    }

    /// Strangers that have been there for so long.
    pub(super) fn overdue(&mut self, within: Duration, now: Instant) -> Vec<Leaving> {
        self.tidy();
        let is_late = |of: &Stranger| now.duration_since(of.since) >= within;
        let late = self.strangers.extract_if(|_, of| is_late(of));
        late.map(|(id, of)| (of.peer, id, of.ip)).collect()
    }

    /// Who was welcomed meanwhile is no stranger.
    fn tidy(&mut self) {
        self.strangers.retain(|_, of| of.trust.is_stranger());
    }

    fn count(&self, is_meant: impl Fn(&Stranger) -> bool) -> usize {
        let strangers = self.strangers.values();
        strangers.filter(|of| !of.is_known && is_meant(of)).count()
    }

    /// Takes the oldest one out, of the address that has the most of them.
    fn make_room(&mut self, is_meant: impl Fn(&Stranger) -> bool) -> Option<Leaving> {
        self.tidy();
        let may_go = |of: &&Stranger| !of.is_known && is_meant(of);
        let crowd = largest(self.strangers.values().filter(may_go).map(|of| of.group));
        let of_crowd = self
            .strangers
            .iter()
            .filter(|(_, of)| may_go(of) && of.group == crowd);
        let id = *of_crowd.min_by_key(|(_, of)| of.since)?.0;
        let of = self.strangers.remove(&id)?;
        self.forget(id);
        Some((of.peer, id, of.ip))
    }

    /// Gives the place of a connection back; one that was never counted changes nothing.
    pub(super) fn forget(&mut self, id: ConnectionId) {
        self.strangers.remove(&id);
        let Some(Some(group)) = self.inbound.remove(&id) else {
            return;
        };
        if let Some(count) = self.per_group.get_mut(&group) {
            *count -= 1;
            if *count == 0 {
                self.per_group.remove(&group);
            }
        }
    }

    /// Whether this refusal should be told.
    pub(super) fn worth_telling(&mut self, ip: IpAddr, reason: &'static str, now: Instant) -> bool {
        let told = (ip_group(ip), reason);
        let recent = |told: &Instant| now.duration_since(*told) < REFUSED_TOLD_EVERY;
        if self.refused_told.get(&told).is_some_and(recent) {
            return false;
        }
        if self.refused_told.len() >= REFUSED_REMEMBERED_MAX {
            self.refused_told.retain(|_, told| recent(told));
        }
        let room = self.refused_told.len() < REFUSED_REMEMBERED_MAX;
        if room {
            self.refused_told.insert(told, now);
        }
        room
    }
}
