//! What is mapped where in this process, from one pass over the kernel's list.

mod descriptors;
mod smaps;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::OnceLock;

use rustix::io::Errno;
use thiserror::Error;

use crate::cma::can_read_byte;
use crate::process::Pid;
use crate::region::Touch;
use descriptors::Descriptors;

/// What stands behind a range of memory.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Backing {
    /// Private anonymous memory.
    Anonymous,
    /// A memfd whose size cannot change, mapped inside that size.
    SealedMemfd,
    /// A file, a device, or a memfd that may still shrink.
    File,
    /// Anonymous memory shared with children, or System V shared memory.
    SharedAnonymous,
}

/// A mapping whose memory other processes cannot read.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Special {
    /// Registered with userfaultfd: a touch may wait for this program itself.
    Userfaultfd,
    /// Device memory.
    Io,
    /// Pages without the kernel's bookkeeping.
    PfnMap,
}

/// What is known of a range that may be registered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MapFacts {
    /// What stands behind its first byte.
    pub backing: Backing,
    /// How the whole range may be touched.
    pub touch: Touch,
    /// The path of its first mapping that has one, as the kernel shows it.
    pub path: Option<String>,
}

/// Why a range cannot be registered.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum MapFault {
    /// Nothing is mapped.
    #[error("address is not mapped from {from:#x} on")]
    Unmapped {
        /// The first such address.
        from: u64,
    },
    /// Mapped, but not readable.
    #[error("memory is not readable from {from:#x} on")]
    NotReadable {
        /// The first such address.
        from: u64,
    },
    /// Mapped, but not writable.
    #[error("memory is not writable from {from:#x} on")]
    NotWritable {
        /// The first such address.
        from: u64,
    },
    /// A mapping that no other process can read.
    #[error("memory is of a special kind ({what:?}) from {from:#x} on")]
    Special {
        /// The first such address.
        from: u64,
        /// Of what kind.
        what: Special,
        /// What is mapped there, if it has a name.
        path: Option<String>,
    },
}

/// The mappings of this process at one moment.
#[derive(Debug)]
pub struct MemoryMap {
    /// In order of address, apart from each other.
    mappings: Vec<Mapping>,
    descriptors: OnceLock<Descriptors>,
    /// The special ones among the mappings, by their start; read only when something makes us ask.
    specials: OnceLock<Vec<(u64, Special)>>,
}

impl MemoryMap {
    /// Reads the kernel's list once. Mappings made or changed later are not seen.
    pub fn read() -> io::Result<Self> {
        let text = std::fs::read("/proc/self/maps")?;
        let mappings = text.split(|&byte| byte == b'\n').filter_map(Mapping::parse).collect();
        Ok(Self { mappings, descriptors: OnceLock::new(), specials: OnceLock::new() })
    }

    /// Looks at every mapping under the range; neighbours count as one. An empty range answers for its first byte.
    pub fn check(&self, addr: u64, len: u64, need_write: bool) -> Result<MapFacts, MapFault> {
        let mut facts: Option<MapFacts> = None;
        for part in self.parts(addr, len) {
            let (from, mapping) = (part.from, part.mapping.ok_or(MapFault::Unmapped { from: part.from })?);
            if !mapping.readable {
                return Err(MapFault::NotReadable { from });
            }
            if let Some(what) = self.special(mapping) {
                return Err(MapFault::Special { from, what, path: mapping.path.clone() });
            }
            if need_write && !mapping.writable {
                return Err(MapFault::NotWritable { from });
            }
            let (backing, touch) = self.backing(mapping, part.last);
            let facts = facts.get_or_insert(MapFacts { backing, touch, path: None });
            if touch == Touch::Syscall {
                facts.touch = touch;
            }
            if facts.path.is_none() {
                facts.path.clone_from(&mapping.path);
            }
        }
        facts.ok_or(MapFault::Unmapped { from: addr })
    }

    /// Reads one byte of each mapping under the range, by a system call that never faults: the last word on memory
    /// that the list shows as readable. Where that call is forbidden, the list is believed.
    pub fn probe_readable(&self, addr: u64, len: u64) -> Result<(), MapFault> {
        for part in self.parts(addr, len) {
            let from = part.from;
            part.mapping.ok_or(MapFault::Unmapped { from })?;
            if can_read_byte(Pid::own(), from) == Err(Errno::FAULT) {
                return Err(MapFault::NotReadable { from });
            }
        }
        Ok(())
    }

