//! Whose turn it is while the socket takes less than the streams would write.
//!
//! A turn lasts from one time the frames are taken to the next. Without a share in it, the first stream to
//! be called would fill the room there is, again and again, and the others would never come to write: not
//! even the pings, without which the connection is given up.

use std::collections::VecDeque;

use super::session::OUT_BYTES_MAX;

/// What one stream has written, and in which turn.
#[derive(Default)]
pub(super) struct Written {
    turn: u64,
    bytes: usize,
}

/// The streams that wait for the next turn.
pub(super) struct Turns {
    now: u64,
    /// Bytes that each stream may write in this turn.
    share: usize,
    /// They have not written in this turn, so the next one is theirs first.
    passed_over: VecDeque<u32>,
    served: VecDeque<u32>,
}

impl Turns {
    pub fn new() -> Self {
        Turns {
            now: 0,
            share: OUT_BYTES_MAX,
            passed_over: VecDeque::new(),
            served: VecDeque::new(),
        }
    }

    /// What the stream may still write in this turn.
    pub fn left(&self, written: &Written) -> usize {
        match written.turn == self.now {
            true => self.share.saturating_sub(written.bytes),
            false => self.share,
        }
    }

    pub fn wrote(&self, written: &mut Written, bytes: usize) {
        if written.turn != self.now {
            *written = Written {
                turn: self.now,
                bytes: 0,
            };
        }
        written.bytes += bytes;
    }

    pub fn wait(&mut self, id: u32, written: &Written) {
        let has_written = written.turn == self.now && written.bytes > 0;
        match has_written {
            true => self.served.push_back(id),
            false => self.passed_over.push_back(id),
        }
    }

    /// Begins the next turn: those who have waited for it, in their order.
    pub fn next(&mut self, frame_bytes: usize) -> impl Iterator<Item = u32> {
        self.now += 1;
        let waiting = self.passed_over.len() + self.served.len();
        // A frame each even so: who comes too late in this turn is first in the next.
        self.share = (OUT_BYTES_MAX / waiting.max(1)).max(frame_bytes);
        self.passed_over.drain(..).chain(self.served.drain(..))
    }
}
