//! How many bytes of request bodies, and of answers to slow readers, does the plane hold, and may it take more?
//!
//! A body is held from its first byte until nobody needs the request any more: its exchange is
//! over, and whoever was told of its arrival has let go of it. The bound is over all connections
//! of one listener: many clients together cannot fill the memory, nor take the room of those who
//! come in by another door. What is held of answers has one bound for the whole plane: from the first piece that is not
//! passed on until the last of it has gone out.

use bytes::Bytes;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// What a listener holds at most, unless its rules say otherwise.
pub const BODIES_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// What all answers that are held together may take; beyond it they are passed on as they come.
pub const ANSWERS_BYTES_MAX: usize = 256 * 1024 * 1024;
/// An answer up to this is not counted: the system takes it at once, whatever its reader does.
const UNCOUNTED_BYTES_MAX: usize = 16 * 1024;
/// A body up to this is small: an eighth of the room is kept for those, so that a few clients with long bodies do not
/// shut out all others.
const SMALL_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
pub struct Bodies {
    bytes: AtomicUsize,
    bytes_max: usize,
}

impl Bodies {
    pub fn new(bytes_max: usize) -> Arc<Bodies> {
        Arc::new(Bodies {
            bytes: AtomicUsize::new(0),
            bytes_max,
        })
    }

    /// Bytes held now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The share of one request; given back when dropped.
#[derive(Debug)]
pub struct Held {
    bodies: Arc<Bodies>,
    bytes: usize,
}

impl Held {
    pub fn nothing(bodies: &Arc<Bodies>) -> Held {
        Held {
            bodies: bodies.clone(),
            bytes: 0,
        }
    }

    /// Counts `bytes` in all for this request; false, and nothing changed, when that is too much.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return true;
        }
        let before = self.bodies.bytes.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
        let kept_for_small = match self.bytes <= SMALL_BYTES_MAX {
            true => 0,
            false => self.bodies.bytes_max / 8,
        };
        if before + more <= self.bodies.bytes_max - kept_for_small {
            return true;
        }
        self.give_back(more);
        false
    }

    pub fn release(&mut self) {
        self.give_back(self.bytes);
    }

    /// Counts an answer of which so many bytes are held; false when it is better passed on as it comes.
    pub fn hold(&mut self, bytes: usize) -> bool {
        bytes <= UNCOUNTED_BYTES_MAX || self.grow_to(bytes)
    }

    /// The same bytes, counted until the last part of them is gone.
    pub fn until_gone(self, bytes: Bytes) -> Bytes {
        match self.bytes {
            0 => bytes,
            _ => Bytes::from_owner(Counted { bytes, _held: self }),
        }
    }

    fn give_back(&mut self, bytes: usize) {
        self.bodies.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.bytes -= bytes;
    }
}

struct Counted {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_bounded_in_all_and_given_back() {
        let bodies = Bodies::new(10);
        let (mut one, mut two) = (Held::nothing(&bodies), Held::nothing(&bodies));
        assert!(one.grow_to(4) && one.grow_to(6) && two.grow_to(4));
        assert!(!two.grow_to(5) && !one.grow_to(7));
        assert_eq!(bodies.bytes(), 10);
        drop(one);
        assert!(two.grow_to(10));
        two.release();
        drop(two);
        assert_eq!(bodies.bytes(), 0);
    }

    #[test]
    fn long_bodies_leave_room_for_small_ones() {
        let bodies = Bodies::new(8 << 20);
        let mut long = Held::nothing(&bodies);
        let mut small = Held::nothing(&bodies);
        assert!(long.grow_to(7 << 20) && !long.grow_to((7 << 20) + 1));
        assert!(small.grow_to(SMALL_BYTES_MAX) && !small.grow_to(SMALL_BYTES_MAX + 1));
    }

    #[test]
    fn an_answer_counts_until_its_last_part_is_gone_and_a_short_one_never() {
        let answers = Bodies::new(8 << 20);
        let mut short = Held::nothing(&answers);
        assert!(short.hold(UNCOUNTED_BYTES_MAX) && answers.bytes() == 0);
        let mut long = Held::nothing(&answers);
        assert!(long.hold(1 << 20));
        let mut whole = long.until_gone(Bytes::from(vec![b'x'; 1 << 20]));
        let part = whole.split_off(1000);
        drop(whole);
        assert_eq!(answers.bytes(), 1 << 20);
        drop(part);
        assert_eq!(answers.bytes(), 0);
    }
}
