//! What this process holds, as the kernel counts.

use std::fs;

use crate::harness::Holdings;

/// Counts. Zero where the kernel does not tell.
pub(super) fn count() -> Holdings {
    let entries = |path| fs::read_dir(path).map_or(0, |dir| dir.count() as u64);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|value| value.trim().trim_end_matches(" kB").trim().parse::<u64>().ok())
        .unwrap_or_default();
    Holdings {
        // One of them is the directory that is being read.
        fds: entries("/proc/self/fd").saturating_sub(1),
        threads: entries("/proc/self/task"),
        mappings: fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count() as u64),
        resident: resident * 1024,
    }
}
