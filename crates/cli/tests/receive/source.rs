//! A volume of the kernel with snapshots, and the streams of these.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ubtrfs_sim::fill::{self, Scale};
use ubtrfs_sim::kernel::{self, KernelMount, KernelVolume, MkfsSpec};
use ubtrfs_sim::manifest::{Field, Manifest, assert_same};

/// The output has the layout of this version.
pub(crate) const PROGS_VERSION: &[u8] = b"btrfs-progs v6.14";
pub(crate) const OURS: &str = env!("CARGO_BIN_EXE_ubtrfs");

/// Returns whether this version of btrfs-progs is installed. Skips the test if not.
pub(crate) fn has_progs_or_skip() -> bool {
    let version = Command::new("btrfs").arg("--version").output();
    let has_progs = version.is_ok_and(|version| version.stdout.starts_with(PROGS_VERSION));
    if !has_progs {
        ubtrfs_sim::skip_optional(format_args!("not {}", PROGS_VERSION.escape_ascii()));
    }
    has_progs
}

pub(crate) fn ready(test: &str) -> bool {
    kernel::or_skip(test) && has_progs_or_skip()
}

pub(crate) fn btrfs<const N: usize>(args: [&OsStr; N]) {
    let output = Command::new("btrfs").arg("-q").args(args).output().unwrap();
    assert!(output.status.success(), "btrfs {args:?}: {output:?}");
}

pub(crate) fn shell(dir: &Path, script: &str) {
    let mut command = Command::new("bash");
    command.args(["-euc", script]).current_dir(dir);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
}

pub(crate) fn snapshot(of: &Path, to: &Path) {
    let command = ["subvolume".as_ref(), "snapshot".as_ref(), "-r".as_ref()];
    btrfs([command[0], command[1], command[2], of.as_ref(), to.as_ref()]);
}

/// Names, kinds, attributes, holes and sharing that appear in the text of a dump.
pub(crate) const FILES: &str = r#"
mkdir 'd 1'; echo hi > f; chown 5:6 f; chmod 4755 f
printf x > $'odd\t\n\\ \x01\xff\xc3\xa9\e\a\x7f name'
ln -s $'tar get\n' $'sym\nlink'; mkfifo p; mknod b b 259 1000; mknod c c 1 3
setfattr -n user.a -v $'va l\n\x01' f; setfattr -n $'user.o dd\x02' f; setfacl -m u:7:r f
ln f 'd 1/hard ln'
head -c 300000 /dev/urandom > big; cp --reflink=always big $'big cl\tone'
fallocate -l 1M pre; truncate -s 5G sparse
touch compressed; btrfs property set compressed compression zstd
head -c 400000 /dev/zero | tr '\0' a > compressed; touch -d '1901-02-03 04:05:06' f
touch -d '2400-02-29 04:05:06' pre; sync .
"#;
pub(crate) const CHANGES: &str = r#"
mv f 'f moved'; setfattr -x user.a 'f moved'; rm p; rm -r 'd 1'
fallocate -p -o 4096 -l 8192 big; cp --reflink=always big big2; fallocate -l 8192 -o 16384 big
truncate -s 1000 compressed; chattr +A pre; mkdir d2; mv c d2; sync .
"#;
/// Compression, sockets, default ACLs, capabilities, moves of directories, and files for clones of other
/// snapshots.
const MORE_FILES: &str = r#"
mkdir -p m/a/b/c m/x/y/z; echo 1 > m/a/b/c/1; echo 2 > m/x/y/z/2; mkdir acl; setfacl -d -m u:8:rwx acl
echo in > acl/file; mkdir acl/dir; setfacl -b acl/dir
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'
echo x > capable; setcap cap_net_raw+ep capable
for kind in zlib lzo zstd; do
  touch $kind; btrfs property set $kind compression $kind; yes $kind-data | head -c 700001 > $kind
  touch $kind-small; btrfs property set $kind-small compression $kind; yes | head -c 3000 > $kind-small
done
mkdir cdir; btrfs property set cdir compression zlib; yes in | head -c 90000 > cdir/file
yes plain | head -c 500000 > plain; sync .
cp --reflink=always zstd zstd-clone; for n in 1 2 3 4; do mkdir -p swap/$n; echo $n > swap/$n/f; done
"#;
const MORE_CHANGES: &str = r#"
mv m/a/b m/x/y/b; mv m/x m/a/x; mv m/a m/x2; mv swap/1 swap/t; mv swap/2 swap/1; mv swap/t swap/2; rm -r swap/3
touch swap/3; chown 7:7 capable; setcap cap_net_raw+ep capable; echo more >> plain; cp --reflink=always plain copy
dd if=/dev/urandom of=zstd bs=4096 seek=20 count=3 conv=notrunc status=none; truncate -s 300000 zlib
cp --reflink=always lzo lzo-clone; rm lzo-small; setfacl -b acl/file; chmod 700 acl; rm sock; mkdir sock; sync .
"#;

/// Streams in the order in which they must be received.
pub(crate) struct Series {
    pub(crate) what: String,
    pub(crate) streams: Vec<PathBuf>,
}

/// A mounted volume with snapshots.
pub(crate) struct SourceVolume {
    pub(crate) volume: KernelVolume,
    pub(crate) mount: KernelMount,
}

