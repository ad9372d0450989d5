//! A listener's rules: limits, standing answers, and whether it is closing.

use super::seats::Seats;
use crate::{
    bodies::{BODIES_BYTES_MAX, Bodies},
    exchange::Standing,
    http1::{RequestHead, write::Pair},
};
use bytes::Bytes;
use std::{
    collections::HashSet,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// The longest body of a peer that is not welcome yet: it has a registration to send.
const STRANGER_BODY_BYTES_MAX: u64 = 8 * 1024;
/// What strangers' bodies hold together; none of it is taken from others' room.
const STRANGERS_BODIES_BYTES_MAX: usize = 8 * 1024 * 1024;

#[derive(Clone, Debug)]
pub struct DoorSpec {
    pub name: Arc<str>,
    /// 0: no limit.
    pub body_bytes_max: u64,
    /// Of all bodies together.
    pub bodies_bytes_max: usize,
    /// For a whole head, from its first byte; also for the first byte of a new connection.
    pub head_within: Duration,
    /// For a whole body.
    pub body_within: Duration,
    /// Between two requests of one connection; none: for ever.
    pub idle_within: Option<Duration>,
    /// Longest time a write may stand still.
    pub write_within: Duration,
    pub connections_max: usize,
    /// Of one address; of IPv6, of one /64.
    pub connections_per_address_max: usize,
    /// Put into every reply.
    pub standing_fields: Arc<Vec<Pair>>,
    /// Bodies of the answers that the guard gives by itself, by status.
    pub refusals: Arc<Vec<(u16, Bytes)>>,
    pub digests_bodies: bool,
    /// Replies tell the request ID; under a second name too where the path begins so.
    pub tells_request_id: bool,
    pub second_id_prefix: Bytes,
    /// Methods and paths whose bodies are of use. Who waits for a word before it sends the body of
    /// another one is answered by its head. None: all are.
    pub bodies_wanted: Option<Arc<Vec<(Bytes, Bytes)>>>,
}

impl DoorSpec {
    pub fn named(name: &str) -> DoorSpec {
        DoorSpec {
            name: name.into(),
            body_bytes_max: 10 * 1024 * 1024,
            bodies_bytes_max: BODIES_BYTES_MAX,
            head_within: Duration::from_secs(10),
            body_within: Duration::from_secs(60),
            idle_within: Some(Duration::from_secs(120)),
            write_within: Duration::from_secs(60),
            connections_max: 16_384,
            connections_per_address_max: 12_288,
            standing_fields: Arc::default(),
            refusals: Arc::default(),
            digests_bodies: false,
            tells_request_id: false,
            second_id_prefix: Bytes::new(),
            bodies_wanted: None,
        }
    }
}

/// One listener at work.
pub struct Door {
    pub spec: DoorSpec,
    /// Cancelled when no new connection and no further request is wanted.
    pub closing: CancellationToken,
    pub(super) seats: Arc<Seats>,
    pub bodies: Arc<Bodies>,
    pub strangers_bodies: Arc<Bodies>,
    standing: RwLock<Vec<Arc<Standing>>>,
    /// The peers whose bodies are read; none: everybody's are.
    heard: RwLock<Option<HashSet<Arc<str>>>>,
}

impl Door {
    pub fn new(spec: DoorSpec) -> Arc<Door> {
        Arc::new(Door {
            bodies: Bodies::new(spec.bodies_bytes_max),
            seats: Arc::new(Seats::new(
                spec.connections_max,
                spec.connections_per_address_max,
            )),
            strangers_bodies: Bodies::new(STRANGERS_BODIES_BYTES_MAX),
            spec,
            closing: CancellationToken::new(),
            standing: RwLock::default(),
            heard: RwLock::default(),
        })
    }

    /// Rules are tried in the order they were added.
    pub fn add_standing(&self, rule: Standing) {
        self.standing
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::new(rule));
    }

    pub fn standing_for(&self, path: &[u8]) -> Option<Arc<Standing>> {
        let rules = self.standing.read().unwrap_or_else(PoisonError::into_inner);
        rules
            .iter()
            .find(|rule| path.starts_with(&rule.prefix))
            .cloned()
    }

    /// From now on whoever else sends a request is answered by its head.
    pub fn hear_only(&self, peers: HashSet<Arc<str>>) {
        *self.heard.write().unwrap_or_else(PoisonError::into_inner) = Some(peers);
    }

    pub fn hears(&self, peer: Option<&str>) -> bool {
        let heard = self.heard.read().unwrap_or_else(PoisonError::into_inner);
        heard
            .as_ref()
            .is_none_or(|heard| peer.is_some_and(|peer| heard.contains(peer)))
    }

    pub fn wants_body_of(&self, head: &RequestHead) -> bool {
        self.spec.bodies_wanted.as_ref().is_none_or(|wanted| {
            wanted
                .iter()
                .any(|(method, path)| *method == head.method && *path == head.path)
        })
    }

    /// The room for a body, and how long it may be; 0: as long as there is room.
    pub fn room(&self, is_stranger: bool) -> (&Arc<Bodies>, u64) {
        let bytes_max = self.spec.body_bytes_max;
        match (is_stranger, bytes_max) {
            (false, _) => (&self.bodies, bytes_max),
            (true, 0) => (&self.strangers_bodies, STRANGER_BODY_BYTES_MAX),
            (true, _) => (
                &self.strangers_bodies,
                bytes_max.min(STRANGER_BODY_BYTES_MAX),
            ),
        }
    }

    pub fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    pub fn request_id_names(&self, path: &[u8]) -> &'static [&'static str] {
        match &self.spec {
            spec if !spec.tells_request_id => &[],
            spec if !spec.second_id_prefix.is_empty()
                && path.starts_with(&spec.second_id_prefix) =>
            {
                &["x-request-id", "request-id"]
            }
            _ => &["x-request-id"],
        }
    }
}
