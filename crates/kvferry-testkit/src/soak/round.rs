//! One round: transfers, an act in their midst, and a look at every byte.

use super::{
    act::{Act, Draft},
    bounds::{Bound, Times},
    breaks,
    ledger::Due,
    rig::{Rig, ending, expect_part, expect_untouched, late},
};
use crate::harness::{Failure, Received, Request, State, Ticket, now_ns};

/// How long the end of a transfer is waited for, in milliseconds.
pub(super) const END_MS: u64 = 20_000;

/// The transfers of a round, posted, and when.
pub(super) struct Posted {
    /// When the main one is posted, by the monotonic clock.
    pub(super) start: u64,
    /// When the act is to come.
    pub(super) at: u64,
    pub(super) transfers: Vec<u64>,
}

/// What became of a round's transfers.
#[derive(Default)]
pub(super) struct Outcome {
    /// How each ended, where it is known.
    pub(super) ends: Vec<Option<State>>,
    /// Somebody may still write: nothing is said about bytes.
    pub(super) fenced: bool,
    /// Marks stand in the main pool.
    pub(super) marked: bool,
    /// Nobody can look at the pools any more.
    pub(super) gone: bool,
    /// The main transfer did not come to its end, though nobody could say so.
    pub(super) unfinished: bool,
}

impl Outcome {
    fn was_inside(&self) -> bool {
        match self.ends.first() {
            Some(Some(end)) => *end != State::Done,
            _ => self.unfinished,
        }
    }

    fn is_done(&self, index: usize) -> bool {
        self.ends.get(index).is_some_and(|end| *end == Some(State::Done))
    }
}

/// Plays a round. Returns whether the act came while the main transfer was on its way.
///
/// # Panics
/// Something is not as promised: what was expected, and what was found.
pub(super) fn play(rig: &mut Rig, draft: &Draft, times: &mut Times) -> bool {
    let receiver = rig.receiver(draft.write);
    receiver.pools.iter().for_each(|pool| receiver.worker.poison(pool.buffer));
    rig.forget_events();
    let outcome = match draft.act {
        Act::KillTarget => breaks::kill_target(rig, draft, times),
        Act::KillInitiator => breaks::kill_initiator(rig, draft, times),
        Act::Replace => breaks::replace(rig, draft),
        Act::Stop => breaks::stop(rig, draft),
        Act::Reset | Act::ResetOne | Act::Finish | Act::HalfOpen | Act::Silence => {
            breaks::wire(rig, draft, times)
        }
        _ => gentle(rig, draft, times),
    };
    rig.prove_life(draft);
    rig.look_for_leaks();
    outcome.was_inside()
}

/// Creates the transfers of a draft and has them posted, the main one last.
pub(super) fn post(rig: &mut Rig, draft: &Draft) -> Posted {
    let transfers: Vec<u64> = (0..draft.transfers.len()).map(|index| rig.transfer(draft, index)).collect();
    let start = now_ns() + 2_000_000;
    let moment = (rig.whole_ns[usize::from(draft.write)] as f64 * draft.moment) as u64;
    Posted { start, at: start + moment, transfers }
}

impl Posted {
    /// Has the others posted at once, and the main one at its time.
    pub(super) fn begin<'a>(&self, rig: &'a Rig) -> Vec<Ticket<'a, ()>> {
        let worker = &rig.a.worker;
        let others = self.transfers[1..].iter().map(|&transfer| worker.begin(&Request::Post { transfer }));
        let mut tickets: Vec<_> = others.collect();
        tickets.insert(0, worker.begin_at(self.start, &Request::Post { transfer: self.transfers[0] }));
        tickets
    }
}

