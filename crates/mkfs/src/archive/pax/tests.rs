//! Records as found in archives.

use super::*;

fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while rest + len.to_string().len() != len {
        len = rest + len.to_string().len();
    }
    [len.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat()
}

#[test]
fn values_are_bytes_of_any_kind() {
    let mut records = PaxRecords::default();
    let value = b"new\nline=\0\xff 12 x=y\n";
    let bytes = [
        record(b"SCHILY.xattr.user.odd%3D%25", value),
        record(b"SCHILY.xattr.user.empty", b""),
        record(b"path", b"a/b"),
    ]
    .concat();
    records.add(&bytes).unwrap();
    assert_eq!(records.get("path"), Some(&b"a/b"[..]));
    let expected = [
        (b"user.empty".to_vec(), Vec::new()),
        (b"user.odd=%".to_vec(), value.to_vec()),
    ];
    assert_eq!(records.xattrs(), expected);
}

#[test]
fn later_headers_take_precedence_and_take_back() {
    let mut records = PaxRecords::default();
    records
        .add(&[record(b"uid", b"5"), record(b"gid", b"6")].concat())
        .unwrap();
    records
        .add(&[record(b"uid", b"7"), record(b"gid", b"")].concat())
        .unwrap();
    assert_eq!(records.number("uid"), Some(Some(7)));
    assert_eq!(records.number("gid"), None);
}

#[test]
fn malformed_records_are_refused() {
    for bytes in [
        &b"8 path=a\n"[..],
        b"99 path=a\n",
        b"path=a\n",
        b"7 path\n",
        b" 10 path=a\n",
        b"3 =",
        b"0 path=a\n",
        b"18446744073709551616 a=b\n",
    ] {
        let shown = bytes.escape_ascii();
        assert_eq!(PaxRecords::default().add(bytes), None, "{shown}");
    }
    assert_eq!(PaxRecords::default().add(b"9 path=a\n\0\0"), Some(()));
}

#[test]
fn times_have_nanoseconds_and_a_sign() {
    for (text, expected) in [
        ("0", Some((0, 0))),
        ("1234567890.123456789", Some((1_234_567_890, 123_456_789))),
        ("5.1", Some((5, 100_000_000))),
        ("5.1234567899", Some((5, 123_456_789))),
        ("-1", Some((-1, 0))),
        ("-1.25", Some((-2, 750_000_000))),
        ("-0.5", Some((-1, 500_000_000))),
        ("", None),
        (".5", None),
        ("1.x", None),
        ("+1", None),
        ("99999999999999999999", None),
    ] {
        let found = time(text.as_bytes()).map(|time| (time.sec, time.nsec));
        assert_eq!(found, expected, "{text}");
    }
}
