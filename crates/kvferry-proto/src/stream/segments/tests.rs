use proptest::prelude::*;

use super::*;

fn segment(region: u64, offset: u64, len: u32) -> StreamSegment {
    StreamSegment { region: RegionId(region), key: RegionKey(!region), offset, len }
}

#[track_caller]
fn bytes_of(segments: &[StreamSegment]) -> usize {
    let mut bytes = Vec::new();
    StreamSegment::encode(segments, &mut bytes);
    let mut decoded = Vec::new();
    assert_eq!(StreamSegment::decode(&bytes, segments.len() as u16, &mut decoded), Ok(()));
    assert_eq!(decoded, segments);
    bytes.len()
}

/// A place that depends on `i` and nothing else, below `below`.
fn scattered(i: u64, below: u64) -> u64 {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % below
}

#[test]
fn what_a_frame_costs() {
    let head = STREAM_GROUP;
    // One block, wherever it is.
    assert_eq!(bytes_of(&[segment(7, u64::MAX - 8, 1)]), head);
    // Slices of 128 bytes all over 64 GiB: four bytes each.
    let slices: Vec<_> = (0..1022).map(|i| segment(1, scattered(i, 1 << 29) * 128, 128)).collect();
    assert_eq!(bytes_of(&slices), head + 4 * 1021);
    // Where neighbours have merged: six.
    let merged: Vec<_> =
        (0..1022).map(|i| segment(1, scattered(i, 1 << 29) * 128, 128 * (1 + i as u32 % 5))).collect();
    assert_eq!(bytes_of(&merged), head + 6 * 1021);
    // A row of a grid: nothing, however long it is.
    let row: Vec<_> = (0..1022).map(|i| segment(1, 4096 + 1024 * i, 128)).collect();
    assert_eq!(bytes_of(&row), head + 4 + 6);
    // Runs of 16 in a grid: six a run.
    let runs: Vec<_> =
        (0..1008).map(|i| segment(1, (scattered(i / 16, 1 << 20) * 16 + i % 16) * 1024, 128)).collect();
    assert_eq!(bytes_of(&runs), head + 4 + 6 * 63);
    // What no unit fits: the bytes of each.
    let odd: Vec<_> = (0..100).map(|i| segment(1, scattered(i, 1 << 50) | 1, 3 + i as u32)).collect();
    assert_eq!(bytes_of(&odd), head + 12 * 99);
    // Each in a region of its own: what each costs alone.
    let apart: Vec<_> = (0..u64::from(MAX_STREAM_SEGMENTS)).map(|i| segment(i, i, 1)).collect();
    assert_eq!(bytes_of(&apart), MAX_STREAM_NAMES as usize);
}

#[test]
fn what_is_announced_is_what_there_is() {
    let mut bytes = Vec::new();
    StreamSegment::encode(&[segment(1, 0, 8), segment(1, 24, 8), segment(2, 0, 8)], &mut bytes);
    let decode = |bytes: &[u8], count| {
        let mut out = Vec::new();
        let decoded = StreamSegment::decode(bytes, count, &mut out);
        assert!(out.len() <= usize::from(count));
        decoded
    };
    assert_eq!(decode(&bytes, 3), Ok(()));
    for count in [0, 2, 4, 1024, u16::MAX] {
        assert_eq!(decode(&bytes, count), Err(StreamError::Names), "{count}");
    }
    for len in 0..bytes.len() {
        assert_eq!(decode(&bytes[..len], 3), Err(StreamError::Names), "{len} bytes");
    }
    assert_eq!(decode(&[&bytes[..], &[0]].concat(), 3), Err(StreamError::Names));
}

#[test]
fn large_numbers_make_nothing_large() {
    let group = |count: u16, form: u8, shift: u8, rest: &[u8]| {
        let mut bytes = vec![0; 24];
        bytes.extend(count.to_le_bytes());
        bytes.extend([form, shift]);
        bytes.extend(u32::MAX.to_le_bytes());
        bytes.extend(rest);
        bytes
    };
    let run = |count: u16| [&[0; 8][..], &count.to_le_bytes()].concat();
    for (what, bytes) in [
        ("no segment", group(0, EVEN, 0, &[])),
        ("many segments of which nothing is told", group(u16::MAX, EVEN, 0, &[])),
        ("an unknown form", group(1, 4, 0, &[])),
        ("an unknown form with more", group(2, 77, 0, &[0; 12])),
        ("a unit that is too large", group(1, EVEN, 21, &[])),
        ("the largest unit there is", group(1, EVEN, 255, &[])),
        ("a long run", group(1, RUNS, 0, &run(u16::MAX))),
        ("a run more than was announced", group(1, RUNS, 0, &run(1025))),
        ("many runs", group(u16::MAX, RUNS, 0, &run(1))),
        ("a length beyond 32 bits", group(2, MIXED, 20, &[0xff; 6])),
    ] {
        for count in [1, 2, 1024, u16::MAX] {
            let mut out = Vec::new();
            assert_eq!(StreamSegment::decode(&bytes, count, &mut out), Err(StreamError::Names), "{what}");
            assert!(out.len() <= MAX_STREAM_SEGMENTS.into(), "{what}: {}", out.len());
        }
    }
}

pub(crate) fn any_segments() -> impl Strategy<Value = Vec<StreamSegment>> {
    // Places of many kinds: in rows, in units, anywhere.
    let offset = prop_oneof![
        (0_u64..64).prop_map(|i| i * 4096),
        (0_u64..1 << 40).prop_map(|i| i << 7),
        any::<u64>(),
        0_u64..16,
    ];
    let len = prop_oneof![Just(128_u32), (1_u32..40).prop_map(|i| i * 64), any::<u32>()];
    let one =
        (0_u64..3, offset, len.clone()).prop_map(|(region, offset, len)| vec![segment(region, offset, len)]);
    let run = (0_u64..3, any::<u64>(), 0_u64..1 << 34, len, 1_u64..40).prop_map(
        |(region, at, stride, len, count)| {
            (0..count).map(|i| segment(region, at.wrapping_add(i.wrapping_mul(stride)), len)).collect()
        },
    );
    prop::collection::vec(prop_oneof![one, run], 0..20).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn segments_round_trip(segments in any_segments()) {
        let cost = bytes_of(&segments);
        prop_assert!(cost <= segments.len() * STREAM_GROUP);
    }
}
