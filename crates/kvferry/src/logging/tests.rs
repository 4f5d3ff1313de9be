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
