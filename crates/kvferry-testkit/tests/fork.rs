//! After a fork the child's agent is dead and says so; the parent's is none the worse.

use kvferry_testkit::harness::{
    Forked, Launch, Memory, PATIENCE, Place, Request, State, Trap, TrapAct, Worker, eventually, link, rounds,
};

const CHILD: &str = env!("CARGO_BIN_EXE_kvferry-test-child");

const BYTES: u64 = 32 << 20;
const BLOCK: u64 = 4096;

fn check(forked: &Forked, transfers: usize) {
    assert_eq!(forked.status, 0, "the forked child crashed or hung: {forked:?}");
    assert!(forked.took_ns < 2_000_000_000, "the forked child waited for something: {forked:?}");
    let posts = forked.codes.keys().filter(|call| call.starts_with("post ")).count();
    assert_eq!(posts, transfers, "{forked:?}");
    let wrong: Vec<_> = forked.codes.iter().filter(|(_, code)| *code != "agent.forked").collect();
    assert!(wrong.is_empty(), "calls that do not say agent.forked: {wrong:?}");
}

struct Scene {
    a: Worker,
    b: Worker,
    /// A transfer from a to b, and one back.
    there: u64,
    back: u64,
}

impl Scene {
    fn new() -> Self {
        let (a, b) = (Launch::new(CHILD, "a").start(), Launch::new(CHILD, "b").start());
        let near = a.registered(Memory::Private, BYTES).buffer;
        let far = b.registered(Memory::Private, BYTES).buffer;
        let shared = a.registered(Memory::Shared, BYTES).buffer;
        a.fill(near, 1);
        b.fill(far, 2);
        link(&a, &b);
        link(&b, &a);
        let there = a.transfer(&a.write(near, &b, far).in_blocks_of(BLOCK).notifying("there")).unwrap();
        let back = b.transfer(&b.write(far, &a, shared).in_blocks_of(BLOCK)).unwrap();
        Self { a, b, there, back }
    }

    /// Both directions move data, and nobody has noticed anything.
    fn goes_on(&self) {
        for (worker, transfer) in [(&self.a, self.there), (&self.b, self.back)] {
            worker.post(transfer).unwrap_or_else(|e| panic!("{e:?}"));
            assert_eq!(worker.wait(transfer, 10_000), Ok(State::Done));
        }
        assert_eq!(self.b.notifications(1)[0].payload, "there");
        for (worker, peer) in [(&self.a, "b"), (&self.b, "a")] {
            let lost = Request::AwaitEvent { kind: "lost".into(), peer: peer.into(), timeout_ms: 0 };
            assert_eq!(
                worker.ask::<kvferry_testkit::harness::StampedEvent>(&lost).unwrap_err().code,
                "harness"
            );
            let stats = worker.stats();
            assert_eq!((stats.links_in, stats.links_out, stats.lingering), (1, 1, 0), "{stats:?}");
        }
    }
}

#[test]
fn every_call_in_a_forked_child_says_so() {
    let scene = Scene::new();
    let forked: Forked = scene.a.expect(&Request::ForkProbe);
    println!("{forked:?}");
    check(&forked, 1);
    scene.goes_on();
}

#[test]
fn forks_while_data_moves_in_both_directions() {
    let scene = Scene::new();
    for _ in 0..rounds(20) {
        scene.a.post(scene.there).unwrap();
        scene.b.post(scene.back).unwrap();
        let forked: Forked = scene.a.expect(&Request::ForkProbe);
        check(&forked, 1);
        assert_eq!(scene.a.wait(scene.there, 10_000), Ok(State::Done));
        assert_eq!(scene.b.wait(scene.back, 10_000), Ok(State::Done));
        assert_eq!(scene.b.notifications(1)[0].payload, "there");
    }
    scene.goes_on();
}

#[test]
fn a_fork_in_the_middle_of_a_copy_leaves_the_copy_to_the_parent() {
    let scene = Scene::new();
    scene.a.expect::<()>(&Request::Arm(Trap { place: Place::Copy, after: 2, act: TrapAct::Hold }));
    scene.a.post(scene.there).unwrap();
    assert!(eventually(PATIENCE, || scene.a.expect::<(u64, u64)>(&Request::Trapped).0 > 0));
    let forked: Forked = scene.a.expect(&Request::ForkProbe);
    check(&forked, 1);
    assert_eq!(scene.a.status(scene.there), State::Running);
    scene.a.expect::<()>(&Request::Spring);
    assert_eq!(scene.a.wait(scene.there, 10_000), Ok(State::Done));
    assert_eq!(scene.b.notifications(1)[0].payload, "there");
    scene.goes_on();
}

#[test]
fn a_forked_child_that_stays_does_not_hold_its_parents_links_open() {
    let scene = Scene::new();
    scene.a.adopt(scene.a.expect(&Request::ForkSleeper));
    scene.goes_on();
    // The parent leaves in good order: the peer must learn of it although the child has copies of all descriptors.
    scene.a.expect::<u64>(&Request::Close);
    let lost = scene.b.event("lost", "a").unwrap_or_else(|e| panic!("{e:?}"));
    assert_eq!(lost.cause, "it closed its agent");
}

#[test]
fn a_forked_child_does_not_hurt_the_peer_when_it_ends() {
    let scene = Scene::new();
    for _ in 0..3 {
        // The child drops the agent and all it has, then exits.
        check(&scene.a.expect(&Request::ForkProbe), 1);
    }
    scene.goes_on();
}
