//! The long form of the kernel's list, which walks all page tables and is therefore read only when needed.

use std::fs::File;
use std::io::{BufRead, BufReader};

use super::{Mapping, Special};

/// The special mappings of this process, by their start. Nothing where the list cannot be read.
pub(super) fn specials() -> Vec<(u64, Special)> {
    match File::open("/proc/self/smaps") {
        Ok(file) => parse(BufReader::new(file)),
        Err(_) => Vec::new(),
    }
}

/// Each mapping's line is followed by lines `Name: value`, the last of them `VmFlags: rd wr ...`.
pub(super) fn parse(mut lines: impl BufRead) -> Vec<(u64, Special)> {
    let mut found = Vec::new();
    let mut start = None;
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        if let Some(flags) = line.strip_prefix(b"VmFlags:") {
            found.extend(start.zip(special(flags)));
        } else if let Some(mapping) = Mapping::parse(line.trim_ascii_end()) {
            start = Some(mapping.start);
        }
        line.clear();
    }
    found
}

fn special(flags: &[u8]) -> Option<Special> {
    flags.split(u8::is_ascii_whitespace).find_map(|flag| match flag {
        b"um" | b"uw" | b"ui" => Some(Special::Userfaultfd),
        b"io" => Some(Special::Io),
        b"pf" => Some(Special::PfnMap),
        _ => None,
    })
}
