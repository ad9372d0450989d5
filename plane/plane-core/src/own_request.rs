//! A request that Python makes itself: a probe, or a report to a router. It has no exchange and no
//! client; its answer is read whole, within a bound.

use crate::{
    exchange::{Target, Whole},
    http1::write::{Pair, put_field, put_length, put_values},
    plane::Context,
    upstream::{Outgoing, Resend, Trail, UpBody},
};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;

/// Longest answer.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

pub struct OwnRequest {
    pub method: Bytes,
    pub path: Bytes,
    pub host: Bytes,
    pub fields: Vec<Pair>,
    pub body: Bytes,
}

impl OwnRequest {
    fn outgoing(self) -> Outgoing {
        let mut head = BytesMut::with_capacity(256);
        for part in [&self.method[..], b" ", &self.path, b" HTTP/1.1\r\n"] {
            head.extend_from_slice(part);
        }
        put_field(&mut head, b"host", &self.host);
        let fields = self.fields.iter();
        put_values(
            &mut head,
            fields.filter(|(name, _)| !name.eq_ignore_ascii_case(b"host")),
        );
        put_length(&mut head, self.body.len() as u64);
        head.extend_from_slice(b"\r\n");
        Outgoing {
            head: head.freeze(),
            body: self.body,
            is_head_method: &self.method[..] == b"HEAD",
            is_forwarded: false,
        }
    }
}

/// The answer, whatever its status, or why there is none.
pub async fn own_request(
    context: &Context,
    target: &Target,
    request: OwnRequest,
) -> Result<Arc<Whole>, String> {
    let (outgoing, mut trail) = (request.outgoing(), Trail::default());
    let sending = context
        .lanes
        .send(target, &outgoing, Resend::Whole, &mut trail);
    let sent = sending.await;
    let mut answer = sent.map_err(|failure| failure.detail)?;
    let body = whole_body(&mut answer.body).await?;
    Ok(Arc::new(Whole {
        head: answer.head,
        body,
        usage: None,
    }))
}

async fn whole_body(body: &mut UpBody) -> Result<Bytes, String> {
    let mut whole = BytesMut::new();
    while let Some(piece) = body.next().await.map_err(|broken| broken.0)? {
        if whole.len() + piece.len() > ANSWER_BYTES_MAX {
            return Err(format!(
                "the answer is longer than {ANSWER_BYTES_MAX} bytes"
            ));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}
