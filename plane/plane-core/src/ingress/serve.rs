//! One connection from its first byte to its last: request after request, each answered in turn.

use super::{
    door::Door,
    read::{self, Next},
    watch::Watch,
    write::{self, Sent},
};
use crate::{
    digest::digest,
    events::Event,
    exchange::{self, Arrival, Ending, Mailbox, Outcome, Problem, Reply, ReplyBody},
    http1::{
        Refused, RequestHead,
        write::{put_field, put_length, put_status_line},
    },
    peers::{Conn, Inbound},
    plane::Context,
};
use bytes::{Bytes, BytesMut};
use std::{
    future::poll_fn,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

/// Who is at the other end.
#[derive(Clone)]
pub struct Who {
    pub client: Arc<str>,
    pub peer: Option<Arc<str>>,
    pub link: Option<Arc<Conn>>,
}

impl Who {
    pub fn client(address: String) -> Who {
        Who {
            client: address.into(),
            peer: None,
            link: None,
        }
    }

    pub fn peer(stream: &Inbound) -> Who {
        let conn = stream.conn.clone();
        Who {
            client: conn.remote.to_string().into(),
            peer: Some(conn.peer.to_base58().into()),
            link: Some(conn),
        }
    }
}

/// What is read and thrown away after an answer that came before the request's end, so that the
/// client reads the answer instead of a reset.
const DRAINED_BYTES_MAX: usize = 32 * 1024 * 1024;
const DRAIN_WITHIN: Duration = Duration::from_secs(5);

pub async fn serve<IO>(io: IO, context: Arc<Context>, door: Arc<Door>, who: Who)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let watch = Watch::new(&who);
    let mut served = Served {
        io,
        buf: BytesMut::new(),
        watch,
        context,
        door,
        who,
    };
    let mut is_fresh = true;
    loop {
        let next = read::next_head(
            &mut served.io,
            &mut served.buf,
            &served.door,
            is_fresh,
            &mut served.watch,
        )
        .await;
        is_fresh = false;
        let after = match next {
            Next::Request(head) => served.answer(*head).await,
            Next::Closed => return,
            Next::Refused(refused) => served.refuse(refused).await,
        };
        match after {
            After::KeepAlive => {}
            After::Close => return served.close(false).await,
            After::DrainAndClose => return served.close(true).await,
            // Dropping resets a substream and closes a socket.
            After::Drop => return,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    KeepAlive,
    Close,
    DrainAndClose,
    Drop,
}

struct Served<IO> {
    io: IO,
    buf: BytesMut,
    watch: Watch,
    context: Arc<Context>,
    door: Arc<Door>,
    who: Who,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Served<IO> {
    async fn answer(&mut self, head: RequestHead) -> After {
        let arrived_at = Instant::now();
        let context = self.context.clone();
        let _live = context.begin();
        let body = match read::body(
            &mut self.io,
            &mut self.buf,
            &head,
            &self.door,
            &mut self.watch,
        )
        .await
        {
            Some(body) => body,
            None => return After::Drop,
        };
        let arrival = Arc::new(self.arrival(head, body, arrived_at));
        let standing = self.door.standing_for(&arrival.head.path);
        let mut ending = Ending::new(self.context.events.clone(), arrival.clone());
        let reply = {
            let Served {
                io,
                buf,
                watch,
                context,
                ..
            } = self;
            // A client that stopped short of its body has closed its side: that is no news.
            let watches = !(watch.has_fin() && arrival.peer.is_none());
            let run = exchange::run(context, &arrival, standing.as_deref(), &mut ending);
            tokio::select! {
                biased;
                reply = run => reply,
                () = poll_fn(|cx| watch.poll_gone(io, buf, cx)), if watches => None,
            }
        };
        match reply {
            Some(reply) => self.send(&arrival, reply, ending).await,
            None => After::Drop,
        }
    }

    fn arrival(
        &mut self,
        head: RequestHead,
        body: Result<Bytes, Problem>,
        arrived_at: Instant,
    ) -> Arrival {
        let (body, problem) = match body {
            Ok(body) => (body, None),
            Err(problem) => (Bytes::new(), Some(problem)),
        };
        let wants_digest =
            self.door.spec.digests_bodies && problem.is_none() && &head.method[..] == b"POST";
        let digest = wants_digest.then(|| digest(&body));
        Arrival {
            handle: self.context.next_handle(),
            listener: self.door.spec.name.clone(),
            digest,
            client: self.who.client.clone(),
            peer: self.who.peer.clone(),
            request_id: exchange::request_id(head.fields.get("x-request-id")),
            request_id_names: self.door.request_id_names(&head.path),
            standing_fields: self.door.spec.standing_fields.clone(),
            head,
            body,
            problem,
            arrived_at,
            mailbox: Mailbox::default(),
        }
    }

    async fn send(&mut self, arrival: &Arrival, reply: Reply, mut ending: Ending) -> After {
        let request = &arrival.head;
        let Reply {
            mut head,
            status,
            body,
        } = reply;
        let keeps = request.keep_alive && arrival.problem.is_none() && !self.door.is_closing();
        let (sent, keeps) = match body {
            ReplyBody::Whole(body) => {
                finish_head(
                    &mut head,
                    status,
                    Length::Known(body.len() as u64),
                    keeps,
                    request.is_http11,
                );
                let body = if &request.method[..] == b"HEAD" {
                    Bytes::new()
                } else {
                    body
                };
                (
                    write::whole(&mut self.io, head, body, &self.door).await,
                    keeps,
                )
            }
            ReplyBody::Stream(mut body) => {
                let length = if request.is_http11 {
                    Length::Chunked
                } else {
                    Length::UntilClose
                };
                let keeps = keeps && request.is_http11;
                finish_head(&mut head, status, length, keeps, request.is_http11);
                let Served {
                    io,
                    buf,
                    watch,
                    door,
                    ..
                } = self;
                let sent = write::stream(
                    io,
                    buf,
                    watch,
                    head,
                    request.is_http11,
                    &mut body,
                    &mut ending,
                    door,
                )
                .await;
                if let Some(usage) = body.usage() {
                    ending.metered(usage);
                }
                ending.finish(match sent {
                    Sent::Whole => Outcome::Answered,
                    Sent::Broken(kind) => Outcome::Broken(kind),
                    Sent::Gone => Outcome::ClientLeft,
                });
                (sent, keeps)
            }
        };
        match sent {
            Sent::Gone => {
                ending.finish(Outcome::ClientLeft);
                After::Drop
            }
            // A client gets the error event and then an end that is plainly not the proper one; a
            // router gets a reset.
            Sent::Broken(_) if self.who.link.is_none() => After::Close,
            Sent::Broken(_) => After::Drop,
            Sent::Whole if arrival.problem.is_some() => After::DrainAndClose,
            Sent::Whole if keeps => After::KeepAlive,
            Sent::Whole => After::Close,
        }
    }

    /// Answers what the guard refused. Nothing was under way, so nobody else is asked.
    async fn refuse(&mut self, refused: Refused) -> After {
        self.context.events.push(Event::Rejected {
            listener: self.door.spec.name.clone(),
            client: self.who.client.to_string(),
            status: refused.status,
            reason: refused.reason,
        });
        let body = self
            .door
            .spec
            .refusals
            .iter()
            .find(|(status, _)| *status == refused.status)
            .map(|(_, body)| body.clone());
        let body = body.unwrap_or_default();
        let mut head = BytesMut::with_capacity(256);
        put_status_line(&mut head, refused.status);
        if !body.is_empty() {
            put_field(&mut head, b"content-type", b"application/json");
        }
        for (name, value) in self.door.spec.standing_fields.iter() {
            put_field(&mut head, name, value);
        }
        finish_head(
            &mut head,
            refused.status,
            Length::Known(body.len() as u64),
            false,
            true,
        );
        match write::whole(&mut self.io, head, body, &self.door).await {
            Sent::Whole => After::DrainAndClose,
            _ => After::Drop,
        }
    }

    async fn close(&mut self, drains: bool) {
        if self.io.shutdown().await.is_err() || !drains || self.watch.has_fin() {
            return;
        }
        let draining = async {
            let mut left = DRAINED_BYTES_MAX;
            while left > 0 {
                self.buf.clear();
                match read::fill(&mut self.io, &mut self.buf).await {
                    Ok(n) if n > 0 => left = left.saturating_sub(n),
                    _ => return,
                }
            }
        };
        let _ = timeout(DRAIN_WITHIN, draining).await;
    }
}

enum Length {
    Known(u64),
    Chunked,
    UntilClose,
}

/// Adds framing and `Connection`, and ends the head.
fn finish_head(head: &mut BytesMut, status: u16, length: Length, keeps: bool, is_http11: bool) {
    match length {
        Length::Known(_) if status == 204 || status == 304 => {}
        Length::Known(bytes) => put_length(head, bytes),
        Length::Chunked => put_field(head, b"transfer-encoding", b"chunked"),
        Length::UntilClose => {}
    }
    match (keeps, is_http11) {
        (true, true) => {}
        (true, false) => put_field(head, b"connection", b"keep-alive"),
        (false, _) => put_field(head, b"connection", b"close"),
    }
    head.extend_from_slice(b"\r\n");
}
