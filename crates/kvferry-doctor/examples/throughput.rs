//! How fast logs are read, by the time of the one core it takes, and in how much memory: 1 GiB a row, or as many MiB
//! as an argument says, made while it is read. A second argument chooses rows by a part of their names.
//!
//! `cargo run --release -p kvferry-doctor --example throughput [MiB [row]]`

use kvferry_doctor::explain::Explainer;
use std::io::Read;

/// Lines, over and over.
struct Log {
    lines: Vec<u8>,
    at: usize,
    left: u64,
}

impl Read for Log {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let want = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let got = want.min(self.lines.len() - self.at);
        buffer[..got].copy_from_slice(&self.lines[self.at..self.at + got]);
        self.at = (self.at + got) % self.lines.len();
        self.left -= got as u64;
        Ok(got)
    }
}

fn main() {
    let mib: u64 = std::env::args().nth(1).and_then(|size| size.parse().ok()).unwrap_or(1 << 10);
    let serving: String = (0..200)
        .map(|n| {
            format!(
                "(EngineCore_DP0 pid=594) INFO 11-30 02:{:02}:{:02} [loggers.py:127] Engine 000: Avg prompt throughput: \
                 {n}.3 tokens/s, Avg generation throughput: 41.{n} tokens/s, Running: {n} reqs, Waiting: 0 reqs\n",
                n / 60,
                n % 60
            )
        })
        .collect();
    let error = "(Worker_TP0 pid=4121) ERROR 11-30 10:12:40 [nixl_connector.py:2290] Remote NIXL agent engine ID mismatch. \
                 Expected a-1,received b-2\n";
    let rows = [
        ("a log of serving", serving.clone()),
        ("the same, one line of 200 an error", format!("{serving}{error}")),
        ("NIXL and UCX at full verbosity", include_str!("../tests/data/healthy/nixl.log").to_owned()),
        ("nothing but success after failures", evidence()),
        ("nothing but one error, repeated", error.to_owned()),
        ("nothing but errors, each with other numbers", errors()),
        ("the same, coloured, in Docker's JSON", docker(&errors())),
        ("nothing but tracebacks", tracebacks()),
        ("errors that no rule knows", strangers()),
        ("lines of 12 KiB, an error at the end of each", long(12 << 10)),
        ("lines of 1 MiB, an error in each", long(1 << 20)),
        (
            "lines of 12 KiB made of nothing but errors",
            errors()
                .replace('\n', " ")
                .as_bytes()
                .chunks(12 << 10)
                .map(String::from_utf8_lossy)
                .collect::<Vec<_>>()
                .join("\n"),
        ),
    ];
    let explainer = Explainer::built_in();
    let chosen = std::env::args().nth(2).unwrap_or_default();
    for (name, lines) in rows.into_iter().filter(|(name, _)| name.contains(&chosen)) {
        let log = Log { lines: lines.into_bytes(), at: 0, left: mib << 20 };
        let began = cpu_seconds();
        let explanation = explainer.inputs([(name.to_owned(), log)]).expect("no errors");
        let seconds = cpu_seconds() - began;
        let found = explanation.primary.as_ref().map_or("nothing", |primary| primary.slug.as_str());
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let speed = explanation.bytes as f64 / 1e6 / seconds;
        println!("{name}: {speed:.0} MB/s, {} lines, found {found}", explanation.lines);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!("peak memory: {}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("unknown"));
}

/// Numbers that look like any, and are the same in each run.
fn numbers() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(0x9e37_79b9_7f4a_7c15_u64), |number| {
        let mixed = number ^ (number << 13);
        let mixed = mixed ^ (mixed >> 7);
        Some(mixed ^ (mixed << 17))
    })
}

