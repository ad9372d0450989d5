//! Identity keys and peer IDs, as bytes and as text.
//!
//! A key file is the libp2p protobuf of an Ed25519 private key, 68 bytes. No error shows key material.
//! Reading and writing files is left to the caller. Source: wire.md 2.

use libp2p::{PeerId, identity::Keypair};

use super::PeersError;

/// A peer ID as text is never longer, in either form.
const PEER_ID_CHARS_MAX: usize = 128;
/// CID version 1, codec libp2p-key.
const CID_PREFIX: [u8; 2] = [0x01, 0x72];

/// The key pair in the content of a key file.
pub fn keypair_from_file_bytes(bytes: &[u8]) -> Result<Keypair, PeersError> {
    Keypair::from_protobuf_encoding(bytes).map_err(|_| PeersError::Identity { bytes: bytes.len() })
}

/// The content of a key file with a fresh key: 68 bytes.
pub fn new_identity_bytes() -> Vec<u8> {
    Keypair::generate_ed25519()
        .to_protobuf_encoding()
        .expect("an Ed25519 key can always be encoded")
}

/// The peer ID (base58 text) of a key file's content.
pub fn peer_id_of(identity: &[u8]) -> Result<String, PeersError> {
    Ok(keypair_from_file_bytes(identity)?
        .public()
        .to_peer_id()
        .to_base58())
}

/// A peer ID given as base58 or as a CIDv1 in base32 (`bafz…`), as canonical base58 text.
pub fn parse_peer_id(text: &str) -> Result<String, PeersError> {
    peer_id(text)
        .map(|peer| peer.to_base58())
        .ok_or_else(|| PeersError::PeerId {
            text: text.chars().take(PEER_ID_CHARS_MAX).collect(),
        })
}

fn peer_id(text: &str) -> Option<PeerId> {
    if text.len() > PEER_ID_CHARS_MAX {
        return None;
    }
    if let Ok(peer) = text.parse() {
        return Some(peer);
    }
    let cid = base32(text.strip_prefix('b')?)?;
    PeerId::from_bytes(cid.strip_prefix(&CID_PREFIX)?).ok()
}

/// RFC 4648 base32, lower case, without padding; unused bits at the end must be zero.
fn base32(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 5 / 8);
    let (mut held, mut held_bits) = (0u32, 0u32);
    for symbol in text.bytes() {
        let value = match symbol {
            b'a'..=b'z' => symbol - b'a',
            b'2'..=b'7' => symbol - b'2' + 26,
            _ => return None,
        };
        held = (held << 5) | u32::from(value);
        held_bits += 5;
        if held_bits >= 8 {
            held_bits -= 8;
            bytes.push((held >> held_bits) as u8);
            held &= (1 << held_bits) - 1;
        }
    }
    (held == 0 && held_bits < 5).then_some(bytes)
}
