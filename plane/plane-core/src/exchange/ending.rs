//! How an exchange ended, told exactly once.

use super::{Arrival, Reply, ReplyBody, Whole, forward::BreakKind};
use crate::{
    events::{Event, Events, Handle},
    meter::Usage,
};
use std::{sync::Arc, time::Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The client was handed a backend's answer whole.
    Answered,
    /// The client was handed an answer made by command.
    Responded,
    /// The client left first.
    ClientLeft,
    /// The answer broke off after its first byte.
    Broken(BreakKind),
    /// Closed by command.
    Aborted,
}

impl Outcome {
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Answered => "answered",
            Outcome::Responded => "responded",
            Outcome::ClientLeft => "client_left",
            Outcome::Broken(kind) => kind.name(),
            Outcome::Aborted => "aborted",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Finished {
    pub handle: Handle,
    pub outcome: Outcome,
    pub status: u16,
    pub attempt: u32,
    /// Seconds from the attempt's start to the head of the answer that the client was given; 0
    /// where a command made it.
    pub head_s: f64,
    /// Body bytes and pieces of the answer.
    pub bytes: u64,
    pub chunks: u64,
    pub usage: Option<Usage>,
    /// Seconds from arrival to the first and the last body byte; 0 when there was none.
    pub first_byte_s: f64,
    pub last_byte_s: f64,
}

impl Finished {
    /// An answer that went as it should may wait for company; all else is told at once.
    pub(crate) fn rings(&self) -> bool {
        self.outcome != Outcome::Answered
    }
}

/// Collects what happened and tells it when the exchange ends, at the latest when it is dropped.
pub struct Ending {
    events: Events,
    arrival: Arc<Arrival>,
    pub(crate) is_announced: bool,
    pub(crate) status: u16,
    pub(crate) attempt: u32,
    pub(crate) head_s: f64,
    outcome: Option<Outcome>,
    bytes: u64,
    chunks: u64,
    usage: Option<Usage>,
    first_byte_at: Option<Instant>,
    last_byte_at: Option<Instant>,
}

impl Ending {
    pub fn new(events: Events, arrival: Arc<Arrival>) -> Self {
        Ending {
            events,
            arrival,
            is_announced: false,
            status: 0,
            attempt: 0,
            head_s: 0.0,
            outcome: None,
            bytes: 0,
            chunks: 0,
            usage: None,
            first_byte_at: None,
            last_byte_at: None,
        }
    }

    pub(super) fn answered_by_command(&mut self, reply: &Reply) {
        self.status = reply.status;
        self.outcome = Some(Outcome::Responded);
        if let ReplyBody::Whole(body) = &reply.body {
            self.passed(body.len());
        }
    }

    pub(super) fn answered_whole(&mut self, whole: &Whole) {
        self.status = whole.head.status;
        self.usage = whole.usage;
        self.outcome = Some(Outcome::Answered);
        self.passed(whole.body.len());
    }

    /// Bytes of the answer went on to the client.
    pub fn passed(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let now = Instant::now();
        self.first_byte_at.get_or_insert(now);
        self.last_byte_at = Some(now);
        self.bytes += bytes as u64;
        self.chunks += 1;
    }

    pub fn metered(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    pub fn finish(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.arrival.mailbox.close();
        if !self.is_announced {
            return;
        }
        let since_arrival = |at: Option<Instant>| {
            at.map_or(0.0, |at| {
                at.duration_since(self.arrival.arrived_at).as_secs_f64()
            })
        };
        self.events.push(Event::Finished(Finished {
            handle: self.arrival.handle,
            outcome: self.outcome.unwrap_or(Outcome::ClientLeft),
            status: self.status,
            attempt: self.attempt,
            head_s: self.head_s,
            bytes: self.bytes,
            chunks: self.chunks,
            usage: self.usage,
            first_byte_s: since_arrival(self.first_byte_at),
            last_byte_s: since_arrival(self.last_byte_at),
        }));
    }
}
