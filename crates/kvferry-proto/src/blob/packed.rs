//! Many regions in few bytes: each says only in what it differs from the one before.
//!
//! Engines register thousands of regions of one length, often side by side. Such a region takes nine bytes, eight of them
//! its key, which is random.

use super::{BlobError, MAX_BLOB_REGIONS, Reader, limit, put};
use crate::kind::MemoryKind;
use crate::reach::{MAX_REACH, Reach};
use crate::region::{RegionDesc, RegionId, RegionKey, RemoteRegion};

/// From so many regions on they are packed. Below, the plain form is as good.
pub(super) const MANY: usize = 32;

const NEXT_ID: u8 = 1;
const NEXT_ADDR: u8 = 2;
const SAME_LEN: u8 = 4;
const SAME_PLACE: u8 = 8;
const SAME_REACH: u8 = 16;
const ALL: u8 = 31;

/// Longest keys, together, of ways that are repeated by a bit: a peer must not have us allocate much for little.
const REPEATED: usize = 24;

/// What the next region is compared with.
struct Last {
    id: u64,
    end: u64,
    len: u64,
    place: (MemoryKind, u32),
    reach: Vec<Reach>,
}

impl Last {
    fn new() -> Self {
        Self { id: 0, end: 0, len: 0, place: (MemoryKind::Dram, 0), reach: Vec::new() }
    }

    fn set(&mut self, region: &RemoteRegion) {
        let desc = region.desc;
        self.id = region.id.0;
        self.end = desc.addr.wrapping_add(desc.len);
        self.len = desc.len;
        self.place = (desc.kind, desc.device);
        if self.reach != region.reach {
            self.reach.clone_from(&region.reach);
        }
    }

    fn is_repeatable(&self) -> bool {
        self.reach.iter().map(Reach::key_len).sum::<usize>() <= REPEATED
    }
}

pub(super) fn put_regions(out: &mut Vec<u8>, regions: &[RemoteRegion]) -> Result<(), BlobError> {
    put(out, &(regions.len() as u32))?;
    let mut last = Last::new();
    for region in regions {
        let RegionDesc { addr, len, kind, device } = region.desc;
        let mut flags = 0;
        let mut same = |flag, holds: bool| {
            flags |= if holds { flag } else { 0 };
            !holds
        };
        let id = same(NEXT_ID, region.id.0 == last.id.wrapping_add(1));
        let moved = same(NEXT_ADDR, addr == last.end);
        let sized = same(SAME_LEN, len == last.len);
        let placed = same(SAME_PLACE, (kind, device) == last.place);
        let reached = same(SAME_REACH, region.reach == last.reach && last.is_repeatable());
        put(out, &(flags, region.key))?;
        if id {
            put(out, &region.id)?;
        }
        if moved {
            put(out, &(addr.wrapping_sub(last.end) as i64))?;
        }
        if sized {
            put(out, &len)?;
        }
        if placed {
            put(out, &(kind, device))?;
        }
        if reached {
            put(out, &region.reach)?;
        }
        last.set(region);
    }
    Ok(())
}

pub(super) fn read_regions(mut reader: Reader<'_>) -> Result<Vec<RemoteRegion>, BlobError> {
    let count = reader.count("regions", MAX_BLOB_REGIONS)?;
    let mut regions = Vec::new();
    let mut last = Last::new();
    for _ in 0..count {
        let (flags, key): (u8, RegionKey) = reader.take()?;
        let has = |flag| flags & flag != 0;
        if flags & !ALL != 0 || has(SAME_REACH) && !last.is_repeatable() {
            return Err(reader.malformed());
        }
        let id = if has(NEXT_ID) { RegionId(last.id.wrapping_add(1)) } else { reader.take()? };
        let moved = if has(NEXT_ADDR) { 0 } else { reader.take::<i64>()? };
        let len = if has(SAME_LEN) { last.len } else { reader.take()? };
        let (kind, device) = if has(SAME_PLACE) { last.place } else { reader.take()? };
        let reach = if has(SAME_REACH) {
            last.reach.clone()
        } else {
            let ways = reader.count("ways to reach a region", MAX_REACH)?;
            reader.many(ways)?
        };
        limit("ways to reach a region", reach.len(), MAX_REACH)?;
        let addr = last.end.wrapping_add(moved as u64);
        let region = RemoteRegion { id, key, desc: RegionDesc { addr, len, kind, device }, reach };
        last.set(&region);
        regions.push(region);
    }
    reader.finish()?;
    Ok(regions)
}
