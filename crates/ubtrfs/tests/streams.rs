//! Streams between volumes, and the changes between snapshots.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ubtrfs::{
    Access, ChangeKind, Event, Progress, ReceiveOptions, SendOptions, Snapshot, StreamDump, Volume,
    XattrChangeKind, XattrMode,
};

const VOLUME_BYTES: u64 = 256 << 20;

#[test]
fn differences_go_through_streams_and_are_listed() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let data = volume.root().create_subvolume("/data").unwrap();
    data.create_dir("/dir").unwrap();
    data.write("/dir/kept", vec![7; 100_000]).unwrap();
    data.write("/dir/gone", b"old").unwrap();
    let writable = Snapshot::open(&data).unwrap_err();
    assert_eq!(writable.kind(), ErrorKind::PermissionDenied, "{writable}");
    let held = |to: &str| {
        let snapshot = volume.root().snapshot("/data", to, Access::ReadOnly);
        Snapshot::open(&snapshot.unwrap()).unwrap()
    };
    let first = held("/first");
    data.remove_file("/dir/gone").unwrap();
    data.write("/dir/new", b"new").unwrap();
    data.open_with("/dir/kept", &ubtrfs::OpenOptions::new().write(true))
        .unwrap()
        .write_all_at(b"changed", 8192)
        .unwrap();
    let second = held("/second");

    let changes = second.changes_since(&first).unwrap();
    let changes = changes.collect::<Result<Vec<_>, _>>().unwrap();
    let kind_of = |path: &str| {
        let found = changes.iter().find(|change| change.path == Path::new(path));
        found.map(|change| change.kind)
    };
    assert_eq!(kind_of("dir/gone"), Some(ChangeKind::Removed));
    assert_eq!(kind_of("dir/new"), Some(ChangeKind::Added));
    assert_eq!(kind_of("dir/kept"), Some(ChangeKind::Changed));
    let kept = changes.iter().find(|change| change.path.ends_with("kept"));
    assert_eq!(kept.unwrap().data.first(), Some(&(8192..12288)));

    let (mut whole, mut difference) = (Vec::new(), Vec::new());
    first
        .send(&SendOptions::new(), &mut whole, &mut ())
        .unwrap();
    let options = SendOptions::new().parent(&first);
    second.send(&options, &mut difference, &mut ()).unwrap();
    assert!(difference.len() < 20_000, "{}", difference.len());
    let backup = Volume::in_memory(VOLUME_BYTES).unwrap();
    backup.root().create_dir("/backups").unwrap();
    let orphan = backup
        .root()
        .receive("/backups", &difference[..], &ReceiveOptions::new(), &mut ())
        .unwrap_err();
    assert_eq!(orphan.kind(), ErrorKind::NotFound, "{orphan}");
    let names = backup
        .root()
        .receive("/backups", &whole[..], &ReceiveOptions::new(), &mut ())
        .unwrap();
    assert_eq!(names, [PathBuf::from("first")]);
    backup
        .root()
        .receive("/backups", &difference[..], &ReceiveOptions::new(), &mut ())
        .unwrap();
    assert_eq!(
        backup.root().read("/backups/second/dir/new").unwrap(),
        b"new"
    );
    assert!(!backup.root().exists("/backups/second/dir/gone").unwrap());
    let received = backup.root().subvolume("/backups/second").unwrap();
    assert!(received.is_read_only().unwrap());
    assert_eq!(
        received.info().unwrap().received_uuid,
        Some(second.info().unwrap().uuid)
    );

    let cut = backup
        .root()
        .receive(
            "/",
            &whole[..whole.len() / 2],
            &ReceiveOptions::new(),
            &mut (),
        )
        .unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::UnexpectedEof, "{cut}");
    let other = backup.root().subvolume("/backups/first").unwrap();
    let other = Snapshot::open(&other).unwrap();
    let refused = second.changes_since(&other).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::CrossesDevices);
}

#[test]
fn changes_tell_attributes_and_extended_attributes() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let data = volume.root().create_subvolume("/data").unwrap();
    data.write("/file", b"one").unwrap();
    data.set_xattr("/file", "user.old", b"1", XattrMode::Any)
        .unwrap();
    data.set_xattr("/file", "user.both", b"1", XattrMode::Any)
        .unwrap();
    let held = |to: &str| {
        let snapshot = volume.root().snapshot("/data", to, Access::ReadOnly);
        Snapshot::open(&snapshot.unwrap()).unwrap()
    };
    let first = held("/first");
    data.chown("/file", Some(7), None).unwrap();
    data.remove_xattr("/file", "user.old").unwrap();
    data.set_xattr("/file", "user.both", b"2", XattrMode::Any)
        .unwrap();
    data.set_xattr("/file", "user.new", b"1", XattrMode::Any)
        .unwrap();
    data.create_node("/null", 0o20_666, 0x103).unwrap();
    data.create_subvolume("/below").unwrap();
    let second = held("/second");

    let changes = second.changes_since(&first).unwrap();
    let changes = changes.collect::<Result<Vec<_>, _>>().unwrap();
    let at = |path: &str| {
        let found = changes.iter().find(|change| change.path == Path::new(path));
        found.unwrap_or_else(|| panic!("{path} has changed: {changes:?}"))
    };
    let file = at("file");
    assert!(file.has_other_attributes());
    assert_eq!(file.ino, Some(data.metadata("/file").unwrap().ino()));
    let (old, new) = file.old.zip(file.new).unwrap();
    assert_eq!((old.uid, new.uid, new.len), (0, 7, 3));
    let changed = data.metadata("/file").unwrap().changed();
    assert_eq!(new.changed, changed);
    let mut xattrs: Vec<_> = file
        .xattrs
        .iter()
        .map(|xattr| (xattr.name.to_str().unwrap(), xattr.kind))
        .collect();
    xattrs.sort_by_key(|(name, _)| *name);
    let expected = [
        ("user.both", XattrChangeKind::Changed),
        ("user.new", XattrChangeKind::Added),
        ("user.old", XattrChangeKind::Removed),
    ];
    assert_eq!((&xattrs[..], file.more_xattrs), (&expected[..], 0));
    let null = at("null");
    assert_eq!((null.old, null.new.unwrap().rdev), (None, 0x103));
    assert!(!null.has_other_attributes());
    let below = at("below");
    assert!(below.file_type.is_dir() && below.ino.is_none());
}

