//! Subvolumes and snapshots: creating, moving, changing and deleting them.

use std::thread;

use ubtrfs_device::nonblocking::scope;
use ubtrfs_format::features::Incompat;
use ubtrfs_format::ids::{InodeNr, RootId, Transid};
use ubtrfs_format::item::{InodeFlags, RootItemFlags};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::superblock::Superblock;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::{
    Error, FileId, FileTime, NewInode, ReceivedFrom, RenameMode, SetAttr, Volume, XattrMode,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::fixture::{World, at, attr, find, is_missing, names};

fn subvolume(world: &World, path: &str) -> RootId {
    let (dir, name) = world.place(path);
    let root = NewInode::directory(0o755);
    world.volume().create_subvolume(dir, name, &root).unwrap()
}

fn snapshot(world: &World, of: RootId, path: &str, read_only: bool) -> RootId {
    let (dir, name) = world.place(path);
    world.volume().snapshot(of, dir, name, read_only).unwrap()
}

/// Returns the subvolumes listed for a UUID in the UUID tree.
fn by_uuid(volume: &Volume, item_type: KeyType, uuid: &Uuid) -> Vec<u64> {
    let (objectid, offset) = uuid.key_halves();
    let tree = volume.tree(RootId::UUID_TREE).unwrap();
    let found = tree
        .view
        .get(&Key::new(objectid, item_type, offset))
        .unwrap();
    let ids = found.map(|item| item.to_vec()).unwrap_or_default();
    let id = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    ids.chunks(8).map(id).collect()
}

#[test]
fn new_subvolume_stands_in_its_directory_and_is_empty() {
    let mut world = World::new();
    world.dir("dir");
    let id = subvolume(&world, "dir/sub");
    assert_eq!(id, RootId(256));
    world.shows(|volume| {
        let root = at(volume, "dir/sub");
        assert_eq!(root, FileId::new(id, InodeNr(256)));
        assert!(names(volume, "dir/sub").is_empty());
        let shown = volume.attr(root).unwrap();
        assert_eq!((shown.mode, shown.nlink, shown.size), (0o040_755, 1, 0));
        assert_eq!(attr(volume, "dir").size, 6);
        assert_eq!(volume.subvolume_path(id).unwrap(), b"dir/sub");
        let all = volume.subvolumes().unwrap();
        let item = all
            .iter()
            .find(|subvolume| subvolume.id == id)
            .unwrap()
            .item;
        assert_eq!(item.refs.get(), 1);
        assert_eq!(item.otransid, item.ctransid);
        assert_eq!(item.inode.flags(), InodeFlags::ROOT_ITEM_INIT);
        assert_eq!(
            by_uuid(volume, KeyType::UUID_KEY_SUBVOL, &item.uuid),
            [id.0]
        );
    });
    world.file("dir/sub/file");
    world.shows(|volume| assert_eq!(names(volume, "dir/sub"), ["file"]));
}

/// TREE-1: the snapshot has the uncommitted edits of earlier calls.
#[test]
fn snapshot_shows_the_moment_and_then_goes_its_own_way() {
    let mut world = World::new();
    let id = subvolume(&world, "sub");
    let early = world.file("sub/early");
    world.volume().sync().unwrap();
    world.file("sub/late");
    let copy = snapshot(&world, id, "copy", false);
    world.file("sub/after");
    world.file("copy/own");
    let (volume, root) = (world.volume(), at(world.volume(), "sub"));
    volume.unlink(root, b"early").unwrap();
    world.shows(|volume| {
        assert_eq!(names(volume, "sub"), ["late", "after"]);
        assert_eq!(names(volume, "copy"), ["early", "late", "own"]);
        assert_eq!(at(volume, "copy/early"), FileId::new(copy, early.ino));
        let all = volume.subvolumes().unwrap();
        let of = |id| {
            all.iter()
                .find(|subvolume| subvolume.id == id)
                .unwrap()
                .item
        };
        assert_eq!(of(copy).parent_uuid, of(id).uuid);
        assert!(!of(copy).uuid.is_nil() && of(copy).uuid != of(id).uuid);
    });
}

#[test]
fn snapshot_of_the_top_does_not_hold_itself() {
    let mut world = World::new();
    world.file("file");
    let copy = snapshot(&world, RootId::FS_TREE, "copy", true);
    subvolume(&world, "copy2");
    world.shows(|volume| {
        let item = volume.subvolume_tree(copy).unwrap().item();
        assert_eq!(item.ctransid, item.otransid);
        assert_eq!(names(volume, ""), ["file", "copy", "copy2"]);
        assert_eq!(names(volume, "copy"), ["file"]);
    });
}

/// TREE-2
#[test]
fn nothing_changes_in_a_read_only_subvolume() {
    let mut world = World::new();
    let id = subvolume(&world, "sub");
    let file = world.file("sub/file");
    let volume = world.volume();
    volume.set_read_only(id, true).unwrap();
    let root = at(volume, "sub");
    let refused = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::ReadOnlySubvolume(of)) if of == id));
    };
    let new = NewInode::file(0o600);
    refused(volume.create(root, b"x", &new).map(drop));
    refused(volume.unlink(root, b"file"));
    refused(volume.link(file, root, b"x"));
    refused(volume.set_xattr(file, b"user.a", b"x", XattrMode::Any));
    refused(volume.set_inode_flags(file, InodeFlags::NODUMP));
    refused(volume.rename(root, b"file", (root, b"x"), RenameMode::Replace));
    refused(volume.tmpfile(root, &new, true).map(drop));
    refused(
        volume
            .create_subvolume(root, b"x", &NewInode::directory(0o755))
            .map(drop),
    );
    world.shows(|volume| {
        assert!(volume.subvolume_tree(id).unwrap().is_read_only());
        assert_eq!(names(volume, "sub"), ["file"]);
    });
    world.volume().set_read_only(id, false).unwrap();
    world.file("sub/more");
    world.shows(|volume| assert_eq!(names(volume, "sub"), ["file", "more"]));
}

