use kvferry::{
    AllocError, BuildError, CancelError, ConnectError, DeregisterError, DisconnectError, FaultCause,
    MetadataError, NotifyError, OutOfBounds, PeerError, PostError, PrepareError, RegisterError,
    SettingsError, TransferError, TransferFault, WaitTimeout,
};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyModule;

/// An error of the engine that has an exception class in `kvferry.errors`.
pub(crate) trait Raise {
    /// Name of the class.
    const CLASS: &'static str;

    /// Its text, its code, its remedy.
    fn parts(&self) -> (String, &'static str, &'static str);

    /// The region that it is about: index and total in the batch, address, length, kind, device.
    fn region(&self) -> Option<(usize, usize, u64, u64, String, u32)> {
        None
    }

    /// The cause alone.
    fn cause(&self) -> String {
        let (text, code, _) = self.parts();
        text.replace(&format!(" ({code})"), "")
    }

    /// As an exception to be raised.
    fn exception(&self, py: Python<'_>) -> PyErr {
        let (text, code, remedy) = self.parts();
        let made = PyModule::import(py, "kvferry.errors")
            .and_then(|errors| errors.getattr(Self::CLASS))
            .and_then(|class| class.call1((&text, code, self.cause(), remedy, self.region())));
        match made {
            Ok(exception) => PyErr::from_value(exception),
            // Without the package around the module.
            Err(_) => PyRuntimeError::new_err(text),
        }
    }
}

/// Turns an engine's result into Python's.
pub(crate) trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T, E: Raise> OrRaise<T> for Result<T, E> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| error.exception(py))
    }
}

macro_rules! raises {
    ($($error:ty => $class:literal),* $(,)?) => {$(
        impl Raise for $error {
            const CLASS: &'static str = $class;

            fn parts(&self) -> (String, &'static str, &'static str) {
                (self.to_string(), self.code(), self.remedy())
            }
        }
    )*};
}

raises! {
    AllocError => "AllocError",
    BuildError => "BuildError",
    CancelError => "CancelError",
    ConnectError => "ConnectError",
    DeregisterError => "DeregisterError",
    DisconnectError => "DisconnectError",
    FaultCause => "TransferFailed",
    MetadataError => "MetadataError",
    NotifyError => "NotifyError",
    OutOfBounds => "OutOfBounds",
    PeerError => "PeerError",
    PostError => "PostError",
    PrepareError => "PrepareError",
    SettingsError => "SettingsError",
    TransferError => "TransferError",
    TransferFault => "TransferFailed",
    WaitTimeout => "WaitTimeout",
}

impl Raise for RegisterError {
    const CLASS: &'static str = "RegisterError";

    fn parts(&self) -> (String, &'static str, &'static str) {
        (self.to_string(), self.code(), self.remedy())
    }

    fn region(&self) -> Option<(usize, usize, u64, u64, String, u32)> {
        let fault = self.fault()?;
        let desc = fault.desc;
        Some((fault.index, fault.total, desc.addr, desc.len, desc.kind.to_string(), desc.device))
    }

    fn cause(&self) -> String {
        self.fault().map_or_else(|| self.to_string(), |fault| fault.cause.to_string())
    }
}

/// A call on an agent that was closed.
#[derive(Debug)]
pub(crate) struct Closed;

impl Raise for Closed {
    const CLASS: &'static str = "ClosedError";

    fn parts(&self) -> (String, &'static str, &'static str) {
        let code = "agent.closed";
        let remedy = kvferry::Code::find(code).map_or("", |record| record.remedy);
        (format!("the agent is closed ({code})"), code, remedy)
    }
}

/// A number of an argument's as Python gives it, which the engine has no room for.
pub(crate) fn bad_value(text: impl Into<String>) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(text.into())
}
