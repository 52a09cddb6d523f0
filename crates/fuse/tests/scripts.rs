//! Random scripts run on a mount and on the model, which behaves as the kernel's btrfs. Then both checkers verify the
//! volume.
//!
//! With `UBTRFS_SOAK` set the scripts are long.

mod idle;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, check};
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{FileId, NewInode, OpenOptions, Volume};
use ubtrfs_fuse::mount::{MountError, Options, Session, UnmountError, mount};
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec, or_skip};
use ubtrfs_sim::manifest::Field;
use ubtrfs_sim::script::{
    Mounted, Op, OpError, RunOptions, Shape, SubvolumeVerb, VfsTarget, generate, run,
};
use ubtrfs_sim::seed;

use self::idle::unmount_once_idle;

/// A volume mounted by this process.
struct OurMount {
    device: KernelVolume,
    point: PathBuf,
    served: Option<(Session, Arc<Volume>)>,
}

impl OurMount {
    fn new() -> OurMount {
        let device = KernelVolume::make(&MkfsSpec::new()).unwrap();
        let point = device.dir().join("ours");
        std::fs::create_dir(&point).unwrap();
        let mut ours = OurMount {
            device,
            point,
            served: None,
        };
        ours.mount();
        ours
    }

    fn mount(&mut self) {
        let options = OpenOptions::new().writable(true);
        let volume = Volume::open(self.device.devices(), &options).unwrap();
        let mut options = Options::default();
        options.add("noatime".as_ref()).unwrap();
        let source = Path::new("scripts");
        let session = mount(Arc::clone(&volume), source, &self.point, &options).unwrap();
        self.served = Some((session, volume));
    }

    fn unmount(&mut self) {
        let Some((mut session, volume)) = self.served.take() else {
            return;
        };
        unmount_once_idle(&mut session);
        drop(volume);
        let report = check(self.device.devices(), &CheckOptions::default(), &mut ()).unwrap();
        assert!(report.is_spotless(), "{:?}", report.issues);
    }

    fn find(&self, volume: &Volume, path: &Path) -> FileId {
        let path = path.canonicalize().unwrap();
        let below = path.strip_prefix(&self.point).unwrap();
        let top = volume.root_dir(RootId::FS_TREE).unwrap();
        volume.resolve(top, below.as_os_str().as_bytes()).unwrap()
    }
}

impl Drop for OurMount {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.unmount();
        self.device.check().unwrap();
    }
}

impl Mounted for OurMount {
    fn root(&self) -> &Path {
        &self.point
    }

    fn sync(&mut self) -> ubtrfs_sim::Result<()> {
        let dir = std::fs::File::open(&self.point).unwrap();
        rustix::fs::syncfs(&dir).unwrap();
        Ok(())
    }

    fn remount(&mut self) -> ubtrfs_sim::Result<()> {
        self.unmount();
        self.mount();
        Ok(())
    }

    /// Changes subvolumes outside of the mount, as another program may.
    fn subvolume(&mut self, verb: SubvolumeVerb<'_>) -> Result<(), OpError> {
        let SubvolumeVerb::Create { path } = verb else {
            panic!("{verb:?} is left out");
        };
        let (session, volume) = self.served.as_ref().unwrap();
        let name = path.file_name().unwrap().as_bytes();
        let dir = self.find(volume, path.parent().unwrap());
        let root = NewInode {
            umask: 0o022,
            ..NewInode::directory(0o777)
        };
        volume.create_subvolume(dir, name, &root).unwrap();
        let changes = session.changes().unwrap();
        changes.entry(dir, name);
        changes.attributes(dir);
        changes.wait();
        Ok(())
    }

    fn may_refuse(&self, op: &Op, error: OpError) -> bool {
        // A larger value replaces the old one only if their leaf happens to have room.
        matches!(op, Op::SetXattr { .. }) && error == OpError::NoSpace
    }
}

fn count(few: usize) -> usize {
    match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => 20 * few,
        None => few,
    }
}

fn prove_shape(test: &str, shape: Shape, few: usize) {
    if !or_skip(test) {
        return;
    }
    let options = RunOptions {
        // Numbers are unique over the mount, and times that the kernel maintains are coarse.
        ignored: vec![
            Field::Ino,
            Field::Ctime,
            Field::Mtime,
            Field::Atime,
            Field::Btime,
        ],
        ..RunOptions::default()
    };
    let mut ops = generate(shape, seed(test), count(few));
    // FUSE has no request to share extents, and the target does not know the displayed numbers of subvolumes.
    ops.retain(|op| {
        let left_out = matches!(
            op,
            Op::Clone { .. }
                | Op::Dedupe { .. }
                | Op::SetDefault { .. }
                | Op::SetReceived { .. }
                | Op::GetReceived { .. }
                | Op::Snapshot { .. }
                | Op::SetReadOnly { .. }
                | Op::DeleteSubvolume { .. }
        );
        !left_out
    });
    // A write at the end of an append-only file counts as an append, because the mount does not receive the open.
    for op in &mut ops {
        if let Op::SetFlags { flags, .. } = op {
            flags.append = false;
        }
    }
    let outcome = run(&mut VfsTarget::new(OurMount::new()), &ops, &options);
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

#[test]
fn mixed() {
    prove_shape("mixed", Shape::Mixed, 600);
}

#[test]
fn many_small_files() {
    prove_shape("many_small_files", Shape::ManySmallFiles, 1000);
}

#[test]
fn big_file() {
    prove_shape("big_file", Shape::BigFile, 300);
}

#[test]
fn colliding_names() {
    prove_shape("colliding_names", Shape::CollidingNames, 600);
}

#[test]
fn xattrs() {
    prove_shape("xattrs", Shape::Xattrs, 600);
}
