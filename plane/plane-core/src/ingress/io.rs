//! What a served connection must be able to do besides reading and writing.

use crate::peers::Inbound;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

pub trait ServerIo: AsyncRead + AsyncWrite + Unpin {
    /// Makes the drop that follows look to the other side like what it is: no proper end.
    fn cut(&mut self);
}

impl ServerIo for TcpStream {
    fn cut(&mut self) {
        // It fails only where the connection is gone, and then the other side knows already.
        let _ = self.set_zero_linger();
    }
}

impl ServerIo for Inbound {
    /// Dropping a substream resets it as it is.
    fn cut(&mut self) {}
}
