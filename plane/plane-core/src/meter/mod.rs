//! How much did a backend write, what does it say it used, and did its stream end as it should?
//!
//! [`Meter`] looks at a copy of an SSE stream while the bytes pass, whatever the pieces they come in.
//! Invariants: the result depends on the bytes alone, never on how they were cut; nothing is buffered,
//! so an event of any size costs the same few hundred bytes; nothing in a stream is an error. Estimates,
//! charges and what to do about a stream that broke are left to the caller.
//! Source: http-api.md §4.2, §4.3 and §15 items 1, 8, 20; wire.md §8.7; field-cases.md O-08, O-17, A-16.

mod json;
mod number;
mod place;
mod sse;
mod tally;
#[cfg(test)]
mod tests;
mod whole;

use json::Walker;
use place::Place;
use sse::Lines;
use tally::Tally;
pub use whole::is_whole_json;

/// What a stream or an answer has shown so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt by the backend's count; `None` while it has not said.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the output by the backend's count; `None` while it has not said.
    pub completion_tokens: Option<u64>,
    /// Tokens read from or written to a prompt cache, which Anthropic leaves out of `prompt_tokens`.
    pub cache_tokens: u64,
    /// Whether the counts cover the output: true after a usage event, false after `message_start` alone.
    pub exact: bool,
    /// UTF-8 bytes of decoded output: text, reasoning, refusals, tool arguments.
    pub output_bytes: u64,
    /// Events with data, the terminator included. 0 for a buffered answer.
    pub events: u64,
    /// Events with output in them. 0 for a buffered answer.
    pub output_events: u64,
    /// `[DONE]`, `message_stop`, or the last event of a `/v1/responses` stream.
    pub terminator_seen: bool,
    /// A finish or stop reason that is not `null`.
    pub finish_seen: bool,
    /// An error object, or `event: error`.
    pub error_event_seen: bool,
    /// The last `sequence_number` of an event; `/v1/responses` has them.
    pub sequence_number: Option<u64>,
    /// The bytes so far end between two events, so another event may follow.
    pub at_boundary: bool,
}

/// Meters one SSE stream, or one JSON body too long to hold.
#[derive(Clone, Debug)]
pub struct Meter {
    /// None where the bytes are one JSON text.
    lines: Option<Lines>,
    walker: Walker,
    tally: Tally,
}

impl Default for Meter {
    fn default() -> Self {
        Self::new()
    }
}

impl Meter {
    #[must_use]
    pub fn new() -> Self {
        Self {
            lines: Some(Lines::new()),
            walker: Walker::new(Place::Event),
            tally: Tally::default(),
        }
    }

    /// One for a JSON body.
    #[must_use]
    pub fn of_body() -> Self {
        Self {
            lines: None,
            walker: Walker::new(Place::Answer),
            tally: Tally::default(),
        }
    }

    /// Looks at the next bytes of the stream, in pieces of any size.
    pub fn feed(&mut self, bytes: &[u8]) {
        match &mut self.lines {
            Some(lines) => lines.feed(bytes, &mut self.walker, &mut self.tally),
            None => self.walker.feed(bytes, &mut self.tally),
        }
    }

    /// What the stream has shown so far. Text of an event that is not whole yet counts already.
    #[must_use]
    pub fn snapshot(&self) -> Usage {
        let mut usage = self.tally.usage();
        usage.at_boundary = self.lines.as_ref().is_none_or(Lines::at_boundary);
        usage
    }

    /// Whether the bytes so far are what it reads: any stream is, a body only as far as it is one object.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.lines.is_some() || self.walker.is_object_so_far()
    }

    /// Whether the stream's end mark has come, or the body's JSON is closed.
    #[must_use]
    pub fn has_end_mark(&self) -> bool {
        match self.lines {
            Some(_) => self.tally.terminator_seen,
            None => self.walker.is_closed(),
        }
    }

    /// UTF-8 bytes of decoded output so far: the cheap read for a tick over many streams.
    #[must_use]
    pub fn output_bytes(&self) -> u64 {
        self.tally.output_bytes
    }
}

/// Reads the usage out of a buffered answer; `None` if the body is not a JSON object.
///
/// Lenient on purpose: literals such as `NaN` and members of any shape are stepped over. Without usage in
/// the answer, `exact` is false and `output_bytes` is what an estimate can start from.
#[must_use]
pub fn usage_of_body(body: &[u8]) -> Option<Usage> {
    let mut walker = Walker::new(Place::Answer);
    let mut tally = Tally::default();
    walker.feed(body, &mut tally);
    if !walker.is_whole_object() {
        return None;
    }
    Some(Usage {
        at_boundary: true,
        ..tally.usage()
    })
}
