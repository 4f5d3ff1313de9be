//! What can go wrong: one error an operation, each with a stable code.

mod alloc;
mod build;
mod connect;
mod metadata;
mod register;
mod settings;
mod transfer;

pub use alloc::{AllocError, OutOfBounds};
pub use build::BuildError;
pub use connect::{ConnectError, DisconnectError, LostCause, PeerError};
pub use metadata::MetadataError;
pub use register::{DeregisterError, RegionFault, RegisterCause, RegisterError};
pub use settings::SettingsError;
pub use transfer::{
    CancelError, FaultCause, FaultSide, NotifyError, PostError, PrepareError, ReleaseError, TransferError,
    TransferFault, WaitTimeout,
};
