//! Points at which tests can stop the engine, and conditions that they can inject. Without the feature `testing` all of this
//! is empty.

#[cfg(feature = "testing")]
pub use enabled::*;

#[cfg(not(feature = "testing"))]
pub(crate) use disabled::*;

/// A place in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Point {
    /// An attempt has begun, what belongs to it is not in its place yet.
    Posted,
    /// An attempt has begun, its operations have not.
    BeforeSubmit,
    /// A copier has checked the epochs and is about to copy a chunk.
    BeforeCopy,
    /// A transfer's data is visible, its notification has not been handed on.
    BeforeNotify,
}

#[cfg(feature = "testing")]
mod enabled {
    use std::sync::{
        RwLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    };

    use kvferry_sys::{CmaError, Errno, Facts, Pid};

    use super::Point;

    type Hook = Box<dyn Fn(Point) + Send + Sync>;

    static HOOK: RwLock<Option<Hook>> = RwLock::new(None);
    static YAMA: AtomicBool = AtomicBool::new(false);

    /// Calls `hook` at every pause point of every agent in this process; `None` ends that.
    pub fn set_hook(hook: Option<Hook>) {
        *HOOK.write().unwrap_or_else(|e| e.into_inner()) = hook;
    }

    /// Makes this process see Yama's ptrace scope 1: probes fail with EPERM.
    pub fn inject_yama(on: bool) {
        YAMA.store(on, SeqCst);
    }

    pub(crate) fn pause(point: Point) {
        if let Some(hook) = &*HOOK.read().unwrap_or_else(|e| e.into_inner()) {
            hook(point);
        }
    }

    pub(crate) fn facts(mut facts: Facts) -> Facts {
        if YAMA.load(SeqCst) {
            facts.yama_scope = Some(1);
            facts.cap_sys_ptrace = false;
        }
        facts
    }

    pub(crate) fn probe(pid: Pid, addr: u64, expect: u64, write_back: u64) -> Result<(), CmaError> {
        if YAMA.load(SeqCst) {
            return Err(CmaError::Denied(Errno::PERM));
        }
        kvferry_sys::probe(pid, addr, expect, write_back)
    }
}

#[cfg(not(feature = "testing"))]
mod disabled {
    use kvferry_sys::Facts;
    pub(crate) use kvferry_sys::probe;

    use super::Point;

    #[inline(always)]
    pub(crate) fn pause(_: Point) {}

    #[inline(always)]
    pub(crate) fn facts(facts: Facts) -> Facts {
        facts
    }
}
