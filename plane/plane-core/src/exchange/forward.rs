//! What to forward where, how, and what came of it: values between the decider and the mover.

use super::{Arrival, Standing, command::put_own_fields};
use crate::{
    http1::{
        Fields, ResponseHead,
        write::{
            Pair, has_name, put_end_to_end, put_field, put_length, put_status_line, put_values,
        },
    },
    meter::Usage,
    upstream::{HttpUpstream, Outgoing, Resend},
};
use bytes::{Bytes, BytesMut};
use libp2p::PeerId;
use std::{sync::Arc, time::Duration};

#[derive(Clone, Debug)]
pub enum Target {
    /// An agent, over its own link.
    Peer(PeerId),
    /// A plain HTTP server.
    Http(Arc<HttpUpstream>),
}

/// Why a running answer broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakKind {
    /// The backend is gone, or a connection to it; or the answer ended without its dialect's end mark.
    Lost,
    /// Silence between two pieces for longer than allowed.
    Idle,
    /// The whole answer took longer than allowed.
    Overtime,
    /// Ended by command.
    Aborted,
    /// The link to the agent is gone, and the answer's end with it.
    LinkLost,
}

impl BreakKind {
    pub const ALL: [BreakKind; 5] = [
        BreakKind::Lost,
        BreakKind::Idle,
        BreakKind::Overtime,
        BreakKind::Aborted,
        BreakKind::LinkLost,
    ];

    pub fn name(self) -> &'static str {
        match self {
            BreakKind::Lost => "backend_lost",
            BreakKind::Idle => "stream_idle",
            BreakKind::Overtime => "stream_overtime",
            BreakKind::Aborted => "stream_aborted",
            BreakKind::LinkLost => "link_lost",
        }
    }
}

/// The part of a forward that is the same for many requests.
#[derive(Clone, Debug, Default)]
pub struct ForwardSpec {
    pub host: Bytes,
    /// Put before the path.
    pub path_prefix: Bytes,
    /// Fields of the client that stay here, lower case, besides those of its own hop.
    pub drop_fields: Vec<Bytes>,
    /// Fields of the request, replacing the client's.
    pub set_fields: Vec<Pair>,
    /// Fields of the request where the client sent none of that name, or none that passes.
    pub default_fields: Vec<Pair>,
    /// Fields of the backend's answer that stay here, lower case, besides those of its own hop. A name
    /// that ends with a dash stands for all that begin so.
    pub drop_reply_fields: Vec<Bytes>,
    /// Fields of a streamed answer where the backend has none of that name.
    pub stream_fields: Vec<Pair>,
    /// The request ID goes along under this name; empty: as the client sent it.
    pub request_id_name: Bytes,
    /// What may be sent a second time without asking.
    pub resend: Resend,
    /// A field of the request that says otherwise, with one of the same words; it ends here. A peer of
    /// our own kind knows it and counts, so for one that says nothing it is `Unsent`. Empty: none.
    pub resend_name: Bytes,
    /// Longest silence between two pieces of a streamed answer.
    pub idle: Duration,
    /// Longest streamed answer, counted from the attempt's start.
    pub total: Option<Duration>,
    /// An answer up to this is held until it is whole; a longer one is passed on as it comes.
    pub buffered_bytes_max: usize,
    /// A whole answer waits for a command instead of going out by itself.
    pub judge: bool,
    /// Every status is an answer, not only 200.
    pub relay_any_status: bool,
    /// Usage is read off the answer.
    pub meter: bool,
    /// An event stream without its dialect's end mark counts as broken off.
    pub needs_end_mark: bool,
    /// Sent where a stream breaks off, by kind; empty: nothing.
    pub break_events: [Bytes; 5],
    /// Stands in them for the number that follows the stream's last `sequence_number`; empty: in none.
    pub sequence_mark: Bytes,
}