    /// Cuts a range along the mappings; ends with the first part that has none.
    fn parts(&self, addr: u64, len: u64) -> impl Iterator<Item = Part<'_>> {
        let last = addr.saturating_add(len.saturating_sub(1));
        let first = self.mappings.partition_point(|mapping| mapping.last < addr);
        let mut mappings = self.mappings[first..].iter();
        let mut next = Some(addr);
        core::iter::from_fn(move || {
            let from = next.filter(|&from| from <= last)?;
            let mapping = mappings.next().filter(|mapping| mapping.start <= from);
            next = mapping.and_then(|mapping| mapping.last.checked_add(1));
            Some(Part { from, last: mapping.map_or(from, |mapping| mapping.last.min(last)), mapping })
        })
    }

    fn descriptors(&self) -> &Descriptors {
        self.descriptors.get_or_init(Descriptors::of_this_process)
    }

    fn special(&self, mapping: &Mapping) -> Option<Special> {
        if !mapping.is_unusual() && !self.descriptors().userfaultfd {
            return None;
        }
        let specials = self.specials.get_or_init(smaps::specials);
        let index = specials.binary_search_by_key(&mapping.start, |&(start, _)| start).ok()?;
        specials.get(index).map(|&(_, what)| what)
    }

    /// What stands behind a mapping, and how it may be touched up to the byte at `last`.
    fn backing(&self, mapping: &Mapping, last: u64) -> (Backing, Touch) {
        match mapping.path.as_deref() {
            None if !mapping.shared => (Backing::Anonymous, Touch::LoadStore),
            Some("[heap]" | "[stack]") => (Backing::Anonymous, Touch::LoadStore),
            Some(path) if path.starts_with("[anon:") => (Backing::Anonymous, Touch::LoadStore),
            // A page of either may be missing for want of a huge page, or be a file of that name: no loads.
            Some("/dev/zero" | "/anon_hugepage (deleted)") if !mapping.shared => {
                (Backing::Anonymous, Touch::Syscall)
            }
            // It can be mapped past its end, where a load raises SIGBUS.
            None | Some("/dev/zero (deleted)" | "/dev/zero" | "/anon_hugepage (deleted)") => {
                (Backing::SharedAnonymous, Touch::Syscall)
            }
            Some(path) if path.starts_with("[anon_shmem:") || path.starts_with("/SYSV") => {
                (Backing::SharedAnonymous, Touch::Syscall)
            }
            Some(_) => {
                let end = mapping.offset.saturating_add(last - mapping.start);
                let inside = self.descriptors().sealed_len(mapping.file).is_some_and(|len| end < len);
                if inside {
                    (Backing::SealedMemfd, Touch::LoadStore)
                } else {
                    (Backing::File, Touch::Syscall)
                }
            }
        }
    }
}

/// The part of a range that lies in one mapping, or begins where there is none.
struct Part<'a> {
    from: u64,
    /// The last byte's address.
    last: u64,
    mapping: Option<&'a Mapping>,
}

/// What a line of the list says.
#[derive(Debug, Eq, PartialEq)]
struct Mapping {
    start: u64,
    /// The last byte's address.
    last: u64,
    readable: bool,
    writable: bool,
    shared: bool,
    /// Where in the file it begins.
    offset: u64,
    file: FileId,
    path: Option<String>,
}

/// What distinguishes a file from all others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct FileId {
    major: u32,
    minor: u32,
    inode: u64,
}

impl Mapping {
    /// `start-end rwxp offset major:minor inode   path`, all numbers but the inode in base 16.
    fn parse(line: &[u8]) -> Option<Self> {
        let line = String::from_utf8_lossy(line);
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let last = u64::from_str_radix(end, 16).ok()?.checked_sub(1)?;
        let rights = fields.next()?.as_bytes();
        let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let file = FileId {
            major: u32::from_str_radix(major, 16).ok()?,
            minor: u32::from_str_radix(minor, 16).ok()?,
            inode: fields.next()?.parse().ok()?,
        };
        let path = fields.next().map(str::trim_start).filter(|path| !path.is_empty());
        let has = |index: usize, right: u8| rights.get(index) == Some(&right);
        Some(Self {
            start,
            last,
            readable: has(0, b'r'),
            writable: has(1, b'w'),
            shared: has(3, b's'),
            offset,
            file,
            path: path.map(str::to_owned),
        })
    }

    /// Whether it may be something other than memory or an ordinary file: devices and what drivers make.
    fn is_unusual(&self) -> bool {
        let Some(path) = self.path.as_deref() else { return false };
        let ordinary_device = ["/dev/zero", "/dev/shm/", "/dev/hugepages/"];
        (path.starts_with("/dev/") && !ordinary_device.iter().any(|ordinary| path.starts_with(ordinary)))
            || ["/sys/", "/proc/", "anon_inode:", "[v", "/dmabuf", "/drm"]
                .iter()
                .any(|kind| path.starts_with(kind))
    }
}
