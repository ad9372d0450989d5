//! An answer that is passed on while it comes: metered, bounded in silence and length, and never
//! ended as if it were whole when it is not.

use super::{Arrival, ForwardSpec, forward::BreakKind};
use crate::{
    meter::{Meter, Usage},
    seldom::Seldom,
    upstream::{LinkClosed, UpBody},
};
use bytes::{Bytes, BytesMut};
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::time::{Sleep, sleep_until};

/// What was read already is passed on in pieces of this size, so that its reader's pace holds it back.
const FIRST_BYTES: usize = 64 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub enum Chunk {
    Data(Bytes),
    /// Whole, with everything the backend wrote.
    End,
    /// Broken off: the bytes are the last to send, and the connection must not end as if whole.
    Broken(BreakKind, Bytes),
}

pub(super) struct StreamStart {
    /// What has been read already.
    pub first: Bytes,
    pub body: UpBody,
    /// Nothing but the close tells the body's end.
    pub ends_by_close: bool,
    /// Resolves when the link under the stream is gone.
    pub link_closed: Option<LinkClosed>,
    pub kind: StreamKind,
}

/// What can be read in an answer that is passed on as it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamKind {
    /// Events, behind which one of ours can be written.
    Events,
    /// One JSON text, too long to hold, or what may be one.
    Json {
        is_certain: bool,
    },
    Opaque,
}

pub(super) struct StreamLimits {
    pub begun: Instant,
    pub idle: Duration,
    pub total: Option<Duration>,
}

pub struct StreamBody {
    arrival: Arc<Arrival>,
    spec: Arc<ForwardSpec>,
    first: Option<Bytes>,
    body: UpBody,
    meter: Option<Meter>,
    is_event_stream: bool,
    /// By its sender's kind, or as nothing else tells a death from the end.
    needs_end_mark: bool,
    link_closed: Option<LinkClosed>,
    started_at: Instant,
    /// Since when nothing has come though we listened; none while pieces come.
    silent_since: Option<Instant>,
    limits: StreamLimits,
    // One timer, set anew only when it fires: pieces come far more often than it does.
    timer: Pin<Box<Sleep>>,
    news: Seldom,
    is_aborted: bool,
    is_unlinked: bool,
    has_timer_fired: bool,
    is_over: bool,
}

impl StreamBody {
    pub(super) fn new(
        arrival: Arc<Arrival>,
        spec: Arc<ForwardSpec>,
        start: StreamStart,
        limits: StreamLimits,
    ) -> Self {
        let now = Instant::now();
        let tells_break = spec.break_events.iter().any(|event| !event.is_empty());
        let is_event_stream = start.kind == StreamKind::Events;
        let can_tell_end = is_event_stream || start.kind == StreamKind::Json { is_certain: true };
        let needs_end_mark = can_tell_end && (spec.needs_end_mark || start.ends_by_close);
        let meter = match start.kind {
            StreamKind::Events if spec.meter || needs_end_mark || tells_break => Some(Meter::new()),
            StreamKind::Json { .. } if spec.meter || needs_end_mark => Some(Meter::of_body()),
            _ => None,
        };
        let timer = Box::pin(sleep_until(next_check(now, &limits).into()));
        StreamBody {
            arrival,
            spec,
            first: Some(start.first),
            body: start.body,
            meter,
            is_event_stream,
            needs_end_mark,
            link_closed: start.link_closed,
            started_at: now,
            silent_since: None,
            limits,
            timer,
            news: Seldom::default(),
            is_aborted: false,
            is_unlinked: false,
            has_timer_fired: false,
            is_over: false,
        }
    }

    /// Seconds from the request's arrival to the first byte of the answer.
    pub fn first_byte_s(&self) -> f64 {
        self.started_at
            .duration_since(self.arrival.arrived_at)
            .as_secs_f64()
    }

    /// What the meter has read so far.
    pub fn usage(&self) -> Option<Usage> {
        let meter = self.meter.as_ref().filter(|_| self.spec.meter)?;
        meter.is_readable().then(|| meter.snapshot())
    }

    fn seen(&self) -> Option<Usage> {
        self.meter.as_ref().map(Meter::snapshot)
    }

    /// Whether all that makes the answer has been handed out, though its sender may not have ended it yet.
    ///
    /// Source: decisions.md 37.
    pub fn has_said_all(&self) -> bool {
        self.first.is_none() && (self.has_end_mark() || self.body.is_whole())
    }

    pub fn is_event_stream(&self) -> bool {
        self.is_event_stream
    }

    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Chunk> {
        if let Some(mut piece) = self.first.take() {
            if piece.len() > FIRST_BYTES {
                self.first = Some(piece.split_off(FIRST_BYTES));
            }
            return Poll::Ready(self.pass(piece));
        }
        if self.is_over {
            return Poll::Ready(Chunk::End);
        }
        self.poll_news(cx);
        if self.is_aborted {
            return Poll::Ready(self.break_off(BreakKind::Aborted));
        }
        let next = self.body.poll_next(cx);
        if next.is_ready() {
            self.silent_since = None;
        }
        match next {
            // A backend that never pauses would else never be looked at.
            Poll::Ready(Ok(Some(_))) if self.is_overtime() => {
                Poll::Ready(self.break_off(BreakKind::Overtime))
            }
            Poll::Ready(Ok(Some(piece))) => Poll::Ready(self.pass(piece)),
            Poll::Ready(Ok(None)) if self.ends_properly() => Poll::Ready(self.end()),
            // All that matters was said before the connection died.
            Poll::Ready(Err(_)) if self.has_end_mark() => Poll::Ready(self.end()),
            Poll::Ready(_) => {
                self.look_again(cx);
                Poll::Ready(self.break_off(if self.is_unlinked {
                    BreakKind::LinkLost
                } else {
                    BreakKind::Lost
                }))
            }
            Poll::Pending => self.poll_limits(cx),
        }
    }

