//! What the data plane tells Python: one queue, and a bell that wakes whoever drains it.
//!
//! Invariant: a handle's events come in the order they happened, and `Finished` is its last.
//! Quiet events (a request went as it should) do not ring by themselves: they ride along with the
//! next one that does, or with a tick shortly after. While somebody waits for capacity, each rings; so
//! does the end of the last exchange there is: there is time for it now, and none once the next arrives.

use crate::{
    bell::Bell,
    exchange::{Arrival, Failure, Finished, Whole},
};
use std::{
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// Names one exchange (a request and all its attempts) for its whole life.
pub type Handle = u64;

#[derive(Debug)]
pub enum Event {
    /// A request is whole and waits for a command.
    Arrived(Arc<Arrival>),
    /// Response headers of an attempt came, `seconds` after it began; the client has seen nothing.
    Head {
        handle: Handle,
        attempt: u32,
        status: u16,
        seconds: f64,
    },
    /// The first body byte of an attempt came: the client's head is committed.
    Started {
        handle: Handle,
        attempt: u32,
        seconds: f64,
    },
    /// A buffered answer is whole and waits to be released or replaced.
    Answered {
        handle: Handle,
        attempt: u32,
        whole: Arc<Whole>,
    },
    /// An attempt failed and the client has seen nothing of it.
    Failed {
        handle: Handle,
        attempt: u32,
        failure: Box<Failure>,
    },
    Finished(Finished),
    PeerUp {
        peer: String,
        remote: String,
        dialed: bool,
    },
    PeerDown {
        peer: String,
        reason: String,
    },
    PeerIdentified {
        peer: String,
        agent_version: String,
    },
    /// A connection or request was refused before anybody was asked.
    Rejected {
        listener: Arc<str>,
        client: String,
        status: u16,
        reason: &'static str,
    },
    /// A part without which the plane is of no use has panicked; nothing can be relied on from here on.
    Broken {
        why: String,
    },
    /// The end of a call that Python made itself (`request`, `dial`).
    Completed {
        token: u64,
        result: Result<Option<Arc<Whole>>, String>,
    },
}

impl Event {
    fn rings(&self) -> bool {
        match self {
            Event::Head { .. } | Event::Started { .. } => false,
            Event::Finished(finished) => finished.rings(),
            _ => true,
        }
    }
}

/// Longest time a quiet event waits for company.
const QUIET_WAIT: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct Pending {
    events: Vec<Event>,
    has_rung: bool,
    is_tick_due: bool,
    /// Exchanges that have arrived and not ended.
    open: usize,
}

impl Pending {
    /// Counts the exchanges; whether the last of them has ended.
    fn leaves_none_open(&mut self, event: &Event) -> bool {
        match event {
            Event::Arrived(_) => self.open += 1,
            Event::Finished(_) => self.open = self.open.saturating_sub(1),
            _ => return false,
        }
        self.open == 0
    }
}

#[derive(Debug)]
struct Shared {
    pending: Mutex<Pending>,
    bell: Bell,
    is_eager: AtomicBool,
    tick: Notify,
}

/// Cloneable handle to the queue; any thread may push, one drains.
#[derive(Clone, Debug)]
pub struct Events(Arc<Shared>);

impl Events {
    pub fn new() -> io::Result<Events> {
        Ok(Events(Arc::new(Shared {
            pending: Mutex::default(),
            bell: Bell::new()?,
            is_eager: AtomicBool::new(false),
            tick: Notify::new(),
        })))
    }

    /// Readable when events wait; the drainer watches it.
    pub fn bell_fd(&self) -> BorrowedFd<'_> {
        self.0.bell.reader()
    }

    /// While eager, quiet events ring at once.
    pub fn set_eager(&self, eager: bool) {
        if !self.0.is_eager.swap(eager, Ordering::Relaxed) && eager {
            let mut pending = self.lock();
            if !pending.events.is_empty() && !std::mem::replace(&mut pending.has_rung, true) {
                self.0.bell.ring();
            }
        }
    }

    pub fn push(&self, event: Event) {
        let rings = event.rings() || self.0.is_eager.load(Ordering::Relaxed);
        let mut pending = self.lock();
        let rings = pending.leaves_none_open(&event) || rings;
        pending.events.push(event);
        if rings && !pending.has_rung {
            pending.has_rung = true;
            drop(pending);
            self.0.bell.ring();
        } else if !pending.has_rung && !pending.is_tick_due {
            pending.is_tick_due = true;
            drop(pending);
            self.0.tick.notify_one();
        }
    }

    /// Pushes what `make` gives, if anybody has heard of the exchange.
    pub(crate) fn push_if(&self, is_announced: bool, make: impl FnOnce() -> Event) {
        if is_announced {
            self.push(make());
        }
    }

    /// All events so far, oldest first.
    pub fn drain(&self) -> Vec<Event> {
        // The bell is silenced first: what is pushed after this rings again.
        self.0.bell.silence();
        let mut pending = self.lock();
        pending.has_rung = false;
        std::mem::take(&mut pending.events)
    }

    /// Rings for quiet events that found no company; runs for the life of the plane.
    pub async fn keep_ticking(self) {
        loop {
            self.0.tick.notified().await;
            tokio::time::sleep(QUIET_WAIT).await;
            let mut pending = self.lock();
            pending.is_tick_due = false;
            if !pending.events.is_empty() && !std::mem::replace(&mut pending.has_rung, true) {
                drop(pending);
                self.0.bell.ring();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        // A panic elsewhere cannot leave the list half changed, so a poisoned lock is still good.
        self.0
            .pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
