//! Hosts that forbid processes each other's memory: the cause and the remedy are named, kvferry's own memory works all the
//! same, and a path that is required is an error at connect.
//!
//! All workers here give up being root first: root may do what is forbidden to others.

use kvferry_testkit::harness::{
    Confinement, Failure, Launch, Memory, Registered, Request, State, Worker, skip,
};

const CHILD: &str = env!("CARGO_BIN_EXE_kvferry-test-child");

const NOBODY: u32 = 65_534;
const SOMEBODY: u32 = 65_533;

const BYTES: u64 = 4 << 20;
const BLOCK: u64 = 64 << 10;

fn nobody() -> Confinement {
    Confinement { user: Some(NOBODY), ..Confinement::default() }
}

/// Two workers in their confinements; none, with a word about it, where this machine does not allow that.
fn pair(ours: &Confinement, theirs: &Confinement, settings: &[(&str, &str)]) -> Option<(Worker, Worker)> {
    let start = |name: &str, confinement: &Confinement| {
        let launch = Launch::new(CHILD, name).confined(confinement.clone());
        let launch = settings.iter().fold(launch, |launch, (name, value)| launch.env(name, value));
        match launch.try_start() {
            Ok(worker) => Some(worker),
            Err(why) => {
                skip(why);
                None
            }
        }
    };
    let (a, b) = (start("a", ours)?, start("b", theirs)?);
    a.build();
    b.build();
    Some((a, b))
}

fn connect(a: &Worker, b: &Worker) -> Result<(), Failure> {
    a.load(b).unwrap_or_else(|e| panic!("{e:?}"));
    a.connect(b.name())
}

/// The line of the path report for two memories.
fn path_line(a: &Worker, b: &Worker, memories: &str) -> String {
    let reports = a.path(b.name());
    let line = reports.iter().find(|line| line.starts_with(memories));
    line.unwrap_or_else(|| panic!("no {memories:?} in {reports:#?}")).clone()
}

/// Moves data both ways and compares it; returns the mechanism.
fn moves(a: &Worker, near: Registered, b: &Worker, far: Registered) -> String {
    a.load(b).unwrap_or_else(|e| panic!("{e:?}"));
    a.fill(near.buffer, 1);
    b.poison(far.buffer);
    let written = a.run(&a.write(near.buffer, b, far.buffer).in_blocks_of(BLOCK));
    b.expect_filled(far.buffer, 1);
    a.poison(near.buffer);
    let read = a.run(&a.read(near.buffer, b, far.buffer).in_blocks_of(BLOCK));
    a.expect_filled(near.buffer, 1);
    let mechanism = a.measured(written).mechanism;
    assert_eq!(mechanism, a.measured(read).mechanism);
    mechanism
}

/// Two workers of which neither reaches the other's private memory.
fn both_denied(ours: &Confinement, theirs: &Confinement, yama: bool, cause: &str, remedy: &str) {
    one_way_or_none(ours, theirs, yama, true, cause, remedy);
    one_way_or_none(ours, theirs, yama, false, cause, remedy);
    require_cma(ours, theirs, yama, cause, remedy);
}

/// They go through sockets, unless the settings rule that out as well.
fn one_way_or_none(
    ours: &Confinement,
    theirs: &Confinement,
    yama: bool,
    tcp: bool,
    cause: &str,
    remedy: &str,
) {
    let forbid: &[_] = if tcp { &[] } else { &[("KVFERRY_FORBID", "tcp")] };
    let Some((a, b)) = pair(ours, theirs, forbid) else { return };
    if yama {
        a.expect::<()>(&Request::Yama { on: true });
        b.expect::<()>(&Request::Yama { on: true });
    }
    connect(&a, &b).unwrap_or_else(|e| panic!("{e:?}"));
    let line = path_line(&a, &b, "private memory to private memory");
    println!("{line}");
    let said = |text: &str| {
        assert!(text.contains(cause), "no {cause:?} in {text}");
        assert!(text.contains(remedy), "no {remedy:?} in {text}");
    };
    said(&line);

    // Memory that kvferry allocates is mapped, not reached into.
    let (near, far) = (a.registered(Memory::Private, BYTES), b.registered(Memory::Private, BYTES));
    let (shared, there) = (a.registered(Memory::Shared, BYTES), b.registered(Memory::Shared, BYTES));
    assert_eq!(moves(&a, near, &b, there), "map");
    assert_eq!(moves(&a, shared, &b, there), "map");
    assert_eq!(moves(&a, shared, &b, far), "map");

    if tcp {
        // What is out of reach goes through sockets.
        assert!(line.contains(": tcp stream"), "{line}");
        assert_eq!(moves(&a, near, &b, far), "stream");
    } else {
        assert!(line.contains(": no way"), "{line}");
        // The same words where somebody tries.
        a.load(&b).unwrap_or_else(|e| panic!("{e:?}"));
        let refused = a.transfer(&a.write(near.buffer, &b, far.buffer)).unwrap_err();
        assert_eq!(refused.code, "transfer.no_path");
        said(&refused.text);
        assert!(refused.text.contains("not tcp: KVFERRY_FORBID=tcp rules it out"), "{}", refused.text);
    }
}