/// How each transfer ended, after it was posted or refused.
///
/// # Panics
/// One does not end, or not as the act allows.
pub(super) fn ends(
    rig: &Rig,
    draft: &Draft,
    posted: &Posted,
    tickets: Vec<Result<(), Failure>>,
) -> Vec<Option<State>> {
    let each = posted.transfers.iter().zip(tickets).enumerate();
    each.map(|(index, (&transfer, ticket))| {
        if let Err(refused) = ticket {
            assert!(late(draft.act, &refused), "expected transfer {index} to be posted, found {refused:?}");
            return None;
        }
        if index == 0 && draft.act == Act::Release {
            return None;
        }
        let state = rig.a.worker.wait(transfer, END_MS);
        let state = state.unwrap_or_else(|e| panic!("expected an end of transfer {index}, found {e:?}"));
        expect_end(draft, index, &state);
        Some(state)
    })
    .collect()
}

/// Makes sure that a transfer ended as the act allows.
pub(super) fn expect_end(draft: &Draft, index: usize, state: &State) {
    let allowed = draft.act.endings(draft.way, index == 0);
    let found = ending(state);
    assert!(
        allowed.contains(&found),
        "expected transfer {index} to end as one of {allowed:?}, found {state:?}"
    );
}

/// What follows for the notifications of the transfers.
pub(super) fn settle(rig: &mut Rig, draft: &Draft, outcome: &Outcome) {
    for (index, end) in outcome.ends.iter().enumerate() {
        let due = match end {
            Some(State::Done) => Due::Must,
            Some(State::Cancelled) => Due::Never,
            Some(State::Failed(failure)) if failure.code == "region.revoked" => Due::Never,
            _ => Due::May,
        };
        rig.ledger.settle(&format!("transfer {}.{index}", draft.round), due);
    }
}

/// Watches both pools and makes sure that they hold what they may.
pub(super) fn look(rig: &Rig, draft: &Draft, outcome: &Outcome) {
    if outcome.gone || outcome.fenced {
        return;
    }
    let first = rig.audit(draft, 0);
    std::thread::sleep(draft.watch);
    let main = rig.audit(draft, 0);
    assert_eq!(main, first, "expected memory that stays as it is after its end");
    expect_part(draft.way, &main.groups[0], outcome.is_done(0), "the main transfer");
    expect_untouched(&main.outside, "the main pool");
    if outcome.marked {
        let marks = main.groups[0].marks + main.outside.marks;
        let expected = (main.groups[0].words + main.outside.words) * 8 / draft.block;
        assert_eq!(marks, expected, "expected no word to land after the memory was handed back: {main:?}");
    }
    if draft.transfers.len() > 1 {
        let side = rig.audit(draft, 1);
        for (index, part) in (1..).zip(&side.groups) {
            expect_part(draft.way, part, outcome.is_done(index), &format!("transfer {index}"));
        }
        expect_untouched(&side.outside, "the side pool");
    }
}

