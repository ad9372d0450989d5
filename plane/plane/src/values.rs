//! Settings and destinations as Python hands them in.

use bytes::Bytes;
use plane_core::{
    exchange::{self, Target},
    http1::write::{Pair, is_writable},
    ingress,
    peers::PeerId,
    upstream::{HttpUpstream, Resend},
};
use pyo3::{exceptions::PyValueError, prelude::*};
use std::{sync::Arc, time::Duration};

/// Header fields; a name or value that would break the head is refused here, before it can.
pub fn pairs(fields: Vec<(Vec<u8>, Vec<u8>)>) -> PyResult<Vec<Pair>> {
    fields
        .into_iter()
        .map(|(name, value)| match is_writable(&name, &value) {
            true => Ok((Bytes::from(name), Bytes::from(value))),
            false => Err(PyValueError::new_err(format!(
                "header field {:?} cannot be written: a name must be a token and a value must hold no control character",
                String::from_utf8_lossy(&name)
            ))),
        })
        .collect()
}

/// A method, field name or the like: bytes of a token, at least one.
pub fn token(what: &str, value: Vec<u8>) -> PyResult<Bytes> {
    match is_writable(&value, b"") {
        true => Ok(value.into()),
        false => Err(unfit(what, &value, "must be a token")),
    }
}

/// Part of a request line, or a value: nothing in it may end the line or the part.
pub fn visible(what: &str, value: Vec<u8>) -> PyResult<Bytes> {
    match value.iter().all(|b| *b > 0x20 && *b != 0x7f) {
        true => Ok(value.into()),
        false => Err(unfit(
            what,
            &value,
            "must hold no blank and no control character",
        )),
    }
}

fn unfit(what: &str, value: &[u8], rule: &str) -> PyErr {
    let value = String::from_utf8_lossy(value);
    PyValueError::new_err(format!("{what} {value:?} {rule}"))
}

/// Seconds as a duration; a negative or absurd number counts as the nearest possible one.
pub fn seconds(value: f64) -> Duration {
    const LONGEST_S: f64 = 365.0 * 86_400.0;
    // NaN fits no bound, and would not make a duration.
    let value = if value.is_nan() { 0.0 } else { value };
    Duration::from_secs_f64(value.clamp(0.0, LONGEST_S))
}

/// An agent as a destination.
#[pyclass(frozen)]
pub struct Peer(pub PeerId);

/// A plain HTTP server as a destination.
#[pyclass(frozen)]
pub struct Upstream(pub Arc<HttpUpstream>);

#[pymethods]
impl Upstream {
    #[getter]
    fn times_heard(&self) -> u64 {
        self.0.times_heard()
    }
}

#[derive(FromPyObject)]
pub enum To<'py> {
    Peer(Bound<'py, Peer>),
    Upstream(Bound<'py, Upstream>),
}

impl To<'_> {
    pub fn target(&self) -> Target {
        match self {
            To::Peer(peer) => Target::Peer(peer.get().0),
            To::Upstream(upstream) => Target::Http(upstream.get().0.clone()),
        }
    }
}

#[pyclass(frozen)]
pub struct ForwardSpec(pub Arc<exchange::ForwardSpec>);

