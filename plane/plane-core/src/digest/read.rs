//! Which members of a body matter, and what becomes of an error met on the way?
//!
//! Invariant: every value is walked to its end by serde_json's strict rules and no member is read
//! twice into the same figure. What a value adds to the figures is decided in [`super::value`].

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::error::is_non_finite;
use super::value::{Reader, Role, Seen};
use super::{Digest, DigestError, DigestErrorKind, MEMBERS_MAX, ModelKind, shortened};

/// What all seeds of one body share: where it starts, and the failure that serde's error cannot carry.
pub(super) struct Context {
    start_address: usize,
    failure: RefCell<Option<(DigestErrorKind, Option<usize>)>>,
}

impl Context {
    pub(super) fn new(text: &str) -> Self {
        Self {
            start_address: text.as_ptr().addr(),
            failure: RefCell::new(None),
        }
    }

    /// Notes the failure and gives the error that stops the parser.
    pub(super) fn fail<E: serde::de::Error>(&self, kind: DigestErrorKind) -> E {
        *self.failure.borrow_mut() = Some((kind, None));
        E::custom("refused")
    }

    /// The refusal behind an error that serde_json met in `text`, which begins at byte `base` of the body.
    pub(super) fn error_of(
        &self,
        source: &serde_json::Error,
        text: &str,
        base: usize,
    ) -> DigestError {
        let offset = match source.is_eof() {
            true => text.len(),
            false => offset_of(source, text),
        };
        match self.failure.borrow_mut().take() {
            Some((kind, known)) => DigestError {
                kind,
                offset: known.unwrap_or(base + offset),
            },
            None => DigestError {
                kind: syntax_kind(source, &text.as_bytes()[offset..]),
                offset: base + offset,
            },
        }
    }
}

/// The byte of `text` at which serde_json stopped: it counts lines from 1 and bytes in them from 1.
fn offset_of(source: &serde_json::Error, text: &str) -> usize {
    let line_start = match source.line() {
        0 | 1 => 0,
        line => memchr::memchr_iter(b'\n', text.as_bytes())
            .nth(line - 2)
            .map_or(text.len(), |newline| newline + 1),
    };
    (line_start + source.column().saturating_sub(1)).min(text.len())
}

fn syntax_kind(source: &serde_json::Error, rest: &[u8]) -> DigestErrorKind {
    let full = source.to_string();
    let what = full.split(" at line ").next().unwrap_or(&full);
    if source.is_eof() {
        DigestErrorKind::Truncated
    } else if is_non_finite(rest) {
        DigestErrorKind::NonFiniteNumber
    } else if what.starts_with("trailing characters") {
        DigestErrorKind::TrailingBytes
    } else if what.contains("surrogate") || what.contains("hex escape") {
        DigestErrorKind::BadUnicodeEscape
    } else {
        DigestErrorKind::Syntax(what.to_owned())
    }
}

/// Reads the body's own object.
pub(super) fn top_level<'de, D: Deserializer<'de>>(
    deserializer: D,
    context: &Context,
) -> Result<Digest, D::Error> {
    deserializer.deserialize_map(TopLevel { context })
}

struct TopLevel<'c> {
    context: &'c Context,
}

impl<'de> Visitor<'de> for TopLevel<'_> {
    type Value = Digest;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Digest, A::Error> {
        let mut digest = Digest::default();
        let mut names: HashSet<Cow<'de, str>> = HashSet::with_capacity(16);
        while let Some(name) = map.next_key_seed(NameSeed)? {
            if names.len() == MEMBERS_MAX {
                return Err(self.context.fail(DigestErrorKind::TooManyMembers));
            }
            if names.contains(&name) {
                let name = shortened(&name);
                return Err(self.context.fail(DigestErrorKind::DuplicateMember(name)));
            }
            self.member(&name, &mut map, &mut digest)?;
            names.insert(name);
        }
        Ok(digest)
    }
}

/// The members that [`TopLevel::member`] reads.
const OURS: [&str; 12] = [
    "model",
    "stream",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
    "messages",
    "system",
    "tools",
    "input",
    "prompt",
    "instructions",
];

/// Which of [`OURS`] this name becomes when case is folded as Unicode's simple folding does.
///
/// Source: Unicode CaseFolding.txt, status C and S: beside A to Z only U+017F and U+212A fold to ASCII.
fn ours_but_for_case(name: &str) -> Option<&'static str> {
    // Nearly every name: told by its length.
    if name.is_ascii() {
        let is_it = |ours: &&str| ours.eq_ignore_ascii_case(name);
        return OURS.into_iter().find(is_it);
    }
    let folded = |letter: char| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    let is_it = |ours: &&str| name.chars().map(folded).eq(ours.chars());
    OURS.into_iter().find(is_it)
}

