use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::errors::OrRaise;

/// Lines that wait for Python to take them; more are counted and dropped.
const MOST: usize = 4096;

/// Where engine threads leave their lines. Python's own thread takes them: the engine never waits for the interpreter.
#[derive(Default)]
struct Sink {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    lines: VecDeque<Line>,
    dropped: u64,
    stopped: bool,
}

/// Level as Python's logging counts it, target, text.
type Line = (u8, &'static str, String);

/// The sink of this process: a forked child gets a new one, for the lock of the old may be held for ever.
static SINK: AtomicPtr<Sink> = AtomicPtr::new(std::ptr::null_mut());

fn sink() -> Option<&'static Sink> {
    // SAFETY: what is stored is null or a leaked box, and nothing frees it.
    unsafe { SINK.load(SeqCst).as_ref() }
}

impl Sink {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn renew() {
        SINK.store(Box::leak(Box::default()), SeqCst);
    }
}

/// Begins to collect the engine's logs, as far as KVFERRY_LOG asks for them; without it from info on.
#[pyfunction]
pub(crate) fn start_logs(py: Python<'_>) -> PyResult<()> {
    let filter = match std::env::var_os("KVFERRY_LOG") {
        Some(_) => kvferry::log_filter().or_raise(py)?,
        None => tracing_subscriber::filter::Targets::new().with_target("kvferry", Level::INFO),
    };
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        Sink::renew();
        // Fails only where the process has a subscriber already, which stays then.
        let _ = tracing_subscriber::registry().with(Collect).with(filter).try_init();
    });
    Ok(())
}

/// The lines that have come in; waits for one for `timeout` seconds. None once `stop_logs` was called and all were taken.
#[pyfunction]
pub(crate) fn next_logs(py: Python<'_>, timeout: f64) -> Option<Vec<Line>> {
    let sink = sink()?;
    py.detach(|| {
        let mut state = sink.lock();
        if state.lines.is_empty() && !state.stopped && timeout > 0.0 {
            let timeout = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::from_secs(3600));
            let wait = sink.ready.wait_timeout_while(state, timeout, |s| s.lines.is_empty() && !s.stopped);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        let dropped = std::mem::take(&mut state.dropped);
        if dropped > 0 {
            state.lines.push_back((30, "kvferry::control", format!("{dropped} log lines were dropped")));
        }
        let lines: Vec<Line> = std::mem::take(&mut state.lines).into();
        (!state.stopped || !lines.is_empty()).then_some(lines)
    })
}

/// Ends the collection: whoever waits comes back.
#[pyfunction]
pub(crate) fn stop_logs() {
    if let Some(sink) = sink() {
        sink.lock().stopped = true;
        sink.ready.notify_all();
    }
}

/// In a forked child: forgets what the parent's threads may hold.
#[pyfunction]
pub(crate) fn after_fork() {
    if sink().is_some() {
        Sink::renew();
    }
}

struct Collect;

impl<S: Subscriber> Layer<S> for Collect {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(sink) = sink() else { return };
        let metadata = event.metadata();
        let level = match *metadata.level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            Level::INFO => 20,
            Level::DEBUG => 10,
            Level::TRACE => 5,
        };
        let mut text = Text::default();
        event.record(&mut text);
        let mut state = sink.lock();
        if state.lines.len() >= MOST {
            state.dropped += 1;
            return;
        }
        state.lines.push_back((level, metadata.target(), text.message + &text.fields));
        drop(state);
        sink.ready.notify_one();
    }
}

/// The message, then the other fields as `name=value`.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
