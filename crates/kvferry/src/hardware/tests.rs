use std::fs;

use super::*;

fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (file, text) in files {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

#[test]
fn a_bare_machine_has_nothing_idle() {
    assert_eq!(unused(machine(&[]).path()), []);
}

#[test]
fn active_rdma_ports_and_gpus_are_named() {
    let root = machine(&[
        ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
        ("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n"),
        ("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: some GPU\n"),
    ]);
    let idle: Vec<String> = unused(root.path()).iter().map(ToString::to_string).collect();
    assert_eq!(
        idle,
        [
            "not rdma: RDMA port mlx5_0/1 is active, and this build has no RDMA transport",
            "not cuda_ipc: 1 GPU(s) are visible, and this build does not reach GPU memory",
        ]
    );
}
