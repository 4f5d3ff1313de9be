//! What an agent says of itself: numbers, paths, logs, codes; and the settings that change how it behaves.

use std::collections::BTreeSet;
use std::io;
use std::path::Path as FilePath;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use kvferry::{
    Agent, AllocError, BuildError, CancelError, Code, ConnectError, DeregisterError, DisconnectError,
    Executor, FaultCause, FaultSide, LostCause, Mechanism, MemoryKind, MetadataError, NotifyError, Op, Path,
    PathName, PathSet, PeerError, PostError, PrepareError, RegionId, RegisterCause, RegisterError, Route,
    Settings, TransferError, TransferOptions, WaitTimeout, WhyNot,
};
use kvferry_testkit::hook::{Point, Witness, unpaused};
use kvferry_testkit::{
    MemoryClass, PATIENCE, Pair, Pattern, Side, agent, agent_with, eventually, run, unique_name,
};

use MemoryClass::{File, Private, Shared};

const LEN: u64 = 4 << 20;

fn names(names: &str) -> PathSet {
    names.parse().expect("names of paths")
}

fn requiring(require: &str) -> Settings {
    Settings { require: names(require), ..Settings::default() }
}

fn forbidding(forbid: &str) -> Settings {
    Settings { forbid: names(forbid), ..Settings::default() }
}

/// A pair of which the left side has these settings, with pools of these classes.
fn pair(settings: Settings, (left, right): (MemoryClass, MemoryClass)) -> Pair {
    let left = Side::new(agent_with("left", settings), left, LEN);
    let right = Side::new(agent("right"), right, LEN);
    left.meet(&right);
    Pair { left, right }
}

fn route_of(pair: &Pair, op: Op) -> Route {
    pair.left.pool.fill(Pattern::new(1));
    pair.right.pool.fill(Pattern::new(1));
    let transfer = pair.left.one_block(op, &pair.right, 0, LEN, TransferOptions::default());
    run(&transfer);
    let telemetry = transfer.telemetry();
    let reports = pair.left.agent.path(pair.right.name()).expect("a peer");
    let route = reports.iter().find_map(|report| report.route).expect("a route");
    assert_eq!((telemetry.path, telemetry.mechanism), (Some(route.path), Some(route.mechanism)));
    route
}

