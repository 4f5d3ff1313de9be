use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::fuzzing::tests::mutation;

/// Streams that are almost right: real frames, then changed a little.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let stream = vec(crate::frame::tests::frames(), 0..6).prop_map(|frames| {
        let mut bytes = vec![3, 1];
        frames.iter().for_each(|frame| frame.encode_into(&mut bytes).unwrap());
        bytes
    });
    (stream, vec(mutation(), 0..4)).prop_map(|(mut bytes, mutations)| {
        mutations.iter().for_each(|mutation| mutation.apply(&mut bytes));
        bytes
    })
}

/// What a script may do: serve both sides for a while, or anything.
fn scripts() -> impl Strategy<Value = Vec<u8>> {
    let serve = Just(vec![1_u8, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0]);
    let inject = (0_u8..2, 0_u8..18, vec(any::<u8>(), 0..6)).prop_map(|(side, kind, body)| {
        let mut bytes = vec![6 | side, kind, body.len() as u8];
        bytes.extend(body);
        bytes
    });
    let notify = (0_u8..60, any::<u8>()).prop_map(|(len, token)| vec![8, 5, len, token]);
    let piece = prop_oneof![3 => serve, 2 => inject, 2 => notify, 3 => vec(any::<u8>(), 1..8)];
    vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn arbitrary_bytes_as_frames(data in vec(any::<u8>(), 0..300)) {
        frames(&data);
    }

    #[test]
    fn mutated_frames(data in streams()) {
        frames(&data);
    }

    #[test]
    fn arbitrary_scripts(data in vec(any::<u8>(), 0..200)) {
        session(&data);
    }

    #[test]
    fn likely_scripts(data in scripts()) {
        session(&data);
    }
}

#[test]
fn serving_both_sides_brings_the_link_up() {
    let mut pair = Pair::new();
    for step in 0..12 {
        pair.carry(1 - step % 2);
    }
    assert!(pair.sessions.iter().all(Session::is_up));
}
