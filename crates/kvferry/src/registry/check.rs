//! Whether a range can be a region, and what backs it.

use std::path::PathBuf;
use std::sync::Arc;

use kvferry_proto::{MemoryKind, RegionDesc};
use kvferry_sys::{MapFault, MemoryMap, Special};

use super::cuda;
use crate::alloc::{AllocTable, Found};
use crate::error::RegisterCause;
use crate::region::Backing;

/// Devices that GPU drivers map: what lies there is no host memory.
const GPU_DEVICES: [&str; 3] = ["/dev/nvidia", "/dev/dri/", "/dev/kfd"];

/// Checks the ranges of one batch: the kernel's list of mappings is read once, and the driver looked for
/// once.
#[derive(Debug)]
pub(super) struct Checker<'a> {
    allocs: &'a AllocTable,
    map: Option<Result<MemoryMap, String>>,
    driver: Option<Result<PathBuf, Arc<[PathBuf]>>>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(allocs: &'a AllocTable) -> Self {
        Self { allocs, map: None, driver: None }
    }

    /// What backs the range; or why it cannot be a region.
    pub(super) fn check(&mut self, desc: &RegionDesc) -> Result<Backing, RegisterCause> {
        match desc.kind {
            MemoryKind::Dram | MemoryKind::Vram => {}
            kind @ (MemoryKind::File | MemoryKind::Block | MemoryKind::Object) => {
                return Err(RegisterCause::UnsupportedKind {
                    what: format!("{kind} memory is not built yet"),
                });
            }
        }
        if desc.len == 0 {
            return Err(RegisterCause::ZeroLength);
        }
        if desc.addr == 0 {
            return Err(RegisterCause::Null);
        }
        if desc.end().is_none() {
            return Err(RegisterCause::Overflow);
        }
        match desc.kind {
            MemoryKind::Vram => Err(self.vram()),
            _ => self.host(desc),
        }
    }

    fn host(&mut self, desc: &RegionDesc) -> Result<Backing, RegisterCause> {
        if let Some(Found { memory, memfd, offset }) = self.allocs.find(desc.addr, desc.len) {
            return Ok(Backing::Shared { memory, memfd, offset });
        }
        let map = self.map.get_or_insert_with(|| {
            MemoryMap::read().map_err(|error| format!("the list of this process's mappings: {error}"))
        });
        let map = map.as_ref().map_err(|what| RegisterCause::System { what: what.clone() })?;
        let cause = |fault| cause(desc.kind, fault);
        let facts = map.check(desc.addr, desc.len, true).map_err(cause)?;
        if let Some(path) = facts.path.filter(|path| is_gpu(path)) {
            return Err(RegisterCause::KindMismatch { from: desc.addr, declared: desc.kind, path });
        }
        map.probe_readable(desc.addr, desc.len).map_err(cause)?;
        Ok(Backing::Private { touch: facts.touch })
    }

    fn vram(&mut self) -> RegisterCause {
        match self.driver.get_or_insert_with(cuda::find) {
            Ok(_) => RegisterCause::UnsupportedKind { what: "GPU memory is not built yet".to_owned() },
            Err(places) => RegisterCause::VramNoDriver { places: Arc::clone(places) },
        }
    }
}

fn cause(declared: MemoryKind, fault: MapFault) -> RegisterCause {
    match fault {
        MapFault::Unmapped { from } => RegisterCause::Unmapped { from },
        MapFault::NotReadable { from } => RegisterCause::NoAccess { from, needed: "readable" },
        MapFault::NotWritable { from } => RegisterCause::NoAccess { from, needed: "writable" },
        MapFault::Special { from, path: Some(path), .. } if is_gpu(&path) => {
            RegisterCause::KindMismatch { from, declared, path }
        }
        MapFault::Special { from, what, path } => {
            let what = match what {
                Special::Userfaultfd => "served by userfaultfd",
                Special::Io => "device memory",
                Special::PfnMap => "raw page frames",
            };
            let path = path.map_or_else(String::new, |path| format!(" ({path})"));
            RegisterCause::SpecialMapping { from, what: format!("{what}{path}") }
        }
        other => RegisterCause::System { what: other.to_string() },
    }
}

fn is_gpu(path: &str) -> bool {
    GPU_DEVICES.iter().any(|device| path.starts_with(device))
}

#[cfg(test)]
mod tests;
