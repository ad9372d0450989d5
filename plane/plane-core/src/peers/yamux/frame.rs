//! The twelve bytes before everything on the wire.
//!
//! Source: yamux specification (hashicorp/yamux, spec.md); wire.md 5.5.

pub(super) const HEADER_BYTES: usize = 12;

/// Flags of a data frame or a window update.
pub(super) const SYN: u16 = 1;
pub(super) const ACK: u16 = 2;
pub(super) const FIN: u16 = 4;
pub(super) const RST: u16 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    WindowUpdate,
    Ping,
    GoAway,
}

/// Why a side ends the connection, as `GoAway` tells it in place of a length.
#[derive(Clone, Copy)]
pub(super) enum GoAwayCode {
    Normal = 0,
    ProtocolError = 1,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub kind: Kind,
    pub flags: u16,
    pub stream: u32,
    /// Of a data frame the bytes that follow, of a window update the credit, of a ping its value. With
    /// `RST` on a window update it is an error code.
    pub length: u32,
}

impl Header {
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[1] = match self.kind {
            Kind::Data => 0,
            Kind::WindowUpdate => 1,
            Kind::Ping => 2,
            Kind::GoAway => 3,
        };
        bytes[2..4].copy_from_slice(&self.flags.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.stream.to_be_bytes());
        bytes[8..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, &'static str> {
        let [version, kind, f0, f1, s0, s1, s2, s3, l0, l1, l2, l3] = *bytes;
        if version != 0 {
            return Err("a frame of an unknown version");
        }
        let kind = match kind {
            0 => Kind::Data,
            1 => Kind::WindowUpdate,
            2 => Kind::Ping,
            3 => Kind::GoAway,
            _ => return Err("a frame of an unknown type"),
        };
        Ok(Header {
            kind,
            flags: u16::from_be_bytes([f0, f1]),
            stream: u32::from_be_bytes([s0, s1, s2, s3]),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
        })
    }
}
