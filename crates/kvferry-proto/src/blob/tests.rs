use proptest::prelude::*;

use super::*;
use crate::kind::MemoryKind;
use crate::region::RegionError;

pub(crate) fn sample() -> Blob {
    let region = |id: u64, addr, len, kind, device, reach| RemoteRegion {
        id: RegionId(id),
        key: RegionKey(id.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        desc: RegionDesc { addr, len, kind, device },
        reach,
    };
    Blob {
        identity: Identity { name: "prefill-0".into(), incarnation: Incarnation([7; 16]) },
        generation: 3,
        partial: false,
        host: Some(Host {
            boot_id: [1; 16],
            pid_namespace: 4_026_531_836,
            net_namespace: 4_026_531_840,
            user_namespace: 4_026_531_837,
            uid: 1000,
        }),
        endpoints: vec![
            Endpoint::AbstractUnix(b"kvferry-0123".to_vec()),
            Endpoint::Tcp { addr: "10.0.0.1".into(), port: 7001 },
        ],
        capability: Some(Capability { secret: Secret([0xab; 32]), token: true }),
        regions: vec![
            region(1, 0x7f00_0000_0000, 1 << 30, MemoryKind::Dram, 0, vec![Reach::Cma { stable: false }]),
            region(
                2,
                0xffff_8000_0000_0000,
                4096,
                MemoryKind::Dram,
                0,
                vec![Reach::Map { memfd: 1, offset: 8192 }, Reach::Cma { stable: true }],
            ),
            region(9, 0x1000, 17, MemoryKind::Vram, 3, vec![]),
        ],
    }
}

/// The sections of a blob one by one, each with its header.
fn sections(bytes: &[u8]) -> Vec<Vec<u8>> {
    Sections::new(bytes, HEADER)
        .map(|section| {
            let section = section.unwrap();
            bytes[section.at - 6..section.at + section.payload.len()].to_vec()
        })
        .collect()
}

fn section(id: u16, payload: &[u8]) -> Vec<u8> {
    [&id.to_le_bytes()[..], &(payload.len() as u32).to_le_bytes(), payload].concat()
}

fn decode_sections(sections: &[Vec<u8>]) -> Result<Blob, BlobError> {
    Blob::decode(&sealed(&sections.concat()))
}

#[test]
fn a_blob_survives_the_wire() {
    let blob = sample();
    assert_eq!(Blob::decode(&blob.encode().unwrap()), Ok(blob.clone()));
    let partial = Blob { partial: true, endpoints: vec![], capability: None, host: None, ..blob };
    assert_eq!(Blob::decode(&partial.encode().unwrap()), Ok(partial));
}

#[test]
fn damage_is_found() {
    let bytes = sample().encode().unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let error = Blob::decode(&damaged).unwrap_err();
        match at {
            0..8 | 10..14 => assert!(matches!(error, BlobError::Malformed { .. }), "{at}: {error}"),
            8..10 => assert!(matches!(error, BlobError::Version { .. }), "{at}: {error}"),
            _ => assert_eq!(error, BlobError::Checksum, "{at}"),
        }
        assert!(Blob::decode(&bytes[..at]).is_err());
    }
    let longer = [&bytes[..], &[0]].concat();
    let at = bytes.len();
    assert_eq!(Blob::decode(&longer), Err(BlobError::Malformed { at, what: "bytes follow the end" }));
}

#[test]
fn another_version_is_named() {
    let mut bytes = sample().encode().unwrap();
    bytes[8] = 2;
    let error = Blob::decode(&bytes).unwrap_err();
    assert_eq!(error, BlobError::Version { got: 2, supported: 1 });
    assert_eq!(error.to_string(), "format version 2, this version reads 1");
}

#[test]
fn unknown_sections_are_passed_over_unless_critical() {
    let mut parts = sections(&sample().encode().unwrap());
    parts.insert(1, section(0x1234, b"from a later version"));
    parts.push(section(0x1234, b"even twice"));
    assert_eq!(decode_sections(&parts), Ok(sample()));
    parts.push(section(0x8000 | 0x1234, b""));
    let error = decode_sections(&parts).unwrap_err();
    assert_eq!(error, BlobError::CriticalSection { id: 0x1234, name: None });
    let error = decode_sections(&[section(0x8006, b"")]).unwrap_err();
    assert_eq!(error.to_string(), "section 6 (encryption) must be understood, and this version does not");
}

