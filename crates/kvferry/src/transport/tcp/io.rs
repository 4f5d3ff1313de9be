//! The threads that move bytes between memory and data streams.

use std::{
    collections::HashMap,
    fmt, io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Instant,
};

use kvferry_sys::{EventFd, Gather};
use rustix::event::{Timespec, epoll};

use super::{interest::Interest, link::TcpLink, sending::try_lock, stream::Stream};
use crate::transport::same_host::{Board, WIRE_SLOTS};

/// How many threads serve the streams.
const THREADS: usize = 2;

/// How many threads that post or wait may move bytes at once.
const GUESTS: usize = WIRE_SLOTS.end - WIRE_SLOTS.start - THREADS;

const WAKE: u64 = 0;

/// The threads, started with the first stream.
pub(super) struct IoThreads {
    board: Arc<Board>,
    started: OnceLock<Vec<Handle>>,
    /// What a thread that posts or waits borrows, to move bytes by itself.
    guests: [Mutex<Thread>; GUESTS],
    stopping: Arc<AtomicBool>,
}

struct Handle {
    sender: mpsc::Sender<Order>,
    event: Arc<EventFd>,
    /// Set while a wake-up is on its way.
    woken: Arc<AtomicBool>,
}

enum Order {
    Add { link: Arc<TcpLink>, stream: u8, fd: OwnedFd, connecting: bool },
    Close { link: [u8; 16] },
    Barrier(Arc<Barrier>),
}

/// Calls back when every thread has been through its loop.
struct Barrier {
    left: AtomicUsize,
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

/// What a thread sends and receives with.
pub(super) struct Thread {
    pub(super) board: Arc<Board>,
    /// Its busy word on the board.
    pub(super) slot: usize,
    pub(super) gather: Gather,
    /// It has moved a small frame, which another often follows at once.
    pub(super) moved_small: bool,
}

impl Thread {
    fn new(board: &Arc<Board>, number: usize) -> Self {
        Self {
            board: board.clone(),
            slot: WIRE_SLOTS.start + number,
            gather: Gather::new(),
            moved_small: false,
        }
    }
}

impl IoThreads {
    pub(super) fn new(board: Arc<Board>) -> Arc<Self> {
        let guests = std::array::from_fn(|i| Mutex::new(Thread::new(&board, THREADS + i)));
        Arc::new(Self { board, started: OnceLock::new(), guests, stopping: Arc::new(AtomicBool::new(false)) })
    }

    /// Gives a stream to a thread: neighbours to different ones.
    pub(super) fn add(&self, link: Arc<TcpLink>, stream: u8, fd: OwnedFd, connecting: bool) {
        let handles = self.handles();
        if handles.is_empty() {
            return link.stream_failed("no thread for data streams could be started");
        }
        handles[usize::from(stream) % handles.len()].order(Order::Add { link, stream, fd, connecting });
    }

    /// Drops the streams of a link.
    pub(super) fn close(&self, link: [u8; 16]) {
        self.started.get().into_iter().flatten().for_each(|h| h.order(Order::Close { link }));
    }

    /// Calls `then` once every thread has left what it was doing.
    pub(super) fn barrier(&self, then: impl FnOnce() + Send + 'static) {
        match self.started.get() {
            Some(handles) if !handles.is_empty() => {
                let then: Box<dyn FnOnce() + Send> = Box::new(then);
                let barrier =
                    Arc::new(Barrier { left: AtomicUsize::new(handles.len()), then: Mutex::new(Some(then)) });
                handles.iter().for_each(|h| h.order(Order::Barrier(barrier.clone())));
            }
            _ => then(),
        }
    }

    /// There may be something to send.
    pub(super) fn wake(&self) {
        self.started.get().into_iter().flatten().for_each(Handle::wake);
    }

    /// There is something to send on a stream.
    pub(super) fn wake_for(&self, stream: u8) {
        if let Some(handles) = self.started.get().filter(|handles| !handles.is_empty()) {
            handles[usize::from(stream) % handles.len()].wake();
        }
    }

    /// Lets the calling thread move bytes by itself, unless too many do so now.
    pub(super) fn borrow<R>(&self, f: impl FnOnce(&mut Thread) -> R) -> Option<R> {
        self.guests.iter().find_map(try_lock).map(|mut thread| f(&mut thread))
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.wake();
    }

    fn handles(&self) -> &[Handle] {
        self.started.get_or_init(|| {
            let mut handles = Vec::new();
            for i in 0..THREADS {
                match self.start(i) {
                    Ok(handle) => handles.push(handle),
                    Err(error) => {
                        tracing::error!(target: "kvferry::peer", "a thread for data streams: {error}");
                    }
                }
            }
            handles
        })
    }

