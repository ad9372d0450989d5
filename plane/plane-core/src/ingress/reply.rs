//! Sends one reply: frames it, writes it, and says what becomes of the connection.

use super::{
    door::DoorSpec,
    io::ServerIo,
    serve::{After, Served},
    write::{self, Line, Sent},
};
use crate::{
    events::Event,
    exchange::{Arrival, Ending, Outcome, Problem, Reply, ReplyBody, StreamBody},
    http1::{
        Refused,
        write::{has_name, put_field, put_length, put_status_line, put_values},
    },
};
use bytes::{Bytes, BytesMut};

impl<IO: ServerIo> Served<IO> {
    pub(super) async fn send(
        &mut self,
        arrival: &Arrival,
        reply: Reply,
        mut ending: Ending,
    ) -> After {
        let request = &arrival.head;
        let Reply { mut head, body, .. } = reply;
        // An idle stream keeps its place among those served, so it gives way where another one waits.
        let gives_way = self
            .who
            .link
            .as_ref()
            .is_some_and(|conn| conn.has_waiting());
        let keeps = request.keep_alive
            && arrival.problem.is_none()
            && !gives_way
            && !self.watch.is_flooded()
            && !self.door.is_closing();
        let (length, whole) = match body {
            ReplyBody::Stream(body) => {
                return self.send_stream(arrival, head, body, keeps, ending).await;
            }
            ReplyBody::Absent(length) => (length, Bytes::new()),
            ReplyBody::Whole(body) => (Some(body.len() as u64), body),
        };
        let length = length.map_or(Length::Untold, Length::Known);
        finish_head(&mut head, length, keeps, request.is_http11);
        match write::whole(&mut self.io, head, whole, &self.door).await {
            Sent::Whole => self.after_whole(arrival, keeps),
            _ => {
                ending.finish(Outcome::ClientLeft);
                After::Drop
            }
        }
    }

    async fn send_stream(
        &mut self,
        arrival: &Arrival,
        mut head: BytesMut,
        mut body: Box<StreamBody>,
        keeps: bool,
        mut ending: Ending,
    ) -> After {
        let is_http11 = arrival.head.is_http11;
        let length = if is_http11 {
            Length::Chunked
        } else {
            Length::Untold
        };
        let keeps = keeps && is_http11;
        finish_head(&mut head, length, keeps, is_http11);
        let line = Line {
            io: &mut self.io,
            held_back: &mut self.buf,
            watch: &mut self.watch,
            door: &self.door,
        };
        let sent = write::stream(line, head, is_http11, &mut body, &mut ending).await;
        if let Some(usage) = body.usage() {
            ending.metered(usage);
        }
        ending.finish(match sent {
            Sent::Whole | Sent::GoneServed => Outcome::Answered,
            Sent::Broken(kind) => Outcome::Broken(kind),
            Sent::Gone => Outcome::ClientLeft,
        });
        match sent {
            Sent::Gone | Sent::GoneServed => After::Drop,
            // A router is told by a reset. A client has the error event, and then an end that is
            // plainly not the proper one; where it could be taken for it, it is told by a reset too.
            Sent::Broken(_) if self.who.link.is_some() => After::Drop,
            Sent::Broken(_) if !is_http11 && !body.is_event_stream() => After::Cut,
            Sent::Broken(_) => After::Close,
            Sent::Whole => self.after_whole(arrival, keeps),
        }
    }

    fn after_whole(&self, arrival: &Arrival, keeps: bool) -> After {
        match arrival.problem {
            _ if self.watch.is_flooded() => After::DrainAndClose,
            None if keeps => After::KeepAlive,
            None | Some(Problem::Slow) => After::Close,
            Some(_) => After::DrainAndClose,
        }
    }

    /// Answers what the guard refused. Nothing was under way, so nobody else is asked.
    pub(super) async fn refuse(&mut self, refused: Refused) -> After {
        let spec = &self.door.spec;
        self.context.events.push(Event::Rejected {
            listener: spec.name.clone(),
            client: self.who.client.to_string(),
            status: refused.status,
            reason: refused.reason,
        });
        let (head, body) = refusal(spec, refused.status);
        match write::whole(&mut self.io, head, body, &self.door).await {
            // Who was too slow has not much under way, and has had its time.
            Sent::Whole if refused.status == 408 => After::Close,
            Sent::Whole => After::DrainAndClose,
            _ => After::Drop,
        }
    }
}

/// Head and body of an answer that the listener gives by itself.
pub(super) fn refusal(spec: &DoorSpec, status: u16) -> (BytesMut, Bytes) {
    let mut bodies = spec.refusals.iter();
    let body = bodies.find(|(other, _)| *other == status);
    let body = body.map(|(_, body)| body.clone()).unwrap_or_default();
    let mut head = BytesMut::with_capacity(256);
    put_status_line(&mut head, status);
    if !body.is_empty() && !has_name(&spec.standing_fields, b"content-type") {
        put_field(&mut head, b"content-type", b"application/json");
    }
    put_values(&mut head, spec.standing_fields.iter());
    finish_head(&mut head, Length::Known(body.len() as u64), false, true);
    (head, body)
}

enum Length {
    Known(u64),
    Chunked,
    /// There is no body, or it ends with the connection.
    Untold,
}

/// Adds framing and `Connection`, and ends the head.
fn finish_head(head: &mut BytesMut, length: Length, keeps: bool, is_http11: bool) {
    match length {
        Length::Known(bytes) => put_length(head, bytes),
        Length::Chunked => put_field(head, b"transfer-encoding", b"chunked"),
        Length::Untold => {}
    }
    match (keeps, is_http11) {
        (true, true) => {}
        (true, false) => put_field(head, b"connection", b"keep-alive"),
        (false, _) => put_field(head, b"connection", b"close"),
    }
    head.extend_from_slice(b"\r\n");
}
