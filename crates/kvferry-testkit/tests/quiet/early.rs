//! A cancel that comes early leaves most of the memory alone.

use kvferry_testkit::harness::{PATIENCE, Place, Request, State, Trap, TrapAct, eventually};

use crate::rig::{By, Rig, SEED};

const BYTES: u64 = 256 << 20;

/// Chunks that are copied before the transfer is cancelled; all are at most 2 MiB.
const CHUNKS: u64 = 8;

#[test]
fn a_cancel_after_a_few_chunks_leaves_most_of_the_poison() {
    for by in [By::Map, By::Cma, By::MapByTarget, By::CmaByTarget] {
        for write in [true, false] {
            let rig = Rig::new(by, write, BYTES, 1);
            let transfer = rig.prepared(0);
            let trap = Trap { place: Place::Copy, after: CHUNKS, act: TrapAct::Hold };
            rig.executor().expect::<()>(&Request::Arm(trap));
            rig.a.post(transfer).unwrap();
            let held = || rig.executor().expect::<(u64, u64)>(&Request::Trapped).0 > 0;
            assert!(eventually(PATIENCE, held), "{by:?}: the copy does not come that far");
            let quiet = rig.a.begin_aside::<()>(&Request::Cancel { transfer, timeout_ms: Some(10_000) });
            assert!(eventually(PATIENCE, || rig.a.status(transfer) == State::Cancelled));
            rig.executor().expect::<()>(&Request::Spring);
            quiet.finish().unwrap_or_else(|e| panic!("{by:?}: {e:?}"));
            let scan = rig.receiver().scan(rig.pools[0].buffer, SEED);
            assert_eq!(scan.foreign(), 0);
            println!("{by:?}, write {write}: {:.2} of the poison left", scan.poisoned());
            assert!(
                scan.poisoned() > 0.25,
                "{by:?}, write {write}: only {:.2} of the poison left",
                scan.poisoned()
            );
            assert!(scan.pattern > 0, "{by:?}, write {write}: nothing was copied");
            // The same handle goes all the way afterwards.
            rig.a.post(transfer).unwrap();
            assert_eq!(rig.a.wait(transfer, 20_000), Ok(State::Done));
            rig.receiver().expect_filled(rig.pools[0].buffer, SEED);
        }
    }
}