#[test]
fn deleted_subvolume_is_gone_with_all_in_it() {
    let mut world = World::new();
    let id = subvolume(&world, "sub");
    let file = world.file("sub/file");
    let copy = snapshot(&world, id, "copy", true);
    let volume = world.volume();
    let uuid = volume.subvolume_tree(id).unwrap().item().uuid;
    volume.delete_subvolume(world.top(), b"sub").unwrap();
    assert!(is_missing(volume, "sub"));
    let deleted = volume.deleted_subvolumes().unwrap();
    assert_eq!(deleted.len(), 1);
    let item = &deleted[0].item;
    assert_eq!((deleted[0].id, item.refs.get()), (id, 0));
    assert!(item.flags().contains(RootItemFlags::DEAD));
    let create = volume.create(at(volume, ""), b"x", &NewInode::file(0o600));
    create.unwrap();
    assert!(matches!(volume.attr(file), Err(Error::NoSuchSubvolume(_))));
    volume.sync().unwrap();
    volume.sync().unwrap();
    world.shows(|volume| {
        assert!(matches!(
            volume.root_dir(id),
            Err(Error::NoSuchSubvolume(_))
        ));
        assert!(volume.deleted_subvolumes().unwrap().is_empty());
        assert!(by_uuid(volume, KeyType::UUID_KEY_SUBVOL, &uuid).is_empty());
        assert_eq!(at(volume, "copy/file"), FileId::new(copy, file.ino));
    });
}

