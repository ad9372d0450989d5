//! Where in a backend's answer does a value stand, and what does it mean there?
//!
//! The whole knowledge of dialects is the table in [`Place::member`]: OpenAI chat and completions,
//! OpenAI responses, Anthropic messages; streamed and whole. Invariant: arrays are transparent, an
//! element means what the array's place says.
//! Source: http-api.md §4.2, §4.3, §15 item 20.

/// A place that members are looked up in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// The object of one stream event.
    Event,
    /// The object of a buffered answer.
    Answer,
    /// `choices[]` of an event, and of an answer.
    Choice,
    AnswerChoice,
    /// `choices[].delta`, or `.message` of an answer.
    Delta,
    ToolCall,
    Function,
    /// Anthropic's `delta`.
    BlockDelta,
    /// Blocks or parts with text in them.
    Blocks,
    /// `output[]` of a `/v1/responses` answer.
    OutputItem,
    /// `message` of `message_start`, `response` of a responses event.
    Envelope,
    /// `usage`, and `usage` inside an envelope.
    Usage,
    EnvelopeUsage,
    /// Nothing here matters.
    #[default]
    Nowhere,
}

/// What a value is good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Meaning {
    #[default]
    Nothing,
    /// Output if it is a string.
    Text,
    /// Output, which some engines send under two names at once; counted under the first.
    Reasoning(ReasoningName),
    /// The type of the event.
    EventType,
    /// The kind of the object, which old engines set to `error`.
    ObjectKind,
    /// An error unless `null`.
    Error,
    /// A finish reason unless `null`.
    Finish,
    Count(Count),
    /// The event's number in its stream.
    Sequence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReasoningName {
    ReasoningContent,
    Reasoning,
}

/// The members of a usage object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    Prompt,
    Completion,
    Total,
    Input,
    Output,
    CacheRead,
    CacheCreation,
}

impl Place {
    /// What the member's value means, and the place inside it.
    pub(super) fn member(self, name: &[u8]) -> (Meaning, Place) {
        match self {
            Self::Event => Self::event_member(name),
            Self::Answer => Self::answer_member(name),
            Self::Choice | Self::AnswerChoice => self.choice_member(name),
            Self::Delta => Self::delta_member(name),
            Self::ToolCall => match name {
                b"function" => inside(Self::Function),
                _ => NOTHING,
            },
            Self::Function => match name {
                b"arguments" => text(),
                _ => NOTHING,
            },
            Self::BlockDelta => match name {
                b"text" | b"thinking" | b"partial_json" => text(),
                b"stop_reason" => only(Meaning::Finish),
                _ => NOTHING,
            },
            Self::Blocks => match name {
                b"text" | b"refusal" => text(),
                // A string on /v1/messages; some engines nest parts in it.
                b"thinking" => (Meaning::Text, Self::Blocks),
                _ => NOTHING,
            },
            Self::OutputItem => match name {
                b"content" | b"summary" => (Meaning::Text, Self::Blocks),
                b"arguments" => text(),
                _ => NOTHING,
            },
            Self::Envelope => match name {
                b"usage" => inside(Self::EnvelopeUsage),
                b"stop_reason" => only(Meaning::Finish),
                b"error" => only(Meaning::Error),
                _ => NOTHING,
            },
            Self::Usage | Self::EnvelopeUsage => Self::usage_member(name),
            Self::Nowhere => NOTHING,
        }
    }

    fn event_member(name: &[u8]) -> (Meaning, Place) {
        match name {
            b"choices" => inside(Self::Choice),
            // A string on /v1/responses, an object on /v1/messages.
            b"delta" => (Meaning::Text, Self::BlockDelta),
            b"usage" => inside(Self::Usage),
            b"message" | b"response" => inside(Self::Envelope),
            b"type" => only(Meaning::EventType),
            b"sequence_number" => only(Meaning::Sequence),
            b"object" => only(Meaning::ObjectKind),
            b"error" => only(Meaning::Error),
            _ => NOTHING,
        }
    }

    fn answer_member(name: &[u8]) -> (Meaning, Place) {
        match name {
            b"choices" => inside(Self::AnswerChoice),
            b"content" => inside(Self::Blocks),
            b"output" => inside(Self::OutputItem),
            b"usage" => inside(Self::Usage),
            b"stop_reason" => only(Meaning::Finish),
            b"error" => only(Meaning::Error),
            _ => NOTHING,
        }
    }

    fn choice_member(self, name: &[u8]) -> (Meaning, Place) {
        match name {
            b"delta" if self == Self::Choice => inside(Self::Delta),
            b"message" if self == Self::AnswerChoice => inside(Self::Delta),
            b"text" => text(),
            b"finish_reason" => only(Meaning::Finish),
            // Some engines put it here instead of beside `choices`.
            b"usage" => inside(Self::Usage),
            _ => NOTHING,
        }
    }

    fn delta_member(name: &[u8]) -> (Meaning, Place) {
        match name {
            b"content" => (Meaning::Text, Self::Blocks),
            b"reasoning_content" => only(Meaning::Reasoning(ReasoningName::ReasoningContent)),
            b"reasoning" => only(Meaning::Reasoning(ReasoningName::Reasoning)),
            b"refusal" => text(),
            b"tool_calls" => inside(Self::ToolCall),
            b"function_call" => inside(Self::Function),
            _ => NOTHING,
        }
    }

    fn usage_member(name: &[u8]) -> (Meaning, Place) {
        only(Meaning::Count(match name {
            b"prompt_tokens" => Count::Prompt,
            b"completion_tokens" => Count::Completion,
            b"total_tokens" => Count::Total,
            b"input_tokens" => Count::Input,
            b"output_tokens" => Count::Output,
            b"cache_read_input_tokens" => Count::CacheRead,
            b"cache_creation_input_tokens" => Count::CacheCreation,
            _ => return NOTHING,
        }))
    }
}

const NOTHING: (Meaning, Place) = (Meaning::Nothing, Place::Nowhere);

fn inside(place: Place) -> (Meaning, Place) {
    (Meaning::Nothing, place)
}

fn only(meaning: Meaning) -> (Meaning, Place) {
    (meaning, Place::Nowhere)
}

fn text() -> (Meaning, Place) {
    only(Meaning::Text)
}
