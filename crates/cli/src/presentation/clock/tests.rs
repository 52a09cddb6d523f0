//! Times as touch(1) takes them.

use ubtrfs_engine::FileTime;

use super::{parse, parse_stamp};

#[test]
fn times_with_a_zone_are_moments() {
    for text in [
        "2026-11-21T20:24:10.5Z",
        "2026-11-21 20:24:10.5Z",
        "2026-11-21T22:24:10.5+02:00",
        "2026-11-21 22:24:10.5 +0200",
        "@1795292650.5",
    ] {
        let time = parse(text).unwrap();
        assert_eq!(
            time,
            FileTime {
                sec: 1_795_292_650,
                nsec: 500_000_000
            },
            "{text}"
        );
    }
}

#[test]
fn seconds_before_1970_count_backward() {
    let time = |sec, nsec| FileTime { sec, nsec };
    assert_eq!(parse("@-1").unwrap(), time(-1, 0));
    assert_eq!(parse("@-1.25").unwrap(), time(-2, 750_000_000));
    assert_eq!(
        parse("1969-12-31T23:59:59.75Z").unwrap(),
        time(-1, 750_000_000)
    );
}

#[test]
fn local_times_and_stamps_agree() {
    let time = parse("2001-02-03 04:05:06").unwrap();
    assert_eq!(parse_stamp("200102030405.06").unwrap(), time);
    assert_eq!(parse_stamp("0102030405.06").unwrap(), time);
    assert_eq!(parse("2001-02-03T04:05:06").unwrap(), time);
    assert_eq!(
        parse("2001-02-03").unwrap(),
        parse("2001-02-03 00:00:00").unwrap()
    );
}

#[test]
fn anything_else_is_refused() {
    for text in ["", "yesterday", "2026-13-01", "@", "@x", "@1.2.3", "20:24"] {
        assert!(parse(text).is_err(), "{text}");
    }
    for text in [
        "",
        "1",
        "0102030405.6",
        "99999999",
        "+1020304",
        "010203040é",
    ] {
        assert!(parse_stamp(text).is_err(), "{text}");
    }
}
