//! `kvferry bench` as a user calls it, with small pools: what it says, not how fast it is.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

const SMALL: [&str; 4] = ["--pool", "4MiB", "--rounds", "2"];

/// A call with an environment of its own, so that no variable of the caller's gets in.
fn bench() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvferry"));
    command.env_clear().env("PATH", "/usr/bin:/bin").arg("bench");
    command
}

fn run(args: &[&str]) -> Output {
    bench().args(SMALL).args(args).output().expect("kvferry starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn rows(output: &Output) -> Vec<Value> {
    let stdout = text(&output.stdout);
    stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// The keys of a row, sorted.
fn keys(row: &Value) -> Vec<&str> {
    row.as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// `pattern op` of each row, in order.
fn names(rows: &[Value]) -> Vec<String> {
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    rows.iter().map(|row| format!("{} {}", text(row, "pattern"), text(row, "op"))).collect()
}

#[test]
fn every_pattern_has_its_rows_over_one_host() {
    let dir = tempfile::tempdir().expect("directory");
    let plot = dir.path().join("bench.svg");
    let output = run(&["--memory", "private,kvferry", "--json", "--plot", plot.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = rows(&output);
    let mut expected = Vec::new();
    for pattern in ["a", "b", "c", "d", "r", "e"] {
        expected.extend([format!("{pattern} write"), format!("{pattern} read")]);
    }
    expected.push("g notify".to_owned());
    expected.extend(["write", "read"].iter().flat_map(|op| [(); 3].map(|()| format!("p {op}"))));
    let half = expected.len();
    let (private, kvferry) = rows.split_at(half);
    assert_eq!(names(private), expected);
    assert_eq!(names(kvferry), expected);

    for row in &rows {
        let pattern = row["pattern"].as_str().expect("a pattern");
        let memory = row["memory"].as_str().expect("a memory");
        let mut wanted =
            vec!["pattern", "op", "path", "mechanism", "memory", "limit", "limit_median", "ratio"];
        wanted.extend(["cpu_s_per_gb", "verified"]);
        let bulk = "abcdr".contains(pattern);
        let values: &[_] =
            if bulk { &["gbps_median", "gbps_min", "gbps_max"] } else { &["p50_us", "p99_us"] };
        wanted.extend(values);
        wanted.extend((pattern == "p").then_some("blocks"));
        wanted.sort_unstable();
        assert_eq!(keys(row), wanted, "{row}");

        let (mechanism, raw) = if memory == "private" { ("cma", "cma") } else { ("map", "copy") };
        let limit = match pattern {
            "e" => "call",
            "g" => "pingpong",
            _ => raw,
        };
        assert_eq!(row["limit"], limit, "{row}");
        assert_eq!(row["mechanism"], if pattern == "g" { "control" } else { mechanism }, "{row}");
        assert_eq!(row["path"], "same_host", "{row}");
        assert_eq!(row["verified"], true, "{row}");
        for key in values.iter().chain(&["limit_median", "ratio"]) {
            assert!(row[*key].as_f64().is_some_and(|value| value > 0.0), "{key}: {row}");
        }
        assert_eq!(row["cpu_s_per_gb"].is_null(), pattern == "g", "{row}");
        let median = if bulk { &row["gbps_median"] } else { &row["p50_us"] };
        let quotient = median.as_f64().expect("a number") / row["limit_median"].as_f64().expect("a number");
        let ratio = row["ratio"].as_f64().expect("a number");
        assert!((ratio - quotient).abs() <= 0.01 * quotient.max(0.1), "{row}");
        if bulk {
            assert!(row["gbps_min"].as_f64() <= row["gbps_median"].as_f64(), "{row}");
            assert!(row["gbps_median"].as_f64() <= row["gbps_max"].as_f64(), "{row}");
        } else {
            assert!(row["p50_us"].as_f64() <= row["p99_us"].as_f64(), "{row}");
        }
    }
    let blocks: Vec<_> = rows.iter().filter_map(|row| row.get("blocks")?.as_u64()).collect();
    assert_eq!(blocks, [1_000, 10_000, 100_000].repeat(4));

    let svg = fs::read_to_string(plot).expect("the plot");
    assert!(svg.contains("same_host, private memory") && svg.contains("p 100k"), "{svg}");
}

#[test]
fn tcp_has_limits_of_its_own() {
    let output = run(&["--path", "tcp", "--patterns", "a,d,e,g,p", "--memory", "kvferry", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = rows(&output);
    assert_eq!(rows.len(), 13);
    for row in &rows {
        let pattern = row["pattern"].as_str().expect("a pattern");
        let limit = if "eg".contains(pattern) { "pingpong" } else { "tcp" };
        assert_eq!(row["limit"], limit, "{row}");
        assert_eq!(row["mechanism"], if pattern == "g" { "control" } else { "stream" }, "{row}");
        assert_eq!((&row["path"], &row["verified"]), (&Value::from("tcp"), &Value::from(true)), "{row}");
    }
}

#[test]
fn people_get_a_table_with_the_conditions() {
    let dir = tempfile::tempdir().expect("directory");
    let plot = dir.path().join("bench.png");
    let args = ["--patterns", "r,a,r", "--op", "read", "--threads", "3", "--plot"];
    let output = run(&[&args[..], &[plot.to_str().expect("UTF-8")]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    let firsts: Vec<_> =
        stdout.lines().take(3).map(|line| line.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(firsts, ["row", "r", "a"], "{stdout}");
    for piece in ["GB/s", "same_host", "cma", "private", "smaller than 1 GiB", "3 copy threads", "Linux"] {
        assert!(stdout.contains(piece), "{piece} is not in {stdout}");
    }
    assert!(!stdout.contains("WRONG"), "{stdout}");
    assert!(fs::read(plot).expect("the plot").starts_with(b"\x89PNG"));
}

#[test]
fn a_wrong_byte_is_found_in_every_kind_of_row() {
    let output = run(&["--patterns", "c,e,g,p", "--json", "--flip"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let rows = rows(&output);
    assert_eq!(rows.len(), 11);
    for row in rows {
        assert_eq!(row["verified"], false, "{row}");
    }
    let output = run(&["--patterns", "a,e", "--op", "write", "--flip"]);
    assert_eq!(output.status.code(), Some(1));
    let stdout = text(&output.stdout);
    assert_eq!(stdout.matches("WRONG BYTES").count(), 2, "{stdout}");
    assert!(stdout.contains("a write: block 0 holds 0x"), "{stdout}");
}

#[test]
fn a_row_that_is_missing_is_named_with_its_cause() {
    let mut command = bench();
    command.args(SMALL).args(["--patterns", "a,p", "--op", "write", "--json", "--memory", "kvferry,private"]);
    let output = command.env("KVFERRY_FORBID", "cma").output().expect("kvferry starts");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    // The other memory does without.
    assert_eq!(names(&rows(&output)), ["a write", "p write", "p write", "p write"]);
    let missing: Vec<_> = stderr.lines().filter(|line| line.starts_with("missing: ")).collect();
    assert_eq!(missing.len(), 4, "{stderr}");
    assert!(missing[0].starts_with("missing: same_host private a write: "), "{stderr}");
    assert!(missing[3].starts_with("missing: same_host private p of 100000 blocks write: "), "{stderr}");
    assert!(missing.iter().all(|line| line.contains("KVFERRY_FORBID")), "{stderr}");
}

#[test]
fn nonsense_is_refused() {
    for (args, word) in [
        (&["--patterns", "z"][..], "a, b, c, d, r, e, g, p"),
        (&["--patterns", ""], "a, b, c, d, r, e, g, p"),
        (&["--op", "sideways"], "both"),
        (&["--path", "pigeon"], "same_host, tcp"),
        (&["--memory", "borrowed"], "private, kvferry"),
        (&["--rounds", "0"], "1 to 10000"),
        (&["--pool", "1MiB"], "4 MiB"),
        (&["--pool", "1GB"], "GiB"),
        (&["--pool", "99999999999GiB"], "more than"),
        (&["--pool", "MiB"], "number"),
        (&["--threads", "0"], "1 to 32"),
        (&["--plot", "bench.jpg"], ".svg or a .png"),
        (&["--plot", "/nonexistent/bench.svg"], "/nonexistent"),
        (&["--listen", "nowhere"], "ADDR:PORT"),
        (&["--connect", "127.0.0.1"], "ADDR:PORT"),
        (&["--listen", "127.0.0.1:0", "--connect", "127.0.0.1:1"], "cannot be used with"),
        (&["extra"], "extra"),
    ] {
        let output = bench().args(args).output().expect("kvferry starts");
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(word) && !stderr.contains("panicked"), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    let output = bench().env("KVFERRY_THREADS", "many").output().expect("kvferry starts");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

/// A process that is killed and reaped at the end of its test.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_far_side_can_be_a_process_that_listens() {
    let mut listening =
        bench().args(["--listen", "127.0.0.1:0"]).stderr(Stdio::piped()).spawn().expect("start");
    let mut stderr = BufReader::new(listening.stderr.take().expect("a pipe"));
    let mut listening = Guarded(listening);
    let mut line = String::new();
    stderr.read_line(&mut line).expect("a line");
    let address = line.trim().strip_prefix("listening at ").unwrap_or_else(|| panic!("{line}")).to_owned();

    // Somebody who talks nonsense does not end it, nor does somebody who leaves at once.
    let mut stranger = std::net::TcpStream::connect(&address).expect("connect");
    std::io::Write::write_all(&mut stranger, b"GET / HTTP/1.1\r\n\r\n").expect("write");
    line.clear();
    stderr.read_line(&mut line).expect("a line");
    assert!(line.contains("GET / HTTP/1.1"), "{line}");
    drop(std::net::TcpStream::connect(&address).expect("connect"));

    let args = ["--patterns", "b,g", "--memory", "private,kvferry", "--json", "--connect", &address];
    let output = run(&args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(names(&rows(&output)), ["b write", "b read", "g notify"].repeat(2));
    // It ends with the run.
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).expect("the end");
    assert!(listening.0.wait().expect("an end").success(), "{rest}");

    let output = run(&["--patterns", "a", "--connect", &address]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(&address) && stderr.contains("--listen"), "{stderr}");
}

#[test]
fn the_far_process_dies_with_its_parent() {
    let mut parent = bench();
    parent.args(["--pool", "4MiB", "--patterns", "g", "--rounds", "10000"]).stdout(Stdio::null());
    let mut parent = Guarded(parent.spawn().expect("start"));
    let own = format!("/proc/{}/task/{0}/children", parent.0.id());
    let deadline = Instant::now() + Duration::from_secs(10);
    let far = loop {
        let children = fs::read_to_string(&own).unwrap_or_default();
        if let Some(child) = children.split_ascii_whitespace().next() {
            break child.to_owned();
        }
        assert!(Instant::now() < deadline, "no far process");
        thread::sleep(Duration::from_millis(5));
    };
    parent.0.kill().expect("kill");
    parent.0.wait().expect("an end");
    let is_alive = || {
        // A zombie that nobody reaps yet is dead too.
        let stat = fs::read_to_string(format!("/proc/{far}/stat")).unwrap_or_default();
        stat.contains("(kvferry)") && !stat.contains(") Z ")
    };
    while is_alive() {
        assert!(Instant::now() < deadline, "the far process lives on");
        thread::sleep(Duration::from_millis(5));
    }
}