    /// What ends the stream while nobody takes its pieces: a command, or its total time.
    pub fn poll_called_off(&mut self, cx: &mut Context<'_>) -> Poll<BreakKind> {
        self.poll_news(cx);
        if self.is_aborted {
            return Poll::Ready(BreakKind::Aborted);
        }
        let Some(total) = self.limits.total else {
            return Poll::Pending;
        };
        if self.is_overtime() {
            return Poll::Ready(BreakKind::Overtime);
        }
        let due = self.limits.begun + total;
        if self.has_timer_fired || self.timer.deadline() != due.into() {
            self.set_timer(due, cx);
        }
        if self.has_timer_fired {
            return Poll::Ready(BreakKind::Overtime);
        }
        Poll::Pending
    }

    /// Asks whatever else could end the stream, if any of it has called.
    fn poll_news(&mut self, cx: &mut Context<'_>) {
        if !self.news.is_due(cx) {
            return;
        }
        let waker = self.news.waker();
        let cx = &mut Context::from_waker(&waker);
        self.is_aborted |= self.arrival.mailbox.poll_abort(cx);
        if let Some(closed) = &mut self.link_closed
            && closed.as_mut().poll(cx).is_ready()
        {
            self.link_closed = None;
            self.is_unlinked = true;
        }
        if !self.has_timer_fired {
            self.has_timer_fired = self.timer.as_mut().poll(cx).is_ready();
        }
    }

    fn look_again(&mut self, cx: &mut Context<'_>) {
        self.news.ask_again();
        self.poll_news(cx);
    }

    fn set_timer(&mut self, due: Instant, cx: &mut Context<'_>) {
        self.timer.as_mut().reset(due.into());
        self.has_timer_fired = false;
        self.look_again(cx);
    }

    fn poll_limits(&mut self, cx: &mut Context<'_>) -> Poll<Chunk> {
        if self.is_unlinked {
            return Poll::Ready(self.break_off(BreakKind::LinkLost));
        }
        // Silence counts from when all that came had been taken, so that a slow reader is not
        // charged to the backend.
        let silent_since = *self.silent_since.get_or_insert_with(Instant::now);
        let due = next_check(silent_since, &self.limits);
        if self.timer.deadline() > due.into() {
            self.set_timer(due, cx);
        }
        while self.has_timer_fired {
            if self.is_overtime() {
                return Poll::Ready(self.break_off(BreakKind::Overtime));
            }
            if Instant::now() >= silent_since + self.limits.idle {
                return Poll::Ready(self.break_off(BreakKind::Idle));
            }
            self.set_timer(due, cx);
        }
        Poll::Pending
    }

    fn is_overtime(&self) -> bool {
        let limits = &self.limits;
        limits
            .total
            .is_some_and(|total| limits.begun.elapsed() >= total)
    }

    fn pass(&mut self, piece: Bytes) -> Chunk {
        if let Some(meter) = &mut self.meter {
            meter.feed(&piece);
        }
        Chunk::Data(piece)
    }

    fn ends_properly(&self) -> bool {
        !self.needs_end_mark || self.has_end_mark()
    }

    fn has_end_mark(&self) -> bool {
        self.meter.as_ref().is_some_and(Meter::has_end_mark)
    }

    fn end(&mut self) -> Chunk {
        self.is_over = true;
        Chunk::End
    }

    fn break_off(&mut self, kind: BreakKind) -> Chunk {
        // Dropping the rest resets the stream, which is how the other side learns of it.
        self.body.abandon();
        // Nothing is missing that a reader waits for, and nothing may follow.
        if self.has_end_mark() {
            return self.end();
        }
        self.is_over = true;
        let event = &self.spec.break_events[kind as usize];
        if event.is_empty() || !self.is_event_stream {
            return Chunk::Broken(kind, Bytes::new());
        }
        let seen = self.seen().unwrap_or(Usage {
            at_boundary: true,
            ..Usage::default()
        });
        let event = numbered(event, &self.spec.sequence_mark, &seen);
        if seen.at_boundary {
            return Chunk::Broken(kind, event);
        }
        // The event under way is closed first, so that ours is read as one of its own.
        let mut last = BytesMut::with_capacity(event.len() + 2);
        last.extend_from_slice(b"\n\n");
        last.extend_from_slice(&event);
        Chunk::Broken(kind, last.freeze())
    }
}

/// The event with its number in the place of the mark: the one behind the last that was seen, or,
/// in a stream that does not number its events, as many as have come.
fn numbered(event: &Bytes, mark: &[u8], seen: &Usage) -> Bytes {
    let at = match mark.is_empty() {
        true => None,
        false => memchr::memmem::find(event, mark),
    };
    let Some(at) = at else {
        return event.clone();
    };
    let number = match seen.sequence_number {
        Some(last) => last.saturating_add(1),
        None => seen.events + u64::from(!seen.at_boundary),
    };
    let rest = &event[at + mark.len()..];
    [&event[..at], number.to_string().as_bytes(), rest]
        .concat()
        .into()
}

fn next_check(silent_since: Instant, limits: &StreamLimits) -> Instant {
    let idle_at = silent_since + limits.idle;
    limits
        .total
        .map_or(idle_at, |total| idle_at.min(limits.begun + total))
}
