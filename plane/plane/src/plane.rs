//! The plane itself as a Python object.

use crate::{
    events::to_python,
    values::{
        DoorSpec, ForwardSpec, Peer, To, Upstream, pairs, seconds, token as checked_token, visible,
    },
};
use plane_core::{
    exchange::Standing,
    peers::{self, Multiaddr, PeerId, PeersConfig},
    plane::{self, OwnRequest},
    upstream::PoolLimits,
};
use pyo3::{
    exceptions::{PyOSError, PyValueError},
    prelude::*,
    types::{PyBytes, PyList},
};
use std::os::fd::AsRawFd;

#[pyclass(frozen)]
pub struct Plane(plane::Plane);

fn parse_peer(text: &str) -> PyResult<PeerId> {
    text.parse()
        .map_err(|error| PyValueError::new_err(format!("{text:?} is not a peer ID: {error}")))
}

fn parse_addr(text: &str) -> PyResult<Multiaddr> {
    text.parse()
        .map_err(|error| PyValueError::new_err(format!("{text:?} is not a multiaddr: {error}")))
}

#[pymethods]
impl Plane {
    #[new]
    #[pyo3(signature = (identity, peer_door, *, conns_per_ip, links_max = 4096, welcome_within_s = None, inbound_served = 1024, inbound_waiting = 384, inbound_window_bytes = 262_144, streams_max = 1024, pool_idle_max = 256, pool_age_max_s = 30.0))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        identity: Vec<u8>,
        peer_door: &DoorSpec,
        conns_per_ip: usize,
        links_max: usize,
        welcome_within_s: Option<f64>,
        inbound_served: usize,
        inbound_waiting: usize,
        inbound_window_bytes: usize,
        streams_max: usize,
        pool_idle_max: usize,
        pool_age_max_s: f64,
    ) -> PyResult<Self> {
        let mut config = PeersConfig::new(identity);
        config.conns_per_ip = conns_per_ip;
        config.connections_max = links_max;
        config.welcome_within = welcome_within_s.map(seconds);
        config.inbound_served = inbound_served;
        config.inbound_waiting = inbound_waiting;
        config.widen(inbound_window_bytes);
        config.streams_max = streams_max;
        let pool = PoolLimits {
            idle_max: pool_idle_max,
            age_max: seconds(pool_age_max_s),
        };
        let door = peer_door.0.clone();
        Ok(Plane(
            py.detach(|| plane::Plane::start(config, door, pool))?,
        ))
    }

    #[getter]
    fn peer_id(&self) -> String {
        self.0.context().peers.local_peer_id().to_base58()
    }

    fn fileno(&self) -> i32 {
        self.0.context().events.bell_fd().as_raw_fd()
    }

    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let events = self.0.context().events.drain();
        let list = PyList::empty(py);
        for event in events {
            list.append(to_python(py, event)?)?;
        }
        Ok(list)
    }

    fn ring(&self) {
        self.0.context().wakeups.ring();
    }

    fn set_eager(&self, eager: bool) {
        self.0.context().events.set_eager(eager);
    }

    fn listen_http(
        &self,
        hosts: Vec<String>,
        port: u16,
        door: &DoorSpec,
    ) -> PyResult<Vec<(String, u16)>> {
        let ips = hosts
            .iter()
            .map(|host| {
                host.parse()
                    .map_err(|_| PyValueError::new_err(format!("{host:?} is not an IP address")))
            })
            .collect::<PyResult<Vec<_>>>()?;
        let bound = self.0.listen_http_on(&ips, port, door.0.clone())?;
        Ok(bound
            .iter()
            .map(|address| (address.ip().to_string(), address.port()))
            .collect())
    }

    fn listen_peers(&self, py: Python<'_>, address: &str) -> PyResult<Vec<String>> {
        let address = parse_addr(address)?;
        let bound = py
            .detach(|| self.0.listen_peers(address))
            .map_err(PyOSError::new_err)?;
        Ok(bound.iter().map(ToString::to_string).collect())
    }

    #[pyo3(signature = (host, port, *, idle_max = 256, age_max_s = 30.0))]
    fn upstream(&self, host: String, port: u16, idle_max: usize, age_max_s: f64) -> Upstream {
        let limits = PoolLimits {
            idle_max,
            age_max: seconds(age_max_s),
        };
        Upstream(self.0.context().lanes.http(host, port, limits))
    }

    #[staticmethod]
    fn peer(peer_id: &str) -> PyResult<Peer> {
        parse_peer(peer_id).map(Peer)
    }

    #[pyo3(signature = (prefix, to, spec, *, cut = None, within_s = 120.0))]
    fn add_standing(
        &self,
        prefix: Vec<u8>,
        to: To<'_>,
        spec: &ForwardSpec,
        cut: Option<usize>,
        within_s: f64,
    ) {
        let cut = cut.unwrap_or(prefix.len());
        self.0.add_standing(Standing {
            prefix: prefix.into(),
            cut,
            target: to.target(),
            spec: spec.0.clone(),
            within: seconds(within_s),
        });
    }

    fn hear_only(&self, peers: Vec<String>) -> PyResult<()> {
        let peers: Vec<PeerId> = peers
            .iter()
            .map(|peer| parse_peer(peer))
            .collect::<PyResult<_>>()?;
        self.0.hear_only(peers);
        Ok(())
    }

    fn welcome(&self, peer_id: &str) -> PyResult<()> {
        self.0.context().peers.welcome(parse_peer(peer_id)?);
        Ok(())
    }

    fn unwelcome(&self, peer_id: &str) -> PyResult<()> {
        self.0.context().peers.unwelcome(&parse_peer(peer_id)?);
        Ok(())
    }

    fn dial(
        &self,
        token: u64,
        peer_id: &str,
        addresses: Vec<String>,
        within_s: f64,
    ) -> PyResult<()> {
        let addresses = addresses
            .iter()
            .map(|text| parse_addr(text))
            .collect::<PyResult<Vec<_>>>()?;
        self.0
            .dial(token, parse_peer(peer_id)?, addresses, seconds(within_s));
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn request(
        &self,
        token: u64,
        to: To<'_>,
        method: Vec<u8>,
        path: Vec<u8>,
        host: Vec<u8>,
        fields: Vec<(Vec<u8>, Vec<u8>)>,
        body: Vec<u8>,
        within_s: f64,
    ) -> PyResult<()> {
        let request = OwnRequest {
            method: checked_token("method", method)?,
            path: visible("path", path)?,
            host: visible("host", host)?,
            fields: pairs(fields)?,
            body: body.into(),
        };
        self.0
            .request(token, to.target(), request, seconds(within_s));
        Ok(())
    }

    fn close_peer(&self, peer_id: &str) -> PyResult<()> {
        self.0.context().peers.close_peer(&parse_peer(peer_id)?);
        Ok(())
    }

    /// Only in debug builds, for tests of what comes of it.
    #[cfg(debug_assertions)]
    fn panic_for_tests(&self) {
        self.0.context().peers.panic();
    }

    fn live(&self) -> usize {
        self.0.context().live()
    }

    fn close_doors(&self) {
        self.0.close_doors();
    }

    fn shutdown(&self, py: Python<'_>) {
        py.detach(|| self.0.shutdown());
    }
}

#[pyfunction]
pub fn new_identity(py: Python<'_>) -> Bound<'_, PyBytes> {
    PyBytes::new(py, &peers::new_identity_bytes())
}

#[pyfunction]
pub fn peer_id_of(identity: &[u8]) -> PyResult<String> {
    peers::peer_id_of(identity).map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pyfunction]
pub fn parse_peer_id(text: &str) -> PyResult<String> {
    peers::parse_peer_id(text).map_err(|error| PyValueError::new_err(error.to_string()))
}