/// TREE-3
#[test]
fn held_files_of_a_deleted_subvolume_go_on_until_they_are_released() {
    let mut world = World::new();
    let id = subvolume(&world, "sub");
    let file = world.file("sub/file");
    let lost = world.file("sub/lost");
    let dir = world.dir("sub/dir");
    let volume = world.volume();
    volume.write(file, 0, b"before").unwrap();
    volume.write(lost, 0, b"x").unwrap();
    let root = volume.root_dir(id).unwrap();
    let held = volume.open_file(file).unwrap();
    let held_dir = volume.open_file(dir).unwrap();
    volume.delete_subvolume(world.top(), b"sub").unwrap();
    volume.free_deleted_subvolumes().unwrap();
    assert!(is_missing(volume, "sub"));
    let new = NewInode::file(0o600);
    for round in 0..3u8 {
        volume.write(file, 6, &vec![round; 70_000]).unwrap();
        volume.fsync(file).unwrap();
        let name = [b'a' + round];
        volume.create(dir, &name, &new).unwrap();
        volume.sync().unwrap();
        let mut buf = vec![0; 70_006];
        assert_eq!(volume.read(file, 0, &mut buf).unwrap(), 70_006);
        assert_eq!((&buf[..6], buf[70_005]), (&b"before"[..], round));
        assert_eq!(volume.lookup(dir, &name).unwrap().unwrap().root, id);
    }
    assert_eq!(volume.deleted_subvolumes().unwrap().len(), 1);
    // It cannot be reached by path or copied, and nothing can be created in its place.
    let refused = volume.create(root, b"x", &new);
    assert!(matches!(refused, Err(Error::NotFound)));
    let refused = volume.snapshot(id, world.top(), b"copy", false);
    assert!(matches!(refused, Err(Error::NoSuchSubvolume(_))));
    let sub = NewInode::directory(0o755);
    let refused = volume.create_subvolume(dir, b"sub", &sub);
    assert!(matches!(refused, Err(Error::NoSuchSubvolume(_))));
    let other = volume.create_subvolume(world.top(), b"other", &sub);
    let to = (dir, &b"other"[..]);
    let refused = volume.rename(world.top(), b"other", to, RenameMode::Replace);
    assert!(matches!(refused, Err(Error::NoSuchSubvolume(_))));
    assert!(volume.root_dir(other.unwrap()).is_ok());

    volume.unlink(dir, b"a").unwrap();
    drop(held_dir);
    assert_eq!(volume.attr(lost).unwrap().size, 1);
    drop(held);
    assert!(matches!(volume.attr(file), Err(Error::NoSuchSubvolume(_))));
    assert!(volume.open_file(file).is_err());
    volume.free_deleted_subvolumes().unwrap();
    world.shows(|volume| assert!(volume.deleted_subvolumes().unwrap().is_empty()));
}

#[test]
fn subvolume_that_is_needed_is_not_deleted() {
    let mut world = World::new();
    let id = subvolume(&world, "sub");
    subvolume(&world, "sub/nested");
    world.dir("dir");
    let (volume, top) = (world.volume(), world.top());
    let delete = |name: &[u8]| volume.delete_subvolume(top, name);
    assert!(matches!(delete(b"sub"), Err(Error::NotEmpty(_))));
    assert!(matches!(delete(b"dir"), Err(Error::NotASubvolume)));
    assert!(matches!(delete(b"none"), Err(Error::NotFound)));
    volume
        .delete_subvolume(at(volume, "sub"), b"nested")
        .unwrap();
    volume.set_default(id).unwrap();
    assert!(matches!(delete(b"sub"), Err(Error::DefaultSubvolume(_))));
    let empty = volume.rmdir(top, b"sub");
    assert!(
        matches!(empty, Err(Error::DefaultSubvolume(_))),
        "{empty:?}"
    );
    world.file("sub/file");
    let (volume, top) = (world.volume(), world.top());
    let filled = volume.rmdir(top, b"sub");
    assert!(matches!(filled, Err(Error::NotEmpty(_))), "{filled:?}");
    volume.unlink(at(volume, "sub"), b"file").unwrap();
    world.shows(|volume| assert_eq!(volume.default_subvolume().unwrap(), id));
    let (volume, top) = (world.volume(), world.top());
    volume.set_default(RootId::FS_TREE).unwrap();
    volume.delete_subvolume(top, b"sub").unwrap();
}

#[test]
fn subvolume_that_is_asked_about_is_the_one_that_is_deleted() {
    let mut world = World::new();
    let (a, b) = (subvolume(&world, "a"), subvolume(&world, "b"));
    let (volume, top) = (world.volume(), world.top());
    let refused = volume.delete_subvolume_if(top, b"a", |root| Err(Error::NotPermitted(root)));
    assert!(matches!(refused, Err(Error::NotPermitted(root)) if root.root == a));
    let deleted = volume.delete_subvolume_if(top, b"a", |root| {
        let exchange = || volume.rename(top, b"a", (top, b"b"), RenameMode::Exchange);
        assert!(scope(exchange).unwrap_err().is_would_block());
        volume.stored_attr(root).map(drop)
    });
    assert_eq!(deleted.unwrap().root, a);
    world.shows(|volume| assert_eq!(at(volume, "b").root, b));
}

