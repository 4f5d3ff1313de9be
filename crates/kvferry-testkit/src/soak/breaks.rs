//! Acts that break something: processes that die, stop or are replaced, connections that end or fall silent.

use std::time::Duration;

use super::{
    act::{Act, Draft},
    bounds::{Bound, Times},
    rig::{PEER_TIMEOUT, Rig},
    round::{END_MS, Outcome, Posted, ends, expect_end, give_back, look, post, settle},
};
use crate::harness::{Failure, Request, StampedEvent, State, Ticket, Worker, now_ns, sleep_until};

/// How long a network may take in what it then holds back.
const A_MOMENT: Duration = Duration::from_millis(20);

/// Posts, waits for the moment, and breaks something; then all tickets of the posts are finished.
fn break_in(
    rig: &Rig,
    posted: &Posted,
    breaking: impl FnOnce(&Rig) -> u64,
) -> (u64, Vec<Result<(), Failure>>) {
    let tickets = posted.begin(rig);
    sleep_until(posted.at);
    let stamp = breaking(rig);
    (stamp, tickets.into_iter().map(Ticket::finish).collect())
}

fn lost(survivor: &Worker, victim: &str) -> StampedEvent {
    survivor.event("lost", victim).unwrap_or_else(|e| {
        panic!("expected {:?} to learn of the end of {victim:?}, found {e:?}", survivor.name())
    })
}

fn expect_died(rig: &Rig, event: &StampedEvent) {
    if !rig.way.is_tcp() {
        assert_eq!(event.cause, "its process died", "expected the cause of the loss");
    }
}

fn death(rig: &Rig) -> Bound {
    if rig.way.is_tcp() { Bound::DeathTcp } else { Bound::DeathSameHost }
}

/// What was meant for an incarnation that is gone never reaches another.
fn forget_notifications(rig: &mut Rig, draft: &Draft) {
    for index in 0..draft.transfers.len() {
        rig.ledger.forget(&format!("transfer {}.{index}", draft.round));
    }
}

pub(super) fn kill_target(rig: &mut Rig, draft: &Draft, times: &mut Times) -> Outcome {
    let posted = post(rig, draft);
    let (killed, tickets) = break_in(rig, &posted, |rig| rig.b.worker.kill());
    let event = lost(&rig.a.worker, "b");
    expect_died(rig, &event);
    times.push(death(rig), killed, event.stamp);
    let mut outcome =
        Outcome { ends: ends(rig, draft, &posted, tickets), gone: draft.write, ..Outcome::default() };
    let known: bool = rig.a.worker.expect(&Request::Check { peer: "b".into() });
    assert!(!known, "expected the metadata of a dead peer to be dropped");
    outcome.fenced = give_back(rig, draft, &posted);
    look(rig, draft, &outcome);
    let newcomer = rig.newcomer();
    rig.replace_target(newcomer);
    rig.meet_anew();
    forget_notifications(rig, draft);
    outcome
}

pub(super) fn kill_initiator(rig: &mut Rig, draft: &Draft, times: &mut Times) -> Outcome {
    let posted = post(rig, draft);
    let killed = {
        let tickets = posted.begin(rig);
        sleep_until(posted.at);
        let killed = rig.a.worker.kill();
        // Nobody is left to answer.
        drop(tickets);
        killed
    };
    let event = lost(&rig.b.worker, "a");
    expect_died(rig, &event);
    times.push(death(rig), killed, event.stamp);
    // What the dead one could write or read is free.
    let regions =
        if draft.write { rig.b.pools.map(|pool| pool.region).to_vec() } else { vec![rig.b.source.region] };
    let free = rig.b.worker.ask::<()>(&Request::Deregister { regions, timeout_ms: Some(10_000) });
    free.unwrap_or_else(|e| {
        panic!("expected the memory of a dead initiator's target to be free, found {e:?}")
    });
    let mut outcome =
        Outcome { ends: vec![None; draft.transfers.len()], gone: !draft.write, ..Outcome::default() };
    outcome.unfinished = draft.write && rig.audit(draft, 0).groups[0].poison > 0;
    look(rig, draft, &outcome);
    let b = &mut rig.b;
    if draft.write {
        b.pools = b.pools.map(|pool| b.worker.register(pool.buffer));
    } else {
        b.source = b.worker.register(b.source.buffer);
    }
    rig.hear(0);
    rig.replace_initiator();
    rig.meet_anew();
    outcome
}

