use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::{read, write};

/// A descriptor that becomes readable when something that was waited for may have happened.
///
/// This is how `await` works without an engine thread ever taking the interpreter's lock: the event loop watches the
/// descriptor, the engine rings.
#[pyclass(frozen, module = "kvferry._kvferry")]
pub(crate) struct Bell {
    inner: Arc<Inner>,
}

struct Inner {
    fd: OwnedFd,
    rung: Mutex<Vec<u64>>,
}

/// Rings the bell for one token.
struct Clapper {
    bell: Arc<Inner>,
    token: u64,
}

impl Bell {
    /// Wakes by ringing for this token.
    pub(crate) fn waker(&self, token: u64) -> Waker {
        Arc::new(Clapper { bell: self.inner.clone(), token }).into()
    }
}

#[pymethods]
impl Bell {
    #[new]
    fn new() -> PyResult<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| PyOSError::new_err((error.raw_os_error(), error.to_string())))?;
        Ok(Self { inner: Arc::new(Inner { fd, rung: Mutex::default() }) })
    }

    /// The descriptor, readable once the bell has rung.
    fn fileno(&self) -> i32 {
        self.inner.fd.as_raw_fd()
    }

    /// The tokens that it rang for since the last call.
    fn take(&self) -> Vec<u64> {
        // First the descriptor: what rings later is seen by the next call.
        let _ = read(&self.inner.fd, &mut [0_u8; 8]);
        std::mem::take(&mut *self.inner.rung.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Wake for Clapper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.bell.rung.lock().unwrap_or_else(PoisonError::into_inner).push(self.token);
        let _ = write(&self.bell.fd, &1_u64.to_ne_bytes());
    }
}
