//! Where the repository and its build output lie, and how cargo is called.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// The repository that this task belongs to.
pub(crate) struct Workspace {
    /// The repository's root.
    pub(crate) root: PathBuf,
    /// The build directory: `CARGO_TARGET_DIR`, or `target/` in the root.
    pub(crate) target: PathBuf,
}

impl Workspace {
    pub(crate) fn find() -> Self {
        // `cargo run` says where it runs; what was compiled in may be where the repository once lay.
        let manifest = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest.parent().unwrap_or(&manifest).to_path_buf();
        let target = env::var_os("CARGO_TARGET_DIR")
            .filter(|dir| !dir.is_empty())
            .map_or_else(|| root.join("target"), |dir| root.join(dir));
        Self { root, target }
    }

    /// A cargo call in the root, without the variables of ours that would change what is tested.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = Command::new(cargo_program());
        cargo.current_dir(&self.root);
        self.clean(&mut cargo);
        cargo
    }

    /// Takes `KVFERRY_*` out of a command's environment, and what cargo set for this task itself:
    /// the first would make the checks depend on the caller's shell, the second makes build
    /// scripts believe that something changed.
    pub(crate) fn clean(&self, command: &mut Command) {
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("KVFERRY_")
                || text.starts_with("CARGO_PKG_")
                || text.starts_with("CARGO_MANIFEST_")
            {
                command.env_remove(&name);
            }
        }
    }

    /// A binary of the release profile.
    pub(crate) fn release_binary(&self, name: &str) -> PathBuf {
        self.target.join("release").join(name)
    }
}

/// The cargo that runs this task, so that nested calls use the same toolchain.
fn cargo_program() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
