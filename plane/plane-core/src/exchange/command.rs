//! Commands to one exchange, and the mailbox they wait in.

use super::{Arrival, Forward, Reply, ReplyBody};
use crate::{
    http1::write::{Pair, has_name, put_field, put_status_line, put_values},
    wakeups::Wakeups,
};
use bytes::{Bytes, BytesMut};
use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

#[derive(Debug)]
pub enum Command {
    /// Answer with this.
    Respond(Respond),
    /// Make an attempt.
    Forward(Box<Forward>),
    /// End the attempt of this number as one that took too long, unless its answer has begun.
    GiveUp(u32),
    /// Send the answer that `Answered` told of.
    Release,
    /// Close the connection; a running stream ends with its error event.
    Abort,
}

#[derive(Debug)]
pub struct Respond {
    pub status: u16,
    pub fields: Vec<Pair>,
    pub body: Bytes,
}

impl Respond {
    pub(super) fn into_reply(self, arrival: &Arrival) -> Reply {
        let mut head = BytesMut::with_capacity(256);
        put_status_line(&mut head, self.status);
        let is_told = |name: &[u8]| arrival.request_id_names.iter().any(|id| is_same(name, id));
        put_values(
            &mut head,
            self.fields.iter().filter(|(name, _)| !is_told(name)),
        );
        put_own_fields(&mut head, arrival, |name| !has_name(&self.fields, name));
        let body = match (arrival.is_head_method(), self.body) {
            // Whoever answers HEAD without a body has not said how long one would be.
            (true, body) if body.is_empty() => ReplyBody::Absent(None),
            (true, body) => ReplyBody::Absent(Some(body.len() as u64)),
            (false, body) => ReplyBody::Whole(body),
        };
        Reply::new(head, self.status, body)
    }
}

fn is_same(name: &[u8], other: &str) -> bool {
    name.eq_ignore_ascii_case(other.as_bytes())
}

/// The listener's standing fields and the request ID.
pub(super) fn put_own_fields(
    head: &mut BytesMut,
    arrival: &Arrival,
    wanted: impl Fn(&[u8]) -> bool,
) {
    let standing = arrival.standing_fields.iter();
    put_values(head, standing.filter(|(name, _)| wanted(name)));
    for name in arrival.request_id_names {
        put_field(head, name.as_bytes(), arrival.request_id.as_bytes());
    }
}

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<Command>,
    is_closed: bool,
    waker: Option<Waker>,
}

/// Holds commands until the exchange takes them; those that come after its end are dropped.
#[derive(Debug)]
pub struct Mailbox {
    inner: Mutex<Inner>,
    wakeups: Arc<Wakeups>,
}

impl Mailbox {
    pub fn new(wakeups: Arc<Wakeups>) -> Self {
        Mailbox {
            inner: Mutex::default(),
            wakeups,
        }
    }

    /// False when the exchange is over and nobody will take the command.
    pub fn post(&self, command: Command) -> bool {
        self.put(command, Waker::wake)
    }

    /// As `post`, but the exchange may hear of it only at the next ring of the plane's `Wakeups`.
    pub fn post_with_others(&self, command: Command) -> bool {
        self.put(command, |waker| self.wakeups.gather(waker))
    }

    fn put(&self, command: Command, wake: impl FnOnce(Waker)) -> bool {
        let mut inner = self.lock();
        if inner.is_closed {
            return false;
        }
        inner.waiting.push_back(command);
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            wake(waker);
        }
        true
    }

    pub async fn next(&self) -> Command {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    pub fn close(&self) {
        let mut inner = self.lock();
        inner.is_closed = true;
        inner.waiting.clear();
        // It would keep a task that is over, which may hold the mailbox itself.
        inner.waker = None;
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Command> {
        let mut inner = self.lock();
        if let Some(command) = inner.waiting.pop_front() {
            return Poll::Ready(command);
        }
        if !inner
            .waker
            .as_ref()
            .is_some_and(|w| w.will_wake(cx.waker()))
        {
            inner.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Whether an abort has come; anything else is too late for a running answer and is dropped.
    pub(super) fn poll_abort(&self, cx: &mut Context<'_>) -> bool {
        loop {
            match self.poll_next(cx) {
                Poll::Pending => return false,
                Poll::Ready(Command::Abort) => return true,
                Poll::Ready(_) => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