/// The snapshots, in the order in which they are sent.
pub(crate) const SNAPSHOTS: [&str; 4] = ["other", "before", "between", "after"];

impl SourceVolume {
    pub(crate) fn make(test: &str) -> SourceVolume {
        let spec = MkfsSpec::new().device_bytes(1 << 30);
        let volume = KernelVolume::make(&spec).unwrap();
        let mount = volume.mount("").unwrap();
        let top = mount.path();
        let (work, other) = (top.join("work"), top.join("work-other"));
        btrfs(["subvolume".as_ref(), "create".as_ref(), work.as_ref()]);
        btrfs(["subvolume".as_ref(), "create".as_ref(), other.as_ref()]);
        fill::hard_cases(&work, &Scale::tiny(), ubtrfs_sim::seed(test)).unwrap();
        shell(&other, "head -c 1000000 /dev/urandom > data; sync .");
        snapshot(&other, &top.join("other"));
        shell(&work, FILES);
        shell(&work, MORE_FILES);
        snapshot(&work, &top.join("before"));
        shell(&work, CHANGES);
        snapshot(&work, &top.join("between"));
        shell(&work, MORE_CHANGES);
        let cloned = "cp --reflink=always ../work-other/data cloned; sync .";
        shell(&work, cloned);
        snapshot(&work, &top.join("after"));
        SourceVolume { volume, mount }
    }

    pub(crate) fn send(&self, options: &str) -> Series {
        let mut streams = Vec::new();
        for (index, what) in [
            "other",
            "before",
            "-p before between",
            "-p between -c before -c other after",
        ]
        .iter()
        .enumerate()
        {
            let name = options.replace(' ', "_");
            let stream = self.volume.dir().join(format!("stream{name}-{index}"));
            let script = format!("btrfs -q send {options} {what} > {}", stream.display());
            shell(self.mount.path(), &script);
            streams.push(stream);
        }
        Series {
            what: options.to_owned(),
            streams,
        }
    }

    /// Compares the subvolumes received into a directory with the snapshots.
    pub(crate) fn assert_received(&self, what: &str, dir: &Path) {
        for name in SNAPSHOTS {
            let what = format!("{what}: {name}");
            let wanted = sent(&self.mount.path().join(name));
            let found = sent(&dir.join(name));
            assert!(found.entries.len() > 1, "{what}");
            assert_same(&what, &wanted, &found, &IGNORED);
        }
    }
}

/// Fields that are not in a stream, and the sizes of directories that contained subvolumes.
const IGNORED: [Field; 3] = [Field::Ctime, Field::Btime, Field::DirSize];

/// Returns the files of a snapshot that are in a stream: without nested subvolumes.
fn sent(dir: &Path) -> Manifest {
    let mut manifest = Manifest::of_dir(dir).unwrap();
    manifest
        .entries
        .retain(|entry| !entry.is_empty_subvolume_dir());
    // Our mounts use their own inode numbers for subvolumes.
    manifest.entries[0].stat.ino = 256;
    manifest.canonical()
}

/// Returns properties of subvolumes as the reference program shows them, without those that differ between
/// volumes.
pub(crate) fn shown(dir: &Path) -> Vec<String> {
    let mut facts = Vec::new();
    for name in SNAPSHOTS {
        let output = Command::new("btrfs")
            .args(["subvolume", "show"])
            .arg(dir.join(name))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        for line in text.lines() {
            let (key, value) = line.split_once(':').unwrap_or((line, ""));
            let (key, value) = (key.trim(), value.trim());
            match key {
                "Name" | "Received UUID" | "Flags" | "Send transid" => {
                    facts.push(format!("{name}: {key}: {value}"));
                }
                "Parent UUID" | "Send time" | "Receive time" => {
                    facts.push(format!("{name}: {key}: {}", value != "-"));
                }
                _ => {}
            }
        }
    }
    facts
}

pub(crate) fn run(program: &str, args: &[&OsStr]) -> Output {
    let mut command = Command::new(program);
    command.args(args).env_remove("UBTRFS_LOG");
    command.output().unwrap()
}

/// Receives a series, and asserts that each stream is received.
pub(crate) fn receive(program: &str, series: &Series, destination: &OsStr) {
    for stream in &series.streams {
        let args = ["receive".as_ref(), "-f".as_ref(), stream.as_os_str()];
        let args = [&args[..], &[destination]].concat();
        let output = run(program, &args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {stderr}", series.what);
        let stdout = String::from_utf8_lossy(&output.stdout);
        let said = format!("{stderr}{stdout}");
        assert!(said.starts_with("At s"), "{}: {said}", series.what);
        assert_eq!(said.lines().count(), 1, "{}: {said}", series.what);
        // The reference program prints it on standard output.
        assert_eq!(stdout.is_empty(), said.starts_with("At subvol"));
    }
}

/// Creates an empty volume with our program.
pub(crate) fn empty_image(path: &Path) {
    let size = ["mkfs".as_ref(), "-q".as_ref(), "-b".as_ref(), "1G".as_ref()];
    let output = run(OURS, &[&size[..], &[path.as_os_str()]].concat());
    assert!(output.status.success(), "{output:?}");
    assert!(fs::metadata(path).unwrap().len() == 1 << 30);
}
