use std::sync::{Arc, Mutex, PoisonError, Weak};

use kvferry::{Op, RegionId, TransferOptions};
use numpy::PyReadonlyArray2;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::blocks::{Chosen, Rows, memory_kind, regions};
use crate::errors::{OrRaise, Raise, bad_value};
use crate::events::EventQueue;
use crate::gil;
use crate::lists::PreparedList;
use crate::memory::{PyOwner, Registration, SharedBuf, Slot, WeakSlot, open};
use crate::settings::Settings;
use crate::transfer::{Transfer, seconds};

/// An open agent with the registrations that Python holds, or None once it is closed.
type Held = Arc<Mutex<Option<kvferry::Agent>>>;

/// A region as Python sees it.
type Listed = (u64, u64, u64, String, u32, bool, bool);

/// The agents of this process that may still be open.
static OPEN: Mutex<Vec<Weak<Mutex<Option<kvferry::Agent>>>>> = Mutex::new(Vec::new());

/// One end of transfers. `kvferry.Agent` is this with a pleasant face.
#[pyclass(frozen, subclass, module = "kvferry._kvferry")]
pub(crate) struct Agent {
    name: String,
    incarnation: String,
    held: Held,
    registrations: Mutex<Vec<WeakSlot>>,
}

impl Agent {
    fn agent(&self, py: Python<'_>) -> PyResult<kvferry::Agent> {
        open(&self.held, py)
    }
}

