use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kvferry::{RegionDesc, RegionOwner};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::errors::{Closed, Raise};
use crate::gil;
use crate::transfer::seconds;

/// What a registration keeps alive: ranges of memory and the Python object that they belong to.
pub(crate) struct PyOwner {
    pub(crate) regions: Vec<RegionDesc>,
    /// Dropped wherever the last region is let go of: the interpreter gets it back when it next runs.
    pub(crate) _object: Option<Py<PyAny>>,
}

// SAFETY: whoever registers vouches for the ranges: they belong to the object, which lives as long as this value. Where no
// object is given, Python's caller keeps the memory itself, as `Agent.register_raw` documents. Rust holds no reference to
// the bytes.
unsafe impl RegionOwner for PyOwner {
    fn regions(&self) -> Vec<RegionDesc> {
        self.regions.clone()
    }
}

/// A registration, shared by Python's object and the agent, whichever ends first.
pub(crate) type Slot = Arc<Mutex<Option<kvferry::Registration<PyOwner>>>>;

/// Memory that is registered. It keeps the object whose memory it is alive.
///
/// As a context manager it is deregistered at the end of the block.
#[pyclass(frozen, module = "kvferry")]
pub(crate) struct Registration {
    pub(crate) slot: Slot,
    pub(crate) ids: Vec<u64>,
}

/// The same, for the agent.
pub(crate) type WeakSlot = Weak<Mutex<Option<kvferry::Registration<PyOwner>>>>;

fn lock(slot: &Slot) -> MutexGuard<'_, Option<kvferry::Registration<PyOwner>>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pymethods]
impl Registration {
    /// The ids of its regions, in the order in which they were given. No id is used twice.
    #[getter]
    fn ids(&self) -> Vec<u64> {
        self.ids.clone()
    }

    /// Takes the memory back: when it returns, no peer's write can land in it any more.
    ///
    /// Raises `DeregisterError` if a peer does not let go within `timeout` seconds (without one: as the settings say). The
    /// memory must stay then, and the call can be repeated. A second call does nothing.
    #[pyo3(signature = (timeout=None))]
    fn deregister(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let Some(registration) = lock(&self.slot).take() else { return Ok(()) };
        let outcome = gil::detach(py, || match timeout {
            Some(timeout) => registration.deregister_within(seconds(timeout)),
            None => registration.deregister(),
        });
        outcome.map(drop).map_err(|(registration, error)| {
            *lock(&self.slot) = Some(registration);
            error.exception(py)
        })
    }

    /// Whether it holds.
    #[getter]
    fn active(&self) -> bool {
        lock(&self.slot).is_some()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.deregister(py, None)
    }

    fn __repr__(&self) -> String {
        let state = if self.active() { "" } else { ", deregistered" };
        format!("<kvferry.Registration of {} regions{state}>", self.ids.len())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Starts the deregistration and does not wait; the object lives until no peer can write into it.
        drop(lock(&self.slot).take());
    }
}

/// Zeroed memory that peers of this host can map, so that one copy moves data in or out of it. `Agent.alloc` gives it.
///
/// `numpy.asarray(buffer)` is an array of its bytes, without a copy.
#[pyclass(frozen, module = "kvferry")]
pub(crate) struct SharedBuf {
    pub(crate) buffer: kvferry::SharedBuf,
}

#[pymethods]
impl SharedBuf {
    /// Address of the first byte.
    #[getter]
    fn address(&self) -> u64 {
        self.buffer.addr()
    }

    /// Bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.buffer.len()
    }

    /// What numpy makes an array of.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("version", 3)?;
        dict.set_item("typestr", "|u1")?;
        dict.set_item("shape", (self.buffer.len(),))?;
        dict.set_item("data", (self.buffer.addr(), false))?;
        Ok(dict)
    }

    fn __len__(&self) -> usize {
        self.buffer.len()
    }

    fn __repr__(&self) -> String {
        format!("<kvferry.SharedBuf of {} bytes at {:#x}>", self.buffer.len(), self.buffer.addr())
    }
}

/// The agent of a wrapper, unless it was closed.
pub(crate) fn open<T: Clone>(agent: &Mutex<Option<T>>, py: Python<'_>) -> PyResult<T> {
    agent.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(|| Closed.exception(py))
}
