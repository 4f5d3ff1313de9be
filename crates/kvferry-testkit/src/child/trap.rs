//! The engine's pause points, armed by request.

use std::{
    sync::{Condvar, Mutex},
    time::Duration,
};

use kvferry::testing::{Point, set_hook};

use crate::harness::{Place, Trap, TrapAct};

/// A thread is held for no longer: a test that fails must not leave the engine hanging.
const LONGEST: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct State {
    trap: Option<Trap>,
    passed: u64,
    held: u64,
}

static STATE: Mutex<State> = Mutex::new(State { trap: None, passed: 0, held: 0 });
static SPRUNG: Condvar = Condvar::new();

/// Hooks the engine. Once, for the hook itself can't be changed while a thread is in it.
pub(super) fn install() {
    set_hook(Some(Box::new(|point| {
        let place = match point {
            Point::BeforeCopy => Place::Copy,
            Point::BeforeNotify => Place::Notify,
            _ => return,
        };
        pass(place);
    })));
}

pub(super) fn arm(trap: Trap) {
    *lock() = State { trap: Some(trap), passed: 0, held: 0 };
}

/// How many threads are held, and how many have come by.
pub(super) fn trapped() -> (u64, u64) {
    let state = lock();
    (state.held, state.passed)
}

pub(super) fn spring() {
    lock().trap = None;
    SPRUNG.notify_all();
}

fn pass(place: Place) {
    let mut state = lock();
    let Some(trap) = state.trap.filter(|trap| trap.place == place) else { return };
    state.passed += 1;
    if state.passed <= trap.after {
        return;
    }
    match trap.act {
        TrapAct::Stop => {
            state.trap = None;
            drop(state);
            stop();
        }
        TrapAct::Hold => {
            state.held += 1;
            let armed = |state: &mut State| state.trap.is_some();
            let waited = SPRUNG.wait_timeout_while(state, LONGEST, armed);
            waited.unwrap_or_else(|e| e.into_inner()).0.held -= 1;
        }
    }
}

/// Stops the whole process until somebody continues it.
fn stop() {
    // SAFETY: a signal to ourselves; the kernel stops this thread before the call returns.
    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
}

fn lock() -> std::sync::MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(|e| e.into_inner())
}
