use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result};

/// A descriptor of the memory file of this process that is mapped at `addr`.
///
/// The agent keeps the descriptor of its allocations to itself, so it is looked for among those of the process.
pub(super) fn of_mapping(addr: u64) -> Result<OwnedFd> {
    let maps = fs::read_to_string("/proc/self/maps").context("can't read the mappings of this process")?;
    let inode = maps.lines().find_map(|line| inode_at(line, addr)).context("no file is mapped there")?;
    for entry in fs::read_dir("/proc/self/fd").context("can't list the descriptors of this process")? {
        let path = entry?.path();
        let target = fs::read_link(&path).unwrap_or_default();
        let is_memfd = target.to_string_lossy().starts_with("/memfd:kvferry");
        if is_memfd && fs::metadata(&path).is_ok_and(|data| data.ino() == inode) {
            let file = File::options().read(true).write(true).open(&path);
            return Ok(file.context("can't open the memory file again")?.into());
        }
    }
    anyhow::bail!("no descriptor of this process is the memory file with inode {inode}")
}

/// The inode of a line of the maps file, if the mapping holds `addr`.
fn inode_at(line: &str, addr: u64) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    // Permissions, offset and device lie between.
    let inode = fields.nth(3)?.parse().ok()?;
    (start <= addr && addr < end).then_some(inode)
}

#[cfg(test)]
mod tests;
