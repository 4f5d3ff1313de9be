use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::frame::LiveRegions;

fn region(id: u64) -> RevokeScope {
    RevokeScope::regions([RegionId(id)])
}

fn begin(revocations: &mut Revocations, epoch: u64, deadline: Instant) {
    revocations.begin(epoch, region(epoch), deadline).unwrap();
}

#[test]
fn words_of_earlier_epochs_are_busy() {
    // A copier that runs under epoch 4 publishes 5.
    assert!(word_is_quiet(0, 5));
    assert!(!word_is_quiet(busy_word(4), 5));
    assert!(word_is_quiet(busy_word(5), 5));
    assert!(word_is_quiet(busy_word(6), 5));
    assert!(!word_is_quiet(busy_word(0), 1), "epoch 0 is not idle");
}

#[test]
fn quiet_once_each_word_was() {
    let now = Instant::now();
    let until = now + Duration::from_secs(1);
    let mut revocations = Revocations::new(Evidence::Words);
    begin(&mut revocations, 1, until);
    assert_eq!(revocations.outcome(1, now), Outcome::Waiting { until }, "nothing known yet");
    revocations.on_busy_words(&[busy_word(0), 0, busy_word(0)]);
    assert_eq!(revocations.outcome(1, now), Outcome::Waiting { until });
    // The first is over; the second publishes the old epoch for a moment and will step back.
    revocations.on_busy_words(&[0, busy_word(0), busy_word(0)]);
    assert_eq!(revocations.outcome(1, now), Outcome::Waiting { until });
    revocations.on_busy_words(&[busy_word(0), busy_word(0), busy_word(1)]);
    assert_eq!(revocations.outcome(1, now), Outcome::Quiet);
    assert_eq!(revocations.poll_quiet(), Some((1, region(1))));
    assert_eq!(revocations.poll_quiet(), None);
}

#[test]
fn acknowledgements_prove_nothing_where_there_are_words() {
    let now = Instant::now();
    let mut revocations = Revocations::new(Evidence::Words);
    begin(&mut revocations, 1, now + Duration::from_secs(1));
    revocations.on_ack(1);
    assert!(!revocations.is_quiet());
    let mut revocations = Revocations::new(Evidence::Acks);
    begin(&mut revocations, 1, now + Duration::from_secs(1));
    revocations.on_busy_words(&[0]);
    assert!(!revocations.is_quiet());
    revocations.on_ack(1);
    assert!(revocations.is_quiet());
}

#[test]
fn several_are_judged_one_by_one() {
    let now = Instant::now();
    let until = now + Duration::from_secs(1);
    let mut revocations = Revocations::new(Evidence::Words);
    begin(&mut revocations, 3, until);
    begin(&mut revocations, 4, until);
    // Runs under 3: the first revocation is carried out there, the second is not.
    revocations.on_busy_words(&[busy_word(3)]);
    assert_eq!(revocations.outcome(3, now), Outcome::Quiet);
    assert_eq!(revocations.outcome(4, now), Outcome::Waiting { until });
    assert_eq!(revocations.pending().map(|(epoch, _)| epoch).collect::<Vec<_>>(), [4]);

    let mut revocations = Revocations::new(Evidence::Acks);
    begin(&mut revocations, 1, until);
    begin(&mut revocations, 2, until);
    begin(&mut revocations, 3, until);
    revocations.on_ack(2);
    assert_eq!(revocations.poll_quiet(), Some((1, region(1))));
    assert_eq!(revocations.poll_quiet(), Some((2, region(2))));
    assert_eq!(revocations.poll_quiet(), None);
}

#[test]
fn late_ones_stay_quarantined_until_there_is_evidence() {
    let now = Instant::now();
    let until = now + Duration::from_secs(1);
    let mut revocations = Revocations::new(Evidence::Words);
    begin(&mut revocations, 1, until);
    revocations.on_busy_words(&[busy_word(0)]);
    assert_eq!(revocations.poll_timeout(now), Some(until));
    assert_eq!(revocations.outcome(1, until), Outcome::StillBusy);
    assert_eq!(revocations.poll_timeout(until), None);
    assert!(!revocations.is_quiet());

    revocations.on_busy_words(&[0]);
    assert_eq!(revocations.outcome(1, until), Outcome::Quiet);
    assert_eq!(revocations.poll_quiet(), Some((1, region(1))));
}

#[test]
fn death_settles_all_and_whatever_comes_after() {
    let now = Instant::now();
    let mut revocations = Revocations::new(Evidence::Words);
    begin(&mut revocations, 1, now);
    revocations.on_busy_words(&[busy_word(0)]);
    revocations.on_copier_dead();
    begin(&mut revocations, 2, now);
    assert_eq!(revocations.outcome(1, now), Outcome::Quiet);
    assert_eq!(revocations.outcome(2, now), Outcome::Quiet);
    assert_eq!(revocations.poll_quiet(), Some((1, region(1))));
    assert_eq!(revocations.poll_quiet(), Some((2, region(2))));
}

#[test]
fn more_than_64_words_must_be_quiet_at_once() {
    let now = Instant::now();
    let mut revocations = Revocations::new(Evidence::Words);
    begin(&mut revocations, 1, now);
    let mut words = [0; 70];
    words[69] = busy_word(0);
    revocations.on_busy_words(&words);
    assert!(!revocations.is_quiet());
    words[63] = busy_word(0);
    words[69] = 0;
    revocations.on_busy_words(&words);
    assert!(revocations.is_quiet());
}

