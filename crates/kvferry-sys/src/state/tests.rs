use std::sync::Barrier;

use proptest::prelude::*;

use super::*;

#[test]
fn a_transfer_goes_from_post_to_done_and_may_be_posted_again() {
    let word = StateWord::new();
    assert_eq!(word.snapshot(), Snapshot { attempt: 0, phase: Phase::Created, inflight: 0 });
    let first = word.post().unwrap();
    assert_eq!(word.post(), Err(PostRefused::Active));
    assert!(word.enter(first) && word.enter(first));
    assert_eq!(word.snapshot(), Snapshot { attempt: first, phase: Phase::Running, inflight: 2 });
    assert_eq!(word.exit().inflight, 1);
    assert!(word.land(first));
    assert!(!word.enter(first), "nothing begins once the data is there");
    assert_eq!(word.post(), Err(PostRefused::Active));
    assert!(word.finish(first, Phase::Done));
    assert_eq!(word.post(), Err(PostRefused::NotQuiet));
    assert!(word.exit().is_quiet());
    let second = word.post().unwrap();
    assert_ne!(second, first);
    assert!(
        !word.enter(first) && !word.land(first) && !word.finish(first, Phase::Failed),
        "the old attempt is over"
    );
}

#[test]
fn one_end_wins() {
    let word = StateWord::new();
    assert_eq!(word.cancel(), None, "nothing is under way");
    let attempt = word.post().unwrap();
    assert!(!word.finish(attempt, Phase::Running), "that is no end");
    assert_eq!(word.cancel(), Some(attempt));
    assert!(!word.finish(attempt, Phase::Done));
    assert_eq!(word.cancel(), None);
    assert_eq!(word.snapshot().phase, Phase::Cancelled);
}

#[test]
fn a_transfer_that_landed_is_not_cancelled_any_more() {
    let word = StateWord::new();
    let attempt = word.post().unwrap();
    assert!(word.land(attempt));
    assert_eq!(word.cancel(), None);
    assert!(word.finish(attempt, Phase::Done));
}

#[test]
fn a_cancelled_transfer_is_quiet_only_when_the_last_copy_is_out() {
    let word = StateWord::new();
    let attempt = word.post().unwrap();
    assert!(word.enter(attempt));
    assert_eq!(word.cancel(), Some(attempt));
    assert!(!word.snapshot().is_quiet());
    assert!(word.exit().is_quiet());
    assert_eq!(word.exit(), word.snapshot(), "an exit too many changes nothing");
}

#[test]
fn the_number_in_flight_does_not_spill_into_the_attempt() {
    let word = StateWord::new();
    let attempt = word.post().unwrap();
    for _ in 0..u16::MAX {
        assert!(word.enter(attempt));
    }
    assert!(!word.enter(attempt));
    assert_eq!(word.snapshot(), Snapshot { attempt, phase: Phase::Running, inflight: u16::MAX });
}

#[test]
fn of_many_threads_that_post_one_wins() {
    let word = StateWord::new();
    for _ in 0..200 {
        let barrier = Barrier::new(4);
        let posted = std::thread::scope(|scope| {
            let post = || {
                barrier.wait();
                word.post().is_ok()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(post)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).filter(|&won| won).count()
        });
        assert_eq!(posted, 1);
        assert!(word.cancel().is_some());
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Post,
    Enter,
    EnterOld,
    Exit,
    Land,
    Finish(Phase),
    Cancel,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Post),
        Just(Step::Enter),
        Just(Step::EnterOld),
        Just(Step::Exit),
        Just(Step::Land),
        prop::sample::select(vec![
            Phase::Created,
            Phase::Running,
            Phase::Done,
            Phase::Failed,
            Phase::Cancelled
        ])
        .prop_map(Step::Finish),
        Just(Step::Cancel),
    ]
}

proptest! {
    /// The word against a plain struct that follows the documented rules.
    #[test]
    fn the_word_follows_its_rules(steps in prop::collection::vec(step(), 0..60)) {
        let word = StateWord::new();
        let mut model = word.snapshot();
        for step in steps {
            let (attempt, active) = (model.attempt, model.phase.is_active());
            let may_run = matches!(model.phase, Phase::Posted | Phase::Running);
            match step {
                Step::Post => {
                    let expected = !active && model.inflight == 0;
                    prop_assert_eq!(word.post().is_ok(), expected);
                    if expected {
                        model = Snapshot { attempt: attempt + 1, phase: Phase::Posted, inflight: 0 };
                    }
                }
                Step::Enter => {
                    prop_assert_eq!(word.enter(attempt), may_run);
                    if may_run {
                        model.phase = Phase::Running;
                        model.inflight += 1;
                    }
                }
                Step::EnterOld => prop_assert!(!word.enter(attempt.wrapping_sub(1))),
                Step::Exit => {
                    model.inflight = model.inflight.saturating_sub(1);
                    prop_assert_eq!(word.exit(), model);
                }
                Step::Land => {
                    prop_assert_eq!(word.land(attempt), may_run);
                    if may_run {
                        model.phase = Phase::Landed;
                    }
                }
                Step::Finish(phase) => {
                    let expected = active && phase.is_final();
                    prop_assert_eq!(word.finish(attempt, phase), expected);
                    if expected {
                        model.phase = phase;
                    }
                }
                Step::Cancel => {
                    prop_assert_eq!(word.cancel(), may_run.then_some(attempt));
                    if may_run {
                        model.phase = Phase::Cancelled;
                    }
                }
            }
            prop_assert_eq!(word.snapshot(), model);
        }
    }
}

#[test]
fn an_ended_attempt_is_held_until_it_is_quiet() {
    let word = StateWord::new();
    let first = word.post().unwrap();
    assert!(word.enter(first));
    assert!(!word.hold(first), "it has not ended");
    assert_eq!(word.cancel(), Some(first));
    assert!(word.hold(first) && !word.hold(first + 1));
    assert!(!word.exit().is_quiet());
    assert_eq!(word.post(), Err(PostRefused::NotQuiet));
    assert!(word.exit().is_quiet());
    assert!(!word.hold(first), "it is quiet");
    let second = word.post().unwrap();
    assert!(!word.hold(first) && !word.hold(second));
}
