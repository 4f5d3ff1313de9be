//! `cargo xtask wheel`: the wheels of the Python packages, for any Linux with glibc 2.28 or later.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::process;
use crate::workspace::Workspace;

/// What builds the wheels, from PyPI: zig links against the old glibc.
const TOOLS: [&str; 3] = ["maturin==1.9.6", "ziglang==0.14.1", "hatchling==1.27.0"];
const PLATFORM: &str = "manylinux_2_28";
/// Largest that a wheel may be.
const MOST_BYTES: u64 = 8 << 20;

const BUILD_LIMIT: Duration = Duration::from_secs(30 * 60);
const INSTALL_LIMIT: Duration = Duration::from_secs(10 * 60);

/// The two wheels.
pub(crate) struct Wheels {
    /// `kvferry`, with the native module.
    pub(crate) native: PathBuf,
    /// `kvferry-nixl`, the drop-in.
    pub(crate) nixl: PathBuf,
}

/// Builds both wheels and says where they are.
pub(crate) fn exec(workspace: &Workspace) -> Result<ExitCode> {
    let wheels = build(workspace)?;
    for wheel in [&wheels.native, &wheels.nixl] {
        println!("{} ({} bytes)", wheel.display(), fs::metadata(wheel)?.len());
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds both wheels into `target/wheels`.
///
/// # Errors
/// A tool is not to be had, a build fails, or a wheel is too large.
pub(crate) fn build(workspace: &Workspace) -> Result<Wheels> {
    let tools = tools(workspace)?;
    let out = workspace.target.join("wheels");
    let _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&out).with_context(|| format!("can't make {}", out.display()))?;

    let mut maturin = Command::new(tools.join("maturin"));
    maturin
        .args(["build", "--release", "--zig", "--locked", "--compatibility", PLATFORM, "--out"])
        .arg(&out)
        .current_dir(workspace.root.join("python/kvferry"))
        .env("CARGO_TARGET_DIR", &workspace.target)
        .env("PATH", with_first(&tools)?);
    workspace.clean(&mut maturin);
    run(&mut maturin, "maturin build", BUILD_LIMIT)?;

    let mut hatchling = Command::new(tools.join("python"));
    hatchling
        .args(["-m", "hatchling", "build", "-t", "wheel", "-d"])
        .arg(&out)
        .current_dir(workspace.root.join("python/kvferry-nixl"));
    run(&mut hatchling, "hatchling build", BUILD_LIMIT)?;

    let wheels = in_dir(&out)?;
    for wheel in [&wheels.native, &wheels.nixl] {
        let bytes = fs::metadata(wheel)?.len();
        ensure!(bytes < MOST_BYTES, "{} has {bytes} bytes, more than {MOST_BYTES}", wheel.display());
    }
    ensure!(
        wheels.native.to_string_lossy().contains(PLATFORM),
        "{} is not for {PLATFORM}",
        wheels.native.display()
    );
    Ok(wheels)
}

/// The two wheels in a directory.
///
/// # Errors
/// One is missing, or there are several of it.
pub(crate) fn in_dir(dir: &Path) -> Result<Wheels> {
    Ok(Wheels { native: find(dir, "kvferry-")?, nixl: find(dir, "kvferry_nixl-")? })
}

/// A virtual environment at `dir`, made anew; returns the folder of its programs.
///
/// # Errors
/// There is no Python, or it lacks `venv`.
pub(crate) fn environment(dir: &Path) -> Result<PathBuf> {
    let _ = fs::remove_dir_all(dir);
    let mut venv = Command::new("python3");
    run(venv.args(["-m", "venv"]).arg(dir), "python3 -m venv", INSTALL_LIMIT)?;
    Ok(dir.join("bin"))
}

/// Installs packages or wheels into the environment of these programs.
///
/// # Errors
/// pip fails.
pub(crate) fn install<S: AsRef<std::ffi::OsStr>>(programs: &Path, packages: &[S]) -> Result<()> {
    let mut pip = Command::new(programs.join("python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
    run(&mut pip, "pip install", INSTALL_LIMIT)
}

/// The environment of the build tools, made once for each set of versions.
fn tools(workspace: &Workspace) -> Result<PathBuf> {
    let dir = workspace.target.join("wheel-tools");
    let (programs, stamp) = (dir.join("bin"), dir.join("versions"));
    let versions = TOOLS.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|made| made == versions) {
        return Ok(programs);
    }
    environment(&dir)?;
    install(&programs, &TOOLS)?;
    fs::write(&stamp, versions).with_context(|| format!("can't write {}", stamp.display()))?;
    Ok(programs)
}

/// Runs a command that must end well, and in time.
///
/// # Errors
/// It does not.
pub(crate) fn run(command: &mut Command, name: &str, limit: Duration) -> Result<()> {
    let finished = process::run(command, limit).with_context(|| format!("can't run {name}"))?;
    if finished.timed_out {
        bail!("{name} was killed: it took too long");
    }
    ensure!(finished.status.success(), "{name} ended with {}", finished.status);
    Ok(())
}

fn with_first(dir: &Path) -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = std::iter::once(dir.to_path_buf()).chain(env::split_paths(&path));
    env::join_paths(dirs).context("PATH has an entry with a colon")
}

/// The only wheel whose name begins so.
fn find(dir: &Path, start: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(dir)
        .with_context(|| format!("can't list {}", dir.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()));
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start));
    let mut found = entries.filter(named);
    match (found.next(), found.next()) {
        (Some(wheel), None) => Ok(wheel),
        (None, _) => bail!("no wheel {start}* in {}", dir.display()),
        _ => bail!("several wheels {start}* in {}", dir.display()),
    }
}
