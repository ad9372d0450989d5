//! What a path leads to, as far as the plane must know it.

/// Whether a segment is `.` or `..`, plain or percent-encoded. Source: RFC 3986 §5.2.4, §6.2.2.3.
pub fn has_dot_segment(path: &[u8]) -> bool {
    path.split(|b| *b == b'/').any(|segment| {
        let mut rest = segment;
        let mut dots = 0;
        while !rest.is_empty() {
            rest = match rest {
                [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => rest,
                _ => return false,
            };
            dots += 1;
        }
        (1..=2).contains(&dots)
    })
}

#[cfg(test)]
mod tests {
    use super::has_dot_segment;

    #[test]
    fn dot_segments_are_seen_in_any_spelling() {
        for path in ["/v1/../x", "/v1/.", "/v1/%2e%2E/x", "/v1/.%2e", "/./v1"] {
            assert!(has_dot_segment(path.as_bytes()), "{path}");
        }
        for path in [
            "/v1/x",
            "/v1/.../x",
            "/v1/..x",
            "/v1/a.b",
            "/v1//x",
            "/",
            "",
        ] {
            assert!(!has_dot_segment(path.as_bytes()), "{path}");
        }
    }
}