/// Failures of several programs with rooms, addresses, names of requests and system errors.
fn errors() -> String {
    let line = |n: u64| {
        let (a, b, c) = (n % 256, (n >> 8) % 256, (n >> 16) % 65_536);
        match n % 6 {
            0 => format!(
                "[2026-11-30 10:{:02}:{:02} TP{}] Prefill transfer failed for request rank={} req.rid='{n:032x}' \
                 req.bootstrap_room={n} with exception KVTransferError(bootstrap_room={n}): Failed to send kv chunk of {n} to 10.0.{a}.{b}:{c}\n",
                a % 60,
                b % 60,
                a % 8,
                a % 8
            ),
            1 => format!(
                "E1130 10:11:12.{:06} {c} worker_pool.cpp:294] Worker: Process failed for slice (opcode: 1, source_addr: {n:#x}, \
                 length: {c}, dest_addr: {n:#x}, local_nic: mlx5_{}, peer_nic: 10.0.{a}.{b}:{c}@mlx5_{}, dest_rkey: {c}, retry_cnt: {}): \
                 transport retry counter exceeded\n",
                n % 1_000_000,
                a % 10,
                b % 10,
                a % 7
            ),
            2 => format!(
                "E1130 10:11:12.{:06} {c} rdma_context.cpp:198] Failed to register memory {n:#x}: Cannot allocate memory [12]\n",
                n % 1_000_000
            ),
            3 => format!(
                "[1735787045.{:06}] [gpu-{a}:{c} :0]  ib_md.c:291  UCX  ERROR ibv_reg_mr(address={n:#x}, length={n}, access=0xf) failed: Bad address\n",
                n % 1_000_000
            ),
            4 => format!(
                "[2026-11-30 10:11:12 TP{}] Failed to get prefill server info: {}, Prefill server not fully registered yet ({} workers registered).\n",
                a % 8,
                if b % 4 == 0 { 404 } else { 503 },
                c % 16
            ),
            _ => format!(
                "E1130 10:11:12.{:06} {c} transfer_metadata_plugin.cpp:1105] SocketHandShakePlugin: connect()10.0.{a}.{b}: Connection refused [111]\n",
                n % 1_000_000
            ),
        }
    };
    numbers().take(40_000).map(line).collect()
}

fn evidence() -> String {
    let line = |n: u64| {
        format!(
            "[2026-11-30 10:11:{:02} TP0] Decode batch. #running-req: {}, #token: {}, token usage: 0.{}, gen throughput (token/s): {}.{}\n",
            n % 60,
            n % 90 + 1,
            n % 99_999,
            n % 100,
            n % 5_000,
            n % 100
        )
    };
    numbers().take(20_000).map(line).collect()
}

fn docker(log: &str) -> String {
    let line = |line: &str| {
        format!(
            "{{\"log\":\"\\u001b[31m{}\\u001b[0m\\n\",\"stream\":\"stderr\",\"time\":\"2026-11-30T10:11:12Z\"}}\n",
            line.replace('\'', "\\\"")
        )
    };
    log.lines().map(line).collect()
}

fn tracebacks() -> String {
    let one = |n: u64| {
        let prefix =
            format!("(Worker_TP{} pid={}) ERROR 11-30 10:14:{:02} [core.py:396] ", n % 8, n % 99_999, n % 60);
        let frames = (0..12).map(|frame| {
            format!("{prefix}  File \"/opt/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py\", line {}, in step{frame}\n{prefix}    outputs = self.model_executor.execute_model(scheduler_output)\n", n % 900)
        });
        let frames: String = frames.collect();
        format!(
            "{prefix}Traceback (most recent call last):\n{frames}{prefix}nixl._bindings.nixlBackendError: NIXL_ERR_BACKEND\n"
        )
    };
    numbers().take(2_000).map(one).collect()
}

/// Words of errors, none of them ours, each line with other letters.
fn strangers() -> String {
    let word = |n: u64| -> String {
        (0..8).map(|at| char::from(b'a' + u8::try_from((n >> (5 * at)) % 26).unwrap_or(0))).collect()
    };
    let line = |n: u64| {
        format!(
            "2026-11-30 10:11:12 ERROR {}: the {} failed to {}: error {}, address not available\n",
            word(n),
            word(n >> 3),
            word(n >> 7),
            n % 1_000
        )
    };
    numbers().take(40_000).map(line).collect()
}

/// Long lines with an error at the end of each.
fn long(length: usize) -> String {
    let error = errors();
    let filler = "config: {'tensor_parallel_size': 8, 'kv_connector': 'NixlConnector', 'block_size': 16, 'dtype': 'bfloat16'} ";
    let lines = error
        .lines()
        .take((4 << 20) / length)
        .map(|line| format!("{}{line}\n", filler.repeat((length - line.len()) / filler.len())));
    lines.collect()
}

/// User and system time of this process, in seconds; Linux counts it in hundredths.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}
