use super::*;

#[test]
fn errors_are_read_by_text_name_and_number() {
    for (line, name) in [
        ("Failed to register memory 0x7f00: Bad address [14]", Some("EFAULT")),
        ("accessFlag:15, errno:22 (Invalid argument)", Some("EINVAL")),
        ("CMA read -1, expected 4096, errno = 1", Some("EPERM")),
        ("syndrome (0x2aac7c), err(-11)", Some("EAGAIN")),
        ("ibv_reg_mr_iova2 failed ... Error 14 Bad address", Some("EFAULT")),
        ("returned EWOULDBLOCK", Some("EAGAIN")),
        ("failed with ENOTSUP", Some("EOPNOTSUPP")),
        ("open: No such device or address", Some("ENXIO")),
        ("open: No such device", Some("ENODEV")),
        ("too many open files in system", Some("ENFILE")),
        ("Unknown error 524", Some("ENOTSUPP")),
        ("rc=-12", Some("ENOMEM")),
        ("errno: 110", Some("ETIMEDOUT")),
        ("length 14 of 22 pages", None),
        ("ERROR EngineCore died", None),
        ("port (999)", None),
        ("error 14: no more words", Some("EFAULT")),
        ("the call returned -22.", Some("EINVAL")),
        ("no route to [10.0.1.7]:4711", None),
        ("peer (12.0.0.1:4711) left", None),
        ("error: 110.1.2.3:80 does not answer", None),
        ("[22 of 64 pages]", None),
        ("CUDA error 2 after launch", None),
        ("worker left with exit status 1", None),
        ("completion failed, vendor err 22", None),
        ("CUDA error 2, errno 12", Some("ENOMEM")),
    ] {
        assert_eq!(find(line.as_bytes()), name, "{line}");
    }
}

#[test]
fn every_name_is_its_own_canonical_name() {
    for (_, name, text) in TABLE {
        assert_eq!(canonical(name), Some(*name));
        assert_eq!(find(text.as_bytes()), Some(*name), "{text}");
    }
    assert_eq!(canonical("EWHAT"), None);
}