#[test]
fn sections_must_be_there_once() {
    let parts = sections(&sample().encode().unwrap());
    let names = ["identity", "host", "endpoints", "capability", "regions"];
    assert_eq!(parts.len(), names.len());
    for (index, name) in names.into_iter().enumerate() {
        let mut twice = parts.clone();
        twice.push(parts[index].clone());
        assert_eq!(decode_sections(&twice), Err(BlobError::DuplicateSection { name }));
        let mut without = parts.clone();
        without.remove(index);
        match (name, decode_sections(&without)) {
            ("host", blob) => assert_eq!(blob, Ok(Blob { host: None, ..sample() })),
            ("regions", blob) => assert_eq!(blob, Ok(Blob { regions: vec![], ..sample() })),
            (name, blob) => assert_eq!(blob, Err(BlobError::MissingSection { name })),
        }
    }
}

#[test]
fn contents_must_fill_their_section() {
    let parts = sections(&sample().encode().unwrap());
    for index in 0..parts.len() {
        let (id, payload) = (u16::from_le_bytes([parts[index][0], parts[index][1]]), &parts[index][6..]);
        let longer = [payload, &[0]].concat();
        for payload in [&longer, &payload[..payload.len() - 1]] {
            let mut changed = parts.clone();
            changed[index] = section(id, payload);
            let error = decode_sections(&changed).unwrap_err();
            assert!(matches!(error, BlobError::Malformed { .. }), "{index}: {error}");
        }
    }
}

/// Both ways must refuse it for the same reason.
fn refused(blob: &Blob, sections_of_it: Vec<u8>) -> BlobError {
    let written = blob.encode().unwrap_err();
    assert_eq!(Blob::decode(&sealed(&sections_of_it)).unwrap_err(), written);
    written
}

fn raw_identity(name: &str) -> Vec<u8> {
    let incarnation = Incarnation([7; 16]);
    section(
        IDENTITY,
        &postcard::to_stdvec(&IdentityWire { name, incarnation, generation: 3, partial: true }).unwrap(),
    )
}

fn raw_regions(regions: &[RemoteRegion]) -> Vec<u8> {
    let mut out = postcard::to_stdvec(&(regions.len() as u32)).unwrap();
    for region in regions {
        put_region(&mut out, region).unwrap();
    }
    [raw_identity("prefill-0"), section(REGIONS, &out)].concat()
}

#[test]
fn names_and_regions_are_checked() {
    let partial = |regions| Blob { partial: true, regions, ..sample() };
    for name in [String::new(), "x".repeat(257)] {
        let mut blob = partial(vec![]);
        blob.identity.name.clone_from(&name);
        assert_eq!(refused(&blob, raw_identity(&name)), BlobError::Name { len: name.len() });
    }
    let regions = sample().regions;
    let with = |change: &dyn Fn(&mut RemoteRegion)| {
        let mut regions = regions.clone();
        change(&mut regions[1]);
        refused(&partial(regions.clone()), raw_regions(&regions))
    };
    let error = with(&|region| region.desc.len = 0);
    assert!(matches!(error, BlobError::Region { index: 1, source: RegionError::ZeroLength { .. }, .. }));
    let error = with(&|region| region.desc.len = 1 << 63);
    assert!(matches!(error, BlobError::Region { index: 1, source: RegionError::Wrap { .. }, .. }));
    assert_eq!(with(&|region| region.id = RegionId(9)), BlobError::DuplicateRegion { id: RegionId(9) });
    let error = with(&|region| region.reach = vec![Reach::Cma { stable: true }; MAX_REACH + 1]);
    assert!(matches!(error, BlobError::TooLarge { limit: MAX_REACH, .. }), "{error}");
    let error = with(&|region| {
        region.reach = vec![Reach::Other { mechanism: 9, key: vec![0; MAX_REACH_KEY + 1].into() }];
    });
    assert!(matches!(error, BlobError::TooLarge { limit: MAX_REACH_KEY, .. }), "{error}");
}

#[test]
fn an_unknown_kind_of_memory_is_malformed() {
    let mut bytes = raw_regions(&sample().regions[..1]);
    // Behind the key: address, length, kind, device.
    let kind_at = bytes.len() - 6;
    assert_eq!(bytes[kind_at..], [0, 0, 1, 1, 1, 0][..], "the sample's encoding is known");
    bytes[kind_at] = 99;
    let error = Blob::decode(&sealed(&bytes)).unwrap_err();
    assert!(matches!(error, BlobError::Malformed { what: "regions", .. }), "{error}");
}

#[test]
fn endpoints_are_checked() {
    let invalid = Blob { endpoints: vec![Endpoint::PathUnix(vec![])], ..sample() };
    assert_eq!(invalid.encode(), Err(BlobError::Endpoint { index: 0 }));
    let endpoint = sample().endpoints[0].clone();
    let many = Blob { partial: true, endpoints: vec![endpoint; MAX_ENDPOINTS + 1], ..sample() };
    let raw = section(ENDPOINTS, &postcard::to_stdvec(&many.endpoints).unwrap());
    let error = refused(&many, [raw_identity("prefill-0"), raw].concat());
    assert!(matches!(error, BlobError::TooLarge { what: "endpoints", .. }), "{error}");
}

