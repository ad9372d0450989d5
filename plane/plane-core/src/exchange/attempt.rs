//! One attempt: send the request, wait for the first byte of an answer worth passing on.

use super::{
    Arrival, Command, Failure, FailureKind, Forward, StreamBody, Told, Whole,
    looks::{Looks, is_blank},
    stream::{StreamKind, StreamLimits, StreamStart},
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

pub(super) enum Attempted {
    /// The answer, and the seconds to its head.
    Over(Result<(Success, f64), Box<Failure>>),
    /// This command came meanwhile: the answer is not wanted any more.
    CalledOff(Command),
}

pub(super) async fn attempt(told: &Told<'_>, forward: &Forward) -> Attempted {
    let mut attempt = Attempt {
        told,
        forward,
        begun: Instant::now(),
        head_s: 0.0,
        trail: Trail::default(),
    };
    let too_long = |why| Err(Failure::new(FailureKind::Timeout, why));
    let result = tokio::select! {
        biased;
        result = tokio::time::timeout(forward.within, attempt.reach_first_byte()) => {
            result.unwrap_or_else(|_| too_long("no answer within the time allowed"))
        }
        command = next_command(told.arrival, forward.attempt) => match command {
            Command::GiveUp(_) => too_long("no answer yet, and given up"),
            command => return Attempted::CalledOff(command),
        },
    };
    Attempted::Over(match result {
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
    })
}

/// The next command that has to do with a running attempt.
async fn next_command(arrival: &Arrival, attempt: u32) -> Command {
    loop {
        match arrival.mailbox.next().await {
            Command::Release => {}
            Command::GiveUp(given_up) if given_up != attempt => {}
            command => return command,
        }
    }
}

/// An answer as its head came.
struct Come {
    answer: Answer,
    /// Nothing but the close tells where its body ends.
    ends_by_close: bool,
}

impl std::ops::Deref for Come {
    type Target = Answer;

    fn deref(&self) -> &Answer {
        &self.answer
    }
}

impl std::ops::DerefMut for Come {
    fn deref_mut(&mut self) -> &mut Answer {
        &mut self.answer
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
        let answer = sent.await?;
        drop(request);
        self.head_s = self.begun.elapsed().as_secs_f64();
        let ends_by_close = answer.body.ends_by_close();
        let answer = Come {
            answer,
            ends_by_close,
        };
        let status = answer.head.status;
        let is_stream = answer.head.is_event_stream();
        if is_stream {
            self.tell_head(status);
        }
        if status != 200 && !forward.spec.relay_any_status {
            return Err(refused(answer.answer).await);
        }
        self.collect(answer, is_stream).await
    }

    /// Only a stream's slot ends at its head; of a buffered answer the end tells all.
    fn tell_head(&self, status: u16) {
        let told = self.told;
        told.context
            .events
            .push_if(told.is_announced, || Event::Head {
                handle: told.arrival.handle,
                attempt: self.forward.attempt,
                status,
                seconds: self.head_s,
            });
    }

    /// Holds the answer until it is whole, known for a stream that has begun, too long to hold, or all
    /// that are held are.
    async fn collect(&self, mut answer: Come, is_labelled: bool) -> Result<Success, Box<Failure>> {
        let is_ok = answer.head.status == 200 && !self.told.arrival.is_head_method();
        // What a body looks like counts only where a stream was asked for and the label says otherwise.
        let mut is_undecided =
            is_ok && !is_labelled && !answer.head.is_coded() && self.told.arrival.asks_for_stream();
        let mut room = Held::nothing(&self.told.context.answers);
        let mut held = Bytes::new();
        let mut all = BytesMut::new();
        loop {
            let piece = match answer.body.next().await {
                Ok(Some(piece)) => piece,
                Ok(None) => {
                    let body = joined(held, all);
                    return self.judged(answer, room.until_gone(body));
                }
                Err(broken) => {
                    let body = joined(held, all);
                    let is_whole_without = answer.ends_by_close
                        && is_json(&answer.head, &body)
                        && meter::is_whole_json(&body);
                    return match is_whole_without {
                        // All that matters was said before the connection died.
                        true => self.judged(answer, room.until_gone(body)),
                        false => Err(Failure::new(FailureKind::Truncated, broken.0)),
                    };
                }
            };
            // The first piece is often the whole; others are copied together, as each one keeps a
            // buffer of its own alive that may be far larger than the piece.
            if all.is_empty() && held.is_empty() {
                held = piece;
            } else {
                all.extend_from_slice(&std::mem::take(&mut held));
                all.extend_from_slice(&piece);
            }
            let so_far = if all.is_empty() { &held[..] } else { &all[..] };
            if is_undecided && let Some(looks) = Looks::of(so_far) {
                is_undecided = false;
                // What is called JSON and ends with the connection is looked at whole.
                let may_be_cut = answer.ends_by_close && is_json(&answer.head, so_far);
                if looks == Looks::Events || looks == Looks::Other && !may_be_cut {
                    self.tell_head(answer.head.status);
                    let kind = match looks {
                        Looks::Events => StreamKind::Events,
                        _ => StreamKind::Opaque,
                    };
                    let first = room.until_gone(joined(held, all));
                    return Ok(self.start_stream(first, answer, kind));
                }
            }
            // Nothing but blanks is no answer yet.
            let has_begun = is_labelled && !(is_ok && is_blank(so_far));
            if has_begun
                || so_far.len() > self.forward.spec.buffered_bytes_max
                || !room.hold(held.len() + all.capacity())
            {
                let kind = match is_labelled {
                    _ if answer.head.is_coded() => StreamKind::Opaque,
                    true => StreamKind::Events,
                    false => StreamKind::Json {
                        is_certain: answer.head.is_plain_json()
                            || answer.ends_by_close && is_json(&answer.head, so_far),
                    },
                };
                let first = room.until_gone(joined(held, all));
                return Ok(self.start_stream(first, answer, kind));
            }
        }
    }

    fn start_stream(&self, first: Bytes, answer: Come, kind: StreamKind) -> Success {
        let spec = &self.forward.spec;
        let Come {
            answer,
            ends_by_close,
        } = answer;
        let start = StreamStart {
            first,
            body: answer.body,
            ends_by_close,
            link_closed: answer.link_closed,
            kind,
        };
        let limits = StreamLimits {
            begun: self.begun,
            idle: spec.idle,
            total: spec.total,
        };
        let body = StreamBody::new(self.told.arrival.clone(), spec.clone(), start, limits);
        Success::Stream(Box::new(body), answer.head)
    }

    /// An answer that its sender has ended before any of it went on; whether that is its end, a body tells by
    /// itself.
    ///
    /// Source: decisions.md 39; wire.md §8.4, §8.7; field-cases.md A-16, O-27.
    fn judged(&self, answer: Come, body: Bytes) -> Result<Success, Box<Failure>> {
        let needs_end_mark = self.forward.spec.needs_end_mark;
        let head = answer.answer.head;
        let is_ok = head.status == 200 && !self.told.arrival.is_head_method();
        let why = if head.is_event_stream() && (is_ok || needs_end_mark) {
            // Some engines end a stream that they could not begin as if that were an answer.
            Some("the stream ended before it began")
        } else if is_ok
            && (needs_end_mark && head.is_plain_json()
                || answer.ends_by_close && is_json(&head, &body))
            && !meter::is_whole_json(&body)
        {
            Some("the JSON of the answer is not whole")
        } else if is_ok && is_blank(&body) {
            Some("the answer has no body")
        } else {
            None
        };
        match why {
            Some(why) => Err(Failure::new(FailureKind::Truncated, why)),
            None => Ok(self.whole(head, body)),
        }
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

/// One JSON text by its label or, where it has none, by its looks.
fn is_json(head: &ResponseHead, body: &[u8]) -> bool {
    let is_bare = !head.is_labelled() && !head.is_coded();
    head.is_plain_json() || is_bare && Looks::of(body) == Some(Looks::Json)
}

/// What has been read of an answer: its only piece, or all of them copied together.
fn joined(only: Bytes, all: BytesMut) -> Bytes {
    if all.is_empty() { only } else { all.freeze() }
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
