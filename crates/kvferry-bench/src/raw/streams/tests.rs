use std::net::TcpListener;

use kvferry::Agent;

use super::*;
use crate::content::Scene;
use crate::layout::Layout;
use crate::message::Plan;
use crate::options::{BenchOp, Memory};
use crate::pattern::Pattern;

const POOL: u64 = 8 << 20;

#[test]
fn every_byte_arrives_both_ways() {
    let agent = Agent::builder("streams").build().expect("agent");
    let pools = [(); 2].map(|()| Pool::new(&agent, Memory::Private, POOL).expect("pool"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let address = listener.local_addr().expect("address");
    let (mut near_sockets, mut far_sockets) = (Vec::new(), Vec::new());
    for _ in 0..STREAMS {
        near_sockets.push(TcpStream::connect(address).expect("connect"));
        far_sockets.push(listener.accept().expect("accept").0);
    }
    for pattern in [Pattern::A, Pattern::C, Pattern::D, Pattern::R] {
        for op in [BenchOp::Write, BenchOp::Read] {
            let plan = Plan { op, shape: pattern.shapes(POOL)[0], seed: 5 };
            let scenes = [
                Scene::set(&pools[0], &plan, Role::Near).expect("near"),
                Scene::set(&pools[1], &plan, Role::Far).expect("far"),
            ];
            let pieces = Layout::new(plan.shape, POOL, plan.seed).pieces();
            let mut near = Stream::share(&pools[0], Role::Near, &pieces, &near_sockets).expect("near");
            let mut far = Stream::share(&pools[1], Role::Far, &pieces, &far_sockets).expect("far");
            std::thread::scope(|scope| {
                let other = scope.spawn(|| Stream::far(&mut far, op == BenchOp::Read));
                Stream::near(&mut near, op == BenchOp::Write).expect("near");
                other.join().expect("thread").expect("far");
            });
            for scene in &scenes {
                assert_eq!(scene.verify().expect("verify"), None, "{pattern} {op:?}");
                assert_eq!(scene.verify_gaps().expect("gaps"), None, "{pattern} {op:?}");
            }
        }
    }
}

#[test]
fn a_closed_stream_is_an_error() {
    let agent = Agent::builder("streams").build().expect("agent");
    let pool = Pool::new(&agent, Memory::Private, POOL).expect("pool");
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let sockets = [TcpStream::connect(listener.local_addr().expect("address")).expect("connect")];
    drop(listener.accept().expect("accept"));
    let pieces = [Piece { near: 0, far: 0, len: POOL }];
    let mut streams = Stream::share(&pool, Role::Near, &pieces, &sockets).expect("streams");
    assert!(Stream::near(&mut streams, false).is_err());
    assert!(Stream::near(&mut streams, true).is_err());
}
