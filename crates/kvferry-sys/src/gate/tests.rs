use super::*;

#[test]
fn the_last_one_out_of_an_exhausted_gate_hears_that_it_is_finished() {
    let gate = ChunkGate::new();
    assert!(gate.enter() && gate.enter());
    assert_eq!(gate.exhaust(), GateState::Pending);
    assert!(!gate.enter(), "there is nothing left to go in for");
    assert_eq!(gate.exit(), GateState::Pending);
    assert_eq!(gate.exit(), GateState::Finished);
    assert_eq!(gate.exit(), GateState::Pending, "an exit too many changes nothing");
    assert_eq!(gate.exhaust(), GateState::Pending, "it was told once");
}

#[test]
fn an_empty_gate_is_finished_by_who_exhausts_it() {
    let gate = ChunkGate::new();
    assert!(gate.enter());
    assert_eq!(gate.exit(), GateState::Pending, "there may be more chunks");
    assert_eq!(gate.exhaust(), GateState::Finished);
    assert_eq!(gate.exhaust(), GateState::Pending);
}

#[test]
fn a_stopped_gate_is_quiet_once_the_last_is_out() {
    let gate = ChunkGate::new();
    assert!(gate.enter());
    assert_eq!(gate.stop(), GateState::Pending);
    assert!(!gate.enter() && !gate.is_quiet());
    assert_eq!(gate.exhaust(), GateState::Pending);
    assert_eq!(gate.exit(), GateState::Quiet, "a stop outweighs the end of the chunks");
    assert!(gate.is_quiet());
    assert_eq!(gate.stop(), GateState::Pending, "it was told once");
}

#[test]
fn who_stops_an_empty_gate_hears_that_it_is_quiet() {
    let gate = ChunkGate::new();
    assert_eq!(gate.stop(), GateState::Quiet);
    assert_eq!(gate.stop(), GateState::Pending);
    assert!(gate.is_quiet());
}

#[test]
fn a_gate_is_reset_only_when_nobody_is_inside() {
    let gate = ChunkGate::new();
    assert!(gate.enter());
    gate.stop();
    assert!(!gate.reset());
    assert_eq!(gate.exit(), GateState::Quiet);
    assert!(gate.reset());
    assert!(gate.enter() && !gate.is_quiet());
}

#[test]
fn who_opens_the_gate_from_inside_is_the_last_to_leave_it() {
    let gate = ChunkGate::new();
    assert_eq!(gate.exhaust(), GateState::Finished);
    assert!(gate.reset_and_enter());
    assert!(!gate.reset_and_enter() && !gate.reset(), "somebody is inside");
    assert!(gate.enter());
    gate.exhaust();
    assert_eq!(gate.exit(), GateState::Pending);
    assert_eq!(gate.exit(), GateState::Finished);
    assert!(gate.reset_and_enter());
    assert_eq!(gate.stop(), GateState::Pending, "nothing is quiet before the way out");
    assert_eq!(gate.exit(), GateState::Quiet);
}
