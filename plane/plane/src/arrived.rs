//! A request that waits for a command, and the commands.

use crate::values::{ForwardSpec, To, pairs, seconds, visible};
use plane_core::{
    digest,
    exchange::{Arrival, Command, Forward, Respond},
};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};
use std::sync::Arc;

#[pyclass(frozen)]
pub struct Arrived(pub Arc<Arrival>);

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[pymethods]
impl Arrived {
    #[getter]
    fn handle(&self) -> u64 {
        self.0.handle
    }

    #[getter]
    fn listener(&self) -> &str {
        &self.0.listener
    }

    #[getter]
    fn method(&self) -> String {
        text(&self.0.head.method)
    }

    #[getter]
    fn path(&self) -> String {
        text(&self.0.head.path)
    }

    #[getter]
    fn query(&self) -> String {
        text(&self.0.head.query)
    }

    #[getter]
    fn client(&self) -> &str {
        &self.0.client
    }

    #[getter]
    fn peer(&self) -> Option<&str> {
        self.0.peer.as_deref()
    }

    #[getter]
    fn request_id(&self) -> &str {
        &self.0.request_id
    }

    #[getter]
    fn problem(&self) -> Option<&'static str> {
        self.0.problem.map(|problem| problem.name())
    }

    #[getter]
    fn is_standing(&self) -> bool {
        self.0.is_standing
    }

    #[getter]
    fn age_s(&self) -> f64 {
        self.0.age_s()
    }

    #[getter]
    fn body_bytes(&self) -> usize {
        self.0.body.len()
    }

    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.body)
    }

    fn field<'py>(&self, py: Python<'py>, name: &str) -> Option<Bound<'py, PyBytes>> {
        self.0
            .head
            .fields
            .get(name)
            .map(|value| PyBytes::new(py, value))
    }

    fn fields<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        self.0
            .head
            .fields
            .iter()
            .map(|(name, value)| (PyBytes::new(py, name), PyBytes::new(py, value)))
            .collect()
    }

    #[getter]
    fn model(&self) -> Option<&str> {
        match &self.0.digest {
            Some(Ok(digest)) => digest.model.as_deref(),
            _ => None,
        }
    }

    #[getter]
    fn digest(&self) -> Option<Digest> {
        match &self.0.digest {
            Some(Ok(digest)) => Some(Digest(digest.clone())),
            _ => None,
        }
    }

    /// What is wrong with the body as JSON, in words for whoever sent it.
    #[getter]
    fn digest_error(&self) -> Option<String> {
        match &self.0.digest {
            Some(Err(error)) => Some(error.to_string()),
            _ => None,
        }
    }

    fn respond(&self, status: u16, fields: Vec<(Vec<u8>, Vec<u8>)>, body: &[u8]) -> PyResult<bool> {
        if !(200..=599).contains(&status) {
            return Err(PyValueError::new_err(format!(
                "{status} is no status of an answer"
            )));
        }
        let respond = Respond {
            status,
            fields: pairs(fields)?,
            body: bytes::Bytes::copy_from_slice(body),
        };
        Ok(self.0.mailbox.post_with_others(Command::Respond(respond)))
    }

    #[pyo3(signature = (attempt, to, path, spec, within_s, reply_fields = Vec::new(), body = None))]
    #[allow(clippy::too_many_arguments)]
    fn forward(
        &self,
        attempt: u32,
        to: To<'_>,
        path: Vec<u8>,
        spec: &ForwardSpec,
        within_s: f64,
        reply_fields: Vec<(Vec<u8>, Vec<u8>)>,
        body: Option<Vec<u8>>,
    ) -> PyResult<bool> {
        Ok(self
            .0
            .mailbox
            .post_with_others(Command::Forward(Box::new(Forward {
                attempt,
                target: to.target(),
                path: visible("path", path)?,
                spec: spec.0.clone(),
                within: seconds(within_s),
                reply_fields: pairs(reply_fields)?,
                body: body.map(bytes::Bytes::from),
            }))))
    }

    fn give_up(&self, attempt: u32) -> bool {
        self.0.mailbox.post(Command::GiveUp(attempt))
    }

    fn release(&self) -> bool {
        self.0.mailbox.post_with_others(Command::Release)
    }

    fn abort(&self) -> bool {
        self.0.mailbox.post(Command::Abort)
    }
}

#[pyclass(frozen)]
pub struct Digest(pub digest::Digest);

#[pymethods]
impl Digest {
    #[getter]
    fn model(&self) -> Option<&str> {
        self.0.model.as_deref()
    }

    #[getter]
    fn stream(&self) -> bool {
        self.0.stream.unwrap_or(false)
    }

    #[getter]
    fn max_tokens(&self) -> Option<i64> {
        self.0.max_tokens
    }

    #[getter]
    fn max_completion_tokens(&self) -> Option<i64> {
        self.0.max_completion_tokens
    }

    #[getter]
    fn n(&self) -> Option<i64> {
        self.0.n
    }

    #[getter]
    fn text_bytes(&self) -> u64 {
        self.0.text_bytes
    }

    #[getter]
    fn input_bytes(&self) -> u64 {
        self.0.input_bytes
    }

    #[getter]
    fn messages(&self) -> u32 {
        self.0.messages
    }

    #[getter]
    fn images(&self) -> u32 {
        self.0.images
    }
}

/// Reads a body the way an arrival's is read.
#[pyfunction]
pub fn digest_of(body: &[u8]) -> PyResult<Digest> {
    digest::digest(body)
        .map(Digest)
        .map_err(|error| PyValueError::new_err(error.to_string()))
}
