//! Where the CUDA driver's library is.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const LIBRARY: &str = "libcuda.so.1";

/// The loader's configuration.
const CONFIGURATION: &str = "/etc/ld.so.conf";
/// A configuration file may include others; this deep at most.
const MAX_DEPTH: usize = 4;

/// Where the loader looks by itself, and where container runtimes and WSL put the driver.
const USUAL: [&str; 10] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
];

/// The driver's library, or all the directories in which it is not.
pub(super) fn find() -> Result<PathBuf, Arc<[PathBuf]>> {
    let variable = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    search(&variable, Path::new(CONFIGURATION), &USUAL)
}

fn search(variable: &OsStr, configuration: &Path, usual: &[&str]) -> Result<PathBuf, Arc<[PathBuf]>> {
    let mut places: Vec<PathBuf> = variable
        .as_bytes()
        .split(|byte| matches!(byte, b':' | b';'))
        .filter(|entry| !entry.is_empty())
        .map(|entry| PathBuf::from(OsStr::from_bytes(entry)))
        .collect();
    configured(configuration, MAX_DEPTH, &mut places);
    places.extend(usual.iter().map(PathBuf::from));
    let mut looked: Vec<PathBuf> = Vec::new();
    for place in places {
        let library = place.join(LIBRARY);
        if library.is_file() {
            return Ok(library);
        }
        if !looked.contains(&place) {
            looked.push(place);
        }
    }
    Err(looked.into())
}

/// Adds the directories that a configuration file of the loader names. What cannot be read names none.
fn configured(file: &Path, depth: usize, places: &mut Vec<PathBuf>) {
    let Ok(text) = std::fs::read_to_string(file) else { return };
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        match line.strip_prefix("include").filter(|rest| rest.starts_with(char::is_whitespace)) {
            Some(pattern) if depth > 0 => {
                for included in matching(file, pattern.trim()) {
                    configured(&included, depth - 1, places);
                }
            }
            Some(_) => {}
            None if line.starts_with('/') => places.push(PathBuf::from(line)),
            None => {}
        }
    }
}

/// The files of a pattern such as `/etc/ld.so.conf.d/*.conf`, sorted. Only the last component may hold a
/// star.
fn matching(file: &Path, pattern: &str) -> Vec<PathBuf> {
    let pattern = file.with_file_name(pattern);
    let (Some(directory), Some(name)) = (pattern.parent(), pattern.file_name().and_then(OsStr::to_str))
    else {
        return Vec::new();
    };
    let Some((head, tail)) = name.split_once('*') else { return vec![pattern] };
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.as_bytes();
            name.len() >= head.len() + tail.len()
                && name.starts_with(head.as_bytes())
                && name.ends_with(tail.as_bytes())
        })
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests;