#[derive(Clone, Debug)]
pub struct Forward {
    pub attempt: u32,
    pub target: Target,
    /// With query.
    pub path: Bytes,
    pub spec: Arc<ForwardSpec>,
    /// Time to the first byte of a stream, or for the whole of a buffered answer.
    pub within: Duration,
    /// Fields of the reply, replacing the backend's.
    pub reply_fields: Vec<Pair>,
    /// Sent in place of the body that arrived.
    pub body: Option<Bytes>,
}

impl Forward {
    pub(super) fn standing(arrival: &Arrival, rule: &Standing) -> Forward {
        let (path, query) = (&arrival.head.path, &arrival.head.query);
        let rest = path.slice(rule.cut.min(path.len())..);
        let path = if query.is_empty() {
            rest
        } else {
            [&rest[..], b"?", query].concat().into()
        };
        Forward {
            attempt: 1,
            target: rule.target.clone(),
            path,
            spec: rule.spec.clone(),
            within: rule.within,
            reply_fields: Vec::new(),
            body: None,
        }
    }

    /// The request as it goes to the backend.
    pub(super) fn request(&self, arrival: &Arrival) -> Outgoing {
        let spec = &self.spec;
        let body = self.body.clone().unwrap_or_else(|| arrival.body.clone());
        let mut out = BytesMut::with_capacity(512);
        out.extend_from_slice(&arrival.head.method);
        out.extend_from_slice(b" ");
        out.extend_from_slice(&spec.path_prefix);
        if !self.path.starts_with(b"/") {
            out.extend_from_slice(b"/");
        }
        out.extend_from_slice(&self.path);
        out.extend_from_slice(b" HTTP/1.1\r\n");
        put_field(&mut out, b"host", &spec.host);
        let fields = &arrival.head.fields;
        put_end_to_end(&mut out, fields, |name| !self.stays(name));
        let is_set = |name: &[u8]| {
            let mut names = fields.iter().map(|(other, _)| other);
            has_name(&spec.set_fields, name)
                || names.any(|other| other.eq_ignore_ascii_case(name))
                    && !fields.is_hop_by_hop(name)
                    && !self.stays(name)
        };
        let defaults = spec.default_fields.iter();
        put_values(&mut out, defaults.filter(|(name, _)| !is_set(name)));
        put_values(&mut out, &spec.set_fields);
        if !spec.request_id_name.is_empty() {
            put_field(
                &mut out,
                &spec.request_id_name,
                arrival.request_id.as_bytes(),
            );
        }
        put_length(&mut out, body.len() as u64);
        out.extend_from_slice(b"\r\n");
        Outgoing {
            head: out.freeze(),
            body,
            is_head_method: arrival.is_head_method(),
            is_forwarded: true,
        }
    }

    /// What may be sent a second time without asking, by the request's own word where it has one.
    pub(super) fn resend(&self, arrival: &Arrival) -> Resend {
        let name = &self.spec.resend_name;
        if name.is_empty() {
            return self.spec.resend;
        }
        let mut fields = arrival.head.fields.iter();
        fields
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .and_then(|(_, word)| Resend::named(word))
            .unwrap_or(match arrival.is_from_own_kind {
                true => Resend::Unsent,
                false => self.spec.resend,
            })
    }

    /// Whether the client's field of that name does not go on, besides those of its own hop.
    fn stays(&self, name: &[u8]) -> bool {
        let spec = &self.spec;
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        is(b"host")
            || is(b"content-length")
            || is(b"expect")
            || spec.drop_fields.iter().any(|dropped| is(dropped))
            || has_name(&spec.set_fields, name)
            || (!spec.request_id_name.is_empty() && is(&spec.request_id_name))
            || (!spec.resend_name.is_empty() && is(&spec.resend_name))
    }

