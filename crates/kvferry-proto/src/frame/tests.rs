use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn encode(frame: &Frame) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode_into(&mut out).unwrap();
    out
}

fn read_all(bytes: &[u8]) -> Result<Vec<Frame>, FrameError> {
    let mut reader = FrameReader::new();
    let mut frames = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let taken = reader.push(rest);
        rest = &rest[taken..];
        while let Some(frame) = reader.pop()? {
            frames.push(frame);
        }
        assert!(taken > 0, "no progress");
    }
    Ok(frames)
}

/// One of each type, with fixed contents.
fn samples() -> Vec<Frame> {
    vec![
        Frame::Hello(Hello {
            version: 1,
            name: "prefill-0".into(),
            incarnation: Incarnation([1; 16]),
            target: Incarnation([2; 16]),
            nonce: [3; 32],
            token_in_force: true,
        }),
        Frame::Challenge(Challenge {
            name: "décode".into(),
            incarnation: Incarnation([2; 16]),
            nonce: [4; 32],
            proof: [5; 32],
            token_in_force: false,
        }),
        Frame::Proof([6; 32]),
        Frame::Welcome(Resume { last_seq: 300, received: 70_000, consumed: 128, window: 64 << 20 }),
        Frame::Refuse(Refusal::Unauthorized { token_in_force: true }),
        Frame::Refuse(Refusal::WrongIncarnation { found: Incarnation([9; 16]) }),
        Frame::Refuse(Refusal::Version { oldest: 1, newest: 200 }),
        Frame::Refuse(Refusal::Busy),
        Frame::Refuse(Refusal::Dead),
        Frame::Refuse(Refusal::Other { code: 999 }),
        Frame::Live(LiveRegions::new(200, vec![RegionId(3), RegionId(150)])),
        Frame::Transport { bytes: vec![0xde, 0xad], fds: 2 },
        Frame::Ready,
        Frame::Notify { seq: 129, payload: b"done".to_vec() },
        Frame::NotifyAck { seq: 129 },
        Frame::Credit { consumed: 68 },
        Frame::Revoke {
            epoch: 7,
            scope: RevokeScope { regions: vec![RegionId(1), RegionId(300)], ops: vec![u64::MAX], all: true },
        },
        Frame::RevokeAck { epoch: 7 },
        Frame::Ping { token: 1 },
        Frame::Pong { token: 1 },
        Frame::Bye { reason: ByeReason::NoPath, text: "ptrace".into() },
        Frame::Bye { reason: ByeReason::Other(77), text: String::new() },
    ]
}

#[test]
fn encoding_is_what_earlier_releases_wrote() {
    let golden = include_str!("golden.txt");
    let now: String = samples()
        .iter()
        .map(|frame| {
            let hex: String = encode(frame).iter().map(|b| format!("{b:02x}")).collect();
            format!("{} {hex}\n", frame.name())
        })
        .collect();
    assert_eq!(now, golden);
}

