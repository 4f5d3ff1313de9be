use super::*;

fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

#[test]
fn the_address_named_is_the_one_taken() {
    let (_, bound) = choose(&settings(|s| s.address = Some("127.0.0.1".into()))).unwrap();
    assert_eq!(bound.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert_ne!(bound.port(), 0);
}

#[test]
fn the_default_is_never_the_wildcard() {
    let (_, bound) = choose(&Settings::default()).unwrap();
    assert!(!bound.ip().is_unspecified(), "{bound}");
}

#[test]
fn a_device_is_taken_by_name_and_a_wrong_one_named_with_those_there_are() {
    let (_, bound) = choose(&settings(|s| s.net_devices = vec!["lo".into()])).unwrap();
    assert!(bound.ip().is_loopback(), "{bound}");
    let error = choose(&settings(|s| s.net_devices = vec!["nosuch0".into()])).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("KVFERRY_NET_DEVICES=nosuch0") && text.contains("lo"), "{text}");
}

#[test]
fn ports_come_from_the_range_until_it_is_used_up() {
    let (taken, first) = choose(&settings(|s| s.address = Some("127.0.0.1".into()))).unwrap();
    let range = |s: &mut Settings| {
        s.address = Some("127.0.0.1".into());
        s.port_range = Some((first.port(), first.port()));
    };
    let error = choose(&settings(range)).unwrap_err().to_string();
    assert!(error.contains(&format!("port of {0}-{0}", first.port())), "{error}");
    drop(taken);
    assert_eq!(choose(&settings(range)).unwrap().1, first);
}

#[test]
fn a_name_that_is_none_is_an_error_that_says_so() {
    let error = choose(&settings(|s| s.address = Some("no such host".into()))).unwrap_err().to_string();
    assert!(error.contains("KVFERRY_ADDRESS=no such host"), "{error}");
}
