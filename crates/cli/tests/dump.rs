//! Compares `dump-super` and `dump-tree` with btrfs-progs, on volumes that the kernel made: the text is the
//! same.
//!
//! Needs root, the kernel's btrfs and btrfs-progs; without them the tests print that and pass.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ubtrfs_sim::fill::{self, Scale};
use ubtrfs_sim::kernel::{self, KernelMount, KernelVolume, MkfsSpec};
use ubtrfs_sim::matrix;

/// The output has the layout of this version.
const PROGS_VERSION: &str = "btrfs-progs v6.14";

fn ready(test: &str) -> bool {
    if !kernel::or_skip(test) {
        return false;
    }
    let version = run("btrfs", &["--version"], &[]);
    if version.starts_with(PROGS_VERSION.as_bytes()) {
        return true;
    }
    ubtrfs_sim::skip_optional(format_args!("not {PROGS_VERSION}"));
    false
}

fn run(program: &str, args: &[&str], devices: &[PathBuf]) -> Vec<u8> {
    let mut command = Command::new(program);
    command.args(args).args(devices).env("TZ", "Asia/Kolkata");
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// Removes the first line of a dump, which contains the name of the program.
fn without_banner(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|&byte| byte == b'\n');
    let first = &text[..end.unwrap_or(0)];
    let banner = first == PROGS_VERSION.as_bytes() || first.starts_with(b"ubtrfs v");
    if banner { &text[first.len()..] } else { text }
}

fn compare(what: &str, args: &[&str], devices: &[PathBuf]) {
    let args = [&["inspect-internal"], args].concat();
    let wanted = run("btrfs", &args, devices);
    let found = run(env!("CARGO_BIN_EXE_ubtrfs"), &args, devices);
    let (wanted, found) = (without_banner(&wanted), without_banner(&found));
    assert!(wanted.len() > 100, "{what}: {args:?}");
    let lines = wanted
        .split(|&b| b == b'\n')
        .zip(found.split(|&b| b == b'\n'));
    for (number, (wanted, found)) in lines.enumerate() {
        assert_eq!(
            wanted.escape_ascii().to_string(),
            found.escape_ascii().to_string(),
            "{what}: {args:?}, line {}",
            number + 1
        );
    }
    assert_eq!(wanted.len(), found.len(), "{what}: {args:?}");
}

fn compare_all(what: &str, devices: &[PathBuf]) {
    compare(what, &["dump-super", "-f", "-a"], &devices[..1]);
    compare(what, &["dump-tree"], devices);
    for options in [
        &["--dfs"][..],
        &["-e"],
        &["-d"],
        &["-u"],
        &["-r"],
        &["-R"],
        &["-t", "root"],
        &["-t", "5", "--hide-names"],
        &["-t", "csum", "--csum-items", "--csum-headers"],
    ] {
        let args = [&["dump-tree"], options].concat();
        compare(what, &args, devices);
    }
}

/// Numbers of a limit above 2^63 are negative in the dump of btrfs-progs.
#[test]
fn dumps_of_huge_quota_limits_are_those_of_btrfs_progs() {
    if !ready("dumps of huge quota limits") {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = volume.mount("").unwrap();
    let at = [mount.path().to_owned()];
    run("btrfs", &["quota", "enable"], &at);
    run("btrfs", &["qgroup", "limit", "10E"], &at);
    mount.unmount().unwrap();
    compare("limits", &["dump-tree", "-t", "quota"], volume.devices());
}

/// DUMP-2: dumps in many pieces end, and contain each block once.
#[test]
fn dumps_of_varied_volumes_are_those_of_btrfs_progs() {
    let test = "dumps of varied volumes";
    if !ready(test) {
        return;
    }
    let cases = match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => matrix::chosen(),
        None => matrix::varied(4),
    };
    for case in cases {
        let what = case.to_string();
        let seed = ubtrfs_sim::seed(&format!("{test} {what}"));
        let volume = KernelVolume::make(&case.spec()).unwrap();
        let mount = volume.mount(case.compression.mount_option()).unwrap();
        fill::hard_cases(mount.path(), &Scale::tiny(), seed).unwrap();
        mount.unmount().unwrap();
        compare_all(&what, volume.devices());
    }
}

