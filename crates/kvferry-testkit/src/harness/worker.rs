//! A worker process, seen from the test.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    io::{BufRead, BufReader, Write},
    marker::PhantomData,
    os::unix::fs::FileExt,
    path::Path,
    process::{Child, ChildStdin, ExitStatus},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use serde::de::DeserializeOwned;

use super::{Answer, Buffer, Envelope, Failure, Launch, Request, eventually, now_ns};

/// How long a test waits for anything that must come.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A worker process. Killed when dropped.
pub struct Worker {
    name: String,
    child: Mutex<Child>,
    pid: i32,
    input: Mutex<Option<ChildStdin>>,
    answers: Arc<Answers>,
    last_id: AtomicU64,
    orphans: Mutex<Vec<i32>>,
}

#[derive(Default)]
struct Answers {
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Default)]
struct State {
    answers: HashMap<u64, Answer>,
    ended: bool,
}

/// An answer that is awaited.
#[must_use = "an answer that nobody takes hides a failure"]
pub struct Ticket<'a, T> {
    worker: &'a Worker,
    id: u64,
    what: String,
    answer: PhantomData<T>,
}

impl Worker {
    /// Starts a worker of that name with default settings, without an agent.
    ///
    /// # Panics
    /// The program cannot be started.
    pub fn start(program: impl AsRef<Path>, name: &str) -> Self {
        Launch::new(program, name).try_start().unwrap_or_else(|why| panic!("worker {name:?}: {why}"))
    }

    pub(super) fn new(name: &str, mut child: Child) -> Self {
        let answers = Arc::new(Answers::default());
        if let Some(output) = child.stdout.take() {
            let answers = answers.clone();
            std::thread::spawn(move || answers.collect(BufReader::new(output)));
        }
        Self {
            name: name.to_owned(),
            pid: child.id() as i32,
            input: Mutex::new(child.stdin.take()),
            child: Mutex::new(child),
            answers,
            last_id: AtomicU64::new(0),
            orphans: Mutex::default(),
        }
    }

    /// The name of the worker and its agent.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// What the engine answered; code `harness` if the worker could not do it or is gone.
    ///
    /// # Panics
    /// No answer in [`PATIENCE`].
    pub fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<T, Failure> {
        self.begin(request).finish()
    }

    /// Asks for what cannot fail.
    ///
    /// # Panics
    /// It failed all the same, or there was no answer.
    #[track_caller]
    pub fn expect<T: DeserializeOwned>(&self, request: &Request) -> T {
        self.ask(request).unwrap_or_else(|failure| panic!("{}: {request:?}: {failure:?}", self.name))
    }