#[test]
fn subvolume_is_deleted_by_its_id_wherever_it_is_moved() {
    let mut world = World::new();
    let kept = subvolume(&world, "kept");
    let (volume, top) = (world.volume(), world.top());
    thread::scope(|scope| {
        let deleting = scope.spawn(|| {
            let mut name = b"own".to_vec();
            for _ in 0..200 {
                let root = NewInode::directory(0o755);
                let id = volume.create_subvolume(top, &name, &root).unwrap();
                let deleted = volume.delete_subvolume_by_id(id, |dir, root| {
                    assert_eq!((dir, root.root), (top, id));
                    Ok::<_, Error>(())
                });
                name = deleted.unwrap().name;
            }
        });
        while !deleting.is_finished() {
            let _ = volume.rename(top, b"own", (top, b"kept"), RenameMode::Exchange);
        }
    });
    world.shows(|volume| assert!(volume.subvolume_place(kept).unwrap().is_some()));
}

#[test]
fn rmdir_takes_an_empty_subvolume_and_what_leads_nowhere() {
    let mut world = World::new();
    let id = subvolume(&world, "sub");
    subvolume(&world, "sub/nested");
    snapshot(&world, id, "copy", false);
    snapshot(&world, id, "frozen", true);
    let (volume, top) = (world.volume(), world.top());
    let empty_dir = at(volume, "copy/nested");
    assert!(empty_dir.is_empty_subvolume_dir());
    let frozen = at(volume, "frozen");
    volume
        .rename(frozen, b"nested", (frozen, b"nested"), RenameMode::Replace)
        .unwrap();
    let new = NewInode::file(0o600);
    assert!(matches!(
        volume.create(empty_dir, b"x", &new),
        Err(Error::NotPermitted(_))
    ));
    assert!(matches!(
        volume.unlink(top, b"sub"),
        Err(Error::IsADirectory(_))
    ));
    assert!(matches!(volume.rmdir(top, b"sub"), Err(Error::NotEmpty(_))));
    volume.rmdir(at(volume, "copy"), b"nested").unwrap();
    volume.rmdir(at(volume, "sub"), b"nested").unwrap();
    volume.rmdir(top, b"sub").unwrap();
    world.shows(|volume| {
        assert!(is_missing(volume, "sub"));
        assert!(names(volume, "copy").is_empty());
        assert_eq!(attr(volume, "copy").size, 0);
    });
}

#[test]
fn subvolumes_move_and_files_do_not_leave_theirs() {
    let mut world = World::new();
    let (a, b) = (subvolume(&world, "a"), subvolume(&world, "b"));
    world.file("file");
    world.file("a/inner");
    world.dir("b/dir");
    let rename = |world: &World, from: &str, to: &str, mode| {
        let (dir, name) = world.place(from);
        world.volume().rename(dir, name, world.place(to), mode)
    };
    use RenameMode::{Exchange, Replace};
    assert!(matches!(
        rename(&world, "file", "a/file", Replace),
        Err(Error::CrossSubvolume)
    ));
    assert!(matches!(
        rename(&world, "file", "a/inner", Exchange),
        Err(Error::CrossSubvolume)
    ));
    assert!(matches!(
        rename(&world, "a", "b", Replace),
        Err(Error::NotEmpty(_))
    ));
    assert!(matches!(
        rename(&world, "b/dir", "a", Replace),
        Err(Error::NotEmpty(_) | Error::CrossSubvolume)
    ));
    assert!(matches!(
        rename(&world, "b", "b/dir/x", Replace),
        Err(Error::Invalid(_))
    ));
    rename(&world, "a", "renamed", Replace).unwrap();
    rename(&world, "renamed", "b/dir/a", Replace).unwrap();
    world.shows(|volume| {
        assert_eq!(at(volume, "b/dir/a").root, a);
        assert_eq!(volume.subvolume_path(a).unwrap(), b"b/dir/a");
        assert_eq!(names(volume, "b/dir/a"), ["inner"]);
        assert_eq!(names(volume, ""), ["b", "file"]);
        assert_eq!(at(volume, "b").root, b);
    });
    let c = subvolume(&world, "c");
    rename(&world, "c", "b/dir/a", Exchange).unwrap();
    world.shows(|volume| {
        assert_eq!((at(volume, "c").root, at(volume, "b/dir/a").root), (a, c));
        assert_eq!(volume.subvolume_path(c).unwrap(), b"b/dir/a");
    });
    world
        .volume()
        .delete_subvolume(at(world.volume(), "b/dir"), b"a")
        .unwrap();
}

