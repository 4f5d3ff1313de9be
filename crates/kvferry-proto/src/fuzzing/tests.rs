use proptest::prelude::*;

use crate::blob::tests::any_blob;
use crate::stream::segments::tests::any_segments;
use crate::stream::{STREAM_HEADER, StreamSegment};

/// One change to a byte string.
#[derive(Debug, Clone)]
pub(super) enum Mutation {
    Set(prop::sample::Index, u8),
    Flip(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
    /// Copies a stretch to another place.
    Repeat(prop::sample::Index, prop::sample::Index, usize),
}

impl Mutation {
    pub(super) fn apply(&self, data: &mut Vec<u8>) {
        if data.is_empty() {
            return;
        }
        let len = data.len();
        match self {
            Self::Set(at, byte) => data[at.index(len)] = *byte,
            Self::Flip(at, bit) => data[at.index(len)] ^= 1 << (bit % 8),
            Self::Insert(at, bytes) => {
                let at = at.index(len);
                data.splice(at..at, bytes.iter().copied());
            }
            Self::Remove(at, count) => {
                let at = at.index(len);
                data.drain(at..(at + count).min(len));
            }
            Self::Repeat(from, to, count) => {
                let from = from.index(len);
                let piece = data[from..(from + count).min(len)].to_vec();
                let to = to.index(len);
                data.splice(to..to, piece);
            }
        }
    }
}

pub(super) fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<prop::sample::Index>;
    // Bytes at which lengths and varints turn.
    let byte = prop_oneof![any::<u8>(), prop::sample::select(vec![0, 1, 0x7f, 0x80, 0xff])];
    prop_oneof![
        (at(), byte).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (at(), any::<u8>()).prop_map(|(at, bit)| Mutation::Flip(at, bit)),
        (at(), prop::collection::vec(any::<u8>(), 1..8)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (at(), 1_usize..40).prop_map(|(at, count)| Mutation::Remove(at, count)),
        (at(), at(), 1_usize..80).prop_map(|(from, to, count)| Mutation::Repeat(from, to, count)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn arbitrary_bytes_as_a_blob(data in prop::collection::vec(any::<u8>(), 0..300)) {
        super::blob(&data);
    }

    #[test]
    fn mutated_blobs(blob in any_blob(), mutations in prop::collection::vec(mutation(), 0..5)) {
        let bytes = blob.encode().unwrap();
        // Whole, and without the header, which the target then puts in order.
        for start in [0, 30] {
            let mut data = bytes[start..].to_vec();
            for mutation in &mutations {
                mutation.apply(&mut data);
            }
            super::blob(&data);
        }
    }

    #[test]
    fn mutated_requests(segments in any_segments(), mutations in prop::collection::vec(mutation(), 0..5)) {
        let mut data = vec![0; STREAM_HEADER];
        data[2..4].copy_from_slice(&(segments.len() as u16).to_le_bytes());
        StreamSegment::encode(&segments, &mut data);
        for mutation in &mutations {
            mutation.apply(&mut data);
        }
        super::stream(&data);
    }
}
