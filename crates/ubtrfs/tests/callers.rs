//! Directories in which a caller has fewer rights than the program.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;

use ubtrfs::{Access, Caller, Dir, DirBuilder, Result, Volume};

const EACCES: i32 = 13;
const EPERM: i32 = 1;
const OWNER: u32 = 1000;
const STRANGER: u32 = 2000;

fn volume() -> Volume {
    Volume::in_memory(256 << 20).unwrap()
}

fn user(id: u32) -> Caller {
    Caller::new(id, id)
}

/// A directory of this mode that belongs to the owner.
fn home(volume: &Volume, mode: u32) -> Dir {
    let root = volume.root();
    root.create_dir("/home").unwrap();
    root.chown("/home", Some(OWNER), Some(OWNER)).unwrap();
    let permissions = Permissions::from_mode(mode);
    root.set_permissions("/home", permissions).unwrap();
    root.open_dir("/home").unwrap()
}

fn refused<T>(outcome: Result<T>) -> i32 {
    let error = outcome.err().expect("the caller may not");
    assert!(error.is_refusal(), "{error}");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    error.errno()
}

#[test]
fn new_subvolumes_belong_to_the_caller_and_go_without_its_umask() {
    let volume = volume();
    let home = home(&volume, 0o777).with_caller(&user(STRANGER).umask(0o027));
    let builder = DirBuilder::new().mode(0o777);
    home.create_dir("dir", &builder).unwrap();
    home.create_subvolume("subvolume", &builder).unwrap();
    for path in ["/home/dir", "/home/subvolume"] {
        let made = volume.root().metadata(path).unwrap();
        assert_eq!((made.uid(), made.gid()), (STRANGER, STRANGER));
        assert_eq!(made.mode() & 0o7777, 0o750);
    }
}

#[test]
fn modes_and_groups_tell_who_makes_names() {
    let volume = volume();
    let home = home(&volume, 0o770);
    let builder = DirBuilder::new();
    let make = |caller: &Caller, name: &str| {
        let home = home.clone().with_caller(caller);
        home.create_subvolume(name, &builder)
    };
    make(&user(OWNER), "own").unwrap();
    make(&user(STRANGER).groups([OWNER]), "of-group").unwrap();
    make(&user(STRANGER).administrator(), "of-root").unwrap();
    assert_eq!(refused(make(&user(STRANGER), "of-stranger")), EACCES);
    // Whether a name is taken is told to those alone that may search the directory.
    assert_eq!(refused(make(&user(STRANGER), "own")), EACCES);
    let taken = make(&user(OWNER), "own").unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
}

#[test]
fn snapshots_are_for_the_owner_of_their_source() {
    let volume = volume();
    let home = home(&volume, 0o777);
    let owned = home.clone().with_caller(&user(OWNER));
    let source = owned.create_subvolume("work", &DirBuilder::new()).unwrap();
    let strange = home.with_caller(&user(STRANGER));
    let stolen = strange.snapshot(&source, "stolen", Access::Writable);
    assert_eq!(refused(stolen), EPERM);
    owned.snapshot(&source, "kept", Access::ReadOnly).unwrap();
    let read_only = owned.open_dir("kept").unwrap();
    let error = read_only.create_dir("new", &DirBuilder::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    let other = Volume::in_memory(256 << 20).unwrap();
    let elsewhere = other.root().open_dir("/").unwrap();
    let crossed = elsewhere.snapshot(&source, "crossed", Access::ReadOnly);
    assert_eq!(crossed.unwrap_err().kind(), ErrorKind::CrossesDevices);
}

#[test]
fn users_delete_subvolumes_where_that_is_allowed() {
    let volume = volume();
    let home = home(&volume, 0o1777);
    let owned = home.clone().with_caller(&user(OWNER));
    for name in ["first", "second", "third"] {
        owned.create_subvolume(name, &DirBuilder::new()).unwrap();
    }
    assert_eq!(refused(owned.delete_subvolume("first")), EPERM);
    let allowed = |id| user(id).allow_deleting_subvolumes(true);
    // The subvolume is for its owner to write to.
    let strange = home.clone().with_caller(&allowed(STRANGER));
    assert_eq!(refused(strange.delete_subvolume("first")), EACCES);
    let owned = home.clone().with_caller(&allowed(OWNER));
    owned.delete_subvolume("first").unwrap();
    let place = owned.open_dir("second").unwrap().delete_itself().unwrap();
    assert_eq!(place.name, "second");
    assert_eq!(place.ino, home.metadata().unwrap().ino());
    home.delete_subvolume("third").unwrap();
    assert_eq!(volume.root().read_dir("/home").unwrap().count(), 0);
}

#[test]
fn flags_are_for_the_owner() {
    let volume = volume();
    let home = home(&volume, 0o777);
    let owned = home.clone().with_caller(&user(OWNER));
    let subvolume = owned.create_subvolume("work", &DirBuilder::new()).unwrap();
    let strange = home.clone().with_caller(&user(STRANGER));
    let strange = strange.open_dir("work").unwrap();
    assert_eq!(refused(strange.set_read_only(true)), EPERM);
    assert_eq!(refused(strange.forget_received()), EPERM);
    assert_eq!(refused(strange.check_owned()), EPERM);
    let owned = owned.open_dir("work").unwrap();
    owned.set_read_only(true).unwrap();
    assert!(subvolume.is_read_only().unwrap());
    owned.set_read_only(false).unwrap();
    let plain = home.create_dir("plain", &DirBuilder::new()).unwrap();
    let none = plain.set_read_only(true).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::InvalidInput);
    let file = volume.root().create_file("/home/file").unwrap();
    assert_eq!(refused(file.check_writable(&user(STRANGER))), EACCES);
    file.check_writable(&user(STRANGER).administrator())
        .unwrap();
}

#[test]
fn received_subvolume_forgets_its_origin() {
    let volume = volume();
    let root = volume.root();
    let data = root.create_subvolume("/data").unwrap();
    let sent = data.snapshot("/", "/sent", Access::ReadOnly).unwrap();
    let mut stream = Vec::new();
    let snapshot = ubtrfs::Snapshot::open(&sent).unwrap();
    snapshot.send(&mut stream).unwrap();
    root.create_dir("/backup").unwrap();
    root.receive("/backup", &stream[..]).unwrap();
    let received = root.subvolume("/backup/sent").unwrap();
    assert!(received.info().unwrap().received_uuid.is_some());
    let dir = received.open_dir("/").unwrap();
    dir.set_read_only(false).unwrap();
    dir.forget_received().unwrap();
    assert_eq!(received.info().unwrap().received_uuid, None);
}

#[test]
fn open_directory_is_the_same_under_another_name() {
    let volume = volume();
    let root = volume.root();
    root.create_dir("/old").unwrap();
    let dir = root.open_dir("/old").unwrap();
    root.rename("/old", "/new").unwrap();
    root.create_dir("/old").unwrap();
    dir.create_dir("within", &DirBuilder::new()).unwrap();
    assert!(root.exists("/new/within").unwrap());
    root.remove_dir_all("/new").unwrap();
    let gone = dir.create_dir("more", &DirBuilder::new());
    assert_eq!(gone.unwrap_err().kind(), ErrorKind::NotFound);
}
