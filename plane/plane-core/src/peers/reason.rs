//! Why a connection ended or did not come about, in words for the person who reads the log.

use std::{error::Error, io};

use libp2p::{
    TransportError,
    core::transport::timeout::TransportTimeoutError,
    swarm::{ConnectionError, DialError, ListenError},
};

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

/// Why an inbound connection did not get through its handshake; `None` where that is not what ended it.
pub(super) fn handshake_reason(error: &ListenError) -> Option<&'static str> {
    match error {
        // The one is told where it is decided, the other is our own end.
        ListenError::Denied { .. } | ListenError::Aborted => None,
        ListenError::Transport(TransportError::Other(error)) if is_timeout(error) => {
            Some("handshake_timeout")
        }
        _ => Some("handshake_failed"),
    }
}

// The type of the timeout's error cannot be named here: it holds that of the whole transport.
fn is_timeout(error: &io::Error) -> bool {
    innermost(error) == TransportTimeoutError::<io::Error>::Timeout.to_string()
}

/// The text at the root of an error: the layers above it only say that they failed.
pub(super) fn innermost(error: &(dyn Error + 'static)) -> String {
    match error.source() {
        Some(source) => innermost(source),
        None => error.to_string(),
    }
}