/// Whoever requires the mechanism hears of it at connect.
fn require_cma(ours: &Confinement, theirs: &Confinement, yama: bool, cause: &str, remedy: &str) {
    let Some((a, b)) = pair(ours, theirs, &[("KVFERRY_REQUIRE", "cma")]) else { return };
    if yama {
        a.expect::<()>(&Request::Yama { on: true });
        b.expect::<()>(&Request::Yama { on: true });
    }
    let refused = connect(&a, &b).unwrap_err();
    println!("{}", refused.text);
    assert_eq!(refused.code, "connect.path_required", "{refused:?}");
    assert!(refused.text.contains(cause) && refused.text.contains(remedy), "{}", refused.text);
}

/// `a` cannot reach `b`, but `b` can reach `a`: it copies, whoever asks, and nothing is refused.
fn a_denied(ours: &Confinement, theirs: &Confinement) {
    let Some((a, b)) = pair(ours, theirs, &[("KVFERRY_REQUIRE", "cma")]) else { return };
    connect(&a, &b).unwrap_or_else(|e| panic!("{e:?}"));
    connect(&b, &a).unwrap_or_else(|e| panic!("{e:?}"));
    let there = path_line(&a, &b, "private memory to private memory");
    let back = path_line(&b, &a, "private memory to private memory");
    println!("a to b: {there}; b to a: {back}");
    assert!(there.contains("same_host cma by the target"), "{there}");
    assert!(back.contains("same_host cma") && !back.contains("by the target"), "{back}");
    let (near, far) = (a.registered(Memory::Private, BYTES), b.registered(Memory::Private, BYTES));
    assert_eq!(moves(&a, near, &b, far), "cma");
    assert_eq!(moves(&b, far, &a, near), "cma");
    // A fault is named alike, whoever copies.
    b.expect::<()>(&Request::Unmap { buffer: far.buffer.index, offset: BYTES / 2 });
    let transfer = a.transfer(&a.write(near.buffer, &b, far.buffer).in_blocks_of(BLOCK)).unwrap();
    a.post(transfer).unwrap();
    let State::Failed(failure) = a.wait(transfer, 10_000).unwrap() else {
        panic!("memory that is not there was copied")
    };
    assert_eq!(failure.code, "region.unmapped", "{failure:?}");
    assert!(failure.text.contains(&format!("(block {})", BYTES / 2 / BLOCK)), "{failure:?}");
}

#[test]
fn one_unprivileged_user_reaches_its_own_processes() {
    let Some((a, b)) = pair(&nobody(), &nobody(), &[]) else { return };
    connect(&a, &b).unwrap_or_else(|e| panic!("{e:?}"));
    let (near, far) = (a.registered(Memory::Private, BYTES), b.registered(Memory::Private, BYTES));
    assert_eq!(moves(&a, near, &b, far), "cma");
}

#[test]
fn seccomp_on_both_sides() {
    let filtered = Confinement { seccomp: true, ..nobody() };
    both_denied(
        &filtered,
        &filtered,
        false,
        "a seccomp filter forbids this process cross-memory attach",
        "seccomp profile",
    );
}

