//! What whole number does a literal stand for, cut or odd as it may be?
//!
//! Invariant: never a guess; a literal that is not a count of zero or more gives `None`.

/// Longer literals are no counts.
pub(super) const LITERAL_BYTES_MAX: usize = 32;

/// The bytes of one literal, as they come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Literal {
    bytes: [u8; LITERAL_BYTES_MAX],
    length: usize,
}

impl Literal {
    pub(super) fn clear(&mut self) {
        self.length = 0;
    }

    /// Adds bytes; what goes beyond the bound only makes the literal too long.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let end = self.length.saturating_add(bytes.len());
        match self.bytes.get_mut(self.length..end) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.length = end;
            }
            None => self.length = LITERAL_BYTES_MAX + 1,
        }
    }

    /// The bytes so far, none if there were too many.
    pub(super) fn get(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// The count it stands for: `12`, `12.0`, `1.2e1`.
    pub(super) fn count(&self) -> Option<u64> {
        let text = std::str::from_utf8(self.get()).ok()?;
        if !text.starts_with(|first: char| first.is_ascii_digit()) {
            return None;
        }
        if let Ok(count) = text.parse() {
            return Some(count);
        }
        let number: f64 = text.parse().ok()?;
        let limit = 18_446_744_073_709_551_616.0; // 2^64
        (number.fract() == 0.0 && number < limit).then_some(number as u64)
    }
}
