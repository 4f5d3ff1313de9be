use super::*;

fn desc(addr: u64, len: u64) -> RegionDesc {
    RegionDesc { addr, len, kind: MemoryKind::Dram, device: 0 }
}

#[test]
fn sizes_read_like_sizes() {
    for (bytes, text) in [
        (0, "0 B"),
        (17, "17 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1025, "1.0 KiB"),
        (65536, "64 KiB"),
        (4197, "4.1 KiB"),
        (1_288_490_189, "1.2 GiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        ((1 << 20) - 1024, "1023 KiB"),
        (1 << 63, "8 EiB"),
        (u64::MAX, "16.0 EiB"),
    ] {
        assert_eq!(human_size(bytes), text, "{bytes}");
    }
}

#[test]
fn ends_are_checked() {
    assert_eq!(desc(1 << 63, 5).end(), Some((1 << 63) + 5));
    assert_eq!(desc(1 << 63, 5).check(), Ok(()));
    assert_eq!(desc(u64::MAX, 1).end(), None);
    assert_eq!(desc(u64::MAX - 1, 1).check(), Ok(()));
    assert!(matches!(desc(u64::MAX, 1).check(), Err(RegionError::Wrap { .. })));
    assert!(matches!(desc(7, 0).check(), Err(RegionError::ZeroLength { .. })));
}

#[test]
fn texts() {
    assert_eq!(desc(0x7f00, 4096).to_string(), "0x7f00, 4 KiB, DRAM");
    let vram = RegionDesc { kind: MemoryKind::Vram, device: 3, ..desc(0x10, 1) };
    assert_eq!(vram.to_string(), "0x10, 1 B, VRAM device 3");
    let incarnation = Incarnation(std::array::from_fn(|i| i as u8 + 0xa0));
    assert_eq!(incarnation.to_string(), "a0a1a2a3");
    assert_eq!(format!("{incarnation:?}"), "Incarnation(a0a1a2a3a4a5a6a7a8a9aaabacadaeaf)");
    assert_eq!(format!("{:?}", RegionKey(77)), "RegionKey(..)");
}