#[pymethods]
impl ForwardSpec {
    #[new]
    #[pyo3(signature = (
        *, host, path_prefix = Vec::new(), drop_fields = Vec::new(), set_fields = Vec::new(), default_fields = Vec::new(),
        drop_reply_fields = Vec::new(), stream_fields = Vec::new(), request_id_name = Vec::new(),
        resend = "whole", resend_name = Vec::new(), idle_s, total_s = None, buffered_bytes_max,
        judge = false, relay_any_status = false, meter = true, needs_end_mark = false, break_events = None,
        sequence_mark = Vec::new()
    ))]
    // One keyword per setting: Python names them all.
    #[allow(clippy::too_many_arguments)]
    fn new(
        host: Vec<u8>,
        path_prefix: Vec<u8>,
        drop_fields: Vec<Vec<u8>>,
        set_fields: Vec<(Vec<u8>, Vec<u8>)>,
        default_fields: Vec<(Vec<u8>, Vec<u8>)>,
        drop_reply_fields: Vec<Vec<u8>>,
        stream_fields: Vec<(Vec<u8>, Vec<u8>)>,
        request_id_name: Vec<u8>,
        resend: &str,
        resend_name: Vec<u8>,
        idle_s: f64,
        total_s: Option<f64>,
        buffered_bytes_max: usize,
        judge: bool,
        relay_any_status: bool,
        meter: bool,
        needs_end_mark: bool,
        break_events: Option<[Vec<u8>; 5]>,
        sequence_mark: Vec<u8>,
    ) -> PyResult<Self> {
        Ok(ForwardSpec(Arc::new(exchange::ForwardSpec {
            host: visible("host", host)?,
            path_prefix: visible("path prefix", path_prefix)?,
            drop_fields: drop_fields.into_iter().map(Bytes::from).collect(),
            set_fields: pairs(set_fields)?,
            default_fields: pairs(default_fields)?,
            drop_reply_fields: drop_reply_fields.into_iter().map(Bytes::from).collect(),
            stream_fields: pairs(stream_fields)?,
            request_id_name: match request_id_name.is_empty() {
                true => Bytes::new(),
                false => token("request ID name", request_id_name)?,
            },
            resend: Resend::named(resend.as_bytes()).ok_or_else(|| {
                PyValueError::new_err(format!("{resend:?} says nothing of resending"))
            })?,
            resend_name: match resend_name.is_empty() {
                true => Bytes::new(),
                false => token("resend name", resend_name)?,
            },
            idle: seconds(idle_s),
            total: total_s.map(seconds),
            buffered_bytes_max,
            judge,
            relay_any_status,
            meter,
            needs_end_mark,
            break_events: break_events
                .map(|events| events.map(Bytes::from))
                .unwrap_or_default(),
            sequence_mark: sequence_mark.into(),
        })))
    }
}

#[pyclass(frozen)]
pub struct DoorSpec(pub ingress::DoorSpec);

#[pymethods]
impl DoorSpec {
    #[new]
    #[pyo3(signature = (
        name, *, body_bytes_max, bodies_bytes_max = 1_073_741_824, head_within_s = 10.0, body_within_s = 60.0, idle_within_s = Some(120.0), write_within_s = 60.0,
        connections_max = 16_384, connections_per_address_max = 12_288, standing_fields = Vec::new(), refusals = Vec::new(), digests_bodies = false,
        tells_request_id = false, second_id_prefix = Vec::new(), bodies_wanted = None
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        name: &str,
        body_bytes_max: u64,
        bodies_bytes_max: usize,
        head_within_s: f64,
        body_within_s: f64,
        idle_within_s: Option<f64>,
        write_within_s: f64,
        connections_max: usize,
        connections_per_address_max: usize,
        standing_fields: Vec<(Vec<u8>, Vec<u8>)>,
        refusals: Vec<(u16, Vec<u8>)>,
        digests_bodies: bool,
        tells_request_id: bool,
        second_id_prefix: Vec<u8>,
        bodies_wanted: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    ) -> PyResult<Self> {
        Ok(DoorSpec(ingress::DoorSpec {
            name: name.into(),
            body_bytes_max,
            bodies_bytes_max,
            head_within: seconds(head_within_s),
            body_within: seconds(body_within_s),
            idle_within: idle_within_s.map(seconds),
            write_within: seconds(write_within_s),
            connections_max,
            connections_per_address_max,
            standing_fields: Arc::new(pairs(standing_fields)?),
            refusals: Arc::new(
                refusals
                    .into_iter()
                    .map(|(status, body)| (status, body.into()))
                    .collect(),
            ),
            digests_bodies,
            tells_request_id,
            second_id_prefix: second_id_prefix.into(),
            bodies_wanted: bodies_wanted.map(|wanted| {
                Arc::new(
                    wanted
                        .into_iter()
                        .map(|(method, path)| (method.into(), path.into()))
                        .collect(),
                )
            }),
        }))
    }
}
