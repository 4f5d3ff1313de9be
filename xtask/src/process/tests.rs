use super::*;

fn shell(script: &str, limit: Duration) -> Finished {
    run(Command::new("sh").arg("-c").arg(script), limit).expect("sh")
}

#[test]
fn both_streams_are_kept_and_the_code_comes_back() {
    let finished = shell("echo one; echo two >&2; printf three; exit 7", Duration::from_secs(30));
    assert_eq!(finished.status.code(), Some(7));
    assert!(!finished.timed_out);
    assert_eq!(finished.stdout, ["one", "three"]);
    let mut all = finished.output;
    all.sort();
    assert_eq!(all, ["one", "three", "two"]);
}

#[test]
fn a_hanging_command_is_killed_with_its_children() {
    let started = Instant::now();
    let finished = shell("sleep 600 & echo $!; wait", Duration::from_millis(300));
    assert!(finished.timed_out);
    assert!(started.elapsed() < Duration::from_secs(60));
    let orphan: u32 = finished.stdout[0].parse().expect("pid");
    let alive = || {
        let stat = fs::read_to_string(format!("/proc/{orphan}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
    };
    // A kill is sent at once and takes its time.
    while alive() {
        assert!(started.elapsed() < Duration::from_secs(30), "the grandchild still runs");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_child_left_behind_does_not_hold_us_up() {
    let started = Instant::now();
    let finished = shell("sleep 20 & echo done", Duration::from_secs(60));
    assert_eq!(finished.stdout, ["done"]);
    assert!(started.elapsed() < Duration::from_secs(15));
}

#[test]
fn the_parent_is_found_behind_any_name() {
    assert_eq!(parent_in("12 (a b) c) S 34 12 12 0"), Some(34));
    assert_eq!(parent_in("nonsense"), None);
}

/// This test runs itself once more, as the process that is asked to end.
#[test]
fn who_is_asked_to_end_takes_its_descendants_along() {
    const ROLE: &str = "KVFERRY_TEST_ASKED_TO_END";
    if std::env::var_os(ROLE).is_some() {
        adopt_orphans().expect("adopt");
        end_with_descendants().expect("handler");
        shell("setsid sleep 600 >/dev/null 2>&1 & echo runs $!; sleep 600", Duration::from_secs(60));
        return;
    }
    let mut asked = Command::new(std::env::current_exe().expect("this program"))
        .args(["process::tests::who_is_asked_to_end_takes_its_descendants_along", "--exact", "--nocapture"])
        .env(ROLE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program");
    let lines = BufReader::new(asked.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let pid = lines.filter_map(|line| line.rsplit_once("runs ")?.1.parse().ok()).next();
    let pid = Pid::from_raw(pid.expect("no process was started")).expect("pid");
    assert!(runs(pid));
    kill_process(Pid::from_child(&asked), Signal::TERM).expect("kill");
    assert_eq!(asked.wait().expect("wait").code(), Some(128 + SIGTERM));
    assert!(!runs(pid), "the process in a session of its own still runs");
}

#[test]
fn orphans_are_adopted() {
    adopt_orphans().expect("adopt");
    let finished = shell("setsid sleep 600 >/dev/null 2>&1 & echo $!", Duration::from_secs(30));
    let pid: i32 = finished.stdout[0].parse().expect("pid");
    let pid = Pid::from_raw(pid).expect("pid");
    assert!(descendants(std::process::id()).contains(&pid) && runs(pid));
    kill_process(pid, Signal::KILL).expect("kill");
    let started = Instant::now();
    while runs(pid) {
        assert!(started.elapsed() < Duration::from_secs(30), "it still runs");
        thread::sleep(Duration::from_millis(10));
    }
}
