//! One attempt: send the request, wait for the first byte of an answer worth passing on.

use super::{
    Failure, FailureKind, Forward, StreamBody, Told, Whole,
    stream::{StreamLimits, StreamStart},
};
use crate::{
    bodies::Held,
    events::Event,
    http1::{ResponseHead, path::has_dot_segment},
    meter,
    upstream::{Answer, Trail},
};
use bytes::{Bytes, BytesMut};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub(super) enum Success {
    /// The first bytes are there; the rest comes as the backend writes it.
    Stream(Box<StreamBody>, ResponseHead),
    Whole(Arc<Whole>),
}

/// How much of a refusing answer's body is kept for whoever judges it.
const FAILURE_BODY_BYTES_MAX: usize = 64 * 1024;

/// Time for that body: the status is known, and the verdict waits for no more.
const FAILURE_BODY_WITHIN: Duration = Duration::from_secs(2);

/// The answer, and the seconds to its head.
pub(super) async fn attempt(
    told: &Told<'_>,
    forward: &Forward,
) -> Result<(Success, f64), Box<Failure>> {
    let mut attempt = Attempt {
        told,
        forward,
        begun: Instant::now(),
        head_s: 0.0,
        trail: Trail::default(),
    };
    let result = match tokio::time::timeout(forward.within, attempt.reach_first_byte()).await {
        Ok(result) => result,
        Err(_) => Err(Failure::new(
            FailureKind::Timeout,
            "no answer within the time allowed",
        )),
    };
    match result {
        Ok(success) => Ok((success, attempt.head_s)),
        Err(mut failure) => {
            failure.head_s = attempt.head_s;
            let trail = &attempt.trail;
            failure.is_link_down = failure.kind == FailureKind::NoLink || trail.is_link_closed();
            failure.unlinked = match failure.is_link_down {
                true => told.context.lanes.unlinked(&forward.target),
                false => None,
            };
            failure.is_taken =
                trail.is_taken || (failure.kind == FailureKind::Truncated && attempt.head_s > 0.0);
            failure.is_stale = trail.is_stale;
            Err(failure)
        }
    }
}

struct Attempt<'a> {
    told: &'a Told<'a>,
    forward: &'a Forward,
    begun: Instant,
    /// Seconds to the response head; 0 until it is there.
    head_s: f64,
    trail: Trail,
}

