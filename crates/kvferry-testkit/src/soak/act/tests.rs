use std::collections::BTreeSet;

use super::*;

const MAIN: u64 = 32 << 20;
const SIDE: u64 = 16 << 20;

#[test]
fn a_round_follows_from_seed_and_number() {
    for round in 0..50 {
        let draft = |seed| format!("{:?}", Draft::new(seed, round, MAIN, SIDE));
        assert_eq!(draft(7), draft(7));
        assert_ne!(draft(7), draft(8));
    }
}

#[test]
fn blocks_are_inside_and_go_to_places_of_their_own() {
    for round in 0..200 {
        let draft = Draft::new(1, round, MAIN, SIDE);
        assert_eq!(draft.transfers.len(), draft.notify.len());
        let (all, beside) = ((MAIN / draft.block) as u32, (SIDE / draft.block) as u32);
        let main: BTreeSet<u32> = draft.transfers[0].iter().map(|(_, to)| *to).collect();
        assert!(main.len() == draft.transfers[0].len() && main.len() < all as usize, "round {round}");
        let others: Vec<(u32, u32)> = draft.transfers[1..].concat();
        let places: BTreeSet<u32> = others.iter().map(|(_, to)| *to).collect();
        assert_eq!(places.len(), others.len(), "round {round}");
        assert!(draft.transfers[0].iter().all(|(from, to)| *from < all && *to < all), "round {round}");
        assert!(others.iter().all(|(from, to)| *from < all && *to < beside), "round {round}");
        assert!(draft.transfers.iter().all(|pairs| !pairs.is_empty()), "round {round}");
        assert!(draft.mark < draft.block && draft.mark.is_multiple_of(8), "round {round}");
    }
}

#[test]
fn every_act_comes_on_every_way_that_has_it() {
    let mut seen = BTreeSet::new();
    for round in 0..3_000 {
        let draft = Draft::new(3, round, MAIN, SIDE);
        seen.insert((draft.way, draft.act, draft.write));
    }
    let ways = Way::ALL.len();
    assert_eq!(seen.len(), 2 * (ways * ANYWHERE.len() + ON_THE_WIRE.len()));
}
