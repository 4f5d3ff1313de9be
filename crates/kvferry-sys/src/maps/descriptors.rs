//! What this process's open files say about its memory.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{fstat, major, minor};
use rustix::param::page_size;

use super::FileId;
use crate::memfd::sealed_size;

/// One look at all open files.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    /// Whether a userfaultfd is among them, or they could not be looked at.
    pub(super) userfaultfd: bool,
    /// The memfds whose size is sealed, and how many bytes of each can be mapped without SIGBUS.
    sealed: Vec<(FileId, u64)>,
}

impl Descriptors {
    pub(super) fn of_this_process() -> Self {
        let Ok(entries) = fs::read_dir("/proc/self/fd") else {
            // A process that may not be dumped may not list its own files. Then the mappings themselves are asked.
            return Self { userfaultfd: true, sealed: Vec::new() };
        };
        let mut found = Self::default();
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(target) = fs::read_link(&path) else { continue };
            let target = target.as_os_str().as_encoded_bytes();
            if target.starts_with(b"anon_inode:[userfaultfd]") {
                found.userfaultfd = true;
            } else if target.starts_with(b"/memfd:") {
                found.sealed.extend(sealed(&path));
            }
        }
        found
    }

    /// How many bytes of the file can be mapped without SIGBUS, if its size is sealed.
    pub(super) fn sealed_len(&self, file: FileId) -> Option<u64> {
        self.sealed.iter().find(|(sealed, _)| *sealed == file).map(|&(_, len)| len)
    }
}

/// The memfd at a path in the list of open files, if its size is sealed.
fn sealed(path: &Path) -> Option<(FileId, u64)> {
    // Opened anew: the descriptor itself may be closed by its owner at any moment.
    let file = File::open(path).ok()?;
    let len = sealed_size(file.as_fd()).ok()?.checked_next_multiple_of(page_size() as u64)?;
    let stat = fstat(&file).ok()?;
    let id = FileId { major: major(stat.st_dev), minor: minor(stat.st_dev), inode: stat.st_ino };
    Some((id, len))
}
