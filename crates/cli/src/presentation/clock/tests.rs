//! Times as in touch(1).

use std::time::{Duration, UNIX_EPOCH};

use super::{parse, parse_stamp, plain, rfc3339, use_zone};

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
        let wanted = UNIX_EPOCH + Duration::new(1_795_292_650, 500_000_000);
        assert_eq!(time, wanted, "{text}");
    }
}

#[test]
fn seconds_before_1970_count_backward() {
    let before = |milliseconds| UNIX_EPOCH - Duration::from_millis(milliseconds);
    assert_eq!(parse("@-1").unwrap(), before(1000));
    assert_eq!(parse("@-1.25").unwrap(), before(1250));
    assert_eq!(parse("1969-12-31T23:59:59.75Z").unwrap(), before(250));
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

#[test]
fn time_outside_the_calendar_is_shown_in_seconds() {
    use_zone("UTC");
    let far = Duration::from_secs(1 << 40);
    assert_eq!(plain(UNIX_EPOCH + far), "@1099511627776");
    assert_eq!(rfc3339(UNIX_EPOCH - far), "@-1099511627776");
    let half = Duration::from_millis(500);
    assert_eq!(rfc3339(UNIX_EPOCH - far - half), "@-1099511627777");
    assert_eq!(plain(UNIX_EPOCH - half), "1969-12-31 23:59:59");
}
