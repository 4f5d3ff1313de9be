//! Prepared lists belong to an agent, a side and a life of their regions.

use kvferry::{
    Block, Code, GridRow, Indices, MemoryKind, Op, PreparedList, Status, TransferError, TransferOptions,
};
use kvferry_testkit::{MemoryClass, PATIENCE, Pair, Pattern, Rng, Side, agent, eventually, run};

const DRAM: MemoryKind = MemoryKind::Dram;
const LEN: u64 = 1 << 20;
const BLOCK: u64 = 4096;

fn rows(side: &Side) -> [GridRow; 1] {
    [GridRow { addr: side.pool.addr(), len: BLOCK, device: 0, stride: BLOCK, count: LEN / BLOCK }]
}

fn near(side: &Side) -> PreparedList {
    side.agent.prepare_local(DRAM, &rows(side)[..]).expect("a list")
}

fn far(side: &Side, of: &Side) -> PreparedList {
    side.agent.prepare_remote(of.name(), DRAM, &rows(of)[..]).expect("a list")
}

#[track_caller]
fn refused(made: Result<kvferry::Transfer, TransferError>, code: &str) -> String {
    let error = made.expect_err("lists that do not go together");
    assert_eq!(error.code(), code, "{error}");
    assert_eq!(error.remedy(), Code::find(code).expect("a code of the catalogue").remedy);
    error.to_string()
}

fn make(
    side: &Side,
    local: &PreparedList,
    remote: &PreparedList,
) -> Result<kvferry::Transfer, TransferError> {
    side.agent.transfer(Op::Write, local, Indices::All, remote, Indices::All, TransferOptions::default())
}

#[test]
fn a_list_tells_what_it_holds() {
    let pair = Pair::new(MemoryClass::Private, LEN);
    let (near, far) = (near(&pair.left), far(&pair.left, &pair.right));
    assert_eq!((near.len(), near.bytes(), near.peer()), (LEN / BLOCK, LEN, None));
    assert_eq!((far.len(), far.bytes(), far.peer()), (LEN / BLOCK, LEN, Some(pair.right.name())));
    let none = pair.left.agent.prepare_local(DRAM, &[] as &[Block]).expect("nothing");
    assert!(none.is_empty() && none.bytes() == 0);
}

#[test]
fn each_list_serves_its_side_and_its_agent() {
    let pair = Pair::new(MemoryClass::Private, LEN);
    let (left, right) = (&pair.left, &pair.right);
    let (ours, theirs) = (near(left), far(left, right));
    let text = refused(make(left, &theirs, &ours), "transfer.wrong_side");
    assert_eq!(text, "the local list names a peer's memory (transfer.wrong_side)");
    let text = refused(make(left, &ours, &ours), "transfer.wrong_side");
    assert!(text.starts_with("the remote list names our own memory"), "{text}");
    // The same lists in the hands of another agent.
    let text = refused(make(right, &near(left), &far(right, left)), "transfer.wrong_side");
    assert!(text.contains("local list was prepared by another agent"), "{text}");
    let text = refused(make(right, &near(right), &far(left, right)), "transfer.wrong_side");
    assert!(text.contains("remote list was prepared by another agent"), "{text}");
    run(&make(left, &ours, &theirs).expect("the right way round"));
    // Clones share the list, and a clone of the agent is the same agent.
    let clone = Side::new(pair.left.agent.clone(), MemoryClass::Private, BLOCK);
    let copies = (ours.clone(), theirs.clone());
    drop((ours, theirs));
    run(&make(&clone, &copies.0, &copies.1).expect("the same lists"));
}

#[test]
fn lists_are_shared_by_threads_and_outlive_nothing_they_need() {
    let pair = Pair::new(MemoryClass::Private, LEN);
    let (ours, theirs) = (near(&pair.left), far(&pair.left, &pair.right));
    pair.left.pool.fill(Pattern::new(1));
    pair.right.pool.fill(Pattern::POISON);
    std::thread::scope(|scope| {
        for part in 0..4 {
            let (ours, theirs, left) = (&ours, &theirs, &pair.left);
            scope.spawn(move || {
                let mut indices: Vec<u32> = (part * 64..(part + 1) * 64).collect();
                Rng::new(part.into()).shuffle(&mut indices);
                let options = TransferOptions::default();
                run(&left
                    .agent
                    .transfer(Op::Write, ours, &indices, theirs, &indices, options)
                    .expect("a transfer"));
            });
        }
    });
    pair.right.pool.verify(Pattern::new(1));
    // A transfer needs its lists no longer.
    let transfer = make(&pair.left, &ours, &theirs).expect("a transfer");
    drop((ours, theirs));
    run(&transfer);
}

