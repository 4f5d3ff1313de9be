use super::*;

#[test]
fn any_piece_is_part_of_the_whole() {
    let pattern = Pattern::new(7);
    let mut whole = vec![0; 200];
    pattern.fill(0, &mut whole);
    for start in 0..24 {
        for end in start..100 {
            let mut piece = vec![0; end - start];
            pattern.fill(start as u64, &mut piece);
            assert_eq!(piece, whole[start..end]);
            assert_eq!(pattern.difference(start as u64, &piece), None);
        }
    }
}

#[test]
fn a_flipped_bit_is_found_where_it_is() {
    let pattern = Pattern::new(1);
    let mut bytes = vec![0; 77];
    for offset in [0, 3, 8] {
        for at in 0..bytes.len() {
            pattern.fill(offset, &mut bytes);
            bytes[at] ^= 1;
            let found = pattern.difference(offset, &bytes).expect("a difference");
            assert_eq!(found.offset, offset + at as u64);
            assert_eq!(found.found, found.expected ^ 1);
        }
    }
}

#[test]
fn another_seed_and_another_place_differ_in_every_word() {
    let mut bytes = vec![0; 8000];
    Pattern::new(1).fill(0, &mut bytes);
    assert_eq!(Pattern::new(1).matching(0, &bytes), 8000);
    assert_eq!(Pattern::new(2).matching(0, &bytes), 0);
    assert_eq!(Pattern::POISON.matching(0, &bytes), 0);
    assert_eq!(Pattern::new(1).matching(4096, &bytes), 0);
}
