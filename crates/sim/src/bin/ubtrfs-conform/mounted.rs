//! Our mount as a target of scripts: random operations are applied to it and to the model.

use std::path::{Path, PathBuf};
use std::process::Command;

use ubtrfs_sim::manifest::Field;
use ubtrfs_sim::script::{
    self, Failure, Mounted, Op, OpError, RunOptions, Shape, SubvolumeVerb, ThreadPlan, VfsTarget,
    generate, shrink,
};

use super::Outcome;

/// Fields that differ on a mount: inode numbers in subvolumes are made unique across the mount.
const MOUNT_DIFFERS: &[Field] = &[Field::Ino];
const SHAPES: [Shape; 6] = [
    Shape::Mixed,
    Shape::BigFile,
    Shape::ManySmallFiles,
    Shape::CollidingNames,
    Shape::LongNames,
    Shape::Xattrs,
];
const THREADS: u8 = 16;
const IMAGE_BYTES: u64 = 2 << 30;

/// A volume and its mount options.
#[derive(Clone, Debug)]
pub(super) struct Ours {
    ubtrfs: PathBuf,
    image: PathBuf,
    dir: PathBuf,
    options: String,
}

impl Ours {
    pub(super) fn new(ubtrfs: &str, image: &str, dir: &str, options: &str) -> Ours {
        Ours {
            ubtrfs: ubtrfs.into(),
            image: image.into(),
            dir: dir.into(),
            options: options.into(),
        }
    }

    fn do_it(&self, words: &[&std::ffi::OsStr]) -> ubtrfs_sim::Result<(), String> {
        let done = Command::new(&self.ubtrfs).args(words).output();
        let done = done.map_err(|error| error.to_string())?;
        if done.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&done.stderr).into_owned())
        }
    }

    fn mount(&self) -> Result<(), String> {
        self.do_it(&[
            "mount".as_ref(),
            "-o".as_ref(),
            self.options.as_ref(),
            self.image.as_ref(),
            self.dir.as_ref(),
        ])
    }

    fn unmount(&self) -> Result<(), String> {
        self.do_it(&["umount".as_ref(), self.dir.as_ref()])
    }

    /// Creates and mounts an empty volume.
    fn empty(&self) -> Result<(), String> {
        let _ = self.unmount();
        let made = std::fs::File::create(&self.image).and_then(|file| file.set_len(IMAGE_BYTES));
        made.map_err(|error| error.to_string())?;
        self.do_it(&[
            "mkfs".as_ref(),
            "-q".as_ref(),
            "-f".as_ref(),
            self.image.as_ref(),
        ])?;
        self.mount()
    }

    fn check(&self) -> Result<(), String> {
        self.unmount()?;
        self.do_it(&["check".as_ref(), self.image.as_ref()])
    }
}

impl Mounted for Ours {
    fn root(&self) -> &Path {
        &self.dir
    }

    fn sync(&mut self) -> ubtrfs_sim::Result<()> {
        let dir = std::fs::File::open(&self.dir).expect("the mount is there");
        rustix::fs::syncfs(&dir).expect("syncfs");
        Ok(())
    }

    fn remount(&mut self) -> ubtrfs_sim::Result<()> {
        let done = self.unmount().and_then(|()| self.mount());
        done.expect("mounted again");
        Ok(())
    }

    fn subvolume(&mut self, _verb: SubvolumeVerb<'_>) -> Result<(), OpError> {
        Err(OpError::InvalidArgument)
    }

    fn may_refuse(&self, op: &Op, error: OpError) -> bool {
        match op {
            // A larger value only fits if its leaf happens to have space.
            Op::SetXattr { .. } => error == OpError::NoSpace,
            _ => false,
        }
    }
}

/// Returns whether an operation is possible on a mount. Linux does not pass clones to a FUSE server, and returns
/// other errors first, because it does not know which files are immutable. Subvolumes are tested by the engine's own
/// scripts.
fn can_be_asked(op: &Op) -> bool {
    if let Op::SetFlags { flags, .. } = op {
        return !flags.immutable && !flags.append;
    }
    !matches!(
        op,
        Op::Clone { .. }
            | Op::Dedupe { .. }
            | Op::SetDefault { .. }
            | Op::SetReceived { .. }
            | Op::GetReceived { .. }
            | Op::CreateSubvolume { .. }
            | Op::Snapshot { .. }
            | Op::DeleteSubvolume { .. }
            | Op::SetReadOnly { .. }
    )
}

/// Runs a random script on an empty volume. A failing script is shortened and printed.
fn prove(ours: &Ours, shape: Shape, seed: u64, count: usize, options: &RunOptions) -> Outcome {
    let mut ops = generate(shape, seed, count);
    ops.retain(can_be_asked);
    let fails = |ops: &[Op]| -> Option<Failure> {
        ours.empty().expect("an empty volume");
        script::run(&mut VfsTarget::new(ours.clone()), ops, options).err()
    };
    let Some(first) = fails(&ops) else {
        return Ok(());
    };
    println!("shrinking: {first}");
    let short = shrink(&ops[..=first.index], |ops| fails(ops).is_some());
    let last = fails(&short).unwrap_or(first);
    for op in &short {
        println!("    Op::{op:?},");
    }
    Err(last.to_string().into())
}

/// Runs each shape separately, then sixteen threads.
pub(super) fn run(ours: &Ours, seed: u64, count: usize) -> Outcome {
    let options = RunOptions {
        ignored: MOUNT_DIFFERS.to_vec(),
        ..RunOptions::default()
    };
    for shape in SHAPES {
        println!("{shape:?}: {count} operations, seed {seed}");
        prove(ours, shape, seed, count, &options)?;
        ours.check()?;
    }
    for mut plan in [
        ThreadPlan::shared(seed, THREADS, count),
        ThreadPlan::apart(Shape::Mixed, seed, THREADS, count / 4, false),
    ] {
        println!("{THREADS} threads");
        for ops in &mut plan.threads {
            ops.retain(can_be_asked);
        }
        ours.empty()?;
        let mut targets: Vec<_> = (0..THREADS).map(|_| VfsTarget::new(ours.clone())).collect();
        let end = plan.run(&mut targets, &options, &());
        end.map_err(|failure| failure.to_string())?;
        drop(targets);
        ours.check()?;
    }
    Ok(())
}
