//! What do the values found so far add up to?
//!
//! Counts of one JSON object are gathered apart and settled when it is whole, because which of them
//! stand depends on the others. Invariant: a settled object never lowers an Anthropic count, and an
//! OpenAI usage of zeros settles nothing.
//! Source: http-api.md §4.2 (usage read) and §4.3 (meter).

use super::Usage;
use super::place::{Count, ReasoningName};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub output_bytes: u64,
    pub events: u64,
    pub output_events: u64,
    pub terminator_seen: bool,
    pub finish_seen: bool,
    pub error_event_seen: bool,
    sequence_number: Option<u64>,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    cache_tokens: u64,
    exact: bool,
    object: Counts,
    reasoning: Option<ReasoningName>,
    /// `output_bytes` when the event began.
    output_bytes_before: u64,
}

/// The usage numbers of one JSON object.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    found: bool,
    in_envelope: bool,
    ends_response: bool,
    prompt: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
    input: Option<u64>,
    output: Option<u64>,
    cache_read: u64,
    cache_creation: u64,
}

impl Tally {
    pub(super) fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            cache_tokens: self.cache_tokens,
            exact: self.exact,
            output_bytes: self.output_bytes,
            events: self.events,
            output_events: self.output_events,
            terminator_seen: self.terminator_seen,
            finish_seen: self.finish_seen,
            error_event_seen: self.error_event_seen,
            sequence_number: self.sequence_number,
            at_boundary: false,
        }
    }

    /// Counts bytes of output.
    pub(super) fn output(&mut self, bytes: u64) {
        self.output_bytes = self.output_bytes.saturating_add(bytes);
    }

    /// An event says its number; one that is no number changes nothing.
    pub(super) fn sequence(&mut self, number: Option<u64>) {
        self.sequence_number = number.or(self.sequence_number);
    }

    /// Counts bytes of reasoning, unless this object carries it under another name already.
    pub(super) fn reasoning(&mut self, name: ReasoningName, bytes: u64) {
        if *self.reasoning.get_or_insert(name) == name {
            self.output(bytes);
        }
    }

    pub(super) fn count(&mut self, which: Count, in_envelope: bool, value: u64) {
        let counts = &mut self.object;
        counts.found = true;
        counts.in_envelope = in_envelope;
        match which {
            Count::Prompt => counts.prompt = Some(value),
            Count::Completion => counts.completion = Some(value),
            Count::Total => counts.total = Some(value),
            Count::Input => counts.input = Some(value),
            Count::Output => counts.output = Some(value),
            Count::CacheRead => counts.cache_read = value,
            Count::CacheCreation => counts.cache_creation = value,
        }
    }

    /// The type of a stream event is known, by its `event:` line or its `type` member.
    pub(super) fn event_type(&mut self, name: &[u8]) {
        match name {
            b"message_stop" => self.terminator_seen = true,
            b"response.completed" | b"response.incomplete" => self.response_ends(),
            b"response.failed" => {
                self.response_ends();
                self.error_event_seen = true;
            }
            b"error" => self.error_event_seen = true,
            _ => {}
        }
    }

    /// A `/v1/responses` stream has its last event, whose usage covers the output.
    fn response_ends(&mut self) {
        self.terminator_seen = true;
        self.finish_seen = true;
        self.object.ends_response = true;
    }

    /// A JSON object is whole: settle what it says of usage.
    pub(super) fn object_end(&mut self) {
        let counts = std::mem::take(&mut self.object);
        self.reasoning = None;
        if !counts.found {
            return;
        }
        let (prompt, completion) = counts.openai();
        if prompt > 0 || completion > 0 {
            self.prompt_tokens = Some(prompt);
            self.completion_tokens = Some(completion);
            self.exact = true;
            return;
        }
        raise(&mut self.prompt_tokens, counts.input);
        raise(&mut self.completion_tokens, counts.output);
        let cache_tokens = counts.cache_read.saturating_add(counts.cache_creation);
        self.cache_tokens = self.cache_tokens.max(cache_tokens);
        // `message_start` counts the prompt; its output count is only a start.
        let covers_output = !counts.in_envelope || counts.ends_response;
        let is_zero = counts.input.unwrap_or(0) == 0 && counts.output.unwrap_or(0) == 0;
        self.exact |= counts.output.is_some() && covers_output && !is_zero;
    }

    /// An event with data has ended; counts of an object that is not whole are dropped.
    pub(super) fn event_end(&mut self) {
        self.object = Counts::default();
        self.reasoning = None;
        self.events += 1;
        self.output_events += u64::from(self.output_bytes > self.output_bytes_before);
        self.output_bytes_before = self.output_bytes;
    }
}

impl Counts {
    /// Prompt and completion under OpenAI's names, either filled in from the total if it is missing.
    fn openai(&self) -> (u64, u64) {
        let rest = |known: Option<u64>| {
            let total = self.total.unwrap_or(0);
            total.saturating_sub(known.unwrap_or(0))
        };
        match (self.prompt, self.completion) {
            (Some(prompt), Some(completion)) => (prompt, completion),
            (Some(prompt), None) => (prompt, rest(self.prompt)),
            (None, Some(completion)) => (rest(self.completion), completion),
            // Rerankers may give a total alone.
            (None, None) if self.input.is_none() && self.output.is_none() => (rest(None), 0),
            (None, None) => (0, 0),
        }
    }
}

/// Keeps the larger of what was known and what is said now.
fn raise(known: &mut Option<u64>, said: Option<u64>) {
    *known = (*known).max(said);
}
