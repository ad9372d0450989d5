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
mod stream;

pub use arrival::{Arrival, Problem, request_id};
pub use command::{Command, Mailbox, Respond};
pub use ending::{Ending, Finished, Outcome};
pub use forward::{BreakKind, Failure, FailureKind, Forward, ForwardSpec, Target, Whole};
pub use stream::{Chunk, StreamBody};

use crate::{events::Event, plane::Context};
use attempt::Success;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;

/// What the client is sent.
pub struct Reply {
    /// Status line and fields, without framing, `Connection` and the empty line.
    pub head: BytesMut,
    pub status: u16,
    pub body: ReplyBody,
}

pub enum ReplyBody {
    Whole(Bytes),
    Stream(Box<StreamBody>),
}

/// A rule of a listener: requests under this prefix are forwarded at once, without asking.
#[derive(Debug)]
pub struct Standing {
    pub prefix: Bytes,
    /// Bytes taken off the front of the path.
    pub cut: usize,
    pub target: Target,
    pub spec: Arc<ForwardSpec>,
}

/// Leads one exchange to its reply; `None` when the connection is to be closed without one.
pub async fn run(
    context: &Context,
    arrival: &Arc<Arrival>,
    standing: Option<&Standing>,
    ending: &mut Ending,
) -> Option<Reply> {
    let mut told = Told {
        context,
        arrival,
        is_announced: false,
    };
    let mut next = match standing {
        Some(rule) if arrival.problem.is_none() => {
            Command::Forward(Box::new(Forward::standing(arrival, rule)))
        }
        _ => {
            told.announce(ending);
            arrival.mailbox.next().await
        }
    };
    loop {
        next = match next {
            Command::Respond(respond) => {
                ending.answered_by_command(respond.status, respond.body.len());
                return Some(respond.into_reply(arrival));
            }
            Command::Abort => {
                ending.finish(Outcome::Aborted);
                return None;
            }
            // Nothing waits to be released: the command came too late.
            Command::Release => arrival.mailbox.next().await,
            Command::Forward(forward) => match follow(&mut told, forward, ending).await {
                Followed::Reply(reply) => return Some(reply),
                Followed::Next(command) => command,
            },
        };
    }
}

enum Followed {
    Reply(Reply),
    Next(Command),
}

async fn follow(told: &mut Told<'_>, forward: Box<Forward>, ending: &mut Ending) -> Followed {
    let arrival = told.arrival;
    ending.attempt = forward.attempt;
    // A command that comes meanwhile (the answer is not wanted any more) ends the attempt.
    let result = tokio::select! {
        biased;
        result = attempt::attempt(told, &forward) => result,
        command = arrival.mailbox.next() => return Followed::Next(command),
    };
    match result {
        Ok(Success::Stream(body, head)) => {
            let status = head.status;
            let head = forward.reply_head(arrival, &head);
            told.context
                .events
                .push_if(told.is_announced, || Event::Started {
                    handle: arrival.handle,
                    attempt: forward.attempt,
                    seconds: body.first_byte_s(),
                });
            ending.status = status;
            Followed::Reply(Reply {
                head,
                status,
                body: ReplyBody::Stream(body),
            })
        }
        Ok(Success::Whole(whole)) if forward.spec.judge => {
            let event = Event::Answered {
                handle: arrival.handle,
                attempt: forward.attempt,
                whole: whole.clone(),
            };
            told.context.events.push(event);
            match arrival.mailbox.next().await {
                Command::Release => Followed::Reply(release(arrival, &forward, &whole, ending)),
                other => Followed::Next(other),
            }
        }
        Ok(Success::Whole(whole)) => Followed::Reply(release(arrival, &forward, &whole, ending)),
        Err(failure) => {
            told.announce(ending);
            let event = Event::Failed {
                handle: arrival.handle,
                attempt: forward.attempt,
                failure,
            };
            told.context.events.push(event);
            Followed::Next(arrival.mailbox.next().await)
        }
    }
}

fn release(arrival: &Arrival, forward: &Forward, whole: &Whole, ending: &mut Ending) -> Reply {
    ending.answered_whole(whole);
    Reply {
        head: forward.reply_head(arrival, &whole.head),
        status: whole.head.status,
        body: ReplyBody::Whole(whole.body.clone()),
    }
}

/// Whether Python has heard of this exchange; under a standing rule only a failure makes it so.
pub(crate) struct Told<'a> {
    pub context: &'a Context,
    pub arrival: &'a Arc<Arrival>,
    pub is_announced: bool,
}

impl Told<'_> {
    fn announce(&mut self, ending: &mut Ending) {
        if !std::mem::replace(&mut self.is_announced, true) {
            ending.is_announced = true;
            self.context
                .events
                .push(Event::Arrived(self.arrival.clone()));
        }
    }
}
