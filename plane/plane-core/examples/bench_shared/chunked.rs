//! Where are the bytes of a chunked body? Fed with whatever a read brought, it hands out the data and stops at the
//! body's end. Invariant: how the bytes are cut into reads changes nothing.
//! Source: RFC 9112 §7.1.

/// How far the body has been read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum At {
    #[default]
    Size,
    Extension,
    SizeEnd,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    Trailer,
    LastLf,
    Done,
}

/// Reads one chunked body.
#[derive(Debug, Default)]
pub struct Chunked {
    at: At,
    left: usize,
}

/// The body breaks the chunked coding.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed;

impl Chunked {
    /// True when the body has ended.
    pub fn done(&self) -> bool {
        self.at == At::Done
    }

    /// Reads `input`, gives data to `data`, and returns how many bytes belonged to this body.
    pub fn feed(&mut self, input: &[u8], mut data: impl FnMut(&[u8])) -> Result<usize, Malformed> {
        let mut used = 0;
        while used < input.len() && self.at != At::Done {
            if self.at == At::Data {
                let take = self.left.min(input.len() - used);
                data(&input[used..used + take]);
                used += take;
                self.left -= take;
                if self.left == 0 {
                    self.at = At::DataCr;
                }
            } else {
                self.at = self.line_byte(input[used])?;
                used += 1;
            }
        }
        Ok(used)
    }

    /// What follows after one byte outside the data.
    fn line_byte(&mut self, byte: u8) -> Result<At, Malformed> {
        match (self.at, byte) {
            (At::Size, b'\r') => Ok(At::SizeEnd),
            (At::Size, b';') => Ok(At::Extension),
            (At::Size, digit) => self.size_digit(digit),
            (At::Extension, b'\r') => Ok(At::SizeEnd),
            (At::Extension, _) => Ok(At::Extension),
            (At::SizeEnd, b'\n') if self.left == 0 => Ok(At::TrailerStart),
            (At::SizeEnd, b'\n') => Ok(At::Data),
            (At::DataCr, b'\r') => Ok(At::DataLf),
            (At::DataLf, b'\n') => Ok(At::Size),
            (At::TrailerStart, b'\r') => Ok(At::LastLf),
            (At::TrailerStart | At::Trailer, b'\n') => Ok(At::TrailerStart),
            (At::TrailerStart | At::Trailer, _) => Ok(At::Trailer),
            (At::LastLf, b'\n') => Ok(At::Done),
            _ => Err(Malformed),
        }
    }

    fn size_digit(&mut self, byte: u8) -> Result<At, Malformed> {
        let digit = (byte as char).to_digit(16).ok_or(Malformed)? as usize;
        let larger = self.left.checked_mul(16).ok_or(Malformed)?;
        self.left = larger + digit;
        Ok(At::Size)
    }
}