pub(super) fn replace(rig: &mut Rig, draft: &Draft) -> Outcome {
    let (newcomer, proxy) = rig.newcomer();
    let posted = post(rig, draft);
    let (_, tickets) = break_in(rig, &posted, |rig| {
        let a = &rig.a.worker;
        match &proxy {
            Some(proxy) => proxy.introduce(a, &newcomer.worker),
            None => crate::harness::link(a, &newcomer.worker),
        }
        now_ns()
    });
    let event = rig.a.worker.event("restarted", "b");
    event.unwrap_or_else(|e| panic!("expected the event of a restart, found {e:?}"));
    let mut outcome = Outcome { ends: ends(rig, draft, &posted, tickets), ..Outcome::default() };
    outcome.fenced = give_back(rig, draft, &posted);
    look(rig, draft, &outcome);
    settle(rig, draft, &outcome);
    rig.hear(0);
    rig.replace_target((newcomer, proxy));
    let up = rig.b.worker.event("up", "a");
    up.unwrap_or_else(|e| panic!("expected a to be up at the newcomer, found {e:?}"));
    forget_notifications(rig, draft);
    outcome
}

pub(super) fn stop(rig: &mut Rig, draft: &Draft) -> Outcome {
    let posted = post(rig, draft);
    let main = posted.transfers[0];
    let (stopped, tickets) = break_in(rig, &posted, |rig| {
        rig.b.worker.stop();
        now_ns()
    });
    let cancel = |timeout_ms| rig.a.worker.ask::<()>(&Request::Cancel { transfer: main, timeout_ms });
    let quiet = cancel(None);
    let allowed = match draft.way {
        super::act::Way::Tcp => "cancel.fenced",
        super::act::Way::MapByTarget => "cancel.still_running",
        _ => "",
    };
    let code = quiet.as_ref().err().map_or("", |failure| failure.code.as_str());
    if !(code.is_empty() || code == allowed) {
        rig.b.worker.resume();
        panic!("expected the cancel beside a stopped target to be Ok or {allowed:?}, found {quiet:?}");
    }
    let pool = rig.b.pools[0].buffer;
    let promised = draft.write && code != "cancel.still_running";
    let before = promised.then(|| rig.b.worker.peek(pool));
    rig.b.worker.resume();
    let held = Duration::from_nanos(now_ns() - stopped);
    if let Some(before) = before {
        std::thread::sleep(draft.watch.max(Duration::from_millis(60)));
        let after = rig.b.worker.peek(pool);
        let changed = before.iter().zip(&after).filter(|(old, new)| old != new).count();
        assert_eq!(
            changed, 0,
            "expected no byte to land after the cancel said {quiet:?} and the target went on"
        );
    }
    // Stopped for long, because the machine was slow, it counts as silent.
    let known: bool = rig.a.worker.expect(&Request::Check { peer: "b".into() });
    let draft = &if known {
        draft.clone()
    } else {
        assert!(
            draft.way.is_tcp() && held > PEER_TIMEOUT * 6 / 10,
            "expected a peer that was stopped for {held:?} to be known"
        );
        Draft { act: Act::Silence, ..draft.clone() }
    };
    if known {
        let again = cancel(Some(10_000));
        again.unwrap_or_else(|e| panic!("expected a cancel that is Ok once the target goes on, found {e:?}"));
    }
    let mut outcome = Outcome { ends: ends(rig, draft, &posted, tickets), ..Outcome::default() };
    outcome.fenced = give_back(rig, draft, &posted);
    settle(rig, draft, &outcome);
    if !known {
        rig.meet();
        outcome.fenced = false;
    }
    look(rig, draft, &outcome);
    outcome
}