#[test]
fn received_subvolume_says_so_and_its_read_only_snapshots_do() {
    let mut world = World::new();
    let id = subvolume(&world, "sub");
    let uuid = Uuid([7; 16]);
    let from = ReceivedFrom {
        uuid,
        transid: Transid(99),
        time: FileTime { sec: 5, nsec: 6 },
    };
    let (rtransid, rtime) = world.volume().set_received(id, &from).unwrap();
    world.volume().set_read_only(id, true).unwrap();
    let again = world.volume().set_received(id, &from);
    assert!(matches!(again, Err(Error::ReadOnlySubvolume(_))));
    let (ro, rw) = (
        snapshot(&world, id, "ro", true),
        snapshot(&world, id, "rw", false),
    );
    let received = KeyType::UUID_KEY_RECEIVED_SUBVOL;
    world.shows(|volume| {
        for id in [id, ro] {
            let item = volume.subvolume_tree(id).unwrap().item();
            assert_eq!(item.received_uuid, uuid);
            assert_eq!((item.stransid.get(), item.rtransid.get()), (99, rtransid.0));
            assert_eq!(FileTime::from(item.stime), from.time);
            assert_eq!(FileTime::from(item.rtime), rtime);
        }
        let item = volume.subvolume_tree(rw).unwrap().item();
        assert_eq!((item.received_uuid, item.stransid.get()), (Uuid::NIL, 0));
        assert_eq!(by_uuid(volume, received, &uuid), [id.0, ro.0]);
    });
    world
        .volume()
        .delete_subvolume(world.top(), b"sub")
        .unwrap();
    assert_eq!(by_uuid(world.volume(), received, &uuid), [ro.0]);
}

#[test]
fn subvolumes_inherit_from_the_one_that_holds_them() {
    let mut world = World::new();
    let top = world.top();
    let volume = world.volume();
    let compression = b"btrfs.compression";
    volume
        .set_xattr(top, compression, b"zstd", XattrMode::Any)
        .unwrap();
    let dir = world.dir("dir");
    volume
        .set_inode_flags(dir, InodeFlags::NODATACOW)
        .unwrap_err();
    volume
        .set_xattr(dir, compression, b"", XattrMode::Any)
        .unwrap();
    volume.set_inode_flags(dir, InodeFlags::NODATACOW).unwrap();
    subvolume(&world, "dir/sub");
    world.shows(|volume| {
        let root = at(volume, "dir/sub");
        assert_eq!(volume.attr(root).unwrap().flags, InodeFlags::COMPRESS);
        assert_eq!(volume.xattr(root, compression).unwrap().unwrap(), b"zstd");
    });
}

#[test]
fn snapshot_leaves_behind_what_its_source_keeps_without_a_name() {
    let world = World::new();
    let volume = world.volume();
    let held = volume
        .tmpfile(world.top(), &NewInode::file(0o600), true)
        .unwrap();
    let copy = snapshot(&world, RootId::FS_TREE, "copy", true);
    let in_copy = FileId::new(copy, held.id().ino);
    assert!(matches!(volume.attr(in_copy), Err(Error::NoSuchInode(_))));
    volume.attr(held.id()).unwrap();
}

#[test]
fn label_of_the_volume_is_set() {
    let mut world = World::new();
    let volume = world.volume();
    assert!(matches!(
        volume.set_label(&[b'x'; 256]),
        Err(Error::Invalid(_))
    ));
    assert!(matches!(volume.set_label(b"a\0b"), Err(Error::Invalid(_))));
    volume.set_label(b"name").unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.superblock().label(), b"name");
    world.reopen();
    assert_eq!(world.volume().superblock().label(), b"name");
    assert!(find(world.volume(), "none").is_err());
}

/// Otherwise cached items of the deleted subvolume would appear in the new one.
#[test]
fn numbers_of_what_was_deleted_are_not_given_out_again() {
    let mut world = World::new();
    let old = subvolume(&world, "old");
    let file = world.file("file");
    let owner = SetAttr {
        uid: Some(1000),
        ..SetAttr::default()
    };
    world
        .volume()
        .set_attr(at(world.volume(), "old"), &owner)
        .unwrap();
    world.reopen();
    assert_eq!(attr(world.volume(), "old").uid, 1000);
    let (volume, top) = (world.volume(), world.top());
    volume.unlink(top, b"file").unwrap();
    volume.delete_subvolume(top, b"old").unwrap();
    volume.free_deleted_subvolumes().unwrap();
    let new = subvolume(&world, "new");
    assert!(new > old && world.file("another").ino > file.ino);
    world.shows(|volume| assert_eq!(attr(volume, "new").uid, 0));
}

