//! The control thread: it owns all control channels, drives their sessions and carries out what those want.
//!
//! Nothing here waits for a peer. Other threads talk to it through a [`Mailbox`], whose sends never block.

use std::{
    collections::{HashMap, HashSet},
    fmt, io,
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use kvferry_proto::{ByeReason, Identity, NotifyReceiver, Reservation, RevokeScope};
use kvferry_sys::{ClosedInChild, EventFd, RobustHolder};

use crate::{agent::Shared, peer::Peer, transfer::NotifyToken, watch::Watch};

mod actions;
mod channel;
mod connect;
mod ending;
mod poller;

use channel::Channel;
use connect::Newcomer;
use poller::{Poller, Token};

/// Channels at once; more connections are closed as they come.
const MAX_CHANNELS: usize = 4096;

/// Receivers of peers without a connection that are remembered.
const MAX_PARKED: usize = 1024;

/// How often lingering links are looked at.
const LINGER_TICK: Duration = Duration::from_millis(5);

/// How long a closing channel waits for the other side.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

/// A socket that connections come to.
pub(crate) struct Listener {
    pub(crate) fd: OwnedFd,
    pub(crate) tcp: bool,
}

/// What other threads want of the control thread.
pub(crate) enum Command {
    /// Open a channel to a peer that is marked as connecting.
    Connect { peer: Arc<Peer> },
    /// Send a notification.
    Notify { peer: Arc<Peer>, reservation: Reservation, token: Option<NotifyToken> },
    /// Send a message of a transport.
    Transport { channel: u64, body: Vec<u8>, fds: Vec<Arc<OwnedFd>> },
    /// Tell the peer what was revoked under a new epoch.
    Revoked { channel: u64, epoch: u64, scope: RevokeScope },
    /// A revocation of the peer is carried out, some time after it came.
    Applied { channel: u64, epoch: u64 },
    /// The transport has lost a connection of its own; of `far`, that of a joint link's far part.
    LinkLost { channel: u64, detail: String, far: bool },
    /// The application took notifications of this peer.
    Drained { from: Arc<Identity>, bytes: u64 },
    /// The kernel says that the process at the other end is dead.
    PeerDied { channel: u64 },
    /// Say goodbye on a channel.
    Close { channel: u64, reason: ByeReason },
    /// Run this here.
    Run(Box<dyn FnOnce() + Send>),
    /// End.
    Shutdown,
}

/// Sends commands to the control thread. Never blocks.
#[derive(Clone)]
pub(crate) struct Mailbox {
    sender: mpsc::Sender<Command>,
    event: Arc<EventFd>,
}

/// The control thread's end of its mailbox.
pub(crate) struct Letters {
    receiver: mpsc::Receiver<Command>,
    event: Arc<EventFd>,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<(Self, Letters)> {
        let (sender, receiver) = mpsc::channel();
        let event = Arc::new(EventFd::new()?);
        Ok((Self { sender, event: event.clone() }, Letters { receiver, event }))
    }

    pub(crate) fn send(&self, command: Command) {
        // Fails only when the control thread has ended; then there is nobody to tell.
        if self.sender.send(command).is_ok() {
            self.event.signal();
        }
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailbox")
    }
}

/// The state of the control thread.
pub(crate) struct Control {
    shared: Arc<Shared>,
    watch: Watch,
    letters: Letters,
    poller: Poller,
    _closed_in_child: Vec<ClosedInChild>,
    listeners: Vec<Listener>,
    newcomers: HashMap<u64, Newcomer>,
    channels: HashMap<u64, Channel>,
    last_channel: u64,
    holder: RobustHolder,
    /// What outlives the connections of an initiator.
    parked: HashMap<Identity, NotifyReceiver>,
    /// Who is within reach, over at least one channel.
    up: HashSet<Identity>,
    stopping: bool,
    buffer: Box<[u8]>,
}

impl Control {
    /// To be called on the control thread itself, whose list of robust futexes it takes.
    pub(crate) fn new(
        shared: Arc<Shared>,
        watch: Watch,
        letters: Letters,
        listeners: Vec<Listener>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&*letters.event, Token::Mailbox)?;
        for (i, listener) in listeners.iter().enumerate() {
            poller.add(&listener.fd, Token::Listener(i))?;
        }
        Ok(Self {
            shared,
            watch,
            letters,
            poller,
            _closed_in_child: listeners.iter().map(|l| ClosedInChild::new(&l.fd)).collect(),
            listeners,
            newcomers: HashMap::new(),
            channels: HashMap::new(),
            last_channel: 0,
            holder: RobustHolder::new()?,
            parked: HashMap::new(),
            up: HashSet::new(),
            stopping: false,
            buffer: vec![0; 64 << 10].into(),
        })
    }

    /// Runs until [`Command::Shutdown`] is carried out.
    pub(crate) fn run(mut self) {
        while !(self.stopping && self.channels.is_empty()) {
            let ready = match self.poller.wait(self.timeout()) {
                Ok(ready) => ready,
                Err(error) => {
                    tracing::error!(target: "kvferry::control", "the control thread cannot wait for events: {error}");
                    break;
                }
            };
            for token in ready {
                match token {
                    Token::Mailbox => self.read_mail(),
                    Token::Listener(i) => self.accept(i),
                    Token::Channel(id) if self.newcomers.contains_key(&id) => self.listen_to(id),
                    Token::Channel(id) => self.serve(id),
                }
            }
            self.pass_time();
            self.shared.linger();
        }
        self.abandon();
    }

    fn timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        let sessions = self.channels.values().filter_map(|c| c.session.poll_timeout()).min();
        let newcomers = self.newcomers.values().map(Newcomer::deadline).min();
        let attaching = self.channels.values().filter_map(Channel::attach_deadline).min();
        let sessions = sessions.into_iter().chain(newcomers).chain(attaching).min();
        let sessions = sessions.map(|at| at.saturating_duration_since(now));
        let linger = self.shared.is_lingering().then_some(LINGER_TICK);
        sessions.into_iter().chain(linger).min()
    }

    fn read_mail(&mut self) {
        self.letters.event.drain();
        while let Ok(command) = self.letters.receiver.try_recv() {
            self.command(command);
        }
    }

    fn pass_time(&mut self) {
        let now = Instant::now();
        let due = |c: &Channel| c.session.poll_timeout().is_some_and(|at| at <= now);
        let late: Vec<u64> =
            self.newcomers.iter().filter(|(_, n)| n.deadline() <= now).map(|(id, _)| *id).collect();
        for id in late {
            self.dismiss(id);
        }
        let late = |c: &Channel| c.attach_deadline().is_some_and(|at| at <= now);
        let late: Vec<u64> = self.channels.iter().filter(|(_, c)| late(c)).map(|(id, _)| *id).collect();
        for id in late {
            self.transport_lost(id, "no answer in time".into(), true);
        }
        let late: Vec<u64> = self.channels.iter().filter(|(_, c)| due(c)).map(|(id, _)| *id).collect();
        for id in late {
            // What has come in counts first: we may have been stopped ourselves.
            self.serve(id);
            if let Some(channel) = self.channels.get_mut(&id) {
                channel.session.handle_timeout(now);
            }
            self.act(id);
        }
    }
}
