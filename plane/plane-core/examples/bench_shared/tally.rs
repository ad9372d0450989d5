//! What did the load meet? Counts and spreads of one run, written as one line of JSON.
//!
//! Rates and spreads are of what ended inside the window; the `_all` counts have all that was sent, so that CPU time of
//! the whole run can be divided by them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::client::{Answer, Failure};
use crate::clock::now_ns;
use crate::histogram::Histogram;

/// What one run has met so far.
pub struct Tally {
    from: Instant,
    pub until: Instant,
    pub errors: Errors,
    pub latency: Histogram,
    pub first_byte: Histogram,
    pub chunk_delay: Histogram,
    pub chunk_late: Histogram,
    pub status: BTreeMap<u16, u64>,
    pub journal: Option<Vec<Entry>>,
    requests: u64,
    requests_all: u64,
    chunks: u64,
    chunks_all: u64,
    body_bytes_all: u64,
}

/// One request of the journal; times are nanoseconds since 1970.
pub struct Entry {
    pub sent_ns: u64,
    pub first_ns: u64,
    pub ended_ns: u64,
    pub status: u16,
}

/// Requests that went wrong, by kind.
#[derive(Default, Serialize)]
pub struct Errors {
    pub non_2xx: u64,
    pub truncated: u64,
    pub connection: u64,
    pub short: u64,
    pub stuck: u64,
}

/// The line of JSON.
#[derive(Serialize)]
pub struct Report<'a> {
    seconds: f64,
    requests: u64,
    requests_all: u64,
    requests_per_s: f64,
    latency_p50_us: f64,
    latency_p99_us: f64,
    chunks: u64,
    chunks_all: u64,
    chunks_per_s: f64,
    chunk_delay_p50_us: f64,
    chunk_delay_p99_us: f64,
    chunk_delay_max_us: f64,
    chunk_late_p50_us: f64,
    chunk_late_p99_us: f64,
    chunk_late_max_us: f64,
    ttft_p50_us: f64,
    ttft_p99_us: f64,
    body_bytes_all: u64,
    status: &'a BTreeMap<u16, u64>,
    errors: &'a Errors,
}

impl Tally {
    /// For a window from one moment until another.
    pub fn new(from: Instant, until: Instant) -> Self {
        Self {
            from,
            until,
            errors: Errors::default(),
            latency: Histogram::new(),
            first_byte: Histogram::new(),
            chunk_delay: Histogram::new(),
            chunk_late: Histogram::new(),
            status: BTreeMap::new(),
            journal: None,
            requests: 0,
            requests_all: 0,
            chunks: 0,
            chunks_all: 0,
            body_bytes_all: 0,
        }
    }

    /// True when what happens at `now` counts.
    pub fn in_window(&self, now: Instant) -> bool {
        self.from <= now && now <= self.until
    }

    /// One answer came whole and was good.
    pub fn answered(&mut self, sent_at: Instant, now: Instant, answer: &Answer) {
        self.requests_all += 1;
        self.body_bytes_all += answer.body_bytes;
        *self.status.entry(answer.status).or_default() += 1;
        if self.in_window(now) {
            self.requests += 1;
            self.latency.record(nanos(now - sent_at));
        }
    }

    /// One answer came whole with a status that says no.
    pub fn refused(&mut self, status: u16) {
        self.requests_all += 1;
        *self.status.entry(status).or_default() += 1;
        self.errors.non_2xx += 1;
    }

    /// One answer did not come whole.
    pub fn failed(&mut self, failure: Failure) {
        self.requests_all += 1;
        match failure {
            Failure::Connection => self.errors.connection += 1,
            Failure::Truncated => self.errors.truncated += 1,
        }
    }

    /// One stamped chunk was read, `delay_ns` after it was written; `before_ns` is the delay of the chunk before it in
    /// the stream.
    ///
    /// The time between two chunks has grown on the way by the difference of their delays. One that has shrunk counts
    /// as 0: a chunk only makes up for the one before it.
    pub fn chunk(&mut self, delay_ns: u64, before_ns: Option<u64>, in_window: bool) {
        self.chunks_all += 1;
        if in_window {
            self.chunks += 1;
            self.chunk_delay.record(delay_ns);
            if let Some(before_ns) = before_ns {
                self.chunk_late.record(delay_ns.saturating_sub(before_ns));
            }
        }
    }

    /// Notes one request where a journal is kept: when it was sent, when its first chunk came (or its end, where it has
    /// no chunks), and its status, 0 for none or a broken answer.
    pub fn note(&mut self, sent_ns: u64, first_ns: Option<u64>, status: u16) {
        if let Some(journal) = &mut self.journal {
            let ended_ns = now_ns();
            journal.push(Entry {
                sent_ns,
                first_ns: first_ns.unwrap_or(ended_ns),
                ended_ns,
                status,
            });
        }
    }

    /// What was met in a window of `window`.
    pub fn report(&self, window: Duration) -> Report<'_> {
        let seconds = window.as_secs_f64();
        Report {
            seconds,
            requests: self.requests,
            requests_all: self.requests_all,
            requests_per_s: self.requests as f64 / seconds,
            latency_p50_us: self.latency.percentile_us(0.50),
            latency_p99_us: self.latency.percentile_us(0.99),
            chunks: self.chunks,
            chunks_all: self.chunks_all,
            chunks_per_s: self.chunks as f64 / seconds,
            chunk_delay_p50_us: self.chunk_delay.percentile_us(0.50),
            chunk_delay_p99_us: self.chunk_delay.percentile_us(0.99),
            chunk_delay_max_us: self.chunk_delay.max_us(),
            chunk_late_p50_us: self.chunk_late.percentile_us(0.50),
            chunk_late_p99_us: self.chunk_late.percentile_us(0.99),
            chunk_late_max_us: self.chunk_late.max_us(),
            ttft_p50_us: self.first_byte.percentile_us(0.50),
            ttft_p99_us: self.first_byte.percentile_us(0.99),
            body_bytes_all: self.body_bytes_all,
            status: &self.status,
            errors: &self.errors,
        }
    }
}

/// A duration in nanoseconds.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