#[test]
fn seccomp_on_one_side() {
    a_denied(&Confinement { seccomp: true, ..nobody() }, &nobody());
}

#[test]
fn user_namespaces_on_both_sides() {
    let apart = Confinement { user_namespace: true, ..nobody() };
    both_denied(
        &apart,
        &apart,
        false,
        "the peer is in another user namespace",
        "run both processes in one user namespace",
    );
}

#[test]
fn a_user_namespace_on_one_side() {
    // Whoever owns the namespace may reach into it, but not out of it.
    a_denied(&Confinement { user_namespace: true, ..nobody() }, &nobody());
}

#[test]
fn pid_namespaces_on_both_sides() {
    let apart = Confinement { pid_namespace: true, ..nobody() };
    both_denied(
        &apart,
        &apart,
        false,
        "the peer is in another PID namespace",
        "run both processes in one PID namespace",
    );
}

#[test]
fn a_pid_namespace_on_one_side() {
    a_denied(&Confinement { pid_namespace: true, ..nobody() }, &nobody());
}

#[test]
fn not_dumpable_on_both_sides() {
    let hidden = Confinement { undumpable: true, ..nobody() };
    both_denied(&hidden, &hidden, false, "the peer is not dumpable", "PR_SET_DUMPABLE 0");
}

#[test]
fn not_dumpable_on_one_side() {
    a_denied(&nobody(), &Confinement { undumpable: true, ..nobody() });
}

#[test]
fn two_users() {
    let other = Confinement { user: Some(SOMEBODY), ..Confinement::default() };
    both_denied(
        &nobody(),
        &other,
        false,
        "the peer runs as user 65533, this process as 65534",
        "run both processes as one user",
    );
}

#[test]
fn yama_injected_on_both_sides() {
    println!("injected: both processes are made to see Yama's EPERM and ptrace_scope 1");
    both_denied(&nobody(), &nobody(), true, "kernel.yama.ptrace_scope is 1", "KVFERRY_PTRACER");
}

#[test]
fn yama_injected_on_one_side() {
    println!("injected: one process is made to see Yama's EPERM and ptrace_scope 1");
    let Some((a, b)) = pair(&nobody(), &nobody(), &[]) else { return };
    a.expect::<()>(&Request::Yama { on: true });
    connect(&a, &b).unwrap_or_else(|e| panic!("{e:?}"));
    let line = path_line(&a, &b, "private memory to private memory");
    assert!(line.contains("same_host cma by the target"), "{line}");
    let (near, far) = (a.registered(Memory::Private, BYTES), b.registered(Memory::Private, BYTES));
    assert_eq!(moves(&a, near, &b, far), "cma");
}

#[test]
fn a_mechanism_that_is_forbidden_by_the_settings() {
    for (forbid, way) in [("cma", ": tcp stream"), ("tcp,cma", ": no way")] {
        let Some((a, b)) = pair(&nobody(), &nobody(), &[("KVFERRY_FORBID", forbid)]) else { return };
        connect(&a, &b).unwrap_or_else(|e| panic!("{e:?}"));
        let line = path_line(&a, &b, "private memory to private memory");
        let why = format!("KVFERRY_FORBID={forbid} rules it out");
        assert!(line.contains(way) && line.contains(&why), "no {way:?} and {why:?} in {line}");
        let (near, far) = (a.registered(Memory::Private, BYTES), b.registered(Memory::Shared, BYTES));
        assert_eq!(moves(&a, near, &b, far), "map");
    }
}

#[test]
fn a_mechanism_that_only_the_target_requires() {
    let filtered = Confinement { seccomp: true, ..nobody() };
    let a = Launch::new(CHILD, "a").confined(filtered.clone()).start();
    let b = Launch::new(CHILD, "b").confined(filtered).env("KVFERRY_REQUIRE", "cma").start();
    let refused = connect(&a, &b).unwrap_err();
    println!("{}", refused.text);
    assert!(["connect.path_required", "connect.no_path"].contains(&refused.code.as_str()), "{refused:?}");
    assert!(
        refused.text.contains("KVFERRY_REQUIRE=cma") && refused.text.contains("seccomp"),
        "{}",
        refused.text
    );
}
