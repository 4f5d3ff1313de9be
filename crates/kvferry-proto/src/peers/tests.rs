use super::*;

fn who(name: &str, life: u8) -> Identity {
    Identity { name: name.into(), incarnation: Incarnation([life; 16]) }
}

fn full(identity: &Identity, generation: u64) -> Offer<'_> {
    Offer { identity, generation, partial: false }
}

fn partial(identity: &Identity, generation: u64) -> Offer<'_> {
    Offer { partial: true, ..full(identity, generation) }
}

fn table_with(identity: &Identity) -> PeerTable {
    let mut table = PeerTable::new("me");
    assert_eq!(table.offer(&full(identity, 5), OldLink::Down), Verdict::New);
    table
}

#[test]
fn generations_of_one_incarnation() {
    let peer = who("decode", 1);
    let mut table = table_with(&peer);
    let mut offer = |offer: Offer<'_>| table.offer(&offer, OldLink::Alive);
    assert_eq!(
        offer(full(&peer, 4)),
        Verdict::Known(Update::Unchanged),
        "it has nothing that the newer lacks and lives"
    );
    assert_eq!(offer(full(&peer, 5)), Verdict::Known(Update::Unchanged));
    assert_eq!(offer(full(&peer, 9)), Verdict::Known(Update::Replace));
    assert_eq!(
        offer(full(&peer, 5)),
        Verdict::Known(Update::Unchanged),
        "and does not take the generation back"
    );
    assert_eq!(offer(full(&peer, 9)), Verdict::Known(Update::Unchanged));
    for generation in [1, 9, 20] {
        assert_eq!(offer(partial(&peer, generation)), Verdict::Known(Update::Merge));
    }
    assert_eq!(offer(full(&peer, 10)), Verdict::Known(Update::Replace), "parts don't move the generation");
}

#[test]
fn parts_may_come_first() {
    let peer = who("decode", 1);
    let mut table = PeerTable::new("me");
    assert_eq!(table.offer(&partial(&peer, 7), OldLink::Down), Verdict::New);
    assert_eq!(table.offer(&full(&peer, 3), OldLink::Down), Verdict::Known(Update::Replace));
}

#[test]
fn restarted_peer_is_taken_at_once_when_the_old_link_is_down() {
    let (old, new) = (who("decode", 1), who("decode", 2));
    let mut table = table_with(&old);
    assert_eq!(table.offer(&full(&new, 1), OldLink::Down), Verdict::Replace { old: old.incarnation });
    assert_eq!(table.incarnation("decode"), Some(new.incarnation));
    assert!(!table.is_dead(&old), "the new one was not reached yet");
    table.reached(&new);
    assert_eq!(
        table.offer(&full(&old, 6), OldLink::Down),
        Verdict::Refused(OfferRefusal::Dead { incarnation: old.incarnation })
    );
    assert_eq!(table.inbound(&old), Inbound::Dead);
}

#[test]
fn outdated_metadata_does_not_kill_the_living() {
    // We never saw the first life end, and its metadata turns up while the link to the second is broken.
    let (first, second) = (who("decode", 1), who("decode", 2));
    let mut table = table_with(&second);
    assert_eq!(table.offer(&full(&first, 1), OldLink::Down), Verdict::Replace { old: second.incarnation });
    assert!(table.lost(&first, Loss::Presumed), "nobody answers");
    assert_eq!(table.offer(&full(&second, 5), OldLink::Down), Verdict::New);
    // Back and forth: whoever is reached is not among the dead.
    table.offer(&full(&first, 1), OldLink::Down);
    table.offer(&full(&second, 5), OldLink::Down);
    table.reached(&first);
    assert!(!table.is_dead(&second) && !table.is_dead(&first));
    table.reached(&second);
    assert!(!table.is_dead(&second) && table.is_dead(&first));
}

#[test]
fn living_peer_is_replaced_only_by_one_that_was_reached() {
    let (old, new) = (who("decode", 1), who("decode", 2));
    let mut table = table_with(&old);
    assert_eq!(
        table.offer(&full(&new, 1), OldLink::Alive),
        Verdict::NeedsReachability { current: old.incarnation }
    );
    assert_eq!(table.incarnation("decode"), Some(old.incarnation));
    assert!(!table.is_dead(&old));
    assert_eq!(table.confirm(&full(&new, 1)), Verdict::Replace { old: old.incarnation });
    assert!(table.is_dead(&old));
}