/// Lets nothing break: at most memory is taken back.
fn gentle(rig: &mut Rig, draft: &Draft, times: &mut Times) -> Outcome {
    let posted = post(rig, draft);
    let main = posted.transfers[0];
    let numbers = rig.ledger.reserve(draft.chatter.0);
    let ears = (draft.chatter.0 > 0 && draft.act == Act::Whole).then(|| listen(rig, draft));
    let talk = (draft.chatter.0 > 0).then(|| chatter(rig, draft, numbers));
    let tickets = posted.begin(rig);
    let acted = act(rig, draft, main).map(|(worker_is_a, request)| {
        let actor = if worker_is_a { &rig.a } else { &rig.b };
        let (returned, done) = actor.worker.begin_at::<()>(posted.at, &request).finish_stamped();
        // From here on a word that lands destroys a mark.
        if done.is_ok() && vouches(draft) {
            let receiver = rig.receiver(draft.write);
            let buffer = receiver.pools[0].buffer.index;
            receiver.worker.expect::<()>(&Request::Mark { buffer, offset: draft.mark, step: draft.block });
        }
        (returned, done)
    });
    if let Some((_, Err(failure))) = &acted {
        panic!("expected the {} to be Ok, found {failure:?}", draft.act);
    }
    let tickets = tickets.into_iter().map(Ticket::finish).collect();
    let mut outcome = Outcome {
        ends: ends(rig, draft, &posted, tickets),
        marked: acted.is_some() && vouches(draft),
        ..Outcome::default()
    };
    let ended = now_ns();
    if draft.act == Act::Whole {
        rig.expect_route(main);
    }
    let taken = talk.map(Ticket::finish);
    let heard = ears.map_or_else(Vec::new, |ears| {
        ears.finish().unwrap_or_else(|e| panic!("expected notifications, found {e:?}"))
    });
    repost(rig, draft, main, &mut outcome);
    outcome.fenced = give_back(rig, draft, &posted);
    if outcome.ends[0].is_none() {
        outcome.unfinished = rig.audit(draft, 0).groups[0].poison > 0;
    }
    if let Some((returned, _)) = acted {
        measure(rig, draft, &outcome, posted.at, returned, times);
    }
    settle(rig, draft, &outcome);
    let expected = match taken {
        None => 0,
        Some(Ok(count)) if draft.act.is_gentle() => {
            assert_eq!(count, draft.chatter.0, "expected all bare notifications to be taken");
            count as usize
        }
        Some(_) => 0,
    };
    hear(rig, draft, heard, expected, ended, times);
    look(rig, draft, &outcome);
    let fenced = std::mem::take(&mut outcome.fenced);
    repair(rig, draft);
    if fenced {
        // A new epoch begins when nobody reads from the old one any more.
        look(rig, draft, &outcome);
    }
    outcome
}

/// Whom the act asks for what.
fn act(rig: &Rig, draft: &Draft, transfer: u64) -> Option<(bool, Request)> {
    let timeout_ms = None;
    let deregister = |region| Request::Deregister { regions: vec![region], timeout_ms };
    Some(match draft.act {
        Act::Cancel => (true, Request::Cancel { transfer, timeout_ms }),
        Act::Release => (true, Request::Release { transfer, timeout_ms }),
        Act::DeregisterPool => (!draft.write, deregister(rig.receiver(draft.write).pools[0].region)),
        Act::DeregisterSource => (draft.write, deregister(rig.sender(draft.write).source.region)),
        Act::DisconnectHere => (true, Request::Disconnect { peer: "b".into(), timeout_ms }),
        Act::DisconnectThere => (false, Request::Disconnect { peer: "a".into(), timeout_ms }),
        _ => return None,
    })
}

/// Whether the act's Ok speaks for the memory that is written to: a wire takes nothing back from the other end, so whoever
/// deregisters or disconnects vouches for its own memory alone.
fn vouches(draft: &Draft) -> bool {
    match draft.act {
        Act::Cancel | Act::Release | Act::DeregisterPool => true,
        Act::DeregisterSource => !draft.way.is_tcp(),
        Act::DisconnectHere => !draft.way.is_tcp() || !draft.write,
        Act::DisconnectThere => !draft.way.is_tcp() || draft.write,
        _ => false,
    }
}

/// Bare notifications beside the transfers.
fn chatter<'a>(rig: &'a Rig, draft: &Draft, from: u64) -> Ticket<'a, u64> {
    let (count, gap_us) = draft.chatter;
    rig.a.worker.begin_aside(&Request::Chatter { peer: "b".into(), from, count, gap_us })
}

/// Takes notifications as they come, with their times, until all of the round are there.
fn listen<'a>(rig: &'a Rig, draft: &Draft) -> Ticket<'a, Vec<Received>> {
    let count = draft.chatter.0 as usize + draft.notify.iter().filter(|notify| **notify).count();
    rig.b.worker.begin_aside(&Request::AwaitNotifications { count, timeout_ms: END_MS })
}

