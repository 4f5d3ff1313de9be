use proptest::prelude::*;

use super::*;

const TOP: u64 = 1 << 63;

fn region(id: u64, kind: MemoryKind, device: u32, addr: u64, len: u64) -> (RegionId, RegionDesc) {
    let desc = RegionDesc { addr, len, kind, device };
    (RegionId(id), desc)
}

fn dram(id: u64, addr: u64, len: u64) -> (RegionId, RegionDesc) {
    region(id, MemoryKind::Dram, 0, addr, len)
}

fn find(map: &RangeMap, addr: u64, len: u64) -> Option<u64> {
    map.find(MemoryKind::Dram, 0, addr, len).map(|entry| entry.id.0)
}

#[test]
fn only_the_whole_range_counts() {
    let map = RangeMap::new([dram(1, TOP, 100), dram(2, TOP + 100, 100)]);
    assert_eq!(map.overlapping(), 0);
    assert_eq!(find(&map, TOP, 100), Some(1));
    assert_eq!(find(&map, TOP + 100, 1), Some(2));
    assert_eq!(find(&map, TOP + 99, 2), None, "two neighbours are not one");
    assert_eq!(find(&map, TOP - 1, 2), None);
    assert_eq!(find(&map, TOP, 0), None);
    assert_eq!(find(&map, TOP, u64::MAX), None);
}

#[test]
fn kinds_and_devices_are_apart() {
    let map = RangeMap::new([
        region(1, MemoryKind::Vram, 0, 0x1000, 10),
        region(2, MemoryKind::Vram, 1, 0x1000, 20),
        region(3, MemoryKind::Dram, 0, 0x1000, 30),
    ]);
    assert_eq!(map.overlapping(), 0);
    let id = |entry: Option<RangeEntry>| entry.map(|e| e.id.0);
    assert_eq!(id(map.find(MemoryKind::Vram, 1, 0x1000, 20)), Some(2));
    assert_eq!(id(map.find(MemoryKind::Vram, 0, 0x1000, 20)), None);
    assert_eq!(id(map.find(MemoryKind::Vram, 2, 0x1000, 5)), None);
    let elsewhere = map.find_elsewhere(MemoryKind::Vram, 0, 0x1000, 25);
    assert_eq!(id(elsewhere), Some(3));
    assert_eq!(map.nearest(MemoryKind::File, 0, 0, 1), None);
}

#[test]
fn the_nearest_region_is_named_with_the_excess() {
    let map = RangeMap::new([dram(3, 0x10_0000, 0x10_0000), dram(4, 0x40_0000, 0x10_0000)]);
    let text = |addr, len| map.nearest(MemoryKind::Dram, 0, addr, len).unwrap().to_string();
    assert_eq!(text(0x1f_1000, 0x1_0000), "4 KiB past region 3");
    assert_eq!(text(0x0f_f000, 0x1_0000), "4 KiB before region 3");
    assert_eq!(text(0x0f_f000, 0x11_0000), "4 KiB before and 60 KiB past region 3");
    assert_eq!(text(0x60_0000, 0x400), "1.0 MiB past region 4");
    assert_eq!(text(u64::MAX, u64::MAX), "16.0 EiB past region 4", "no panic");
}

#[test]
fn repeats_and_nesting_answer_the_smallest_id() {
    let map = RangeMap::new([
        dram(9, 0, 1000),
        dram(7, 100, 100),
        dram(8, 100, 100),
        dram(2, 500, 10),
        dram(1, 2000, 10),
    ]);
    assert_eq!(map.overlapping(), 4);
    assert_eq!(find(&map, 120, 50), Some(7));
    assert_eq!(find(&map, 120, 100), Some(9));
    assert_eq!(find(&map, 505, 5), Some(2));
    assert_eq!(find(&map, 505, 6), Some(9));
    assert_eq!(find(&map, 999, 2), None);
}

#[test]
fn a_region_to_the_last_address_is_searched_like_others() {
    let map = RangeMap::new([dram(1, u64::MAX - 10, 10), dram(2, u64::MAX - 5, 0)]);
    assert_eq!(map.len(), 1, "an empty region covers nothing");
    assert_eq!(find(&map, u64::MAX - 1, 1), Some(1));
    assert_eq!(find(&map, u64::MAX - 1, 2), None);
}

proptest! {
    #[test]
    fn find_agrees_with_a_scan(
        regions in prop::collection::vec((0_u64..200, 0_u64..60, 0_u32..2), 0..40),
        asks in prop::collection::vec((0_u64..260, 0_u64..40, 0_u32..3), 1..40),
        // Ids in another order than addresses.
        salt in any::<u64>(),
    ) {
        let regions: Vec<_> = regions
            .iter()
            .enumerate()
            .map(|(n, &(addr, len, device))| {
                let id = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt;
                region(id, MemoryKind::Dram, device, TOP + addr, len)
            })
            .collect();
        let map = RangeMap::new(regions.clone());
        for (addr, len, device) in asks {
            let addr = TOP + addr;
            let covers = |d: &RegionDesc| {
                len > 0 && d.device == device && d.addr <= addr && addr + len <= d.addr + d.len
            };
            let naive = regions.iter().filter(|(_, d)| covers(d)).map(|(id, _)| *id).min();
            let found = map.find(MemoryKind::Dram, device, addr, len);
            prop_assert_eq!(found.map(|e| e.id), naive);
            if len > 0 && naive.is_none() {
                let excess = |d: &RegionDesc| {
                    d.addr.saturating_sub(addr) + (addr + len).saturating_sub(d.addr + d.len)
                };
                let least = regions
                    .iter()
                    .filter(|(_, d)| d.device == device && d.len > 0)
                    .map(|(_, d)| excess(d))
                    .min();
                let near = map.nearest(MemoryKind::Dram, device, addr, len);
                prop_assert_eq!(near.map(|n| n.before + n.past), least);
            }
        }
        let overlaps = |(n, a): (usize, &RegionDesc)| {
            regions.iter().enumerate().any(|(m, (_, b))| {
                n != m
                    && a.device == b.device
                    && a.addr.max(b.addr) < (a.addr + a.len).min(b.addr + b.len)
            })
        };
        let naive = (0..regions.len()).filter(|&n| overlaps((n, &regions[n].1))).count();
        prop_assert_eq!(map.overlapping(), naive);
    }
}
