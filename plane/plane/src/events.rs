//! Events as Python sees them. Values are turned into Python objects when they are looked at.

use crate::{
    arrived::Arrived,
    finished::{Finished, Usage},
};
use plane_core::{
    events::Event,
    exchange::{Failure, Whole},
    http1::Fields,
};
use pyo3::{IntoPyObjectExt, prelude::*, types::PyBytes};
use std::sync::Arc;

type Pairs<'py> = Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>;

fn pairs<'py>(py: Python<'py>, fields: &Fields) -> Pairs<'py> {
    fields
        .iter()
        .map(|(name, value)| (PyBytes::new(py, name), PyBytes::new(py, value)))
        .collect()
}

/// The event as the Python object of its kind.
pub fn to_python(py: Python<'_>, event: Event) -> PyResult<Py<PyAny>> {
    match event {
        Event::Arrived(arrival) => Arrived(arrival).into_py_any(py),
        Event::Head {
            handle,
            attempt,
            status,
            seconds,
        } => Head {
            handle,
            attempt,
            status,
            seconds,
        }
        .into_py_any(py),
        Event::Started {
            handle,
            attempt,
            seconds,
        } => Started {
            handle,
            attempt,
            seconds,
        }
        .into_py_any(py),
        Event::Answered {
            handle,
            attempt,
            whole,
        } => Answered {
            handle,
            attempt,
            whole,
        }
        .into_py_any(py),
        Event::Failed {
            handle,
            attempt,
            failure,
        } => Failed {
            handle,
            attempt,
            failure,
        }
        .into_py_any(py),
        Event::Finished(finished) => Finished(finished).into_py_any(py),
        Event::PeerUp {
            peer,
            remote,
            dialed,
        } => PeerUp {
            peer,
            remote,
            dialed,
        }
        .into_py_any(py),
        Event::PeerDown { peer, reason } => PeerDown { peer, reason }.into_py_any(py),
        Event::PeerIdentified {
            peer,
            agent_version,
        } => PeerIdentified {
            peer,
            agent_version,
        }
        .into_py_any(py),
        Event::Rejected {
            listener,
            client,
            status,
            reason,
        } => Rejected {
            listener: listener.to_string(),
            client,
            status,
            reason,
        }
        .into_py_any(py),
        Event::Broken { why } => Broken { why }.into_py_any(py),
        Event::Completed { token, result } => Completed { token, result }.into_py_any(py),
    }
}

#[pyclass(frozen, get_all)]
pub struct Head {
    handle: u64,
    attempt: u32,
    status: u16,
    seconds: f64,
}

#[pyclass(frozen, get_all)]
pub struct Started {
    handle: u64,
    attempt: u32,
    seconds: f64,
}

#[pyclass(frozen)]
pub struct Answered {
    #[pyo3(get)]
    handle: u64,
    #[pyo3(get)]
    attempt: u32,
    whole: Arc<Whole>,
}

#[pymethods]
impl Answered {
    #[getter]
    fn status(&self) -> u16 {
        self.whole.head.status
    }

    #[getter]
    fn usage(&self) -> Option<Usage> {
        self.whole.usage.map(Usage)
    }

    fn fields<'py>(&self, py: Python<'py>) -> Pairs<'py> {
        pairs(py, &self.whole.head.fields)
    }

    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.whole.body)
    }
}

#[pyclass(frozen)]
pub struct Failed {
    #[pyo3(get)]
    handle: u64,
    #[pyo3(get)]
    attempt: u32,
    failure: Box<Failure>,
}

#[pymethods]
impl Failed {
    #[getter]
    fn kind(&self) -> &'static str {
        self.failure.kind.name()
    }

    #[getter]
    fn status(&self) -> u16 {
        self.failure.status
    }

    #[getter]
    fn detail(&self) -> &str {
        &self.failure.detail
    }

    #[getter]
    fn head_s(&self) -> f64 {
        self.failure.head_s
    }

    #[getter]
    fn is_link_down(&self) -> bool {
        self.failure.is_link_down
    }

    #[getter]
    fn unlinked(&self) -> Option<String> {
        self.failure.unlinked.map(|peer| peer.to_string())
    }

    #[getter]
    fn is_taken(&self) -> bool {
        self.failure.is_taken
    }

    #[getter]
    fn is_stale(&self) -> bool {
        self.failure.is_stale
    }

    fn field<'py>(&self, py: Python<'py>, name: &str) -> Option<Bound<'py, PyBytes>> {
        self.failure
            .fields
            .get(name)
            .map(|value| PyBytes::new(py, value))
    }

    fn fields<'py>(&self, py: Python<'py>) -> Pairs<'py> {
        pairs(py, &self.failure.fields)
    }

    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.failure.body)
    }
}

#[pyclass(frozen, get_all)]
pub struct PeerUp {
    peer: String,
    remote: String,
    dialed: bool,
}

#[pyclass(frozen, get_all)]
pub struct PeerDown {
    peer: String,
    reason: String,
}

#[pyclass(frozen, get_all)]
pub struct PeerIdentified {
    peer: String,
    agent_version: String,
}

#[pyclass(frozen, get_all)]
pub struct Rejected {
    listener: String,
    client: String,
    status: u16,
    reason: &'static str,
}

#[pyclass(frozen, get_all)]
pub struct Broken {
    why: String,
}

#[pyclass(frozen)]
pub struct Completed {
    #[pyo3(get)]
    token: u64,
    result: Result<Option<Arc<Whole>>, String>,
}

#[pymethods]
impl Completed {
    /// Why there is no answer, or none.
    #[getter]
    fn error(&self) -> Option<&str> {
        self.result.as_ref().err().map(String::as_str)
    }

    /// 0 where there is no answer to a request.
    #[getter]
    fn status(&self) -> u16 {
        self.whole().map_or(0, |whole| whole.head.status)
    }

    fn field<'py>(&self, py: Python<'py>, name: &str) -> Option<Bound<'py, PyBytes>> {
        self.whole()
            .and_then(|whole| whole.head.fields.get(name))
            .map(|value| PyBytes::new(py, value))
    }

    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.whole().map_or(&[], |whole| &whole.body))
    }
}

impl Completed {
    fn whole(&self) -> Option<&Whole> {
        self.result.as_ref().ok().and_then(|whole| whole.as_deref())
    }
}