/// Makes sure that `bare` bare notifications came, some of which were heard, and whatever else must have.
fn hear(rig: &mut Rig, draft: &Draft, heard: Vec<Received>, bare: usize, ended: u64, times: &mut Times) {
    let deadline = now_ns() + 5_000_000_000;
    let mut heard = rig.ledger.hear("a", &heard);
    heard.extend(rig.hear(0));
    while heard.len() < bare && now_ns() < deadline {
        heard.extend(rig.hear(1));
    }
    assert!(heard.len() >= bare, "expected {bare} bare notifications, found {}", heard.len());
    let bound = if draft.way.is_tcp() { Bound::BareTcp } else { Bound::BareSameHost };
    // Those that were sent while data moved.
    for (issued, came) in heard.into_iter().filter(|(issued, _)| draft.act == Act::Whole && *issued < ended) {
        times.push(bound, issued, came);
    }
    rig.hear_the_rest(draft.round);
}

/// After a cancel the same handle goes all the way.
fn repost(rig: &Rig, draft: &Draft, transfer: u64, outcome: &mut Outcome) {
    if draft.act != Act::Cancel || outcome.ends[0] != Some(State::Cancelled) || draft.notify[0] {
        return;
    }
    // What is there now is looked at first: the next attempt covers it up.
    look(rig, draft, outcome);
    let receiver = rig.receiver(draft.write);
    receiver.worker.poison(receiver.pools[0].buffer);
    outcome.marked = false;
    rig.a.worker.post(transfer).unwrap_or_else(|e| panic!("expected a second attempt, found {e:?}"));
    let state = rig.a.worker.wait(transfer, END_MS);
    assert_eq!(state, Ok(State::Done), "expected the second attempt to go all the way");
    let again = rig.audit(draft, 0);
    expect_part(draft.way, &again.groups[0], true, "the second attempt");
    outcome.ends[0] = Some(State::Cancelled);
}

/// Gives all transfers back; true if one was fenced.
pub(super) fn give_back(rig: &Rig, draft: &Draft, posted: &Posted) -> bool {
    let mut fenced = false;
    for (index, &transfer) in posted.transfers.iter().enumerate() {
        if !(index == 0 && draft.act == Act::Release) {
            fenced |= rig.release(draft, transfer);
        }
    }
    fenced
}

/// Takes in how long the act took to return, where it came in the midst of the transfer.
fn measure(rig: &mut Rig, draft: &Draft, outcome: &Outcome, at: u64, returned: u64, times: &mut Times) {
    let tcp = draft.way.is_tcp();
    let inside = outcome.was_inside();
    let bound = match draft.act {
        Act::Cancel | Act::Release if tcp => Bound::CancelTcp,
        Act::Cancel | Act::Release => Bound::CancelSameHost,
        Act::DeregisterPool | Act::DeregisterSource if tcp => Bound::DeregisterTcp,
        Act::DeregisterPool | Act::DeregisterSource => Bound::DeregisterSameHost,
        _ => return,
    };
    if inside {
        times.push(bound, at, returned);
    }
    // Longer while acts come early, shorter while they come late, whatever the machine gives us just now.
    let window = &mut rig.whole_ns[usize::from(draft.write)];
    *window = (if inside { *window * 21 / 20 } else { *window * 17 / 20 }).clamp(1_000_000, 200_000_000);
}

/// Makes the next round possible.
fn repair(rig: &mut Rig, draft: &Draft) {
    match draft.act {
        Act::DeregisterPool => {
            let side = rig.receiver_mut(draft.write);
            side.pools[0] = side.worker.register(side.pools[0].buffer);
        }
        Act::DeregisterSource => {
            let side = rig.sender_mut(draft.write);
            side.source = side.worker.register(side.source.buffer);
        }
        Act::DisconnectHere | Act::DisconnectThere => {
            let lost = rig.a.worker.event("lost", "b");
            lost.unwrap_or_else(|e| panic!("expected the loss of b at a, found {e:?}"));
        }
        _ => return,
    }
    rig.meet();
}
