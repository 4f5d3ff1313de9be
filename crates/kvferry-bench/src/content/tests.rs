use kvferry::Agent;

use super::*;
use crate::options::Memory;
use crate::pattern::Shape;

const POOL: u64 = 4 << 20;

fn plan(op: BenchOp) -> Plan {
    Plan { op, shape: Shape { count: 32, len: 20 << 10, run: 4 }, seed: 11 }
}

fn pool(agent: &Agent) -> Pool {
    Pool::new(agent, Memory::Private, POOL).expect("pool")
}

/// Moves as a transfer should.
fn move_blocks(from: &Pool, to: &Pool, layout: &Layout) {
    let mut bytes = vec![0; layout.shape.len as usize];
    for (&near, &far) in layout.near.iter().zip(&layout.far) {
        from.read(near, &mut bytes).expect("read");
        to.write(far, &bytes).expect("write");
    }
}

#[test]
fn every_kind_of_damage_is_found() {
    let agent = Agent::builder("content").build().expect("agent");
    let (near, far) = (pool(&agent), pool(&agent));
    let plan = plan(BenchOp::Write);
    let layout = Layout::new(plan.shape, POOL, plan.seed);
    let source = Scene::set(&near, &plan, Role::Near).expect("source");
    let scene = Scene::set(&far, &plan, Role::Far).expect("destination");
    assert!(!source.is_destination() && scene.is_destination());

    assert!(
        scene.verify().expect("verify").is_some_and(|fault| fault.contains("block 0 ")),
        "nothing moved yet"
    );
    move_blocks(&near, &far, &layout);
    assert_eq!(scene.verify().expect("verify"), None);
    assert_eq!(scene.verify_gaps().expect("gaps"), None);

    scene.flip().expect("flip");
    let fault = scene.verify().expect("verify").expect("a flipped byte");
    assert!(fault.contains("block 31 ") && fault.contains("byte 20479 "), "{fault}");
    scene.flip().expect("flip");
    assert_eq!(scene.verify().expect("verify"), None);

    // A block that went to another's place.
    let mut bytes = vec![0; layout.shape.len as usize];
    far.read(layout.far[5], &mut bytes).expect("read");
    far.write(layout.far[6], &bytes).expect("write");
    assert!(scene.verify().expect("verify").is_some_and(|fault| fault.contains("block 6 ")));

    // A round that moves nothing does not live on what the one before has moved.
    scene.poison().expect("poison");
    assert!(scene.verify().expect("verify").is_some());

    // A byte beside a block.
    let end = layout.far[3 * 4 + 3] + layout.shape.len;
    far.write(end % POOL, &[0]).expect("write");
    let fault = scene.verify_gaps().expect("gaps").expect("a changed byte");
    assert!(fault.contains(&format!("byte {end} ")), "{fault}");
}

#[test]
fn the_source_of_a_read_is_far() {
    let agent = Agent::builder("content").build().expect("agent");
    let pool = pool(&agent);
    assert!(Scene::set(&pool, &plan(BenchOp::Read), Role::Near).expect("scene").is_destination());
    assert!(!Scene::set(&pool, &plan(BenchOp::Read), Role::Far).expect("scene").is_destination());
}
