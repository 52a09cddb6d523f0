//! Manifests survive a round trip through text, and a difference in any field is found.

use std::collections::BTreeMap;

use super::*;

fn stat(kind: Kind) -> Stat {
    let time = Time {
        seconds: -5,
        nanoseconds: 999_999_999,
    };
    Stat {
        kind,
        mode: 0o4755,
        uid: 4_000_000_000,
        gid: 7,
        nlink: 3,
        rdev: (259, 300),
        size: 1 << 40,
        ino: 257,
        atime: time,
        mtime: time,
        ctime: time,
        btime: Some(time),
    }
}

fn sample() -> Manifest {
    let entry = |path: &[u8], kind, content| Entry {
        path: path.to_vec(),
        stat: stat(kind),
        content,
        xattrs: BTreeMap::from([
            (b"user.empty".to_vec(), Vec::new().into()),
            (b"user.a=b #\\ -\xff".to_vec(), b"-= \n".to_vec().into()),
            (b"user.dash".to_vec(), b"-".to_vec().into()),
            (b"user.long".to_vec(), vec![7; 5000].into()),
        ]),
    };
    Manifest {
        entries: vec![
            entry(b"", Kind::Dir, Content::None),
            entry(b"-", Kind::Fifo, Content::None),
            entry(
                b"a \xff\n",
                Kind::File,
                Content::File(Digest::of_bytes(b"x")),
            ),
            entry(b"b/\\x41", Kind::Symlink, Content::Symlink(b"-".to_vec())),
            entry(b"c", Kind::File, Content::Unread),
        ],
        faults: Vec::new(),
    }
}

#[test]
fn text_is_read_back_as_it_was() {
    let manifest = sample();
    let text = manifest.to_string();
    assert!(text.is_ascii());
    assert_eq!(Manifest::parse(&text).unwrap(), manifest);
}

#[test]
fn every_prefix_of_a_line_is_refused_or_shorter() {
    let line = sample().entries[2].to_string();
    for end in 0..line.len() {
        if let Ok(manifest) = Manifest::parse(&line[..end]) {
            assert_ne!(manifest.to_string().trim_end(), line);
        }
    }
}

#[test]
fn equal_manifests_have_no_difference() {
    assert_eq!(diff(&sample(), &sample()), []);
}

#[test]
fn each_field_is_compared_and_can_be_left_out() {
    let other_time = Time {
        seconds: 0,
        nanoseconds: 1,
    };
    type Change = fn(&mut Entry, Time);
    let changes: [(Field, Change); 13] = [
        (Field::Mode, |entry, _| entry.stat.mode = 0),
        (Field::Uid, |entry, _| entry.stat.uid = 0),
        (Field::Gid, |entry, _| entry.stat.gid = 0),
        (Field::Nlink, |entry, _| entry.stat.nlink = 0),
        (Field::Rdev, |entry, _| entry.stat.rdev = (0, 0)),
        (Field::Size, |entry, _| entry.stat.size = 0),
        (Field::Ino, |entry, _| entry.stat.ino = 0),
        (Field::Mtime, |entry, time| entry.stat.mtime = time),
        (Field::Ctime, |entry, time| entry.stat.ctime = time),
        (Field::Atime, |entry, time| entry.stat.atime = time),
        (Field::Btime, |entry, time| entry.stat.btime = Some(time)),
        (Field::Content, |entry, _| {
            entry.content = Content::File(Digest::of_bytes(b"y"));
        }),
        (Field::Xattrs, |entry, _| entry.xattrs.clear()),
    ];
    for (field, change) in changes {
        let mut changed = sample();
        change(&mut changed.entries[2], other_time);
        let found = diff(&sample(), &changed);
        assert!(
            matches!(&found[..], [Difference::Field { field: found, .. }] if *found == field),
            "{field:?}: {found:?}"
        );
        assert_eq!(diff_without(&sample(), &changed, &[field]), []);
    }
}

#[test]
fn missing_and_extra_entries_are_found() {
    let mut left = sample();
    let mut right = sample();
    let one = left.entries.remove(1).path;
    let other = right.entries.remove(3).path;
    assert_eq!(
        diff(&left, &right),
        [
            Difference::OnlyRight { path: one },
            Difference::OnlyLeft { path: other }
        ]
    );
}

#[test]
fn a_fault_on_both_sides_is_a_difference() {
    let mut manifest = sample();
    manifest.faults.push(Fault {
        path: b"c".to_vec(),
        doing: "read",
        reason: "broken".to_owned(),
    });
    assert_eq!(diff(&manifest, &manifest).len(), 2);
}

#[test]
fn below_cuts_at_whole_names() {
    let mut manifest = sample();
    manifest.entries[1].path = b"a".to_vec();
    manifest.entries[2].path = b"a/b".to_vec();
    manifest.entries[3].path = b"ab".to_vec();
    let paths: Vec<_> = manifest
        .below(b"a")
        .entries
        .into_iter()
        .map(|entry| entry.path)
        .collect();
    assert_eq!(paths, [b"".to_vec(), b"b".to_vec()]);
    assert_eq!(manifest.below(b""), manifest);
}

#[test]
fn digest_is_the_same_for_a_hole_and_for_zeros() {
    let dir = crate::Scratch::new().unwrap();
    let data = b"data behind three blocks";
    let mut zeros = vec![0; 3 * 4096];
    zeros.extend(data);
    std::fs::write(dir.path().join("zeros"), &zeros).unwrap();
    let hole = std::fs::File::create(dir.path().join("hole")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&hole, data, 3 * 4096).unwrap();
    let manifest = Manifest::of_dir(dir.path()).unwrap();
    assert_eq!(manifest.faults, []);
    assert_eq!(manifest.entries[1].content, manifest.entries[2].content);
    assert_eq!(manifest.entries[1].stat.size, manifest.entries[2].stat.size);
}