    /// Asks, to wait later. Requests are carried out in their order.
    pub fn begin<T>(&self, request: &Request) -> Ticket<'_, T> {
        self.send(request, false, None)
    }

    /// Asks for something that others need not wait for.
    pub fn begin_aside<T>(&self, request: &Request) -> Ticket<'_, T> {
        self.send(request, true, None)
    }

    /// Asks for something to be done when the monotonic clock shows `at` nanoseconds.
    pub fn begin_at<T>(&self, at: u64, request: &Request) -> Ticket<'_, T> {
        self.send(request, false, Some(at))
    }

    fn send<T>(&self, request: &Request, background: bool, at: Option<u64>) -> Ticket<'_, T> {
        let id = self.last_id.fetch_add(1, Relaxed) + 1;
        let what = format!("{request:?}").chars().take(200).collect();
        let envelope = Envelope { id, background, at, request: request.clone() };
        let mut line = serde_json::to_string(&envelope).expect("requests are plain data");
        line.push('\n');
        if let Some(input) = &mut *lock(&self.input) {
            // A dead worker says so when its answer is taken.
            let _ = input.write_all(line.as_bytes());
        }
        Ticket { worker: self, id, what, answer: PhantomData }
    }

    // The process.

    /// Kills it with SIGKILL; returns the time just before, by the monotonic clock. Does not wait.
    pub fn kill(&self) -> u64 {
        let stamp = now_ns();
        self.signal(libc::SIGKILL);
        stamp
    }

    /// Stops it with SIGSTOP and waits until it is stopped.
    ///
    /// # Panics
    /// It does not stop.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        self.await_stopped();
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    /// Waits until all its threads are stopped.
    ///
    /// # Panics
    /// That does not come about.
    pub fn await_stopped(&self) {
        let stopped = || {
            let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", self.pid)) else { return false };
            let mut states =
                tasks.flatten().map(|t| std::fs::read_to_string(t.path().join("stat")).unwrap_or_default());
            states.all(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T')))
        };
        assert!(eventually(PATIENCE, stopped), "worker {:?} does not stop", self.name);
    }

    /// The bytes of a buffer, whether the worker runs or is stopped.
    ///
    /// # Panics
    /// The buffer is not mapped, or the worker is gone.
    #[track_caller]
    pub fn peek(&self, buffer: Buffer) -> Vec<u8> {
        let memory = File::open(format!("/proc/{}/mem", self.pid)).expect("the memory of a child");
        let mut bytes = vec![0; buffer.len as usize];
        memory.read_exact_at(&mut bytes, buffer.addr).expect("mapped memory");
        bytes
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// It does not end in [`PATIENCE`].
    pub fn reap(&self) -> ExitStatus {
        let mut status = None;
        let ended = eventually(PATIENCE, || {
            status = lock(&self.child).try_wait().ok().flatten();
            status.is_some()
        });
        assert!(ended, "worker {:?} does not end", self.name);
        status.expect("it has ended")
    }

    /// Takes charge of a process that the worker forked: it is killed when this worker is dropped.
    pub fn adopt(&self, pid: i32) {
        lock(&self.orphans).push(pid);
    }

    fn signal(&self, signal: i32) {
        let mut child = lock(&self.child);
        // Once it has been waited for, its number may be somebody else's.
        if let Ok(None) = child.try_wait() {
            // SAFETY: a child of ours that has not been waited for, so the number is still its own.
            unsafe { libc::kill(self.pid, signal) };
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        *lock(&self.input) = None;
        let mut child = lock(&self.child);
        let _ = child.kill();
        let _ = child.wait();
        for orphan in lock(&self.orphans).drain(..) {
            // SAFETY: a process that a worker of ours forked, and that does nothing but sleep until it is killed.
            unsafe { libc::kill(orphan, libc::SIGKILL) };
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("name", &self.name).field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned> Ticket<'_, T> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// As [`Worker::ask`].
    ///
    /// # Panics
    /// No answer in [`PATIENCE`].
    pub fn finish(self) -> Result<T, Failure> {
        self.finish_stamped().1
    }

    /// Waits for the answer, which comes with the time at which the worker was done.
    ///
    /// # Panics
    /// As [`Ticket::finish`].
    pub fn finish_stamped(self) -> (u64, Result<T, Failure>) {
        let gone = |text: String| Failure { code: "harness".to_owned(), text };
        let Some(answer) = self.worker.answers.take(self.id) else {
            return (
                now_ns(),
                Err(gone(format!("worker {:?} ended before it answered {}", self.worker.name, self.what))),
            );
        };
        let Some(answer) = answer else {
            panic!("worker {:?} has not answered {} in {PATIENCE:?}", self.worker.name, self.what);
        };
        let value = answer.outcome.and_then(|value| {
            serde_json::from_value(value)
                .map_err(|e| gone(format!("the answer to {} is no such thing: {e}", self.what)))
        });
        (answer.stamp, value)
    }
}

impl Answers {
    fn collect(&self, output: impl BufRead) {
        for line in output.lines() {
            let Ok(line) = line else { break };
            match serde_json::from_str::<Answer>(&line) {
                Ok(answer) => drop(lock(&self.state).answers.insert(answer.id, answer)),
                Err(error) => eprintln!("not an answer: {error}: {line}"),
            }
            self.came.notify_all();
        }
        lock(&self.state).ended = true;
        self.came.notify_all();
    }

    /// The answer with this number: none inside if it does not come, none at all if it cannot come any more.
    fn take(&self, id: u64) -> Option<Option<Answer>> {
        let missing = |state: &mut State| !state.answers.contains_key(&id) && !state.ended;
        let waited = self.came.wait_timeout_while(lock(&self.state), PATIENCE, missing);
        let mut state = waited.unwrap_or_else(|e| e.into_inner()).0;
        match state.answers.remove(&id) {
            Some(answer) => Some(Some(answer)),
            None if state.ended => None,
            None => Some(None),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
