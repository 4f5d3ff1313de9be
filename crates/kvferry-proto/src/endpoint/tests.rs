use super::*;

fn tcp_at(addr: &str, port: u16) -> Endpoint {
    Endpoint::Tcp { addr: addr.into(), port }
}

#[test]
fn endpoints_survive_the_wire() {
    for (endpoint, text) in [
        (Endpoint::AbstractUnix(b"kvferry-\x01\xff".to_vec()), r"unix:@kvferry-\x01\xff"),
        (Endpoint::PathUnix(b"/run/kvferry/a".to_vec()), "unix:/run/kvferry/a"),
        (tcp_at("10.0.0.1", 7001), "tcp:10.0.0.1:7001"),
        (tcp_at("fe80::1", 1), "tcp:[fe80::1]:1"),
        (Endpoint::Other { kind: 77, data: Box::from([1, 2]) }, "endpoint of unknown kind 77"),
    ] {
        let bytes = postcard::to_stdvec(&endpoint).unwrap();
        assert_eq!(postcard::from_bytes::<Endpoint>(&bytes).unwrap(), endpoint);
        assert!(endpoint.is_valid());
        assert_eq!(endpoint.to_string(), text);
    }
}

#[test]
fn what_breaks_the_limits_is_kept_unread() {
    for endpoint in [
        Endpoint::AbstractUnix(vec![]),
        Endpoint::AbstractUnix(vec![b'a'; 108]),
        Endpoint::PathUnix(b"/a\0b".to_vec()),
        tcp_at("", 1),
        tcp_at("host", 0),
        tcp_at("host\n", 1),
        tcp_at(&"a".repeat(254), 1),
    ] {
        assert!(!endpoint.is_valid(), "{endpoint}");
        let bytes = postcard::to_stdvec(&endpoint).unwrap();
        let back: Endpoint = postcard::from_bytes(&bytes).unwrap();
        assert!(matches!(back, Endpoint::Other { .. }), "{back}");
        assert!(back.is_valid());
    }
}
