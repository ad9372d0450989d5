//! The data plane's face to Python: events up, commands down. The stub `_plane.pyi` documents it.
//!
//! Nothing here decides or moves bytes; it turns values into values. Python never runs on the
//! plane's thread, and the plane's thread never takes the interpreter lock.

mod arrived;
mod events;
mod finished;
mod plane;
mod values;

use pyo3::prelude::*;

#[pymodule]
mod _plane {
    #[pymodule_export]
    use super::arrived::{Arrived, Digest, digest_of};
    #[pymodule_export]
    use super::events::{
        Answered, Broken, Completed, Failed, Head, PeerDown, PeerIdentified, PeerUp, Rejected,
        Started,
    };
    #[pymodule_export]
    use super::finished::{Finished, Usage};
    #[pymodule_export]
    use super::plane::{Plane, new_identity, parse_peer_id, peer_id_of};
    #[pymodule_export]
    use super::values::{DoorSpec, ForwardSpec, Peer, Upstream};

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("is_debug_build", cfg!(debug_assertions))
    }
}
