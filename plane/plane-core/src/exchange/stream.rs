//! An answer that is passed on while it comes: metered, bounded in silence and length, and never
//! ended as if it were whole when it is not.

use super::{Arrival, ForwardSpec, forward::BreakKind};
use crate::{
    meter::{Meter, Usage},
    upstream::UpBody,
};
use bytes::{Bytes, BytesMut};
use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};
use tokio::time::{Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;

#[derive(Debug, PartialEq, Eq)]
pub enum Chunk {
    Data(Bytes),
    /// Whole, with everything the backend wrote.
    End,
    /// Broken off: the bytes are the last to send, and the connection must not end as if whole.
    Broken(BreakKind, Bytes),
}

pub(super) struct StreamStart {
    /// What has been read already, at least one piece.
    pub first: Vec<Bytes>,
    pub body: UpBody,
    /// Resolves when the link under the stream is gone.
    pub lane_closed: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    pub is_event_stream: bool,
}

pub(super) struct StreamLimits {
    pub begun: Instant,
    pub idle: Duration,
    pub total: Option<Duration>,
}

pub struct StreamBody {
    arrival: Arc<Arrival>,
    spec: Arc<ForwardSpec>,
    waiting: VecDeque<Bytes>,
    body: UpBody,
    meter: Option<Meter>,
    is_event_stream: bool,
    lane_closed: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    started_at: Instant,
    last_piece_at: Instant,
    limits: StreamLimits,
    // One timer, set anew only when it fires: pieces come far more often than it does.
    timer: Pin<Box<Sleep>>,
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
        let meter = (start.is_event_stream && (spec.meter || spec.needs_end_mark)).then(Meter::new);
        let timer = Box::pin(sleep_until(next_check(now, &limits).into()));
        StreamBody {
            arrival,
            spec,
            waiting: start.first.into(),
            body: start.body,
            meter,
            is_event_stream: start.is_event_stream,
            lane_closed: start.lane_closed,
            started_at: now,
            last_piece_at: now,
            limits,
            timer,
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
        self.meter.as_ref().map(Meter::snapshot)
    }

    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Chunk> {
        if let Some(piece) = self.waiting.pop_front() {
            return Poll::Ready(self.pass(piece));
        }
        if self.is_over {
            return Poll::Ready(Chunk::End);
        }
        if self.arrival.mailbox.poll_abort(cx) {
            return Poll::Ready(self.break_off(BreakKind::Aborted));
        }
        match self.body.poll_next(cx) {
            Poll::Ready(Ok(Some(piece))) => {
                self.last_piece_at = Instant::now();
                Poll::Ready(self.pass(piece))
            }
            Poll::Ready(Ok(None)) if self.ends_properly() => Poll::Ready(self.end()),
            // All that matters was said before the connection died.
            Poll::Ready(Err(_)) if self.has_end_mark() => Poll::Ready(self.end()),
            Poll::Ready(_) => Poll::Ready(self.break_off(BreakKind::Lost)),
            Poll::Pending => self.poll_limits(cx),
        }
    }

    fn poll_limits(&mut self, cx: &mut Context<'_>) -> Poll<Chunk> {
        if self
            .lane_closed
            .as_mut()
            .is_some_and(|closed| closed.as_mut().poll(cx).is_ready())
        {
            return Poll::Ready(self.break_off(BreakKind::Lost));
        }
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            if self
                .limits
                .total
                .is_some_and(|total| now >= self.limits.begun + total)
            {
                return Poll::Ready(self.break_off(BreakKind::Overtime));
            }
            if now >= self.last_piece_at + self.limits.idle {
                return Poll::Ready(self.break_off(BreakKind::Idle));
            }
            self.timer
                .as_mut()
                .reset(next_check(self.last_piece_at, &self.limits).into());
        }
    }

    fn pass(&mut self, piece: Bytes) -> Chunk {
        if let Some(meter) = &mut self.meter {
            meter.feed(&piece);
        }
        Chunk::Data(piece)
    }

    fn ends_properly(&self) -> bool {
        !(self.is_event_stream && self.spec.needs_end_mark) || self.has_end_mark()
    }

    fn has_end_mark(&self) -> bool {
        self.usage().is_some_and(|usage| {
            self.is_event_stream && (usage.terminator_seen || usage.finish_seen)
        })
    }

    fn end(&mut self) -> Chunk {
        self.is_over = true;
        Chunk::End
    }

    fn break_off(&mut self, kind: BreakKind) -> Chunk {
        self.is_over = true;
        // Dropping the rest resets the stream, which is how the other side learns of it.
        self.body.abandon();
        let event = &self.spec.break_events[kind as usize];
        if event.is_empty() || !self.is_event_stream {
            return Chunk::Broken(kind, Bytes::new());
        }
        let at_boundary = self.usage().is_none_or(|usage| usage.at_boundary);
        if at_boundary {
            return Chunk::Broken(kind, event.clone());
        }
        // The event under way is closed first, so that ours is read as one of its own.
        let mut last = BytesMut::with_capacity(event.len() + 2);
        last.extend_from_slice(b"\n\n");
        last.extend_from_slice(event);
        Chunk::Broken(kind, last.freeze())
    }
}

fn next_check(last_piece_at: Instant, limits: &StreamLimits) -> Instant {
    let idle_at = last_piece_at + limits.idle;
    limits
        .total
        .map_or(idle_at, |total| idle_at.min(limits.begun + total))
}