    /// Head of the reply: the backend's fields, ours in place of those of the same name.
    pub(super) fn reply_head(
        &self,
        arrival: &Arrival,
        head: &ResponseHead,
        is_stream: bool,
    ) -> BytesMut {
        let mut out = BytesMut::with_capacity(512);
        put_status_line(&mut out, head.status);
        let is_told = |name: &[u8]| {
            let mut names = arrival.request_id_names.iter();
            names.any(|id| name.eq_ignore_ascii_case(id.as_bytes()))
        };
        let is_ours = |name: &[u8]| {
            has_name(&self.reply_fields, name)
                || has_name(&arrival.standing_fields, name)
                || is_told(name)
        };
        let is_dropped = |name: &[u8]| {
            let mut dropped = self.spec.drop_reply_fields.iter();
            dropped.any(|dropped| is_meant(name, dropped))
        };
        put_end_to_end(&mut out, &head.fields, |name| {
            !is_ours(name) && !is_dropped(name) && !name.eq_ignore_ascii_case(b"content-length")
        });
        put_values(
            &mut out,
            self.reply_fields.iter().filter(|(name, _)| !is_told(name)),
        );
        if is_stream {
            let is_theirs = |name: &[u8]| {
                let mut fields = head.fields.iter();
                fields.any(|(other, _)| other.eq_ignore_ascii_case(name))
            };
            let fields = self.spec.stream_fields.iter();
            put_values(
                &mut out,
                fields.filter(|(name, _)| !is_ours(name) && !is_theirs(name)),
            );
        }
        put_own_fields(&mut out, arrival, |name| {
            !has_name(&self.reply_fields, name)
        });
        out
    }
}

/// A buffered answer, whole.
#[derive(Debug)]
pub struct Whole {
    pub head: ResponseHead,
    pub body: Bytes,
    pub usage: Option<Usage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The agent has no live link.
    NoLink,
    /// The link carries as many streams as it may.
    Busy,
    /// No connection to the backend, or no stream over the link.
    Connect,
    /// The connection or stream died before the response head.
    Reset,
    /// Nothing, or not enough, came in time.
    Timeout,
    /// What came is not HTTP.
    Malformed,
    /// A status that is not an answer.
    Status,
    /// The body broke off before the client saw any of it.
    Truncated,
}

impl FailureKind {
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::NoLink => "no_link",
            FailureKind::Busy => "busy",
            FailureKind::Connect => "connect",
            FailureKind::Reset => "reset",
            FailureKind::Timeout => "timeout",
            FailureKind::Malformed => "malformed",
            FailureKind::Status => "status",
            FailureKind::Truncated => "truncated",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Failure {
    pub kind: FailureKind,
    /// 0 where there was no answer.
    pub status: u16,
    pub fields: Fields,
    /// At most `FAILURE_BODY_BYTES_MAX` of it.
    pub body: Bytes,
    pub detail: String,
    /// Seconds to the response head; 0 where none came.
    pub head_s: f64,
    /// The very link that the request went out on has ended, or there was none.
    pub is_link_down: bool,
    /// The agent, if it has no live link at all.
    pub unlinked: Option<PeerId>,
    /// The request went out whole and the other side died before its answer was whole: it may have
    /// been carried out.
    pub is_taken: bool,
    /// That was on a kept connection, which may have been on its way out, and not a byte came back.
    pub is_stale: bool,
}

impl Failure {
    pub fn new(kind: FailureKind, detail: impl Into<String>) -> Box<Failure> {
        Box::new(Failure {
            kind,
            status: 0,
            fields: Fields::default(),
            body: Bytes::new(),
            detail: detail.into(),
            head_s: 0.0,
            is_link_down: false,
            unlinked: None,
            is_taken: false,
            is_stale: false,
        })
    }
}

/// Whether a field has this name, or, where that ends with a dash, begins with it.
fn is_meant(name: &[u8], listed: &[u8]) -> bool {
    match listed {
        [.., b'-'] => name
            .get(..listed.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(listed)),
        _ => name.eq_ignore_ascii_case(listed),
    }
}