fn btrfs<const N: usize>(args: [&OsStr; N]) {
    let output = Command::new("btrfs").args(args).output().unwrap();
    assert!(
        output.status.success(),
        "btrfs {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Copies the volume as a power cut would leave it now: with the flushed blocks, its log tree and orphans.
fn frozen(volume: &KernelVolume, mount: &KernelMount) -> Vec<PathBuf> {
    // The mount's own device shows the kernel's writes so far.
    let image = volume.dir().join("frozen.img");
    let from = File::open(mount.loops()[0].path()).unwrap();
    let to = File::create(&image).unwrap();
    let len = fs::metadata(&volume.devices()[0]).unwrap().len();
    to.set_len(len).unwrap();
    let mut block = vec![0; 1 << 20];
    for offset in (0..len).step_by(block.len()) {
        from.read_exact_at(&mut block, offset).unwrap();
        if block.iter().any(|&byte| byte != 0) {
            to.write_all_at(&block, offset).unwrap();
        }
    }
    vec![image]
}

fn write_synced(path: &Path, len: usize) -> File {
    let file = File::create(path).unwrap();
    file.write_all_at(&vec![7; len], 0).unwrap();
    file.sync_all().unwrap();
    file
}

#[test]
fn log_trees_and_orphans_are_dumped_as_btrfs_progs_does() {
    let test = "dumps of log trees";
    if !ready(test) {
        return;
    }
    let spec = MkfsSpec::new().device_bytes(256 << 20).nodesize(4096);
    let volume = KernelVolume::make(&spec).unwrap();
    let mount = volume.mount("commit=300").unwrap();
    let dir = mount.path().join("dir");
    fs::create_dir(&dir).unwrap();
    for number in 0..20 {
        fs::write(dir.join(format!("before-{number}")), "before").unwrap();
    }
    btrfs([
        "subvolume".as_ref(),
        "create".as_ref(),
        mount.path().join("sub").as_ref(),
    ]);
    let held = write_synced(&dir.join("orphan"), 70_000);
    fs::remove_file(dir.join("orphan")).unwrap();
    btrfs([
        "filesystem".as_ref(),
        "sync".as_ref(),
        mount.path().as_ref(),
    ]);
    fs::remove_file(dir.join("before-3")).unwrap();
    fs::rename(dir.join("before-4"), dir.join("after-4")).unwrap();
    write_synced(&dir.join("logged"), 100_000);
    write_synced(&mount.path().join("sub/logged"), 100);
    File::open(&dir).unwrap().sync_all().unwrap();
    let devices = frozen(&volume, &mount);
    drop(held);
    mount.unmount().unwrap();
    compare_all(test, &devices);
    compare(test, &["dump-tree", "-t", "tree-log"], &devices);
    let dump = run("btrfs", &["inspect-internal", "dump-tree"], &devices);
    let dump = String::from_utf8_lossy(&dump);
    for wanted in [
        "log tree key (TREE_LOG ROOT_ITEM 5)",
        "DIR_LOG_INDEX",
        "(ORPHAN ORPHAN_ITEM 2",
    ] {
        assert!(dump.contains(wanted), "{wanted}");
    }
    let args = ["inspect-internal", "dump-tree", "-t", "log"];
    let found = run(env!("CARGO_BIN_EXE_ubtrfs"), &args, &devices);
    assert_eq!(
        String::from_utf8_lossy(without_banner(&found)),
        logs_in(&dump)
    );
}

/// Returns the log root tree and the logs of a whole dump.
fn logs_in(dump: &str) -> String {
    let mut logs = String::from("\n");
    let mut is_log = false;
    for line in dump.split_inclusive('\n') {
        if line.contains("tree key (") || line.ends_with("tree\n") || line.starts_with("total ") {
            is_log = line.starts_with("log ");
        }
        if is_log {
            logs.push_str(line);
        }
    }
    logs
}

#[test]
fn shared_and_relocated_trees_are_dumped_as_btrfs_progs_does() {
    let test = "dumps of shared trees";
    if !ready(test) {
        return;
    }
    let spec = MkfsSpec::new().device_bytes(512 << 20).nodesize(4096);
    let volume = KernelVolume::make(&spec).unwrap();
    let mount = volume.mount("").unwrap();
    let path = |name: &str| mount.path().join(name);
    btrfs([
        "subvolume".as_ref(),
        "create".as_ref(),
        path("sub").as_ref(),
    ]);
    for number in 0..300 {
        fs::write(
            path(&format!("sub/file-{number}")),
            vec![number as u8; 5000],
        )
        .unwrap();
    }
    for number in 0..12 {
        let snapshot = path(&format!("snapshot-{number}"));
        let args = ["subvolume", "snapshot"].map(OsStr::new);
        btrfs([args[0], args[1], path("sub").as_ref(), snapshot.as_ref()]);
        fs::write(snapshot.join("file-7"), "changed").unwrap();
    }
    btrfs([
        "subvolume".as_ref(),
        "delete".as_ref(),
        path("snapshot-3").as_ref(),
    ]);
    let args = ["balance", "start", "--full-balance"].map(OsStr::new);
    btrfs([args[0], args[1], args[2], mount.path().as_ref()]);
    btrfs(["quota".as_ref(), "enable".as_ref(), mount.path().as_ref()]);
    mount.unmount().unwrap();
    compare_all(test, volume.devices());
    let dump = run(
        "btrfs",
        &["inspect-internal", "dump-tree"],
        volume.devices(),
    );
    let dump = String::from_utf8_lossy(&dump);
    for wanted in ["FULL_BACKREF", "QGROUP_INFO"] {
        assert!(dump.contains(wanted), "{wanted}");
    }
}

/// Returns the places in an image of the copies of a tree block.
fn places(image: &[u8], bytenr: u64, nodesize: usize) -> Vec<usize> {
    let fsid = &image[0x10020..0x10030];
    (0x100000..image.len() - nodesize)
        .step_by(4096)
        .filter(|&at| image[at + 32..at + 48] == *fsid)
        .filter(|&at| image[at + 48..at + 56] == bytenr.to_le_bytes())
        .collect()
}

fn first_leaf(dump: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(dump);
    let line = text.lines().find(|line| line.starts_with("leaf ")).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

fn ubtrfs(args: &[&str], image: &Path) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ubtrfs"))
        .args(args)
        .arg(image)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let success = output.status.success();
    (success, text(&output.stdout), text(&output.stderr))
}

#[test]
fn damaged_blocks_are_reported_and_the_dump_continues() {
    const NODESIZE: usize = 16384;
    const HEADER_BYTES: usize = 101;
    const ITEM_HEAD_BYTES: usize = 25;
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("v.img");
    let (made, _, errors) = ubtrfs(&["mkfs", "-q", "-b", "256M"], &image);
    assert!(made, "{errors}");
    let dump = ["inspect-internal", "dump-tree"];
    let (_, fs_tree, _) = ubtrfs(&[&dump[..], &["-t", "fs"]].concat(), &image);
    let (_, uuid_tree, _) = ubtrfs(&[&dump[..], &["-t", "csum"]].concat(), &image);
    let mut bytes = fs::read(&image).unwrap();
    // One block has two items that every check rejects, and one is overwritten.
    let fs_leaf = first_leaf(fs_tree.as_bytes());
    for at in places(&bytes, fs_leaf, NODESIZE) {
        let block = &mut bytes[at..at + NODESIZE];
        let item = |block: &[u8], slot: usize| {
            let offset = &block[HEADER_BYTES + slot * ITEM_HEAD_BYTES + 17..][..4];
            HEADER_BYTES + u32::from_le_bytes(offset.try_into().unwrap()) as usize
        };
        let mode = item(block, 0) + 52;
        block[mode..mode + 4].copy_from_slice(&0o7_777_777u32.to_le_bytes());
        let name_len = item(block, 1) + 8;
        block[name_len..name_len + 2].fill(0xff);
        ubtrfs_format::csum::CsumType::Crc32c.seal_block(block);
    }
    let csum_leaf = first_leaf(uuid_tree.as_bytes());
    for at in places(&bytes, csum_leaf, NODESIZE) {
        bytes[at + 100..at + NODESIZE].fill(0x55);
    }
    fs::write(&image, bytes).unwrap();
    let (success, text, errors) = ubtrfs(&dump, &image);
    assert!(success, "{errors}");
    assert!(
        errors.contains(&format!("ERROR: damaged tree block {fs_leaf}")),
        "{errors}"
    );
    let of_item = |slot: usize| {
        let of_leaf =
            |line: &&str| line.starts_with(&format!("ERROR: damaged tree block {fs_leaf}: "));
        let lines = errors.lines().filter(of_leaf);
        lines
            .filter(|line| line.contains(&format!(" in slot {slot}:")))
            .count()
    };
    assert_eq!((of_item(0), of_item(1)), (1, 1), "{errors}");
    assert!(errors.contains("unknown bits"), "{errors}");
    assert!(
        errors.contains(&format!("ERROR: failed to read tree block {csum_leaf}")),
        "{errors}"
    );
    assert!(text.contains("mode 7777777"), "{text}");
    assert!(text.contains("data reloc tree key"), "{text}");
    assert!(text.contains("\ntotal bytes "), "{text}");
}

#[test]
fn superblock_of_noise_is_shown_when_forced() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("noise");
    let mut noise = 1u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (noise >> 24) as u8
    })
    .take(1 << 18)
    .collect();
    fs::write(&image, noise).unwrap();
    for options in [&["-F"][..], &["-fF"], &["-F", "--format", "json"]] {
        let command = [&["inspect-internal", "dump-super"], options].concat();
        let (success, text, errors) = ubtrfs(&command, &image);
        assert!(success, "{errors}");
        assert!(text.contains("num_devices"), "{text}");
    }
    let (success, _, errors) = ubtrfs(&["inspect-internal", "dump-super"], &image);
    assert!(!success && errors.contains("bad magic"), "{errors}");
}
