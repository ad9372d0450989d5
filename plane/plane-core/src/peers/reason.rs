//! Why a connection ended or did not come about, in words for the person who reads the log.

use std::error::Error;

use libp2p::swarm::{ConnectionError, DialError};

pub(super) fn close_text(cause: Option<ConnectionError>) -> String {
    match cause {
        Some(ConnectionError::IO(error)) => innermost(&error),
        Some(error) => error.to_string(),
        None => "closed by this side".to_owned(),
    }
}

pub(super) fn dial_text(error: &DialError) -> String {
    match error {
        DialError::WrongPeerId { obtained, address } => format!(
            "{address} is answered by the peer {obtained}; check the address and the expected peer ID"
        ),
        DialError::Transport(tried) => {
            let each = tried
                .iter()
                .map(|(addr, error)| format!("{addr}: {}", innermost(error)));
            each.collect::<Vec<_>>().join("; ")
        }
        error => innermost(error),
    }
}

/// The text at the root of an error: the layers above it only say that they failed.
pub(super) fn innermost(error: &(dyn Error + 'static)) -> String {
    match error.source() {
        Some(source) => innermost(source),
        None => error.to_string(),
    }
}
