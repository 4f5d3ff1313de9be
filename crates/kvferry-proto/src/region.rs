//! Registered memory: its names, its extent, and how others reach it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::kind::MemoryKind;
use crate::reach::Reach;

/// The number of a registration within one incarnation of an agent. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub struct RegionId(pub u64);

impl fmt::Display for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The random number that a peer must show to name a registration on a wire.
///
/// It grants access, so `Debug` doesn't print it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "[u8; 8]", from = "[u8; 8]")]
pub struct RegionKey(pub u64);

impl fmt::Debug for RegionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RegionKey(..)")
    }
}

// Fixed width: a random number as a variable-length integer would take ten bytes.
impl From<RegionKey> for [u8; 8] {
    fn from(key: RegionKey) -> Self {
        key.0.to_le_bytes()
    }
}

impl From<[u8; 8]> for RegionKey {
    fn from(bytes: [u8; 8]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }
}

/// 128 random bits that tell one life of an agent from the next. Unordered.
///
/// `Display` gives the first four bytes in hexadecimal, enough for a log line; `Debug` gives all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub [u8; 16]);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Incarnation(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// Where a region lies: `len` bytes from `addr` on, of one kind, on one device.
///
/// Addresses may have bit 63 set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RegionDesc {
    /// First byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Kind of memory.
    pub kind: MemoryKind,
    /// Device number within the kind; 0 for host memory.
    pub device: u32,
}

impl RegionDesc {
    /// The address after the last byte, or `None` if that is past the last address.
    pub fn end(&self) -> Option<u64> {
        self.addr.checked_add(self.len)
    }

    /// Whether this can be a region at all.
    ///
    /// # Errors
    /// The length is zero, or the range wraps around the end of the address space.
    pub fn check(&self) -> Result<(), RegionError> {
        if self.len == 0 {
            return Err(RegionError::ZeroLength { addr: self.addr });
        }
        match self.end() {
            Some(_) => Ok(()),
            None => Err(RegionError::Wrap { addr: self.addr, len: self.len }),
        }
    }
}

impl fmt::Display for RegionDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addr, len, kind, device } = *self;
        write!(f, "{addr:#x}, {}, {kind}", human_size(len))?;
        if kind != MemoryKind::Dram || device != 0 {
            write!(f, " device {device}")?;
        }
        Ok(())
    }
}

/// Why a range can't be a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The length is zero.
    #[error("{addr:#x}: length is zero")]
    ZeroLength {
        /// First byte.
        addr: u64,
    },
    /// The range goes past the last address.
    #[error("{addr:#x}, {}: range wraps around the end of the address space", human_size(*len))]
    Wrap {
        /// First byte.
        addr: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// A region of another agent, as its metadata describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRegion {
    /// The owner's number for it.
    pub id: RegionId,
    /// What a peer must show on a wire.
    pub key: RegionKey,
    /// Where it lies in the owner's address space.
    pub desc: RegionDesc,
    /// How it can be reached, besides over a wire; at most [`MAX_REACH`](crate::MAX_REACH) ways.
    pub reach: Vec<Reach>,
}

/// A size as people write it: `17 B`, `64 KiB`, `1.2 GiB`.
///
/// A decimal stands only where the size is no whole number of the unit, so `64 KiB` is exact
/// and `64.0 KiB` is not.
pub fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = (bytes.max(1).ilog2() / 10) as usize;
    let scale = 1_u64 << (10 * unit);
    if bytes.is_multiple_of(scale) {
        return format!("{} {}", bytes / scale, UNITS[unit]);
    }
    // In 128 bits: tenths of the largest sizes don't fit in 64.
    let mut tenths = (u128::from(bytes) * 10 + u128::from(scale / 2)) / u128::from(scale);
    if tenths >= 10_240 {
        // 1023.97 KiB rounds to the next unit.
        tenths = 10;
        unit += 1;
    }
    // The largest count of bytes rounds to 16.0 EiB, so there is always a next unit.
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

#[cfg(test)]
mod tests;