#[test]
fn a_local_deregistration_makes_lists_and_transfers_stale() {
    let Pair { left, right } = Pair::new(MemoryClass::Private, LEN);
    let (ours, theirs) = (near(&left), far(&left, &right));
    let transfer = make(&left, &ours, &theirs).expect("a transfer");
    run(&transfer);
    let second = Side::new(left.agent.clone(), MemoryClass::Private, LEN);
    let id = left.pool.ids()[0];
    left.pool.deregister().expect("nobody uses it");
    let made = second.agent.transfer(
        Op::Write,
        &ours,
        Indices::All,
        &theirs,
        Indices::All,
        TransferOptions::default(),
    );
    let text = refused(made, "transfer.stale_list");
    assert_eq!(text, format!("the local list is stale: region {id} was deregistered (transfer.stale_list)"));
    revoked(&transfer);
    run(&make(&second, &near(&second), &theirs).expect("the other lists are good"));
}

#[test]
fn a_remote_deregistration_makes_lists_and_transfers_stale() {
    for class in [MemoryClass::Private, MemoryClass::Shared] {
        let Pair { left, right } = Pair::new(class, LEN);
        let (ours, theirs) = (near(&left), far(&left, &right));
        let transfer = make(&left, &ours, &theirs).expect("a transfer");
        run(&transfer);
        let second = Side::new(right.agent.clone(), class, LEN);
        let id = right.pool.ids()[0];
        let memory = right.pool.deregister().expect("nobody uses it");
        memory.fill(Pattern::POISON);
        eventually("the initiator hears of it", || make(&left, &ours, &theirs).is_err());
        let text = refused(make(&left, &ours, &theirs), "transfer.stale_list");
        assert!(text.contains(&format!("the peer deregistered region {id}")), "{text}");
        revoked(&transfer);
        memory.verify(Pattern::POISON);
        left.meet(&second);
        run(&make(&left, &ours, &far(&left, &second)).expect("the other lists are good"));
    }
}

/// A post of a transfer whose region is gone fails, now or soon.
#[track_caller]
fn revoked(transfer: &kvferry::Transfer) {
    match transfer.post() {
        Err(error) => assert_eq!(error.code(), "region.revoked", "{error}"),
        Ok(()) => match transfer.wait(PATIENCE) {
            Ok(Status::Failed(fault)) => assert_eq!(fault.code(), "region.revoked", "{fault}"),
            other => panic!("expected region.revoked, got {other:?}"),
        },
    }
}

#[test]
fn a_list_of_a_peer_that_is_gone_stays_gone() {
    let Pair { left, right } = Pair::new(MemoryClass::Private, LEN);
    let (ours, theirs) = (near(&left), far(&left, &right));
    left.agent.remove_remote(right.name()).expect("a peer");
    refused(make(&left, &ours, &theirs), "peer.lost");
    // Loading the same life again does not bring old lists back.
    left.meet(&right);
    refused(make(&left, &ours, &theirs), "peer.lost");
    run(&make(&left, &ours, &far(&left, &right)).expect("a fresh list"));
}

#[test]
fn lists_span_regions_of_all_classes() {
    // Blocks of three regions on each side in one transfer: it splits over several ways.
    let (left, right) = (agent("left"), agent("right"));
    let sides = |agent: &kvferry::Agent| {
        let classes = [MemoryClass::Private, MemoryClass::Shared, MemoryClass::File];
        classes.map(|class| Side::new(agent.clone(), class, LEN))
    };
    let (ours, theirs) = (sides(&left), sides(&right));
    left.load_remote(&right.metadata()).expect("metadata");
    let blocks = LEN / BLOCK;
    let mut rng = Rng::new(60);
    let mut order: Vec<u64> = (0..3 * blocks).collect();
    let place =
        |sides: &[Side; 3], n: u64| sides[(n / blocks) as usize].pool.block(n % blocks * BLOCK, BLOCK);
    let near: Vec<Block> = order.iter().map(|n| place(&ours, *n)).collect();
    rng.shuffle(&mut order);
    let far: Vec<Block> = order.iter().map(|n| place(&theirs, *n)).collect();
    for (op, from, to) in [(Op::Write, &ours, &theirs), (Op::Read, &theirs, &ours)] {
        for (n, side) in (0..).zip(from) {
            side.pool.fill(Pattern::new(n));
        }
        to.iter().for_each(|side| side.pool.fill(Pattern::POISON));
        let transfer = left.transfer_flat(
            op,
            (DRAM, &near[..]),
            right.name(),
            (DRAM, &far[..]),
            TransferOptions::default(),
        );
        let transfer = transfer.expect("a transfer");
        run(&transfer);
        assert_eq!(transfer.telemetry().bytes, 3 * LEN);
        for (n, m) in (0..).zip(&order) {
            let (source, destination) = if op == Op::Write { (n, *m) } else { (*m, n) };
            let (block, pattern) = (destination % blocks * BLOCK, Pattern::new(source / blocks));
            let pool = &to[(destination / blocks) as usize].pool;
            assert_eq!(pool.difference_in(pattern, source % blocks * BLOCK, block, BLOCK), None);
        }
    }
}
