//! How an exchange ended, and what it used, as Python sees it.

use plane_core::{exchange, meter};
use pyo3::prelude::*;

#[pyclass(frozen)]
pub struct Finished(pub exchange::Finished);

#[pymethods]
impl Finished {
    #[getter]
    fn handle(&self) -> u64 {
        self.0.handle
    }

    #[getter]
    fn outcome(&self) -> &'static str {
        self.0.outcome.name()
    }

    #[getter]
    fn status(&self) -> u16 {
        self.0.status
    }

    #[getter]
    fn head_s(&self) -> f64 {
        self.0.head_s
    }

    #[getter]
    fn attempt(&self) -> u32 {
        self.0.attempt
    }

    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    #[getter]
    fn chunks(&self) -> u64 {
        self.0.chunks
    }

    #[getter]
    fn usage(&self) -> Option<Usage> {
        self.0.usage.map(Usage)
    }

    #[getter]
    fn first_byte_s(&self) -> f64 {
        self.0.first_byte_s
    }

    #[getter]
    fn last_byte_s(&self) -> f64 {
        self.0.last_byte_s
    }
}

#[pyclass(frozen)]
pub struct Usage(pub meter::Usage);

#[pymethods]
impl Usage {
    #[getter]
    fn prompt_tokens(&self) -> Option<u64> {
        self.0.prompt_tokens
    }

    #[getter]
    fn completion_tokens(&self) -> Option<u64> {
        self.0.completion_tokens
    }

    #[getter]
    fn cache_tokens(&self) -> u64 {
        self.0.cache_tokens
    }

    #[getter]
    fn exact(&self) -> bool {
        self.0.exact
    }

    #[getter]
    fn output_bytes(&self) -> u64 {
        self.0.output_bytes
    }
}