pub(super) fn wire(rig: &mut Rig, draft: &Draft, times: &mut Times) -> Outcome {
    let posted = post(rig, draft);
    let numbers = rig.ledger.reserve(draft.chatter.0);
    let (count, gap_us) = draft.chatter;
    let talk = (count > 0).then(|| {
        let request = Request::Chatter { peer: "b".into(), from: numbers, count, gap_us };
        rig.a.worker.begin_aside::<u64>(&request)
    });
    let main = posted.transfers[0];
    let tickets: Vec<Result<(), Failure>> = posted.begin(rig).into_iter().map(Ticket::finish).collect();
    let end = rig.a.worker.begin_aside::<State>(&Request::Wait { transfer: main, timeout_ms: END_MS });
    sleep_until(posted.at);
    let broke = sever(rig, draft.act);
    let (stamp, state) = end.finish_stamped();
    let state = state.unwrap_or_else(|e| panic!("expected an end of the main transfer, found {e:?}"));
    expect_end(draft, 0, &state);
    if draft.act == Act::Silence {
        let event = lost(&rig.a.worker, "b");
        assert_eq!(event.cause, "it was silent for longer than the peer time-out");
        times.push(Bound::Silence, broke, event.stamp);
    } else if draft.act != Act::HalfOpen && state != State::Done {
        times.push(Bound::Broken, broke, stamp);
        let connect = Request::Connect { peer: "b".into(), timeout_ms: 5_000 };
        let (again, connected) = rig.a.worker.begin_aside::<()>(&connect).finish_stamped();
        connected.unwrap_or_else(|e| panic!("expected the link to be mended, found {e:?}"));
        times.push(Bound::Reconnect, broke, again);
    }
    let mut outcome = Outcome { ends: ends(rig, draft, &posted, tickets), ..Outcome::default() };
    outcome.fenced = give_back(rig, draft, &posted);
    // How many were taken depends on when the link broke.
    let _: Option<Result<u64, Failure>> = talk.map(Ticket::finish);
    look(rig, draft, &outcome);
    settle(rig, draft, &outcome);
    mend(rig, draft.act);
    if outcome.fenced {
        // A new epoch begins when nobody reads from the old one any more.
        outcome.fenced = false;
        look(rig, draft, &outcome);
    }
    outcome
}

/// Breaks connections; returns when.
fn sever(rig: &Rig, act: Act) -> u64 {
    let proxy = rig.proxy();
    match act {
        Act::HalfOpen => {
            proxy.hold(true);
            proxy.shut(true);
            std::thread::sleep(A_MOMENT);
        }
        Act::Silence => proxy.swallow(true),
        _ => {}
    }
    let stamp = now_ns();
    match act {
        Act::Reset => proxy.reset(),
        Act::ResetOne => proxy.reset_one(),
        Act::Finish => proxy.finish(),
        Act::HalfOpen => proxy.finish_near(),
        _ => {}
    }
    stamp
}

/// Makes the way good again, and connects.
fn mend(rig: &Rig, act: Act) {
    let proxy = rig.proxy();
    match act {
        Act::HalfOpen | Act::Silence => {
            // What is still held comes, on connections that the initiator has given up.
            proxy.hold(false);
            std::thread::sleep(A_MOMENT);
            proxy.reset();
            proxy.shut(false);
            proxy.swallow(false);
            rig.meet();
        }
        _ => {
            let known: bool = rig.a.worker.expect(&Request::Check { peer: "b".into() });
            assert!(known, "expected the metadata of a living peer to stay when its link breaks");
            let connected = rig.a.worker.connect("b");
            connected.unwrap_or_else(|e| panic!("expected the link to be mended, found {e:?}"));
        }
    }
}
