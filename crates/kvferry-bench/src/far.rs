use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kvferry::{Agent, CompletionQueue, PathName, Settings};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};

use crate::channel::Channel;
use crate::content::{Scene, word_at};
use crate::layout::Layout;
use crate::message::{Ball, Door, Plan, Reply, Request, Role, Setup, VERSION};
use crate::options::{BenchOp, BenchPath, Options};
use crate::pool::Pool;
use crate::raw::{FarWires, Listening, Stream, pong};

/// The agents' names.
pub(crate) const NEAR: &str = "kvferry-bench-near";
pub(crate) const FAR: &str = "kvferry-bench-far";

/// Longest that one answer of the other side may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A near side that asks for nothing for so long is gone.
const IDLE: Duration = Duration::from_secs(600);

/// Plays the far side on stdin and stdout, for the parent process, until that closes them. Ends with the parent.
///
/// # Errors
/// The conversation broke. What the parent asked for and can't be done, it is told.
pub fn serve_pipes() -> Result<()> {
    // The parent may be gone already; then its end of the pipe is closed, which is found below.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut channel = Channel::new(io::stdin(), io::stdout());
    serve(&mut channel, Ipv4Addr::LOCALHOST.into()).map(|_| ())
}

/// Plays the far side for a near one on another host, until that has finished its run.
///
/// `tell` is told the address that it listens at, and what became of connections that broke. Whoever reaches the
/// address can have this process allocate memory: it is for networks that are trusted.
///
/// # Errors
/// The address can't be listened at.
pub fn listen(address: SocketAddr, mut tell: impl FnMut(&str)) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("can't listen at {address}"))?;
    tell(&format!("listening at {}", listener.local_addr()?));
    loop {
        let (socket, peer) = listener.accept().context("can't take a connection")?;
        let served = Channel::over(&socket)
            .and_then(|channel| Ok((channel, socket.local_addr()?.ip())))
            .context("a connection broke")
            .and_then(|(mut channel, bind)| serve(&mut channel, bind));
        match served {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => tell(&format!("{peer}: {error:#}")),
        }
    }
}

/// Seconds of CPU time of this process, user and system.
pub(crate) fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// An agent that is held to a path.
pub(crate) fn agent(name: &str, path: BenchPath, threads: Option<usize>) -> Result<Agent> {
    let mut settings = Settings::from_env()?;
    match path {
        BenchPath::SameHost => settings.require = settings.require.with(PathName::SameHost),
        BenchPath::Tcp => {
            settings.forbid = settings.forbid.with(PathName::SameHost).with(PathName::SameProcess);
        }
    }
    settings.threads = threads.unwrap_or(settings.threads);
    Ok(Agent::builder(name).settings(settings).build()?)
}

/// Waits for notifications and hands each to `take`, until that says of one that it is enough.
pub(crate) fn await_notification(
    agent: &Agent,
    events: &CompletionQueue,
    mut take: impl FnMut(&[u8]) -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut enough = false;
        for notification in agent.notifications() {
            enough |= take(&notification.payload)?;
        }
        if enough {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "no notification came in {PATIENCE:?}");
        events.wait(Duration::from_secs(1));
    }
}

/// Serves one near side; true if it said goodbye.
fn serve(channel: &mut Channel, bind: IpAddr) -> Result<bool> {
    match channel.hear(IDLE)? {
        Some(Request::Setup(setup)) => match Far::new(&setup, bind) {
            Ok((mut far, ready)) => {
                channel.say(&ready)?;
                far.serve(channel, None)
            }
            Err(error) => {
                channel.say(&failed(&error))?;
                Ok(false)
            }
        },
        Some(Request::Goodbye) => Ok(true),
        Some(other) => bail!("asked for {other:?} before the setup"),
        None => Ok(false),
    }
}

/// The far side of a setup.
struct Far {
    agent: Agent,
    near: String,
    pool: Pool,
    setup: Setup,
    listening: Option<Listening>,
    wires: Option<FarWires>,
    plan: Option<Plan>,
}

impl Far {
    fn new(setup: &Setup, bind: IpAddr) -> Result<(Self, Reply)> {
        ensure!(
            setup.version == VERSION,
            "the two sides are of different versions of kvferry ({} and {VERSION})",
            setup.version
        );
        // Whoever asks may be anybody.
        Options { pool: setup.pool, threads: setup.threads, ..Options::default() }.check()?;
        let agent = agent(FAR, setup.path, setup.threads)?;
        let pool = Pool::new(&agent, setup.memory, setup.pool)?;
        let near = agent.load_remote(&setup.metadata)?;
        let (listening, door): (_, Door) = Listening::new(setup.path, bind)?;
        let ready = Reply::Ready { metadata: agent.metadata(), base: pool.addr(), door };
        let far = Self {
            agent,
            near,
            pool,
            setup: setup.clone(),
            listening: Some(listening),
            wires: None,
            plan: None,
        };
        Ok((far, ready))
    }

