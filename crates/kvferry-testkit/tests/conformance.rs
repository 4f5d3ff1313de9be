//! Every transport that this process can offer passes the conformance suite.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvferry::{Agent, Executor, Mechanism, Path, Route, Settings};
use kvferry_testkit::conformance::Fixture;
use kvferry_testkit::{
    LateEvidence, LateOptions, LateTransport, MemoryClass, Recording, Tap, Throttled, conformance, tapped,
    unique_name,
};

use MemoryClass::{Private, Shared};

/// The built-in transport between two agents of one process.
struct SameProcess {
    classes: (MemoryClass, MemoryClass),
    mechanism: Mechanism,
    executor: Executor,
}

const PRIVATE: SameProcess =
    SameProcess { classes: (Private, Private), mechanism: Mechanism::Cma, executor: Executor::Initiator };
const SHARED: SameProcess =
    SameProcess { classes: (Shared, Shared), mechanism: Mechanism::Map, executor: Executor::Initiator };
const PRIVATE_TO_SHARED: SameProcess =
    SameProcess { classes: (Private, Shared), mechanism: Mechanism::Map, executor: Executor::Initiator };
const SHARED_TO_PRIVATE: SameProcess =
    SameProcess { classes: (Shared, Private), mechanism: Mechanism::Map, executor: Executor::Target };

impl Fixture for SameProcess {
    fn agent(&self, stem: &str, settings: Settings) -> Agent {
        kvferry_testkit::agent_with(stem, settings)
    }

    fn classes(&self) -> (MemoryClass, MemoryClass) {
        self.classes
    }

    fn route(&self) -> Route {
        Route { path: Path::SameProcess, mechanism: self.mechanism, executor: self.executor }
    }
}

/// The transport whose operations start late and cannot be stopped.
struct Late(LateEvidence);

impl Fixture for Late {
    fn agent(&self, stem: &str, settings: Settings) -> Agent {
        let options = LateOptions { evidence: self.0, ..LateOptions::default() };
        let agent = Agent::builder(unique_name(stem)).settings(settings);
        agent.transport(LateTransport::new(options)).build().expect("an agent")
    }

    fn route(&self) -> Route {
        let (path, mechanism) = (Path::Other("late"), Mechanism::Other("late"));
        Route { path, mechanism, executor: Executor::Initiator }
    }

    fn unstoppable(&self) -> bool {
        true
    }
}

/// The built-in transport with taps in its way, which are judged in the end.
struct Tapped<T> {
    inner: SameProcess,
    tap: fn() -> Arc<T>,
    judge: fn(&T),
    taps: Mutex<Vec<Arc<T>>>,
}

impl<T: Tap> Tapped<T> {
    fn new(inner: SameProcess, tap: fn() -> Arc<T>, judge: fn(&T)) -> Self {
        Self { inner, tap, judge, taps: Mutex::default() }
    }
}

impl<T: Tap> Fixture for Tapped<T> {
    fn agent(&self, stem: &str, settings: Settings) -> Agent {
        let tap = (self.tap)();
        self.taps.lock().expect("no panic before").push(tap.clone());
        let agent = Agent::builder(unique_name(stem)).settings(settings);
        agent.wrap_transport(move |inner| tapped(&tap, inner)).build().expect("an agent")
    }

    fn classes(&self) -> (MemoryClass, MemoryClass) {
        self.inner.classes()
    }

    fn route(&self) -> Route {
        self.inner.route()
    }
}

impl<T> Drop for Tapped<T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.taps.lock().expect("no panic before").iter().for_each(|tap| (self.judge)(tap));
        }
    }
}

fn recorded(inner: SameProcess) -> Tapped<Recording> {
    Tapped::new(inner, Arc::default, |recording| {
        let violations = recording.violations();
        assert!(violations.is_empty(), "{violations:#?} in {:#?}", recording.calls());
        // The agents are gone, so nothing can be left open.
        assert_eq!(recording.open(), 0, "operations that never ended");
    })
}

fn throttled(inner: SameProcess) -> Tapped<Throttled> {
    let tap = || Throttled::new(Duration::from_millis(1), Duration::from_millis(1));
    Tapped::new(inner, tap, |_| {})
}

conformance!(private, PRIVATE);
conformance!(shared, SHARED);
conformance!(private_to_shared, PRIVATE_TO_SHARED);
conformance!(shared_to_private, SHARED_TO_PRIVATE);
conformance!(late_by_book, Late(LateEvidence::Book));
conformance!(late_by_word, Late(LateEvidence::Word));
conformance!(throttled_private, throttled(PRIVATE));
conformance!(recorded_private, recorded(PRIVATE));
conformance!(recorded_by_the_target, recorded(SHARED_TO_PRIVATE));