#[test]
fn a_claimed_count_alone_allocates_nothing() {
    let claim = |count: u32| {
        let regions = section(REGIONS, &postcard::to_stdvec(&count).unwrap());
        Blob::decode(&sealed(&[raw_identity("a"), regions].concat())).unwrap_err()
    };
    assert!(matches!(claim(MAX_BLOB_REGIONS as u32), BlobError::Malformed { .. }));
    assert!(matches!(claim(MAX_BLOB_REGIONS as u32 + 1), BlobError::TooLarge { .. }));
}

#[test]
fn too_large_a_blob_is_refused_unread() {
    let error = Blob::decode(&vec![0; MAX_BLOB + 1]).unwrap_err();
    assert!(matches!(error, BlobError::TooLarge { what: "bytes", .. }), "{error}");
}

#[test]
fn secrets_are_not_printed() {
    let text = format!("{:?}", sample());
    assert!(text.contains("Secret(..)") && text.contains("RegionKey(..)"));
    assert!(!text.contains("171") && !text.to_lowercase().contains("abab"), "{text}");
}

#[test]
fn many_regions_stay_small() {
    let mut blob = sample();
    blob.regions = (0..10_000)
        .map(|n| RemoteRegion {
            id: RegionId(n),
            key: RegionKey(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            desc: RegionDesc {
                addr: 0x7f12_3456_7000 + (n << 20),
                len: 1 << 20,
                kind: MemoryKind::Dram,
                device: 0,
            },
            reach: vec![Reach::Map { memfd: 3, offset: n << 20 }, Reach::Cma { stable: true }],
        })
        .collect();
    let bytes = blob.encode().unwrap();
    assert!(bytes.len() < 40 * 10_000, "{}", bytes.len());
    assert_eq!(Blob::decode(&bytes), Ok(blob));
}

fn private(n: u64, addr: u64) -> RemoteRegion {
    let key = RegionKey(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let desc = RegionDesc { addr, len: 4096, kind: MemoryKind::Dram, device: 0 };
    RemoteRegion { id: RegionId(n), key, desc, reach: vec![Reach::Cma { stable: true }] }
}

#[test]
fn regions_of_a_kind_take_little_more_than_their_keys() {
    let mut blob = sample();
    let sizes = [4096, 8192, 3 << 20].map(|stride| {
        blob.regions = (1..=10_000).map(|n| private(n, 0x7f12_3456_7000 + n * stride)).collect();
        let bytes = blob.encode().unwrap();
        assert_eq!(Blob::decode(&bytes).as_ref(), Ok(&blob));
        bytes.len()
    });
    assert!(sizes[0] < 91_000 && sizes[1] < 111_000 && sizes[2] < 131_000, "{sizes:?}");
}

#[test]
fn packed_regions_are_checked_like_plain_ones() {
    let regions = |change: &dyn Fn(&mut Vec<RemoteRegion>)| {
        let mut regions: Vec<_> = (1..=40).map(|n| private(n, n << 12)).collect();
        change(&mut regions);
        let mut section = Vec::new();
        packed::put_regions(&mut section, &regions).unwrap();
        let sections = [raw_identity("a"), self::section(PACKED_REGIONS, &section)].concat();
        Blob::decode(&sealed(&sections)).unwrap_err()
    };
    let error = regions(&|regions| regions[7].desc.len = 0);
    assert!(matches!(error, BlobError::Region { index: 7, .. }), "{error}");
    let error = regions(&|regions| regions[9].id = RegionId(3));
    assert_eq!(error, BlobError::DuplicateRegion { id: RegionId(3) });
}

/// A region of a few bytes that repeats long keys would have us allocate much for little.
#[test]
fn long_keys_are_not_repeated_by_a_bit() {
    let long = Reach::Other { mechanism: 9, key: vec![7; MAX_REACH_KEY].into() };
    let regions: Vec<_> =
        (1..=40).map(|n| RemoteRegion { reach: vec![long.clone()], ..private(n, n << 12) }).collect();
    let mut section = Vec::new();
    packed::put_regions(&mut section, &regions).unwrap();
    assert!(section.len() > 40 * MAX_REACH_KEY);
    // One as it is, then one that repeats it all.
    let mut one = postcard::to_stdvec(&2_u32).unwrap();
    let mut single = Vec::new();
    packed::put_regions(&mut single, &regions[..1]).unwrap();
    one.extend_from_slice(&single[1..]);
    one.extend_from_slice(&[31, 0, 0, 0, 0, 0, 0, 0, 0]);
    let sections = [raw_identity("a"), self::section(PACKED_REGIONS, &one)].concat();
    let error = Blob::decode(&sealed(&sections)).unwrap_err();
    assert!(matches!(error, BlobError::Malformed { what: "regions", .. }), "{error}");
    // A short one may be repeated.
    let mut single = Vec::new();
    packed::put_regions(&mut single, &[private(1, 4096)]).unwrap();
    single[0] = 2;
    single.extend_from_slice(&[31, 0, 0, 0, 0, 0, 0, 0, 0]);
    let sections = [raw_identity("a"), self::section(PACKED_REGIONS, &single)].concat();
    let error = Blob::decode(&sealed(&sections));
    assert!(!matches!(error, Err(BlobError::Malformed { .. })), "{error:?}");
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 1..108).prop_map(Endpoint::AbstractUnix),
        prop::collection::vec(1_u8.., 1..108).prop_map(Endpoint::PathUnix),
        ("[a-z0-9.:]{1,20}", 1_u16..).prop_map(|(addr, port)| Endpoint::Tcp { addr, port }),
        (4_u8.., prop::collection::vec(any::<u8>(), 0..9))
            .prop_map(|(kind, data)| Endpoint::Other { kind, data: data.into() }),
    ]
}