impl Attempt<'_> {
    async fn reach_first_byte(&mut self) -> Result<Success, Box<Failure>> {
        let (told, forward) = (self.told, self.forward);
        if told.arrival.problem.is_some() && forward.body.is_none() {
            let why = "the request's own body is not whole";
            return Err(Failure::new(FailureKind::Truncated, why));
        }
        // Where it leads depends on who reads it, so a rule for a prefix says nothing about it.
        let path = forward.path.split(|b| *b == b'?').next();
        if path.is_some_and(has_dot_segment) {
            let why = "a path with dot segments is not forwarded";
            return Err(Failure::new(FailureKind::Malformed, why));
        }
        let request = forward.request(told.arrival);
        let resend = forward.resend(told.arrival);
        let lanes = &told.context.lanes;
        let sent = lanes.send(&forward.target, &request, resend, &mut self.trail);
        let mut answer = sent.await?;
        drop(request);
        self.head_s = self.begun.elapsed().as_secs_f64();
        let (status, is_stream) = (answer.head.status, answer.head.is_event_stream());
        // Only a stream's slot ends at its head; of a buffered answer the end tells all.
        told.context
            .events
            .push_if(told.is_announced && is_stream, || Event::Head {
                handle: told.arrival.handle,
                attempt: forward.attempt,
                status,
                seconds: self.head_s,
            });
        if status != 200 && !forward.spec.relay_any_status {
            return Err(refused(answer).await);
        }
        if !is_stream {
            return self.collect(answer).await;
        }
        match answer.body.next().await {
            Ok(Some(first)) => Ok(self.start_stream(first, answer)),
            // Some engines end a stream that they could not begin as if that were an answer.
            Ok(None)
                if forward.spec.needs_end_mark
                    || (status == 200 && !told.arrival.is_head_method()) =>
            {
                let why = "the stream ended before it began";
                Err(Failure::new(FailureKind::Truncated, why))
            }
            Ok(None) => Ok(self.whole(answer.head, Bytes::new())),
            Err(broken) => Err(Failure::new(FailureKind::Truncated, broken.0)),
        }
    }

    /// Holds the answer until it is whole, or until it is too long to hold, or all that are held are.
    async fn collect(&self, mut answer: Answer) -> Result<Success, Box<Failure>> {
        let mut room = Held::nothing(&self.told.context.answers);
        let mut held = Bytes::new();
        let mut all = BytesMut::new();
        loop {
            let piece = match answer.body.next().await {
                Ok(Some(piece)) => piece,
                Ok(None) => {
                    let body = if all.is_empty() { held } else { all.freeze() };
                    return self.judged(answer.head, room.until_gone(body));
                }
                Err(broken) => return Err(Failure::new(FailureKind::Truncated, broken.0)),
            };
            // The first piece is often the whole; others are copied together, as each one keeps a
            // buffer of its own alive that may be far larger than the piece.
            if all.is_empty() && held.is_empty() {
                held = piece;
            } else {
                all.extend_from_slice(&std::mem::take(&mut held));
                all.extend_from_slice(&piece);
            }
            let is_held = room.hold(held.len() + all.capacity());
            if !is_held || held.len() + all.len() > self.forward.spec.buffered_bytes_max {
                let first = if all.is_empty() { held } else { all.freeze() };
                return Ok(self.start_stream(room.until_gone(first), answer));
            }
        }
    }

    fn start_stream(&self, first: Bytes, answer: Answer) -> Success {
        let spec = &self.forward.spec;
        let start = StreamStart {
            first,
            is_event_stream: answer.head.is_event_stream() && !answer.head.is_coded(),
            body: answer.body,
            link_closed: answer.link_closed,
        };
        let limits = StreamLimits {
            begun: self.begun,
            idle: spec.idle,
            total: spec.total,
        };
        let body = StreamBody::new(self.told.arrival.clone(), spec.clone(), start, limits);
        Success::Stream(Box::new(body), answer.head)
    }

    /// A buffered answer that its sender has ended; whether that is its end, JSON tells by itself.
    ///
    /// Source: wire.md §8.4, §8.7; field-cases.md A-16.
    fn judged(&self, head: ResponseHead, body: Bytes) -> Result<Success, Box<Failure>> {
        let is_told = self.forward.spec.needs_end_mark
            && head.status == 200
            && head.is_plain_json()
            && !self.told.arrival.is_head_method();
        if is_told && !meter::is_whole_json(&body) {
            let why = "the JSON of the answer is not whole";
            return Err(Failure::new(FailureKind::Truncated, why));
        }
        Ok(self.whole(head, body))
    }

    fn whole(&self, head: ResponseHead, body: Bytes) -> Success {
        let usage = if self.forward.spec.meter {
            meter::usage_of_body(&body)
        } else {
            None
        };
        Success::Whole(Arc::new(Whole { head, body, usage }))
    }
}

async fn refused(mut answer: Answer) -> Box<Failure> {
    let mut kept = BytesMut::new();
    let reading = async {
        while let Ok(Some(piece)) = answer.body.next().await {
            let room = FAILURE_BODY_BYTES_MAX - kept.len();
            kept.extend_from_slice(&piece[..piece.len().min(room)]);
            if kept.len() == FAILURE_BODY_BYTES_MAX {
                break;
            }
        }
    };
    // What came in time is what there is to judge by.
    let _ = tokio::time::timeout(FAILURE_BODY_WITHIN, reading).await;
    let mut failure = Failure::new(FailureKind::Status, "");
    failure.status = answer.head.status;
    failure.fields = answer.head.fields;
    failure.body = kept.freeze();
    failure
}
