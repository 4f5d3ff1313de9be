use super::*;

#[test]
fn special_mappings_are_named() {
    let text = |what, path: Option<&str>| {
        let fault = MapFault::Special { from: 0x5000, what, path: path.map(str::to_owned) };
        let cause = cause(MemoryKind::Dram, fault);
        format!("{cause} ({})", cause.code())
    };
    assert_eq!(
        text(Special::Userfaultfd, None),
        "memory is served by userfaultfd from 0x5000 on (register.special_mapping)"
    );
    assert_eq!(
        text(Special::PfnMap, Some("/dev/mem")),
        "memory is raw page frames (/dev/mem) from 0x5000 on (register.special_mapping)"
    );
    assert_eq!(
        text(Special::Io, Some("/dev/nvidia0")),
        "memory is a mapping of /dev/nvidia0, not DRAM, from 0x5000 on (register.kind_mismatch)"
    );
}

#[test]
fn devices_of_gpu_drivers_are_recognised() {
    for path in ["/dev/nvidia-uvm", "/dev/nvidia3", "/dev/dri/renderD128", "/dev/kfd"] {
        assert!(is_gpu(path), "{path}");
    }
    for path in ["/dev/zero", "/memfd:kvferry (deleted)", "[heap]", "/home/dev/nvidia"] {
        assert!(!is_gpu(path), "{path}");
    }
}