fn reasons(pair: &Pair) -> String {
    let reports = pair.left.agent.path(pair.right.name()).expect("a peer");
    reports.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

const MAP: Route =
    Route { path: Path::SameProcess, mechanism: Mechanism::Map, executor: Executor::Initiator };
const CMA: Route = Route { mechanism: Mechanism::Cma, ..MAP };

#[test]
fn the_path_is_chosen_by_the_memory_on_both_sides() {
    let _unpaused = unpaused();
    for op in [Op::Write, Op::Read] {
        assert_eq!(route_of(&pair(Settings::default(), (Private, Private)), op), CMA);
        assert_eq!(route_of(&pair(Settings::default(), (Private, Shared)), op), MAP);
        assert_eq!(route_of(&pair(Settings::default(), (Shared, Shared)), op), MAP);
        let by_target = Route { executor: Executor::Target, ..MAP };
        assert_eq!(route_of(&pair(Settings::default(), (Shared, Private)), op), by_target);
        // What may vanish is left to the kernel, unless the other end can be mapped by whoever copies.
        assert_eq!(route_of(&pair(Settings::default(), (File, Private)), op), CMA);
        assert_eq!(route_of(&pair(Settings::default(), (Shared, File)), op), CMA);
        assert_eq!(route_of(&pair(Settings::default(), (File, Shared)), op), MAP);
    }
    let plain = pair(Settings::default(), (Private, Private));
    route_of(&plain, Op::Write);
    // The better way, and what would open it.
    assert!(
        reasons(&plain).contains("not map: ") && reasons(&plain).contains("agent.alloc"),
        "{}",
        reasons(&plain)
    );
}

#[test]
fn a_required_mechanism_is_taken_where_another_would_be() {
    let _unpaused = unpaused();
    for op in [Op::Write, Op::Read] {
        assert_eq!(route_of(&pair(requiring("cma"), (Shared, Shared)), op), CMA);
        assert_eq!(route_of(&pair(requiring("same_process,map"), (Private, Shared)), op), MAP);
    }
    let pair = pair(requiring("cma"), (Shared, Shared));
    route_of(&pair, Op::Write);
    assert!(reasons(&pair).contains("not map: KVFERRY_REQUIRE=cma asks for another"), "{}", reasons(&pair));
}

#[test]
fn a_forbidden_mechanism_is_not_taken() {
    let _unpaused = unpaused();
    for op in [Op::Write, Op::Read] {
        assert_eq!(route_of(&pair(forbidding("map"), (Shared, Shared)), op), CMA);
        assert_eq!(route_of(&pair(forbidding("cma"), (Private, Shared)), op), MAP);
    }
    let pair = pair(forbidding("map"), (Shared, Shared));
    route_of(&pair, Op::Write);
    assert!(reasons(&pair).contains("not map: KVFERRY_FORBID=map rules it out"), "{}", reasons(&pair));
}

#[test]
fn a_pair_of_regions_without_a_way_is_refused_before_it_is_posted() {
    let _unpaused = unpaused();
    for settings in [requiring("map"), forbidding("cma,tcp")] {
        let pair = pair(settings, (Private, Private));
        let block = |side: &Side| [side.pool.block(0, 4096)];
        let (near, far) = (block(&pair.left), block(&pair.right));
        let made = pair.left.transfer(Op::Write, &near, &pair.right, &far, TransferOptions::default());
        let error = made.expect_err("no way");
        assert_eq!(error.code(), "transfer.no_path", "{error}");
        let text = error.to_string();
        assert!(text.contains("not cma: KVFERRY_") && text.contains("not map: "), "{text}");
        assert!(text.contains("region 1"), "{text}");
    }
}

#[test]
fn what_cannot_be_had_at_all_is_an_error_at_the_connect() {
    let _unpaused = unpaused();
    let right = Side::new(agent("right"), Private, 4096);
    for require in ["rdma", "cuda_ipc", "rdma,cma"] {
        let left = agent_with("left", requiring(require));
        left.load_remote(&right.agent.metadata()).expect("metadata");
        let error = left.connect(right.name(), PATIENCE).expect_err("it is not built");
        assert_eq!(error.code(), "connect.path_required", "{error}");
        assert!(error.to_string().contains(require), "{error}");
        let reports = left.path(right.name()).expect("a peer");
        assert!(reports.iter().all(|report| report.route.is_none()), "{reports:?}");
    }
    let left = agent_with("left", forbidding("same_process,same_host,tcp,rdma"));
    left.load_remote(&right.agent.metadata()).expect("metadata");
    let error = left.connect(right.name(), PATIENCE).expect_err("all is forbidden");
    assert!(["connect.no_path", "connect.path_required"].contains(&error.code()), "{error}");
    assert!(error.to_string().contains("KVFERRY_FORBID"), "{error}");
}

#[test]
fn what_the_target_forbids_counts_as_well() {
    let _unpaused = unpaused();
    let left = Side::new(agent("left"), Private, LEN);
    let right = Side::new(agent_with("right", requiring("rdma")), Private, LEN);
    left.meet(&right);
    let error = left.agent.connect(right.name(), PATIENCE).expect_err("the target wants another path");
    assert!(error.code().starts_with("connect."), "{error}");
    assert!(error.to_string().contains("rdma"), "{error}");
}

#[test]
fn small_transfers_are_copied_by_the_poster_unless_that_is_forbidden() {
    let witness = Witness::at(Point::BeforeCopy);
    let settings = |inline_limit| Settings { inline_limit, ..Settings::default() };
    let own = std::thread::current().name().unwrap_or_default().to_owned();
    let copiers = |settings: Settings, len: u64, blocks: u64| {
        let pair = pair(settings, (Private, Private));
        let places: Vec<u64> = (0..blocks).map(|n| n * len * 2).collect();
        let near: Vec<_> = places.iter().map(|place| pair.left.pool.block(*place, len)).collect();
        let far: Vec<_> = places.iter().map(|place| pair.right.pool.block(*place, len)).collect();
        let transfer = pair.left.transfer(Op::Write, &near, &pair.right, &far, TransferOptions::default());
        run(&transfer.expect("a transfer"));
        let names: BTreeSet<String> = witness.take().into_iter().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        names.into_iter().next().unwrap_or_default()
    };
    assert_eq!(copiers(settings(16 << 10), 1 << 10, 16), own, "16 KiB in 16 blocks");
    assert_eq!(copiers(settings(16 << 10), 17 << 10, 1), "kvferry-copy", "a byte too many");
    assert_eq!(copiers(settings(16 << 10), 64, 17), "kvferry-copy", "a block too many");
    assert_eq!(copiers(settings(0), 1, 1), "kvferry-copy", "never");
}

#[test]
fn a_long_block_is_copied_in_chunks_whoever_copies() {
    let len = 16 << 20;
    for classes in [(Private, Private), (Private, Shared), (Shared, Private)] {
        let witness = Witness::at(Point::BeforeCopy);
        let pair = Pair::with(Settings::default(), classes, len);
        pair.left.pool.fill(kvferry_testkit::Pattern::new(7));
        run(&pair.left.one_block(Op::Write, &pair.right, 0, len, TransferOptions::default()));
        pair.right.pool.verify(kvferry_testkit::Pattern::new(7));
        // A revocation waits for no more than 2 MiB.
        assert!(witness.take().len() as u64 >= len >> 21, "{classes:?}");
    }
}

#[test]
fn statistics_count_what_has_happened() {
    let _unpaused = unpaused();
    let left = Side::new(agent("left"), Private, LEN);
    let right = Side::new(agent("right"), Shared, LEN);
    assert_eq!(left.agent.stats(), kvferry::Stats::default());
    left.meet(&right);
    run(&left.one_block(Op::Write, &right, 0, LEN, TransferOptions::default().notify("one")));
    run(&left.one_block(Op::Read, &right, 0, 4096, TransferOptions::default()));
    let transfer = left.one_block(Op::Write, &right, 0, LEN, TransferOptions::default());
    let mut cancelled = 0;
    while cancelled == 0 {
        transfer.post().expect("a post");
        transfer.cancel().expect("it stops");
        cancelled += u64::from(transfer.status() == kvferry::Status::Cancelled);
    }
    let stats = left.agent.stats();
    assert_eq!((stats.cancels, stats.fences, stats.queue_depth), (cancelled, 0, 0));
    assert_eq!((stats.peers_up, stats.peers_lost, stats.peers_restarted), (1, 0, 0));
    assert_eq!((stats.notifications_sent, right.agent.stats().notifications_received), (1, 1));
    assert_eq!((stats.links_out, stats.links_in, right.agent.stats().links_in), (1, 0, 1));
    let map = stats.paths[&(Path::SameProcess, Mechanism::Map)];
    assert!(map.transfers >= 2 && map.bytes >= LEN + 4096);
    assert!(stats.failures.is_empty());

    right.pool.deregister().expect("nobody uses it");
    eventually("the initiator hears of it", || {
        transfer.post().is_err()
            || transfer.wait(PATIENCE).is_ok_and(|status| status != kvferry::Status::Done)
    });
    drop(right.agent);
    eventually("the loss", || left.agent.stats().peers_lost == 1);
    let stats = left.agent.stats();
    assert_eq!((stats.links_out, stats.queue_depth), (0, 0));
    let text = stats.to_string();
    assert!(text.contains("same_process map: ") && text.contains("peers 1 up 1 lost 0 restarted"), "{text}");
}

/// The name of the variable that makes a test of this file the child of another.
const CHILD: &str = "KVFERRY_TESTKIT_CHILD";

/// Runs the test `name` of this file in a process of its own, which does its part as a child, and returns what it writes to
/// standard error.
fn child_says(name: &str, log: &str) -> String {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", name, "--nocapture"]).env(CHILD, "1").env("KVFERRY_LOG", log);
    let output = command.output().expect("a child");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn logs_show_each_region_and_the_settings() {
    if std::env::var_os(CHILD).is_some() {
        kvferry::init_logging().expect("a good KVFERRY_LOG");
        let Pair { left, right } = Pair::new(Private, 4096);
        println!("addr {:#x}", left.pool.addr());
        eprintln!("region at {:#x}", left.pool.addr());
        run(&left.one_block(Op::Write, &right, 0, 64, TransferOptions::default()));
        return;
    }
    let name = "logs_show_each_region_and_the_settings";
    let text = child_says(name, "register=debug,control=info,path=debug");
    let addr = text.lines().find_map(|line| line.strip_prefix("region at ")).expect("the address").to_owned();
    let of_region =
        text.lines().find(|line| line.contains("DEBUG") && line.contains(&addr)).expect("the region's line");
    for part in ["kvferry::register", "index=0", "id=1", "length=4096", "kind=DRAM", "device=0"] {
        assert!(of_region.contains(part), "{part} is not in {of_region}");
    }
    assert!(text.lines().any(|line| line.contains("registered 1 region, 4 KiB")), "{text}");
    let settings: Vec<_> =
        text.lines().filter(|line| line.contains("threads=") && line.contains("token=unset")).collect();
    assert_eq!(settings.len(), 2, "one line for each agent: {text}");
    assert!(
        settings[0].contains("inline_limit=16KiB") || settings[0].contains("inline_limit=16"),
        "{}",
        settings[0]
    );
    assert!(
        text.lines().any(|line| line.contains("kvferry::path") && line.contains("same_process cma")),
        "{text}"
    );
    assert!(!child_says(name, "warn").contains("registered"), "the default is silent about it");
    assert!(!child_says(name, "off").contains("kvferry::"));
}

#[test]
fn a_log_setting_that_is_none_is_an_error() {
    if std::env::var_os(CHILD).is_some() {
        let error = kvferry::init_logging().expect_err("no level");
        eprintln!("{error}");
        return;
    }
    let text = child_says("a_log_setting_that_is_none_is_an_error", "register=loud");
    assert!(text.contains("KVFERRY_LOG=register=loud: \"loud\" is not a level; allowed: "), "{text}");
    assert!(text.contains("(settings.invalid)"), "{text}");
}

#[test]
fn an_agent_is_built_with_good_settings_and_a_good_name_only() {
    let _unpaused = unpaused();
    let build = |name: &str, settings: Settings| Agent::builder(name).settings(settings).build();
    for name in [String::new(), "x".repeat(257)] {
        let error = build(&name, Settings::default()).expect_err("no name");
        assert_eq!(error.code(), "agent.name_invalid");
        assert!(error.to_string().contains(&name.len().to_string()), "{error}");
    }
    build(&"ü".repeat(128), Settings::default()).expect("256 bytes");
    let bad: [(Settings, &str); 6] = [
        (Settings { threads: 0, ..Settings::default() }, "KVFERRY_THREADS"),
        (Settings { threads: 33, ..Settings::default() }, "KVFERRY_THREADS"),
        (Settings { queue_depth: 0, ..Settings::default() }, "KVFERRY_QUEUE_DEPTH"),
        (Settings { connect_timeout: Duration::ZERO, ..Settings::default() }, "KVFERRY_CONNECT_TIMEOUT"),
        (Settings { socket_dir: Some("relative".into()), ..Settings::default() }, "KVFERRY_SOCKET_DIR"),
        (Settings { address: Some("0.0.0.0".into()), ..Settings::default() }, "KVFERRY_ADDRESS"),
    ];
    for (settings, variable) in bad {
        let error = build(&unique_name("bad"), settings).expect_err("a setting that is not allowed");
        assert_eq!(error.code(), "settings.invalid");
        assert!(error.to_string().starts_with(&format!("{variable}=")), "{error}");
        assert!(error.to_string().contains("; allowed: ") && !error.remedy().is_empty(), "{error}");
    }
    let both = Settings { require: PathSet::EMPTY.with(PathName::Map), ..forbidding("map") };
    if let Err(error) = build(&unique_name("both"), both) {
        assert_eq!(error.code(), "settings.invalid", "{error}");
    }
}

#[test]
fn a_socket_directory_is_used_and_cleaned() {
    let _unpaused = unpaused();
    let directory = tempfile::tempdir().expect("a directory");
    let settings = Settings { socket_dir: Some(directory.path().into()), ..Settings::default() };
    let sockets = || std::fs::read_dir(directory.path()).expect("a directory").count();
    {
        let (left, right) = (agent("left"), agent_with("right", settings));
        assert_eq!(sockets(), 1);
        left.load_remote(&right.metadata()).expect("metadata");
        left.connect(right.name(), PATIENCE).expect("a link");
    }
    eventually("the socket is removed", || sockets() == 0);
}

/// An error of every kind, as code, text and remedy.
fn all_errors() -> Vec<(&'static str, String, &'static str)> {
    let peer = || "b".to_owned();
    let source = || Arc::new(io::Error::other("no"));
    let why_not = || vec![WhyNot { way: "cma", reason: "no".into() }];
    let lost = || LostCause::Died;
    let id = RegionId(1);
    let mut all = Vec::new();
    macro_rules! take {
        ($($error:expr),* $(,)?) => {
            $({
                let error = $error;
                all.push((error.code(), error.to_string(), error.remedy()));
            })*
        };
    }
    take![
        AllocError::Empty,
        AllocError::System { bytes: 1, source: source() },
        AllocError::Forked,
        BuildError::Name { length: 0, most: 256 },
        BuildError::Resources { what: "a thread", source: io::Error::other("no") },
        RegisterError::Forked,
        RegisterError::Closed,
        DeregisterError::Unknown { id },
        DeregisterError::Busy { peers: vec![peer()], waited: Duration::ZERO },
        DeregisterError::Forked,
        DeregisterError::Closed,
        MetadataError::Own,
        MetadataError::Stale { peer: peer(), detail: "old".into() },
        MetadataError::UnknownRegion(id),
        MetadataError::Forked,
        ConnectError::UnknownPeer { peer: peer() },
        ConnectError::Unreachable { peer: peer(), tried: Vec::new() },
        ConnectError::Unauthorized { peer: peer(), detail: "no".into() },
        ConnectError::Refused { peer: peer(), reason: "no".into() },
        ConnectError::Restarted { peer: peer() },
        ConnectError::Version { peer: peer(), ours: 1, theirs: 2 },
        ConnectError::Timeout { peer: peer(), after: Duration::ZERO, tried: Vec::new() },
        ConnectError::PathRequired { peer: peer(), required: "rdma".into(), why_not: why_not() },
        ConnectError::NoPath { peer: peer(), why_not: why_not() },
        ConnectError::Lost { peer: peer(), cause: lost() },
        ConnectError::Closed,
        ConnectError::Forked,
        ConnectError::Resources { peer: peer(), what: "a page", source: source() },
        DisconnectError::Unknown(peer()),
        DisconnectError::Busy { peer: peer(), waited: Duration::ZERO },
        PeerError::Unknown(peer()),
        PrepareError::Deregistered { side: "local", region: id },
        PrepareError::UnknownPeer(peer()),
        PrepareError::Forked,
        TransferError::WrongSide { side: "local", detail: "is wrong" },
        TransferError::StaleList { side: "local", detail: "old".into() },
        TransferError::NoPath { local: "a".into(), remote: "b".into(), why_not: why_not() },
        TransferError::Lost(FaultCause::Closed),
        PostError::Active,
        PostError::Backlog { depth: 1 },
        PostError::Fault(FaultCause::PeerRestarted { peer: peer() }),
        PostError::Forked,
        NotifyError::Backlog { peer: peer(), bytes: 1 },
        NotifyError::TooLarge { bytes: 2, max: 1 },
        CancelError::Fenced { peer: peer(), waited: Duration::ZERO },
        CancelError::StillRunning { by: peer(), waited: Duration::ZERO },
        WaitTimeout { waited: Duration::ZERO },
        FaultCause::PeerLost { peer: peer(), cause: lost() },
        FaultCause::PeerRestarted { peer: peer() },
        FaultCause::LinkLost { peer: peer(), detail: "gone".into() },
        FaultCause::Unmapped { side: FaultSide::Local, block: 1, addr: 2 },
        FaultCause::Revoked { side: FaultSide::Remote },
        FaultCause::Denied { detail: "no".into() },
        FaultCause::Executor { detail: "no".into() },
        FaultCause::Closed,
        Settings { threads: 0, ..Settings::default() }.check().expect_err("no threads"),
    ];
    let kind = MemoryKind::Dram;
    let causes = [
        RegisterCause::ZeroLength,
        RegisterCause::Overflow,
        RegisterCause::Null,
        RegisterCause::Unmapped { from: 1 },
        RegisterCause::NoAccess { from: 1, needed: "readable" },
        RegisterCause::SpecialMapping { from: 1, what: "odd".into() },
        RegisterCause::KindMismatch { from: 1, declared: kind, path: "/dev/nvidia0".into() },
        RegisterCause::VramNoDriver { places: Vec::new().into() },
        RegisterCause::UnsupportedKind { what: "no".into() },
        RegisterCause::System { what: "no".into() },
        RegisterCause::Limit { most: 1 },
    ];
    // A cause alone is part of a region's text, which has the code.
    all.extend(causes.map(|cause| (cause.code(), format!("{cause} ({})", cause.code()), cause.remedy())));
    all
}

#[test]
fn every_error_has_a_code_of_the_catalogue_and_a_remedy() {
    for (code, text, remedy) in all_errors() {
        let record = Code::find(code).unwrap_or_else(|| panic!("{code} is not in the catalogue: {text}"));
        assert_eq!(record.remedy, remedy);
        assert!(!remedy.is_empty() && !record.summary.is_empty(), "{code}");
        assert!(
            text.contains(&format!("({code})")) || code == "transfer.no_path",
            "{code} is not in: {text}"
        );
        // No sentence, though it may begin with a name such as KVFERRY_THREADS or GPU.
        let mut letters = text.chars();
        let sentence =
            letters.next().is_some_and(char::is_uppercase) && letters.next().is_some_and(char::is_lowercase);
        assert!(!sentence && !text.ends_with('.'), "{text}");
    }
}

#[test]
fn the_catalogue_and_the_sources_name_the_same_codes() {
    let sources = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut text = String::new();
    for part in ["kvferry/src", "kvferry-kv/src"] {
        gather(&sources.join(part), &mut text);
    }
    // What looks like a code of one of the catalogue's families is one.
    let families: BTreeSet<&str> =
        Code::all().iter().filter_map(|code| code.code.split('.').next()).collect();
    let quoted = text.split('"').filter(|piece| {
        let mut parts = piece.split('.');
        let family = parts.next().is_some_and(|family| families.contains(family));
        let cause = parts.next().is_some_and(|cause| {
            !cause.is_empty() && cause.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
        });
        family && cause && parts.next().is_none()
    });
    let used: BTreeSet<&str> = quoted.collect();
    assert!(used.len() > 50, "{used:?}");
    let unknown: Vec<_> = used.iter().filter(|code| Code::find(code).is_none()).collect();
    assert!(unknown.is_empty(), "not in the catalogue: {unknown:?}");
    let unused: Vec<_> =
        Code::all().iter().map(|code| code.code).filter(|code| !used.contains(code)).collect();
    assert!(unused.is_empty(), "no error has these codes: {unused:?}");
}

/// Adds the text of all sources below `directory`, tests aside.
fn gather(directory: &FilePath, text: &mut String) {
    for entry in std::fs::read_dir(directory).expect("the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            gather(&path, text);
        } else if path.extension().is_some_and(|ext| ext == "rs") && !path.ends_with("tests.rs") {
            text.push_str(&std::fs::read_to_string(&path).expect("a source"));
        }
    }
}
