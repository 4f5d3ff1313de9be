use tracing::Level;

use super::*;

fn enabled(value: &str, topic: &str, level: Level) -> bool {
    let filter = filter(value).expect("allowed");
    filter.would_enable(&format!("kvferry::{topic}"), &level)
}

#[test]
fn warnings_are_logged_by_default() {
    assert!(enabled("", "peer", Level::WARN));
    assert!(!enabled("", "peer", Level::INFO));
}

#[test]
fn a_topic_has_its_own_level() {
    for topic in TOPICS {
        assert!(enabled(&format!("{topic}=debug"), topic, Level::DEBUG));
    }
    assert!(enabled("register=debug", "peer", Level::WARN));
    assert!(!enabled("register=debug", "peer", Level::INFO));
    assert!(enabled("info, register=off", "peer", Level::INFO));
    assert!(!enabled("info, register=off", "register", Level::ERROR));
}

#[test]
fn other_libraries_stay_quiet() {
    let filter = filter("trace").expect("allowed");
    assert!(filter.would_enable("kvferry::control", &Level::TRACE));
    assert!(filter.would_enable("kvferry_kv", &Level::TRACE));
    assert!(filter.would_enable("another", &Level::WARN));
    assert!(!filter.would_enable("another", &Level::INFO));
}

#[test]
fn nonsense_is_refused_with_what_is_allowed() {
    for (value, problem) in [
        ("loud", "\"loud\" is not a level"),
        ("register", "topic register has no level"),
        ("register=loud", "\"loud\" is not a level"),
        ("gpu=debug", "\"gpu\" is not a topic"),
        ("info,=", "\"\" is not a level"),
    ] {
        let error = filter(value).expect_err("nonsense");
        assert_eq!(error.problem, problem);
        let message = error.to_string();
        assert!(message.starts_with(&format!("KVFERRY_LOG={value}: ")), "{message}");
        for name in TOPICS.iter().chain(LEVELS.iter().map(|(name, _)| name)) {
            assert!(message.contains(name), "{message} does not offer {name}");
        }
    }
}

/// Set in the child that [`a_process_logs_what_its_environment_asks_for`] starts.
const CHILD: &str = "KVFERRY_TEST_LOGGING_CHILD";

#[test]
fn a_process_logs_what_its_environment_asks_for() {
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    let run = |log: Option<&str>| {
        let test = "logging::tests::a_process_logs_what_its_environment_asks_for";
        let mut command = std::process::Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", test, "--nocapture"]).env(CHILD, "1").env_remove(VARIABLE);
        command.envs(log.map(|log| (VARIABLE, log)));
        let output = command.output().expect("the child runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    let text = run(Some("register=debug"));
    assert!(text.contains(" DEBUG kvferry::register: region index=0 id=1 address=0x"), "{text}");
    assert!(text.contains(" INFO kvferry::register: registered 1 region, 64 B "), "{text}");
    let text = run(None);
    assert!(!text.contains("kvferry::register"), "{text}");
    let text = run(Some("register=everything"));
    assert!(
        text.contains("KVFERRY_LOG=register=everything: \"everything\" is not a level; allowed: "),
        "{text}"
    );
}

fn child() {
    if let Err(error) = init_logging() {
        eprintln!("{error}");
        return;
    }
    init_logging().expect("another time is no error");
    let registry = crate::registry::Registry::default();
    let buffer = registry.allocs().alloc(64, false).expect("memory");
    // SAFETY: nothing copies to or from the region.
    unsafe { registry.register(&[buffer.desc()], None) }.expect("registered");
}
