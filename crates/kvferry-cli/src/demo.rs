//! `kvferry demo`: finding the demo's own program and becoming it.

use std::env;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

const PROGRAM: &str = "kvferry-demo";

/// Replaces this process by kvferry-demo.
///
/// # Errors
/// It is not installed, or can't be run.
pub(crate) fn exec(args: &[OsString]) -> Result<ExitCode> {
    let Some(program) = find() else {
        bail!(
            "{PROGRAM} is not installed: it is neither beside this program nor on PATH. It is a program of its \
             own because it holds a language model's runtime. In a clone of the repository, `cargo xtask demo` \
             builds and runs it; elsewhere put the built {PROGRAM} beside this program"
        );
    };
    let error = Command::new(&program).args(args).exec();
    Err(error).with_context(|| format!("can't run {}", program.display()))
}

fn find() -> Option<PathBuf> {
    let beside = env::current_exe().ok().and_then(|path| Some(path.parent()?.to_path_buf()));
    let path = env::var_os("PATH").unwrap_or_default();
    beside
        .into_iter()
        // An empty entry would mean the current directory, which is nobody's intention.
        .chain(env::split_paths(&path).filter(|dir| !dir.as_os_str().is_empty()))
        .map(|dir| dir.join(PROGRAM))
        .find(|candidate| is_program(candidate))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}
