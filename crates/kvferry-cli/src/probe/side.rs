//! One of the two processes of a probe: an agent that offers memory, or one that moves bytes in and out of it.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use kvferry::{
    Agent, GridRow, Indices, MemoryKind, Op, PreparedList, Registration, Settings, SharedBuf, Status,
    Transfer, TransferOptions,
};

use super::message::{Message, Moved, Refusal};
use super::sibling::PATIENCE;

/// Bytes of a block, as a page of KV cache has them.
pub(super) const BLOCK: usize = 64 << 10;
/// Passes are repeated for so long: the first few find cold page tables.
const MEASURE: Duration = Duration::from_millis(300);

#[derive(clap::Args)]
pub(crate) struct SideArgs {
    role: Role,
    #[arg(long)]
    mechanism: String,
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    mib: u32,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Target,
    Initiator,
}

/// Plays the role on stdin and stdout.
pub(crate) fn side(args: &SideArgs) -> Result<ExitCode> {
    let outcome = match args.role {
        Role::Target => target(args),
        Role::Initiator => initiator(args),
    };
    match outcome {
        Ok(()) => {}
        Err(Stop::Refused(refusal)) => say(&Message::Refused(refusal))?,
        Err(Stop::Broken(error)) => return Err(error),
    }
    Ok(ExitCode::SUCCESS)
}

/// What ends a role early.
enum Stop {
    /// The library said no: the very thing that a probe is for.
    Refused(Refusal),
    /// The conversation with the parent broke.
    Broken(anyhow::Error),
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(error)
    }
}

/// Turns an error of the library into a refusal: all of them have a code.
macro_rules! refused {
    ($result:expr) => {
        $result.map_err(|error| Stop::Refused(Refusal::new(error.code(), &error)))
    };
}

fn agent(args: &SideArgs, name: &str) -> Result<Agent, Stop> {
    let mut settings = refused!(kvferry::init_logging().and_then(|()| Settings::from_env()))?;
    settings.require = format!("same_host,{}", args.mechanism)
        .parse()
        .context("can't require the mechanism")
        .map_err(Stop::Broken)?;
    refused!(Agent::builder(name).settings(settings).build())
}

fn pool(agent: &Agent, args: &SideArgs) -> Result<Registration<SharedBuf>, Stop> {
    let memory = refused!(agent.alloc(bytes(args)))?;
    refused!(agent.register(memory).map_err(|rejected| rejected.error))
}

fn target(args: &SideArgs) -> Result<(), Stop> {
    let agent = agent(args, "probe-target")?;
    let memory = pool(&agent, args)?;
    say(&Message::Offer { metadata: agent.metadata(), addr: memory.addr() })?;
    match hear()? {
        Some(Message::Compare) => {
            say(&Message::Compared { equal: holds(&memory, |index, count| count - 1 - index) })?
        }
        Some(other) => return Err(anyhow::anyhow!("unexpected {other:?}").into()),
        None => {}
    }
    // The parent closes the pipe when it is done with us.
    while hear()?.is_some() {}
    Ok(())
}

fn initiator(args: &SideArgs) -> Result<(), Stop> {
    let Some(Message::Offer { metadata, addr }) = hear()? else {
        return Err(anyhow::anyhow!("no offer").into());
    };
    let agent = agent(args, "probe-initiator")?;
    let (out, back) = (pool(&agent, args)?, pool(&agent, args)?);
    fill(&out);

    let peer = refused!(agent.load_remote(&metadata))?;
    refused!(agent.connect(&peer, agent.settings().connect_timeout))?;
    let lists = |memory: &SharedBuf| {
        refused!(agent.prepare_local(MemoryKind::Dram, rows(memory.addr(), args).as_slice()))
    };
    let (out_list, back_list) = (lists(&out)?, lists(&back)?);
    let remote = refused!(agent.prepare_remote(&peer, MemoryKind::Dram, rows(addr, args).as_slice()))?;

    let (write_gbps, write) = measure(&agent, Op::Write, &out_list, &remote)?;
    let (read_gbps, _) = measure(&agent, Op::Read, &back_list, &remote)?;
    if !holds(&back, |index, _| index) {
        return Err(Stop::Refused(Refusal::wrong_bytes("written and read back")));
    }
    let telemetry = write.telemetry();
    let name = |name: Option<String>| name.unwrap_or_else(|| "unknown".to_owned());
    say(&Message::Moved(Moved {
        path: name(telemetry.path.map(|path| path.to_string())),
        mechanism: name(telemetry.mechanism.map(|mechanism| mechanism.to_string())),
        executor: executor(&agent, &peer),
        write_gbps,
        read_gbps,
    }))?;
    Ok(())
}

