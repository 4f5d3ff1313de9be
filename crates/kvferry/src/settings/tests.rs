use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use super::value::{parse_duration, parse_size};
use super::*;

fn read(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    let map: HashMap<&str, &str> = variables.iter().copied().collect();
    environment::read(|name| map.get(name).map(OsString::from))
}

/// The message for one variable with nonsense in it.
fn refused(variable: &str, value: &str) -> String {
    let error = read(&[(variable, value)]).expect_err("nonsense");
    assert_eq!(error.code(), "settings.invalid");
    assert!(!error.remedy().is_empty());
    assert_eq!(error.variable, variable);
    error.to_string()
}

#[test]
fn nothing_set_is_the_default() {
    assert_eq!(read(&[]).expect("defaults"), Settings::default());
    Settings::default().check().expect("the default is allowed");
}

#[test]
fn each_variable_sets_its_field() {
    let settings = read(&[
        ("KVFERRY_ADDRESS", "10.1.2.3"),
        ("KVFERRY_NET_DEVICES", "eth0, mlx5_0:1"),
        ("KVFERRY_PORT_RANGE", "20000-20999"),
        ("KVFERRY_SOCKET_DIR", "/tmp"),
        ("KVFERRY_PEER_TIMEOUT", "2500ms"),
        ("KVFERRY_CONNECT_TIMEOUT", "7s"),
        ("KVFERRY_CANCEL_TIMEOUT", "0"),
        ("KVFERRY_THREADS", "5"),
        ("KVFERRY_INLINE_LIMIT", "64KiB"),
        ("KVFERRY_SPIN", "20us"),
        ("KVFERRY_QUEUE_DEPTH", "9"),
        ("KVFERRY_COLLAPSE", "on"),
        ("KVFERRY_PTRACER", "never"),
        ("KVFERRY_TOKEN", "open sesame"),
        ("KVFERRY_REQUIRE", "same_host,cma"),
        ("KVFERRY_FORBID", "tcp, map"),
    ])
    .expect("all are allowed");
    let expected = Settings {
        address: Some("10.1.2.3".to_owned()),
        net_devices: vec!["eth0".to_owned(), "mlx5_0:1".to_owned()],
        port_range: Some((20000, 20999)),
        socket_dir: Some(PathBuf::from("/tmp")),
        peer_timeout: Duration::from_millis(2500),
        connect_timeout: Duration::from_secs(7),
        cancel_timeout: Duration::ZERO,
        threads: 5,
        inline_limit: 64 << 10,
        spin: Duration::from_micros(20),
        queue_depth: 9,
        collapse: true,
        ptracer: Ptracer::Never,
        token: Some(Token::new("open sesame")),
        require: [PathName::SameHost, PathName::Cma].into_iter().collect(),
        forbid: [PathName::Tcp, PathName::Map].into_iter().collect(),
    };
    assert_eq!(settings, expected);
    assert_eq!(
        settings.to_string(),
        "address=10.1.2.3 net_devices=eth0,mlx5_0:1 port_range=20000-20999 socket_dir=/tmp \
         peer_timeout=2500ms connect_timeout=7s cancel_timeout=0s threads=5 inline_limit=64KiB spin=20us queue_depth=9 \
         collapse=true ptracer=never token=set require=same_host,cma forbid=tcp,map"
    );
}

#[test]
fn the_start_line_is_one_line_of_all_settings() {
    let line = Settings::default().to_string();
    assert!(!line.contains('\n'));
    for doc in Settings::documentation() {
        let name = doc.variable["KVFERRY_".len()..].to_lowercase();
        if name != "log" {
            assert!(line.contains(&format!("{name}=")), "{name} is not in {line}");
        }
    }
    assert!(line.contains(" token=unset "), "{line}");
}