/// Device items and tree blocks keep the old fsid, as after `btrfstune -m`.
#[test]
fn a_volume_whose_fsid_was_changed_is_written() {
    let mut bytes = World::new().bytes();
    for offset in [64 << 10, 64 << 20] {
        let copy = &mut bytes[offset..offset + size_of::<Superblock>()];
        let mut superblock = Superblock::read_from_bytes(copy).unwrap();
        superblock.metadata_uuid = superblock.fsid;
        superblock.fsid = Uuid([7; 16]);
        let incompat = superblock.incompat() | Incompat::METADATA_UUID;
        superblock.incompat_flags = incompat.bits().into();
        superblock.seal();
        copy.copy_from_slice(superblock.as_bytes());
    }
    let mut world = World::from_bytes(bytes);
    world.file("file");
    subvolume(&world, "sub");
    world.shows(|volume| assert_eq!(names(volume, ""), ["file", "sub"]));
}

#[test]
fn several_threads_make_subvolumes_and_snapshots_at_once() {
    const EACH: usize = 6;
    let mut world = World::new();
    let sources = ["s0", "s1"].map(|path| subvolume(&world, path));
    let dirs = ["d0", "d1", "s0/d2", "s1/d3"];
    for path in dirs {
        world.dir(path);
    }
    for number in 0..200 {
        world.file(&format!("s0/{number}"));
        world.file(&format!("s1/{number}"));
    }
    let volume = world.volume();
    let ids: Vec<RootId> = std::thread::scope(|scope| {
        let threads = dirs.map(|path| {
            scope.spawn(move || {
                let dir = at(volume, path);
                let make = |number: usize| {
                    let name = number.to_string();
                    let name = name.as_bytes();
                    let made = match number % 3 {
                        0 => volume.create_subvolume(dir, name, &NewInode::directory(0o755)),
                        source => volume.snapshot(sources[source - 1], dir, name, false),
                    };
                    made.unwrap()
                };
                (0..EACH).map(make).collect::<Vec<RootId>>()
            })
        });
        let made = threads.into_iter().map(|thread| thread.join().unwrap());
        made.flatten().collect()
    });
    let mut once = ids.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), dirs.len() * EACH);
    world.shows(|volume| {
        for path in dirs {
            assert_eq!(names(volume, path).len(), EACH);
            assert!(names(volume, &format!("{path}/0")).is_empty());
            assert_eq!(names(volume, &format!("{path}/1")).len(), 201);
        }
    });
}

/// Snapshots of a received subvolume are created even if the item of its received UUID is full.
#[test]
fn snapshots_beyond_a_full_uuid_item_are_made_without_an_entry() {
    let mut world = World::with_features("", 4 << 10);
    let room = (4096 - 101 - 2 * 25) / 8;
    let from = ReceivedFrom {
        uuid: Uuid([7; 16]),
        transid: Transid(9),
        time: FileTime::default(),
    };
    let source = subvolume(&world, "source");
    world.volume().set_received(source, &from).unwrap();
    let mut snapshots = Vec::new();
    for number in 0..room + 2 {
        snapshots.push(snapshot(&world, source, &format!("s{number}"), true));
    }
    let listed: Vec<u64> = [source].iter().chain(&snapshots).map(|id| id.0).collect();
    let other = subvolume(&world, "other");
    let refused = world.volume().set_received(other, &from);
    assert!(matches!(refused, Err(Error::UuidItemFull)), "{refused:?}");
    let received = KeyType::UUID_KEY_RECEIVED_SUBVOL;
    world.shows(|volume| {
        assert_eq!(by_uuid(volume, received, &from.uuid), listed[..room]);
        let received_uuid = |id: RootId| volume.subvolume_tree(id).unwrap().item().received_uuid;
        assert_eq!(received_uuid(snapshots[room + 1]), from.uuid);
        assert!(received_uuid(other).is_nil());
    });
    // A snapshot without an entry can be deleted like any other, and deleting one with an entry makes room.
    for number in [room + 1, 0] {
        let name = format!("s{number}");
        let top = world.top();
        world
            .volume()
            .delete_subvolume(top, name.as_bytes())
            .unwrap();
    }
    world.volume().set_received(other, &from).unwrap();
    world.shows(|volume| {
        let ids = by_uuid(volume, received, &from.uuid);
        assert_eq!((ids.len(), ids.last()), (room, Some(&other.0)));
    });
}
