//! Alternating changes by this library and by the kernel on one volume: each reads the other's changes, and both
//! checkers and scrub find no errors. One case for each checksum, compression, profile, node size and set of features.
//!
//! Needs root and the kernel's btrfs. Without them, the test prints that and passes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ubtrfs::{Access, BlockDevice, Compress, DeviceAccess, FileDevice, Volume};
use ubtrfs_check::{CheckOptions, check_devices};
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::compress::Compression;
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::item::Timespec;
use ubtrfs_mkfs::{Identity, MkfsOptions, Plan};
use ubtrfs_sim::kernel::{self, KernelVolume};
use ubtrfs_sim::{Rng, Scratch, matrix, seed};

const TEST: &str = "changes in turns with the kernel";
/// Space for three more chunks of each kind: the kernel allocates some for scrub and for balance.
const DEVICE_BYTES: u64 = 8 << 30;

#[derive(Clone, Copy)]
struct Case {
    csum: CsumType,
    compression: Compression,
    data: Profile,
    metadata: Profile,
    devices: usize,
    nodesize: u32,
    features: &'static str,
}

const PLAIN: Case = Case {
    csum: CsumType::Crc32c,
    compression: Compression::None,
    data: Profile::Single,
    metadata: Profile::Dup,
    devices: 1,
    nodesize: 16 << 10,
    features: "",
};

fn cases() -> Vec<Case> {
    let all = vec![
        PLAIN,
        Case {
            csum: CsumType::XxHash64,
            compression: Compression::Zstd,
            nodesize: 4 << 10,
            features: "^no-holes",
            ..PLAIN
        },
        Case {
            csum: CsumType::Sha256,
            compression: Compression::Lzo,
            data: Profile::Raid1,
            metadata: Profile::Raid1,
            devices: 2,
            nodesize: 64 << 10,
            features: "^block-group-tree",
        },
        Case {
            csum: CsumType::Blake2b,
            compression: Compression::Zlib,
            data: Profile::Raid10,
            metadata: Profile::Raid1c4,
            devices: 4,
            nodesize: 8 << 10,
            features: "^free-space-tree,^block-group-tree",
        },
        Case {
            data: Profile::Raid0,
            metadata: Profile::Raid1c3,
            devices: 3,
            nodesize: 32 << 10,
            ..PLAIN
        },
        Case {
            data: Profile::Dup,
            nodesize: 4 << 10,
            features: "mixed-bg",
            ..PLAIN
        },
        Case {
            compression: Compression::Zstd,
            metadata: Profile::Single,
            features: "^skinny-metadata,^extref",
            ..PLAIN
        },
    ];
    // All cases in a soak, otherwise those with the best coverage.
    match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => all,
        None => vec![all[1], all[3], all[5]],
    }
}

/// The regular files of a directory tree, by path.
type Contents = BTreeMap<PathBuf, Vec<u8>>;

/// A place where files can be created, changed and removed.
trait Place {
    fn write(&mut self, path: &Path, content: &[u8]);
    fn remove(&mut self, path: &Path);
    fn rename(&mut self, from: &Path, to: &Path);
    fn reflink(&mut self, from: &Path, to: &Path);
}

struct Ours<'v>(&'v Volume);

impl Place for Ours<'_> {
    fn write(&mut self, path: &Path, content: &[u8]) {
        self.0.root().write(path, content).unwrap();
    }

    fn remove(&mut self, path: &Path) {
        self.0.root().remove_file(path).unwrap();
    }

    fn rename(&mut self, from: &Path, to: &Path) {
        self.0.root().rename(from, to).unwrap();
    }

    fn reflink(&mut self, from: &Path, to: &Path) {
        self.0.root().reflink(from, to).unwrap();
    }
}

struct Theirs<'p>(&'p Path);

impl Theirs<'_> {
    fn at(&self, path: &Path) -> PathBuf {
        self.0.join(path.strip_prefix("/").unwrap())
    }
}

impl Place for Theirs<'_> {
    fn write(&mut self, path: &Path, content: &[u8]) {
        fs::write(self.at(path), content).unwrap();
    }

    fn remove(&mut self, path: &Path) {
        fs::remove_file(self.at(path)).unwrap();
    }

    fn rename(&mut self, from: &Path, to: &Path) {
        fs::rename(self.at(from), self.at(to)).unwrap();
    }

    fn reflink(&mut self, from: &Path, to: &Path) {
        run(
            "cp",
            &["--reflink=always", text(&self.at(from)), text(&self.at(to))],
        );
    }
}

