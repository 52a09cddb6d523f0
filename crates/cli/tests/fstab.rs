//! Lines of fstab, mounted and unmounted by mount(8) and umount(8), with the helpers that `make install`
//! installs. Needs root: the helpers are mounted over `/usr/sbin` in the test's own mount namespace.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

const HELPERS: [&str; 3] = [
    "mount.fuse.ubtrfs",
    "umount.fuse.ubtrfs",
    "umount.fuseblk.ubtrfs",
];

/// The script runs in the namespace. Arguments: the folder of helpers, the image, the directory, a file for
/// fstab.
const SCRIPT: &str = r#"
set -eu
helpers=$1 image=$2 dir=$3 fstab=$4
mount -t overlay -o "lowerdir=$helpers:/usr/sbin" none /usr/sbin
type() { findmnt -n -o FSTYPE "$dir"; }
# Who opens a volume waits a moment for its lock, too: the kernel may let go of a file after its process has ended.
free() { flock -w 5 "${1:-$image}" true; }

echo "$image $dir fuse.ubtrfs ro,nofail,_netdev,x-systemd.automount,comment=x 0 0" > "$fstab"
mount -T "$fstab" "$dir"
test "$(type)" = fuse.ubtrfs
test "$(cat "$dir/hello")" = hello
umount "$dir"
free

mount -a -T "$fstab"
test "$(cat "$dir/sub/inner")" = inner
umount "$dir"
free

mount -t fuse.ubtrfs "$image" "$dir"
echo new > "$dir/new"
mount -o remount,ro "$dir"
if (echo more > "$dir/more") 2> /dev/null; then exit 1; fi
mount -o remount,rw,nosuid "$dir"
echo more > "$dir/more"
findmnt -n -o OPTIONS "$dir" | grep -q '^rw,nosuid'
umount "$dir"
free
mount -t fuse.ubtrfs "$image" "$dir" -o ro
test "$(cat "$dir/new" "$dir/more")" = "new
more"
if mount -o remount,rw "$dir" 2> "$fstab.err"; then exit 1; fi
grep -q "opened read-only" "$fstab.err"
findmnt -n -o OPTIONS "$dir" | grep -q '^ro,'
umount "$dir"
free

# Set-id bits and devices count as with the kernel's btrfs, unless the line leaves the mounting to users.
shown() { findmnt -n -o OPTIONS "$dir"; }
for words in defaults rw noatime,nofail; do
    echo "$image $dir fuse.ubtrfs $words 0 0" > "$fstab"
    mount -T "$fstab" "$dir"
    if shown | grep -Eq 'nosuid|nodev|noexec'; then exit 1; fi
    rm -f "$dir/null"
    mknod "$dir/null" c 1 3
    echo x > "$dir/null"
    umount "$dir"
    free
done
for words in user,noauto users nosuid,nodev,noexec; do
    echo "$image $dir fuse.ubtrfs $words 0 0" > "$fstab"
    mount -T "$fstab" "$dir"
    for flag in nosuid nodev noexec; do shown | grep -q "$flag"; done
    umount "$dir"
    free
done
for words in owner group nosuid,nodev; do
    echo "$image $dir fuse.ubtrfs $words 0 0" > "$fstab"
    mount -T "$fstab" "$dir"
    for flag in nosuid nodev; do shown | grep -q "$flag"; done
    if shown | grep -q noexec; then exit 1; fi
    if (echo x > "$dir/null") 2> /dev/null; then exit 1; fi
    umount "$dir"
    free
done
echo "$image $dir fuse.ubtrfs user,suid,dev,exec 0 0" > "$fstab"
mount -T "$fstab" "$dir"
if shown | grep -Eq 'nosuid|nodev|noexec'; then exit 1; fi
umount "$dir"
free