fn reach() -> impl Strategy<Value = Reach> {
    prop_oneof![
        any::<bool>().prop_map(|stable| Reach::Cma { stable }),
        any::<(u64, u64)>().prop_map(|(memfd, offset)| Reach::Map { memfd, offset }),
        (3_u8.., prop::collection::vec(any::<u8>(), 0..9))
            .prop_map(|(mechanism, key)| Reach::Other { mechanism, key: key.into() }),
    ]
}

fn region() -> impl Strategy<Value = RemoteRegion> {
    let desc = (any::<u64>(), 1_u64.., prop::sample::select(&MemoryKind::ALL[..]), any::<u32>()).prop_map(
        |(addr, len, kind, device)| RegionDesc { addr: addr.min(u64::MAX - len), len, kind, device },
    );
    (any::<u64>(), any::<u64>(), desc, prop::collection::vec(reach(), 0..4)).prop_map(
        |(id, key, desc, reach)| RemoteRegion { id: RegionId(id), key: RegionKey(key), desc, reach },
    )
}

prop_compose! {
    pub(crate) fn any_blob()(
        name in "\\PC{1,64}",
        incarnation in any::<[u8; 16]>(),
        generation in any::<u64>(),
        partial in any::<bool>(),
        host in prop::option::of(any::<([u8; 16], u64, u64, u64, u32)>()),
        endpoints in prop::collection::vec(endpoint(), 0..5),
        secret in any::<([u8; 32], bool)>(),
        with_capability in any::<bool>(),
        mut regions in prop::collection::vec(region(), 0..9),
    ) -> Blob {
        regions.sort_by_key(|region| region.id);
        regions.dedup_by_key(|region| region.id);
        regions.reverse();
        Blob {
            identity: Identity { name, incarnation: Incarnation(incarnation) },
            generation,
            partial,
            host: host.map(|(boot_id, pid_namespace, net_namespace, user_namespace, uid)| {
                Host { boot_id, pid_namespace, net_namespace, user_namespace, uid }
            }),
            endpoints,
            capability: (with_capability || !partial)
                .then_some(Capability { secret: Secret(secret.0), token: secret.1 }),
            regions,
        }
    }
}

proptest! {
    #[test]
    fn many_regions_survive_the_wire(
        known in prop::collection::vec(region(), 1..4),
        picks in prop::collection::vec((0_usize..4, any::<u64>(), any::<bool>()), 32..80),
    ) {
        let mut blob = sample();
        let mut end = 0_u64;
        blob.regions.clear();
        for (n, (pick, key, beside)) in picks.into_iter().enumerate() {
            let mut region = known[pick % known.len()].clone();
            region.id = RegionId(n as u64 * (1 + u64::from(beside) * 5));
            region.key = RegionKey(key);
            if beside && end.checked_add(region.desc.len).is_some() {
                region.desc.addr = end;
            }
            end = region.desc.end().unwrap_or(0);
            blob.regions.push(region);
        }
        blob.regions.sort_by_key(|region| region.id);
        blob.regions.dedup_by_key(|region| region.id);
        let bytes = blob.encode().unwrap();
        prop_assert_eq!(Blob::decode(&bytes), Ok(blob));
    }

    #[test]
    fn every_valid_blob_survives_the_wire(blob in any_blob()) {
        let bytes = blob.encode().unwrap();
        prop_assert_eq!(Blob::decode(&bytes), Ok(blob));
    }
}
