//! How much the peer may send on one stream before it is given more credit.
//!
//! A window begins at 256 KiB and doubles while it is used up in less than four round trips, which is when
//! the peer has to wait for credit: on long links. What all windows of a connection have beyond 256 KiB
//! each comes out of one bounded sum.

use std::time::Duration;

use tokio::time::Instant;

/// What each side may send on a new stream.
pub const WINDOW_BYTES: usize = 256 << 10;
/// 40 MB/s on one stream at a round trip of 50 ms.
pub(super) const WINDOW_BYTES_MAX: usize = 2 << 20;
/// Who reads slowly gives credit so often all the same: by it the peer, in its minute, sees that somebody reads.
const CREDIT_EVERY: Duration = Duration::from_secs(10);
/// Less is not worth a frame even then.
const CREDIT_BYTES_MIN: usize = 8 << 10;
/// A window that lasts for so many round trips does not hold up its stream. Source: wire.md 5.5.
const ROUND_TRIPS: u32 = 4;

/// The receiving side of one stream.
pub(super) struct ReceiveWindow {
    size: usize,
    /// The peer may send so much now.
    open: usize,
    /// What has been read and not been credited.
    read: usize,
    credited_at: Instant,
}

impl ReceiveWindow {
    pub fn new() -> Self {
        ReceiveWindow {
            size: WINDOW_BYTES,
            open: WINDOW_BYTES,
            read: 0,
            credited_at: Instant::now(),
        }
    }

    /// Bytes taken out of the connection's sum.
    pub fn extra(&self) -> usize {
        self.size - WINDOW_BYTES
    }

    pub fn is_used_up(&self) -> bool {
        self.open == 0
    }

    /// So many bytes come; false when the peer has no credit for them.
    pub fn receive(&mut self, bytes: usize) -> bool {
        let left = self.open.checked_sub(bytes);
        self.open = left.unwrap_or(self.open);
        left.is_some()
    }

    /// Makes the window larger by what is left of the connection's sum; returns the credit.
    pub fn grow_to(&mut self, size: usize, extra_left: &mut usize) -> usize {
        let grown = size.saturating_sub(self.size).min(*extra_left);
        *extra_left -= grown;
        self.size += grown;
        self.open += grown;
        grown
    }

    /// So many bytes were read: true when there is credit to give that is worth a frame.
    pub fn read(&mut self, bytes: usize) -> bool {
        self.read += bytes;
        self.read >= self.size / 2
            || self.read >= CREDIT_BYTES_MIN && self.credited_at.elapsed() >= CREDIT_EVERY
    }

    /// The credit for what was read, on a link with this round trip.
    pub fn credit(&mut self, round_trip: Option<Duration>, extra_left: &mut usize) -> usize {
        let credit = std::mem::take(&mut self.read);
        self.open += credit;
        let now = Instant::now();
        let lasted = now - std::mem::replace(&mut self.credited_at, now);
        // What lasted is half a window.
        let holds_up = round_trip.is_some_and(|round_trip| 2 * lasted < ROUND_TRIPS * round_trip);
        if !holds_up {
            return credit;
        }
        let size = (2 * self.size).min(WINDOW_BYTES_MAX);
        credit + self.grow_to(size, extra_left)
    }
}
