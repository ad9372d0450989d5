//! Is a JSON text all there, or did it break off?
//!
//! Only what breaking off would change is looked at: every bracket and string is closed, and nothing
//! follows. Literals in it (`NaN` too) and what stands between values are not judged.
//! Source: wire.md §8.7; decisions.md 39; field-cases.md A-16, O-27.

use memchr::memchr2;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Whether this is one JSON value, closed, with nothing but white space around it.
#[must_use]
pub fn is_whole_json(body: &[u8]) -> bool {
    let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    let body = body.trim_ascii();
    match body.first() {
        Some(b'{' | b'[') => {}
        Some(b'"') => return behind_string(body, 1) == Some(body.len()),
        // A number may have lost digits, but none that anybody could miss.
        _ => return serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok(),
    }
    let (mut at, mut open) = (0, 0_usize);
    while let Some(byte) = body.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => open += 1,
            b'}' | b']' => {
                // The first bracket is an opening one, and what closes it ends the loop.
                open -= 1;
                if open == 0 {
                    return at == body.len();
                }
            }
            b'"' => match behind_string(body, at) {
                Some(behind) => at = behind,
                None => return false,
            },
            _ => {}
        }
    }
    false
}

/// Where the text goes on behind the string that begins here; `None` when it is not closed.
fn behind_string(body: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let found = at + memchr2(b'"', b'\\', body.get(at..)?)?;
        if body[found] == b'"' {
            return Some(found + 1);
        }
        at = found + 2;
    }
}
