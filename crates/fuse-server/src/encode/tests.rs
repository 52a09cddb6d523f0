//! Values in the format of the protocol.

use super::*;
use crate::request::{Handle, NodeId};

fn attributes() -> Attributes {
    Attributes {
        attr: Attr {
            ino: 256,
            kind: FileKind::BlockDevice,
            permissions: 0o660,
            nlink: 1,
            uid: 2,
            gid: 3,
            rdev: DeviceNr {
                major: 259,
                minor: 0x1_2345,
            },
            size_bytes: 0,
            blocks: 0,
            block_bytes: 4096,
            atime: Time::default(),
            mtime: Time {
                secs: -2,
                nanos: 500_000_000,
            },
            ctime: Time::default(),
            btime: Time { secs: 9, nanos: 8 },
        },
        ttl: Duration::new(5, 6),
    }
}

fn entry(number: u64) -> Entry {
    Entry {
        node: NodeId(number),
        generation: 4,
        attributes: attributes(),
        ttl: Duration::from_secs(1),
    }
}

fn named(name: &[u8]) -> DirEntry<'_> {
    DirEntry {
        ino: 300,
        kind: FileKind::Directory,
        name,
        next_offset: 12,
    }
}

#[test]
fn device_numbers_have_the_form_that_the_kernel_decodes() {
    let all = DeviceNr {
        major: 0xfff,
        minor: 0xf_ffff,
    };
    assert_eq!(device(all), u32::MAX);
    assert_eq!(attr(&attributes().attr).rdev, 0x1231_0345);
}

#[test]
fn times_before_1970_keep_their_nanoseconds() {
    let shown = attr(&attributes().attr);
    assert_eq!(shown.mtime.cast_signed(), -2);
    assert_eq!(shown.mtimensec, 500_000_000);
    let shown = statx_out(&attributes()).stat;
    assert_eq!((shown.mtime.tv_sec, shown.mtime.tv_nsec), (-2, 500_000_000));
    assert_eq!((shown.btime.tv_sec, shown.btime.tv_nsec), (9, 8));
}

#[test]
fn modes_say_the_kind() {
    assert_eq!(attr(&attributes().attr).mode, 0o060_660);
    assert_eq!(statx_out(&attributes()).stat.mode, 0o060_660);
}

#[test]
fn names_and_attributes_have_lifetimes_of_their_own() {
    let out = entry_out(&entry(7));
    assert_eq!((out.entry_valid, out.entry_valid_nsec), (1, 0));
    assert_eq!((out.attr_valid, out.attr_valid_nsec), (5, 6));
    let none = absent(Duration::from_secs(3));
    assert_eq!((none.nodeid, none.entry_valid), (0, 3));
}

#[test]
fn listings_are_records_at_multiples_of_eight_that_never_overflow() {
    for room in 0..200 {
        let mut out = vec![0xaa; room];
        let mut listing = Buffer::new(&mut out, usize::MAX);
        let mut taken = 0;
        for name in [&b"a"[..], b"12345678", b"name"] {
            if DirSink::push(&mut listing, &named(name)) == Room::Full {
                break;
            }
            taken += 1;
        }
        let len = listing.listed();
        let wanted = [0, 32, 64, 96][taken];
        assert_eq!(len, wanted, "room {room}");
        assert!(len <= room && (taken == 3 || wanted + 32 > room));
    }
    let mut out = [0xaa; 32];
    let mut listing = Buffer::new(&mut out, usize::MAX);
    assert_eq!(DirSink::push(&mut listing, &named(b"a")), Room::Taken);
    assert_eq!(out[24..], *b"a\0\0\0\0\0\0\0");
    assert_eq!(out[20], 4);
}

#[test]
fn entries_that_were_not_looked_up_have_no_node() {
    let mut out = vec![0xaa; 400];
    let mut listing = Buffer::new(&mut out, usize::MAX);
    assert_eq!(
        DirPlusSink::push(&mut listing, &named(b"."), None),
        Room::Taken
    );
    let found = entry(300);
    assert_eq!(
        DirPlusSink::push(&mut listing, &named(b"x"), Some(&found)),
        Room::Taken
    );
    assert_eq!(
        DirPlusSink::push(&mut listing, &named(b"y"), Some(&found)),
        Room::Full
    );
    assert_eq!(listing.listed(), 2 * 160);
    assert_eq!(out[..8], [0; 8]);
    assert_eq!(out[160..168], 300u64.to_ne_bytes());
}

#[test]
fn an_open_says_what_stays_cached() {
    let opened = |keep_cache, direct| Opened::Handle {
        handle: Handle(9),
        keep_cache,
        direct,
    };
    let cache = output::FOPEN_KEEP_CACHE;
    let flags = |opened| open_out(opened, cache).open_flags;
    assert_eq!(flags(opened(true, false)), cache);
    assert_eq!(flags(opened(false, false)), 0);
    assert_eq!(
        flags(opened(false, true)),
        output::FOPEN_DIRECT_IO | output::FOPEN_PARALLEL_DIRECT_WRITES
    );
    assert_eq!(open_out(Opened::Elided, cache).fh, 0);
}
