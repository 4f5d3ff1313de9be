//! Moves blocks of memory between processes, one-sided, and tells the receiver.

mod alloc;
mod codes;
mod error;
mod logging;
mod region;
mod registry;
mod settings;

pub use alloc::SharedBuf;
pub use codes::Code;
pub use error::{
    AllocError, BuildError, DeregisterError, OutOfBounds, RegionFault, RegisterCause, RegisterError, SettingsError,
};
pub use logging::init_logging;
pub use region::{Backing, LocalRegion, RegionInfo, RegionOwner};
pub use settings::{PathName, PathSet, Ptracer, SettingDoc, Settings, Token};
