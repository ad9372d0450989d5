//! Why was a request body refused, and where in it?
//!
//! Invariant: no text of the body but a member's name is ever part of an error. Which HTTP status and
//! error code a kind gets is left to the router.

use std::fmt;

/// A refused body: what is wrong with it, and the byte where reading stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestError {
    pub kind: DigestErrorKind,
    /// Offset from the start of the body, at most its length, right to within a byte. For a value of a
    /// wrong type or range it is the value's end or a byte inside it.
    pub offset: usize,
}

/// What is wrong with a refused body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DigestErrorKind {
    /// No bytes, or white space only.
    Empty,
    ByteOrderMark,
    InvalidUtf8,
    NotAnObject,
    /// The body ends inside its JSON value.
    Truncated,
    /// Something follows the JSON value.
    TrailingBytes,
    /// `NaN`, `Infinity` or `-Infinity`, which some parsers take and others do not.
    NonFiniteNumber,
    /// A `\u` escape that is half of a pair or not four digits.
    BadUnicodeEscape,
    /// Any other breach of the JSON grammar, in the parser's words.
    Syntax(String),
    /// More than [`DEPTH_MAX`](super::DEPTH_MAX) levels of arrays and objects.
    TooDeep,
    /// More than [`MEMBERS_MAX`](super::MEMBERS_MAX) top-level members.
    TooManyMembers,
    /// A top-level member appears twice, by its decoded name (cut at 64 characters).
    DuplicateMember(String),
    /// A top-level member is one that the router acts on but for its case: some engines take it for that.
    Lookalike {
        name: String,
        field: &'static str,
    },
    /// A member the router acts on has a type it cannot use.
    WrongType {
        field: &'static str,
    },
    /// A whole number is wanted, and this one has a fraction or does not fit 64 bits.
    NotAnInteger {
        field: &'static str,
    },
}

impl DigestErrorKind {
    /// The member at fault, where it is one that the router acts on.
    #[must_use]
    pub fn field(&self) -> Option<&'static str> {
        match self {
            Self::WrongType { field }
            | Self::NotAnInteger { field }
            | Self::Lookalike { field, .. } => Some(field),
            _ => None,
        }
    }

    /// A constant name for logs and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::ByteOrderMark => "byte_order_mark",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::NotAnObject => "not_an_object",
            Self::Truncated => "truncated",
            Self::TrailingBytes => "trailing_bytes",
            Self::NonFiniteNumber => "non_finite_number",
            Self::BadUnicodeEscape => "bad_unicode_escape",
            Self::Syntax(_) => "syntax",
            Self::TooDeep => "too_deep",
            Self::TooManyMembers => "too_many_members",
            Self::DuplicateMember(_) => "duplicate_member",
            Self::Lookalike { .. } => "lookalike_member",
            Self::WrongType { .. } => "wrong_type",
            Self::NotAnInteger { .. } => "not_an_integer",
        }
    }
}

impl fmt::Display for DigestError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.offset;
        match &self.kind {
            DigestErrorKind::Empty => write!(out, "the body is empty; send a JSON object"),
            DigestErrorKind::ByteOrderMark => {
                write!(
                    out,
                    "the body starts with a byte order mark; send UTF-8 without one"
                )
            }
            DigestErrorKind::InvalidUtf8 => write!(out, "the body is not UTF-8 at byte {at}"),
            DigestErrorKind::NotAnObject => write!(out, "the body is not a JSON object"),
            DigestErrorKind::Truncated => {
                write!(out, "the JSON of the body ends early, at byte {at}")
            }
            DigestErrorKind::TrailingBytes => {
                write!(out, "the body goes on after its JSON object, at byte {at}")
            }
            DigestErrorKind::NonFiniteNumber => {
                write!(
                    out,
                    "NaN and Infinity are not JSON (byte {at}); send a number or null"
                )
            }
            DigestErrorKind::BadUnicodeEscape => {
                write!(out, "a \\u escape near byte {at} is not a whole character")
            }
            DigestErrorKind::Syntax(what) => {
                write!(out, "the body is not JSON at byte {at}: {what}")
            }
            DigestErrorKind::TooDeep => write!(
                out,
                "the body nests deeper than {} levels at byte {at}",
                super::DEPTH_MAX
            ),
            DigestErrorKind::TooManyMembers => write!(
                out,
                "the body's object has more than {} members",
                super::MEMBERS_MAX
            ),
            DigestErrorKind::DuplicateMember(name) => {
                write!(
                    out,
                    "the member {name:?} appears twice (byte {at}); send it once"
                )
            }
            DigestErrorKind::Lookalike { name, field } => {
                write!(
                    out,
                    "the member {name:?} (byte {at}) differs from {field:?} in case alone, and engines read it \
                     differently; write {field:?}, or leave it out"
                )
            }
            DigestErrorKind::WrongType { field } => {
                write!(out, "{field} has the wrong type; {}", expected(field))
            }
            DigestErrorKind::NotAnInteger { field } => {
                write!(out, "{field} is not a whole number of 64 bits")
            }
        }
    }
}

impl std::error::Error for DigestError {}

/// Whether these bytes begin with a number that JSON does not have.
pub(super) fn is_non_finite(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"-").unwrap_or(bytes);
    bytes.starts_with(b"NaN") || bytes.starts_with(b"Infinity")
}

fn expected(field: &str) -> &'static str {
    match field {
        "model" => "send a string",
        "stream" => "send true or false",
        _ => "send a whole number",
    }
}
