use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

use kvferry::{CompletionQueue, Status};
use pyo3::prelude::*;

use crate::errors::Raise;
use crate::gil;
use crate::transfer::{name, seconds};

/// Something that happened to a peer or to a transfer.
#[pyclass(frozen, get_all, module = "kvferry")]
pub(crate) struct Event {
    /// `peer_up`, `peer_lost`, `peer_restarted`, `notified` or `completed`.
    kind: &'static str,
    /// The peer's name, for events of peers.
    peer: Option<String>,
    /// How the peer was lost.
    cause: Option<String>,
    /// The transfer's handle.
    transfer: Option<u64>,
    /// How the transfer ended.
    status: Option<&'static str>,
    /// The exception of a failed transfer.
    error: Option<Py<PyAny>>,
}

#[pymethods]
impl Event {
    fn __repr__(&self) -> String {
        let mut text = format!("<kvferry.Event {}", self.kind);
        if let Some(peer) = &self.peer {
            text.push_str(&format!(" peer={peer:?}"));
        }
        if let Some(cause) = &self.cause {
            text.push_str(&format!(" cause={cause:?}"));
        }
        if let (Some(transfer), Some(status)) = (self.transfer, self.status) {
            text.push_str(&format!(" transfer={transfer} status={status}"));
        }
        text + ">"
    }
}

impl Event {
    fn new(py: Python<'_>, event: kvferry::Event) -> Self {
        let of = |kind, peer| Self {
            kind,
            peer: Some(peer),
            cause: None,
            transfer: None,
            status: None,
            error: None,
        };
        match event {
            kvferry::Event::PeerUp { peer, .. } => of("peer_up", peer),
            kvferry::Event::PeerLost { peer, cause, .. } => {
                Self { cause: Some(cause.to_string()), ..of("peer_lost", peer) }
            }
            kvferry::Event::PeerRestarted { peer, .. } => of("peer_restarted", peer),
            kvferry::Event::Notified { peer } => of("notified", peer),
            kvferry::Event::Completed { transfer, status } => {
                let error = match &status {
                    Status::Failed(fault) => Some(fault.exception(py).into_value(py).into_any()),
                    _ => None,
                };
                Self {
                    kind: "completed",
                    peer: None,
                    cause: None,
                    transfer: Some(transfer),
                    status: Some(name(&status)),
                    error,
                }
            }
            // A newer engine's.
            _ => of("other", String::new()),
        }
    }
}

/// Events of an agent, and of the transfers that were created with it. Its descriptor is readable while it holds one.
#[pyclass(frozen, module = "kvferry")]
pub(crate) struct EventQueue {
    pub(crate) queue: CompletionQueue,
}

#[pymethods]
impl EventQueue {
    /// The descriptor, for select, poll or an event loop.
    fn fileno(&self) -> i32 {
        self.queue.as_fd().as_raw_fd()
    }

    /// The oldest event: waits for one for `timeout` seconds, None for as long as it takes. None if there is none.
    #[pyo3(signature = (timeout=0.0))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Event>> {
        if let Some(event) = self.queue.try_next() {
            return Ok(Some(Event::new(py, event)));
        }
        let end = timeout.map(|timeout| Instant::now() + seconds(timeout));
        loop {
            let piece = std::time::Duration::from_millis(200);
            let left = end.map_or(piece, |end| end.saturating_duration_since(Instant::now()).min(piece));
            if left.is_zero() {
                return Ok(None);
            }
            if let Some(event) = gil::detach(py, || self.queue.wait(left)) {
                return Ok(Some(Event::new(py, event)));
            }
            py.check_signals()?;
        }
    }

    fn __len__(&self) -> usize {
        self.queue.len()
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        format!("<kvferry.EventQueue of {} events>", self.queue.len())
    }
}
