//! The native module `kvferry._kvferry`: agents, lists and transfers as Python sees them.
//!
//! It translates and holds no logic: what is pleasant to use is in `python/kvferry`, what an agent does in the crate
//! `kvferry`. The interpreter's lock is let go wherever an agent may copy, wait or walk a list, and none of the engine's
//! threads ever takes it.

use pyo3::prelude::*;

mod agent;
mod bell;
mod blocks;
mod command;
mod errors;
mod events;
mod explain;
mod gil;
mod lists;
mod logs;
mod memory;
mod settings;
mod transfer;

/// The native part of kvferry. Use the package `kvferry`.
#[pymodule]
mod _kvferry {
    #[pymodule_export]
    use crate::agent::{Agent, close_all};
    #[pymodule_export]
    use crate::bell::Bell;
    #[pymodule_export]
    use crate::blocks::{blocks_from_tuples, human_size};
    #[pymodule_export]
    use crate::command::run_command;
    #[pymodule_export]
    use crate::events::{Event, EventQueue};
    #[pymodule_export]
    use crate::explain::explain_json;
    #[pymodule_export]
    use crate::lists::PreparedList;
    #[pymodule_export]
    use crate::logs::{after_fork, next_logs, start_logs, stop_logs};
    #[pymodule_export]
    use crate::memory::{Registration, SharedBuf};
    #[pymodule_export]
    use crate::settings::{Settings, error_codes};
    #[pymodule_export]
    use crate::transfer::Transfer;
}
