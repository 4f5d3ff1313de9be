use super::*;

fn fault(cause: RegisterCause) -> RegionFault {
    let desc = RegionDesc { addr: 0x7f12_0000_0000, len: 1_288_490_189, kind: MemoryKind::Dram, device: 0 };
    RegionFault { index: 41, total: 80, desc, cause }
}

#[test]
fn a_fault_names_the_region_and_the_cause() {
    let fault = fault(RegisterCause::Unmapped { from: 0x7f12_3000_0000 });
    let text = "region 41 of 80: 0x7f1200000000, 1.2 GiB, DRAM: address is not mapped from 0x7f1230000000 on \
                (register.unmapped)";
    assert_eq!(fault.to_string(), text);
    assert!(fault.remedy().starts_with("Allocate the pool before the engine starts"));
    let error = |others| RegisterError::Region { fault: fault.clone(), others };
    assert_eq!(error(0).to_string(), text);
    assert_eq!(error(1).to_string(), format!("{text}; and 1 other"));
    assert_eq!(error(3).to_string(), format!("{text}; and 3 others"));
    assert_eq!(error(3).code(), "register.unmapped");
    assert_eq!(error(3).remedy(), fault.remedy());
    assert_eq!(error(3).fault(), Some(&fault));
}

#[test]
fn vram_without_a_driver_names_the_places() {
    let places: Arc<[PathBuf]> = Arc::from([PathBuf::from("/opt/x"), PathBuf::from("/usr/lib")]);
    let fault = fault(RegisterCause::VramNoDriver { places });
    assert!(
        fault.to_string().ends_with(
            ": GPU memory needs the CUDA driver, and libcuda.so.1 is in none of /opt/x, /usr/lib \
             (register.vram_no_driver)"
        ),
        "{fault}"
    );
}

#[test]
fn a_busy_region_names_the_peers() {
    let busy = |peers: &[&str]| {
        let peers = peers.iter().map(|peer| (*peer).to_owned()).collect();
        DeregisterError::Busy { peers, waited: Duration::from_secs(1) }.to_string()
    };
    let text = "peer \"decode-0\" may still touch the memory after 1s (deregister.busy)";
    assert_eq!(busy(&["decode-0"]), text);
    let text = "peers \"a\", \"b\" may still touch the memory after 1s (deregister.busy)";
    assert_eq!(busy(&["a", "b"]), text);
}
