use kvferry::Agent;
use kvferry_sys::SharedMemory;

use super::*;

#[test]
fn the_file_behind_an_allocation_is_found() {
    let agent = Agent::builder("memory-file").build().expect("agent");
    let (one, other) = (agent.alloc(8192).expect("alloc"), agent.alloc(8192).expect("alloc"));
    for (buf, byte) in [(&one, 1), (&other, 2)] {
        let memory =
            SharedMemory::import(of_mapping(buf.addr() + 4096).expect("file"), 8192).expect("import");
        memory.copy_in(4096, &[byte; 16]).expect("copy");
        let mut found = [0; 16];
        buf.copy_out(4096, &mut found).expect("copy");
        assert_eq!(found, [byte; 16]);
    }
}

#[test]
fn other_memory_is_not_taken_for_one() {
    let local = 0u64;
    assert!(of_mapping((&raw const local).addr() as u64).is_err());
    assert!(of_mapping(8).is_err());
}
