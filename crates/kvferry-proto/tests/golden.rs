//! The blob that version 1 of the format wrote must be read for ever, and written the same.

use kvferry_proto::{
    BLOB_VERSION, Blob, Capability, Endpoint, Host, Identity, Incarnation, MemoryKind, Reach, RegionDesc,
    RegionId, RegionKey, RemoteRegion, Secret,
};

const V1: &[u8] = include_bytes!("golden/blob-v1.bin");

fn region(id: u64, addr: u64, len: u64, kind: MemoryKind, device: u32, reach: Vec<Reach>) -> RemoteRegion {
    let key = RegionKey(0x0123_4567_89ab_cdef ^ id);
    RemoteRegion { id: RegionId(id), key, desc: RegionDesc { addr, len, kind, device }, reach }
}

/// One of everything.
fn v1() -> Blob {
    Blob {
        identity: Identity {
            name: "décode-7".into(),
            incarnation: Incarnation(*b"\x00\x01\x02\x03\x04\x05\x06\x07\xf8\xf9\xfa\xfb\xfc\xfd\xfe\xff"),
        },
        generation: 300,
        partial: false,
        host: Some(Host {
            boot_id: [0x42; 16],
            pid_namespace: 4_026_531_836,
            net_namespace: 4_026_531_840,
            user_namespace: 4_026_531_837,
            uid: 65_534,
        }),
        endpoints: vec![
            Endpoint::AbstractUnix(b"kvferry-\xc3\x28".to_vec()),
            Endpoint::PathUnix(b"/run/kvferry/decode-7.sock".to_vec()),
            Endpoint::Tcp { addr: "fe80::1".into(), port: 7001 },
            Endpoint::Other { kind: 200, data: Box::from(*b"later") },
        ],
        capability: Some(Capability { secret: Secret(*b"0123456789abcdefghijklmnopqrstuv"), token: true }),
        regions: vec![
            region(5, 0x7f00_0000_1000, 1 << 30, MemoryKind::Dram, 0, vec![Reach::Cma { stable: false }]),
            region(
                2,
                0xffff_8000_0000_0000,
                4096,
                MemoryKind::Dram,
                0,
                vec![Reach::Map { memfd: 1, offset: 1 << 33 }, Reach::Cma { stable: true }],
            ),
            region(1 << 40, 0x1000, 17, MemoryKind::Vram, 3, vec![]),
            region(7, 0, u64::MAX, MemoryKind::File, 9, vec![]),
            region(8, 1, 1, MemoryKind::Block, u32::MAX, vec![]),
            region(
                9,
                2,
                3,
                MemoryKind::Object,
                0,
                vec![Reach::Other { mechanism: 200, key: Box::from(*b"rkey") }],
            ),
        ],
    }
}

#[test]
fn version_1_is_read() {
    assert_eq!(Blob::decode(V1), Ok(v1()));
}

#[test]
fn version_1_is_written_the_same() {
    assert_eq!(BLOB_VERSION, 1, "a new version needs a golden blob of its own");
    assert_eq!(v1().encode().as_deref(), Ok(V1));
}