mount -t fuse.ubtrfs "$image" "$dir" -o lazytime
mount -o remount,noatime "$dir"
findmnt -n -o OPTIONS "$dir" | grep -q noatime
mount -o remount,compress=zstd,relatime "$dir"
findmnt -n -o OPTIONS "$dir" | grep -q relatime
head -c 100000 /dev/zero > "$dir/zeros"
is_lazy() { findmnt -n -o OPTIONS "$dir" | grep -q lazytime; }
is_lazy
mount -o remount,nosuid "$dir"
is_lazy
mount -o remount,nolazytime "$dir"
if is_lazy; then exit 1; fi
mount -o remount,lazytime "$dir"
is_lazy
mount -o remount,ro "$dir"
umount "$dir"
free

# mount(8) says what is to be, and nothing of what is not. Options that the mount has anyway cause no warning.
mount -t fuse.ubtrfs "$image" "$dir"
words=sync,nosuid,nodev,noexec,nodiratime,nosymfollow,lazytime
mount -o "remount,$words" "$dir" 2> "$fstab.err"
for cleared in sync:async nosuid:suid nodev:dev noexec:exec nodiratime:diratime nosymfollow:symfollow \
    lazytime:nolazytime; do
    shown | tr , '\n' | grep -qx "${cleared%:*}"
    mount -o "remount,${cleared#*:}" "$dir" 2>> "$fstab.err"
    if shown | tr , '\n' | grep -qx "${cleared%:*}"; then exit 1; fi
done
if test -s "$fstab.err"; then cat "$fstab.err"; exit 1; fi
umount "$dir"
free

mount -t fuse.ubtrfs "$image" "$dir" -o ro,subvol=sub
test "$(cat "$dir/inner")" = inner
umount "$dir"
free

mount -t fuse.ubtrfs "$image" "$dir" -o ro,nosymfollow,context=system_u:object_r:x_t:s0
shown | grep -q nosymfollow
umount "$dir"
free

if mount -t fuse.ubtrfs "$image" "$dir" -o bogus 2> "$fstab.err"; then exit 1; fi
grep -q "unknown mount option 'bogus'" "$fstab.err"
mount -s -t fuse.ubtrfs "$image" "$dir" -o ro,bogus
umount "$dir"

device=$(losetup -f --show "$image")
trap 'umount -l "$dir" 2> /dev/null || true; losetup -d "$device"' EXIT
mount -t fuse.ubtrfs "$device" "$dir"
test "$(type)" = fuseblk.ubtrfs
umount "$dir"
free "$device"
mount -t fuse.ubtrfs "$device" "$dir" -o noblkdev
test "$(type)" = fuse.ubtrfs
umount "$dir"
"#;

fn can_make_namespaces() -> bool {
    Path::new("/dev/fuse").exists()
        && Command::new("unshare")
            .args(["-m", "true"])
            .status()
            .is_ok_and(|status| status.success())
}

#[test]
fn lines_of_fstab_are_mounted_and_unmounted() {
    if !can_make_namespaces() {
        ubtrfs_sim::skip("needs /dev/fuse, and root for a mount namespace");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    fs::create_dir_all(place("files/sub")).unwrap();
    fs::write(place("files/hello"), "hello\n").unwrap();
    fs::write(place("files/sub/inner"), "inner\n").unwrap();
    fs::create_dir(place("mnt")).unwrap();
    fs::create_dir(place("helpers")).unwrap();
    for name in HELPERS {
        symlink(env!("CARGO_BIN_EXE_ubtrfs"), place("helpers").join(name)).unwrap();
    }
    File::create(place("v.img"))
        .unwrap()
        .set_len(256 << 20)
        .unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_ubtrfs"))
        .args(["-q", "mkfs", "--subvol", "rw:sub", "--rootdir"])
        .args([place("files"), place("v.img")])
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let done = Command::new("unshare")
        .args(["-m", "sh", "-c", SCRIPT, "sh"])
        .args([
            place("helpers"),
            place("v.img"),
            place("mnt"),
            place("fstab"),
        ])
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}