#[test]
fn golden_bytes_decode() {
    let decoded: Vec<Frame> = include_str!("golden.txt")
        .lines()
        .flat_map(|line| {
            let hex = line.split_once(' ').unwrap().1;
            let bytes: Vec<u8> = (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                .collect();
            read_all(&bytes).unwrap()
        })
        .collect();
    assert_eq!(decoded, samples());
}

#[test]
fn each_truncated_body_is_malformed_or_shorter() {
    for frame in samples() {
        let whole = encode(&frame);
        for len in 0..whole.len() - FRAME_HEADER {
            let mut cut = whole[..FRAME_HEADER + len].to_vec();
            cut[..4].copy_from_slice(&(len as u32).to_le_bytes());
            match read_all(&cut) {
                Err(FrameError::Malformed { frame: name }) => assert_eq!(name, frame.name()),
                other => panic!("{} cut to {len}: {other:?}", frame.name()),
            }
        }
    }
}

#[test]
fn later_versions_may_append_to_handshake_and_goodbye_only() {
    for frame in samples() {
        let mut longer = encode(&frame);
        longer.push(0x5a);
        let len = (longer.len() - FRAME_HEADER) as u32;
        longer[..4].copy_from_slice(&len.to_le_bytes());
        let open =
            matches!(frame, Frame::Hello(_) | Frame::Challenge(_) | Frame::Refuse(_) | Frame::Bye { .. });
        match read_all(&longer) {
            Ok(frames) => assert!(open && frames == [frame]),
            Err(error) => assert!(!open, "{}: {error}", frame.name()),
        }
    }
}

fn header(len: u32, kind: u8, fds: u8, reserved: u16) -> Vec<u8> {
    let mut bytes = len.to_le_bytes().to_vec();
    bytes.extend_from_slice(&[kind, fds]);
    bytes.extend_from_slice(&reserved.to_le_bytes());
    bytes
}

#[test]
fn header_is_refused_before_the_body_comes() {
    let too_large = MAX_FRAME_BODY + 1;
    for (bytes, error) in [
        (header(too_large as u32, 7, 0, 0), FrameError::TooLarge { len: too_large }),
        (header(u32::MAX, 0x90, 0, 0), FrameError::TooLarge { len: u32::MAX as usize }),
        (header(9, 0, 0, 0), FrameError::Unknown { kind: 0 }),
        (header(9, 17, 0, 0), FrameError::Unknown { kind: 17 }),
        (header(9, 7, 9, 0), FrameError::Fds { kind: 7, fds: 9 }),
        (header(9, 9, 1, 0), FrameError::Fds { kind: 9, fds: 1 }),
        (header(9, 0xff, 1, 0), FrameError::Fds { kind: 0xff, fds: 1 }),
        (header(9, 7, 0, 256), FrameError::Reserved { value: 256 }),
    ] {
        assert_eq!(read_all(&bytes), Err(error));
    }
}

#[test]
fn unknown_optional_frames_are_skipped() {
    let mut bytes = encode(&Frame::Ping { token: 1 });
    bytes.extend(header(3, 0x91, 0, 0));
    bytes.extend([1, 2, 3]);
    bytes.extend(encode(&Frame::Ping { token: 2 }));
    assert_eq!(
        read_all(&bytes).unwrap(),
        [Frame::Ping { token: 1 }, Frame::Skipped { kind: 0x91 }, Frame::Ping { token: 2 }]
    );
}

#[test]
fn errors_stick_and_free_the_buffer() {
    let mut reader = FrameReader::new();
    reader.push(&header(1, 0x11, 0, 0));
    let error = reader.pop().unwrap_err();
    assert_eq!(reader.push(&encode(&Frame::Ready)), FRAME_HEADER);
    assert_eq!(reader.pop(), Err(error));
    assert_eq!(reader.held(), 0);
}

#[test]
fn reader_holds_one_frame_at_most() {
    let largest = Frame::Notify { seq: u64::MAX, payload: vec![7; crate::notify::MAX_NOTIFICATION] };
    let mut stream = Vec::new();
    for _ in 0..5 {
        largest.encode_into(&mut stream).unwrap();
    }
    let mut reader = FrameReader::new();
    let (mut at, mut frames) = (0, 0);
    while at < stream.len() {
        at += reader.push(&stream[at..]);
        assert!(reader.held() <= FRAME_HEADER + MAX_FRAME_BODY);
        while let Some(frame) = reader.pop().unwrap() {
            assert!(frame == largest);
            frames += 1;
        }
    }
    assert_eq!(frames, 5);
    assert!(reader.bytes.capacity() <= 64 << 10, "idle readers are small");
}

#[test]
fn limits_hold_when_encoding() {
    let ids = vec![RegionId(u64::MAX - 1); MAX_FRAME_IDS];
    let largest = Frame::Revoke { epoch: u64::MAX, scope: RevokeScope::regions(ids.clone()) };
    assert!(encode(&largest).len() <= FRAME_HEADER + MAX_FRAME_BODY);

    let mut scope = RevokeScope::regions(ids);
    scope.ops.push(1);
    let oversize = [
        Frame::Revoke { epoch: 1, scope },
        Frame::Notify { seq: 1, payload: vec![0; crate::notify::MAX_NOTIFICATION + 1] },
        Frame::Transport { bytes: vec![0; MAX_TRANSPORT_MESSAGE + 1], fds: 0 },
        Frame::Bye { reason: ByeReason::Closed, text: "x".repeat(MAX_BYE_TEXT + 1) },
        Frame::Transport { bytes: Vec::new(), fds: MAX_FRAME_FDS + 1 },
        Frame::Live(LiveRegions { from: 0, below: 9, ids: vec![RegionId(5), RegionId(4)] }),
    ];
    for frame in oversize {
        let mut out = vec![1, 2, 3];
        assert!(frame.encode_into(&mut out).is_err(), "{}", frame.name());
        assert_eq!(out, [1, 2, 3]);
    }
}

#[test]
fn claimed_counts_allocate_nothing() {
    // 2^60 regions in twelve bytes, and more numbers than a frame may hold.
    let mut body = vec![1];
    body.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    let mut bytes = header(body.len() as u32, 12, 0, 0);
    bytes.extend(&body);
    assert_eq!(read_all(&bytes), Err(FrameError::Malformed { frame: "Revoke" }));

    let count = MAX_FRAME_IDS as u32 + 1;
    let mut body = vec![1, count as u8 | 0x80, (count >> 7) as u8 | 0x80, (count >> 14) as u8];
    body.resize(body.len() + count as usize + 2, 0);
    let mut bytes = header(body.len() as u32, 12, 0, 0);
    bytes.extend(&body);
    assert_eq!(read_all(&bytes), Err(FrameError::Malformed { frame: "Revoke" }));
}

#[test]
fn live_regions_judge_the_same_numbers_in_pieces() {
    let ids: Vec<RegionId> = (0..200_000).map(|n| RegionId(n * 3 + 1)).collect();
    let whole = LiveRegions::new(700_000, ids);
    let pieces = whole.clone().split();
    assert_eq!(pieces.len(), 4);
    for piece in &pieces {
        assert_eq!(read_all(&encode(&Frame::Live(piece.clone()))).unwrap().len(), 1);
    }
    for id in (0..710_000).step_by(7).chain([599_998, 599_999, 699_999, 700_000]) {
        let id = RegionId(id);
        let excluded = pieces.iter().any(|piece| piece.excludes(id));
        assert_eq!(excluded, whole.excludes(id), "{id}");
        assert_eq!(excluded, id.0 < 700_000 && (id.0 % 3 != 1 || id.0 >= 600_000));
    }
}

pub(crate) fn frames() -> impl Strategy<Value = Frame> {
    let ids = || vec(any::<u64>(), 0..20);
    prop_oneof![
        prop::sample::select(samples()),
        (any::<u64>(), vec(any::<u8>(), 0..3000)).prop_map(|(seq, payload)| Frame::Notify { seq, payload }),
        (vec(any::<u8>(), 0..3000), 0..=MAX_FRAME_FDS)
            .prop_map(|(bytes, fds)| Frame::Transport { bytes, fds }),
        (any::<u64>(), ids(), ids(), any::<bool>()).prop_map(|(epoch, regions, ops, all)| {
            let regions = regions.into_iter().map(RegionId).collect();
            let scope = RevokeScope { regions, ops, all };
            Frame::Revoke { epoch, scope }
        }),
        (any::<u64>(), ids()).prop_map(|(below, ids)| {
            Frame::Live(LiveRegions::new(below, ids.into_iter().map(RegionId).collect()))
        }),
        (any::<u16>(), "\\PC{0,100}")
            .prop_map(|(code, text)| Frame::Bye { reason: ByeReason::from_code(code), text }),
    ]
}

proptest! {
    #[test]
    fn frames_come_back_in_any_pieces(
        sent in vec(frames(), 0..12),
        cuts in vec(1_usize..700, 1..50),
    ) {
        let mut stream = Vec::new();
        for frame in &sent {
            frame.encode_into(&mut stream).unwrap();
        }
        let mut reader = FrameReader::new();
        let mut received = Vec::new();
        let (mut rest, mut cuts) = (&stream[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let piece = &rest[..rest.len().min(*cuts.next().unwrap())];
            prop_assert_eq!(reader.push(piece), piece.len());
            rest = &rest[piece.len()..];
            while let Some(frame) = reader.pop().unwrap() {
                received.push(frame);
            }
        }
        prop_assert_eq!(received, sent);
        prop_assert_eq!(reader.held(), 0);
    }
}
