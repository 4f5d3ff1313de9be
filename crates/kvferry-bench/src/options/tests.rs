use super::*;

#[test]
fn what_can_not_be_measured_is_refused() {
    assert_eq!(Options::default().check(), Ok(()));
    let bad = |change: fn(&mut Options)| {
        let mut options = Options::default();
        change(&mut options);
        options.check().expect_err("refused").to_string()
    };
    assert!(bad(|o| o.patterns.clear()).contains("pattern"));
    assert!(bad(|o| o.ops.clear()).contains("op"));
    assert!(bad(|o| o.paths.clear()).contains("path"));
    assert!(bad(|o| o.memories.clear()).contains("memory"));
    assert!(bad(|o| o.rounds = 0).contains("1 to 10000"));
    assert!(bad(|o| o.pool = (4 << 20) - 4096).contains("4 MiB"));
    assert!(bad(|o| o.pool = (4 << 20) + 8).contains("whole pages"));
    assert!(bad(|o| o.pool = u64::MAX).contains("64 GiB"));
    assert!(bad(|o| o.threads = Some(0)).contains("1 to 32"));
    assert!(bad(|o| o.threads = Some(33)).contains("1 to 32"));
}

#[test]
fn names_lead_back_to_their_values() {
    for path in [BenchPath::SameHost, BenchPath::Tcp] {
        assert_eq!(path.name().parse(), Ok(path));
    }
    for memory in [Memory::Private, Memory::Kvferry] {
        assert_eq!(memory.name().parse(), Ok(memory));
    }
    let error = "rdma".parse::<BenchPath>().expect_err("no such path");
    assert_eq!(error.to_string(), "\"rdma\" is no path; there are same_host, tcp");
}