/// Moves all blocks, the first of one side to the last of the other, so that none can be merged; GB/s of the best pass.
fn measure(
    agent: &Agent,
    op: Op,
    local: &PreparedList,
    remote: &PreparedList,
) -> Result<(f64, Transfer), Stop> {
    let backwards: Vec<u32> = (0..u32::try_from(remote.len()).unwrap_or(u32::MAX)).rev().collect();
    let options = TransferOptions::default();
    let transfer =
        refused!(agent.transfer(op, local, Indices::All, remote, Indices::List(&backwards), options))?;
    let mut best = f64::INFINITY;
    let started = Instant::now();
    loop {
        let pass = Instant::now();
        refused!(transfer.post())?;
        match refused!(transfer.wait(PATIENCE / 2))? {
            Status::Done => {}
            Status::Failed(fault) => return Err(Stop::Refused(Refusal::new(fault.code(), &fault))),
            other => return Err(anyhow::anyhow!("the transfer ended as {other:?}").into()),
        }
        best = best.min(pass.elapsed().as_secs_f64());
        if started.elapsed() > MEASURE {
            return Ok((local.bytes() as f64 / best / 1e9, transfer));
        }
    }
}

fn executor(agent: &Agent, peer: &str) -> String {
    let reports = agent.path(peer).unwrap_or_default();
    let route = reports.iter().find_map(|report| report.route);
    route.map_or_else(|| "initiator".to_owned(), |route| route.executor.to_string())
}

fn bytes(args: &SideArgs) -> usize {
    args.mib as usize * (1 << 20)
}

/// The whole memory as one row of blocks.
fn rows(addr: u64, args: &SideArgs) -> [GridRow; 1] {
    let (len, count) = (BLOCK as u64, (bytes(args) / BLOCK) as u64);
    [GridRow { addr, len, device: 0, stride: len, count }]
}

/// Fills each block with words that no other block has.
fn fill(memory: &SharedBuf) {
    for index in 0..memory.len() / BLOCK {
        // Inside by construction.
        let _ = memory.copy_in(index * BLOCK, &content(index));
    }
}

/// Whether each block holds what `fill` puts into the one that `origin(index, count)` names.
fn holds(memory: &SharedBuf, origin: impl Fn(usize, usize) -> usize) -> bool {
    let count = memory.len() / BLOCK;
    let mut found = vec![0; BLOCK];
    (0..count).all(|index| {
        memory.copy_out(index * BLOCK, &mut found).is_ok() && found == content(origin(index, count))
    })
}

fn content(index: usize) -> Vec<u8> {
    let first = (index * BLOCK) as u64;
    // An odd factor: no two words are equal.
    (0..BLOCK as u64 / 8)
        .flat_map(|word| (first + word).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect()
}

fn say(message: &Message) -> Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", serde_json::to_string(message)?)?;
    stdout.flush().context("the parent is gone")
}

/// The parent's next message; `None` when it has closed the pipe.
fn hear() -> Result<Option<Message>> {
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line).with_context(|| format!("the parent said {line:?}"))?))
}
