//! How long the link is, asked for by pings when a window could make use of it.

use std::time::Duration;

use tokio::time::Instant;

/// A round trip is asked for again when it is older than this.
const FRESH: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct RoundTrip {
    known: Option<Duration>,
    /// The ping under way or the last one: its value, and when it was sent.
    asked: Option<(u32, Instant)>,
    is_under_way: bool,
}

impl RoundTrip {
    pub fn known(&self) -> Option<Duration> {
        self.known
    }

    /// The value of the ping to send now, if one is due.
    pub fn ask(&mut self) -> Option<u32> {
        let now = Instant::now();
        let value = match self.asked {
            Some(_) if self.is_under_way => return None,
            Some((_, at)) if now - at < FRESH => return None,
            Some((value, _)) => value.wrapping_add(1),
            None => 0,
        };
        self.asked = Some((value, now));
        self.is_under_way = true;
        Some(value)
    }

    pub fn answered(&mut self, value: u32) {
        if let Some((asked, at)) = self.asked
            && self.is_under_way
            && asked == value
        {
            self.known = Some(at.elapsed());
            self.is_under_way = false;
        }
    }
}
