//! Negotiation with kernels of different offers.

use zerocopy::IntoBytes;

use super::*;
use crate::capacity::REQUEST_MAX_BYTES;

const READ_ONLY: ConnectionFlags = ConnectionFlags {
    posix_acl: true,
    writable: false,
    writeback_cache: false,
    idmapped: false,
};
const WRITABLE: ConnectionFlags = ConnectionFlags {
    posix_acl: false,
    writable: true,
    writeback_cache: true,
    idmapped: true,
};

fn ample() -> Capacity {
    Capacity::of(1 << 40)
}

fn offer(minor: u32, flags: u64) -> Offer {
    Offer {
        major: 7,
        minor,
        flags,
    }
}

fn flags(answer: &InitOut) -> u64 {
    u64::from(answer.flags) | u64::from(answer.flags2) << 32
}

#[test]
fn nothing_is_asked_for_that_was_not_offered() {
    for bit in 0..64 {
        let offered = 1 << bit;
        let (_, answer) = negotiate(&offer(45, offered), &WRITABLE, true, &ample()).unwrap();
        assert_eq!(flags(&answer) & !offered, 0);
    }
    let (negotiated, answer) = negotiate(&offer(31, 0), &READ_ONLY, false, &ample()).unwrap();
    assert_eq!(flags(&answer), 0);
    assert!(!negotiated.uring && !negotiated.elide_open && !negotiated.setxattr_ext);
    assert_eq!(negotiated.request_bytes, REQUEST_SMALL_BYTES);
}

#[test]
fn connection_flags_decide_what_only_they_need() {
    let asked = |connection_flags, uring| {
        flags(
            &negotiate(&offer(45, u64::MAX), connection_flags, uring, &ample())
                .unwrap()
                .1,
        )
    };
    let reading = asked(&READ_ONLY, false);
    assert_ne!(reading & flag::POSIX_ACL, 0);
    assert_eq!(
        reading & (flag::WRITEBACK_CACHE | flag::HANDLE_KILLPRIV_V2),
        0
    );
    assert_eq!(reading & (flag::OVER_IO_URING | flag::ALLOW_IDMAP), 0);
    let writing = asked(&WRITABLE, true);
    assert_eq!(writing & flag::POSIX_ACL, 0);
    for flag in [
        flag::WRITEBACK_CACHE,
        flag::HANDLE_KILLPRIV_V2,
        flag::ALLOW_IDMAP,
        flag::OVER_IO_URING,
    ] {
        assert_ne!(writing & flag, 0);
    }
}

#[test]
fn the_version_is_the_older_of_both() {
    for (offered, minor) in [(31, 31), (45, 45), (99, 45)] {
        let (negotiated, answer) =
            negotiate(&offer(offered, u64::MAX), &READ_ONLY, false, &ample()).unwrap();
        assert_eq!((negotiated.minor, answer.minor), (minor, minor));
        assert_eq!(answer.max_write as usize, REQUEST_MAX_BYTES);
    }
    assert!(negotiate(&offer(30, u64::MAX), &READ_ONLY, false, &ample()).is_err());
    let old = Offer {
        major: 6,
        ..offer(45, 0)
    };
    assert!(negotiate(&old, &READ_ONLY, false, &ample()).is_err());
}

#[test]
fn offers_are_read_in_both_lengths() {
    let mut first = InitIn {
        major: 7,
        minor: 35,
        max_readahead: 0,
        flags: 5,
    };
    assert_eq!(Offer::parse(first.as_bytes()), Some(offer(35, 5)));
    first.flags |= flag::INIT_EXT as u32;
    assert_eq!(Offer::parse(first.as_bytes()), None);
    let more = InitInMore {
        flags2: 1 << 4,
        unused: [0; 11],
    };
    let both = [first.as_bytes(), more.as_bytes()].concat();
    let wanted = flag::DIRECT_IO_ALLOW_MMAP | flag::INIT_EXT | 5;
    assert_eq!(Offer::parse(&both), Some(offer(35, wanted)));
    for len in 0..size_of::<InitIn>() {
        assert_eq!(Offer::parse(&both[..len]), None);
    }
}

#[test]
fn parts_of_a_write_that_the_kernel_syncs_need_not_be_durable() {
    let left = |minor, sync, direct| {
        let (negotiated, _) =
            negotiate(&offer(minor, u64::MAX), &WRITABLE, false, &ample()).unwrap();
        let how = WriteHow {
            sync,
            direct,
            ..WriteHow::default()
        };
        negotiated.left_to_do(how).sync
    };
    assert!(!left(45, true, false) && left(45, true, true) && left(31, true, false));
    assert!(!left(31, false, false) && !left(45, false, true));
}