/// The events of a receive, one per line.
#[derive(Default)]
struct News(Vec<String>);

impl Progress for News {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Command(command) => self.0.push(command.text(|seconds| seconds)),
            Event::Problem(problem) => {
                let offset = problem.stream_offset.unwrap();
                self.0.push(format!("{:?} at {offset}", problem.kind));
            }
            Event::Finished { path, is_complete } => {
                let outcome = if *is_complete {
                    "finished"
                } else {
                    "unfinished"
                };
                self.0.push(format!("{} {outcome}", path.display()));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn progress_has_commands_and_their_problems() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let data = volume.root().create_subvolume("/data").unwrap();
    data.write("/file", b"content").unwrap();
    let held = |to: &str| {
        let snapshot = volume.root().snapshot("/data", to, Access::ReadOnly);
        Snapshot::open(&snapshot.unwrap()).unwrap()
    };
    let (one, two) = (held("/one"), held("/two"));
    let mut stream = Vec::new();
    one.send(&SendOptions::new(), &mut stream, &mut ()).unwrap();
    two.send(&SendOptions::new(), &mut stream, &mut ()).unwrap();

    let mut news = News::default();
    let options = ReceiveOptions::new().all_streams(true);
    let backup = Volume::in_memory(VOLUME_BYTES).unwrap();
    let received = backup.root().receive("/", &stream[..], &options, &mut news);
    received.unwrap();
    let dump = StreamDump::open(&stream[..], |seconds| seconds).unwrap();
    let dump = dump.collect::<Result<Vec<_>, _>>().unwrap();
    assert!(dump[0].starts_with("subvol "), "{dump:?}");
    // The events of the second stream follow the events of the first.
    let heard: Vec<_> = news.0.iter().take(dump.len()).cloned().collect();
    assert_eq!(heard, dump);
    let finished = news.0.iter().filter(|line| line.ends_with(" finished"));
    assert_eq!(finished.count(), 2, "{:?}", news.0);

    // The name already exists, so every command of the first stream fails.
    let mut news = News::default();
    let options = options.max_errors(0);
    backup.root().delete_subvolume("/two").unwrap();
    let received = backup.root().receive("/", &stream[..], &options, &mut news);
    let failed = received.unwrap_err();
    assert!(!failed.is_of_stream(), "{failed}");
    assert_eq!(failed.stream_offset(), None, "{failed}");
    assert!(
        news.0.contains(&"AlreadyExists at 17".to_owned()),
        "{:?}",
        news.0
    );

    let begun = backup
        .root()
        .receive("/", &stream[..], &ReceiveOptions::new(), &mut ())
        .unwrap_err();
    assert_eq!(begun.kind(), ErrorKind::AlreadyExists, "{begun}");
    assert_eq!(
        (begun.stream_offset(), begun.unfinished()),
        (Some(17), None)
    );
}

#[test]
fn receive_finds_its_parent_without_reading_all_other_subvolumes() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    root.write("/file", b"first").unwrap();
    let first = root.snapshot("/", "/first", Access::ReadOnly).unwrap();
    let first = Snapshot::open(&first).unwrap();
    root.write("/file", b"second").unwrap();
    let second = root.snapshot("/", "/second", Access::ReadOnly).unwrap();
    let (mut whole, mut difference) = (Vec::new(), Vec::new());
    first
        .send(&SendOptions::new(), &mut whole, &mut ())
        .unwrap();
    let options = SendOptions::new().parent(&first);
    let second = Snapshot::open(&second).unwrap();
    second.send(&options, &mut difference, &mut ()).unwrap();
    let blocks = [3, 203].map(|others| {
        let backup = Volume::in_memory(VOLUME_BYTES).unwrap();
        backup
            .root()
            .receive("/", &whole[..], &ReceiveOptions::new(), &mut ())
            .unwrap();
        for number in 0..others {
            let to = format!("/other{number}");
            backup.root().snapshot("/", to, Access::Writable).unwrap();
        }
        let looks = || {
            let stats = backup.engine().node_store().stats();
            stats.hits + stats.misses
        };
        let before = looks();
        backup
            .root()
            .receive("/", &difference[..], &ReceiveOptions::new(), &mut ())
            .unwrap();
        assert_eq!(backup.root().read("/second/file").unwrap(), b"second");
        looks() - before
    });
    let [few, many] = blocks;
    assert!(
        many <= few * 2,
        "{many} blocks, and {few} beside three others"
    );
}
