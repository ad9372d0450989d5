//! How many inbound connections may stand, per address and in all.
//!
//! A connection is counted when it is accepted, before a byte of the handshake, and given back when the
//! handshake fails or the connection closes, so pending ones count too. Loopback is free of the limit per
//! address. Source: wire.md 5.7.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use libp2p::swarm::ConnectionId;

use super::addr::ip_group;

/// Refusals of one address for one reason are told once in this time.
const REFUSED_TOLD_EVERY: Duration = Duration::from_secs(60);
/// Refusals remembered for that; while so many are fresh, further ones are not told.
const REFUSED_REMEMBERED_MAX: usize = 1024;

/// The count of inbound connections.
pub(super) struct Admission {
    per_ip_max: usize,
    total_max: usize,
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
            inbound: HashMap::new(),
            per_group: HashMap::new(),
            refused_told: HashMap::new(),
        }
    }

    /// Counts one more inbound connection, or names the bound that was met.
    pub(super) fn admit(
        &mut self,
        id: ConnectionId,
        ip: Option<IpAddr>,
    ) -> Result<(), &'static str> {
        if self.inbound.len() >= self.total_max {
            return Err("too_many_links");
        }
        let group = ip.filter(|ip| !ip.is_loopback()).map(ip_group);
        if let Some(group) = group {
            let count = self.per_group.get(&group).copied().unwrap_or(0);
            if count >= self.per_ip_max {
                return Err("too_many_connections_of_address");
            }
            self.per_group.insert(group, count + 1);
        }
        self.inbound.insert(id, group);
        Ok(())
    }

    /// Gives the place of a connection back; one that was never counted changes nothing.
    pub(super) fn forget(&mut self, id: ConnectionId) {
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
