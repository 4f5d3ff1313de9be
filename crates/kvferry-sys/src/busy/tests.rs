use core::sync::atomic::AtomicU64;

use super::*;

#[test]
fn a_chunk_begins_only_under_the_owners_epoch() {
    let (epoch, busy) = (AtomicU64::new(7), BusyWord::new());
    assert!(enter(&epoch, &busy, 6).is_none());
    assert_eq!(busy.load(Ordering::Relaxed), 0, "backing off leaves the word clear");
    let guard = enter(&epoch, &busy, 7).expect("the epoch is acknowledged");
    assert_eq!(busy.load(Ordering::Relaxed), 8);
    drop(guard);
    assert_eq!(busy.load(Ordering::Relaxed), 0);
}

#[test]
fn the_owner_waits_for_old_chunks_and_not_for_new_ones() {
    let epoch = AtomicU64::new(0);
    let words = [BusyWord::new(), BusyWord::new()];
    let old = enter(&epoch, &words[0], 0).unwrap();
    let revoked = revoke(&epoch);
    assert_eq!(revoked, 1);
    assert!(!is_quiet(&words, revoked));
    drop(old);
    assert!(is_quiet(&words, revoked));
    let new = enter(&epoch, &words[1], revoked).unwrap();
    assert!(is_quiet(&words, revoked), "a chunk under the new epoch does not touch what was revoked");
    let again = revoke(&epoch);
    assert!(!is_quiet(&words, again), "but the next revocation waits for it");
    drop(new);
    assert!(is_quiet(&words, again));
}

#[test]
fn epoch_zero_is_not_mistaken_for_idle() {
    let (epoch, busy) = (AtomicU64::new(0), BusyWord::new());
    let _guard = enter(&epoch, &busy, 0).unwrap();
    assert_ne!(busy.load(Ordering::Relaxed), 0);
}

#[test]
fn an_epoch_at_its_end_lets_nothing_begin() {
    let (epoch, busy) = (AtomicU64::new(u64::MAX), BusyWord::new());
    assert!(enter(&epoch, &busy, u64::MAX).is_none());
    assert_eq!(busy.load(Ordering::Relaxed), 0);
}
