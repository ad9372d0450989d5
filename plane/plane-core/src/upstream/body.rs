//! The body of an answer. It owns its connection and gives it back when the body is whole.

use super::{conn::UpConn, pool::Pool};
use crate::http1::{BodyDecoder, BodyError, Decoded, Framing};
use bytes::Bytes;
use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, ready},
};

pub struct UpBody {
    conn: Option<UpConn>,
    decoder: BodyDecoder,
    /// Where the connection goes when it may be used again.
    pool: Option<Arc<Pool>>,
}

/// The body ended before its end, and in what words.
#[derive(Debug, PartialEq, Eq)]
pub struct BodyBroken(pub String);

impl UpBody {
    pub(super) fn new(conn: UpConn, framing: Framing, pool: Option<Arc<Pool>>) -> Self {
        let mut body = UpBody {
            conn: Some(conn),
            decoder: BodyDecoder::new(framing),
            pool,
        };
        if body.decoder.is_done() {
            body.give_back();
        }
        body
    }

    /// The next piece, `None` at the proper end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyBroken> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyBroken>> {
        loop {
            let Some(conn) = &mut self.conn else {
                return Poll::Ready(if self.decoder.is_done() {
                    Ok(None)
                } else {
                    Err(BodyBroken("abandoned".into()))
                });
            };
            match self.decoder.decode(conn.buf()) {
                Ok(Decoded::Data(piece)) => {
                    if self.decoder.is_done() {
                        self.give_back();
                    }
                    return Poll::Ready(Ok(Some(piece)));
                }
                Ok(Decoded::End) => {
                    self.give_back();
                    return Poll::Ready(Ok(None));
                }
                Ok(Decoded::NeedMore) => {}
                Err(error) => {
                    self.abandon();
                    return Poll::Ready(Err(BodyBroken(describe(error).into())));
                }
            }
            match ready!(conn.poll_fill(cx, self.decoder.remaining())) {
                Ok(0) if self.decoder.may_end_by_close() => {
                    self.abandon();
                    return Poll::Ready(Ok(None));
                }
                Ok(0) => {
                    self.abandon();
                    return Poll::Ready(Err(BodyBroken(
                        "closed before the end of the body".into(),
                    )));
                }
                Ok(_) => {}
                Err(error) => {
                    self.abandon();
                    return Poll::Ready(Err(BodyBroken(error.to_string())));
                }
            }
        }
    }

    /// Whether nothing but the end of the connection tells the end, so that a death looks like it.
    pub fn ends_by_close(&self) -> bool {
        self.decoder.may_end_by_close() && !self.decoder.is_done()
    }

    /// Whether its last byte has been handed out, as its own framing tells.
    pub fn is_whole(&self) -> bool {
        self.decoder.is_done()
    }

    /// Lets go of the connection; unless the body is whole this resets it.
    pub fn abandon(&mut self) {
        self.conn = None;
    }

    fn give_back(&mut self) {
        if let (Some(conn), Some(pool)) = (self.conn.take(), self.pool.take())
            && !conn.has_leftover()
        {
            pool.put(conn);
        }
    }
}

fn describe(error: BodyError) -> &'static str {
    match error {
        BodyError::BadChunk => "malformed chunk",
        BodyError::TrailersTooLong => "trailers too long",
        BodyError::BadTrailer => "malformed trailer",
    }
}
