//! What time is it, in a number that two processes of one machine can compare?

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970.
pub fn now_ns() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Stands before a chunk's write time, which is 19 decimal digits of nanoseconds since 1970.
pub const STAMP_MARK: &[u8] = b"@ns=";
/// Digits of a write time.
pub const STAMP_DIGITS: usize = 19;