#[test]
fn own_name_and_impossible_names_are_refused() {
    let mut table = PeerTable::new("me");
    let mut refused = |name: &str| match table.offer(&full(&who(name, 1), 1), OldLink::Down) {
        Verdict::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused("me"), OfferRefusal::SelfName);
    assert_eq!(refused(""), OfferRefusal::Name { len: 0 });
    assert_eq!(refused(&"x".repeat(257)), OfferRefusal::Name { len: 257 });
    assert_eq!(table.names().count(), 0);
    assert!(is_agent_name(&"x".repeat(256)));
}

#[test]
fn death_is_remembered_but_removal_and_silence_are_no_death() {
    let peer = who("decode", 1);
    let mut table = table_with(&peer);
    assert_eq!(table.remove("decode"), Some(peer.incarnation));
    assert_eq!(table.remove("decode"), None);
    assert_eq!(table.offer(&full(&peer, 1), OldLink::Down), Verdict::New);
    assert!(table.lost(&peer, Loss::Presumed));
    assert_eq!(table.incarnation("decode"), None);
    assert_eq!(table.offer(&full(&peer, 1), OldLink::Down), Verdict::New);
    assert!(table.lost(&peer, Loss::Dead));
    assert!(matches!(
        table.offer(&full(&peer, 1), OldLink::Down),
        Verdict::Refused(OfferRefusal::Dead { .. })
    ));
    // A death that is noticed late does not touch the next life.
    let next = who("decode", 2);
    assert_eq!(table.offer(&full(&next, 1), OldLink::Down), Verdict::New);
    assert!(!table.lost(&peer, Loss::Dead));
    assert_eq!(table.incarnation("decode"), Some(next.incarnation));
}

#[test]
fn sixteen_deaths_of_a_name_are_remembered() {
    let mut table = PeerTable::new("me");
    for life in 0..20 {
        table.lost(&who("decode", life), Loss::Dead);
        table.lost(&who("decode", life), Loss::Dead);
    }
    let dead = |life: u8| table.is_dead(&who("decode", life));
    assert!((4..20).all(dead));
    assert!(!(0..4).any(dead));
}

#[test]
fn names_of_the_dead_are_bounded() {
    let mut table = PeerTable::new("me");
    for n in 0..5000 {
        table.lost(&who(&format!("peer {n}"), 1), Loss::Dead);
        table.lost(&who("often", (n % 256) as u8), Loss::Dead);
    }
    assert!(!table.is_dead(&who("peer 0", 1)));
    assert!(table.is_dead(&who("peer 4999", 1)));
    assert!(table.is_dead(&who("often", (4999 % 256) as u8)));
}

#[test]
fn revoked_regions_never_come_back_within_an_incarnation() {
    let (old, new) = (who("decode", 1), who("decode", 2));
    let mut table = table_with(&old);
    table.revoked(&old, &[RegionId(3)]).unwrap();
    table.revoked(&new, &[RegionId(4)]).unwrap();
    table.live(&old, &LiveRegions::new(12, vec![RegionId(4), RegionId(10)])).unwrap();
    table.offer(&full(&old, 9), OldLink::Down);
    let revoked: Vec<u64> = (0..14).filter(|&id| table.is_revoked("decode", RegionId(id))).collect();
    assert_eq!(revoked, [0, 1, 2, 3, 5, 6, 7, 8, 9, 11]);
    table.offer(&full(&new, 1), OldLink::Down);
    assert!(!table.is_revoked("decode", RegionId(3)));
    assert!(!table.is_revoked("nobody", RegionId(3)));
}

#[test]
fn inbound_connections_of_other_lives_are_told_apart() {
    let (old, new) = (who("decode", 1), who("decode", 2));
    let table = table_with(&old);
    assert_eq!(table.inbound(&old), Inbound::Fine);
    assert_eq!(table.inbound(&who("stranger", 9)), Inbound::Fine);
    assert_eq!(table.inbound(&new), Inbound::OtherIncarnation { known: old.incarnation });
}
