//! How this command starts itself once more.

use std::env;
use std::ffi::OsString;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result};

static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// Says how, where it is not by this process's own file: a program and its first arguments.
pub(crate) fn set(program: Vec<OsString>) {
    // The first to say so is right: there is one process.
    let _ = PROGRAM.set(program);
}

/// The program and its first arguments.
pub(crate) struct Program(Vec<OsString>);

impl Program {
    /// This command's own.
    pub(crate) fn own() -> Result<Self> {
        match PROGRAM.get() {
            Some(given) => Ok(Self(given.clone())),
            None => {
                let file = env::current_exe().context("can't find this program's own file")?;
                Ok(Self(vec![file.into_os_string()]))
            }
        }
    }

    /// A call of it, its arguments yet to be given.
    pub(crate) fn command(&self) -> Command {
        let (program, args) = self.0.split_first().map_or_else(Default::default, |(p, a)| (p.clone(), a));
        let mut command = Command::new(program);
        command.args(args);
        command
    }
}