/// Makes random changes below /live, and records them in `expected`.
fn change(place: &mut dyn Place, expected: &mut Contents, rng: &mut Rng, steps: u64) {
    for step in 0..steps {
        let number = rng.below(60);
        let path = PathBuf::from(format!("/live/dir-{}/file-{number}", number % 4));
        let other = PathBuf::from(format!("/live/dir-{}/other-{step}", step % 4));
        match rng.below(8) {
            0 if expected.remove(&path).is_some() => place.remove(&path),
            1 => {
                if let Some(content) = expected.remove(&path) {
                    place.rename(&path, &other);
                    expected.insert(other, content);
                }
            }
            2 => {
                if let Some(content) = expected.get(&path).cloned() {
                    place.reflink(&path, &other);
                    expected.insert(other, content);
                }
            }
            _ => {
                let content = content(rng);
                place.write(&path, &content);
                expected.insert(path, content);
            }
        }
    }
}

/// Creates content of any size, compressible or not.
fn content(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(4) {
        0 => rng.below(200),
        1 => rng.below(5_000),
        2 => rng.below(100_000),
        _ => rng.below(700_000),
    };
    let mut content = vec![0; len as usize];
    if rng.one_in(2) {
        rng.fill(&mut content);
    } else {
        let word = rng.next_u64().to_le_bytes();
        for (at, byte) in content.iter_mut().enumerate() {
            *byte = word[at % 7];
        }
    }
    content
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {stderr}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

struct Images {
    made: KernelVolume,
    compression: Compression,
}

impl Images {
    fn make(case: &Case) -> Images {
        let scratch = Scratch::new().unwrap();
        let mut options = MkfsOptions {
            data: Some(case.data),
            metadata: Some(case.metadata),
            nodesize: Some(case.nodesize),
            csum_type: case.csum,
            ..MkfsOptions::default()
        };
        if case.features.contains("mixed-bg") {
            options.metadata = options.data;
        }
        options.features.apply_list(case.features).unwrap();
        let files: Vec<PathBuf> = (0..case.devices)
            .map(|number| {
                scratch
                    .file(&format!("device-{number}"), DEVICE_BYTES)
                    .unwrap()
            })
            .collect();
        let devices: Vec<FileDevice> = files
            .iter()
            .map(|file| FileDevice::open(file, DeviceAccess::Write).unwrap())
            .collect();
        let created = Timespec {
            sec: 1_700_000_000.into(),
            nsec: 0.into(),
        };
        let identity = Identity::random(case.devices, created);
        let lens = vec![DEVICE_BYTES; case.devices];
        let plan = Plan::new(&options, &identity, &lens).unwrap();
        let targets: Vec<&dyn BlockDevice> = devices
            .iter()
            .map(|device| device as &dyn BlockDevice)
            .collect();
        plan.write(&targets, false).unwrap();
        Images {
            made: KernelVolume::of_files(files, scratch),
            compression: case.compression,
        }
    }

    fn of_kernel(case: &matrix::Case) -> Images {
        let spec = case.spec().device_bytes(DEVICE_BYTES);
        Images {
            made: KernelVolume::make(&spec).unwrap(),
            compression: match case.compression {
                matrix::Compression::None => Compression::None,
                matrix::Compression::Zlib => Compression::Zlib,
                matrix::Compression::Lzo => Compression::Lzo,
                matrix::Compression::Zstd => Compression::Zstd,
            },
        }
    }

    fn open(&self) -> Volume {
        let compress = Compress {
            algorithm: self.compression,
            ..Compress::default()
        };
        let devices = self.made.devices();
        let builder = Volume::builder().scan(devices).compress(compress);
        builder.open(&devices[..1]).unwrap()
    }

    fn judge(&self) {
        let devices = self.made.devices().iter().map(|path| {
            let device = FileDevice::open(path, DeviceAccess::Read).unwrap();
            (path.clone(), Arc::new(device) as Arc<dyn BlockDevice>)
        });
        let options = CheckOptions::default();
        let report = check_devices(devices.collect(), &options, &mut ()).unwrap();
        assert!(report.is_spotless(), "{:?}", report.issues);
        self.made.check().unwrap();
    }
}

fn assert_ours(volume: &Volume, expected: &Contents) {
    for (path, content) in expected {
        assert!(
            volume.root().read(path).unwrap() == *content,
            "{}",
            path.display()
        );
    }
}

fn assert_theirs(mount: &Path, expected: &Contents) {
    let mut found = 0;
    for dir in 0..4 {
        found += fs::read_dir(mount.join(format!("live/dir-{dir}")))
            .unwrap()
            .count();
    }
    assert_eq!(found, expected.len());
    for (path, content) in expected {
        let seen = fs::read(mount.join(path.strip_prefix("/").unwrap())).unwrap();
        assert!(seen == *content, "{}", path.display());
    }
}

#[test]
fn kernel_and_engine_change_one_volume_in_turns() {
    if !kernel::or_skip(TEST) {
        return;
    }
    for (number, case) in cases().into_iter().enumerate() {
        let seed = seed(TEST) + number as u64;
        eprintln!("case {number}, seed {seed}");
        take_turns(&Images::make(&case), &mut Rng::new(seed));
    }
}

/// Volumes created by mkfs.btrfs. In a soak, all pairs of values occur in some volume. UBTRFS_CASES limits their
/// number, and the most varied are first. UBTRFS_CASE selects one.
#[test]
fn kernel_and_engine_take_turns_whatever_the_features() {
    if !kernel::or_skip(TEST) {
        return;
    }
    let few = match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => usize::MAX,
        None => 1,
    };
    let count = std::env::var("UBTRFS_CASES").ok();
    let count = count.and_then(|count| count.parse().ok()).unwrap_or(few);
    let first = seed(TEST);
    let mut cases = matrix::writable();
    match std::env::var("UBTRFS_CASE") {
        Ok(name) => cases.retain(|case| case.to_string() == name),
        Err(_) => cases = matrix::varied_of(&cases, count),
    }
    let mut failed = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let seed = first.wrapping_add(number as u64);
        let name = format!("UBTRFS_CASE={case} UBTRFS_SEED={seed}");
        eprintln!("{} of {}: {name}", number + 1, cases.len());
        let turns = || take_turns(&Images::of_kernel(case), &mut Rng::new(seed));
        if std::panic::catch_unwind(turns).is_err() {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

fn take_turns(images: &Images, rng: &mut Rng) {
    let mut expected = Contents::new();

    let volume = images.open();
    volume.root().create_subvolume("/live").unwrap();
    for dir in 0..4 {
        volume
            .root()
            .create_dir(format!("/live/dir-{dir}"))
            .unwrap();
    }
    change(&mut Ours(&volume), &mut expected, rng, 60);
    volume
        .root()
        .snapshot("/live", "/ours", Access::ReadOnly)
        .unwrap();
    let at_snapshot = expected.clone();
    change(&mut Ours(&volume), &mut expected, rng, 60);
    drop(volume);
    images.judge();

    let mount = images.made.mount(images.compression_option()).unwrap();
    let top = mount.path();
    assert_theirs(top, &expected);
    run("btrfs", &["scrub", "start", "-B", text(top)]);
    change(&mut Theirs(top), &mut expected, rng, 60);
    let theirs = top.join("theirs");
    run(
        "btrfs",
        &[
            "subvolume",
            "snapshot",
            text(&top.join("live")),
            text(&theirs),
        ],
    );
    change(&mut Theirs(top), &mut expected, rng, 40);
    run("btrfs", &["balance", "start", "--full-balance", text(top)]);
    mount.unmount().unwrap();

    let volume = images.open();
    assert_ours(&volume, &expected);
    for (path, content) in &at_snapshot {
        let path = Path::new("/ours").join(path.strip_prefix("/live").unwrap());
        assert!(
            volume.root().read(&path).unwrap() == *content,
            "{}",
            path.display()
        );
    }
    change(&mut Ours(&volume), &mut expected, rng, 60);
    volume.root().delete_subvolume("/theirs").unwrap();
    volume.root().delete_subvolume("/ours").unwrap();
    change(&mut Ours(&volume), &mut expected, rng, 20);
    volume.free_deleted_subvolumes().unwrap();
    drop(volume);
    images.judge();

    let mount = images.made.mount_ro().unwrap();
    assert_theirs(mount.path(), &expected);
    mount.unmount().unwrap();
}

impl Images {
    fn compression_option(&self) -> &'static str {
        match self.compression {
            Compression::None => "",
            Compression::Zlib => "compress=zlib",
            Compression::Lzo => "compress=lzo",
            Compression::Zstd => "compress=zstd",
        }
    }
}
