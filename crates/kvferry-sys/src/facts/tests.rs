use super::*;

#[test]
fn this_process_knows_itself() {
    let facts = Facts::gather().unwrap();
    assert_eq!(facts.pid as u32, std::process::id());
    assert_eq!(facts.uid, getuid().as_raw());
    assert!(facts.pid_ns != 0 && facts.user_ns != 0 && facts.net_ns != 0);
    assert!(facts.pid_ns != facts.user_ns && facts.user_ns != facts.net_ns);
    assert!(facts.dumpable);
    assert_eq!(facts.yama_scope.is_some(), std::path::Path::new(YAMA_SCOPE).exists());
    assert_eq!(Facts::gather().unwrap(), facts);
}

#[test]
fn fields_are_found_by_their_whole_name() {
    let status = "Name:\ttest\nCapEff:\t00000000a80425fb\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";
    assert_eq!(field(status, "Seccomp:"), Some("2"));
    assert_eq!(field(status, "CapEff:"), Some("00000000a80425fb"));
    assert_eq!(field(status, "CapBnd:"), None);
}
