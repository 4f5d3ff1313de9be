use super::*;

#[test]
fn prefixes_of_all_loggers_come_off() {
    for (line, text, level) in [
        ("E0821 10:11:12.123456  4711 rdma_context.cpp:227] Failed", "Failed", Some(Level::Error)),
        ("W20260821 10:11:12.123456  4711 nixl_agent.cpp:470] slow", "slow", Some(Level::Warning)),
        (
            "[1735787045.678901] [gpu-a:4711 :0]          ib_md.c:291  UCX  ERROR ibv_reg_mr failed",
            "ibv_reg_mr failed",
            Some(Level::Error),
        ),
        (
            "[1735787045.678901] [gpu-a:4711:0] ucp_context.c:1774 UCX  WARN  UCP version",
            "UCP version",
            Some(Level::Warning),
        ),
        ("ib_log.c:246  UCX  ERROR mlx5_0: failed", "mlx5_0: failed", Some(Level::Error)),
        (
            "(Worker_TP0 pid=4121) ERROR 11-30 10:14:00 [nixl_connector.py:2214] lost",
            "lost",
            Some(Level::Error),
        ),
        ("ERROR 05-08 00:47:57 [core.py:396]   File \"x.py\"", "  File \"x.py\"", Some(Level::Error)),
        ("[2026-08-21 10:11:12 DP0 TP3 PREFILL] gone", "gone", None),
        ("2026-08-21T10:11:12.123456789Z stderr F WARNING: low", "low", Some(Level::Warning)),
        ("2026-08-21 10:11:12,123 - sglang.srt - ERROR - no", "sglang.srt - ERROR - no", None),
        ("prefill-1  | ERROR:root:no", "no", Some(Level::Error)),
        ("[2026-08-21 10:11:12.123] [application] [error] no", "no", Some(Level::Error)),
        ("[pod/decode-0/engine] 2026-08-21T10:11:12Z INFO up", "up", Some(Level::Info)),
        ("2026-08-21T10:11:12.1Z ERROR dynamo_llm::block_manager::worker: no", "no", Some(Level::Error)),
        ("libfabric:15:17::efa:mr:efa_mr_reg_impl():850<warn> Unable", "Unable", Some(Level::Error)),
        (
            "Aug 21 10:11:12 node-3 kernel: [12345.678901] mlx5_core 0000:65:01.0: x",
            "mlx5_core 0000:65:01.0: x",
            None,
        ),
        ("time=\"2026-08-21T10:11:12Z\" level=error msg=\"no\"", "no\"", Some(Level::Error)),
        ("[application] [error] no", "no", Some(Level::Error)),
        ("[Handshake] Failed", "[Handshake] Failed", None),
        ("3: no", "no", None),
        ("no prefix at all\r", "no prefix at all", None),
        ("ERRORS happen", "ERRORS happen", None),
        ("", "", None),
        ("[", "[", None),
    ] {
        let stripped = strip(line.as_bytes());
        assert_eq!(String::from_utf8_lossy(stripped.text), text, "{line}");
        assert_eq!(stripped.level, level, "{line}");
    }
}

#[test]
fn writers_are_told_apart() {
    let writer = |line: &str| strip(line.as_bytes()).writer;
    assert_eq!(writer("(Worker_TP0 pid=1) ERROR a"), writer("(Worker_TP0 pid=1) INFO b"));
    assert_ne!(writer("(Worker_TP0 pid=1) ERROR a"), writer("(Worker_TP1 pid=2) ERROR a"));
    assert_ne!(writer("a-1 | x"), writer("b-1 | x"));
}