impl TopLevel<'_> {
    fn member<'de, A: MapAccess<'de>>(
        &self,
        name: &str,
        map: &mut A,
        digest: &mut Digest,
    ) -> Result<(), A::Error> {
        match name {
            "model" => {
                digest.model = map.next_value_seed(ModelSeed(self.context))?;
                digest.model_kind = match digest.model {
                    Some(_) => ModelKind::String,
                    None => ModelKind::Null,
                };
            }
            "stream" => digest.stream = self.flag(map, "stream")?,
            "max_tokens" => digest.max_tokens = self.integer(map, "max_tokens")?,
            "max_completion_tokens" => {
                digest.max_completion_tokens = self.integer(map, "max_completion_tokens")?;
            }
            "max_output_tokens" => {
                digest.max_output_tokens = self.integer(map, "max_output_tokens")?;
            }
            "n" => digest.n = self.integer(map, "n")?,
            "messages" => {
                let seen = self.read(map, Role::Messages)?;
                digest.messages = seen.items;
                digest.images = digest.images.saturating_add(seen.images);
                digest.text_bytes += seen.bytes;
            }
            "system" => digest.text_bytes += self.read(map, Role::Content)?.bytes,
            "tools" => digest.text_bytes += self.raw_bytes(map)?,
            "input" => {
                let seen = self.read(map, Role::Input)?;
                digest.images = digest.images.saturating_add(seen.images);
                digest.input_bytes += seen.bytes;
            }
            "prompt" | "instructions" => {
                digest.input_bytes += self.read(map, Role::Content)?.bytes;
            }
            _ => {
                if let Some(field) = ours_but_for_case(name) {
                    let name = shortened(name);
                    return Err(self
                        .context
                        .fail(DigestErrorKind::Lookalike { name, field }));
                }
                self.read(map, Role::Skip)?;
            }
        }
        Ok(())
    }

    fn read<'de, A: MapAccess<'de>>(&self, map: &mut A, role: Role) -> Result<Seen, A::Error> {
        map.next_value_seed(Reader {
            role,
            depth: 1,
            context: self.context,
        })
    }

    fn flag<'de, A: MapAccess<'de>>(
        &self,
        map: &mut A,
        field: &'static str,
    ) -> Result<Option<bool>, A::Error> {
        match map.next_value::<&'de RawValue>()?.get() {
            "null" => Ok(None),
            "true" => Ok(Some(true)),
            "false" => Ok(Some(false)),
            _ => Err(self.context.fail(DigestErrorKind::WrongType { field })),
        }
    }

    fn integer<'de, A: MapAccess<'de>>(
        &self,
        map: &mut A,
        field: &'static str,
    ) -> Result<Option<i64>, A::Error> {
        let literal = map.next_value::<&'de RawValue>()?.get();
        match literal.as_bytes()[0] {
            b'n' => Ok(None),
            b'-' | b'0'..=b'9' => match whole_number(literal) {
                Some(number) => Ok(Some(number)),
                None => Err(self.context.fail(DigestErrorKind::NotAnInteger { field })),
            },
            _ => Err(self.context.fail(DigestErrorKind::WrongType { field })),
        }
    }

    /// The length of a value as sent; 0 for `null`.
    ///
    /// `RawValue` only finds the value's end, so the value is walked once more by the strict rules.
    fn raw_bytes<'de, A: MapAccess<'de>>(&self, map: &mut A) -> Result<u64, A::Error> {
        let raw = map.next_value::<&'de RawValue>()?.get();
        if raw == "null" {
            return Ok(0);
        }
        let mut deserializer = serde_json::Deserializer::from_str(raw);
        deserializer.disable_recursion_limit();
        let reader = Reader {
            role: Role::Skip,
            depth: 1,
            context: self.context,
        };
        match reader.deserialize(&mut deserializer) {
            Ok(_) => Ok(raw.len() as u64),
            Err(source) => {
                let base = raw.as_ptr().addr() - self.context.start_address;
                let error = self.context.error_of(&source, raw, base);
                *self.context.failure.borrow_mut() = Some((error.kind, Some(error.offset)));
                Err(A::Error::custom("refused"))
            }
        }
    }
}

/// The value of a JSON number literal, if it is whole and fits: `16`, `16.0`, `1e3`.
///
/// Rust's and Python's conversions to a double both round to nearest, so both see the same number.
fn whole_number(literal: &str) -> Option<i64> {
    if let Ok(number) = literal.parse::<i64>() {
        return Some(number);
    }
    if !literal
        .bytes()
        .any(|byte| matches!(byte, b'.' | b'e' | b'E'))
    {
        return None;
    }
    let number = literal.parse::<f64>().ok()?;
    let limit = 9_223_372_036_854_775_808.0; // 2^63
    // Invariant: inside these limits and without a fraction the conversion is exact.
    (number.fract() == 0.0 && (-limit..limit).contains(&number)).then_some(number as i64)
}

/// A member name, borrowed unless it has escapes.
struct NameSeed;

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = Cow<'de, str>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for NameSeed {
    type Value = Cow<'de, str>;
    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a member name")
    }
    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }
    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

/// The model's name, owned: `None` for `null`, any other type is refused.
struct ModelSeed<'c>(&'c Context);

impl<'de> DeserializeSeed<'de> for ModelSeed<'_> {
    type Value = Option<String>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl ModelSeed<'_> {
    fn refuse<E: serde::de::Error>(&self) -> Result<Option<String>, E> {
        Err(self.0.fail(DigestErrorKind::WrongType { field: "model" }))
    }
}

impl<'de> Visitor<'de> for ModelSeed<'_> {
    type Value = Option<String>;
    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a model name")
    }
    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Some(name.to_owned()))
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<Self::Value, E> {
        self.refuse()
    }
    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<Self::Value, E> {
        self.refuse()
    }
    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<Self::Value, E> {
        self.refuse()
    }
    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<Self::Value, E> {
        self.refuse()
    }
    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
        self.refuse()
    }
    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
        self.refuse()
    }
}
