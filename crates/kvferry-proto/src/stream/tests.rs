use proptest::prelude::*;

use super::*;

fn header() -> impl Strategy<Value = StreamHeader> {
    let kind = prop_oneof![
        Just((StreamKind::Write, MAX_STREAM_SEGMENTS, MAX_STREAM_PAYLOAD)),
        Just((StreamKind::Read, MAX_STREAM_SEGMENTS, 0)),
        Just((StreamKind::Data, 0, MAX_STREAM_PAYLOAD)),
        Just((StreamKind::Ack, 0, 0)),
        Just((StreamKind::Fail, 0, 1024)),
        Just((StreamKind::Drop, 0, 0)),
    ];
    kind.prop_flat_map(|(kind, segments, payload)| {
        let names = STREAM_GROUP as u32..=MAX_STREAM_NAMES;
        let fields =
            (any::<u8>(), 0..=segments, names, 0..=payload, any::<u64>(), any::<u32>(), any::<u32>());
        fields.prop_map(move |(code, segments, names, payload, op, attempt, chunk)| StreamHeader {
            kind,
            code,
            segments,
            names: if segments > 0 { names } else { 0 },
            payload,
            op,
            attempt,
            chunk,
        })
    })
}

proptest! {
    #[test]
    fn headers_round_trip(header in header()) {
        prop_assert_eq!(StreamHeader::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn a_flipped_bit_is_found(header in header(), bit in 0..STREAM_HEADER * 8) {
        let mut bytes = header.encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(StreamHeader::decode(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_a_header_or_an_error(bytes in any::<[u8; STREAM_HEADER]>()) {
        if let Ok(header) = StreamHeader::decode(&bytes) {
            prop_assert!(header.payload <= MAX_STREAM_PAYLOAD && header.segments <= MAX_STREAM_SEGMENTS);
        }
    }
}

#[test]
fn each_kind_has_its_bounds() {
    let header = StreamHeader {
        kind: StreamKind::Write,
        code: 0,
        segments: 2,
        names: 36,
        payload: 1,
        op: 1,
        attempt: 1,
        chunk: 1,
    };
    assert_eq!(StreamHeader::decode(&header.encode()), Ok(header));
    let (least, most) = (STREAM_GROUP as u32, MAX_STREAM_NAMES);
    for broken in [
        StreamHeader { kind: StreamKind::Ack, payload: 0, ..header },
        StreamHeader { kind: StreamKind::Ack, payload: 0, segments: 0, ..header },
        StreamHeader { kind: StreamKind::Read, ..header },
        StreamHeader { segments: MAX_STREAM_SEGMENTS + 1, names: most, ..header },
        StreamHeader { payload: MAX_STREAM_PAYLOAD + 1, ..header },
        StreamHeader { names: least - 1, ..header },
        StreamHeader { names: most + 1, ..header },
        StreamHeader { names: 0, ..header },
    ] {
        let decoded = StreamHeader::decode(&broken.encode());
        assert!(matches!(decoded, Err(StreamError::TooLarge { .. })), "{broken:?}: {decoded:?}");
    }
}

#[test]
fn a_hello_needs_the_key_of_its_channel() {
    let hello = StreamHello { link: [7; 16], stream: 1, streams: 2 };
    let bytes = hello.encode(&ChannelKey([1; 32]));
    assert!(StreamHello::is_one(&bytes));
    let read = StreamHello::decode(&bytes).unwrap();
    assert_eq!(read, hello);
    assert!(read.verify(&bytes, &ChannelKey([1; 32])));
    assert!(!read.verify(&bytes, &ChannelKey([2; 32])));
    let mut moved = bytes;
    moved[24] = 0;
    let moved_hello = StreamHello::decode(&moved).unwrap();
    assert!(!moved_hello.verify(&moved, &ChannelKey([1; 32])), "the proof covers which stream it is");
}

#[test]
fn no_control_frame_begins_like_a_stream() {
    let len = u32::from_le_bytes(MAGIC[..4].try_into().unwrap());
    assert!(len as usize > crate::frame::MAX_FRAME_BODY);
}
