//! Stops copy threads at a pause point of the engine.
//!
//! The hook of [`kvferry::testing::set_hook`] belongs to the process. nextest gives each test a process of its own; under
//! `cargo test`, where tests are threads of one process, [`Pause`] and [`unpaused`] keep those of a file apart that stop the engine
//! and those that must not be stopped.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

pub use kvferry::testing::Point;

use crate::pair::PATIENCE;

static ALONE: RwLock<()> = RwLock::new(());

/// Promises that no engine is stopped by another test of this process while the value lives.
pub fn unpaused() -> RwLockReadGuard<'static, ()> {
    ALONE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Everything that comes to a point stops there until it is let go. Dropping it lets all go.
#[derive(Debug)]
pub struct Pause {
    gate: Arc<Gate>,
    _alone: RwLockWriteGuard<'static, ()>,
}

/// Everything that comes to a point sleeps there for a while: a copy takes long enough to be interrupted, however fast or
/// busy the machine is. Dropping it ends that.
#[derive(Debug)]
pub struct Slow {
    _alone: RwLockWriteGuard<'static, ()>,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How many have come so far.
    came: usize,
    /// How many of them may go on.
    allowed: usize,
    open: bool,
}

/// Notes the names of the threads that come to a point. Dropping it ends that.
#[derive(Debug)]
pub struct Witness {
    names: Arc<Mutex<Vec<String>>>,
    _alone: RwLockWriteGuard<'static, ()>,
}

impl Witness {
    /// Notes all that come to `point` from now on.
    pub fn at(point: Point) -> Self {
        let alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
        let names = Arc::new(Mutex::new(Vec::new()));
        let theirs = names.clone();
        kvferry::testing::set_hook(Some(Box::new(move |at| {
            if at == point {
                let name = std::thread::current().name().unwrap_or_default().to_owned();
                theirs.lock().unwrap_or_else(PoisonError::into_inner).push(name);
            }
        })));
        Self { names, _alone: alone }
    }

    /// The names so far; the list begins anew.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        kvferry::testing::set_hook(None);
    }
}

impl Slow {
    /// From now on everything that comes to `point` sleeps there for `time`.
    pub fn at(point: Point, time: Duration) -> Self {
        let alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
        kvferry::testing::set_hook(Some(Box::new(move |at| {
            if at == point {
                std::thread::sleep(time);
            }
        })));
        Self { _alone: alone }
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        kvferry::testing::set_hook(None);
    }
}

impl Pause {
    /// From now on everything stops at `point`.
    pub fn at(point: Point) -> Self {
        Self::with(point, |_| {})
    }

    /// From now on everything stops at `point`, and what comes to other points does `elsewhere`.
    pub fn with(point: Point, elsewhere: impl Fn(Point) + Send + Sync + 'static) -> Self {
        let alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
        let gate = Arc::new(Gate::default());
        let theirs = gate.clone();
        kvferry::testing::set_hook(Some(Box::new(move |at| {
            if at == point {
                theirs.pass();
            } else {
                elsewhere(at);
            }
        })));
        Self { gate, _alone: alone }
    }

    /// Waits until `count` in all have come to the point.
    ///
    /// # Panics
    /// They do not come.
    #[track_caller]
    pub fn await_arrivals(&self, count: usize) {
        let state = self.gate.lock();
        let wait = self.gate.changed.wait_timeout_while(state, PATIENCE, |state| state.came < count);
        let (state, _) = wait.unwrap_or_else(PoisonError::into_inner);
        assert!(state.came >= count, "{} of {count} came to the pause point", state.came);
    }

    /// How many have come to the point so far.
    pub fn arrivals(&self) -> usize {
        self.gate.lock().came
    }

    /// Lets `count` more go on, those that came first.
    pub fn allow(&self, count: usize) {
        self.gate.lock().allowed += count;
        self.gate.changed.notify_all();
    }

    /// Lets all go on, also those who come later.
    pub fn open(&self) {
        self.gate.lock().open = true;
        self.gate.changed.notify_all();
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        // First: the hook is not replaced while anybody is in it.
        self.open();
        kvferry::testing::set_hook(None);
    }
}

impl Gate {
    fn pass(&self) {
        let mut state = self.lock();
        let number = state.came;
        state.came += 1;
        self.changed.notify_all();
        while !state.open && state.allowed <= number {
            // Looked at again now and then, so that a forgotten thread does not hang for ever at the end of a test.
            let wait = self.changed.wait_timeout(state, Duration::from_millis(100));
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
