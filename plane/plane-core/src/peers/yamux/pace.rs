//! How many frames that carry nothing a peer may send in a second.
//!
//! Windows bound what carries bytes; a ping, an update, a reset, a new stream and an empty frame cost the peer twelve
//! bytes each and nothing else holds them back. The bounds are far above what thousands of short requests a second
//! take: each opens one stream, and brings an update or two, an empty frame for its end, and at most one reset.
//! The clock is asked only when a count is full, so a second in which it is not costs an addition per frame.

use std::time::Duration;

use tokio::time::Instant;

use super::frame::{Header, Kind, RST, SYN};

const SECOND: Duration = Duration::from_secs(1);
/// An original sends two a minute, we one in ten seconds.
const PINGS_MAX: u32 = 1_000;
const OPENED_MAX: u32 = 20_000;
const RESETS_MAX: u32 = 40_000;
/// Window updates and empty data frames, each.
const EMPTY_MAX: u32 = 100_000;
/// Frames of any kind from a stranger: it has a handful of requests to make.
const STRANGER_MAX: u32 = 5_000;

/// Frames of one kind in the second under way.
#[derive(Default)]
struct Count {
    began: Option<Instant>,
    frames: u32,
}

impl Count {
    /// One more; false when it is more than `max` in a second.
    fn goes_on(&mut self, max: u32) -> bool {
        self.frames += 1;
        if self.frames > 1 && self.frames <= max {
            return true;
        }
        let now = Instant::now();
        let is_over = self.began.is_none_or(|began| now - began >= SECOND);
        if is_over {
            self.began = Some(now);
            self.frames = 1;
        }
        is_over
    }
}

/// The counts of one connection.
#[derive(Default)]
pub(super) struct Pace {
    pings: Count,
    opened: Count,
    resets: Count,
    updates: Count,
    empty: Count,
    of_stranger: Count,
}

impl Pace {
    /// Counts one frame, or says what there is too much of.
    pub fn note(&mut self, header: Header, is_stranger: bool) -> Result<(), &'static str> {
        if is_stranger && !self.of_stranger.goes_on(STRANGER_MAX) {
            return Err("too many frames a second before it has registered");
        }
        if header.has(SYN) && header.kind != Kind::Ping && !self.opened.goes_on(OPENED_MAX) {
            return Err("too many new streams a second");
        }
        if header.has(RST) && !self.resets.goes_on(RESETS_MAX) {
            return Err("too many resets a second");
        }
        match header.kind {
            Kind::Ping if !self.pings.goes_on(PINGS_MAX) => Err("too many pings a second"),
            Kind::WindowUpdate if !self.updates.goes_on(EMPTY_MAX) => {
                Err("too many window updates a second")
            }
            Kind::Data if header.length == 0 && !self.empty.goes_on(EMPTY_MAX) => {
                Err("too many empty frames a second")
            }
            _ => Ok(()),
        }
    }
}