#[pymethods]
impl Agent {
    #[new]
    #[pyo3(signature = (name, settings=None))]
    fn new(py: Python<'_>, name: String, settings: Option<&Settings>) -> PyResult<Self> {
        let settings = settings.map(|s| s.settings.clone());
        let built = gil::detach(py, || {
            let builder = kvferry::Agent::builder(name.clone());
            match settings {
                Some(settings) => builder.settings(settings),
                None => builder,
            }
            .build()
        });
        let agent = built.or_raise(py)?;
        let incarnation = format!("{:?}", agent.incarnation());
        let incarnation = incarnation.trim_start_matches("Incarnation(").trim_end_matches(')').to_owned();
        let held = Arc::new(Mutex::new(Some(agent)));
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|held| held.strong_count() > 0);
        open.push(Arc::downgrade(&held));
        drop(open);
        Ok(Self { name, incarnation, held, registrations: Mutex::default() })
    }

    /// The agent's name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// What tells this life of the agent from others of the same name: 32 hexadecimal digits.
    #[getter]
    fn incarnation(&self) -> &str {
        &self.incarnation
    }

    /// The settings that it was built with.
    #[getter]
    fn settings(&self, py: Python<'_>) -> PyResult<Settings> {
        Ok(Settings { settings: self.agent(py)?.settings().clone() })
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Says goodbye to the peers and ends the agent's threads, within 100 ms. Transfers fail, registrations end.
    fn close(&self, py: Python<'_>) {
        let registrations =
            std::mem::take(&mut *self.registrations.lock().unwrap_or_else(PoisonError::into_inner));
        let agent = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        gil::detach(py, || end(agent, &registrations));
    }

    // Memory.

    fn alloc(&self, py: Python<'_>, nbytes: usize) -> PyResult<SharedBuf> {
        let agent = self.agent(py)?;
        Ok(SharedBuf { buffer: gil::detach(py, || agent.alloc(nbytes)).or_raise(py)? })
    }

    /// Registers the ranges of an N x 3 array; `owner` is kept alive.
    fn _register(
        &self,
        py: Python<'_>,
        kind: u8,
        array: PyReadonlyArray2<'_, u64>,
        owner: Option<Py<PyAny>>,
    ) -> PyResult<Registration> {
        let agent = self.agent(py)?;
        let owner = PyOwner { regions: regions(kind, &array)?, _object: owner };
        let registered = gil::detach(py, || agent.register(owner));
        let registration = registered.map_err(|rejected| rejected.error.exception(py))?;
        let ids = registration.ids().iter().map(|id| id.0).collect();
        let slot: Slot = Arc::new(Mutex::new(Some(registration)));
        let mut all = self.registrations.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == all.capacity() {
            all.retain(|slot| slot.strong_count() > 0);
        }
        all.push(Arc::downgrade(&slot));
        Ok(Registration { slot, ids })
    }

    /// Registers ranges that the caller keeps mapped until they are deregistered; returns their ids.
    fn _register_raw(
        &self,
        py: Python<'_>,
        kind: u8,
        array: PyReadonlyArray2<'_, u64>,
    ) -> PyResult<Vec<u64>> {
        let agent = self.agent(py)?;
        let regions = regions(kind, &array)?;
        // SAFETY: Python's caller vouches for the ranges, as the documentation of the method asks.
        let ids = gil::detach(py, || unsafe { agent.register_raw(&regions) }).or_raise(py)?;
        Ok(ids.iter().map(|id| id.0).collect())
    }

    /// Takes regions back by their ids.
    #[pyo3(signature = (ids, timeout=None))]
    fn deregister(&self, py: Python<'_>, ids: Vec<u64>, timeout: Option<f64>) -> PyResult<()> {
        let agent = self.agent(py)?;
        let ids: Vec<RegionId> = ids.into_iter().map(RegionId).collect();
        gil::detach(py, || match timeout {
            Some(timeout) => agent.deregister_within(&ids, seconds(timeout)),
            None => agent.deregister(&ids),
        })
        .or_raise(py)
    }

    /// What would keep each of the ranges from being registered: exceptions.
    fn _validate(
        &self,
        py: Python<'_>,
        kind: u8,
        array: PyReadonlyArray2<'_, u64>,
    ) -> PyResult<Vec<Py<PyAny>>> {
        let agent = self.agent(py)?;
        let regions = regions(kind, &array)?;
        let faults = gil::detach(py, || agent.validate(&regions));
        let exception = |fault| {
            let error = kvferry::RegisterError::Region { fault, others: 0 };
            error.exception(py).into_value(py).into_any()
        };
        Ok(faults.into_iter().map(exception).collect())
    }

    /// All regions: id, address, length, kind, device, whether peers of this host can map it, whether it is on its way out.
    fn regions(&self, py: Python<'_>) -> PyResult<Vec<Listed>> {
        let regions = self.agent(py)?.regions();
        let tuple = |r: kvferry::RegionInfo| {
            (r.id.0, r.desc.addr, r.desc.len, r.desc.kind.to_string(), r.desc.device, r.shared, r.quarantined)
        };
        Ok(regions.into_iter().map(tuple).collect())
    }

    // Metadata and peers.

    /// What a peer needs to reach this agent and its memory. Whoever holds it can connect.
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let agent = self.agent(py)?;
        let blob = gil::detach(py, || agent.metadata());
        Ok(PyBytes::new(py, &blob))
    }

    /// The same for some regions only; a peer adds them to what it knows.
    #[pyo3(signature = (ids, connection=false))]
    fn partial_metadata<'py>(
        &self,
        py: Python<'py>,
        ids: Vec<u64>,
        connection: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let agent = self.agent(py)?;
        let ids: Vec<RegionId> = ids.into_iter().map(RegionId).collect();
        let blob = gil::detach(py, || agent.partial_metadata(&ids, connection)).or_raise(py)?;
        Ok(PyBytes::new(py, &blob))
    }

    /// Takes in a peer's metadata, begins to connect to it, and returns its name.
    fn load_remote(&self, py: Python<'_>, metadata: Vec<u8>) -> PyResult<String> {
        let agent = self.agent(py)?;
        gil::detach(py, || agent.load_remote(&metadata)).or_raise(py)
    }

    /// Forgets a peer and closes the link that we opened to it; its transfers fail.
    fn remove_remote(&self, py: Python<'_>, peer: &str) -> PyResult<()> {
        let agent = self.agent(py)?;
        gil::detach(py, || agent.remove_remote(peer)).or_raise(py)
    }

    /// Parts with a peer in both directions: when it returns, none of its writes can land in our memory any more.
    #[pyo3(signature = (peer, timeout=None))]
    fn disconnect(&self, py: Python<'_>, peer: &str, timeout: Option<f64>) -> PyResult<()> {
        let agent = self.agent(py)?;
        gil::detach(py, || match timeout {
            Some(timeout) => agent.disconnect_within(peer, seconds(timeout)),
            None => agent.disconnect(peer),
        })
        .or_raise(py)
    }

    /// Connects to a peer whose metadata is loaded, within `timeout` seconds.
    #[pyo3(signature = (peer, timeout=5.0))]
    fn connect(&self, py: Python<'_>, peer: &str, timeout: f64) -> PyResult<()> {
        let agent = self.agent(py)?;
        gil::detach(py, || agent.connect(peer, seconds(timeout))).or_raise(py)
    }

    /// Whether a peer's metadata is loaded and covers all blocks of the array, if there is one.
    #[pyo3(signature = (peer, kind=0, array=None))]
    fn _check_remote(
        &self,
        py: Python<'_>,
        peer: &str,
        kind: u8,
        array: Option<PyReadonlyArray2<'_, u64>>,
    ) -> PyResult<bool> {
        let agent = self.agent(py)?;
        let kind = memory_kind(kind)?;
        let rows = array.as_ref().map(Rows::from_array).transpose()?;
        Ok(gil::detach(py, || agent.check_remote(peer, rows.as_ref().map(|rows| (kind, rows.blocks())))))
    }

    /// How each kind of pair of regions reaches a peer, one line of text each.
    fn path(&self, py: Python<'_>, peer: &str) -> PyResult<Vec<String>> {
        let agent = self.agent(py)?;
        let reports = gil::detach(py, || agent.path(peer)).or_raise(py)?;
        Ok(reports.iter().map(ToString::to_string).collect())
    }

    // Transfers.

    fn _prepare_local(
        &self,
        py: Python<'_>,
        kind: u8,
        array: PyReadonlyArray2<'_, u64>,
    ) -> PyResult<PreparedList> {
        let (agent, kind, rows) = (self.agent(py)?, memory_kind(kind)?, Rows::from_array(&array)?);
        Ok(PreparedList { list: gil::detach(py, || agent.prepare_local(kind, rows.blocks())).or_raise(py)? })
    }

    fn _prepare_remote(
        &self,
        py: Python<'_>,
        peer: &str,
        kind: u8,
        array: PyReadonlyArray2<'_, u64>,
    ) -> PyResult<PreparedList> {
        let (agent, kind, rows) = (self.agent(py)?, memory_kind(kind)?, Rows::from_array(&array)?);
        Ok(PreparedList {
            list: gil::detach(py, || agent.prepare_remote(peer, kind, rows.blocks())).or_raise(py)?,
        })
    }

    /// Creates a transfer of blocks of two prepared lists, in pairs.
    #[pyo3(signature = (op, local, local_indices, remote, remote_indices, notify=None, merge=true, queue=None))]
    #[allow(clippy::too_many_arguments)]
    fn transfer(
        &self,
        py: Python<'_>,
        op: &str,
        local: &PreparedList,
        local_indices: Option<&Bound<'_, PyAny>>,
        remote: &PreparedList,
        remote_indices: Option<&Bound<'_, PyAny>>,
        notify: Option<Vec<u8>>,
        merge: bool,
        queue: Option<&EventQueue>,
    ) -> PyResult<Transfer> {
        let agent = self.agent(py)?;
        let op = match op {
            "read" | "READ" => Op::Read,
            "write" | "WRITE" => Op::Write,
            other => return Err(bad_value(format!("{other:?} is neither \"read\" nor \"write\""))),
        };
        let near = Chosen::from_python(local_indices)?;
        let far = Chosen::from_python(remote_indices)?;
        let mut options = TransferOptions::default();
        if let Some(payload) = notify {
            options = options.notify(payload);
        }
        if let Some(queue) = queue {
            options = options.queue(&queue.queue);
        }
        if !merge {
            options = options.without_merging();
        }
        let (local, remote) = (&local.list, &remote.list);
        let made =
            gil::detach(py, || agent.transfer(op, local, near.indices(), remote, far.indices(), options));
        Ok(Transfer::new(made.or_raise(py)?))
    }

    // Notifications, events, counters.

    /// Sends a notification to a peer, in order with all others from here.
    fn notify(&self, py: Python<'_>, peer: &str, payload: Vec<u8>) -> PyResult<()> {
        let agent = self.agent(py)?;
        gil::detach(py, || agent.notify(peer, &payload)).or_raise(py)
    }

    fn _notifications<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, Bound<'py, PyBytes>)>> {
        let told = self.agent(py)?.notifications();
        Ok(told.into_iter().map(|n| (n.from, PyBytes::new(py, &n.payload))).collect())
    }

    /// A new queue of what happens to peers from now on, and of the transfers that are created with it.
    fn events(&self, py: Python<'_>) -> PyResult<EventQueue> {
        Ok(EventQueue { queue: self.agent(py)?.events()? })
    }

    /// Counters since the agent was built.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let agent = self.agent(py)?;
        let stats = gil::detach(py, || agent.stats());
        let dict = PyDict::new(py);
        let paths = PyDict::new(py);
        for ((path, mechanism), counted) in &stats.paths {
            paths.set_item(format!("{path} {mechanism}"), (counted.transfers, counted.bytes))?;
        }
        dict.set_item("paths", paths)?;
        let failures = PyDict::new(py);
        for (code, count) in &stats.failures {
            failures.set_item(code, count)?;
        }
        dict.set_item("failures", failures)?;
        dict.set_item("cancels", stats.cancels)?;
        dict.set_item("fences", stats.fences)?;
        dict.set_item("peers_up", stats.peers_up)?;
        dict.set_item("peers_lost", stats.peers_lost)?;
        dict.set_item("peers_restarted", stats.peers_restarted)?;
        dict.set_item("queue_depth", stats.queue_depth)?;
        dict.set_item("notifications_sent", stats.notifications_sent)?;
        dict.set_item("notifications_received", stats.notifications_received)?;
        dict.set_item("regions_quarantined", stats.regions_quarantined)?;
        Ok(dict)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let state = if self.closed() { " closed" } else { "" };
        format!("<kvferry.Agent {:?}{state}>", self.name)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        Python::attach(|py| self.close(py));
    }
}

/// Closes what is open at the end of the interpreter, before memory goes that peers or copies may touch.
#[pyfunction]
pub(crate) fn close_all(py: Python<'_>) {
    gil::end();
    let open = std::mem::take(&mut *OPEN.lock().unwrap_or_else(PoisonError::into_inner));
    let agents: Vec<kvferry::Agent> = open
        .iter()
        .filter_map(Weak::upgrade)
        .filter_map(|held| held.lock().unwrap_or_else(PoisonError::into_inner).take())
        .collect();
    gil::detach(py, || agents.into_iter().for_each(|agent| end(Some(agent), &[])));
}

/// Ends an agent. Registrations hold it too, so they go first; what a peer does not let go of stays allocated.
fn end(agent: Option<kvferry::Agent>, registrations: &[WeakSlot]) {
    for slot in registrations.iter().filter_map(Weak::upgrade) {
        drop(slot.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
    drop(agent);
}
