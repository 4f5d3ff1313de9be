//! What can go wrong: one error an operation, each with a stable code.

mod alloc;
mod build;
mod register;
mod settings;

pub use alloc::{AllocError, OutOfBounds};
pub use build::BuildError;
pub use register::{DeregisterError, RegionFault, RegisterCause, RegisterError};
pub use settings::SettingsError;
