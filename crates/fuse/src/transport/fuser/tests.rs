//! Values as the protocol carries them.

use super::*;

fn time(secs: i64, nanos: u32) -> Time {
    Time { secs, nanos }
}

#[test]
fn times_before_1970_keep_their_nanoseconds() {
    let earlier = system_time(time(-2, 500_000_000));
    assert_eq!(
        UNIX_EPOCH.duration_since(earlier).unwrap(),
        Duration::from_millis(1500)
    );
    assert_eq!(system_time(time(3, 7)), UNIX_EPOCH + Duration::new(3, 7));
}

#[test]
fn times_beyond_the_clock_do_not_panic() {
    for secs in [i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX] {
        for nanos in [0, 999_999_999, u32::MAX] {
            system_time(time(secs, nanos));
        }
    }
}

#[test]
fn device_numbers_have_the_form_that_the_kernel_decodes() {
    let mut attr = Attr {
        ino: 256,
        kind: FileKind::BlockDevice,
        permissions: 0o660,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: crate::request::DeviceNr {
            major: 0xfff,
            minor: 0xf_ffff,
        },
        size_bytes: 0,
        blocks: 0,
        block_bytes: 4096,
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
        btime: Time::default(),
    };
    assert_eq!(file_attr(&attr).rdev, u32::MAX);
    attr.rdev.major = 259;
    attr.rdev.minor = 0x1_2345;
    assert_eq!(file_attr(&attr).rdev, 0x1231_0345);
}
