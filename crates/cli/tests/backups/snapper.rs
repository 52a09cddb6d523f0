//! snapper, without its daemon, on a mount of the kernel's btrfs: it compares snapshots using the kernel's
//! stream without data. It reports the same changes as our comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec};

use crate::{OURS, ready, script};

/// snapper uses the system's configuration; the script works on copies of it.
const SNAPSHOTS: &str = r#"
for of in /etc/snapper /etc/default/snapper; do cp -a $of copy; mount --bind copy $of; mv copy used-$RANDOM; done
snapper="snapper --no-dbus -c ubtrfs-test"
$snapper create-config MNT; cd MNT
for name in appended mode owner xattr gone-file gone-xattr cut same; do head -c 9000 /dev/urandom > $name; done
setfattr -n user.a -v 1 gone-xattr; mkdir dir gone empty; echo 1 > dir/file; mkfifo gone/pipe; ln -s a link
$snapper create -d one
echo 2 >> appended; chmod 700 mode; chown 5:6 owner; setfattr -n user.a -v 1 xattr; rm gone-file
setfattr -x user.a gone-xattr; truncate -s 100 cut; touch same; rm -r gone link; ln -s b link; echo 2 > dir/file
echo 3 > dir/new; mkdir new; mkfifo new/pipe; mv dir/file new/moved; rmdir empty; echo 4 > empty
$snapper create -d two
$snapper status 1..2
"#;

/// Changes that snapper reports, by kind and path. A temporary name in the kernel's stream, of an inode that
/// is deleted, is no file.
fn reported_by_snapper(text: &str, top: &Path) -> BTreeSet<(char, String)> {
    let top = format!("{}/", top.display());
    let line = |line: &str| {
        let (flags, path) = line.split_once(' ').unwrap();
        let path = path.strip_prefix(&top).unwrap().to_owned();
        // For changes other than of type and content, the flags that follow describe the change.
        let how = match flags.chars().next().unwrap() {
            how @ ('+' | '-' | 't') => how,
            _ => 'c',
        };
        (how, path)
    };
    let is_temporary = |path: &str| path.starts_with('o') && path.ends_with("-0");
    let lines = text.lines().map(line);
    lines.filter(|(_, path)| !is_temporary(path)).collect()
}

/// Changes that `subvolume diff` reports, in snapper's terms. snapper reports no renames and no times.
fn reported_by_us(text: &str) -> BTreeSet<(char, String)> {
    let mut reported = BTreeSet::new();
    let (mut gone, mut new) = (BTreeMap::new(), BTreeMap::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (kind, name) = (words[1], words[2].trim_end_matches(':'));
        match words[0] {
            "added" => drop(new.insert(name, kind)),
            "removed" => drop(gone.insert(name, kind)),
            "renamed" => {
                new.insert(name, kind);
                gone.insert(words[4].trim_end_matches(':'), kind);
            }
            "changed" => {
                let (_, what) = line.split_once(": ").unwrap();
                if what.split(", ").any(|what| !what.ends_with("time")) {
                    reported.insert(('c', name.to_owned()));
                }
            }
            _ => panic!("{line}"),
        }
    }
    for (name, kind) in &new {
        let how = match gone.remove(name) {
            None => '+',
            Some(before) if before == *kind => 'c',
            Some(_) => 't',
        };
        reported.insert((how, (*name).to_owned()));
    }
    reported.extend(gone.keys().map(|name| ('-', (*name).to_owned())));
    reported
}

#[test]
fn snapper_reports_what_we_report() {
    if !ready("snapper", &["snapper"]) {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = volume.mount("").unwrap();
    let scratch = Scratch::new().unwrap();
    fs::create_dir(scratch.path().join("bin")).unwrap();
    std::os::unix::fs::symlink(OURS, scratch.path().join("bin/btrfs")).unwrap();
    let top = mount.path().to_owned();
    let inside = SNAPSHOTS.replace("MNT", &top.display().to_string());
    fs::write(scratch.path().join("inside"), inside).unwrap();
    let output = script(scratch.path(), "unshare -m bash -euo pipefail inside");
    assert!(output.status.success(), "{output:?}");
    let reported = reported_by_snapper(&String::from_utf8(output.stdout).unwrap(), &top);
    mount.unmount().unwrap();
    let image = volume.devices()[0].display();
    let diff = format!(
        "{OURS} subvolume diff {image}:/.snapshots/1/snapshot {image}:/.snapshots/2/snapshot"
    );
    let output = script(scratch.path(), &diff);
    assert!(output.status.success(), "{output:?}");
    let ours = String::from_utf8(output.stdout).unwrap();
    assert_eq!(reported_by_us(&ours), reported, "{ours}");
    assert!(reported.len() > 15, "{reported:?}");
}
