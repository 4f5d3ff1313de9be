use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;
use std::time::Duration;

use kvferry::Status;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::bell::Bell;
use crate::errors::{OrRaise, Raise};
use crate::gil;

/// A transfer of blocks. Post it as often as you like, one attempt at a time.
///
/// `await transfer` waits for its end. As a context manager it is released at the end of the block.
#[pyclass(frozen, module = "kvferry")]
pub(crate) struct Transfer {
    handle: u64,
    // Locked only while attached to the interpreter, never over a wait.
    transfer: Mutex<Option<Arc<kvferry::Transfer>>>,
}

impl Transfer {
    pub(crate) fn new(transfer: kvferry::Transfer) -> Self {
        Self { handle: transfer.handle(), transfer: Mutex::new(Some(Arc::new(transfer))) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<kvferry::Transfer>>> {
        self.transfer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, py: Python<'_>) -> PyResult<Arc<kvferry::Transfer>> {
        self.lock().clone().ok_or_else(|| Released.exception(py))
    }
}

#[pymethods]
impl Transfer {
    /// The number by which events name this transfer; the agent uses it once.
    #[getter]
    fn handle(&self) -> u64 {
        self.handle
    }

    /// Starts the transfer and waits for nobody. `notify` replaces the notification that it was created with.
    #[pyo3(signature = (notify=None))]
    fn post(&self, py: Python<'_>, notify: Option<Vec<u8>>) -> PyResult<()> {
        let transfer = self.get(py)?;
        gil::detach(py, || match notify {
            Some(payload) => transfer.post_with_notification(Some(payload)),
            None => transfer.post(),
        })
        .or_raise(py)
    }

    /// `created`, `posted`, `running`, `done`, `failed` or `cancelled`.
    #[getter]
    fn status(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(name(&self.get(py)?.status()))
    }

    /// The exception of a failed transfer, or None.
    #[getter]
    fn error(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        Ok(match self.get(py)?.status() {
            Status::Failed(fault) => Some(fault.exception(py).into_value(py).into_any()),
            _ => None,
        })
    }

    /// Waits for the end of the transfer; without a time-out for ever. Returns `done` or `cancelled`.
    ///
    /// Raises `TransferFailed`, or `WaitTimeout` after `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<&'static str> {
        let transfer = self.get(py)?;
        let end = timeout.map(|t| (seconds(t), std::time::Instant::now()));
        loop {
            // In pieces, so that Ctrl-C is noticed.
            let piece = Duration::from_millis(200);
            let left =
                end.map_or(piece, |(timeout, begun)| timeout.saturating_sub(begun.elapsed()).min(piece));
            match gil::detach(py, || transfer.wait(left)) {
                Ok(Status::Failed(fault)) => return Err(fault.exception(py)),
                Ok(status) => return Ok(name(&status)),
                Err(mut error) => {
                    py.check_signals()?;
                    if let Some((timeout, begun)) = end
                        && begun.elapsed() >= timeout
                    {
                        error.waited = timeout;
                        return Err(error.exception(py));
                    }
                }
            }
        }
    }

    /// Stops the transfer and waits for it to be quiet, for `timeout` seconds or as the settings say.
    #[pyo3(signature = (timeout=None))]
    fn cancel(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let transfer = self.get(py)?;
        gil::detach(py, || match timeout {
            Some(timeout) => transfer.cancel_within(seconds(timeout)),
            None => transfer.cancel(),
        })
        .or_raise(py)
    }

    /// Gives the transfer up once it is quiet, cancelling it if it runs. If it raises, nothing is given up: call again.
    /// A second release does nothing.
    #[pyo3(signature = (timeout=None))]
    fn release(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        if self.lock().is_none() {
            return Ok(());
        }
        self.cancel(py, timeout)?;
        let gone = self.lock().take();
        gil::detach(py, || drop(gone));
        Ok(())
    }

    /// Whether it was released.
    #[getter]
    fn released(&self) -> bool {
        self.lock().is_none()
    }

    /// What the last attempt measured: seconds `post`, `queue` and `copy`; `bytes`, `blocks`, `merged`; `path`, `mechanism`.
    fn telemetry<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let measured = self.get(py)?.telemetry();
        let dict = PyDict::new(py);
        dict.set_item("post", measured.post.as_secs_f64())?;
        dict.set_item("queue", measured.queue.as_secs_f64())?;
        dict.set_item("copy", measured.copy.as_secs_f64())?;
        dict.set_item("bytes", measured.bytes)?;
        dict.set_item("blocks", measured.blocks)?;
        dict.set_item("merged", measured.merged)?;
        dict.set_item("path", measured.path.map(|path| path.name()))?;
        dict.set_item("mechanism", measured.mechanism.map(|mechanism| mechanism.name()))?;
        Ok(dict)
    }

    /// Rings `bell` for `token` at the transfer's next step, unless it has ended already: then True.
    fn ring(&self, py: Python<'_>, bell: &Bell, token: u64) -> PyResult<bool> {
        let completion = self.get(py)?.completion();
        let waker = bell.waker(token);
        Ok(pin!(completion).poll(&mut Context::from_waker(&waker)).is_ready())
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let waiting = slf.py().import("kvferry._aio")?.call_method1("wait", (slf,))?;
        waiting.call_method0("__await__")
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.release(py, None)
    }

    fn __repr__(&self) -> String {
        match &*self.lock() {
            Some(transfer) => format!("<kvferry.Transfer {} {}>", self.handle, name(&transfer.status())),
            None => format!("<kvferry.Transfer {} released>", self.handle),
        }
    }
}

pub(crate) fn name(status: &Status) -> &'static str {
    match status {
        Status::Created => "created",
        Status::Posted => "posted",
        Status::Done => "done",
        Status::Failed(_) => "failed",
        Status::Cancelled => "cancelled",
        _ => "running",
    }
}

/// A time-out as Python gives it; what is no duration counts as none or as very long.
pub(crate) fn seconds(seconds: f64) -> Duration {
    if seconds.is_nan() || seconds <= 0.0 {
        return Duration::ZERO;
    }
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(1 << 31))
}

/// A call on a transfer that was released.
struct Released;

impl Raise for Released {
    const CLASS: &'static str = "ReleasedError";

    fn parts(&self) -> (String, &'static str, &'static str) {
        let remedy = "Create the transfer anew, or release it later.";
        ("the transfer was released (transfer.released)".into(), "transfer.released", remedy)
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        // Never blocks, and its memory is let go when it is quiet.
        drop(self.lock().take());
    }
}