    fn start(&self, number: usize) -> io::Result<Handle> {
        let (sender, receiver) = mpsc::channel();
        let event = Arc::new(EventFd::new()?);
        let woken = Arc::new(AtomicBool::new(false));
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        epoll::add(&epoll, &*event, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        let worker = Worker {
            thread: Thread::new(&self.board, number),
            receiver,
            event: event.clone(),
            woken: woken.clone(),
            stopping: self.stopping.clone(),
            epoll,
            streams: HashMap::new(),
            last: WAKE,
            spin_until: None,
            scratch: vec![0; 256 << 10].into(),
        };
        kvferry_sys::spawn_quiet("kvferry-stream", move || worker.run())?;
        Ok(Handle { sender, event, woken })
    }
}

impl Handle {
    fn order(&self, order: Order) {
        if self.sender.send(order).is_ok() {
            self.wake();
        }
    }

    fn wake(&self) {
        if !self.woken.swap(true, SeqCst) {
            self.event.signal();
        }
    }
}

impl Barrier {
    fn pass(&self) {
        if self.left.fetch_sub(1, SeqCst) == 1
            && let Some(then) = crate::lock(&self.then).take()
        {
            then();
        }
    }
}

struct Worker {
    thread: Thread,
    receiver: mpsc::Receiver<Order>,
    event: Arc<EventFd>,
    woken: Arc<AtomicBool>,
    stopping: Arc<AtomicBool>,
    epoll: Arc<OwnedFd>,
    streams: HashMap<u64, Stream>,
    last: u64,
    /// Until then it looks for more before it sleeps.
    spin_until: Option<Instant>,
    scratch: Box<[u8]>,
}

impl Worker {
    fn run(mut self) {
        let blank = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(WAKE) };
        let mut events = [blank; 64];
        while !self.stopping.load(SeqCst) {
            let count = match self.wait(&mut events) {
                Ok(count) => count,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    tracing::error!(target: "kvferry::peer", "a stream thread cannot wait: {error}");
                    return;
                }
            };
            let mut kick = false;
            for event in &events[..count] {
                // Copied out: the kernel packs the event.
                let (data, flags) = (event.data, event.flags);
                match data.u64() {
                    WAKE => kick = true,
                    id => self.serve(id, flags.contains(epoll::EventFlags::OUT)),
                }
            }
            if kick {
                self.event.drain();
                self.woken.store(false, SeqCst);
                self.obey();
                let ids: Vec<u64> = self.streams.keys().copied().collect();
                ids.into_iter().for_each(|id| self.push(id));
            }
        }
    }

    /// Waits for events; after a small frame it looks for the next a while, since to sleep and to be woken takes longer than that
    /// frame does.
    fn wait(&mut self, events: &mut [epoll::Event]) -> rustix::io::Result<usize> {
        while let Some(until) = self.spin_until {
            let count = epoll::wait(&self.epoll, &mut *events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
            if count > 0 {
                return Ok(count);
            }
            if Instant::now() >= until {
                self.spin_until = None;
            } else {
                std::thread::yield_now();
            }
        }
        epoll::wait(&self.epoll, events, None)
    }

    fn obey(&mut self) {
        while let Ok(order) = self.receiver.try_recv() {
            match order {
                Order::Add { link, stream, fd, connecting } => self.add(link, stream, fd, connecting),
                Order::Close { link } => {
                    self.streams.retain(|_, stream| stream.link.id != link);
                }
                Order::Barrier(barrier) => barrier.pass(),
            }
        }
    }

    fn add(&mut self, link: Arc<TcpLink>, number: u8, fd: OwnedFd, connecting: bool) {
        self.last += 1;
        let interest = Interest::new(self.epoll.clone(), self.last);
        match Stream::new(link.clone(), number, fd, connecting, interest) {
            Ok(stream) => drop(self.streams.insert(self.last, stream)),
            Err(error) => link.stream_failed(&error.to_string()),
        }
    }

    /// Reads and writes what a stream is ready for.
    fn serve(&mut self, id: u64, writable: bool) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let served = stream.serve(writable, &mut self.thread, &mut self.scratch);
        if std::mem::take(&mut self.thread.moved_small) {
            self.spin_until = stream.link.spin_until();
        }
        if let Err(error) = served {
            self.failed(id, &error);
        }
    }

    /// Sends what there is.
    fn push(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if let Err(error) = stream.send(&mut self.thread) {
            self.failed(id, &error);
        }
    }

    fn failed(&mut self, id: u64, error: &io::Error) {
        if let Some(stream) = self.streams.remove(&id) {
            stream.link.stream_failed(&error.to_string());
        }
    }
}

impl fmt::Debug for IoThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoThreads")
            .field("started", &self.started.get().map(Vec::len))
            .finish_non_exhaustive()
    }
}
