//! HTTP/1.1 on the wire: what a head may look like, where a body ends, how both are written.
//!
//! Everything here is a plain function or state machine over bytes; no socket is touched. The
//! server side (`ingress`) and the client side (`upstream`) share it, so that both read a message's
//! length in exactly one way.

pub mod body;
pub mod fields;
pub mod guard;
pub mod path;
pub mod response;
pub mod write;

pub use body::{BodyDecoder, BodyError, Decoded};
pub use fields::Fields;
pub use guard::{Framing, GuardLimits, Refused, RequestHead, RequestParser};
pub use response::{ResponseError, ResponseHead, ResponseParser};

/// Header fields accepted in one head, request or response.
pub const FIELDS_MAX: usize = 512;
/// The same for requests over a link, so that what a router has let in passes with what it adds.
pub const LINK_FIELDS_MAX: usize = FIELDS_MAX + 32;
/// Tokens in all `Connection` fields of one head. Every field is compared with each of them.
pub const CONNECTION_TOKENS_MAX: usize = 32;
/// Bytes of one head, request line or status line included.
pub const HEAD_BYTES_MAX: usize = 128 * 1024;
/// The same for requests over a link.
pub const LINK_HEAD_BYTES_MAX: usize = HEAD_BYTES_MAX + 8 * 1024;
