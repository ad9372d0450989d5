//! One request and everything that happens to it: it arrives, is forwarded once or several times,
//! and ends in exactly one way.
//!
//! Invariant: of each announced exchange exactly one `Finished` is told, whichever way out; until
//! the first body byte of an answer is there the client has seen nothing, so another attempt can
//! still be made. What to do is decided elsewhere and comes in as commands.

mod arrival;
mod attempt;
mod command;
mod ending;
mod forward;
mod looks;
mod stream;

pub use arrival::{Arrival, Problem, request_id};
pub use command::{Command, Mailbox, Respond};
pub use ending::{Ending, Finished, Outcome};
pub use forward::{BreakKind, Failure, FailureKind, Forward, ForwardSpec, Target, Whole};
pub use stream::{Chunk, StreamBody};

use crate::{events::Event, plane::Context};
use attempt::{Attempted, Success};
use bytes::{Bytes, BytesMut};
use std::{sync::Arc, time::Duration};

/// What a socket takes without its reader's help.
const TAKEN_AT_ONCE_BYTES_MAX: usize = 64 * 1024;

/// What the client is sent.
pub struct Reply {
    /// Status line and fields, without framing, `Connection` and the empty line.
    pub head: BytesMut,
    pub status: u16,
    pub body: ReplyBody,
}

pub enum ReplyBody {
    Whole(Bytes),
    /// None goes out, by the method or the status; the length is what it would have had.
    Absent(Option<u64>),
    Stream(Box<StreamBody>),
}

impl Reply {
    fn new(head: BytesMut, status: u16, body: ReplyBody) -> Self {
        // Source: RFC 9110 §15.3.5, §15.4.5.
        let body = match status {
            204 | 304 => ReplyBody::Absent(None),
            _ => body,
        };
        Reply { head, status, body }
    }
}

/// A rule of a listener: requests under this prefix are forwarded at once, without asking.
#[derive(Debug)]
pub struct Standing {
    pub prefix: Bytes,
    /// Bytes taken off the front of the path.
    pub cut: usize,
    pub target: Target,
    pub spec: Arc<ForwardSpec>,
    /// Time to the first byte of a stream, or for the whole of a buffered answer.
    pub within: Duration,
}

/// Tells of a request that has come, unless a rule takes it on; also where its client has left meanwhile.
pub fn begin<'a>(
    context: &'a Context,
    arrival: &'a Arc<Arrival>,
    standing: Option<&Standing>,
    ending: &mut Ending,
) -> Told<'a> {
    let mut told = Told {
        context,
        arrival,
        is_announced: false,
    };
    if standing.is_none() || arrival.problem.is_some() {
        told.announce(ending);
    }
    told
}

/// Leads one exchange to its reply; `None` when the connection is to be closed without one.
pub async fn run(
    mut told: Told<'_>,
    standing: Option<&Standing>,
    ending: &mut Ending,
) -> Option<Reply> {
    let arrival = told.arrival;
    let mut next = match standing {
        Some(rule) if !told.is_announced => {
            Command::Forward(Box::new(Forward::standing(arrival, rule)))
        }
        _ => next_command(arrival).await,
    };
    loop {
        next = match next {
            Command::Respond(respond) => {
                let reply = respond.into_reply(arrival);
                ending.answered_by_command(&reply);
                return Some(reply);
            }
            Command::Abort => {
                ending.finish(Outcome::Aborted);
                return None;
            }
            // Nothing waits to be released or given up: the command came too late.
            Command::Release | Command::GiveUp(_) => next_command(arrival).await,
            Command::Forward(forward) => match follow(&mut told, forward, ending).await {
                Followed::Reply(reply) => return Some(reply),
                Followed::Next(command) => command,
            },
        };
    }
}

/// The next command while nothing runs and no answer waits: one that is about either came too late.
async fn next_command(arrival: &Arrival) -> Command {
    loop {
        match arrival.mailbox.next().await {
            Command::Release | Command::GiveUp(_) => {}
            command => return command,
        }
    }
}

enum Followed {
    Reply(Reply),
    Next(Command),
}

async fn follow(told: &mut Told<'_>, forward: Box<Forward>, ending: &mut Ending) -> Followed {
    let arrival = told.arrival;
    ending.attempt = forward.attempt;
    let result = match attempt::attempt(told, &forward).await {
        Attempted::Over(result) => result,
        Attempted::CalledOff(command) => return Followed::Next(command),
    };
    let result = result.map(|(success, head_s)| {
        ending.head_s = head_s;
        success
    });
    match result {
        Ok(Success::Stream(body, head)) => {
            let status = head.status;
            let is_stream = head.is_event_stream() || body.is_event_stream();
            let head = forward.reply_head(arrival, &head, is_stream);
            told.reply_starts(&forward, body.first_byte_s());
            ending.status = status;
            Followed::Reply(Reply::new(head, status, ReplyBody::Stream(body)))
        }
        Ok(Success::Whole(whole)) if forward.spec.judge => {
            told.announce(ending);
            let event = Event::Answered {
                handle: arrival.handle,
                attempt: forward.attempt,
                whole: whole.clone(),
            };
            told.context.events.push(event);
            loop {
                match arrival.mailbox.next().await {
                    Command::GiveUp(_) => {}
                    Command::Release => {
                        return Followed::Reply(release(told, &forward, &whole, ending));
                    }
                    other => return Followed::Next(other),
                }
            }
        }
        Ok(Success::Whole(whole)) => Followed::Reply(release(told, &forward, &whole, ending)),
        Err(failure) => {
            told.announce(ending);
            let event = Event::Failed {
                handle: arrival.handle,
                attempt: forward.attempt,
                failure,
            };
            told.context.events.push(event);
            Followed::Next(next_command(arrival).await)
        }
    }
}

fn release(told: &Told<'_>, forward: &Forward, whole: &Whole, ending: &mut Ending) -> Reply {
    let arrival = told.arrival;
    // The end of a short one tells all; a long one may be held up by its reader.
    if whole.body.len() > TAKEN_AT_ONCE_BYTES_MAX {
        told.reply_starts(forward, arrival.arrived_at.elapsed().as_secs_f64());
    }
    ending.answered_whole(whole);
    let is_stream = whole.head.is_event_stream();
    let head = forward.reply_head(arrival, &whole.head, is_stream);
    let body = if arrival.is_head_method() {
        ReplyBody::Absent(whole.head.content_length())
    } else {
        ReplyBody::Whole(whole.body.clone())
    };
    Reply::new(head, whole.head.status, body)
}

/// Whether Python has heard of this exchange; under a standing rule only a failure makes it so.
pub struct Told<'a> {
    pub context: &'a Context,
    pub arrival: &'a Arc<Arrival>,
    pub is_announced: bool,
}

impl Told<'_> {
    fn reply_starts(&self, forward: &Forward, seconds: f64) {
        self.context
            .events
            .push_if(self.is_announced, || Event::Started {
                handle: self.arrival.handle,
                attempt: forward.attempt,
                seconds,
            });
    }

    fn announce(&mut self, ending: &mut Ending) {
        if !std::mem::replace(&mut self.is_announced, true) {
            ending.is_announced = true;
            self.context
                .events
                .push(Event::Arrived(self.arrival.clone()));
        }
    }
}