    /// Does what it is asked until a row begins, then goes on with that row's contents.
    fn serve(&mut self, channel: &mut Channel, mut begun: Option<Plan>) -> Result<bool> {
        loop {
            let pool = &self.pool;
            self.plan = begun;
            let scene = match begun.map(|plan| Scene::set(pool, &plan, Role::Far)).transpose() {
                Ok(scene) => {
                    if begun.is_some() {
                        channel.say(&Reply::Done)?;
                    }
                    scene
                }
                Err(error) => {
                    channel.say(&failed(&error))?;
                    None
                }
            };
            begun = loop {
                match channel.hear(IDLE)? {
                    Some(Request::Begin(plan)) => break Some(plan),
                    Some(Request::Accept) => {
                        let reply = match self.listening.take().map(|l| l.accept(pool, self.setup.memory)) {
                            Some(Ok(wires)) => {
                                self.wires = Some(wires);
                                Reply::Done
                            }
                            Some(Err(error)) => failed(&error),
                            None => Reply::Failed("asked twice to accept".to_owned()),
                        };
                        channel.say(&reply)?;
                    }
                    Some(Request::Goodbye) => return Ok(true),
                    Some(request) => {
                        let reply = self.answer(channel, scene.as_ref(), &request);
                        channel.say(&reply.unwrap_or_else(|error| failed(&error)))?;
                    }
                    None => return Ok(false),
                }
            };
        }
    }

    fn answer(&self, channel: &mut Channel, scene: Option<&Scene<'_>>, request: &Request) -> Result<Reply> {
        let row = || scene.zip(self.plan).context("no row has begun");
        match request {
            Request::Poison => row()?.0.poison().map(|()| Reply::Done),
            Request::Verify { flip } => {
                let scene = row()?.0;
                if *flip {
                    scene.flip()?;
                }
                scene.verify().map(Reply::Compared)
            }
            Request::VerifyGaps => row()?.0.verify_gaps().map(Reply::Compared),
            Request::VerifyBlock { word } => self.verify_block(&row()?.1, *word).map(Reply::Compared),
            Request::CpuTime => Ok(Reply::CpuTime(cpu_time())),
            Request::Stream => {
                let plan = row()?.1;
                let sockets = self.wires.as_ref().context("no raw streams")?.streams()?;
                let pieces = Layout::new(plan.shape, self.pool.len(), plan.seed).pieces();
                let mut streams = Stream::share(&self.pool, Role::Far, &pieces, sockets)?;
                channel.say(&Reply::Done)?;
                Stream::far(&mut streams, plan.op == BenchOp::Read)?;
                Ok(Reply::Done)
            }
            Request::PingPong { count, ball } => self.ping_pong(channel, *count, *ball),
            Request::Echo { count } => self.echo(channel, *count),
            Request::Setup(_) | Request::Accept | Request::Begin(_) | Request::Goodbye => {
                bail!("out of turn")
            }
        }
    }

    /// Compares the row's one block, whose first word the near side has chosen.
    fn verify_block(&self, plan: &Plan, word: u64) -> Result<Option<String>> {
        let layout = Layout::new(plan.shape, self.pool.len(), plan.seed);
        let (near, far) = layout.near.first().zip(layout.far.first()).context("a row without a block")?;
        let mut found = vec![0; plan.shape.len as usize];
        self.pool.read(*far, &mut found)?;
        Ok(compare_block(&found, plan.seed, *near, word))
    }

    fn ping_pong(&self, channel: &mut Channel, count: u32, ball: Ball) -> Result<Reply> {
        let wires = self.wires.as_ref().context("no raw socket")?;
        let mut socket = wires.socket()?;
        let (mut heard, answer) = match ball {
            Ball::Note => (vec![0; 8], vec![0; 8]),
            Ball::Block => {
                let plan = self.plan.context("no row has begun")?;
                let block = vec![0; plan.shape.len as usize];
                match plan.op {
                    BenchOp::Write => (block, vec![0]),
                    BenchOp::Read => (vec![0], block),
                }
            }
        };
        channel.say(&Reply::Done)?;
        pong(&mut socket, &mut heard, &answer, count)?;
        Ok(Reply::Done)
    }

    fn echo(&self, channel: &mut Channel, count: u32) -> Result<Reply> {
        self.agent.connect(&self.near, self.agent.settings().connect_timeout)?;
        let events = self.agent.events()?;
        channel.say(&Reply::Done)?;
        let mut left = count;
        while left > 0 {
            await_notification(&self.agent, &events, |payload| {
                left = left.saturating_sub(1);
                self.agent.notify(&self.near, payload)?;
                Ok(true)
            })?;
        }
        Ok(Reply::Done)
    }
}

/// Compares a block that came from `offset` of its source, with the first word replaced.
pub(crate) fn compare_block(found: &[u8], seed: u64, offset: u64, first: u64) -> Option<String> {
    let words = std::iter::once(first).chain((1..).map(|i| word_at(seed, offset / 8 + i)));
    let wrong = found.chunks_exact(8).zip(words).position(|(found, word)| found != word.to_le_bytes());
    wrong.map(|word| format!("the block's word {word} is not what was sent"))
}

fn failed(error: &anyhow::Error) -> Reply {
    Reply::Failed(format!("{error:#}"))
}