#[test]
fn epochs_only_grow() {
    let now = Instant::now();
    let mut revocations = Revocations::new(Evidence::Words);
    begin(&mut revocations, 5, now);
    for epoch in [0, 4, 5] {
        assert_eq!(
            revocations.begin(epoch, RevokeScope::all(), now),
            Err(RevokeError::EpochOrder { epoch, last: 5 })
        );
    }
    assert_eq!(revocations.epoch(), 5);
    assert_eq!(revocations.pending().count(), 1);
}

#[test]
fn large_scopes_are_split() {
    let count = MAX_FRAME_IDS + 10;
    let scope = RevokeScope {
        regions: (0..count as u64).map(RegionId).collect(),
        ops: (0..count as u64).collect(),
        all: false,
    };
    let mut revocations = Revocations::new(Evidence::Acks);
    assert_eq!(
        revocations.begin(1, scope.clone(), Instant::now()),
        Err(RevokeError::TooMany { count: 2 * count })
    );
    let pieces = scope.clone().split();
    assert_eq!(pieces.len(), 3);
    assert!(pieces.iter().all(|piece| piece.len() <= MAX_FRAME_IDS));
    let joined = pieces.into_iter().fold(RevokeScope::default(), |mut all, piece| {
        all.regions.extend(piece.regions);
        all.ops.extend(piece.ops);
        all
    });
    assert_eq!(joined, scope);
    assert_eq!(RevokeScope::all().split(), [RevokeScope::all()]);
}

#[test]
fn copiers_run_only_under_an_epoch_that_is_carried_out() {
    let mut acknowledged = Acknowledged::new();
    assert!(acknowledged.may_run(0));
    assert!(!acknowledged.may_run(1), "the owner has revoked");
    acknowledged.on_revoke(1, &region(8)).unwrap();
    assert!(acknowledged.is_revoked(RegionId(8)));
    assert!(!acknowledged.is_revoked(RegionId(7)));
    assert!(!acknowledged.may_run(1), "not carried out yet");
    assert_eq!(acknowledged.applied(1), Some(Frame::RevokeAck { epoch: 1 }));
    assert_eq!(acknowledged.applied(1), None);
    assert!(acknowledged.may_run(1));
    assert!(!acknowledged.may_run(0));
    assert_eq!(acknowledged.applied(2), None, "never came");

    acknowledged.on_revoke(4, &RevokeScope::ops([1])).unwrap();
    acknowledged.on_revoke(6, &RevokeScope::all()).unwrap();
    assert_eq!(acknowledged.applied(6), Some(Frame::RevokeAck { epoch: 6 }));
    assert!(!acknowledged.may_run(6), "all is revoked");
    assert!(acknowledged.is_revoked(RegionId(1000)));
    acknowledged.on_revoke(7, &region(1)).unwrap();
    assert!(acknowledged.is_revoked(RegionId(1000)), "and stays so");
    assert_eq!(
        acknowledged.on_revoke(7, &region(1)),
        Err(AcknowledgeError::EpochOrder { epoch: 7, last: 7 })
    );
}

#[test]
fn tombstones_are_bounded() {
    let mut tombstones = Tombstones::new();
    for batch in 0..4_u64 {
        let ids: Vec<RegionId> =
            (0..MAX_FRAME_IDS as u64).map(|n| RegionId((batch * MAX_FRAME_IDS as u64 + n) * 2)).collect();
        tombstones.insert_all(&ids).unwrap();
    }
    assert_eq!(tombstones.runs(), MAX_TOMBSTONES);
    assert_eq!(tombstones.insert_all(&[RegionId(1)]), Err(TooManyTombstones));
    let mut acknowledged = Acknowledged::new();
    acknowledged.regions = tombstones;
    assert!(acknowledged.on_revoke(1, &region(1)).is_err());
    acknowledged.on_revoke(1, &RevokeScope::ops([1])).unwrap();
}

proptest! {
    #[test]
    fn tombstones_are_a_set(
        batches in prop::collection::vec(prop::collection::vec(0_u64..60, 0..20), 0..8),
        live in prop::collection::btree_set(0_u64..60, 0..30),
        below in 0_u64..60,
        edge in any::<bool>(),
    ) {
        let mut tombstones = Tombstones::new();
        let mut model = BTreeSet::new();
        // The numbers at both ends of the range.
        let map = |n: u64| if edge && n >= 50 { u64::MAX - (59 - n) } else { n };
        for batch in &batches {
            let ids: Vec<RegionId> = batch.iter().map(|&n| RegionId(map(n))).collect();
            tombstones.insert_all(&ids).unwrap();
            model.extend(ids.iter().map(|id| id.0));
        }
        let judged = LiveRegions::new(below, live.iter().map(|&n| RegionId(n)).collect());
        tombstones.insert_dead(&judged).unwrap();
        model.extend((0..below).filter(|n| !live.contains(n)));
        for n in 0..60 {
            prop_assert_eq!(tombstones.contains(RegionId(map(n))), model.contains(&map(n)));
        }
        let runs = model.iter().filter(|&&n| n == 0 || !model.contains(&(n - 1))).count();
        prop_assert_eq!(tombstones.runs(), runs);
    }
}
