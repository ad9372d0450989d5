//! One HTTP/1.1 client connection, driven by whoever waits for it: no task of its own.

use super::{UpstreamIo, body::UpBody, pool::Pool};
use crate::http1::{ResponseError, ResponseHead, ResponseParser};
use bytes::{Buf, Bytes, BytesMut};
use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};
use tokio::io::AsyncWrite;
use tokio_util::io::{poll_read_buf, poll_write_buf};

/// A request as it goes over the wire.
#[derive(Clone, Debug)]
pub struct Outgoing {
    pub head: Bytes,
    pub body: Bytes,
    /// Its answer has no body, whatever the answer's fields say.
    pub is_head_method: bool,
    /// Somebody's request and not one of our own, so what is heard in answer counts as a sign of life.
    pub is_forwarded: bool,
}

pub struct UpConn {
    io: UpstreamIo,
    buf: BytesMut,
    /// A byte of the answer under way has come, so the request must not be sent a second time.
    has_heard: bool,
    /// Told of each read while a request is forwarded.
    counts_for: Option<Arc<Pool>>,
    pub(super) idle_since: Instant,
}

/// Why no response head came.
#[derive(Debug)]
pub(super) enum NoHead {
    /// The connection died before the request had gone out whole, so nobody can have carried it out.
    Unsent(io::Error),
    /// It died behind the whole request and before a byte of the answer.
    Nothing(io::Error),
    /// It died inside the head.
    Partial(io::Error),
    Malformed(ResponseError),
}

/// How sending a request ended.
enum Sending {
    Done,
    /// The server answers before it has read everything: the rest is not sent.
    Answered(Box<ResponseHead>),
    /// The server has gone, or wants no more. What it said before still counts.
    CutShort(io::Error),
}

/// Small requests go out in one write.
const JOIN_BYTES_MAX: usize = 32 * 1024;
const READ_BYTES: usize = 8 * 1024;
const READ_BYTES_LARGE: usize = 64 * 1024;

impl UpConn {
    pub fn new(io: UpstreamIo) -> Self {
        UpConn {
            io,
            buf: BytesMut::new(),
            has_heard: false,
            counts_for: None,
            idle_since: Instant::now(),
        }
    }

    /// Sends the request and reads the response head.
    pub(super) async fn exchange(
        mut self,
        request: &Outgoing,
        pool: &Arc<Pool>,
    ) -> Result<(ResponseHead, UpBody), NoHead> {
        self.counts_for = request.is_forwarded.then(|| pool.clone());
        let mut parser = ResponseParser::new(request.is_head_method);
        let sent = self.send(request, &mut parser).await?;
        let is_whole = matches!(sent, Sending::Done);
        let head = match sent {
            Sending::Answered(head) => *head,
            Sending::Done => self.read_head(&mut parser).await?,
            Sending::CutShort(error) => match self.read_head(&mut parser).await {
                // The first error says more than the one that follows from it.
                Err(NoHead::Nothing(_)) => return Err(NoHead::Unsent(error)),
                head => head?,
            },
        };
        let reusable = head.keep_alive && is_whole;
        let body = UpBody::new(self, head.framing, reusable.then(|| pool.clone()));
        Ok((head, body))
    }

    async fn send(
        &mut self,
        request: &Outgoing,
        parser: &mut ResponseParser,
    ) -> Result<Sending, NoHead> {
        let (head, body) = (&request.head, &request.body);
        let mut out = if head.len() + body.len() <= JOIN_BYTES_MAX {
            let mut all = BytesMut::with_capacity(head.len() + body.len());
            all.extend_from_slice(head);
            all.extend_from_slice(body);
            all.freeze().chain(Bytes::new())
        } else {
            head.clone().chain(body.clone())
        };
        poll_fn(|cx| {
            while out.has_remaining() {
                match poll_write_buf(Pin::new(&mut self.io), cx, &mut out) {
                    Poll::Ready(Ok(n)) if n > 0 => {}
                    Poll::Ready(Ok(_)) => {
                        let error = io::ErrorKind::WriteZero.into();
                        return Poll::Ready(Ok(Sending::CutShort(error)));
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Ok(Sending::CutShort(error))),
                    // A server that reads no further may have said why.
                    Poll::Pending => return self.poll_early_answer(cx, parser),
                }
            }
            let flushed = ready!(Pin::new(&mut self.io).poll_flush(cx));
            Poll::Ready(Ok(
                flushed.map_or_else(Sending::CutShort, |()| Sending::Done)
            ))
        })
        .await
    }

    fn poll_early_answer(
        &mut self,
        cx: &mut Context<'_>,
        parser: &mut ResponseParser,
    ) -> Poll<Result<Sending, NoHead>> {
        loop {
            match ready!(self.poll_fill(cx, None)) {
                Ok(0) => {
                    let error = io::ErrorKind::UnexpectedEof.into();
                    return Poll::Ready(Ok(Sending::CutShort(error)));
                }
                Ok(_) => {}
                Err(error) => return Poll::Ready(Ok(Sending::CutShort(error))),
            }
            if let Some(head) = parser.parse(&mut self.buf).map_err(NoHead::Malformed)? {
                return Poll::Ready(Ok(Sending::Answered(Box::new(head))));
            }
        }
    }

    async fn read_head(&mut self, parser: &mut ResponseParser) -> Result<ResponseHead, NoHead> {
        loop {
            if !self.buf.is_empty()
                && let Some(head) = parser.parse(&mut self.buf).map_err(NoHead::Malformed)?
            {
                return Ok(head);
            }
            let read = poll_fn(|cx| self.poll_fill(cx, None)).await;
            let no_head = match self.has_heard {
                false => NoHead::Nothing,
                true => NoHead::Partial,
            };
            match read {
                Ok(0) => return Err(no_head(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) => return Err(no_head(error)),
            }
        }
    }

    /// Reads more into the buffer; `expected` bytes of body help to choose how much to ask for.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        expected: Option<u64>,
    ) -> Poll<io::Result<usize>> {
        let want = match expected {
            Some(n) if n > READ_BYTES as u64 => READ_BYTES_LARGE,
            _ => READ_BYTES,
        };
        if self.buf.capacity() - self.buf.len() < want / 2 {
            self.buf.reserve(want);
        }
        let read = ready!(poll_read_buf(Pin::new(&mut self.io), cx, &mut self.buf));
        if matches!(read, Ok(n) if n > 0) {
            self.has_heard = true;
            if let Some(pool) = &self.counts_for {
                pool.heard();
            }
        }
        Poll::Ready(read)
    }

    pub(super) fn buf(&mut self) -> &mut BytesMut {
        &mut self.buf
    }

    /// Whether it may carry another request: nothing unread, not closed by the other side.
    pub(super) fn poll_is_fresh(&mut self, cx: &mut Context<'_>) -> bool {
        self.buf.is_empty() && self.poll_fill(cx, None).is_pending()
    }

    /// Whether more came than the answer: whatever it is, it is nobody's answer.
    pub(super) fn has_leftover(&self) -> bool {
        !self.buf.is_empty()
    }

    /// An idle connection keeps no buffer.
    pub(super) fn rest(&mut self) {
        self.buf = BytesMut::new();
        self.has_heard = false;
        self.counts_for = None;
        self.idle_since = Instant::now();
    }
}