#[test]
fn nonsense_is_refused_with_what_is_allowed() {
    assert_eq!(
        refused("KVFERRY_THREADS", "many"),
        "KVFERRY_THREADS=many: not a whole number; allowed: 1 to 32 (settings.invalid)"
    );
    for (variable, value, part) in [
        ("KVFERRY_THREADS", "0", "is zero; allowed: 1 to 32"),
        ("KVFERRY_THREADS", "33", "too large"),
        ("KVFERRY_THREADS", "-1", "not a whole number"),
        ("KVFERRY_QUEUE_DEPTH", "70000", "allowed: 1 to 65535"),
        ("KVFERRY_PEER_TIMEOUT", "3", "has no unit; allowed: a whole number with"),
        ("KVFERRY_PEER_TIMEOUT", "soon", "does not start with a whole number"),
        ("KVFERRY_PEER_TIMEOUT", "3h", "unknown unit"),
        ("KVFERRY_PEER_TIMEOUT", "1ms", "too short; allowed: 100ms to 60m"),
        ("KVFERRY_CONNECT_TIMEOUT", "61m", "too long"),
        ("KVFERRY_CANCEL_TIMEOUT", "99999999999999999999s", "too large"),
        ("KVFERRY_INLINE_LIMIT", "16kb", "unknown unit; allowed: a whole number of bytes"),
        ("KVFERRY_INLINE_LIMIT", "3MiB", "allowed: 0 to 2MiB"),
        ("KVFERRY_SPIN", "2ms", "too long; allowed: 0 to 1ms"),
        ("KVFERRY_SPIN", "50", "has no unit"),
        ("KVFERRY_COLLAPSE", "maybe", "true or false"),
        ("KVFERRY_PTRACER", "everyone", "peer, any or never"),
        ("KVFERRY_PORT_RANGE", "9-8", "FIRST-LAST"),
        ("KVFERRY_PORT_RANGE", "0-8", "FIRST-LAST"),
        ("KVFERRY_PORT_RANGE", "1-70000", "FIRST-LAST"),
        ("KVFERRY_ADDRESS", "0.0.0.0", "wildcard"),
        ("KVFERRY_ADDRESS", "10.0.0.1:80", "names a port"),
        ("KVFERRY_ADDRESS", "a b", "is not a host name"),
        ("KVFERRY_NET_DEVICES", "eth0,/dev/x", "separated by commas"),
        ("KVFERRY_SOCKET_DIR", "run", "not an absolute path"),
        ("KVFERRY_SOCKET_DIR", "/nowhere/at/all", "No such file"),
        ("KVFERRY_SOCKET_DIR", "/etc/passwd", "not a directory"),
        (
            "KVFERRY_REQUIRE",
            "cma,ucx",
            "\"ucx\" is not the name of a path; allowed: names out of same_process, same_host, tcp, rdma, map, cma, cuda_ipc",
        ),
        ("KVFERRY_ADDRESS", " ", "is empty; allowed: a host name"),
    ] {
        let message = refused(variable, value);
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

#[test]
fn a_value_that_is_not_text_is_refused() {
    let error =
        environment::read(|name| (name == "KVFERRY_PTRACER").then(|| OsString::from_vec(vec![b'p', 0xff])))
            .expect_err("not UTF-8");
    assert!(error.to_string().contains("is not UTF-8; allowed: peer, any or never"));
}

#[test]
fn a_path_both_required_and_forbidden_is_refused() {
    let error =
        read(&[("KVFERRY_REQUIRE", "map,cma"), ("KVFERRY_FORBID", "tcp,cma")]).expect_err("a contradiction");
    assert_eq!(
        error.to_string(),
        "KVFERRY_REQUIRE=map,cma: KVFERRY_FORBID forbids cma; allowed: names that KVFERRY_FORBID does not hold \
         (settings.invalid)"
    );
}

#[test]
fn lists_may_be_empty() {
    let settings = read(&[("KVFERRY_NET_DEVICES", ""), ("KVFERRY_FORBID", "")]).expect("empty lists");
    assert_eq!(settings, Settings::default());
}

#[test]
fn the_token_is_never_shown() {
    let secret = "xyzzy-plugh";
    let settings = read(&[("KVFERRY_TOKEN", secret)]).expect("a token");
    assert_eq!(settings.token.as_ref().expect("set").secret(), secret.as_bytes());
    for shown in [settings.to_string(), format!("{settings:?}"), format!("{settings:#?}")] {
        assert!(!shown.contains(secret), "{shown}");
    }
    let error = read(&[("KVFERRY_TOKEN", "xyzzy\nplugh")]).expect_err("a line break");
    assert!(!error.to_string().contains("plugh") && !format!("{error:?}").contains("plugh"));
    assert_eq!(
        error.to_string(),
        "KVFERRY_TOKEN=(hidden): holds a line break or another control character; allowed: any text without \
         control characters (settings.invalid)"
    );
    let error = read(&[("KVFERRY_TOKEN", "")]).expect_err("empty");
    assert!(error.to_string().contains("unset it to go without a token"));
}

#[test]
fn durations_and_sizes_read_as_they_are_shown() {
    for (text, millis) in [("3s", 3000), ("200ms", 200), ("2m", 120_000), ("0", 0), ("1500 ms", 1500)] {
        let duration = parse_duration(text).expect("a duration");
        assert_eq!(duration, Duration::from_millis(millis));
        assert_eq!(parse_duration(&show_duration(duration)), Ok(duration));
    }
    for (text, bytes) in [("16KiB", 16384), ("16384", 16384), ("0", 0), ("1 MiB", 1 << 20), ("7B", 7)] {
        let size = parse_size(text).expect("a size");
        assert_eq!(size, bytes);
        assert_eq!(parse_size(&show_size(size)), Ok(size));
    }
    assert_eq!(parse_size("99999999999GiB"), Err("too large"));
    assert_eq!(show_duration(Duration::from_nanos(1_000_001)), "1000001ns");
}

#[test]
fn require_and_forbid_rule_paths_out() {
    let refusal = |require: &str, forbid: &str, path: &str, mechanism: &str| {
        let settings = Settings {
            require: require.parse().expect("names"),
            forbid: forbid.parse().expect("names"),
            ..Settings::default()
        };
        settings.refusal(path, mechanism)
    };
    assert_eq!(refusal("", "", "same_host", "cma"), None);
    assert_eq!(refusal("same_host", "", "same_host", "map"), None);
    assert_eq!(refusal("map", "", "same_host", "map"), None);
    let asks = Some("KVFERRY_REQUIRE=map asks for another".to_owned());
    assert_eq!(refusal("map", "", "same_host", "cma"), asks);
    assert_eq!(refusal("map", "", "tcp", "stream"), asks);
    assert!(refusal("same_host,cma", "", "tcp", "stream").is_some());
    assert!(refusal("same_process", "", "same_host", "cma").is_some());
    assert_eq!(refusal("same_process", "", "same_process", "map"), None);
    assert_eq!(refusal("tcp", "", "tcp", "stream"), None);
    let rules = Some("KVFERRY_FORBID=tcp,cma rules it out".to_owned());
    assert_eq!(refusal("", "cma,tcp", "same_host", "cma"), rules);
    assert_eq!(refusal("", "cma,tcp", "tcp", "stream"), rules);
    assert_eq!(refusal("", "cma,tcp", "same_host", "map"), None);
}

#[test]
fn a_misspelt_variable_is_recognised() {
    use environment::misspelt;
    assert_eq!(misspelt("KVFERRY_THREAD"), Some("KVFERRY_THREADS"));
    assert_eq!(misspelt("KVFERRY_REQIURE"), Some("KVFERRY_REQUIRE"));
    assert_eq!(misspelt("KVFERRY_THREADS"), None);
    assert_eq!(misspelt("KVFERRY_SOMETHING_OF_OTHERS"), None);
    assert_eq!(misspelt("PATH"), None);
}

/// The page and the table say the same, in the same order.
#[test]
fn the_configuration_page_is_the_table() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `KVFERRY_")).collect();
    let expected: Vec<String> = Settings::documentation()
        .iter()
        .map(|doc| format!("| `{}` | {} | {} | {} |", doc.variable, doc.default, doc.allowed, doc.meaning))
        .collect();
    assert_eq!(rows, expected);
}

/// Where the documented default is a value, it is the default.
#[test]
fn documented_defaults_are_the_defaults() {
    let line = Settings::default().to_string();
    for doc in Settings::documentation() {
        let field = doc.variable["KVFERRY_".len()..].to_lowercase();
        if doc.default.contains(' ') || field == "log" || field == "token" {
            continue;
        }
        let shown = format!(" {field}={}", doc.default);
        assert!(format!(" {line} ").contains(&format!("{shown} ")), "{shown} is not in {line}");
    }
}
